//! Checks a runner's claims about its outputs. Each must lie inside the zone that the judge assigned, have
//! the reference's shape and dtype in the same call, and be dense. It must not overlap an input unless the
//! reference's output is a view of that input.

use serde_json::Value as Json;

use crate::check::dtype::Dtype;
use crate::device::arena::Zone;
use crate::process::wire::{Place, Value};

mod tree;

/// One output whose place has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<u64>,
    pub(crate) dtype: Dtype,
}

impl Located {
    /// Elements.
    pub(crate) fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Where its last element ends.
    pub(crate) fn end(&self) -> u64 {
        let steps = self.shape.iter().zip(&self.strides);
        let last: u64 = steps.map(|(&n, &stride)| n.saturating_sub(1) * stride).sum();
        self.offset + (last + 1) * self.dtype.size()
    }

    /// Whether the elements lie one after the other.
    pub(crate) fn contiguous(&self) -> bool {
        let mut expected = 1;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return false;
            }
            expected *= n.max(1);
        }
        true
    }

    /// Trusts a place of the oracle's.
    pub(crate) fn trusted(place: &Place) -> Option<Self> {
        let strides = place.strides.iter().map(|&s| s as u64).collect();
        let (dtype, parts) = Dtype::parts(&place.dtype)?;
        Some(Self::of_parts(place.offset?, place.shape.clone(), strides, (dtype, parts)))
    }

    /// A tensor whose elements are so many numbers each: as one of more dimensions.
    fn of_parts(
        offset: u64,
        mut shape: Vec<u64>,
        mut strides: Vec<u64>,
        (dtype, parts): (Dtype, u64),
    ) -> Self {
        if parts > 1 {
            for stride in &mut strides {
                *stride *= parts;
            }
            shape.push(parts);
            strides.push(1);
        }
        Self { offset, shape, strides, dtype }
    }
}

/// Why a claim is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Wrong number, nesting, shape, dtype or device.
    Shape(String),
    /// Memory that no call of this window can have written.
    Integrity { class: &'static str, message: String },
}

/// One output of the reference in the same call.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) shape: &'a [u64],
    /// Elements between neighbours, per dimension.
    pub(crate) strides: &'a [i64],
    /// Torch's name.
    pub(crate) dtype: &'a str,
    /// Where the input lies of which it is a view: a candidate's may be one too.
    pub(crate) view_of: Option<Zone>,
}

/// The reference's results in one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) tree: &'a Json,
    /// The tree of the outputs in float64, if there is one: its numbers count as well.
    pub(crate) exact: Option<&'a Json>,
    pub(crate) outputs: &'a [Wanted<'a>],
}

/// Checks the outputs of one call against the reference's in the same call. `zone` is where this
/// window's results must lie. No refusal quotes a value of the reference's.
pub(crate) fn check(
    claimed: &Value,
    reference: Reference<'_>,
    zone: Zone,
) -> Result<Vec<Located>, Refused> {
    let order = match tree::same(&claimed.tree, reference.tree, reference.exact) {
        Ok(order) => order,
        Err(differs) => {
            let message = format!(
                "the outputs are built differently: {differs}; the reference gives {}, and the \
                 candidate {}",
                tree::outline(reference.tree),
                tree::outline(&claimed.tree)
            );
            return Err(Refused::Shape(message));
        }
    };
    let found: Option<Vec<&Place>> = order.iter().map(|&i| claimed.tensors.get(i)).collect();
    let found =
        found.filter(|found| [found.len(), claimed.tensors.len()] == [reference.outputs.len(); 2]);
    let Some(found) = found else {
        let (want, got) = (reference.outputs.len(), claimed.tensors.len());
        return Err(Refused::Shape(format!("expected {want} output tensors, got {got}")));
    };
    let pairs = found.into_iter().zip(reference.outputs).enumerate();
    pairs.map(|(i, (got, want))| one(i, got, want, zone)).collect()
}

fn one(i: usize, got: &Place, want: &Wanted<'_>, zone: Zone) -> Result<Located, Refused> {
    let shape = |message: String| Err(Refused::Shape(format!("output {i}: {message}")));
    if got.shape != want.shape {
        let (wanted_shape, got_shape) = (want.shape, &got.shape);
        return shape(format!("expected shape {wanted_shape:?}, got {got_shape:?}"));
    }
    if got.dtype != want.dtype {
        return shape(format!("expected dtype {}, got {}", want.dtype, got.dtype));
    }
    let Some((dtype, parts)) = Dtype::parts(&got.dtype) else {
        return shape(format!("dtype {} is not supported", got.dtype));
    };
    let count: u64 = got.shape.iter().product();
    if count == 0 {
        let strides = vec![0; got.shape.len()];
        let (at, shape) = (zone.offset, got.shape.clone());
        return Ok(Located::of_parts(at, shape, strides, (dtype, parts)));
    }
    if got.strides.len() != got.shape.len() || got.strides.iter().any(|&s| s < 0) {
        return shape("its strides make no sense".to_owned());
    }
    let strides: Vec<u64> = got.strides.iter().map(|&s| s as u64).collect();
    // Where the reference's is expanded, so may the candidate's be.
    let expanded = |dim: usize| strides[dim] == 0 && want.strides.get(dim) == Some(&0);
    let apart: Vec<u64> =
        (0..got.shape.len()).map(|dim| if expanded(dim) { 1 } else { got.shape[dim] }).collect();
    if overlaps(&apart, &strides) {
        return shape(format!("its elements share memory (strides {strides:?})"));
    }
    let Some(offset) = got.offset else {
        return shape("it does not lie in the memory that torch allocates here".to_owned());
    };
    let span = got
        .shape
        .iter()
        .zip(&strides)
        .try_fold(1u64, |sum, (&n, &s)| (n - 1).checked_mul(s).and_then(|x| sum.checked_add(x)))
        .and_then(|elements| elements.checked_mul(parts * dtype.size()));
    let Some(span) = span else {
        return shape("its strides make no sense".to_owned());
    };
    if !zone.contains(offset, span) && !want.view_of.is_some_and(|z| z.contains(offset, span)) {
        return Err(Refused::Integrity {
            class: "stale_or_aliased_output",
            message: format!(
                "output {i} lies outside the memory given for this call's results: it is an \
                 input, a parameter, or was made before the call"
            ),
        });
    }
    Ok(Located::of_parts(offset, got.shape.clone(), strides, (dtype, parts)))
}

/// Whether two different elements may lie at one place. Exact for the layouts that views and
/// permutations of dense tensors give; anything odder counts as overlapping.
fn overlaps(shape: &[u64], strides: &[u64]) -> bool {
    let mut dims: Vec<(u64, u64)> =
        strides.iter().copied().zip(shape.iter().copied()).filter(|&(_, n)| n > 1).collect();
    dims.sort_unstable();
    let mut reach = 0u64;
    for (stride, n) in dims {
        if stride <= reach {
            return true;
        }
        reach = reach.saturating_add(stride.saturating_mul(n - 1));
    }
    false
}

#[cfg(test)]
mod tests;
