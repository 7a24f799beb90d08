//! The answer to "go": the addresses of the results of every call of a window.
//!
//! A runner's answer is untrusted. It is sent before the clock stops and before the candidate can know which
//! calls are compared. This module only parses it; `claims` checks it.

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Deserialize;

use crate::device::arena::{SAMPLE_BYTES, Zone};
use crate::process::channel::NoAnswer;
use crate::process::wire::{Place, Value};

/// The answer to "go", see `named` in `player.py`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Named {
    /// Trees and places without offsets.
    forms: Vec<Value>,
    /// Which of them each call's results have; empty where all have the first.
    form: Vec<usize>,
    /// The arena's start, as addresses count.
    base: u64,
    /// Addresses of all tensors in order, 16 hexadecimal digits each, little endian.
    at: String,
}

/// The results of a window.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    forms: Vec<Value>,
    /// Per call: its form and the index of its first address.
    calls: Vec<(usize, usize)>,
    base: u64,
    at: Vec<u64>,
}

/// A place in the results that the judge samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) call: usize,
    /// Bytes from the arena's start.
    pub(crate) offset: u64,
    /// Whether all of its bytes are elements of one output.
    pub(crate) dense: bool,
}

impl Results {
    /// Takes an answer apart that should name this many calls.
    pub(crate) fn of(named: Named, calls: usize) -> Result<Self, NoAnswer> {
        let malformed = |what: &str| Err(NoAnswer::Malformed(what.to_owned()));
        let Named { forms, form, base, at } = named;
        if !form.is_empty() && form.len() != calls || forms.is_empty() && calls > 0 {
            return malformed("it names the results of another number of calls");
        }
        let Some(at) = addresses(&at) else { return malformed("its addresses are no addresses") };
        let mut placed = Vec::with_capacity(calls);
        let mut next = 0;
        for call in 0..calls {
            let which = form.get(call).copied().unwrap_or(0);
            let Some(form) = forms.get(which) else {
                return malformed("it names a form that is not there");
            };
            placed.push((which, next));
            next += form.tensors.len();
        }
        if next != at.len() {
            return malformed("it names another number of tensors than its forms have");
        }
        Ok(Self { forms, calls: placed, base, at })
    }

    /// Results that the judge placed itself: every call's in one form, at these offsets.
    pub(crate) fn placed(form: Value, calls: usize, at: Vec<u64>) -> Self {
        let each = form.tensors.len();
        let calls = (0..calls).map(|call| (0, call * each)).collect();
        Self { forms: vec![form], calls, base: 0, at }
    }

    /// The results of one call. A tensor that does not begin in the `len` bytes from the arena's start
    /// has no offset.
    pub(crate) fn call(&self, call: usize, len: u64) -> Option<Value> {
        let &(form, first) = self.calls.get(call)?;
        let mut value = self.forms.get(form)?.clone();
        for (place, at) in value.tensors.iter_mut().zip(self.at.get(first..)?) {
            place.offset = at.checked_sub(self.base).filter(|offset| *offset < len);
        }
        Some(value)
    }

    /// So many places within the results that lie in `zone`, drawn anew; none where none does.
    pub(crate) fn samples(&self, zone: Zone, count: usize, random: &mut StdRng) -> Vec<Sample> {
        if self.at.is_empty() {
            return Vec::new();
        }
        (0..count).filter_map(|_| self.sample(zone, random)).collect()
    }

    fn sample(&self, zone: Zone, random: &mut StdRng) -> Option<Sample> {
        let call = random.random_range(0..self.calls.len());
        let &(form, first) = self.calls.get(call)?;
        let tensors = &self.forms.get(form)?.tensors;
        if tensors.is_empty() {
            return None;
        }
        let which = random.random_range(0..tensors.len());
        let offset = self.at.get(first + which)?.checked_sub(self.base)?;
        let place = tensors.get(which)?;
        if place.bytes == 0 || !zone.contains(offset, place.bytes) {
            return None;
        }
        let (start, end) = (offset.next_multiple_of(8), offset + place.bytes);
        let room = end.saturating_sub(start).checked_sub(SAMPLE_BYTES);
        let shift = room.map_or(0, |room| random.random_range(0..=room / 8) * 8);
        Some(Sample { call, offset: start + shift, dense: room.is_some() && is_dense(place) })
    }
}

/// Whether a tensor's elements lie one after the other and fill its bytes.
fn is_dense(place: &Place) -> bool {
    let mut expected = 1i64;
    place.shape.len() == place.strides.len()
        && place.shape.iter().zip(&place.strides).rev().all(|(&n, &stride)| {
            let fits = n == 1 || stride == expected;
            expected = expected.saturating_mul(n.max(1) as i64);
            fits
        })
}

fn addresses(text: &str) -> Option<Vec<u64>> {
    let (words, []) = text.as_bytes().as_chunks::<16>() else { return None };
    words
        .iter()
        .map(|word| {
            let mut bytes = [0u8; 8];
            for (byte, pair) in bytes.iter_mut().zip(word.as_chunks::<2>().0) {
                *byte = digit(pair[0])? << 4 | digit(pair[1])?;
            }
            Some(u64::from_le_bytes(bytes))
        })
        .collect()
}

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use serde_json::json;

    use super::*;

    const ZONE: Zone = Zone { offset: 4096, bytes: 1 << 20 };

    fn hex(words: &[u64]) -> String {
        let each: Vec<String> =
            words.iter().map(|word| format!("{:016x}", word.swap_bytes())).collect();
        each.concat()
    }

    fn named(forms: &[&[u64]], form: &[usize], base: u64, at: &[u64]) -> Named {
        let place = |&elements: &u64| {
            json!({
                "offset": null, "shape": [elements], "strides": [1], "dtype": "float32",
                "bytes": 4 * elements,
            })
        };
        let form_of = |tensors: &&[u64]| json!({"tree": {"tensor": 0}, "tensors": tensors.iter().map(place).collect::<Vec<_>>()});
        let forms: Vec<_> = forms.iter().map(form_of).collect();
        let answer = json!({"forms": forms, "form": form, "base": base, "at": hex(at)});
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn each_call_has_its_own_addresses() {
        let answer = named(&[&[8], &[4, 4]], &[0, 1, 0], 1000, &[1000, 5096, 6000, 999]);
        let results = Results::of(answer, 3).unwrap();
        let offsets = |call| -> Vec<_> {
            results.call(call, 10_000).unwrap().tensors.iter().map(|at| at.offset).collect()
        };
        assert_eq!(offsets(0), [Some(0)]);
        assert_eq!(offsets(1), [Some(4096), Some(5000)]);
        assert_eq!(offsets(2), [None], "before the arena");
        assert!(results.call(3, 10_000).is_none());
        assert_eq!(results.call(1, 4096).unwrap().tensors[0].offset, None, "behind the arena");
    }

    #[test]
    fn an_answer_with_wrong_counts_is_refused() {
        for (answer, calls) in [
            (named(&[&[8]], &[], 0, &[0]), 2),
            (named(&[&[8]], &[], 0, &[0, 0, 0]), 2),
            (named(&[&[8]], &[0], 0, &[0, 0]), 2),
            (named(&[&[8]], &[0, 1], 0, &[0, 0]), 2),
            (named(&[], &[], 0, &[]), 1),
        ] {
            assert!(matches!(Results::of(answer, calls), Err(NoAnswer::Malformed(_))));
        }
        let mut answer = named(&[&[8]], &[], 0, &[0]);
        answer.at.replace_range(0..1, "x");
        assert!(Results::of(answer, 1).is_err());
        Results::of(named(&[&[8]], &[], 0, &[0]), 1).unwrap();
    }

    #[test]
    fn samples_lie_within_results_and_cover_each_call() {
        let mut random = StdRng::seed_from_u64(3);
        let at: Vec<u64> = (0..20).map(|i| 4096 + 1024 * i).collect();
        let results = Results::of(named(&[&[200]], &[], 0, &at), 20).unwrap();
        let samples = results.samples(ZONE, 400, &mut random);
        assert_eq!(samples.len(), 400);
        for sample in &samples {
            let start = at[sample.call];
            assert!(sample.dense && sample.offset >= start && sample.offset + 64 <= start + 800);
        }
        assert!((0..20).all(|call| samples.iter().any(|sample| sample.call == call)));
        let outside = Results::of(named(&[&[200]], &[], 0, &[1 << 30]), 1).unwrap();
        assert!(outside.samples(ZONE, 400, &mut random).is_empty());
    }

    proptest! {
        #[test]
        fn hostile_answers_name_nothing_outside_the_zone(
            at in prop::collection::vec(any::<u64>(), 0..6),
            base in any::<u64>(),
            elements in prop::collection::vec(0u64..1 << 40, 0..3),
            calls in 0usize..4,
        ) {
            let answer = named(&[&elements], &[], base, &at);
            if let Ok(results) = Results::of(answer, calls) {
                let mut random = StdRng::seed_from_u64(1);
                for sample in results.samples(ZONE, 16, &mut random) {
                    prop_assert!(ZONE.contains(sample.offset, 1));
                }
            }
        }
    }
}
