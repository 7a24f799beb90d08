//! Kernels of our own for a step of drawing on a GPU in bfloat16 (`csrc/kernels.cu`): what lies between two products
//! at once. NVRTC compiles them for the GPU at hand, once a process.

#![expect(unsafe_code, reason = "calls C++")]

use std::ffi::{CStr, c_char, c_int};

use tch::Tensor;

use crate::error::EngineError;
use crate::shim::{Pointer, check};

/// Ends with a zero.
const SOURCE: &str = concat!(include_str!("../csrc/kernels.cu"), "\0");

unsafe extern "C" {
    #[cfg(test)]
    fn warpwright_kernels_compile(
        source: *const c_char,
        capability: c_int,
        bytes: *mut usize,
    ) -> c_int;
    fn warpwright_kernels_load(gpu: c_int, source: *const c_char) -> c_int;
    fn warpwright_add_norm(
        stream: Pointer,
        added: Pointer,
        weight: Pointer,
        epsilon: f64,
        out: Pointer,
    ) -> c_int;
    fn warpwright_turn_keep(
        all: Pointer,
        norms: Pointer,
        cosines: Pointer,
        sines: Pointer,
        positions: Pointer,
        keys: Pointer,
        values: Pointer,
        epsilon: f64,
        out: Pointer,
    ) -> c_int;
    fn warpwright_gate(both: Pointer, out: Pointer) -> c_int;
    fn warpwright_choose(
        logits: Pointer,
        chances: Pointer,
        temperature: f64,
        top_p: f64,
        out: Pointer,
    ) -> c_int;
}

/// The kernels, ready on a GPU. Each checks types and sizes of what it is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels(());

fn source() -> Result<&'static CStr, EngineError> {
    CStr::from_bytes_with_nul(SOURCE.as_bytes())
        .map_err(|_| EngineError::of_torch("kernels.cu has a zero"))
}

/// Bytes of the kernels for a compute capability (90 for 9.0); no GPU is needed.
#[cfg(test)]
fn compile(capability: i32) -> Result<usize, EngineError> {
    let (source, mut bytes) = (source()?, 0);
    // SAFETY: a string that ends with a zero, and a place for a number.
    check(unsafe { warpwright_kernels_compile(source.as_ptr(), capability, &raw mut bytes) })?;
    Ok(bytes)
}

impl Kernels {
    /// Compiles them for a GPU, unless that was done.
    pub(crate) fn load(gpu: usize) -> Result<Self, EngineError> {
        let source = source()?;
        let gpu = c_int::try_from(gpu).unwrap_or(c_int::MAX);
        // SAFETY: a string that ends with a zero.
        check(unsafe { warpwright_kernels_load(gpu, source.as_ptr()) })?;
        Ok(Self(()))
    }

    /// Adds to the stream, float32 `[rows, width]`, in place, and gives what its norm (float32 `[width]`) makes of it:
    /// `[rows, width]`.
    pub(crate) fn add_norm(
        self,
        stream: &Tensor,
        added: Option<&Tensor>,
        weight: &Tensor,
        epsilon: f64,
    ) -> Result<Tensor, EngineError> {
        let added = added.map_or(std::ptr::null(), Tensor::as_ptr);
        self.made(|out| {
            // SAFETY: live tensors, or null where that is allowed; `out` is one, and is assigned.
            unsafe {
                warpwright_add_norm(stream.as_ptr(), added, weight.as_ptr(), epsilon, out.as_ptr())
            }
        })
    }

    /// Of queries, keys and values, `[rows, (heads + 2 groups) width]`, the first two pass their norms, float32
    /// `[heads + groups, width]`, and turn by the tables of cosines and sines at their row's position, float64
    /// `[rows]`. Keys and values are kept there, `[rows, room, groups, width]`; queries come out: `[rows, heads, width]`.
    pub(crate) fn turn_keep(
        self,
        all: &Tensor,
        norms: &Tensor,
        (cosines, sines): (&Tensor, &Tensor),
        positions: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        epsilon: f64,
    ) -> Result<Tensor, EngineError> {
        self.made(|out| {
            // SAFETY: live tensors; `out` is one, and is assigned.
            unsafe {
                warpwright_turn_keep(
                    all.as_ptr(),
                    norms.as_ptr(),
                    cosines.as_ptr(),
                    sines.as_ptr(),
                    positions.as_ptr(),
                    keys.as_ptr(),
                    values.as_ptr(),
                    epsilon,
                    out.as_ptr(),
                )
            }
        })
    }

    /// `silu` of the first half of each row times the second: `[rows, inner]` of `[rows, 2 inner]`.
    pub(crate) fn gate(self, both: &Tensor) -> Result<Tensor, EngineError> {
        // SAFETY: live tensors; `out` is one, and is assigned.
        self.made(|out| unsafe { warpwright_gate(both.as_ptr(), out.as_ptr()) })
    }

    /// Draws from `[rows, words]` by chances, float64 `[rows]`, as `chances::choose` does at a temperature above 0, but
    /// that of words that are equally likely all may be drawn or none.
    pub(crate) fn choose(
        self,
        logits: &Tensor,
        chances: &Tensor,
        (temperature, top_p): (f64, f64),
    ) -> Result<Tensor, EngineError> {
        self.made(|out| {
            let (logits, chances) = (logits.as_ptr(), chances.as_ptr());
            // SAFETY: live tensors; `out` is one, and is assigned.
            unsafe { warpwright_choose(logits, chances, temperature, top_p, out.as_ptr()) }
        })
    }

    #[expect(clippy::unused_self, reason = "that they are ready is what it says")]
    fn made(self, call: impl FnOnce(&Tensor) -> c_int) -> Result<Tensor, EngineError> {
        let out = Tensor::new();
        check(call(&out))?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_compile_for_every_gpu_that_has_bfloat16() {
        for capability in [80, 86, 89, 90, 100, 120] {
            assert!(compile(capability).unwrap() > 1000);
        }
    }
}
