//! Calls of libraries, generic over what an address is: of a recorder's process, or of a plan's block.

use std::convert::Infallible;

/// A call of a library that computes on memory with addresses of type `A`.
pub trait LibraryCall<A> {
    /// The same call with addresses of another type.
    type With<B>;

    /// The same call with other addresses.
    ///
    /// # Errors
    /// The first of `place`.
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<Self::With<B>, E>
    where
        A: 'a;

    /// Its addresses, in the order of [`Self::try_map`].
    fn places<'a>(&'a self) -> Vec<&'a A>
    where
        A: 'a,
    {
        let mut found = Vec::new();
        let Ok(_) = self.try_map::<(), Infallible>(&mut |at| {
            found.push(at);
            Ok(())
        });
        found
    }
}
