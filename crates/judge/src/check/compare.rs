//! Compares every element of an output with the reference: on a GPU in device memory. Otherwise, and to
//! describe mismatches, it reads the arenas a piece at a time.

use warpwright_record::verdict::{Check, Element, Mismatch};

use crate::check::claims::Located;
use crate::check::tolerance::Tolerance;
use crate::device::arena::{Arena, ArenaError, Rule, Tensor, Told};

mod right;

use right::all_right;
pub(crate) use right::{Poison, Terms, Triple};

/// How many offending elements are named.
const EXAMPLES: usize = 5;
/// How many of them may be near a tie ([`crate::check::ties`]): of more, none is looked up.
const MOST_TIES: usize = 1024;
/// Largest piece of memory held at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Elements compared in one go: what a core's cache holds.
const STEP: u64 = 1 << 15;

/// The result of comparing one output.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) max_abs_error: f64,
    /// Elements outside the tolerance.
    pub(crate) wrong: u64,
    /// Of these, the ones that are NaN or infinite where the truth is not.
    pub(crate) non_finite: u64,
    /// Of these, the ones whose memory the call left unwritten.
    pub(crate) unwritten: u64,
    pub(crate) count: u64,
    pub(crate) examples: Vec<Element>,
    /// What was allowed, beside the relative part, of the first that is outside.
    pub(crate) atol: Option<f64>,
    /// The finite elements outside, while they are few.
    pub(crate) outside: Vec<Outside>,
}

/// An element outside the tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outside {
    /// Its row-major number.
    pub(crate) index: u64,
    pub(crate) got: f64,
    pub(crate) want: f64,
}

impl Compared {
    fn of(count: u64) -> Self {
        let (wrong, non_finite, unwritten) = (0, 0, 0);
        let (max_abs_error, examples, atol) = (0.0, Vec::new(), None);
        let outside = Vec::new();
        Self { max_abs_error, wrong, non_finite, unwritten, count, examples, atol, outside }
    }

    /// All elements outside the tolerance, if each may be near a tie: they are few, finite and written.
    pub(crate) fn all_outside(&self) -> Option<&[Outside]> {
        let all = self.outside.len() as u64 == self.wrong && self.unwritten == 0;
        (all && self.wrong > 0).then_some(self.outside.as_slice())
    }

    /// As told in a verdict. Where not every draw has other values, what was expected is not told: it
    /// would pass if it were returned.
    pub(crate) fn mismatch(
        &self,
        output: u32,
        check: &Check,
        tolerance: Tolerance,
        fresh: bool,
    ) -> Mismatch {
        let mut examples = self.examples.clone();
        if !fresh {
            for example in &mut examples {
                example.expected = None;
                let got = example.got.map_or_else(|| "no finite number".into(), |v| v.to_string());
                example.text = format!("at {index:?}: got {got}", index = example.index);
            }
        }
        Mismatch {
            output,
            check: check.name.clone(),
            family: check.family,
            elements: self.wrong,
            of: self.count,
            max_abs_error: self.max_abs_error,
            atol: tolerance.atol,
            rtol: tolerance.rtol,
            examples,
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
            (self.start, self.bytes) = (self.at.offset + first * size, count * size);
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

    /// Loads the bits of the elements from `first` on, `count` of them, and their addresses.
    fn load_bits(
        &mut self,
        first: u64,
        count: u64,
        into: &mut Vec<(u64, u64)>,
    ) -> Result<(), ArenaError> {
        into.clear();
        let size = self.at.dtype.size();
        for i in first..first + count {
            let address = if self.contiguous { self.at.offset + i * size } else { self.address(i) };
            let local = self.cover(address)?;
            into.push((self.at.dtype.bits(&self.piece[local..]).unwrap_or_default(), address));
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
            // Inputs lie behind the arena.
            self.bytes = PIECE_BYTES.min(self.at.end().saturating_sub(address)).max(size);
            self.piece.resize(self.bytes as usize, 0);
            self.arena.read(self.start, &mut self.piece)?;
        }
        Ok((address - self.start) as usize)
    }
}

/// Compares `got` in the runner's arena with `want`, contiguous, in the oracle's. `also` is a second
/// acceptable answer, the same-precision reference's own: see [`Terms::right`].
pub(crate) fn compare(
    runner: &Arena,
    got: &Located,
    oracle: &Arena,
    want: &Located,
    also: Option<&Located>,
    terms: Terms,
) -> Result<Compared, ArenaError> {
    let count = want.count();
    if let Some(told) = compare_there((runner, got), (oracle, want), also, terms)?
        && told.wrong == 0
    {
        return Ok(Compared { max_abs_error: told.max_abs_error, ..Compared::of(count) });
    }
    compare_here((runner, got), (oracle, want), also, terms)
}

/// The comparison by this process.
fn compare_here(
    (runner, got): (&Arena, &Located),
    (oracle, want): (&Arena, &Located),
    also: Option<&Located>,
    terms: Terms,
) -> Result<Compared, ArenaError> {
    let count = want.count();
    let parts = in_parallel(count, PIECE_BYTES / 8, |first, end| {
        compare_part((runner, got), (oracle, want), also, terms, first, end)
    })?;
    let mut result = Compared::of(count);
    for part in parts {
        result.max_abs_error = result.max_abs_error.max(part.max_abs_error);
        result.wrong += part.wrong;
        result.non_finite += part.non_finite;
        result.unwritten += part.unwritten;
        result.atol = result.atol.or(part.atol);
        // Parts come in order: the first offending elements stay the first.
        let room = EXAMPLES - result.examples.len();
        result.examples.extend(part.examples.into_iter().take(room));
        let room = MOST_TIES - result.outside.len();
        result.outside.extend(part.outside.into_iter().take(room));
    }
    Ok(result)
}

/// The comparison by the GPU that holds both; `None` where there is none, or it cannot. It knows one
/// tolerance: where small elements have their own, the least of all. What is beyond that is looked at
/// here.
fn compare_there(
    (runner, got): (&Arena, &Located),
    (oracle, want): (&Arena, &Located),
    also: Option<&Located>,
    terms: Terms,
) -> Result<Option<Told>, ArenaError> {
    let (Some(mine), Some(truth)) = (tensor(runner, got), tensor(oracle, want)) else {
        return Ok(None);
    };
    let own = match also.map(|at| tensor(oracle, at)) {
        Some(None) => return Ok(None),
        own => own.flatten(),
    };
    let rule = Rule {
        atol: terms.least().atol,
        rtol: terms.least().rtol,
        limit: terms.dtype.limit(),
        real: terms.dtype.is_real(),
        poison: terms.poison.map(|poison| (poison.start, poison.word)),
    };
    truth.arena.device().compare(&mine, &truth, own.as_ref(), rule)
}

fn tensor<'a>(arena: &'a Arena, at: &'a Located) -> Option<Tensor<'a>> {
    let Arena::Cuda(arena) = arena else { return None };
    Some(Tensor {
        arena,
        offset: at.offset,
        dtype: (at.dtype.code(), at.dtype.size()),
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
    terms: Terms,
    mut first: u64,
    end: u64,
) -> Result<Compared, ArenaError> {
    let mut result = Compared::of(end - first);
    let real = terms.dtype.is_real();
    let (mut a, mut b) = (Reader::new(runner, got), Reader::new(oracle, want));
    let mut c = also.map(|at| Reader::new(oracle, at));
    let (mut gots, mut wants) = (Vec::new(), Vec::new());
    let (mut mine, mut truths, mut owns) = (Vec::new(), Vec::new(), Vec::new());
    while first < end {
        let n = STEP.min(end - first);
        if real {
            a.load(first, n, &mut gots)?;
            b.load(first, n, &mut wants)?;
            if let Some(largest) = all_right(&gots, &wants, terms.least()) {
                result.max_abs_error = result.max_abs_error.max(largest);
                first += n;
                continue;
            }
        }
        a.load_bits(first, n, &mut mine)?;
        b.load_bits(first, n, &mut truths)?;
        if let Some(c) = &mut c {
            c.load_bits(first, n, &mut owns)?;
        }
        for (k, (&(bits, address), &(truth, _))) in mine.iter().zip(&truths).enumerate() {
            let got = (bits, got.dtype.decoded(bits));
            let wanted = (truth, want.dtype.decoded(truth));
            let own = also.zip(owns.get(k)).map(|(at, &(own, _))| (own, at.dtype.decoded(own)));
            let right =
                terms.right(&Triple { got, want: wanted, own }) && !terms.unwritten(got, address);
            result.add(first + k as u64, (got, wanted), right, &want.shape, &terms);
            result.unwritten += u64::from(!right && terms.holds_poison(bits, address));
        }
        first += n;
    }
    Ok(result)
}

impl Compared {
    /// Takes in one element. How far one is off that is right as the reference's own answer, or by
    /// overflowing, is no error.
    fn add(
        &mut self,
        index: u64,
        ((_, got), (_, want)): ((u64, f64), (u64, f64)),
        right: bool,
        shape: &[u64],
        terms: &Terms,
    ) {
        let error = (got - want).abs();
        if error > self.max_abs_error && (!right || error <= terms.allowed(want)) {
            self.max_abs_error = error;
        }
        if right {
            return;
        }
        self.wrong += 1;
        self.atol = self.atol.or(Some(terms.steps.atol(want, terms.tolerance.atol)));
        if !got.is_finite() && want.is_finite() {
            self.non_finite += 1;
            self.max_abs_error = f64::INFINITY;
        }
        if self.outside.len() < MOST_TIES && got.is_finite() && want.is_finite() {
            self.outside.push(Outside { index, got, want });
        }
        if self.examples.len() < EXAMPLES {
            self.examples.push(example(index, shape, want, got));
        }
    }
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
        text: format!("at {index:?}: expected {}, got {}", legible(expected), legible(got)),
        index,
        expected: finite(expected),
        got: finite(got),
    }
}

/// A number as people write it: with an exponent where it would begin or end with many zeros.
fn legible(value: f64) -> String {
    let size = value.abs();
    if value.is_finite() && size != 0.0 && !(1e-4..1e15).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests;
