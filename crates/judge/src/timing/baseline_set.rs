//! Prepares the baselines of a task: compiles them, leaves out wrong ones, stages inputs.

use rand::RngExt;
use rand::rngs::StdRng;
use warpwright_task::Task;

use crate::check::layout::{Layout, MAX_CALLS};
use crate::check::tolerance::Tolerance;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::{Processes, furnish};
use crate::process::baseline::{BaselineProcess, Tuned};
use crate::process::memory::Memory;
use crate::process::wire::Opened;
use crate::timing::baseline::Baseline;
use crate::timing::measure::Ready;
use crate::timing::plan::Plan;
use crate::timing::shared_rounds::SharedRounds;
use crate::timing::windows;

/// The prepared baselines of one task, in their process.
pub(crate) struct Baselines {
    pub(crate) process: BaselineProcess,
    pub(crate) ready: Vec<Ready>,
    /// Number of input sets staged in the process.
    pub(crate) staged: usize,
    /// Windows that the next candidate may use.
    pub(crate) shared: SharedRounds,
    /// Why some baselines are missing, one sentence each.
    pub(crate) caveats: Vec<String>,
}

/// The task, judge and plan that the baselines are prepared for.
pub(crate) struct Terms<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) processes: &'a Processes,
    pub(crate) task: &'a Task,
    pub(crate) opened: &'a Opened,
    /// The reference's weights.
    pub(crate) weights: &'static str,
    pub(crate) memory: Memory,
    pub(crate) layout: Layout,
    pub(crate) plan: Plan,
}

/// How far a baseline's results may be from eager's.
pub(crate) struct Right {
    /// Of the inputs.
    pub(crate) seed: u64,
    /// Per output, the tolerance and the largest magnitude.
    pub(crate) allowed: Vec<(Tolerance, f64)>,
}

impl Right {
    /// Whether results so far from eager's are of another computation: beyond what honest programs, which
    /// compilers are, differ by.
    fn is_wrong(&self, apart: &[Option<f64>]) -> bool {
        let far = |(error, (tolerance, largest)): (&Option<f64>, &(Tolerance, f64))| {
            let allowed = (tolerance.atol + tolerance.rtol * largest).max(FAR * largest);
            error.is_none_or(|error| error > WRONG * allowed)
        };
        apart.len() != self.allowed.len() || apart.iter().zip(&self.allowed).any(far)
    }
}

/// How many times what a candidate is allowed a baseline may be off.
const WRONG: f64 = 4.0;
/// What it may be off at the least, relative to an output's largest magnitude: one that is only less exact
/// is still to be beaten.
const FAR: f64 = 1e-3;

/// Contents of the baselines' windows.
struct Windows {
    /// Sets of inputs, which calls take in turn.
    staged: usize,
    /// Of how many calls the results stay alive; all, if nothing is said.
    keep: Option<usize>,
    /// Maximum number of calls.
    most: u64,
}

impl Terms<'_> {
    fn windows(&self) -> Windows {
        let Self { machine, opened, memory, layout, .. } = self;
        // Inputs and the results of a window each have their share of the memory.
        let share = memory.staged();
        let swept = machine.device.facts().swept_bytes();
        // One set alone would be found in a cache again, unless it is larger than any.
        let least = if opened.sizes.inputs.bytes() > 16 * swept { 1 } else { 2 };
        let fits = |bytes: u64| (share / bytes.max(1)).max(least);
        let staged = layout.calls.min(64).min(fits(opened.sizes.inputs.bytes())) as usize;
        // On a GPU results give way to later ones once they fill its cache twice: windows must be
        // long whatever the memory. On the cpu device the arena holds those of a window.
        let outputs = opened.sizes.outputs.bytes();
        if machine.device.windows_reuse_results() {
            let keep = 1 + 2 * swept / outputs.max(1);
            return Windows { staged, keep: Some(keep.min(MAX_CALLS) as usize), most: MAX_CALLS };
        }
        Windows { staged, keep: None, most: layout.calls.min(fits(outputs)) }
    }

    /// Bytes that the process allocates for a window on the cpu device, and some to spare.
    fn arena_bytes(&self) -> u64 {
        let Windows { staged, most, .. } = self.windows();
        let Opened { sizes, .. } = self.opened;
        let (inputs, outputs) = (sizes.inputs.padded_bytes(), sizes.outputs.padded_bytes());
        let state: u64 = sizes.state.iter().map(|p| p.bytes).sum();
        // While it warms up, another set of inputs is alive.
        (staged as u64 + 1) * inputs + most * outputs + 2 * (sizes.peak_bytes + state) + (64 << 20)
    }
}

impl Baselines {
    /// Starts the process unless there is one, compiles, stages inputs, and chooses each baseline's
    /// window. What was compiled and is not `right` is left out, with a caveat.
    pub(crate) fn prepare(
        terms: &Terms<'_>,
        mut early: Option<BaselineProcess>,
        right: Option<&Right>,
        random: &mut StdRng,
    ) -> Result<Self, JudgeError> {
        let &Terms { machine, processes, task, opened, weights, memory, .. } = terms;
        processes.calibrate(machine, false)?;
        let (mut wanted, mut caveats) = (machine.wanted(), Vec::new());
        let (mut process, mut had) = loop {
            let mut process = match early.take() {
                Some(mut process) => {
                    furnish(machine, &mut process, terms.arena_bytes())?;
                    process
                }
                None => processes.baseline_process(machine, terms.arena_bytes())?,
            };
            // On the cpu device loading and compiling would disturb what is timed; a GPU it asks for
            // itself.
            let shared = machine.device.share_for_host_work(&machine.arbiter, Purpose::Baselines);
            let bound = memory.shares(Some(&opened.sizes)).map(|shares| shares.baseline);
            let settings = machine.settings();
            process.open(task, settings, (weights, bound), &machine.arbiter)?;
            let compiled = compile(terms, &mut process, &wanted, &mut caveats);
            drop(shared);
            match compiled {
                Ok(had) => break (process, had),
                // Graphs cannot hold every reference, e.g. none that keeps a result for its next
                // call, and leave behind what the others would stumble over.
                Err((which, JudgeError::Reference { message, .. })) if which.is_spare() => {
                    let line = message.lines().next().unwrap_or_default();
                    caveats.push(format!(
                        "baseline {} cannot run the reference: {line}",
                        which.name()
                    ));
                    wanted.retain(|wanted| *wanted != which);
                }
                Err((_, error)) => return Err(error),
            }
        };
        if let Some(right) = right {
            leave_out(terms, &mut process, right, &mut had, &mut caveats)?;
        }
        Self::stage(terms, process, (had, caveats), random)
    }

    /// Stages inputs for what a process has compiled, and chooses each one's window.
    pub(crate) fn stage(
        terms: &Terms<'_>,
        mut process: BaselineProcess,
        (mut had, mut caveats): (Vec<Baseline>, Vec<String>),
        random: &mut StdRng,
    ) -> Result<Self, JudgeError> {
        let &Terms { machine, task, memory, plan, .. } = terms;
        let name = &task.name;
        let _alone = machine.arbiter.alone(Purpose::Staging);
        process.pin(name, &machine.cores)?;
        let Windows { staged, keep, most } = terms.windows();
        let seeds: Vec<u64> = (0..staged).map(|_| random.random_range(1..1 << 62)).collect();
        let warm = |process: &mut BaselineProcess, had: &[Baseline]| {
            process.stage(name, &seeds, keep)?;
            let ready = |&which| windows::ready(process, name, which, &plan, staged, most);
            had.iter().map(ready).collect::<Result<Vec<Ready>, JudgeError>>()
        };
        let ready = loop {
            match (warm(&mut process, &had), had.pop_if(|which| which.is_spare())) {
                (Err(JudgeError::Memory { .. }), Some(which)) if memory.is_all() => {
                    do_without(&mut process, name, which, &mut caveats)?;
                }
                (ready, _) => break ready?,
            }
        };
        Ok(Self { process, ready, staged, shared: SharedRounds::default(), caveats })
    }

    /// Forgets the last of those that a task does without which fills the memory, and stages the others
    /// anew; as it was where there is none.
    pub(crate) fn without_spare(
        self,
        terms: &Terms<'_>,
        random: &mut StdRng,
    ) -> Result<(Self, bool), JudgeError> {
        let mut had: Vec<Baseline> = self.ready.iter().map(|ready| ready.which).collect();
        let Some(which) = had.pop_if(|which| which.is_spare()) else { return Ok((self, false)) };
        let Self { mut process, mut caveats, .. } = self;
        do_without(&mut process, &terms.task.name, which, &mut caveats)?;
        Ok((Self::stage(terms, process, (had, caveats), random)?, true))
    }
}

/// Forgets baselines that compute something else than eager does: who is faster than these has shown
/// nothing, and who is slower may be right.
fn leave_out(
    terms: &Terms<'_>,
    process: &mut BaselineProcess,
    right: &Right,
    had: &mut Vec<Baseline>,
    caveats: &mut Vec<String>,
) -> Result<(), JudgeError> {
    let name = &terms.task.name;
    if had.iter().all(|which| *which == Baseline::Eager) {
        return Ok(());
    }
    let shared = terms.machine.arbiter.share(Purpose::Reference);
    let agreement = match process.agree(name, right.seed) {
        Err(JudgeError::Memory { .. }) if terms.memory.is_all() => {
            caveats.push(
                "compiled baselines were not compared with eager: too little device memory"
                    .to_owned(),
            );
            return Ok(());
        }
        agreement => agreement?,
    };
    drop(shared);
    for which in had.clone() {
        let apart = agreement.apart.get(which.name());
        if apart.is_some_and(|apart| right.is_wrong(apart)) {
            process.give_up(name, which)?;
            had.retain(|had| *had != which);
            caveats.push(format!(
                "baseline {} is left out: its results differ from eager",
                which.name()
            ));
        }
    }
    if let [Baseline::Eager] = had[..] {
        caveats.push("eager is the only baseline left".to_owned());
    }
    Ok(())
}

/// Forgets a baseline that does not fit.
fn do_without(
    process: &mut BaselineProcess,
    task: &str,
    which: Baseline,
    caveats: &mut Vec<String>,
) -> Result<(), JudgeError> {
    process.give_up(task, which)?;
    caveats.push(format!("baseline {} does not fit the device memory", which.name()));
    Ok(())
}

/// Compiles what is wanted; what was had, or which one failed. Of those that keep buffers of their own,
/// a task that fills the memory does without; the others must be had.
fn compile(
    terms: &Terms<'_>,
    process: &mut BaselineProcess,
    wanted: &[Baseline],
    caveats: &mut Vec<String>,
) -> Result<Vec<Baseline>, (Baseline, JudgeError)> {
    let machine = terms.machine;
    let (name, seed) = (&terms.task.name, machine.config.seed);
    let tuned = if terms.memory.examines() { Tuned::Beside } else { Tuned::Alone };
    let mut had = Vec::new();
    for &which in wanted {
        match process.compile(name, (which, seed, tuned), &machine.arbiter) {
            Ok(()) => had.push(which),
            Err(JudgeError::Memory { .. }) if which.is_spare() && terms.memory.is_all() => {
                do_without(process, name, which, caveats).map_err(|error| (which, error))?;
            }
            Err(error) => return Err((which, error)),
        }
    }
    Ok(had)
}
