//! A part of one call's inputs that is there only while the call runs.
//!
//! The inputs of a window lie in one region before its first call begins, and a kernel can search it. One call of
//! each window therefore has a part of another call's inputs in place of its own. The replayer writes its own there
//! right before it, and the other back right after it. A kernel that computes this call earlier or later computes
//! something else. The call is among those that are compared.

use rand::RngExt;
use rand::rngs::StdRng;
use warpwright_replay::wire;

use crate::device::arena::{Arena, ArenaError};
use crate::process::wire::{Place, Value};

/// Most bytes that are exchanged: enough to change a result, and so few that the copies take little time, which a
/// kernel could notice by a clock.
const MOST_BYTES: u64 = 1 << 10;
/// Tensors begin at multiples of more than that, and so does what is exchanged of them.
const STEP: u64 = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) call: usize,
    at: u64,
    own: Vec<u8>,
    other: Vec<u8>,
}

/// What of which call is exchanged for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    call: usize,
    /// Offset of the call's own part.
    at: u64,
    /// Offset of the part that lies there meanwhile.
    from: u64,
    bytes: u64,
}

impl Choice {
    /// A part of a tensor of any call, and the same part of another call's; of the tensor's own bytes if there is
    /// no other call. `order` has the set of each call. `None` if no input has bytes.
    fn draw(sets: &[Value], order: &[usize], random: &mut StdRng) -> Option<Self> {
        let call = random.random_range(..order.len().max(1));
        let own = sets.get(*order.get(call)?)?;
        let full = |(_, place): &(usize, &Place)| place.bytes > 0 && place.offset.is_some();
        let tensors: Vec<(usize, &Place)> = own.tensors.iter().enumerate().filter(full).collect();
        let &(tensor, place) = tensors.get(random.random_range(..tensors.len().max(1)))?;
        let bytes = place.bytes.min(MOST_BYTES);
        let shift = random.random_range(0..=(place.bytes - bytes) / STEP) * STEP;
        let mut others = || {
            let away = random.random_range(1..order.len().max(2));
            let other = sets.get(*order.get((call + away) % order.len())?)?.tensors.get(tensor)?;
            Some(other.offset? + shift).filter(|_| other.bytes == place.bytes)
        };
        let at = place.offset? + shift;
        Some(Self { call, at, from: others().unwrap_or(at), bytes })
    }
}

impl Exchanged {
    /// Chooses a call of the window, and puts another call's bytes where some of its own belong.
    pub(crate) fn make(
        arena: &Arena,
        (sets, order): (&[Value], &[usize]),
        random: &mut StdRng,
    ) -> Result<Option<Self>, ArenaError> {
        let Some(Choice { call, at, from, bytes }) = Choice::draw(sets, order, random) else {
            return Ok(None);
        };
        let read = |at| {
            let mut content = vec![0; bytes as usize];
            arena.read(at, &mut content).map(|()| content)
        };
        let (own, mut other) = (read(at)?, read(from)?);
        if at == from {
            // A call that is alone: its own bytes in another order.
            let half = other.len() / 2 / 16 * 16;
            other.rotate_left(half);
        }
        arena.write(at, &other)?;
        Ok(Some(Self { call, at, own, other }))
    }

    /// Brings the call's own bytes back: whoever looks at the inputs after the window finds them as they were drawn.
    pub(crate) fn undo(&self, arena: &Arena) -> Result<(), ArenaError> {
        arena.write(self.at, &self.own)
    }

    /// The request that makes the replayer exchange these bytes around the call.
    pub(crate) fn request(&self) -> wire::Request {
        wire::Request::Exchange(wire::Exchange {
            call: self.call as u32,
            at: self.at,
            own: self.own.clone(),
            other: self.other.clone(),
        })
    }

    /// The same for a window without calls, which changes nothing and costs as much.
    pub(crate) fn empty(&self) -> wire::Request {
        wire::Request::Exchange(wire::Exchange {
            call: 0,
            at: self.at,
            own: self.own.clone(),
            other: self.own.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use serde_json::json;

    use super::*;
    use crate::device::arena::HostArena;

    fn set(offsets: &[(u64, u64)]) -> Value {
        let place = |&(offset, bytes): &(u64, u64)| Place {
            offset: Some(offset),
            shape: vec![bytes],
            strides: vec![1],
            dtype: "uint8".to_owned(),
            bytes,
        };
        Value { tree: json!({"list": []}), tensors: offsets.iter().map(place).collect() }
    }

    #[test]
    fn every_call_and_tensor_is_exchanged_sometimes() {
        let sets = [0u64, 1, 2].map(|i| set(&[(i << 20, 100), ((i << 20) + 4096, 100_000)]));
        let order = [2, 0, 1];
        let mut random = StdRng::seed_from_u64(1);
        let (mut calls, mut places) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..400 {
            let Choice { call, at, from, bytes } =
                Choice::draw(&sets, &order, &mut random).unwrap();
            let (own, other) = (at >> 20, from >> 20);
            assert_eq!(own, order[call] as u64);
            assert!(own != other && at & 0xf_ffff == from & 0xf_ffff, "{at} {from}");
            let within = at & 0xf_ffff;
            let fits = within + bytes <= 100 || within >= 4096 && within + bytes <= 104_096;
            assert!(
                fits && bytes == if within < 4096 { 100 } else { MOST_BYTES },
                "{within} {bytes}"
            );
            calls.insert(call);
            places.insert(within);
        }
        assert_eq!(calls.len(), 3);
        assert!(places.len() > 100, "{}", places.len());
    }

    #[test]
    fn nothing_is_exchanged_without_inputs() {
        let mut random = StdRng::seed_from_u64(1);
        assert_eq!(Choice::draw(&[], &[], &mut random), None);
        assert_eq!(Choice::draw(&[set(&[])], &[0], &mut random), None);
        assert_eq!(Choice::draw(&[set(&[(0, 0)])], &[0], &mut random), None);
    }

    #[test]
    fn exchanged_inputs_are_found_as_they_were() {
        let arena = Arena::Host(HostArena::create(1 << 16).unwrap());
        let content: Vec<u8> = (0..4096u32).map(|i| ((i * i) >> 7) as u8).collect();
        let other: Vec<u8> = content.iter().map(|byte| byte.wrapping_mul(3)).collect();
        let read = |at: u64| {
            let mut bytes = vec![0; 4096];
            arena.read(at, &mut bytes).unwrap();
            bytes
        };
        let mut random = StdRng::seed_from_u64(1);
        for sets in [vec![set(&[(0, 4096)])], vec![set(&[(0, 4096)]), set(&[(8192, 4096)])]] {
            arena.write(0, &content).unwrap();
            arena.write(8192, &other).unwrap();
            let order: Vec<usize> = (0..sets.len()).collect();
            let made = Exchanged::make(&arena, (&sets, &order), &mut random).unwrap().unwrap();
            let changed = read(0) != content || read(8192) != other;
            assert!(changed, "positive control");
            made.undo(&arena).unwrap();
            assert!(read(0) == content && read(8192) == other);
        }
    }

    /// Plays a window as the replayer does, for a candidate whose results are sums of bytes.
    #[test]
    fn calls_computed_early_or_late_are_wrong() {
        let arena = Arena::Host(HostArena::create(1 << 16).unwrap());
        let sets = [0u64, 8192, 16384].map(|at| set(&[(at, 4096)]));
        let mut random = StdRng::seed_from_u64(3);
        for set in &sets {
            let content: Vec<u8> = (0..4096).map(|_| random.random()).collect();
            arena.write(set.tensors[0].offset.unwrap(), &content).unwrap();
        }
        let order = [2, 0, 1];
        let sum = |call: usize| -> u64 {
            let mut bytes = vec![0; 4096];
            arena.read(sets[order[call]].tensors[0].offset.unwrap(), &mut bytes).unwrap();
            bytes.into_iter().map(u64::from).sum()
        };
        let all = || (0..3).map(sum).collect::<Vec<u64>>();
        let truth = all();
        for _ in 0..20 {
            let made = Exchanged::make(&arena, (&sets, &order), &mut random).unwrap().unwrap();
            let early = all();
            let honest: Vec<u64> = (0..3)
                .map(|call| {
                    let write = |bytes: &[u8]| arena.write(made.at, bytes).unwrap();
                    let here = call == made.call;
                    here.then(|| write(&made.own));
                    let result = sum(call);
                    here.then(|| write(&made.other));
                    result
                })
                .collect();
            let late = all();
            made.undo(&arena).unwrap();
            assert_eq!(honest, truth);
            for call in 0..3 {
                let exchanged = call == made.call;
                assert_eq!([early[call] != truth[call], late[call] != truth[call]], [exchanged; 2]);
            }
        }
    }
}
