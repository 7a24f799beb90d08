//! Safe wrappers of `csrc/shim.cpp`: functions of libtorch that tch lacks.

#![expect(unsafe_code, reason = "calls C++, which tch cannot")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use tch::{Kind, Tensor};
use torch_sys::C_tensor;

use crate::error::{EngineError, guarded};

pub(crate) type Pointer = *const C_tensor;

unsafe extern "C" {
    fn warpwright_error() -> *const c_char;
    fn warpwright_adamw(
        parameters: *const Pointer,
        first: *const Pointer,
        second: *const Pointer,
        steps: *const Pointer,
        count: usize,
        rate: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        epsilon: f64,
        norm: Pointer,
    ) -> c_int;
    fn warpwright_clip(parameters: *const Pointer, count: usize, most: f64, norm: Pointer)
    -> c_int;
    fn warpwright_backward(out: Pointer, gradient: Pointer) -> c_int;
    fn warpwright_gradient(parameter: Pointer, out: Pointer) -> c_int;
    fn warpwright_all_reduce(tensors: *const Pointer, count: usize) -> c_int;
    fn warpwright_use_gpu(gpu: i64) -> c_int;
    fn warpwright_peak_bytes(gpu: i64, out: *mut i64) -> c_int;
    fn warpwright_forget_gradients(parameters: *const Pointer, count: usize) -> c_int;
    fn warpwright_packed_attention(
        q: Pointer,
        k: Pointer,
        v: Pointer,
        bounds: Pointer,
        longest: i64,
        out: Pointer,
    ) -> c_int;
    fn warpwright_cached_attention(
        q: Pointer,
        k: Pointer,
        v: Pointer,
        q_bounds: Pointer,
        k_bounds: Pointer,
        used: Pointer,
        room: i64,
        out: Pointer,
    ) -> c_int;
    fn warpwright_precision(name: *const c_char) -> c_int;
    fn warpwright_empty_cache() -> c_int;
    fn warpwright_graph_begin(gpu: i64, beside: *const c_void, out: *mut *mut c_void) -> c_int;
    fn warpwright_graph_end(graph: *mut c_void) -> c_int;
    fn warpwright_graph_replay(graph: *mut c_void) -> c_int;
    fn warpwright_graph_free(graph: *mut c_void);
}

pub(crate) fn check(code: c_int) -> Result<(), EngineError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: a NUL-terminated string of this thread that lives until its next failure.
    let words = unsafe { CStr::from_ptr(warpwright_error()) };
    Err(EngineError::of_torch(&words.to_string_lossy()))
}

fn pointers(tensors: &[Tensor]) -> Vec<Pointer> {
    tensors.iter().map(Tensor::as_ptr).collect()
}

/// Hyperparameters of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamW {
    pub(crate) rate: f64,
    pub(crate) betas: (f64, f64),
    pub(crate) decay: f64,
    pub(crate) epsilon: f64,
}

/// One optimizer step with the parameters' gradients. All must exist unless their norm, `norm`, is
/// not finite. `steps` holds a count per parameter, a float32 scalar.
pub(crate) fn adamw(
    parameters: &[Tensor],
    first: &[Tensor],
    second: &[Tensor],
    steps: &[Tensor],
    with: AdamW,
    norm: &Tensor,
) -> Result<(), EngineError> {
    let count = parameters.len();
    let same = [first.len(), second.len(), steps.len()].iter().all(|len| *len == count);
    if !same || parameters.iter().any(|parameter| !parameter.grad().defined()) {
        return Err(EngineError::of_torch("a parameter has no gradient or no optimizer state"));
    }
    let (p, m) = (pointers(parameters), pointers(first));
    let (v, s) = (pointers(second), pointers(steps));
    let AdamW { rate, betas, decay, epsilon } = with;
    // SAFETY: four lists of `count` pointers to live tensors; gradients are defined.
    check(unsafe {
        warpwright_adamw(
            p.as_ptr(),
            m.as_ptr(),
            v.as_ptr(),
            s.as_ptr(),
            count,
            rate,
            betas.0,
            betas.1,
            decay,
            epsilon,
            norm.as_ptr(),
        )
    })
}

/// Scales gradients so that their norm is at most `most`. Returns the norm before, on the device.
pub(crate) fn clip(parameters: &[Tensor], most: f64) -> Result<Tensor, EngineError> {
    let (norm, p) = (Tensor::new(), pointers(parameters));
    // SAFETY: live tensors; `norm` is one, and is assigned.
    check(unsafe { warpwright_clip(p.as_ptr(), p.len(), most, norm.as_ptr()) })?;
    Ok(norm)
}

/// Backward pass from `out`; `gradient` has its shape and type.
pub(crate) fn backward(out: &Tensor, gradient: &Tensor) -> Result<(), EngineError> {
    // SAFETY: live tensors.
    check(unsafe { warpwright_backward(out.as_ptr(), gradient.as_ptr()) })
}

/// A parameter's gradient; set to zeros if it had none.
pub(crate) fn gradient(parameter: &Tensor) -> Result<Tensor, EngineError> {
    let out = Tensor::new();
    // SAFETY: live tensors; `out` is assigned.
    check(unsafe { warpwright_gradient(parameter.as_ptr(), out.as_ptr()) })?;
    Ok(out)
}

/// Sums tensors on different GPUs by NCCL; each becomes the sum.
pub(crate) fn all_reduce(tensors: &[Tensor]) -> Result<(), EngineError> {
    let p = pointers(tensors);
    // SAFETY: live tensors.
    check(unsafe { warpwright_all_reduce(p.as_ptr(), p.len()) })
}

/// Selects a GPU for this thread.
pub(crate) fn use_gpu(gpu: usize) -> Result<(), EngineError> {
    // SAFETY: takes a number.
    check(unsafe { warpwright_use_gpu(i64::try_from(gpu).unwrap_or(i64::MAX)) })
}

/// Peak memory of a GPU's tensors in bytes since the process began.
pub fn peak_bytes(gpu: usize) -> Result<u64, EngineError> {
    let mut bytes = 0;
    let gpu = i64::try_from(gpu).unwrap_or(i64::MAX);
    // SAFETY: a place for a number.
    check(unsafe { warpwright_peak_bytes(gpu, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Discards gradients and frees their memory.
pub(crate) fn forget_gradients(parameters: &[Tensor]) -> Result<(), EngineError> {
    let p = pointers(parameters);
    // SAFETY: live tensors.
    check(unsafe { warpwright_forget_gradients(p.as_ptr(), p.len()) })
}

/// Causal attention over packed sequences, on a GPU in half precision. `q`: `[tokens, heads,
/// width]`, `k` and `v`: `[tokens, groups, width]`, `bounds`: int32 offsets of the sequences, with
/// the end of the last.
pub(crate) fn packed_attention(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    bounds: &Tensor,
    longest: i64,
) -> Result<Tensor, EngineError> {
    debug_assert_eq!(bounds.kind(), Kind::Int);
    let out = Tensor::new();
    let (qp, kp, vp) = (q.as_ptr(), k.as_ptr(), v.as_ptr());
    // SAFETY: live tensors; `out` is one, and is assigned.
    check(unsafe {
        warpwright_packed_attention(qp, kp, vp, bounds.as_ptr(), longest, out.as_ptr())
    })?;
    Ok(out)
}

/// Attention of one token per row to its KV cache, on a GPU in half precision. `q`: `[rows, heads,
/// width]`, `k` and `v`: `[rows, room, groups, width]`, `bounds`: int32, `0, 1, 2, ...` and `0,
/// room, 2 room, ...`, `used`: int32, number of cached tokens per row: `[rows]`.
pub(crate) fn cached_attention(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    (q_bounds, k_bounds): (&Tensor, &Tensor),
    used: &Tensor,
) -> Result<Tensor, EngineError> {
    let out = Tensor::new();
    let [rows, room, groups, width] = k.size()[..] else {
        return Err(EngineError::of_torch("keys must have four dimensions"));
    };
    let flat = |kept: &Tensor| kept.view([rows * room, groups, width]);
    let (k, v) = (flat(k), flat(v));
    // SAFETY: live tensors; `out` is one, and is assigned.
    check(unsafe {
        warpwright_cached_attention(
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            q_bounds.as_ptr(),
            k_bounds.as_ptr(),
            used.as_ptr(),
            room,
            out.as_ptr(),
        )
    })?;
    Ok(out)
}

/// Precision of float32 products: `highest`, `high` (TF32) or `medium`.
pub(crate) fn precision(name: &str) -> Result<(), EngineError> {
    let name = CString::new(name).map_err(|_| EngineError::of_torch("the name has a NUL byte"))?;
    // SAFETY: a NUL-terminated string.
    check(unsafe { warpwright_precision(name.as_ptr()) })
}

/// Releases the allocator's cache.
pub(crate) fn empty_cache() -> Result<(), EngineError> {
    // SAFETY: takes nothing.
    check(unsafe { warpwright_empty_cache() })
}

/// A CUDA graph: recorded work that one call replays on the same tensors.
#[derive(Debug)]
pub(crate) struct Graph(*mut c_void);

impl Graph {
    /// Records `work` on this thread's GPU. The work must have run once before, so that no lazy
    /// initialisation is recorded. The graph shares memory with the graph `beside`: only one of
    /// them may run at a time, and the output of one must be read before the other is replayed.
    /// Recording no GPU work is an error.
    pub(crate) fn record<T>(
        gpu: usize,
        beside: Option<&Self>,
        work: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<(Self, T), EngineError> {
        let beside = beside.map_or(std::ptr::null(), |graph| graph.0.cast_const());
        let mut graph = std::ptr::null_mut();
        let gpu = i64::try_from(gpu).unwrap_or(i64::MAX);
        // SAFETY: null or a live graph; where to write a new one.
        check(unsafe { warpwright_graph_begin(gpu, beside, &raw mut graph) })?;
        let graph = Self(graph);
        let done = guarded(work);
        // SAFETY: a live graph that was begun.
        let ended = check(unsafe { warpwright_graph_end(graph.0) });
        let done = done?;
        ended.map(|()| (graph, done))
    }

    pub(crate) fn replay(&self) -> Result<(), EngineError> {
        // SAFETY: a live graph that was recorded; the tensors that it works on are its owner's to keep.
        check(unsafe { warpwright_graph_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: a live graph, which is not shared.
        unsafe { warpwright_graph_free(self.0) }
    }
}
