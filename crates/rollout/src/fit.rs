//! Scales the batch dimension of a task down that is too large for the device.

use std::collections::HashMap;

use warpwright_judge::JudgeError;
use warpwright_record::event::TooLarge;
use warpwright_record::history::History;
use warpwright_task::{FitError, Task};

use crate::pool_judge::Refusal;

/// The task with its batch dimension divided by the least power of two by which it may fit a device that it is too
/// large for. It may still be too large then.
///
/// # Errors
/// [`FitError`] if no dimension can be scaled down.
pub fn smaller(task: &Task, size: TooLarge) -> Result<Task, FitError> {
    let TooLarge { needed_bytes, available_bytes } = size;
    let times = needed_bytes.map_or(2, |needed| needed.div_ceil(available_bytes.max(1)));
    task.scaled_down(times.max(2).checked_next_power_of_two().unwrap_or(u64::MAX))
}

/// The same after an error of the judge: the smaller task, or the refusal with what stands in the way of one. `None` if
/// the task is not refused.
pub fn after(task: &Task, error: &JudgeError) -> Option<Result<Task, Refusal>> {
    Some(or_refused(task, Refusal::of(error)?))
}

/// The same after a refusal.
pub(crate) fn or_refused(task: &Task, refusal: Refusal) -> Result<Task, Refusal> {
    let Some(size) = refusal.too_large else {
        let Some(fit) = task.fit() else { return Err(refusal) };
        let message = format!("{} (`--fit` scaled it down: {fit})", refusal.message);
        return Err(Refusal { message, ..refusal });
    };
    smaller(task, size).map_err(|reason| {
        let message = format!("{}; `--fit` cannot scale it down: {reason}", refusal.message);
        Refusal { message, ..refusal }
    })
}

/// The tasks that a run has scaled down so far, by index.
pub(crate) fn recorded(history: &History, tasks: &[Task]) -> HashMap<usize, Task> {
    let mut scaled = HashMap::new();
    for episode in history.episodes.values() {
        let Some(fit) = &episode.setup.fit else { continue };
        let Some(index) = tasks.iter().position(|task| task.name == episode.setup.task) else {
            continue;
        };
        let task = scaled.get(&index).unwrap_or(&tasks[index]);
        let now = task.fit().map_or(fit.from, |own| own.to);
        let divisor = now / fit.to.max(1);
        if divisor > 1
            && let Ok(task) = task.scaled_down(divisor)
        {
            scaled.insert(index, task);
        }
    }
    scaled
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warpwright_judge::fit_of;
    use warpwright_record::blob::BlobHash;
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
        let to = |needed| smaller(&task, size(needed)).unwrap().fit().unwrap().to;
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
        let kept = recorded(&history, &tasks);
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(1, scaled.clone())]);
        let kept = recorded(&history, &[tasks[0].clone(), scaled]);
        assert!(kept.is_empty(), "the run began with the smaller task");
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
