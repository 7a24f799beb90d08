//! Safe wrappers of `csrc/shim.cpp`: what tch leaves out of libtorch.

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
    // SAFETY: a string of this thread that ends with a zero and lives until its next failure.
    let words = unsafe { CStr::from_ptr(warpwright_error()) };
    Err(EngineError::of_torch(&words.to_string_lossy()))
}

fn pointers(tensors: &[Tensor]) -> Vec<Pointer> {
    tensors.iter().map(Tensor::as_ptr).collect()
}

/// Constants of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamW {
    pub(crate) rate: f64,
    pub(crate) betas: (f64, f64),
    pub(crate) decay: f64,
    pub(crate) epsilon: f64,
}

/// One step with the parameters' gradients, all of which must be there, unless `norm`, theirs, is not
/// finite. `steps` holds a count for each, a float32 without dimensions.
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
        return Err(EngineError::of_torch("a parameter has no gradient or no state"));
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

/// Scales gradients so that their norm is at most `most`; the norm before, on the device.
pub(crate) fn clip(parameters: &[Tensor], most: f64) -> Result<Tensor, EngineError> {
    let (norm, p) = (Tensor::new(), pointers(parameters));
    // SAFETY: live tensors; `norm` is one, and is assigned.
    check(unsafe { warpwright_clip(p.as_ptr(), p.len(), most, norm.as_ptr()) })?;
    Ok(norm)
}

/// Goes back from `out`, of whose shape and type `gradient` is.
pub(crate) fn backward(out: &Tensor, gradient: &Tensor) -> Result<(), EngineError> {
    // SAFETY: live tensors.
    check(unsafe { warpwright_backward(out.as_ptr(), gradient.as_ptr()) })
}

/// A parameter's gradient, which is zero from now on where there was none.
pub(crate) fn gradient(parameter: &Tensor) -> Result<Tensor, EngineError> {
    let out = Tensor::new();
    // SAFETY: live tensors; `out` is assigned.
    check(unsafe { warpwright_gradient(parameter.as_ptr(), out.as_ptr()) })?;
    Ok(out)
}

/// Sums tensors that lie on as many GPUs, by NCCL; each becomes the sum.
pub(crate) fn all_reduce(tensors: &[Tensor]) -> Result<(), EngineError> {
    let p = pointers(tensors);
    // SAFETY: live tensors.
    check(unsafe { warpwright_all_reduce(p.as_ptr(), p.len()) })
}

/// Makes a GPU this thread's own.
pub(crate) fn use_gpu(gpu: usize) -> Result<(), EngineError> {
    // SAFETY: takes a number.
    check(unsafe { warpwright_use_gpu(i64::try_from(gpu).unwrap_or(i64::MAX)) })
}

/// Most bytes of a GPU's memory that tensors have taken at once since this process began.
pub fn peak_bytes(gpu: usize) -> Result<u64, EngineError> {
    let mut bytes = 0;
    let gpu = i64::try_from(gpu).unwrap_or(i64::MAX);
    // SAFETY: a place for a number.
    check(unsafe { warpwright_peak_bytes(gpu, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Gives gradients up, with their memory.
pub(crate) fn forget_gradients(parameters: &[Tensor]) -> Result<(), EngineError> {
    let p = pointers(parameters);
    // SAFETY: live tensors.
    check(unsafe { warpwright_forget_gradients(p.as_ptr(), p.len()) })
}

/// Causal attention over sequences behind each other, on a GPU in half precision. `q`: `[tokens, heads,
/// width]`, `k` and `v`: `[tokens, groups, width]`, `bounds`: int32, where each begins and the last ends.
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

/// Attention of one token of each row to what its row has kept, on a GPU in half precision. `q`: `[rows,
/// heads, width]`, `k` and `v`: `[rows, room, groups, width]`, `bounds`: int32, `0, 1, 2, ...` and `0, room,
/// 2 room, ...`, `used`: int32, how many of its room a row has kept: `[rows]`.
pub(crate) fn cached_attention(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    (q_bounds, k_bounds): (&Tensor, &Tensor),
    used: &Tensor,
) -> Result<Tensor, EngineError> {
    let out = Tensor::new();
    let [rows, room, groups, width] = k.size()[..] else {
        return Err(EngineError::of_torch("keys have four dimensions"));
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

/// How exact products of float32 are: `highest`, `high` (TF32) or `medium`.
pub(crate) fn precision(name: &str) -> Result<(), EngineError> {
    let name = CString::new(name).map_err(|_| EngineError::of_torch("a name with a zero"))?;
    // SAFETY: a string that ends with a zero.
    check(unsafe { warpwright_precision(name.as_ptr()) })
}

/// Gives back what the allocator keeps for later.
pub(crate) fn empty_cache() -> Result<(), EngineError> {
    // SAFETY: takes nothing.
    check(unsafe { warpwright_empty_cache() })
}

/// Work on a GPU that was recorded, to be done again on the same tensors by one call.
#[derive(Debug)]
pub(crate) struct Graph(*mut c_void);

impl Graph {
    /// Records what `work` does on a GPU, whichever is this thread's own. It must have been done once before, so
    /// that nothing is made ready in it. Shares memory with the graph `beside`: of the two only one may be at
    /// work, and what one has computed is to be read before the other is replayed. Work that does nothing there
    /// is an error.
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
        // SAFETY: a live graph, which nobody else has.
        unsafe { warpwright_graph_free(self.0) }
    }
}
