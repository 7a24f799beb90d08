//! Opens the session of a task: the oracle, what it learns of the task, and the plan of memory and windows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use warpwright_record::inputs::InputFamily;
use warpwright_task::Task;

use super::TaskSession;
use super::begun::Begun;
use crate::admission::degenerate;
use crate::admission::examination::near;
use crate::admission::objection::Objection;
use crate::check::families::Draw;
use crate::check::layout::Layout;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::Shared;
use crate::process::memory::{Memory, Room};
use crate::process::oracle::{LoadedOracle, Oracle};
use crate::timing::plan::Plan;

/// Purpose of a session.
#[derive(Clone, Copy)]
pub(super) enum Opening<'r> {
    /// To judge candidates: all that the task allows as inputs is found out.
    Judging,
    /// To look at the task itself, if a call takes about so many milliseconds.
    Examining(Option<&'r RangeInclusive<f64>>),
}

/// Opens a session for this purpose.
pub(super) fn open<'j>(
    opening: Opening<'_>,
    shared: Shared<'j>,
    task: &Task,
    begun: Begun,
    memory: Memory,
) -> Result<TaskSession<'j>, JudgeError> {
    let opened = open_within(opening, shared, task, begun, memory);
    let opened = opened.map_err(|e| shared.machine.explain(e));
    opened.map_err(|e| memory.explain(e))
}

fn open_within<'j>(
    opening: Opening<'_>,
    shared: Shared<'j>,
    task: &Task,
    begun: Begun,
    memory: Memory,
) -> Result<TaskSession<'j>, JudgeError> {
    let started = Instant::now();
    let Shared { machine, processes } = shared;
    let Begun { oracle, early, cost } = begun;
    let arena = |bytes| machine.arena(task, bytes);
    if let (true, Some(room)) = (oracle.may_be_large(memory), memory.least_room()) {
        // Opening takes more than what follows: several sets of inputs, and their results.
        processes.make_room(task, room)?;
    }
    let mut oracle = oracle.open(memory, arena, &machine.arbiter)?;
    let mut reasons = degenerate::at_opening(&oracle.opened);
    if let Opening::Judging = opening {
        degenerate::refuse(&task.name, &reasons, machine.config.degenerate)?;
    }
    let plan = machine.device.windows().with_windows_of(machine.config.window);
    let plan = plan.shared_among(task.sharing);
    let plan = match opening {
        Opening::Judging => plan,
        Opening::Examining(_) => plan.brief(),
    };
    let wanted = wanted_calls(machine, &oracle, &plan);
    let (room, layout) = plan_memory(task, &oracle, wanted, memory)?;
    if let Opening::Judging = opening {
        // Before the reference is run in float64: the memory of other tasks' candidates may be in its way.
        processes.make_room(task, room)?;
    }
    let learn = |oracle: &mut Oracle, others| match opening {
        Opening::Judging => oracle.learn(machine.config.seed, others, &machine.arbiter),
        Opening::Examining(wanted_ms) => learn_enough(oracle, machine, wanted_ms, others),
    };
    let anew = || {
        let settings = machine.settings();
        LoadedOracle::load(&processes.host, task, settings, &machine.arbiter)?.open(
            memory,
            arena,
            &machine.arbiter,
        )
    };
    let mut learnt = learn(&mut oracle, true);
    if matches!(learnt, Err(JudgeError::Infrastructure { .. })) {
        // It was killed, perhaps by nothing of the task's.
        drop(oracle);
        oracle = anew()?;
        learnt = learn(&mut oracle, true);
    }
    match learnt {
        Ok(()) => {}
        Err(JudgeError::Memory { .. }) if memory.is_all() => {
            oracle.with_less(&machine.arbiter)?;
            match learn(&mut oracle, true) {
                Err(JudgeError::Memory { .. }) if oracle.without_double() => {
                    learn(&mut oracle, true)?;
                }
                learnt => learnt?,
            }
        }
        Err(error @ JudgeError::Memory { .. }) => return Err(error),
        Err(error) => {
            // Trying inputs that a task does not know may cost the process its life: a bound
            // that is checked on a GPU takes the whole context.
            drop(oracle);
            oracle = anew()?;
            learn(&mut oracle, false)?;
            oracle.families.alone(format!("trying them failed: {error}"));
        }
    }
    // Inputs, places, orders and samples are secrets: not from a seed that a command line names.
    let mut random = StdRng::from_rng(&mut rand::rng());
    if let Opening::Judging = opening {
        let seed = Draw::fresh(InputFamily::Own, &mut random).seed;
        reasons.extend(oracle.look_for_degeneracy(seed, memory.is_all(), &machine.arbiter)?);
        degenerate::refuse(&task.name, &reasons, machine.config.degenerate)?;
    }
    Ok(TaskSession {
        machine,
        processes,
        task: task.clone(),
        memory,
        short: memory.is_short(&oracle.opened.sizes),
        oracle,
        degenerate: reasons,
        room,
        layout,
        plan,
        random,
        early,
        baselines: None,
        cost: cost + started.elapsed(),
        usual: BTreeMap::new(),
        recorded_weights: Vec::new(),
    })
}

/// Memory of the task's candidates, and what lies where in it.
fn plan_memory(
    task: &Task,
    oracle: &Oracle,
    wanted: u64,
    memory: Memory,
) -> Result<(Room, Layout), JudgeError> {
    let (opened, usual) = (&oracle.opened, memory.room());
    if let Some(layout) = Layout::plan(opened, wanted, usual) {
        return Ok((usual, layout));
    }
    let large = memory.large_room(&opened.sizes, &Layout::of_one_call(opened));
    let large = large.and_then(|room| Some((room, Layout::plan_one_call(opened, room)?)));
    let least = Layout::of_one_call(opened).last().map_or(0, |(arena, inputs)| arena + inputs);
    large.ok_or_else(|| JudgeError::Memory {
        task: task.name.clone(),
        message: format!(
            "inputs and outputs of {} MiB a call do not fit the {} MiB that candidates may use here",
            (opened.sizes.inputs.bytes() + opened.sizes.outputs.bytes()) >> 20,
            usual.arena >> 20
        ),
        wanted: memory.is_all().then(|| memory.with_room_for(least)),
    })
}

/// Has the oracle learn what examining needs: nothing where a call takes far from what is wanted, and of other
/// inputs than the task's own only where these do not tell lower precision.
fn learn_enough(
    oracle: &mut Oracle,
    machine: &Machine,
    wanted_ms: Option<&RangeInclusive<f64>>,
    others: bool,
) -> Result<(), JudgeError> {
    let nothing = degenerate::at_opening(&oracle.opened).iter().any(Objection::leaves_nothing);
    if nothing
        || !near(wanted_ms, 1e3 * oracle.opened.forward_seconds, machine.device.examination_slack())
    {
        return Ok(());
    }
    oracle.learn(machine.config.seed, false, &machine.arbiter)?;
    if others && !oracle.families.tell_lower_precision() {
        oracle.learn(machine.config.seed, true, &machine.arbiter)?;
    }
    Ok(())
}

/// Calls a window should be able to hold: enough for its planned length at the speed of memory, and
/// enough that the data of a window exceeds twice the last-level cache.
fn wanted_calls(machine: &Machine, oracle: &Oracle, plan: &Plan) -> u64 {
    let opened = &oracle.opened;
    let bytes = (opened.sizes.inputs.bytes() + opened.sizes.outputs.bytes()).max(1);
    // A first guess of the least time: a few microseconds to launch, and memory's share.
    let least = 4e-6 + bytes as f64 / machine.device.guessed_bandwidth();
    let for_time = plan.longer.as_secs_f64() / least;
    let for_cache = 2.0 * machine.device.facts().swept_bytes() as f64 / bytes as f64;
    for_time.max(for_cache).ceil().max(1.0) as u64
}
