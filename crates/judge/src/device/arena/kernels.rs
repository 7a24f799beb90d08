//! Compares tensors in device memory with the judge's own kernels (`native/compare.cu`).

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, PoisonError};

use super::ArenaError;
use super::cuda::CudaDevice;
use super::cuda_arena::CudaArena;
use super::driver::{Driver, check};
use super::guard::MAX_RANGES;

const PTX: &str = include_str!("../../../native/compare.ptx");
/// Most dims of a tensor that the kernels index.
pub(crate) const MAX_RANK: usize = 8;
const THREADS: u32 = 256;
/// Maximum number of blocks: a few per multiprocessor of the largest devices.
const BLOCKS: u64 = 2048;
/// Where the result lies in the scratch memory, behind the job.
const RESULT_OFFSET: u64 = 768;
const SCRATCH_BYTES: usize = 1024;

/// The kernels, and memory for their arguments and results.
pub(super) struct Kernels {
    compare: *mut c_void,
    differ: *mut c_void,
    pub(super) guard: *mut c_void,
    /// Device address of a table of ranges.
    pub(super) ranges: c_ulonglong,
    /// Device address. One comparison at a time.
    pub(super) scratch: Mutex<c_ulonglong>,
}

/// `Side` of `native/compare.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    base: u64,
    dtype: u32,
    rank: u32,
    shape: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
}

/// `Job` of `native/compare.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Job {
    got: Side,
    want: Side,
    own: Side,
    count: u64,
    atol: f64,
    rtol: f64,
    limit: f64,
    poison: u64,
    poison_start: u64,
    has_own: u32,
    real: u32,
    poisoned: u32,
}

const _: () = assert!(size_of::<Job>() <= RESULT_OFFSET as usize, "the job fits before the result");

/// A tensor in device memory.
#[derive(Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) arena: &'a CudaArena,
    /// Bytes from the arena's start.
    pub(crate) offset: u64,
    /// Position in `Dtype`, and bytes of an element.
    pub(crate) dtype: (u32, u64),
    pub(crate) shape: &'a [u64],
    /// In elements.
    pub(crate) strides: &'a [u64],
    pub(crate) contiguous: bool,
}

/// Rule by which the elements of two tensors are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// The least magnitude that rounds to infinity.
    pub(crate) limit: f64,
    /// Whether they are floating-point numbers.
    pub(crate) real: bool,
    /// What memory held before: from which place of the arena of what was got on, and the eight bytes.
    pub(crate) poison: Option<(u64, u64)>,
}

/// Result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) wrong: u64,
    pub(crate) non_finite: u64,
    pub(crate) max_abs_error: f64,
}

impl Tensor<'_> {
    /// `None` where an element would lie outside of the arena or across its own alignment, or there
    /// are too many dims: kernels must never meet such a thing, their context is the judge's.
    fn side(&self) -> Option<Side> {
        let (dtype, size) = self.dtype;
        let last = self.shape.iter().zip(self.strides).try_fold(0u64, |sum, (&n, &stride)| {
            sum.checked_add(n.checked_sub(1)?.checked_mul(stride)?)
        })?;
        let bytes = last.checked_add(1)?.checked_mul(size)?;
        let inside = self.arena.holds(self.offset, bytes);
        if !inside || !self.offset.is_multiple_of(size) || self.shape.len() > MAX_RANK {
            return None;
        }
        let mut side = Side { base: self.arena.base() + self.offset, dtype, ..Side::default() };
        if !self.contiguous {
            side.rank = self.shape.len() as u32;
            side.shape[..self.shape.len()].copy_from_slice(self.shape);
            side.strides[..self.strides.len()].copy_from_slice(self.strides);
        }
        Some(side)
    }
}

impl Kernels {
    /// Loads them into the context that is current.
    pub(super) fn load(driver: &Driver) -> Result<Self, ArenaError> {
        let (mut module, mut scratch) = (std::ptr::null_mut(), 0);
        let (mut compare, mut differ) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut guard, mut ranges) = (std::ptr::null_mut(), 0);
        let ptx = format!("{PTX}\0");
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: every pointer is to a live local of the type the driver writes; the PTX text and
        // the names end in a zero byte; results are checked before anything they fill is used.
        unsafe {
            let load = (driver.module_load)(&raw mut module, ptx.as_ptr().cast());
            check("load the comparing kernels", load)?;
            let find = (driver.module_function)(&raw mut compare, module, c"compare".as_ptr());
            check("find a comparing kernel", find)?;
            let find = (driver.module_function)(&raw mut differ, module, c"differ".as_ptr());
            check("find a comparing kernel", find)?;
            let find = (driver.module_function)(&raw mut guard, module, c"guard".as_ptr());
            check("find a comparing kernel", find)?;
            check("allocate", (driver.memory_alloc)(&raw mut scratch, SCRATCH_BYTES))?;
            check("allocate", (driver.memory_alloc)(&raw mut ranges, 16 * MAX_RANGES))?;
        }
        Ok(Self { compare, differ, guard, ranges, scratch: Mutex::new(scratch) })
    }
}

fn blocks(items: u64) -> c_uint {
    items.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS) as c_uint
}

impl CudaDevice {
    /// Compares every element; `None` where that cannot be done here. `also` is a second acceptable
    /// answer for numbers that are no floating-point ones.
    pub(crate) fn compare(
        &self,
        got: &Tensor<'_>,
        want: &Tensor<'_>,
        also: Option<&Tensor<'_>>,
        rule: Rule,
    ) -> Result<Option<Told>, ArenaError> {
        let count: u64 = want.shape.iter().product();
        if count == 0 {
            return Ok(None);
        }
        let own = also.map(Tensor::side);
        let arena = got.arena.base();
        let (Some(got), Some(want), Some(own)) =
            (got.side(), want.side(), own.unwrap_or(Some(Side::default())))
        else {
            return Ok(None);
        };
        let (start, poison) = rule.poison.unwrap_or_default();
        let job = Job {
            got,
            want,
            own,
            count,
            atol: rule.atol,
            rtol: rule.rtol,
            limit: rule.limit,
            poison,
            poison_start: arena + start,
            has_own: u32::from(also.is_some()),
            real: u32::from(rule.real),
            poisoned: u32::from(rule.poison.is_some()),
        };
        self.current()?;
        let scratch = self.kernels.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut job_at, mut told_at) = (*scratch, *scratch + RESULT_OFFSET);
        let mut arguments: [*mut c_void; 2] = [(&raw mut job_at).cast(), (&raw mut told_at).cast()];
        let mut told = [0u64; 3];
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `compare` takes exactly these two arguments, of the layout of `Job` and three
        // words; every address that it computes was checked in `side`; the scratch memory holds both.
        unsafe {
            let d = self.driver();
            let send = (d.copy_in)(job_at, (&raw const job).cast(), size_of::<Job>());
            check("send a comparison", send)?;
            check("clear a result", (d.fill16)(told_at, 0, size_of_val(&told) / 2))?;
            let (f, a, null) = (self.kernels.compare, arguments.as_mut_ptr(), std::ptr::null_mut());
            let n = blocks(count);
            let run = (d.launch)(f, n, 1, 1, THREADS, 1, 1, 0, null, a, std::ptr::null_mut());
            check("compare results", run)?;
            let read = (d.copy_out)(told.as_mut_ptr().cast(), told_at, size_of_val(&told));
            check("read what a comparison told", read)?;
        }
        let [wrong, non_finite, largest] = told;
        Ok(Some(Told { wrong, non_finite, max_abs_error: f64::from_bits(largest) }))
    }

    /// Whether two ranges, which the caller has checked, hold equal bytes. Both begin at whole words.
    pub(crate) fn equal(
        &self,
        (one, one_offset): (&CudaArena, u64),
        (other, other_offset): (&CudaArena, u64),
        bytes: u64,
    ) -> Result<bool, ArenaError> {
        self.current()?;
        let scratch = self.kernels.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told_at = *scratch;
        let (mut left, mut right) = (one.base() + one_offset, other.base() + other_offset);
        let (mut bytes, mut count) = (bytes, 0u64);
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut left).cast(),
            (&raw mut right).cast(),
            (&raw mut bytes).cast(),
            (&raw mut told_at).cast(),
        ];
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `differ` takes exactly these four arguments; the ranges lie inside their arenas.
        unsafe {
            let d = self.driver();
            check("clear a result", (d.fill16)(told_at, 0, 4))?;
            let (f, a, null) = (self.kernels.differ, arguments.as_mut_ptr(), std::ptr::null_mut());
            let n = blocks(bytes / 8);
            let run = (d.launch)(f, n, 1, 1, THREADS, 1, 1, 0, null, a, std::ptr::null_mut());
            check("compare memory", run)?;
            let read = (d.copy_out)((&raw mut count).cast(), told_at, 8);
            check("read what a comparison told", read)?;
        }
        Ok(count == 0)
    }
}
