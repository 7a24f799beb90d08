//! `warpwright task lint`.

use std::sync::atomic::Ordering;

use rand::SeedableRng;
use rand::seq::index;
use serde::Serialize;
use warpwright_judge::{Examination, Objection, Sharing};
use warpwright_record::verdict::Profile;
use warpwright_rollout::examining::{self, Examined, Look};
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::{folders, shipped, tasks};
use warpwright_task::Task;

use crate::args::task::Lint;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{exit, interrupt, judging};

/// Output of `task lint`.
#[derive(Serialize)]
struct Linted {
    version: u32,
    device: String,
    profile: Profile,
    /// Number of tasks without objections.
    sound: usize,
    tasks: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    task: String,
    sound: bool,
    /// Why the task cannot be judged.
    refused: Option<String>,
    objections: Vec<Told>,
    /// Number of workloads; the figures are those of `get_inputs()` without arguments.
    #[serde(skip_serializing_if = "is_zero")]
    workloads: usize,
    /// Header libraries that the task allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    libraries: Vec<String>,
    eager_ms: Option<f64>,
    best_ms: Option<f64>,
    head_room: Option<f64>,
    examination: Option<Examination>,
}

#[derive(Serialize)]
struct Told {
    kind: &'static str,
    message: String,
}

impl Told {
    fn of(objection: &Objection) -> Self {
        Self { kind: objection.name(), message: objection.to_string() }
    }
}

impl Row {
    fn of(task: &Task, examined: Examined) -> Self {
        let sound = examined.sound();
        let (refused, examination) = match examined {
            Examined::Refused(why) => (Some(why), None),
            Examined::Looked(found) => (None, Some(*found)),
        };
        let found = examination.as_ref();
        Self {
            task: task.name.clone(),
            sound,
            refused,
            objections: found.iter().flat_map(|f| f.objections.iter().map(Told::of)).collect(),
            workloads: task.workloads().map_or(0, |workloads| workloads.len()),
            libraries: task.libraries().unwrap_or_default(),
            eager_ms: found.map(|found| found.eager_ms),
            best_ms: found.filter(|_| sound).map(Examination::best_ms),
            head_room: found.and_then(Examination::head_room),
            examination,
        }
    }

    /// The line of a task as text.
    fn line(&self) -> String {
        let said = match &self.refused {
            Some(why) => format!("unusable: {why}"),
            None if self.sound => {
                let ms = |of: Option<f64>| of.map_or("-".to_owned(), |ms| format!("{ms:.3} ms"));
                let room = self.head_room.map(|r| format!(", {r:.1}x the memory-bandwidth floor"));
                let room = room.unwrap_or_default();
                format!(
                    "sound; eager {}, fastest baseline {}{room}",
                    ms(self.eager_ms),
                    ms(self.best_ms)
                )
            }
            None => {
                let said: Vec<_> = self.objections.iter().map(|o| o.message.as_str()).collect();
                said.join("; ")
            }
        };
        let mut about = Vec::new();
        if self.workloads > 0 {
            about.push(format!("{} workloads, default inputs", self.workloads));
        }
        if !self.libraries.is_empty() {
            about.push(format!("allows {}", self.libraries.join(", ")));
        }
        match about.join("; ") {
            none if none.is_empty() => format!("{}: {said}", self.task),
            about => format!("{} ({about}): {said}", self.task),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) fn run(args: &Lint, printer: Printer) -> Result<u8, Failure> {
    let cache = folders::cache(args.common.host.cache.as_deref());
    let paths = args.tasks.iter().map(|path| shipped::found(path, &cache));
    let mut tasks =
        tasks::read_suite(&paths.collect::<Result<Vec<_>, _>>()?, &|text| printer.say(text))?;
    if let [task] = &tasks[..] {
        // Of several, one that is no task is told among the others.
        tasks::check_all(std::slice::from_ref(task), &|text| printer.say(text))?;
    }
    if let Some(sample) = args.sample {
        tasks = drawn(tasks, sample as usize, args.common.seed);
    }
    let profile = args.profile.into();
    let stop = interrupt::watch(printer)?;
    let wanted = judging::options(&args.common, profile);
    let hosts = judging::open_all(&args.common, wanted, printer)?;
    let look = Look {
        jobs: args.jobs.map(usize::from),
        processes: if args.share_processes { Sharing::Shared } else { Sharing::Own },
    };
    let (count, done) = (tasks.len(), std::sync::atomic::AtomicUsize::new(0));
    let examined = examining::examine_all(&hosts, &tasks, look, &stop, |task, _| {
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        printer.say(&format!("linted {done} of {count}: {}", task.name));
    })?;
    if stop.load(Ordering::SeqCst) {
        return Err(Failure::interrupted());
    }
    let rows = tasks.iter().zip(examined).filter_map(|(task, e)| Some(Row::of(task, e?)));
    let rows: Vec<Row> = rows.collect();
    let sound = rows.iter().filter(|row| row.sound).count();
    let lines: String = rows.iter().map(|row| row.line() + "\n").collect();
    printer.data(&format!("{lines}{sound} of {count} sound\n"));
    let device = hosts.iter().map(JudgeHost::device).collect::<Vec<_>>().join(",");
    let all = sound == rows.len();
    printer.object(&Linted { version: VERSION, device, profile, sound, tasks: rows });
    Ok(if all { exit::OK } else { exit::NOT_VERIFIED })
}

/// A seeded sample of the tasks, in their order; all tasks if there are at most `count`.
fn drawn(tasks: Vec<Task>, count: usize, seed: u64) -> Vec<Task> {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut kept = index::sample(&mut random, tasks.len(), count.min(tasks.len())).into_vec();
    kept.sort_unstable();
    let (mut tasks, mut kept) = (tasks.into_iter().enumerate(), kept.into_iter().peekable());
    let next = || tasks.find(|(at, _)| kept.next_if_eq(at).is_some()).map(|(_, task)| task);
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_seeded_and_has_no_duplicates() {
        let tasks =
            || (0..40).map(|i| Task::from_source(&format!("t{i:02}"), String::new())).collect();
        let names = |count, seed| {
            drawn(tasks(), count, seed).into_iter().map(|task| task.name).collect::<Vec<_>>()
        };
        let some = names(10, 1);
        assert_eq!(some.len(), 10);
        assert!(some.is_sorted() && some.windows(2).all(|pair| pair[0] != pair[1]), "{some:?}");
        assert_eq!(some, names(10, 1));
        assert_ne!(some, names(10, 2));
        assert_eq!(names(100, 1).len(), 40);
    }
}
