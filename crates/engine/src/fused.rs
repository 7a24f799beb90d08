//! Fused kernels for GPUs in bfloat16 (`csrc/*.cu`): the operations between two matrix products,
//! forward and backward through torch's autograd, and attention of a decoding step. NVRTC compiles
//! them for the GPU once per process.

#![expect(unsafe_code, reason = "calls C++")]

use std::ffi::{CStr, c_char, c_int};

use tch::Tensor;

use crate::error::EngineError;
use crate::shim::{Pointer, check};
use warpwright_learn::model_config::ModelConfig;

/// Source of all kernels; ends with a NUL byte.
const SOURCE: &str = concat!(
    include_str!("../csrc/bits.cu"),
    include_str!("../csrc/blocks.cu"),
    include_str!("../csrc/odds.cu"),
    include_str!("../csrc/attention.cu"),
    "\0"
);

unsafe extern "C" {
    #[cfg(test)]
    fn warpwright_kernels_compile(
        source: *const c_char,
        capability: c_int,
        bytes: *mut usize,
    ) -> c_int;
    #[cfg(test)]
    fn warpwright_kernels_on_host(library: *const c_char) -> c_int;
    fn warpwright_kernels_load(gpu: c_int, source: *const c_char) -> c_int;
    fn warpwright_add_norm(
        stream: Pointer,
        added: Pointer,
        weight: Pointer,
        epsilon: f64,
        sum: Pointer,
        out: Pointer,
    ) -> c_int;
    fn warpwright_turn(
        every: Pointer,
        by: *const Pointer,
        heads: i64,
        epsilon: f64,
        queries: Pointer,
        keys: Pointer,
        values: Pointer,
    ) -> c_int;
    fn warpwright_turn_keep(
        every: Pointer,
        by: *const Pointer,
        keys: Pointer,
        values: Pointer,
        epsilon: f64,
        queries: Pointer,
    ) -> c_int;
    fn warpwright_attend(
        queries: Pointer,
        keys: Pointer,
        values: Pointer,
        positions: Pointer,
        out: Pointer,
    ) -> c_int;
    fn warpwright_gate(both: Pointer, out: Pointer) -> c_int;
    fn warpwright_likelihood(
        logits: Pointer,
        chosen: Pointer,
        logprobs: Pointer,
        entropies: Pointer,
    ) -> c_int;
    fn warpwright_choose(
        logits: Pointer,
        chances: Pointer,
        temperature: f64,
        top_p: f64,
        out: Pointer,
    ) -> c_int;
}

/// The kernels, loaded on a GPU. Each checks types and sizes of its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels(());

/// Arguments of the rotary embedding of queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turning<'t> {
    /// RMSNorm weights of queries and of keys: float32 `[width]`.
    pub(crate) norms: (&'t Tensor, &'t Tensor),
    /// Cosines and sines: float32 `[all positions, width]`.
    pub(crate) angles: (&'t Tensor, &'t Tensor),
    /// Positions of the rows: int64 `[rows]`.
    pub(crate) positions: &'t Tensor,
    pub(crate) epsilon: f64,
}

impl Turning<'_> {
    /// In the order of `fused.cpp`.
    fn pointers(self) -> [Pointer; 5] {
        let Self { norms, angles, positions, .. } = self;
        [norms.0, norms.1, angles.0, angles.1, positions].map(Tensor::as_ptr)
    }
}

fn source() -> Result<&'static CStr, EngineError> {
    CStr::from_bytes_with_nul(SOURCE.as_bytes())
        .map_err(|_| EngineError::of_torch("a kernel's source has a NUL byte"))
}

/// Compiles the kernels for a compute capability (90 for 9.0); needs no GPU. Returns their size in
/// bytes.
#[cfg(test)]
fn compile(capability: i32) -> Result<usize, EngineError> {
    let (source, mut bytes) = (source()?, 0);
    // SAFETY: a string that ends with a zero, and a place for a number.
    check(unsafe { warpwright_kernels_compile(source.as_ptr(), capability, &raw mut bytes) })?;
    Ok(bytes)
}

#[expect(clippy::unused_self, reason = "that they are ready is what it says")]
impl Kernels {
    /// Compiles them for a GPU, unless that was done.
    pub(crate) fn load(gpu: usize) -> Result<Self, EngineError> {
        let source = source()?;
        let gpu = c_int::try_from(gpu).unwrap_or(c_int::MAX);
        // SAFETY: a string that ends with a zero.
        check(unsafe { warpwright_kernels_load(gpu, source.as_ptr()) })?;
        Ok(Self(()))
    }

    /// Whether they can do what a model of this shape asks for: they read four numbers at a time, and half a head's
    /// threads are a power of two.
    pub(crate) fn serve(config: &ModelConfig) -> bool {
        let fours = [config.hidden_size, config.intermediate_size, config.vocab_size];
        let width = config.head_dim;
        fours.iter().all(|size| size % 4 == 0)
            && (8..=256).contains(&width)
            && width.unsigned_abs().is_power_of_two()
    }

    /// Adds to the stream, float32 `[rows, width]`; the sum, and what its norm (float32 `[width]`) makes of it:
    /// `[rows, width]`.
    pub(crate) fn add_norm(
        self,
        stream: &Tensor,
        added: Option<&Tensor>,
        weight: &Tensor,
        epsilon: f64,
    ) -> Result<(Tensor, Tensor), EngineError> {
        let added = added.map_or(std::ptr::null(), Tensor::as_ptr);
        let (sum, out) = (Tensor::new(), Tensor::new());
        // SAFETY: live tensors, or null where that is allowed; `sum` and `out` are some, and are assigned.
        check(unsafe {
            let (stream, weight) = (stream.as_ptr(), weight.as_ptr());
            warpwright_add_norm(stream, added, weight, epsilon, sum.as_ptr(), out.as_ptr())
        })?;
        Ok((sum, out))
    }

    /// Of queries, keys and values, `[rows, (heads + 2 groups) width]`, the first two pass their norms and turn:
    /// `[rows, heads, width]` and twice `[rows, groups, width]`.
    pub(crate) fn turn(
        self,
        every: &Tensor,
        heads: i64,
        by: Turning<'_>,
    ) -> Result<(Tensor, Tensor, Tensor), EngineError> {
        let (q, k, v) = (Tensor::new(), Tensor::new(), Tensor::new());
        // SAFETY: live tensors, five of them in a list; the last three are assigned.
        check(unsafe {
            warpwright_turn(
                every.as_ptr(),
                by.pointers().as_ptr(),
                heads,
                by.epsilon,
                q.as_ptr(),
                k.as_ptr(),
                v.as_ptr(),
            )
        })?;
        Ok((q, k, v))
    }

    /// The same, but that keys and values are kept at their row's position, `[rows, room, groups, width]`; queries
    /// come out. There is no way back.
    pub(crate) fn turn_keep(
        self,
        every: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        by: Turning<'_>,
    ) -> Result<Tensor, EngineError> {
        let queries = Tensor::new();
        // SAFETY: live tensors, five of them in a list; the last one is assigned.
        check(unsafe {
            warpwright_turn_keep(
                every.as_ptr(),
                by.pointers().as_ptr(),
                keys.as_ptr(),
                values.as_ptr(),
                by.epsilon,
                queries.as_ptr(),
            )
        })?;
        Ok(queries)
    }

    /// What a token of each row, `[rows, heads, width]`, attends to of what its row has kept up to its position (int64
    /// `[rows]`), `[rows, room, groups, width]`: `[rows, heads, width]`. There is no way back.
    pub(crate) fn attend(
        self,
        queries: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        positions: &Tensor,
    ) -> Result<Tensor, EngineError> {
        let out = Tensor::new();
        // SAFETY: live tensors; `out` is assigned.
        check(unsafe {
            let (queries, keys, values) = (queries.as_ptr(), keys.as_ptr(), values.as_ptr());
            warpwright_attend(queries, keys, values, positions.as_ptr(), out.as_ptr())
        })?;
        Ok(out)
    }

    /// `silu` of the first half of each row times the second: `[rows, inner]` of `[rows, 2 inner]`.
    pub(crate) fn gate(self, both: &Tensor) -> Result<Tensor, EngineError> {
        let out = Tensor::new();
        // SAFETY: live tensors; `out` is assigned.
        check(unsafe { warpwright_gate(both.as_ptr(), out.as_ptr()) })?;
        Ok(out)
    }

    /// Log-probabilities of what was chosen, int64 `[rows]`, from `[rows, words]`, and entropies, which have no way
    /// back: float32 `[rows]`.
    pub(crate) fn likelihood(
        self,
        logits: &Tensor,
        chosen: &Tensor,
    ) -> Result<[Tensor; 2], EngineError> {
        let (logprobs, entropies) = (Tensor::new(), Tensor::new());
        // SAFETY: live tensors; the last two are assigned.
        check(unsafe {
            let (logits, chosen) = (logits.as_ptr(), chosen.as_ptr());
            warpwright_likelihood(logits, chosen, logprobs.as_ptr(), entropies.as_ptr())
        })?;
        Ok([logprobs, entropies])
    }

    /// Samples from logits `[rows, words]` given numbers in [0, 1), float64 `[rows]`, as
    /// `chances::choose` does at a temperature above 0. Of tokens of equal probability, all or none
    /// are in the nucleus.
    pub(crate) fn choose(
        self,
        logits: &Tensor,
        chances: &Tensor,
        (temperature, top_p): (f64, f64),
    ) -> Result<Tensor, EngineError> {
        let out = Tensor::new();
        // SAFETY: live tensors; `out` is assigned.
        check(unsafe {
            let (logits, chances) = (logits.as_ptr(), chances.as_ptr());
            warpwright_choose(logits, chances, temperature, top_p, out.as_ptr())
        })?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
