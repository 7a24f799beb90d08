//! Messages between the judge and its Python processes.
//!
//! The judge builds the requests. Replies of the oracle and the baseline are trusted for values; replies of
//! a runner are untrusted: parsed, bounded, and checked before use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use warpwright_record::inputs::InputFamily;
use warpwright_task::similarity::OpGraph;

/// Where a tensor lies in an arena. As sent by a runner: a claim, checked by `layout`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Byte offset of the first element; `None` when outside the arena.
    pub(crate) offset: Option<u64>,
    /// Extent per dimension.
    pub(crate) shape: Vec<u64>,
    /// Elements between neighbours, per dimension.
    pub(crate) strides: Vec<i64>,
    /// Torch's name without the prefix, e.g. `float32`.
    pub(crate) dtype: String,
    /// Bytes from the first to the last element.
    pub(crate) bytes: u64,
}

/// A value with its tensors as places. The tree passes through the judge unread, except that the
/// outputs' trees of candidate and reference must agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Value {
    /// Nested lists, tuples, dicts and numbers; tensors as `{"tensor": i}`.
    pub(crate) tree: Json,
    /// The tensors.
    pub(crate) tensors: Vec<Place>,
}

impl Value {
    /// Bytes of all tensors, each rounded up to the arena's alignment.
    pub(crate) fn padded_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| padded(t.bytes)).sum()
    }

    /// Bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes).sum()
    }
}

/// Alignment of blocks in an arena, as in `native/arena.h`.
pub(crate) const ALIGN: u64 = 512;

/// `bytes` rounded up to [`ALIGN`]; at least one block, as the allocator gives.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(ALIGN) * ALIGN
}

/// An error a Python process reports instead of an answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Complaint {
    /// `raised`, `memory`, `missing_module`, `syntax`, `stochastic`, `state_dict`, ...
    pub(crate) kind: String,
    /// Exception type and text.
    pub(crate) message: String,
    /// Frames of the task's or candidate's own code.
    pub(crate) trace: String,
}

/// The oracle's answer to `open`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Opened {
    #[serde(flatten)]
    pub(crate) sizes: Sizes,
    pub(crate) aliases_input: bool,
    /// Whether the reference computes anything; else it only moves and fills.
    pub(crate) computes: bool,
    /// Whether all outputs lie in memory of inputs.
    pub(crate) only_views: bool,
    /// Whether several draws gave the same inputs.
    pub(crate) fixed_inputs: bool,
    pub(crate) versions: Versions,
    /// Bytes of new memory that one eager call allocates, as if none of it were reused.
    pub(crate) allocated_bytes: u64,
    /// One warm eager call, in seconds; for deadlines only.
    pub(crate) forward_seconds: f64,
}

/// What a task takes and gives, as far as memory is concerned.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) init: Value,
    pub(crate) inputs: Value,
    pub(crate) outputs: Value,
    pub(crate) state: Vec<Place>,
    /// The inputs that the reference changes, where that is known.
    #[serde(default)]
    pub(crate) changed: Vec<Place>,
    /// Their positions among the inputs.
    #[serde(default)]
    pub(crate) changes: Vec<u32>,
    /// The most new memory of one eager call that is alive at once, bytes.
    pub(crate) peak_bytes: u64,
}

/// The oracle's answer to `load`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Loaded {
    /// Where memory is bounded, the task large, and its sizes follow from shapes alone: what `open`
    /// would say, but of no tensor a place.
    pub(crate) sizes: Option<Sizes>,
}

/// Versions of the torch side.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Versions {
    pub(crate) torch: String,
    pub(crate) python: String,
}

/// A `state_dict` in the oracle's arena.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) names: Vec<String>,
    pub(crate) tensors: Vec<Place>,
}

/// Sets of inputs in the oracle's arena.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sets {
    pub(crate) sets: Vec<Value>,
}

/// The oracle's answer to `expected`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Expected {
    /// As they were before the call.
    pub(crate) inputs: Value,
    /// The tree as the same-precision reference gives it in this call; the tensors are the truth.
    pub(crate) outputs: Value,
    /// The tree in float64: its numbers may be others.
    pub(crate) exact_tree: Option<Json>,
    /// The truth of the inputs that the reference changes, after the call.
    pub(crate) after: Vec<Changed>,
    /// Of the outputs, and behind them of `after`.
    pub(crate) notes: Vec<OutputNote>,
    pub(crate) doubt: String,
    /// Why there is no answer: the reference raised on inputs that are not its own.
    pub(crate) void: String,
}

/// The oracle's answer to `truths`: of as many samples, from the first on, as it has the truth of.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Truths {
    pub(crate) each: Vec<Truth>,
}

/// What is expected of one call, without what the same-precision reference makes of it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Truth {
    pub(crate) inputs: Value,
    /// In float64.
    pub(crate) outputs: Value,
    /// Of each output of floating-point numbers; none where they are not plain.
    pub(crate) sizes: Vec<Option<Size>>,
}

/// How large the elements of a truth are, all of them finite.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Size {
    /// Root mean square.
    pub(crate) rms: f64,
    /// Standard deviation.
    pub(crate) spread: f64,
    /// Largest magnitude.
    pub(crate) largest: f64,
}

/// An input that the reference changes.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Changed {
    /// Its position among the inputs' tensors.
    pub(crate) input: usize,
    pub(crate) truth: Place,
}

/// What the oracle knows of one output, or of an input that the reference changes, in one call. An
/// element counts where the truth and the same-precision reference are finite, and the truth within
/// the range of the dtype.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OutputNote {
    /// Torch's name of the dtype that the reference gives.
    pub(crate) dtype: String,
    /// The shape that the reference gives.
    pub(crate) shape: Vec<u64>,
    /// Elements between neighbours in what the reference gives, per dimension.
    pub(crate) strides: Vec<i64>,
    /// Largest absolute error of the same-precision reference against the truth, but where the two
    /// are `apart`.
    pub(crate) error: f64,
    /// The same, by as much as it is more than an element's own rounding in formats of 16 bits.
    pub(crate) beyond: f64,
    /// Root mean square of the truth.
    pub(crate) rms: f64,
    /// Standard deviation of the truth; of a changed input at most the root mean square of the change.
    pub(crate) spread: f64,
    /// Largest magnitude of the truth.
    pub(crate) largest: f64,
    /// Whether the same-precision reference is finite exactly where the truth is.
    pub(crate) agrees: bool,
    /// Elements that tell a right answer from a wrong one: none of a view of an input.
    pub(crate) count: u64,
    /// Elements that count and on which the two precisions say different things.
    pub(crate) apart: u64,
    /// The input of which it is a view, by position.
    pub(crate) view_of: Option<usize>,
    /// `float64` or `same precision`.
    pub(crate) truth: String,
    /// The same-precision reference's own values, where these count too: of integers and booleans, and
    /// where it overflows or says something else than float64.
    pub(crate) own: Option<Place>,
    /// The same, where a workload's own tolerance is to be compared with it.
    #[serde(default)]
    pub(crate) stated: Option<Place>,
    /// Its classes of magnitude but the largest, in ascending order; none where its elements have one scale.
    pub(crate) scales: Vec<Scale>,
}

/// The elements of an output of which the truth is below one magnitude, and not below the one before.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Scale {
    pub(crate) below: f64,
    /// Root mean square of the truth.
    pub(crate) rms: f64,
    /// Largest error of the same-precision reference, as of the whole output.
    pub(crate) beyond: f64,
}

/// The oracle's answer to `calibrate`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Calibrated {
    pub(crate) admitted: Vec<Admitted>,
    pub(crate) refused: Vec<Declined>,
    /// Families that there was no time to try.
    pub(crate) untried: Vec<InputFamily>,
    /// Whether truth is float64.
    pub(crate) exact: bool,
}

/// The same, and the weights with which it was found out.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Learned {
    #[serde(flatten)]
    pub(crate) calibrated: Calibrated,
    /// `init` or `other`.
    pub(crate) weights: String,
    /// Whether there are other values for the model's buffers with which the reference does not go wrong.
    pub(crate) buffers: bool,
}

/// A family of inputs that the task allows.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Admitted {
    pub(crate) family: InputFamily,
    /// Per output.
    pub(crate) notes: Vec<ErrorNote>,
}

/// The oracle's answer to `reordered`: errors on one draw, per output; none where that is not known.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Reordered {
    /// With the largest honest error of several programs.
    pub(crate) notes: Vec<ErrorNote>,
    /// With their mean.
    pub(crate) usual: Vec<ErrorNote>,
    /// On some slice they are too far apart to tell a right answer from a wrong one.
    pub(crate) astray: bool,
}

/// The oracle's answer to `ties`: what each of several honest programs has at some places of an output; none
/// where it is not finite.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Said {
    pub(crate) programs: Vec<Vec<Option<f64>>>,
}

/// One that it does not allow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Declined {
    pub(crate) why: String,
}

/// Errors of one output on inputs of one family, in units of the output's root mean square.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ErrorNote {
    /// Largest magnitude of the truth.
    pub(crate) largest: f64,
    /// Largest error of the same-precision reference.
    pub(crate) noise: f64,
    /// Of one that sums in other orders, by a model.
    pub(crate) honest: Option<f64>,
    /// Of one in the next lower precision.
    pub(crate) lower: Option<f64>,
    /// On the own inputs: what two draws are apart, as a standard deviation.
    pub(crate) between: Option<f64>,
    /// Whether not every element has one value, that of the first on the own inputs.
    pub(crate) varies: bool,
    /// Whether the output is compared on this family.
    pub(crate) compared: bool,
    /// Errors by magnitude, as [`OutputNote::scales`].
    pub(crate) scales: Vec<ScaleErrors>,
}

/// Errors of the elements of one class of magnitude, in units of its root mean square.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct ScaleErrors {
    /// The magnitude of the truth at which the class ends.
    pub(crate) below: f64,
    pub(crate) noise: f64,
    pub(crate) honest: f64,
    pub(crate) lower: Option<f64>,
}

/// The oracle's answer to `examine`. Shares are of an output's elements, the largest over all outputs
/// unless said otherwise.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Examined {
    /// Finite elements, per output.
    pub(crate) finite: Vec<f64>,
    /// Elements that have the most common value, per output.
    pub(crate) common: Vec<f64>,
    /// What changes beyond the tolerance with each input, by its number.
    pub(crate) inputs: BTreeMap<String, f64>,
    /// With each parameter, by its name.
    pub(crate) parameters: BTreeMap<String, f64>,
    /// What is wrong of each answer that computes nothing, or less than it should.
    pub(crate) counterfeits: BTreeMap<String, f64>,
}

/// The oracle's answer to `redraw`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Redrawn {
    /// Finite elements as a share of each output, where that is least.
    pub(crate) finite: Vec<f64>,
    /// Per output and draw, how far a program is off that errs many times as much as an honest one, over
    /// so many; empty where that is not known.
    pub(crate) stretched: Vec<Vec<f64>>,
}

/// The oracle's answer to `graph`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Graphed {
    /// None where shapes alone do not tell it.
    pub(crate) graph: Option<OpGraph>,
}

/// The answer to `divide`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Divided {
    /// Why the truth cannot be computed by slices of the batch; empty if it is.
    pub(crate) why: String,
}

/// The answer to `peak`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Peak {
    pub(crate) bytes: u64,
}

/// The baseline's answer to `agree`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Agreement {
    /// Largest difference from eager per output; none where results are not alike.
    pub(crate) apart: BTreeMap<String, Vec<Option<f64>>>,
}

/// A runner's answer to `state`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Prepared {
    pub(crate) prepare_ms: f64,
}
