//! Every element of an output against the truth: on a GPU where they lie; else, and to name what is
//! wrong, read from the arenas a piece at a time.

use warpwright_record::verdict::{Check, Element, Mismatch};

use crate::arena::{Arena, ArenaError, Rule, Tensor, Told};
use crate::claims::Located;
use crate::dtype::Dtype;
use crate::tolerance::Tolerance;

mod right;

use right::all_right;

/// How many offending elements are named.
const EXAMPLES: usize = 5;
/// Largest piece of memory held at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Elements compared in one go: what a core's cache holds.
const STEP: u64 = 1 << 15;

/// What comparing one output came to.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) max_abs_error: f64,
    /// Elements outside the tolerance.
    pub(crate) wrong: u64,
    /// Of these, the ones that are NaN or infinite where the truth is not.
    pub(crate) non_finite: u64,
    pub(crate) count: u64,
    pub(crate) examples: Vec<Element>,
}

impl Compared {
    fn of(count: u64) -> Self {
        Self { max_abs_error: 0.0, wrong: 0, non_finite: 0, count, examples: Vec::new() }
    }

    pub(crate) fn mismatch(&self, output: u32, check: &Check, tolerance: Tolerance) -> Mismatch {
        Mismatch {
            output,
            check: check.name.clone(),
            family: check.family,
            elements: self.wrong,
            of: self.count,
            max_abs_error: self.max_abs_error,
            atol: tolerance.atol,
            rtol: tolerance.rtol,
            examples: self.examples.clone(),
        }
    }
}

/// Reads a strided tensor in row-major order, a piece at a time.
struct Reader<'a> {
    arena: &'a Arena,
    at: &'a Located,
    contiguous: bool,
    piece: Vec<u8>,
    start: u64,
    bytes: u64,
}

impl<'a> Reader<'a> {
    fn new(arena: &'a Arena, at: &'a Located) -> Self {
        Self { arena, at, contiguous: at.contiguous(), piece: Vec::new(), start: 0, bytes: 0 }
    }

    /// Loads the elements from `first` on, `count` of them, as numbers.
    fn load(&mut self, first: u64, count: u64, into: &mut Vec<f64>) -> Result<(), ArenaError> {
        into.clear();
        let size = self.at.dtype.size();
        if self.contiguous {
            self.piece.resize((count * size) as usize, 0);
            self.arena.read(self.at.offset + first * size, &mut self.piece)?;
            self.at.dtype.values(&self.piece, into);
            return Ok(());
        }
        for i in first..first + count {
            let address = self.address(i);
            let local = self.cover(address)?;
            into.push(self.at.dtype.value(&self.piece[local..]));
        }
        Ok(())
    }

    /// Byte address of the element with row-major number `i`.
    fn address(&self, mut i: u64) -> u64 {
        let mut elements = 0;
        for (&n, &s) in self.at.shape.iter().zip(&self.at.strides).rev() {
            elements += i % n * s;
            i /= n;
        }
        self.at.offset + elements * self.at.dtype.size()
    }

    /// Makes the piece hold `address`; where in it.
    fn cover(&mut self, address: u64) -> Result<usize, ArenaError> {
        let size = self.at.dtype.size();
        if address < self.start || address + size > self.start + self.bytes {
            self.start = address;
            self.bytes = PIECE_BYTES.min(self.arena.len() - address);
            self.piece.resize(self.bytes as usize, 0);
            self.arena.read(self.start, &mut self.piece)?;
        }
        Ok((address - self.start) as usize)
    }
}

/// Compares `got` in the runner's arena with `want`, contiguous, in the oracle's. For integers and
/// booleans `also` is a second acceptable answer (the same-precision reference's own).
pub(crate) fn compare(
    runner: &Arena,
    got: &Located,
    oracle: &Arena,
    want: &Located,
    also: Option<&Located>,
    tolerance: Tolerance,
) -> Result<Compared, ArenaError> {
    let count = want.count();
    if let Some(told) = compare_there((runner, got), (oracle, want), also, tolerance)?
        && told.wrong == 0
    {
        return Ok(Compared { max_abs_error: told.max_abs_error, ..Compared::of(count) });
    }
    compare_here((runner, got), (oracle, want), also, tolerance)
}

/// The comparison by this process.
fn compare_here(
    (runner, got): (&Arena, &Located),
    (oracle, want): (&Arena, &Located),
    also: Option<&Located>,
    tolerance: Tolerance,
) -> Result<Compared, ArenaError> {
    let count = want.count();
    let parts = in_parallel(count, PIECE_BYTES / 8, |first, end| {
        compare_part((runner, got), (oracle, want), also, tolerance, first, end)
    })?;
    let mut result = Compared::of(count);
    for part in parts {
        result.max_abs_error = result.max_abs_error.max(part.max_abs_error);
        result.wrong += part.wrong;
        result.non_finite += part.non_finite;
        // Parts come in order: the first offending elements stay the first.
        let room = EXAMPLES - result.examples.len();
        result.examples.extend(part.examples.into_iter().take(room));
    }
    Ok(result)
}

fn is_real(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

/// The comparison by the GPU that holds both; `None` where there is none, or it cannot.
fn compare_there(
    (runner, got): (&Arena, &Located),
    (oracle, want): (&Arena, &Located),
    also: Option<&Located>,
    tolerance: Tolerance,
) -> Result<Option<Told>, ArenaError> {
    let (Some(mine), Some(truth)) = (tensor(runner, got), tensor(oracle, want)) else {
        return Ok(None);
    };
    let own = match also.map(|at| tensor(oracle, at)) {
        Some(None) => return Ok(None),
        own => own.flatten(),
    };
    let rule = Rule { atol: tolerance.atol, rtol: tolerance.rtol, real: is_real(got.dtype) };
    truth.arena.device().compare(&mine, &truth, own.as_ref(), rule)
}

fn tensor<'a>(arena: &'a Arena, at: &'a Located) -> Option<Tensor<'a>> {
    let Arena::Cuda(arena) = arena else { return None };
    Some(Tensor {
        arena,
        offset: at.offset,
        dtype: (at.dtype as u32, at.dtype.size()),
        shape: &at.shape,
        strides: &at.strides,
        contiguous: at.contiguous(),
    })
}

/// Elements `first` to `end` of one output.
fn compare_part(
    (runner, got): (&Arena, &Located),
    (oracle, want): (&Arena, &Located),
    also: Option<&Located>,
    tolerance: Tolerance,
    mut first: u64,
    end: u64,
) -> Result<Compared, ArenaError> {
    let mut result = Compared::of(end - first);
    let real = is_real(got.dtype);
    let (mut a, mut b) = (Reader::new(runner, got), Reader::new(oracle, want));
    let mut c = also.map(|at| Reader::new(oracle, at));
    let (mut gots, mut wants, mut owns) = (Vec::new(), Vec::new(), Vec::new());
    while first < end {
        let n = STEP.min(end - first);
        a.load(first, n, &mut gots)?;
        b.load(first, n, &mut wants)?;
        if let Some(c) = &mut c {
            c.load(first, n, &mut owns)?;
        }
        if let Some(largest) = real.then(|| all_right(&gots, &wants, tolerance)).flatten() {
            result.max_abs_error = result.max_abs_error.max(largest);
            first += n;
            continue;
        }
        for (k, (&g, &w)) in gots.iter().zip(&wants).enumerate() {
            let error = (g - w).abs();
            let right = if real && w.is_finite() {
                error <= tolerance.atol + tolerance.rtol * w.abs()
            } else {
                same(g, w) || (!real && owns.get(k).is_some_and(|&own| same(g, own)))
            };
            if error > result.max_abs_error {
                result.max_abs_error = error;
            }
            if !right {
                result.wrong += 1;
                if !g.is_finite() && w.is_finite() {
                    result.non_finite += 1;
                    result.max_abs_error = f64::INFINITY;
                }
                if result.examples.len() < EXAMPLES {
                    result.examples.push(example(first + k as u64, &want.shape, w, g));
                }
            }
        }
        first += n;
    }
    Ok(result)
}

/// Cuts `0..count` into one stretch per core, each of whole `step`s, and works on them side by
/// side; results in order. A gigabyte a check is compared, and one core would take seconds.
fn in_parallel<T: Send>(
    count: u64,
    step: u64,
    work: impl Fn(u64, u64) -> Result<T, ArenaError> + Sync,
) -> Result<Vec<T>, ArenaError> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let stretch = count.div_ceil(cores).div_ceil(step).max(1) * step;
    let starts: Vec<u64> = (0..count).step_by(stretch as usize).collect();
    if let [_] = starts[..] {
        return Ok(vec![work(0, count)?]);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = starts
            .into_iter()
            .map(|first| scope.spawn(move || work(first, (first + stretch).min(count))))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                let died = |_| ArenaError::new("compare results", "a thread of ours died");
                thread.join().map_err(died)?
            })
            .collect()
    })
}

/// Equal integers, equal infinities, or NaN both.
fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) == Some(std::cmp::Ordering::Equal) || (a.is_nan() && b.is_nan())
}

/// Whether two stretches of memory hold equal bytes.
pub(crate) fn equal_bytes(
    one: &Arena,
    one_offset: u64,
    other: &Arena,
    other_offset: u64,
    bytes: u64,
) -> Result<bool, ArenaError> {
    if let Some(equal) = one.equal_there(one_offset, other, other_offset, bytes)? {
        return Ok(equal);
    }
    let parts = in_parallel(bytes, PIECE_BYTES, |first, end| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut at = first;
        while at < end {
            let n = (8 * STEP).min(end - at) as usize;
            left.resize(n, 0);
            right.resize(n, 0);
            one.read(one_offset + at, &mut left)?;
            other.read(other_offset + at, &mut right)?;
            if left != right {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    })?;
    Ok(parts.into_iter().all(|equal| equal))
}

fn example(mut i: u64, shape: &[u64], expected: f64, got: f64) -> Element {
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&n| {
            let here = i % n;
            i /= n;
            here
        })
        .collect();
    index.reverse();
    let finite = |v: f64| v.is_finite().then_some(v);
    Element {
        text: format!("at {index:?}: expected {expected}, got {got}"),
        index,
        expected: finite(expected),
        got: finite(got),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::HostArena;
    use crate::claims::Zone;
    use std::io::{Seek, SeekFrom, Write};

    fn arena(bytes: &[u8]) -> Arena {
        let host = HostArena::create(bytes.len().max(4096) as u64).unwrap();
        let mut file = std::fs::File::from(host.fd().try_clone_to_owned().unwrap());
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(bytes).unwrap();
        Arena::Host(host)
    }

    fn f32s(values: &[f32]) -> Arena {
        arena(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    fn f64s(values: &[f64]) -> Arena {
        arena(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    fn at(shape: &[u64], strides: &[u64], dtype: Dtype) -> Located {
        Located { offset: 0, shape: shape.to_vec(), strides: strides.to_vec(), dtype }
    }

    const TIGHT: Tolerance = Tolerance { atol: 1e-6, rtol: 1e-6 };

    #[test]
    fn transposed_memory_is_compared_by_index() {
        let got = f32s(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let want = f64s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let (g, w) = (at(&[2, 3], &[1, 2], Dtype::F32), at(&[2, 3], &[3, 1], Dtype::F64));
        assert_eq!(compare(&got, &g, &want, &w, None, TIGHT).unwrap().wrong, 0);
        let wrong = at(&[2, 3], &[3, 1], Dtype::F32);
        let told = compare(&got, &wrong, &want, &w, None, TIGHT).unwrap();
        assert_eq!((told.wrong, told.examples[0].index.clone()), (4, vec![0, 1]));
    }

    #[test]
    fn a_nan_is_never_right_unless_the_truth_is_one() {
        let got = f32s(&[f32::NAN, f32::NAN, f32::INFINITY, f32::INFINITY]);
        let want = f64s(&[1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let (g, w) = (at(&[4], &[1], Dtype::F32), at(&[4], &[1], Dtype::F64));
        let told = compare(&got, &g, &want, &w, None, TIGHT).unwrap();
        assert_eq!((told.wrong, told.non_finite), (2, 1));
        assert!(told.max_abs_error.is_infinite());
    }

    #[test]
    fn one_wrong_element_among_millions_is_found() {
        let n = 3_000_000;
        let mut values = vec![0.5f32; n];
        values[2_999_999] = 0.6;
        let (got, want) = (f32s(&values), f64s(&vec![0.5; n]));
        let (g, w) = (at(&[n as u64], &[1], Dtype::F32), at(&[n as u64], &[1], Dtype::F64));
        let told = compare(&got, &g, &want, &w, None, TIGHT).unwrap();
        assert_eq!((told.wrong, told.count), (1, n as u64));
        assert_eq!(told.examples[0].index, [2_999_999]);
    }

    #[test]
    fn stretches_cover_everything_once_and_in_order() {
        for count in [0, 1, 999, 1000, 1001, 123_456] {
            let parts = in_parallel(count, 1000, |first, end| Ok((first, end))).unwrap();
            let mut next = 0;
            for (first, end) in parts {
                assert!(first == next && end > first, "{first} after {next}");
                next = end;
            }
            assert_eq!(next, count);
        }
        // The first offending elements stay the first, whichever core finds which.
        let n = 3_000_000;
        let (got, want) = (f32s(&vec![1.0; n]), f64s(&vec![0.5; n]));
        let (g, w) = (at(&[n as u64], &[1], Dtype::F32), at(&[n as u64], &[1], Dtype::F64));
        let told = compare(&got, &g, &want, &w, None, TIGHT).unwrap();
        assert_eq!(told.wrong, n as u64);
        let first: Vec<u64> = told.examples.iter().map(|e| e.index[0]).collect();
        assert_eq!(first, [0, 1, 2, 3, 4]);
    }

    /// On random bytes, which hold infinities, NaN and subnormal numbers, the GPU and this process
    /// come to the same; and a tensor that its kernels must not touch is left to this process.
    #[test]
    fn gpu_comparing_there_and_here_agree() {
        use crate::arena::CudaDevice;
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        let gpu = std::sync::Arc::new(CudaDevice::open(0).unwrap());
        let [mine, truths] = [(); 2]
            .map(|()| Arena::Cuda(gpu.arena(4 << 20, Zone { offset: 4 << 20, bytes: 0 }).unwrap()));
        let write = |arena: &Arena, offset, bytes: &[u8]| match arena {
            Arena::Cuda(arena) => arena.write(offset, bytes).unwrap(),
            Arena::Host(_) => unreachable!(),
        };
        let mut random = StdRng::seed_from_u64(1);
        let dtypes = [
            Dtype::F64,
            Dtype::F32,
            Dtype::F16,
            Dtype::Bf16,
            Dtype::I64,
            Dtype::I32,
            Dtype::I16,
            Dtype::I8,
            Dtype::U8,
            Dtype::Bool,
        ];
        let mut bytes = vec![0u8; 1 << 20];
        let mut seen = [0, 0];
        for (round, dtype) in dtypes.into_iter().cycle().take(60).enumerate() {
            random.fill(&mut bytes[..]);
            write(&mine, 4096, &bytes);
            // Two of three times the truth is what was got, and now and then something else.
            let truth = if is_real(dtype) { Dtype::F64 } else { dtype };
            let (wide, size) = (truth.size() as usize, dtype.size() as usize);
            let mut exact = vec![0u8; bytes.len() / size * wide];
            for (to, from) in exact.chunks_exact_mut(wide).zip(bytes.chunks_exact(size)) {
                if is_real(dtype) {
                    to.copy_from_slice(&dtype.value(from).to_le_bytes());
                } else {
                    to.copy_from_slice(from);
                }
            }
            if round % 3 == 2 {
                let at = random.random_range(0..1000 * wide);
                exact[at] ^= 0x55;
            }
            exact.truncate(3 << 20);
            write(&truths, 0, &exact);
            let shape = [8, 31, 4];
            let strides: &[u64] = if round % 2 == 0 { &[124, 4, 1] } else { &[1, 32, 1024] };
            let got = Located { offset: 4096, ..at(&shape, strides, dtype) };
            let want = at(&shape, strides, truth);
            let rule = Tolerance { atol: 0.0, rtol: 1e-12 };
            let (got, want) = ((&mine, &got), (&truths, &want));
            let there = compare_there(got, want, None, rule).unwrap().unwrap();
            let here = compare_here(got, want, None, rule).unwrap();
            assert_eq!((there.wrong, there.non_finite), (here.wrong, here.non_finite), "{dtype:?}");
            assert_eq!(there.max_abs_error.to_bits(), here.max_abs_error.to_bits(), "{dtype:?}");
            seen[usize::from(here.wrong > 0)] += 1;
        }
        assert!(seen[0] > 20 && seen[1] > 5, "{seen:?}");
        let odd = Located { offset: 4097, ..at(&[16], &[1], Dtype::F32) };
        let far = Located { offset: 4 << 20, ..at(&[16], &[1], Dtype::F32) };
        for refused in [odd, far] {
            let want = at(&[16], &[1], Dtype::F64);
            let rule = Tolerance { atol: 0.0, rtol: 0.0 };
            let there = compare_there((&mine, &refused), (&truths, &want), None, rule).unwrap();
            assert_eq!(there, None);
        }
        // Ranges that differ in one byte, in whole words and behind them.
        for (bytes, at) in [(4096, 77), (4099, 4098)] {
            let mut copy = vec![7u8; bytes];
            write(&mine, 0, &copy);
            write(&truths, 512, &copy);
            assert!(equal_bytes(&mine, 0, &truths, 512, bytes as u64).unwrap());
            copy[at] = 8;
            write(&truths, 512, &copy);
            assert!(!equal_bytes(&mine, 0, &truths, 512, bytes as u64).unwrap());
            assert!(equal_bytes(&mine, 0, &truths, 512, at as u64).unwrap());
        }
    }

    #[test]
    fn an_integer_may_agree_with_either_answer() {
        let ints = |v: &[i64]| arena(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
        let got = ints(&[3, 5, 9]);
        let both = ints(&[3, 4, 8, 3, 5, 7]);
        let w = at(&[3], &[1], Dtype::I64);
        let own = Located { offset: 24, ..w.clone() };
        let told = compare(&got, &w, &both, &w, Some(&own), TIGHT).unwrap();
        assert_eq!((told.wrong, told.examples[0].index.clone()), (1, vec![2]));
    }
}
