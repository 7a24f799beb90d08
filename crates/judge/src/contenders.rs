//! What a task's candidates are timed against, made ready.

use rand::RngExt;
use rand::rngs::StdRng;
use warpwright_task::Task;

use crate::baseline::{Baseline, BaselineProcess};
use crate::error::JudgeError;
use crate::judge::LocalJudge;
use crate::layout::{Layout, MAX_CALLS};
use crate::measure::{self, Plan, Ready};
use crate::memory::Memory;
use crate::wire::Opened;

/// What a task's candidates are timed against, in its process.
pub(crate) struct Baselines {
    pub(crate) process: BaselineProcess,
    pub(crate) ready: Vec<Ready>,
    /// Sets of inputs it holds.
    pub(crate) staged: usize,
    /// Why some are missing.
    pub(crate) caveats: Vec<String>,
}

/// What they are made for.
pub(crate) struct Terms<'a> {
    pub(crate) judge: &'a LocalJudge,
    pub(crate) task: &'a Task,
    pub(crate) opened: &'a Opened,
    pub(crate) memory: Memory,
    pub(crate) layout: Layout,
    pub(crate) plan: Plan,
}

impl Baselines {
    /// Starts the process unless there is one, compiles, stages inputs, and chooses each baseline's
    /// window.
    pub(crate) fn prepare(
        terms: &Terms<'_>,
        process: Option<BaselineProcess>,
        random: &mut StdRng,
    ) -> Result<Self, JudgeError> {
        let &Terms { judge, task, opened, memory, .. } = terms;
        judge.calibrate(false)?;
        let mut process = match process {
            Some(process) => process,
            None => judge.baseline_process()?,
        };
        let mut caveats = Vec::new();
        // On the cpu device loading it would disturb what is timed; a GPU it asks for itself.
        let shared = (!judge.config.device.is_cuda()).then(|| judge.gate.share());
        let bound = memory.shares(Some(&opened.sizes)).map(|shares| shares.baseline);
        let settings = (judge.config.profile, judge.config.seed);
        process.open(task, settings, bound, &judge.gate)?;
        drop(shared);
        let had = compile(terms, &mut process, &mut caveats)?;
        Self::stage(terms, process, (had, caveats), random)
    }

    /// Stages inputs for what a process has compiled, and chooses each one's window.
    pub(crate) fn stage(
        terms: &Terms<'_>,
        mut process: BaselineProcess,
        (mut had, mut caveats): (Vec<Baseline>, Vec<String>),
        random: &mut StdRng,
    ) -> Result<Self, JudgeError> {
        let &Terms { judge, task, opened, memory, layout, plan } = terms;
        let name = &task.name;
        let _alone = judge.gate.alone();
        process.pin(name, &judge.cores)?;
        // Inputs and the results of a window each have their share of the memory.
        let share = memory.staged();
        // One set alone would be found in a cache again, unless it is larger than any.
        let least = if opened.sizes.inputs.bytes() > 16 * judge.facts.cache_bytes { 1 } else { 2 };
        let fits = |bytes: u64| (share / bytes.max(1)).max(least);
        let staged = layout.calls.min(64).min(fits(opened.sizes.inputs.bytes())) as usize;
        let seeds: Vec<u64> = (0..staged).map(|_| random.random_range(1..1 << 62)).collect();
        // On a GPU results give way to later ones once they fill its cache twice: windows must be
        // long whatever the memory. On the cpu device the arena holds those of a window.
        let outputs = opened.sizes.outputs.bytes();
        let (keep, most) = if judge.config.device.is_cuda() {
            let keep = 1 + 2 * judge.facts.cache_bytes / outputs.max(1);
            (Some(keep.min(MAX_CALLS) as usize), MAX_CALLS)
        } else {
            (None, layout.calls.min(fits(outputs)))
        };
        let warm = |process: &mut BaselineProcess, had: &[Baseline]| {
            process.stage(name, &seeds, keep)?;
            let ready = |&which| measure::ready(process, name, which, &plan, staged, most);
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
        Ok(Self { process, ready, staged, caveats })
    }
}

/// Forgets a baseline that does not fit.
fn do_without(
    process: &mut BaselineProcess,
    task: &str,
    which: Baseline,
    caveats: &mut Vec<String>,
) -> Result<(), JudgeError> {
    process.give_up(task, which)?;
    caveats.push(format!("{} does not fit the device's memory", which.name()));
    Ok(())
}

/// Compiles what is wanted; what was had. Of those that keep buffers of their own, a task that fills
/// the memory does without; the others must be had.
fn compile(
    terms: &Terms<'_>,
    process: &mut BaselineProcess,
    caveats: &mut Vec<String>,
) -> Result<Vec<Baseline>, JudgeError> {
    let judge = terms.judge;
    let (name, seed) = (&terms.task.name, judge.config.seed);
    let mut had = Vec::new();
    for which in judge.wanted() {
        match process.compile(name, (which, seed), &judge.gate) {
            Ok(()) => had.push(which),
            Err(JudgeError::Memory { .. }) if which.is_spare() && terms.memory.is_all() => {
                do_without(process, name, which, caveats)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(had)
}
