//! One way to call an operator, with its input and output shapes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::ShapeError;
use super::size::{Size, Sizes};

/// A verified call at fixed ranks, with all known facts about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Constructor of a module: Python with `{A}` for sizes. Absent if the operator is not a
    /// module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
    /// Python of the call with `{name}` for tensors and `{A}` for sizes; `module` is the module.
    pub call: String,
    /// Values of attributes in this form, as Python.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Ranges of the sizes.
    pub symbols: BTreeMap<String, Symbol>,
    /// Tensors, in the order of the call.
    pub inputs: Vec<Input>,
    /// A module's parameters, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// All result tensors of the call.
    pub outputs: Vec<Output>,
    /// Kind of work.
    pub class: Class,
    /// Whether dimensions of an input may also be 1, for broadcasting.
    #[serde(default, skip_serializing_if = "is_false")]
    pub broadcasts: bool,
    /// Whether large finite inputs give non-finite results.
    #[serde(default, skip_serializing_if = "is_false")]
    pub steep: bool,
    /// Whether many inputs share one result: rounding, signs, counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub coarse: bool,
    /// Floating-point operations per element of the first output, if torch counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_per_output: Option<Size>,
}

/// Allowed values of a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Symbol {
    /// The smallest value that worked; at least 2, because 1 means broadcasting.
    #[serde(default = "two", skip_serializing_if = "is_two")]
    pub min: u64,
    /// The size is a multiple of this.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub multiple: u64,
    /// The size is at most this other symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<String>,
}

fn one() -> u64 {
    1
}

fn two() -> u64 {
    2
}

fn float32() -> String {
    "float32".to_owned()
}

fn is_float32(dtype: &str) -> bool {
    dtype == "float32"
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_two(size: &u64) -> bool {
    *size == 2
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(multiple: &u64) -> bool {
    *multiple == 1
}

/// An input tensor of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its placeholder.
    pub name: String,
    /// One entry per dimension: a symbol, or a fixed number.
    pub dims: Vec<Size>,
    /// Element type.
    #[serde(default, skip_serializing_if = "Dtype::is_usual")]
    pub dtype: Dtype,
    /// Values for which all results are finite.
    #[serde(default, skip_serializing_if = "Domain::is_any")]
    pub domain: Domain,
    /// For indices: the symbol that bounds them from above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
}

/// A learnable tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Name as in `named_parameters`.
    pub name: String,
    /// Its shape.
    pub dims: Vec<Size>,
}

/// An output tensor of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Python expression appended to the call: `.values`, `[0]`; empty for the result itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Element type for float32 inputs, by torch's name.
    #[serde(default = "float32", skip_serializing_if = "is_float32")]
    pub dtype: String,
    /// Its shape.
    pub dims: Vec<Size>,
    /// Range of all observed values, for any inputs: at least 0, from 0 to 1, or from -1 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Domain>,
}

/// Element type of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Single precision.
    #[default]
    Float32,
    /// An integer or an index.
    Int64,
    /// A truth value.
    Bool,
}

/// Input values for which an operator gives finite results, found by probing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// All values.
    #[default]
    Any,
    /// All values except 0.
    Nonzero,
    /// Above -1.
    AboveMinusOne,
    /// At least 0.
    NonNegative,
    /// Above 0.
    Positive,
    /// At least 1.
    AtLeastOne,
    /// Above 1.
    AboveOne,
    /// From -1 to 1.
    ClosedUnitBall,
    /// Between -1 and 1.
    OpenUnitBall,
    /// From 0 to 1.
    ClosedUnit,
    /// Between 0 and 1.
    OpenUnit,
    /// Small non-negative integers.
    Integer,
    /// Integers from 0 up to a size, exclusive.
    Index,
    /// Truth values.
    Bool,
}

/// Kind of work, determined from the dependencies of outputs on inputs and from torch's own
/// counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Each output depends on one element of each input.
    Elementwise,
    /// Elements are moved, not changed.
    Layout,
    /// Elements are moved by data-dependent indices.
    Gather,
    /// Elements are summed by data-dependent indices.
    Scatter,
    /// Fewer outputs than inputs; each depends on many inputs.
    Reduction,
    /// Each output depends on all preceding inputs.
    Scan,
    /// As many outputs as inputs; each depends on a whole row or more.
    Normalisation,
    /// As many outputs as inputs; each depends on a few neighbours.
    Window,
    /// Fewer outputs than inputs; each depends on a window.
    Pooling,
    /// More outputs than inputs; each depends on a few inputs.
    Resample,
    /// Each output depends on a pair of rows.
    Pairwise,
    /// Matrix products.
    Product,
    /// Convolutions.
    Convolution,
    /// Attention.
    Attention,
    /// Sequential steps.
    Recurrent,
    /// Fourier transforms.
    Transform,
    /// Matrix factorisations and functions that use them.
    Factorisation,
    /// Order of elements.
    Sort,
}

impl Dtype {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_usual(&self) -> bool {
        *self == Self::Float32
    }
}

impl Domain {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

impl Form {
    /// Sizes of all symbols from the shapes of the tensors, and from `chosen` for sizes that no
    /// tensor has (a linear layer's `out_features`). The error names the dimension that does not
    /// fit.
    pub fn bind(&self, shapes: &[&[u64]], chosen: &Sizes) -> Result<Sizes, ShapeError> {
        if shapes.len() != self.inputs.len() {
            let (wanted, given) = (self.inputs.len(), shapes.len());
            return Err(ShapeError::Count { wanted, given });
        }
        let mut sizes = Sizes::new();
        for (input, shape) in self.inputs.iter().zip(shapes) {
            input.bind(shape, self.broadcasts, &mut sizes)?;
        }
        for name in self.symbols.keys() {
            if !sizes.contains_key(name) {
                let size = chosen
                    .get(name)
                    .ok_or_else(|| ShapeError::Unchosen { symbol: name.clone() })?;
                sizes.insert(name.clone(), *size);
            }
        }
        self.check(&sizes)?;
        Ok(sizes)
    }

    /// Whether the operator accepts these sizes.
    pub fn check(&self, sizes: &Sizes) -> Result<(), ShapeError> {
        for (name, rule) in &self.symbols {
            let Some(size) = sizes.get(name).copied() else {
                return Err(ShapeError::Unchosen { symbol: name.clone() });
            };
            let refused =
                |rule: String| Err(ShapeError::Refused { symbol: name.clone(), size, rule });
            if size < rule.min {
                return refused(format!("is below {}", rule.min));
            }
            if !size.is_multiple_of(rule.multiple) {
                return refused(format!("is no multiple of {}", rule.multiple));
            }
            if let Some(other) = &rule.at_most
                && sizes.get(other).is_some_and(|other| size > *other)
            {
                return refused(format!("is above {other}"));
            }
        }
        Ok(())
    }

    /// Shapes of all outputs from the shapes of the inputs; `chosen` as in [`Form::bind`].
    pub fn outputs(&self, shapes: &[&[u64]], chosen: &Sizes) -> Result<Vec<Vec<u64>>, ShapeError> {
        let sizes = self.bind(shapes, chosen)?;
        self.outputs.iter().map(|output| shape(&output.dims, &sizes)).collect()
    }

    /// Symbols that no tensor has.
    pub fn free_symbols(&self) -> impl Iterator<Item = &str> {
        let bound = |name: &str| {
            self.inputs.iter().any(|i| i.dims.iter().any(|dim| dim.symbol() == Some(name)))
        };
        self.symbols.keys().map(String::as_str).filter(move |name| !bound(name))
    }
}

impl Input {
    /// Adds the sizes that `shape` determines to `sizes`.
    pub(crate) fn bind(
        &self,
        shape: &[u64],
        broadcasts: bool,
        sizes: &mut Sizes,
    ) -> Result<(), ShapeError> {
        if shape.len() != self.dims.len() {
            return Err(ShapeError::Rank {
                input: self.name.clone(),
                wanted: self.dims.len(),
                given: shape.len(),
            });
        }
        for (dimension, (dim, given)) in self.dims.iter().zip(shape).enumerate() {
            if broadcasts && *given == 1 {
                continue;
            }
            let wanted = match dim.symbol() {
                Some(symbol) => *sizes.entry(symbol.to_owned()).or_insert(*given),
                None => dim.value(sizes)?,
            };
            if wanted != *given {
                return Err(ShapeError::Dimension {
                    input: self.name.clone(),
                    dimension,
                    wanted,
                    given: *given,
                });
            }
        }
        Ok(())
    }
}

/// Values of dimensions.
pub(crate) fn shape(dims: &[Size], sizes: &Sizes) -> Result<Vec<u64>, ShapeError> {
    Ok(dims.iter().map(|dim| dim.value(sizes)).collect::<Result<_, _>>()?)
}
