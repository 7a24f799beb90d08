//! A shard of a suite, for several machines.

/// One of several equal shards of a suite's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// From 1.
    pub(crate) this: usize,
    pub(crate) of: usize,
}

/// From `K/N`.
pub(super) fn parse(text: &str) -> Result<Shard, String> {
    let parsed = text.split_once('/').and_then(|(this, of)| {
        let shard = Shard { this: this.parse().ok()?, of: of.parse().ok()? };
        (1..=shard.of).contains(&shard.this).then_some(shard)
    });
    parsed.ok_or_else(|| "expected K/N with K from 1 to N".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!(parse("2/4"), Ok(Shard { this: 2, of: 4 }));
        assert!(parse("0/4").is_err() && parse("5/4").is_err() && parse("half").is_err());
    }
}
