//! Divides the runner's arena into weights, inputs and results. The judge decides where each input lies and
//! which part results come from; it samples both anew for every call and window.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::check::dtype::Dtype;
use crate::device::arena::Zone;
use crate::process::memory::{LEAST_SCRATCH, Room};
use crate::process::wire::{ALIGN, Opened, Place, padded};

/// Parts of the runner's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where `ModelNew`'s own memory comes from until the rules are locked.
    pub(crate) weights: Zone,
    /// Where the first call of each variant allocates: with the weights, so that what it keeps is never
    /// overwritten. Where memory is short, where results lie later.
    pub(crate) first: Zone,
    /// Where the judge places inputs: in the arena, or behind it in memory that is new in each window.
    pub(crate) inputs: Zone,
    /// Whether that is so.
    pub(crate) apart: bool,
    /// Where results and intermediates come from.
    pub(crate) results: Zone,
    /// Calls a window may hold at most.
    pub(crate) calls: u64,
    /// Bytes of one call's inputs.
    per_set: u64,
    /// Bytes of results one call is given, without what all share.
    pub(crate) per_call: u64,
    /// Room for intermediates, shared by the calls of a window.
    pub(crate) scratch: u64,
}

/// Sizes that do not depend on how much memory there is, bytes.
struct Sizes {
    /// Weights, what is made of them, and what first calls take.
    weights: u64,
    /// Bytes that are independent of the number of calls.
    fixed: u64,
    /// One call's inputs, with a little room to move in.
    inputs: u64,
    per_set: u64,
    per_call: u64,
    /// Weights and the constructor's arguments.
    state: u64,
    /// Whether first calls have memory with the weights.
    lasting: bool,
}

impl Sizes {
    /// `sets` of weights: two while both variants are alive, and repacked copies of these.
    fn of(opened: &Opened, (sets, lasting): (u64, bool)) -> Self {
        let state: u64 = opened.sizes.state.iter().map(|p| padded(p.bytes)).sum();
        let state = state + opened.sizes.init.padded_bytes();
        let per_set = opened.sizes.inputs.padded_bytes();
        // An eighth more: results that are parts of larger, padded buffers.
        let per_call = opened.sizes.outputs.tensors.iter().map(written).sum::<u64>() / 8 * 9;
        // What one call has alive at once where eager makes it, and half as much again, for each.
        let first = if lasting { 3 * opened.sizes.peak_bytes + 2 * per_call } else { 0 };
        let weights = round(sets * state + first + (64 << 20));
        Self {
            weights,
            fixed: weights + 2 * SLACK + round(state),
            inputs: per_set + 8 * ALIGN,
            per_set,
            per_call,
            state,
            lasting,
        }
    }
}

impl Sizes {
    /// Bytes for the intermediates of one call, for candidates of several kernels: what eager allocates and half
    /// as much again; where memory is short, room for two more calls.
    fn scratch(&self, opened: &Opened) -> [u64; 2] {
        let least = round(2 * (self.inputs + self.per_call) + (32 << 20));
        [round(opened.allocated_bytes / 2 * 3 + (32 << 20)), least]
    }

    /// The same where a task fills a GPU, the most first.
    fn single(&self, opened: &Opened) -> [u64; 3] {
        let [eager, least] = self.scratch(opened);
        let most = eager.min(least);
        let peak = most.min(round(opened.sizes.peak_bytes + (32 << 20)));
        [most, peak, peak.min(LEAST_SCRATCH)]
    }
}

/// Maximum number of calls per window: more make messages longer and gain nothing.
pub(crate) const MAX_CALLS: u64 = 4096;
const SLACK: u64 = 8 << 20;

impl Layout {
    /// Plans an arena in this room in which a window holds `wanted` calls if it can. `None` when not even one
    /// call fits.
    pub(crate) fn plan(opened: &Opened, wanted: u64, room: Room) -> Option<Self> {
        // Four repacked copies of each set of weights, as a policy makes them that does ahead all that
        // depends on weights only; where memory is short, two or one.
        let kept = [(10, true), (6, true), (4, true), (4, false)].into_iter();
        let sizes = kept.map(|kept| Sizes::of(opened, kept));
        let mut plans = sizes.map(|sizes| {
            let [eager, least] = sizes.scratch(opened);
            let choices = [(least.max(eager), wanted.min(16)), (least, 1), (least.min(eager), 1)];
            Self::of(&sizes, &choices, wanted, room)
        });
        // On a GPU the arena is as large as it is.
        plans.find_map(|plan| plan.filter(|plan| !plan.apart || plan.len() <= room.arena))
    }

    /// Plans an arena for single calls of a task that fills a GPU, in a room of [`Self::of_one_call`].
    pub(crate) fn plan_one_call(opened: &Opened, room: Room) -> Option<Self> {
        let sizes = Sizes::of(opened, (4, false));
        sizes.single(opened).into_iter().find_map(|scratch| {
            let plan = Self::of(&sizes, &[(scratch, 1)], 1, room);
            plan.filter(|plan| plan.len() <= room.arena)
        })
    }

    /// Rooms for one call on a GPU: bytes of the arena, and of the inputs beside it, with less and less for
    /// intermediates.
    pub(crate) fn of_one_call(opened: &Opened) -> Vec<(u64, u64)> {
        let sizes = Sizes::of(opened, (4, false));
        let room = |scratch| {
            let passing = sizes.state.max(sizes.inputs + sizes.per_call + scratch);
            // As in `of`, and a little more for what is rounded there: room for one call beside what is fixed, and
            // for what lies in the arena.
            let results = round(sizes.per_call + scratch + SLACK);
            let lies = sizes.weights + results.max(round(passing + SLACK));
            let arena = lies.max(sizes.fixed + scratch + sizes.per_call) + 3 * SLACK;
            (arena, round(sizes.inputs + SLACK))
        };
        sizes.single(opened).map(room).to_vec()
    }

    /// `choices`: bytes for intermediates, and how many calls a window must hold then.
    fn of(sizes: &Sizes, choices: &[(u64, u64)], wanted: u64, room: Room) -> Option<Self> {
        let &Sizes { weights, fixed, inputs, per_set, per_call, state, lasting } = sizes;
        let Room { arena: budget, apart } = room;
        let fits = |scratch: u64| {
            let left = budget.checked_sub(fixed + scratch)?;
            Some(match apart {
                None => left / (inputs + per_call),
                Some(zone) => {
                    (left / per_call.max(1)).min(zone.bytes.saturating_sub(SLACK) / inputs)
                }
            })
        };
        let enough = |scratch: u64, calls| fits(scratch).filter(|fit| *fit >= calls);
        let (scratch, fits) = choices
            .iter()
            .find_map(|&(scratch, calls)| Some((scratch, enough(scratch, calls)?)))?;
        let calls = wanted.min(fits).min(MAX_CALLS);
        if calls < 1 {
            return None;
        }
        let weights = Zone { offset: 0, bytes: weights };
        let room = round(calls * inputs + SLACK);
        let inside = match apart {
            Some(_) => Zone { offset: weights.end(), bytes: 0 },
            // The weights of both variants pass through where inputs or results lie later.
            None => Zone { offset: weights.end(), bytes: room.max(round(state + SLACK)) },
        };
        // What passes through where results lie later: weights, or the inputs of a first call and, behind
        // them, what it allocates.
        let beside = if lasting { 0 } else { per_call + scratch };
        let passing = apart.map_or(state, |_| state.max(inputs + beside));
        let bytes = round(calls * per_call + scratch + SLACK).max(round(passing + SLACK));
        let results = Zone { offset: inside.end(), bytes };
        let first = match apart {
            _ if lasting => weights,
            Some(_) => {
                let taken = round(inputs);
                Zone { offset: results.offset + taken, bytes: bytes - taken }
            }
            None => results,
        };
        let inputs = apart.map_or(inside, |zone| Zone { offset: zone.offset, bytes: room });
        let apart = apart.is_some();
        Some(Self { weights, first, inputs, apart, results, calls, per_set, per_call, scratch })
    }

    /// Where what a candidate is made of passes through before there is a window.
    pub(crate) fn passage(&self) -> Zone {
        if self.apart { self.results } else { self.inputs }
    }

    /// Bytes of the whole arena.
    pub(crate) fn len(&self) -> u64 {
        self.results.end()
    }

    /// A part of the results zone for `calls` calls, at a place drawn anew.
    pub(crate) fn window(&self, calls: u64, random: &mut StdRng) -> Zone {
        let bytes = round(calls * self.per_call + self.scratch).min(self.results.bytes);
        let slack = (self.results.bytes - bytes) / ALIGN;
        let shift = if slack == 0 { 0 } else { random.random_range(0..=slack) };
        Zone { offset: self.results.offset + shift * ALIGN, bytes }
    }

    /// Bytes of the inputs zone that so many calls are spread over.
    pub(crate) fn spread(&self, calls: u64) -> u64 {
        (calls * (self.per_set + 8 * ALIGN) + SLACK).min(self.inputs.bytes)
    }

    /// One slot of the inputs zone per call, in an order drawn anew, each shifted by a distance
    /// drawn anew.
    pub(crate) fn slots(&self, calls: u64, random: &mut StdRng) -> Vec<Zone> {
        // Memory that is new in each window is no more than it needs; else all there is.
        let room = if self.apart { self.spread(calls) } else { self.inputs.bytes };
        let size = room / calls.max(1) / ALIGN * ALIGN;
        let slack = size.saturating_sub(self.per_set) / ALIGN;
        let mut slots: Vec<Zone> = (0..calls)
            .map(|i| {
                let shift = random.random_range(0..=slack) * ALIGN;
                let offset = self.inputs.offset + i * size + shift;
                Zone { offset, bytes: size - shift }
            })
            .collect();
        slots.shuffle(random);
        slots
    }
}

/// Gives each tensor its place, one after the other from `at`; where the next may begin.
pub(crate) fn place_all(tensors: &mut [Place], mut at: u64) -> u64 {
    for tensor in tensors {
        tensor.offset = Some(at);
        at += padded(tensor.bytes);
    }
    at
}

/// Bytes of an output that is written whole, where the reference's may be expanded.
fn written(output: &Place) -> u64 {
    let element = Dtype::parts(&output.dtype).map_or(0, |(dtype, parts)| dtype.size() * parts);
    padded(output.bytes.max(output.shape.iter().product::<u64>() * element))
}

fn round(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 12) << 12
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wire::{Sizes, Value, Versions};
    use proptest::prelude::*;
    use rand::SeedableRng;
    use serde_json::json;

    fn value(sizes: &[u64]) -> Value {
        let place = |&bytes: &u64| Place {
            offset: Some(0),
            shape: vec![bytes / 4],
            strides: vec![1],
            dtype: "float32".to_owned(),
            bytes,
        };
        Value { tree: json!({"list": []}), tensors: sizes.iter().map(place).collect() }
    }

    fn room(arena: u64, apart: Option<Zone>) -> Room {
        Room { arena, apart }
    }

    fn opened(inputs: &[u64], outputs: &[u64]) -> Opened {
        Opened {
            sizes: Sizes {
                init: value(&[]),
                inputs: value(inputs),
                outputs: value(outputs),
                state: vec![],
                changed: vec![],
                changes: vec![],
                peak_bytes: 0,
            },
            aliases_input: false,
            computes: true,
            only_views: false,
            fixed_inputs: false,
            versions: Versions { torch: String::new(), python: String::new() },
            allocated_bytes: 0,
            forward_seconds: 0.0,
        }
    }

    proptest! {
        #[test]
        fn placed_tensors_never_overlap_and_fit(
            inputs in prop::collection::vec(1u64..100_000, 1..4),
            calls in 2u64..40,
            seed in any::<u64>(),
        ) {
            let opened = opened(&inputs, &[4096, 40]);
            let layout = Layout::plan(&opened, calls, room(1 << 30, None)).unwrap();
            prop_assert_eq!(layout.calls, calls);
            let mut random = StdRng::seed_from_u64(seed);
            let mut spans: Vec<(u64, u64)> = Vec::new();
            for slot in layout.slots(calls, &mut random) {
                let mut set = value(&inputs);
                prop_assert!(place_all(&mut set.tensors, slot.offset) <= slot.end());
                let span = |t: &Place| (t.offset.unwrap(), t.offset.unwrap() + t.bytes);
                spans.extend(set.tensors.iter().map(span));
            }
            spans.sort_unstable();
            prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0));
            prop_assert!(spans[0].0 >= layout.inputs.offset);
            prop_assert!(spans[spans.len() - 1].1 <= layout.inputs.end());
            let window = layout.window(calls, &mut random);
            prop_assert!(layout.results.contains(window.offset, window.bytes));
        }
    }

    #[test]
    fn scratch_covers_eagers_allocations_if_memory_allows() {
        let mut large = opened(&[4096], &[4096]);
        large.allocated_bytes = 1 << 30;
        let roomy = Layout::plan(&large, 8, room(4 << 30, None)).unwrap();
        assert!(roomy.scratch >= 3 << 29);
        let tight = Layout::plan(&large, 8, room(1 << 30, None)).unwrap();
        assert!(tight.scratch < 1 << 28 && tight.calls == 8);
    }

    #[test]
    fn large_weights_have_fewer_copies_where_memory_is_short() {
        let mut large = opened(&[4096], &[4096]);
        large.sizes.state = value(&[1 << 30]).tensors;
        let bytes = |gigabytes: u64| {
            Layout::plan(&large, 8, room(gigabytes << 30, None)).map(|l| l.weights.bytes)
        };
        assert!(bytes(8).is_some_and(|weights| weights > 6 << 30));
        assert!(bytes(6).is_some_and(|weights| weights > 4 << 30 && weights < 5 << 30));
        assert_eq!(bytes(4), None);
    }

    #[test]
    fn a_first_call_keeps_its_memory_if_memory_allows() {
        let mut task = opened(&[64 << 20], &[64 << 20]);
        task.sizes.peak_bytes = 192 << 20;
        let apart = |bytes| Some(Zone { offset: 64 << 30, bytes });
        for apart in [None, apart(8 << 30)] {
            let layout = Layout::plan(&task, 4, room(4 << 30, apart)).unwrap();
            assert_eq!(layout.first, layout.weights);
            assert!(layout.weights.bytes > 2 * task.sizes.peak_bytes);
            let tight = Layout::plan(&task, 4, room(800 << 20, apart)).unwrap();
            assert!(tight.results.contains(tight.first.offset, tight.first.bytes));
            assert!(tight.first.bytes >= tight.per_call + tight.scratch);
            assert!(tight.len() <= 800 << 20);
            // What passes through lies elsewhere.
            let passage = tight.passage();
            assert!(passage.bytes >= 64 << 20);
            assert!(!tight.apart || tight.first.offset >= passage.offset + (64 << 20));
        }
    }

    #[test]
    fn a_task_that_does_not_fit_is_refused() {
        assert_eq!(Layout::plan(&opened(&[1 << 30], &[1 << 30]), 4, room(1 << 30, None)), None);
    }

    proptest! {
        /// What `of_one_call` asks for is enough to plan in, and one less than it would not be.
        #[test]
        fn one_call_fits_in_the_room_it_asks_for(
            inputs in 1u64..20_000_000_000,
            outputs in 1u64..20_000_000_000,
            state in 1u64..4_000_000_000,
            (allocated, peak) in (0u64..40_000_000_000, 0u64..20_000_000_000),
        ) {
            let mut task = opened(&[inputs], &[outputs]);
            task.sizes.state = value(&[state]).tensors;
            (task.allocated_bytes, task.sizes.peak_bytes) = (allocated, peak);
            let mut before = u64::MAX;
            for (arena, beside) in Layout::of_one_call(&task) {
                prop_assert!(arena <= before, "the most first");
                before = arena;
                let zone = |bytes| Some(Zone { offset: 1 << 40, bytes });
                let plan = Layout::plan_one_call(&task, room(arena, zone(beside))).unwrap();
                prop_assert!(plan.calls == 1 && plan.len() <= arena);
                prop_assert!(plan.spread(1) <= plan.inputs.bytes && plan.inputs.bytes <= beside);
                prop_assert_eq!(Layout::plan_one_call(&task, room(arena, zone(inputs - 1))), None);
                prop_assert_eq!(Layout::plan_one_call(&task, room(outputs, zone(beside))), None);
            }
        }
    }

    #[test]
    fn placements_differ_from_call_to_call() {
        let layout = Layout::plan(&opened(&[4096], &[4096]), 8, room(1 << 30, None)).unwrap();
        let mut random = StdRng::seed_from_u64(1);
        let first = layout.slots(8, &mut random);
        assert_ne!(first, layout.slots(8, &mut random));
    }
}
