//! Where the blocks of a plan lie in a package: in tensors of the caller, in what lasts, or in a call's workspace.

use std::collections::BTreeSet;

use serde::Serialize;
use warpwright_plan::{LaunchPlan, Output, Role};

use crate::error::ExportError;

/// Blocks begin at multiples of this many bytes, as the judge placed them.
const ALIGN: u64 = 512;

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the input of this position.
    Input(u32),
    /// In the entry of this position in the `state_dict`.
    Weight(u32),
    /// At so many bytes of what lasts from call to call.
    Lasting(u64),
    /// In the memory of this result.
    Slot(u32),
    /// At so many bytes of the call's workspace.
    Workspace(u64),
}

/// Memory of one or several results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Slot {
    pub(crate) bytes: u64,
}

/// Where a result lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Home {
    /// In the memory of results of this number.
    Slot(u32),
    /// In an input, which is returned.
    Input(u32),
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ResultForm {
    pub(crate) home: Home,
    /// Bytes from the start of its home.
    pub(crate) offset: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: String,
}

/// A table that is written into what lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    /// Index into the plan's constants.
    pub(crate) constant: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The places of all blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) results: Vec<ResultForm>,
    pub(crate) tables: Vec<Table>,
    pub(crate) lasting_bytes: u64,
    pub(crate) workspace_bytes: u64,
    /// Whether a call may change what lasts.
    pub(crate) keeps: bool,
}

impl Layout {
    pub(crate) fn of(plan: &LaunchPlan) -> Result<Self, ExportError> {
        let made: BTreeSet<u32> =
            plan.outputs.tensors.iter().map(|output| output.at.block).collect();
        let mut layout = Self {
            places: Vec::new(),
            slots: Vec::new(),
            results: Vec::new(),
            tables: Vec::new(),
            lasting_bytes: 0,
            workspace_bytes: 0,
            keeps: false,
        };
        let mut intermediates = Intermediates::default();
        // On several streams, one may still read what the host has freed.
        let gives_way = plan.forward.iter().all(|node| node.stream == 0);
        for (index, block) in (0u32..).zip(&plan.blocks) {
            let place = match block.role {
                Role::Input(input) => Place::Input(input),
                Role::Weight(weight) => Place::Weight(weight),
                Role::Init(_) => return Err(ExportError::InitTensors),
                Role::Constant(constant) => {
                    let offset = layout.last(block.bytes)?;
                    layout.tables.push(Table { constant, offset, bytes: block.bytes });
                    Place::Lasting(offset)
                }
                Role::Kept => {
                    layout.keeps = true;
                    Place::Lasting(layout.last(block.bytes)?)
                }
                Role::Call { .. } if made.contains(&index) => {
                    layout.slots.push(Slot { bytes: block.bytes });
                    Place::Slot(layout.slots.len() as u32 - 1)
                }
                Role::Call { born, freed } => {
                    let until = freed.filter(|_| gives_way).unwrap_or(u32::MAX);
                    Place::Workspace(intermediates.add(padded(block.bytes)?, born, until)?)
                }
            };
            layout.places.push(place);
        }
        layout.workspace_bytes = intermediates.bytes;
        let results = plan.outputs.tensors.iter().map(|output| layout.result(output));
        layout.results = results.collect::<Result<_, _>>()?;
        Ok(layout)
    }

    fn last(&mut self, bytes: u64) -> Result<u64, ExportError> {
        let offset = self.lasting_bytes;
        self.lasting_bytes = offset.checked_add(padded(bytes)?).ok_or(TOO_LARGE)?;
        Ok(offset)
    }

    fn result(&self, output: &Output) -> Result<ResultForm, ExportError> {
        let home = match self.places.get(output.at.block as usize) {
            Some(Place::Slot(slot)) => Home::Slot(*slot),
            Some(Place::Input(input)) => Home::Input(*input),
            _ => {
                return Err(ExportError::Contradiction {
                    what: "a result is no memory of the call",
                });
            }
        };
        let Output { at, shape, strides, dtype } = output;
        let (shape, strides, dtype) = (shape.clone(), strides.clone(), dtype.clone());
        Ok(ResultForm { home, offset: at.offset, shape, strides, dtype })
    }
}

const TOO_LARGE: ExportError = ExportError::Contradiction { what: "its memory is too large" };

fn padded(bytes: u64) -> Result<u64, ExportError> {
    bytes.max(1).checked_next_multiple_of(ALIGN).ok_or(TOO_LARGE)
}

/// Memory of a call that gives way to other memory once it is freed.
#[derive(Default)]
struct Intermediates {
    /// Offset, length, and the operations from and until which it is in use.
    placed: Vec<(u64, u64, u32, u32)>,
    bytes: u64,
}

impl Intermediates {
    /// The lowest place that is free for all of that time.
    fn add(&mut self, bytes: u64, born: u32, until: u32) -> Result<u64, ExportError> {
        let mut meanwhile: Vec<(u64, u64)> = self
            .placed
            .iter()
            .filter(|(_, _, from, to)| *from < until && born < *to)
            .map(|(at, bytes, _, _)| (*at, *bytes))
            .collect();
        meanwhile.sort_unstable();
        let mut offset = 0u64;
        for (at, taken) in meanwhile {
            if at >= offset.checked_add(bytes).ok_or(TOO_LARGE)? {
                break;
            }
            offset = offset.max(at.checked_add(taken).ok_or(TOO_LARGE)?);
        }
        self.bytes = self.bytes.max(offset.checked_add(bytes).ok_or(TOO_LARGE)?);
        self.placed.push((offset, bytes, born, until));
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_gives_way_and_live_memory_does_not() {
        let mut memory = Intermediates::default();
        let mut add = |bytes, born, until| memory.add(bytes, born, until).unwrap();
        assert_eq!(add(1024, 0, 2), 0);
        assert_eq!(add(512, 1, u32::MAX), 1024, "the first is alive");
        assert_eq!(add(1024, 2, u32::MAX), 0, "the first was freed");
        assert_eq!(add(512, 3, u32::MAX), 1536);
        assert_eq!(memory.bytes, 2048);
        assert!(memory.add(u64::MAX - 511, 0, 1).is_err());
    }
}
