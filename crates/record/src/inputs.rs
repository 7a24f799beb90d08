//! The inputs on which a candidate is compared with the reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the inputs of a comparison came from. All but `own` are made from the task's own inputs, and but
/// for `slices`, `constants` and `clusters` by a function of each element's value that keeps zeros and equal elements
/// (`python/warpwright_oracle/families.py`); a task's own inputs show which it allows.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InputFamily {
    /// What `get_inputs()` gives.
    #[default]
    Own,
    /// Normal numbers of mean zero with the own inputs' root mean square.
    Normal,
    /// The own inputs and four times their standard deviation.
    Offset,
    /// The own inputs times 16.
    Large,
    /// The own inputs divided by 64.
    Small,
    /// The own inputs, all closer to zero by 30 % of the range of the dtype's exponents; only for references that are
    /// homogeneous functions.
    Faint,
    /// The own inputs with half of the elements zero.
    Sparse,
    /// Whole numbers from -3 to 3; from 0 to 3 where the own inputs have one sign.
    Integers,
    /// The own inputs, one of 512 elements times 4.
    Outliers,
    /// The own inputs, scaled so that the largest is three quarters of half precision's.
    Huge,
    /// The own inputs, scaled so that the largest is 128: its exponential overflows in float32.
    Steep,
    /// The own inputs, one element of each tensor 32 times as large as the largest.
    Spike,
    /// The own inputs, of each tensor one slice zero, one constant, one tiny, one below -128 and one up to
    /// 512, as far as the task allows these; of masks one slice with each of the two values, and one with
    /// both.
    Slices,
    /// The own inputs, with other values of those that every draw of them gives the same: masks, states of
    /// zeros, positions.
    Constants,
    /// The own inputs, each row near one of two, of which one rises and the other falls; most elements of an
    /// integer tensor are the same.
    Clusters,
    /// The own inputs; of some rows the largest numbers are in one place, the sizes differ along the row, or a
    /// first part is sorted. Integers come in runs, and masks have rows of different lengths.
    Structures,
    /// The own inputs; of each tensor one slice below zero and one of both signs by most of the range of the
    /// dtype's exponents, and one as close to zero.
    Ends,
    /// The own inputs, one of 512 elements NaN or infinite: only for outputs that are no floating ones
    /// and have one value on all other families, and where the reference asks which numbers are finite.
    NonFinite,
}

impl InputFamily {
    /// Every family.
    pub const ALL: [Self; 18] = [
        Self::Own,
        Self::Normal,
        Self::Offset,
        Self::Large,
        Self::Small,
        Self::Faint,
        Self::Sparse,
        Self::Integers,
        Self::Outliers,
        Self::Huge,
        Self::Steep,
        Self::Spike,
        Self::Slices,
        Self::Constants,
        Self::Clusters,
        Self::Structures,
        Self::Ends,
        Self::NonFinite,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Normal => "normal",
            Self::Offset => "offset",
            Self::Large => "large",
            Self::Small => "small",
            Self::Faint => "faint",
            Self::Sparse => "sparse",
            Self::Integers => "integers",
            Self::Outliers => "outliers",
            Self::Huge => "huge",
            Self::Steep => "steep",
            Self::Spike => "spike",
            Self::Slices => "slices",
            Self::Constants => "constants",
            Self::Clusters => "clusters",
            Self::Structures => "structures",
            Self::Ends => "ends",
            Self::NonFinite => "non_finite",
        }
    }

    /// What its inputs are, for a person or a model.
    pub fn description(self) -> &'static str {
        match self {
            Self::Own => "what get_inputs() gives",
            Self::Normal => {
                "normal numbers of mean zero, with the root mean square of get_inputs()'s"
            }
            Self::Offset => "get_inputs()'s values plus four of their standard deviations",
            Self::Large => "get_inputs()'s values times 16",
            Self::Small => "get_inputs()'s values divided by 64",
            Self::Faint => {
                "get_inputs()'s values, all closer to zero by 30 % of the dtype's range of exponents"
            }
            Self::Sparse => "get_inputs()'s values with half of the elements set to zero",
            Self::Integers => "small whole numbers",
            Self::Outliers => "get_inputs()'s values with one of 512 elements times 4",
            Self::Huge => "get_inputs()'s values scaled so that the largest is 49128",
            Self::Steep => "get_inputs()'s values scaled so that the largest is 128",
            Self::Spike => {
                "get_inputs()'s values with one element 32 times as large as the largest"
            }
            Self::Slices => {
                "get_inputs()'s values, of each tensor one slice zero, one constant, one tiny and one \
                 far from zero; of a mask one slice with one value"
            }
            Self::Constants => {
                "get_inputs()'s values, with others for the tensors that it always gives the same \
                 (masks, states of zeros, positions)"
            }
            Self::Clusters => {
                "get_inputs()'s values, each row near one of two, of which one rises and the other \
                 falls; of integers most are the same"
            }
            Self::Structures => {
                "get_inputs()'s values; in some rows the largest in one place, sizes that differ along \
                 the row, or a sorted beginning; integers in runs, masks of different lengths"
            }
            Self::Ends => {
                "get_inputs()'s values, of each tensor one slice near the lower end of the dtype's \
                 range, one near both and one close to zero"
            }
            Self::NonFinite => "get_inputs()'s values with one of 512 elements NaN or infinite",
        }
    }

    /// Whether honest programs may differ in how they take such inputs, by more than on others:
    /// what a shift or a scale costs depends on the algorithm.
    pub fn is_hard(self) -> bool {
        matches!(
            self,
            Self::Offset
                | Self::Large
                | Self::Sparse
                | Self::Outliers
                | Self::Huge
                | Self::Steep
                | Self::Spike
                | Self::Slices
                | Self::Clusters
                | Self::Structures
                | Self::Ends
                | Self::NonFinite
        )
    }
}
