//! Variables of modules. A module that is loaded anew has its first values; these here are those that `prepare` left.

use std::collections::BTreeMap;
use std::ffi::c_int;

use blake3::Hash;

use crate::context::Context;
use crate::driver::Address;
use crate::failure::{Failure, printable};
use crate::loaded::Modules;
use crate::staged::Device;

/// Most bytes of all variables together.
const MAX_BYTES: u64 = 256 << 20;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_int = 500;

/// A variable of a module, as its image has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    module: u32,
    name: String,
    bytes: usize,
}

/// All variables of modules with these symbols: lengths by name.
pub(crate) fn of<'a>(
    modules: impl Iterator<Item = &'a BTreeMap<String, u64>>,
) -> Result<Vec<Variable>, Failure> {
    let (mut found, mut left) = (Vec::new(), MAX_BYTES);
    for (module, symbols) in (0u32..).zip(modules) {
        for (name, &bytes) in symbols {
            let rest = left.checked_sub(bytes).zip(usize::try_from(bytes).ok());
            let Some((rest, bytes)) = rest else {
                let what = "the variables of the modules, which `prepare` may write, exceed";
                return Err(Failure::Plan(format!("{what} {MAX_BYTES} bytes")));
            };
            left = rest;
            if bytes > 0 {
                found.push(Variable { module, name: name.clone(), bytes });
            }
        }
    }
    Ok(found)
}

impl Variable {
    /// Where it lies. Nowhere if the driver does not know its name: of the variables that no source names,
    /// such as the texts of `printf`, it need not know any.
    fn place(&self, modules: &Modules) -> Result<Option<Address>, Failure> {
        let (at, held) = match modules.symbol(self.module, &self.name) {
            Err(Failure::Cuda { code: NOT_FOUND, .. }) => return Ok(None),
            other => other?,
        };
        if held < self.bytes as u64 {
            let name = printable(&self.name);
            return Err(Failure::Plan(format!("variable {name} is shorter than its image says")));
        }
        Ok(Some(at))
    }

    /// Its value. The GPU must be idle.
    fn read(&self, context: &Context, modules: &Modules) -> Result<Option<Vec<u8>>, Failure> {
        let Some(at) = self.place(modules)? else { return Ok(None) };
        let mut value = vec![0u8; self.bytes];
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: both sides have so many bytes; the call returns once all are copied.
        let code = unsafe { (context.driver.read)(value.as_mut_ptr().cast(), at, self.bytes) };
        context.driver.check(&format!("read variable {}", printable(&self.name)), code)?;
        Ok(Some(value))
    }
}

/// What the variables held at a time.
pub(crate) struct Before(Vec<Option<Hash>>);

/// Values of the variables that were changed since, in the order of all. The others keep what their module was
/// loaded with: that may be an address, which can differ each time.
pub(crate) struct Changed(Vec<Option<Vec<u8>>>);

impl Before {
    /// Looks at the variables. The GPU must be idle.
    pub(crate) fn look(
        context: &Context,
        modules: &Modules,
        variables: &[Variable],
    ) -> Result<Self, Failure> {
        let hash = |variable: &Variable| {
            let value = variable.read(context, modules)?;
            Ok(value.map(|value| blake3::hash(&value)))
        };
        variables.iter().map(hash).collect::<Result<_, _>>().map(Self)
    }

    /// Looks again. The GPU must be idle.
    pub(crate) fn changed(
        self,
        context: &Context,
        modules: &Modules,
        variables: &[Variable],
    ) -> Result<Changed, Failure> {
        let pairs = variables.iter().zip(self.0);
        let changed = pairs.map(|(variable, before)| {
            let value = variable.read(context, modules)?;
            Ok(value.filter(|value| before != Some(blake3::hash(value))))
        });
        changed.collect::<Result<_, _>>().map(Changed)
    }
}

impl Changed {
    /// Writes the values to modules that were loaded anew, and waits until they are there.
    pub(crate) fn write(
        &self,
        context: &Context,
        modules: &Modules,
        variables: &[Variable],
    ) -> Result<(), Failure> {
        for (variable, value) in variables.iter().zip(&self.0) {
            let Some(value) = value else { continue };
            let name = printable(&variable.name);
            let Some(at) = variable.place(modules)? else {
                return Err(Failure::Plan(format!("variable {name} is not found again")));
            };
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `read` has filled `value` with the variable's bytes, and `place` has seen that as many lie
            // at `at`.
            let code = unsafe { (context.driver.write)(at, value.as_ptr().cast(), value.len()) };
            context.driver.check(&format!("write variable {name}"), code)?;
        }
        // A copy from memory that is not pinned returns before its last bytes arrive.
        context.synchronise("write variables")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    }

    #[test]
    fn variables_of_all_modules_are_bounded_together() {
        let half = MAX_BYTES / 2;
        let fits = [symbols(&[("a", half), ("none", 0)]), symbols(&[]), symbols(&[("a", half)])];
        let variable =
            |module| Variable { module, name: "a".to_owned(), bytes: half.try_into().unwrap() };
        assert_eq!(of(fits.iter()).unwrap(), [variable(0), variable(2)]);
        for bytes in [half + 1, u64::MAX] {
            let exceeds = [symbols(&[("a", half)]), symbols(&[("b", bytes)])];
            assert_eq!(of(exceeds.iter()).unwrap_err().kind(), "plan", "{bytes}");
        }
    }
}
