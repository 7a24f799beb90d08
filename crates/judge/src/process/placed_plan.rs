//! A plan and the places of its blocks in a candidate's memory.

use std::sync::Arc;

use warpwright_plan::Role as Block;

use crate::check::named::Results;
use crate::check::placement::Placement;
use crate::device::arena::{Arena, ArenaError, Move, Poison, Zone};
use crate::process::candidate::WindowState;
use crate::process::failure::Trouble;
use crate::process::oracle::Oracle;
use crate::process::replayer::PlanOf;
use crate::process::wire::{Place, Value, padded};

/// A plan and where its blocks lie.
pub(super) struct Placed {
    pub(super) of: Arc<PlanOf>,
    pub(super) placement: Placement,
    /// What a call returns, without places.
    pub(super) form: Value,
}

impl Placed {
    /// The parts of the memory that last from call to call.
    pub(super) fn lasting(&self) -> impl Iterator<Item = Zone> {
        let blocks = &self.of.plan.blocks;
        let lasting = self.placement.lasting.iter();
        lasting.map(|&(index, offset)| {
            let bytes = blocks.get(index).map_or(0, |block| block.bytes);
            Zone { offset, bytes: padded(bytes) }
        })
    }

    /// Overwrites what only the candidate's own operations fill.
    pub(super) fn forget_kept(&self, arena: &Arena) -> Result<(), ArenaError> {
        let blocks = &self.of.plan.blocks;
        for (&(index, _), zone) in self.placement.lasting.iter().zip(self.lasting()) {
            if blocks.get(index).is_some_and(|block| block.role == Block::Kept) {
                arena.poison(zone.offset, zone.bytes, Poison::NAN)?;
            }
        }
        Ok(())
    }
}

/// Copies tensors of the oracle's memory to the blocks for which `wanted` names one.
pub(super) fn bring<'p>(
    state: &WindowState,
    oracle: &Oracle,
    plan: &Placed,
    wanted: impl Fn(Block) -> Option<&'p Place>,
) -> Result<(), Trouble> {
    let mut moves = Vec::new();
    for &(index, to) in &plan.placement.lasting {
        let Some(block) = plan.of.plan.blocks.get(index) else { continue };
        if let Some(place) = wanted(block.role)
            && let Some(from) = place.offset
        {
            moves.push(Move { to, from, bytes: place.bytes.min(block.bytes) });
        }
    }
    Ok(state.arena.copy_all(&oracle.arena, &moves)?)
}

/// Where the results of a window lie, as the judge placed them.
pub(super) fn results(plan: &Placed, at: &[u64], calls: usize) -> Option<Results> {
    let own = plan.placement.own();
    let mut addresses = Vec::with_capacity(calls * plan.form.tensors.len());
    let outputs: Vec<(usize, u64)> = plan
        .of
        .plan
        .outputs
        .tensors
        .iter()
        .map(|output| {
            let position = Placement::position(&plan.of.plan, output.at.block)?;
            Some((position, output.at.offset))
        })
        .collect::<Option<_>>()?;
    for call in 0..calls {
        for (position, offset) in &outputs {
            addresses.push(at.get(call * own + position)? + offset);
        }
    }
    Some(Results::placed(plan.form.clone(), calls, addresses))
}
