//! Scales the batch dimension of a task down that is too large for the device.

use std::collections::HashMap;

use warpwright_agent::episode::Start;
use warpwright_judge::{JudgeError, fit_of};
use warpwright_record::blob::BlobHash;
use warpwright_record::event::TooLarge;
use warpwright_record::history::{Episode, History};
use warpwright_task::{FitError, Task};

use crate::pool_judge::Refusal;

/// The task with its batch dimension divided by the least power of two by which it may fit a device that it is too
/// large for. It may still be too large then.
///
/// # Errors
/// [`FitError`] if no dimension can be scaled down.
pub fn smaller(task: &Task, size: TooLarge) -> Result<Task, FitError> {
    // Where it has workloads, all are refused, this one first.
    let workloads = task.workloads().unwrap_or_default();
    let Some(first) = workloads.first() else { return task.scaled_down(divisor(size)) };
    match task.workload_scaled_down(&first.name, divisor(size)) {
        Err(FitError::NoParameter) => task.scaled_down(divisor(size)),
        scaled => scaled,
    }
}

/// The least power of two by which a task may fit.
fn divisor(size: TooLarge) -> u64 {
    let TooLarge { needed_bytes, available_bytes } = size;
    let times = needed_bytes.map_or(2, |needed| needed.div_ceil(available_bytes.max(1)));
    times.max(2).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// The task with each workload scaled down that the device has no memory for, if that can be done, and a sentence for
/// each time it was. `open` opens a task that is bound to one workload. A workload that cannot be scaled down is the
/// judge's to refuse.
///
/// # Errors
/// Failures of the judge.
pub fn workloads(
    task: &Task,
    open: impl Fn(&Task) -> Result<(), JudgeError>,
) -> Result<(Task, Vec<String>), JudgeError> {
    let (mut task, mut told) = (task.clone(), Vec::new());
    for (index, workload) in task.workloads().unwrap_or_default().iter().enumerate() {
        while let Ok(Some(bound)) = task.of_workload(index) {
            let Err(error) = open(&bound) else { break };
            let Some(refusal) = Refusal::of(&error) else { return Err(error) };
            let Some(size) = refusal.too_large else { break };
            let Ok(smaller) = task.workload_scaled_down(&workload.name, divisor(size)) else {
                break;
            };
            told.push(scaled(&refusal.message, &smaller));
            task = smaller;
        }
    }
    Ok((task, told))
}

/// The warning that a task is scaled down.
pub fn scaled(why: &str, smaller: &Task) -> String {
    let fit = fit_of(smaller).map(|fit| fit.to_string()).unwrap_or_default();
    format!("{why}; `--fit` scales it down: {fit}")
}

/// The same after an error of the judge: the smaller task, or the refusal with what stands in the way of one. `None` if
/// the task is not refused.
pub fn after(task: &Task, error: &JudgeError) -> Option<Result<Task, Refusal>> {
    Some(or_refused(task, Refusal::of(error)?))
}

/// The same after a refusal.
pub(crate) fn or_refused(task: &Task, refusal: Refusal) -> Result<Task, Refusal> {
    let Some(size) = refusal.too_large else {
        let Some(fit) = fit_of(task) else { return Err(refusal) };
        let message = format!("{} (`--fit` scaled it down: {fit})", refusal.message);
        return Err(Refusal { message, ..refusal });
    };
    smaller(task, size).map_err(|reason| {
        let message = format!("{}; `--fit` cannot scale it down: {reason}", refusal.message);
        Refusal { message, ..refusal }
    })
}

/// Where an episode starts: afresh, if what is recorded of it is of the task at another size.
pub(crate) fn start(recorded: Option<&Episode>, task: &Task, start: Start) -> Start {
    let source = BlobHash::of(task.source.as_bytes());
    let same = recorded.is_none_or(|episode| episode.setup.source == source);
    if same { start } else { Start::Fresh }
}

/// The tasks that a run has scaled down so far, by index.
pub(crate) fn recorded(history: &History, tasks: &[Task]) -> HashMap<usize, Task> {
    let mut scaled = HashMap::new();
    for episode in history.episodes.values() {
        let Some(fit) = &episode.setup.fit else { continue };
        let Some(index) = tasks.iter().position(|task| task.name == episode.setup.task) else {
            continue;
        };
        let mut task = scaled.get(&index).unwrap_or(&tasks[index]).clone();
        let whole = fit.workloads.is_empty().then_some((None, fit.from, fit.to));
        let parts = fit.workloads.iter().map(|part| (Some(&part.workload), part.from, part.to));
        for (workload, from, to) in whole.into_iter().chain(parts) {
            let fits = task.fits();
            let own = fits.iter().find(|own| own.workload.as_ref() == workload);
            let divisor = own.map_or(from, |own| own.to) / to.max(1);
            let smaller = match workload {
                _ if divisor <= 1 => continue,
                Some(name) => task.workload_scaled_down(name, divisor),
                None => task.scaled_down(divisor),
            };
            if let Ok(smaller) = smaller {
                task = smaller;
                scaled.insert(index, task.clone());
            }
        }
    }
    scaled
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event, EventLine};
    use warpwright_record::run::FORMAT_VERSION;
    use warpwright_record::verdict::Profile;

    use super::*;

    const TASK: &str = "import torch\nbatch_size = 4096\ndef get_inputs():\n    return [torch.rand(batch_size, 8)]\n";

    fn size(needed: Option<u64>) -> TooLarge {
        TooLarge { needed_bytes: needed, available_bytes: 10 << 30 }
    }

    #[test]
    fn task_is_scaled_by_the_least_power_of_two() {
        let task = Task::from_source("t", TASK);
        let to = |needed| smaller(&task, size(needed)).unwrap().fits()[0].to;
        assert_eq!(to(Some(11 << 30)), 2048);
        assert_eq!(to(Some(25 << 30)), 1024);
        assert_eq!(to(None), 2048);
        assert_eq!(to(Some(u64::MAX)), 1);
    }

    #[test]
    fn resumed_run_keeps_the_size_of_its_tasks() {
        let tasks = [Task::from_source("other", "b = 1"), Task::from_source("t", TASK)];
        let scaled = smaller(&tasks[1], size(Some(25 << 30))).unwrap();
        let mut history = History::default();
        let mut begin = |number: u32, task: &Task| {
            let setup = EpisodeSetup {
                task: task.name.clone(),
                source: BlobHash::of(task.source.as_bytes()),
                shown: None,
                skill: None,
                policy: "teacher".to_owned(),
                device: "cuda:0".to_owned(),
                profile: Profile::Strict,
                dtype: None,
                fit: fit_of(task),
                backward: false,
                seed: 0,
                attempt: number,
                level: None,
                budget: Budget::default(),
            };
            let event = Event::EpisodeStarted { episode: EpisodeId(number), setup };
            let (version, seq) = (FORMAT_VERSION, u64::from(number));
            history.apply(EventLine { version, seq, time: Timestamp::UNIX_EPOCH, event });
        };
        begin(0, &tasks[0]);
        begin(1, &scaled);
        begin(2, &scaled);
        let resumed = |task: &Task| {
            let turns = Vec::new();
            let some = Start::Resume { turns, files: BTreeMap::new(), elapsed_seconds: 1.0 };
            start(history.episodes.get(&EpisodeId(1)), task, some)
        };
        assert!(matches!(resumed(&scaled), Start::Resume { .. }));
        assert!(matches!(resumed(&tasks[1]), Start::Fresh), "of another size");
        let kept = recorded(&history, &tasks);
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(1, scaled.clone())]);
        let kept = recorded(&history, &[tasks[0].clone(), scaled]);
        assert!(kept.is_empty(), "the run began with the smaller task");
    }

    const LIST: &str = "\ndef get_workloads():\n    return [{'name': 'a', 'arguments': [64]}, {'name': 'b', 'arguments': [4096]}]\n";

    #[test]
    fn only_workloads_that_do_not_fit_are_scaled() {
        let source = TASK.replace("get_inputs()", "get_inputs(batch_size=8)") + LIST;
        let task = Task::from_source("t", source);
        let open = |bound: &Task| {
            let large = bound.workload().unwrap().arguments.to_value()[0].as_u64().unwrap() > 1024;
            let too_large = || JudgeError::TooLarge {
                task: bound.name.clone(),
                needed: Some(3 << 30),
                available: 2 << 30,
                message: "it is too large".to_owned(),
            };
            if large { Err(too_large()) } else { Ok(()) }
        };
        let (scaled, told) = workloads(&task, open).unwrap();
        let fit = fit_of(&scaled).unwrap();
        assert_eq!(fit.to_string(), "batch_size 1024 of 4096 in workload b");
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(workloads(&scaled, open).unwrap(), (scaled.clone(), Vec::new()));
        let fixed =
            Task::from_source("t", task.source.replace("(batch_size, 8)", "(8, batch_size)"));
        assert_eq!(workloads(&fixed, open).unwrap().0, fixed);
        let why = smaller(&fixed, size(None)).unwrap_err().to_string();
        assert_eq!(why, FitError::NoDimension.to_string());
    }

    #[test]
    fn refusal_says_why_nothing_is_scaled() {
        let refusal = Refusal {
            message: "it is too large".to_owned(),
            hint: None,
            degenerate: Vec::new(),
            too_large: Some(size(None)),
        };
        let fixed = Task::from_source("t", TASK.replace("(batch_size", "(4096"));
        let refused = or_refused(&fixed, refusal.clone()).unwrap_err();
        assert!(
            refused.message.contains("; `--fit` cannot scale it down: get_inputs()"),
            "{refused:?}"
        );
        assert!(refused.too_large.is_some(), "it stays too large");
        let scaled = or_refused(&Task::from_source("t", TASK), refusal.clone()).unwrap();
        let broken = Refusal { too_large: None, ..refusal };
        let refused = or_refused(&scaled, broken).unwrap_err();
        assert!(refused.message.ends_with("(`--fit` scaled it down: batch_size 2048 of 4096)"));
    }
}
