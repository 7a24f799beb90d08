//! Numbers that were a yes or a no before there could be more than one.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a number; `true` is 1 and `false` 0.
pub fn how_many<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    from.deserialize_any(HowMany)
}

struct HowMany;

impl Visitor<'_> for HowMany {
    type Value = u32;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number from 0 on, or true or false")
    }

    fn visit_bool<E: Error>(self, one: bool) -> Result<u32, E> {
        Ok(u32::from(one))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::custom(format!("{number} is too large")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::custom(format!("{number} is not from 0 on")))
    }
}
