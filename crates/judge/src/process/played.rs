//! A window that a runner has played, and the look with which it ends.

use std::time::Duration;

use rand::rngs::StdRng;

use crate::check::compare;
use crate::check::named::{Named, Results, Sample};
use crate::device::arena::{Arena, ArenaError, Poison, Zone};
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble};
use crate::process::wire::Value;

/// Places of the results at which a window ends with a look on a GPU, inside the clock.
pub(super) const SAMPLES: usize = 256;

/// A window that was played: where its inputs lie, what it gave, and what was seen of it when the
/// clock stopped. Everything of the candidate on the host has been frozen since.
pub(crate) struct Played {
    pub(crate) elapsed: Duration,
    pub(crate) zone: Zone,
    /// Staged inputs by slot.
    pub(crate) sets: Vec<Value>,
    /// Slot used by each call.
    pub(crate) order: Vec<usize>,
    /// Poison that filled the memory of the results.
    pub(crate) poison: Poison,
    /// The call of whose inputs a part was there only while it ran, if that was so.
    pub(crate) exchanged: Option<usize>,
    pub(super) results: Results,
    pub(super) samples: Vec<Sample>,
    /// Content of each sample when the clock stopped.
    pub(super) seen: Vec<u64>,
}

impl Played {
    /// Where the runner said that the results of a call lie.
    pub(crate) fn claimed(&self, call: usize, arena: &Arena) -> Result<Value, Trouble> {
        self.results.call(call, arena.reach()).ok_or_else(|| {
            let answer = NoAnswer::Malformed("it names no results of a call".to_owned());
            Trouble::Candidate(Stumble { during: "forward", answer })
        })
    }

    /// A call that had left a part of its results unwritten when the clock stopped.
    pub(crate) fn unwritten(&self) -> Option<usize> {
        let untouched = self.poison.sample();
        let mut pairs = self.samples.iter().zip(&self.seen);
        let found = pairs.find(|(sample, seen)| sample.dense && **seen == untouched);
        found.filter(|_| self.poison.is_number()).map(|(sample, _)| sample.call)
    }

    /// Poison that filled the zone of the results before the window.
    pub(crate) fn poison(&self) -> compare::Poison {
        let word = u64::from(self.poison.word());
        compare::Poison { start: self.zone.offset, word: word << 32 | word }
    }

    /// Places at which windows of others end with a look as well.
    pub(crate) fn sampled(&self) -> Vec<u64> {
        self.samples.iter().map(|sample| sample.offset).collect()
    }
}

/// What a window ends with on a GPU, inside the clock: the results that the answer names, and what lies
/// at places of theirs that nobody knew before.
pub(super) type Look = Result<Result<(Results, Vec<Sample>, Vec<u64>), NoAnswer>, ArenaError>;

pub(super) fn look(
    reply: &[u8],
    calls: usize,
    zone: Zone,
    arena: &Arena,
    random: &mut StdRng,
) -> Look {
    let named = serde_json::from_slice::<Named>(reply);
    let named = named.map_err(|e| NoAnswer::Malformed(e.to_string()));
    let results = match named.and_then(|named| Results::of(named, calls)) {
        Ok(results) => results,
        Err(error) => return Ok(Err(error)),
    };
    let samples = results.samples(zone, SAMPLES, random);
    let seen = arena.samples(&offsets(&samples))?;
    Ok(Ok((results, samples, seen)))
}

pub(super) fn offsets(samples: &[Sample]) -> Vec<u64> {
    samples.iter().map(|sample| sample.offset).collect()
}
