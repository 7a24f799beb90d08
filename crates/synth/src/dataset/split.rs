//! Splits combinations of operators into training, validation and test.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::DataSetError;

/// Purpose of a row.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// For training.
    Train,
    /// For model selection during training.
    Validation,
    /// For evaluation: combinations that are never trained on.
    Test,
}

impl Split {
    /// All splits, in order.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A multiset of operators: `relu, conv2d` and `conv2d, relu` are equal; `relu` twice differs from
/// `relu` once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Combination(Vec<String>);

impl Combination {
    /// The combination of operators in any order.
    pub fn of(operators: &[String]) -> Self {
        let mut sorted = operators.to_vec();
        sorted.sort_unstable();
        Self(sorted)
    }

    /// Its position between 0 and 1: a hash of the operators' names only.
    fn position(&self) -> f64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"warpwright split 1");
        for operator in &self.0 {
            // With their lengths, so that no two combinations are written alike.
            hasher.update(&(operator.len() as u64).to_le_bytes());
            hasher.update(operator.as_bytes());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        // 53 bits: as many as a double holds, so that the result is below 1.
        (u64::from_le_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" + "))
    }
}

/// Shares of all combinations reserved for validation and test. The rest is for training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Shares {
    validation: f64,
    test: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    validation: f64,
    test: f64,
}

impl TryFrom<Parts> for Shares {
    type Error = DataSetError;

    fn try_from(parts: Parts) -> Result<Self, DataSetError> {
        Self::new(parts.validation, parts.test)
    }
}

impl Default for Shares {
    /// 5 % for validation, 10 % for test.
    fn default() -> Self {
        Self { validation: 0.05, test: 0.1 }
    }
}

impl Shares {
    /// Fails if one is below 0 or both together exceed 1.
    pub fn new(validation: f64, test: f64) -> Result<Self, DataSetError> {
        if validation >= 0.0 && test >= 0.0 && validation + test <= 1.0 {
            Ok(Self { validation, test })
        } else {
            Err(DataSetError::Shares { validation, test })
        }
    }

    /// The share for validation.
    pub fn validation(&self) -> f64 {
        self.validation
    }

    /// The share for test.
    pub fn test(&self) -> f64 {
        self.test
    }

    /// The split of a combination. Test occupies the first positions, then validation, so that
    /// another validation share leaves the test split unchanged.
    pub fn split_of(&self, combination: &Combination) -> Split {
        let position = combination.position();
        if position < self.test {
            Split::Test
        } else if position < self.test + self.validation {
            Split::Validation
        } else {
            Split::Train
        }
    }
}
