//! Throughput: concurrent candidates of several tasks keep builders, runners and the device busy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpwright_judge::{Purpose, Used};
use warpwright_record::verdict::Stage;

use super::{DeviceContext, Form, Subject, median};
use crate::failure::Failure;
use crate::printer::Printer;

/// Throughput of a number of concurrent workers.
#[derive(Debug, Serialize)]
pub(crate) struct Sustained {
    /// Number of workers: each builds a candidate, then has the judge verify and time it.
    pub(crate) concurrency: usize,
    pub(crate) candidates: u64,
    /// From the files of the first candidate to the verdict of the last.
    pub(crate) seconds: f64,
    pub(crate) candidates_per_hour: f64,
    /// Share of that time with exclusive use of the device.
    pub(crate) alone: f64,
    /// Share of that time with shared use of the device.
    pub(crate) shared: f64,
    /// Share of that time in which a candidate waited to be measured and none was.
    pub(crate) starved: f64,
    /// Seconds and turns by purpose of the device's use.
    pub(crate) held_for: BTreeMap<&'static str, Turns>,
    /// Median seconds that a candidate held the device, from loading to the end of its process.
    pub(crate) held_seconds: f64,
    /// Coefficients of variation of the candidates' windows.
    pub(crate) variation: Vec<f64>,
    /// Measurement rounds per candidate.
    pub(crate) rounds: Vec<u32>,
}

/// Use of the device for one purpose.
#[derive(Debug, Serialize)]
pub(crate) struct Turns {
    times: u32,
    seconds: f64,
    /// Total seconds of waiting for the turns.
    waited: f64,
}

/// Opens every task and prepares its baselines.
pub(super) fn warm(
    at: &DeviceContext<'_>,
    subjects: &mut [Subject],
    printer: Printer,
) -> Result<(), Failure> {
    printer.say(&format!("opening {} tasks", subjects.len()));
    let done: Vec<_> = std::thread::scope(|scope| {
        let each = subjects.iter_mut();
        let each: Vec<_> = each.map(|s| scope.spawn(|| at.judged(s, Form::Launcher))).collect();
        each.into_iter().map(|thread| thread.join().map_err(|_| died())).collect()
    });
    done.into_iter().try_for_each(|judged| judged.and_then(|judged| judged.map(drop)))
}

fn died() -> Failure {
    let message = "failed to measure the throughput: a thread panicked";
    Failure::infrastructure(message, "report this bug".to_owned())
}

pub(super) fn measure(
    at: &DeviceContext<'_>,
    subjects: &mut [Subject],
    (concurrency, seconds): (usize, f64),
) -> Result<Sustained, Failure> {
    let subjects: Vec<Mutex<&mut Subject>> = subjects.iter_mut().map(Mutex::new).collect();
    let (next, before) = (AtomicU64::new(0), at.host.judge.device_use());
    let found = Mutex::new((Vec::new(), Vec::new(), Vec::new()));
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(seconds);
    let work = || -> Result<(), Failure> {
        while Instant::now() < until {
            let number = next.fetch_add(1, Ordering::Relaxed) as usize % subjects.len();
            let mut subject = subjects[number].lock().unwrap_or_else(PoisonError::into_inner);
            let (candidate, task) = (subject.candidate(Form::Launcher), subject.task.clone());
            drop(subject);
            // As an agent does: it compiles, then asks. Building needs no session.
            at.pool.verdict(&task, &candidate, Stage::Built)?;
            let verdict = at.verified(&task, &candidate)?;
            let seconds = verdict.seconds;
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0.push(seconds.load + seconds.verify + seconds.measure + seconds.end);
            found.1.extend(verdict.conditions.and_then(|c| c.variation));
            found.2.extend(verdict.times_ms.rounds);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..concurrency).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| died()).and_then(|done| done))
    })?;
    let took = started.elapsed().as_secs_f64();
    let (held, variation, rounds) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let used = at.host.judge.device_use();
    let share =
        |of: fn(&Used) -> Duration| of(&used).saturating_sub(of(&before)).as_secs_f64() / took;
    Ok(Sustained {
        concurrency,
        candidates: held.len() as u64,
        seconds: took,
        candidates_per_hour: held.len() as f64 * 3600.0 / took,
        alone: share(|used| used.alone),
        shared: share(|used| used.shared),
        starved: share(|used| used.starved),
        held_for: between(&before, &used),
        held_seconds: median(held),
        variation,
        rounds,
    })
}

fn between(before: &Used, after: &Used) -> BTreeMap<&'static str, Turns> {
    let seconds = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
    let each = Purpose::ALL.into_iter().zip(after.by.iter().zip(&before.by));
    each.filter(|(_, (now, then))| now.turns > then.turns)
        .map(|(purpose, (now, then))| {
            let times = now.turns - then.turns;
            let seconds = (seconds(now.held, then.held), seconds(now.waited, then.waited));
            (purpose.name(), Turns { times, seconds: seconds.0, waited: seconds.1 })
        })
        .collect()
}
