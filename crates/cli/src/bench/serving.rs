//! `warpwright bench serve`: what asking over HTTP, and from other hosts, costs beside asking the judge here.
//!
//! ```text
//! here:  hands ──────────────────────────────────────► judge
//! http:  clients ─► server ─► queue ─► hands ─────────► judge
//! nats:  clients ─► server ─► queue ─► NATS ─► hands ─► judge
//! ```
//!
//! The same judge with as many hands each way, in turn, several times over: what the machine does meanwhile meets
//! them alike. Every candidate is one that was never seen. Each device has as many tasks as it keeps open, which
//! are opened before anything is measured. Candidates are asked for without an end, and those judged in a span of
//! time are counted: it begins when every device has had its first turns, and ends while there is still work for
//! all of them.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use warpwright_fleet::Job;
use warpwright_judge::SessionPool;
use warpwright_record::verdict::{PhaseSeconds, Profile, Stage};

use self::site::{Site, Span, Supply};
use super::table::STAGES;
use super::{Form, Subject, median, own_cache, sessions, subjects, with_cache};
use crate::args::Common;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::judging::{Bench, Wanted};
use crate::printer::Printer;
use crate::{device_use, hands, interrupt};

mod site;

/// Until verdicts are counted, at most: by then each device has had its first turns.
const WARM: Duration = Duration::from_secs(10);
/// Who waits longer than this for baselines, seconds, is not told that they are there.
const PREPARED: f64 = 0.01;

/// What to measure.
pub(crate) struct ServingPlan {
    /// For how long verdicts are counted, each time.
    pub(crate) seconds: Duration,
    /// Times that each way is gone.
    pub(crate) rounds: usize,
    /// Which ways, of those that there are; none means all.
    pub(crate) ways: Vec<Way>,
    pub(crate) stage: Stage,
    /// Where NATS is, if it is to be measured.
    pub(crate) nats: Option<String>,
}

/// How the judge is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// In this process.
    Here,
    /// Over HTTP.
    Http,
    /// Over HTTP, and from there over NATS.
    Nats,
    /// Over HTTP, on the first device alone.
    HttpOneDevice,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Here => "in this process",
            Self::Http => "over HTTP",
            Self::Nats => "over HTTP and NATS",
            Self::HttpOneDevice => "over HTTP, one device",
        }
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct ServingReport {
    version: u32,
    devices: Vec<String>,
    hardware: String,
    cores: usize,
    /// Threads that judge, on all devices together.
    hands: usize,
    /// For which verdicts were counted, each time.
    seconds: f64,
    stage: Stage,
    ways: Vec<Gone>,
}

/// A way, and how fast it was.
#[derive(Debug, Serialize)]
struct Gone {
    way: Way,
    /// Verdicts a second, by round.
    rates: Vec<f64>,
    /// Each over that of the first way in the same round.
    ratios: Vec<f64>,
    /// What each verdict that counts took, by round: what devices share, such as the host, makes these longer.
    stages: Vec<Vec<PhaseSeconds>>,
    /// When it was there, seconds from the beginning, in the same order.
    there: Vec<Vec<f64>>,
}

impl Gone {
    const fn new(way: Way) -> Self {
        Self { way, rates: Vec::new(), ratios: Vec::new(), stages: Vec::new(), there: Vec::new() }
    }
}

/// Goes every way, again and again.
pub(crate) fn run(
    plan: &ServingPlan,
    common: &Common,
    printer: Printer,
) -> Result<ServingReport, Failure> {
    let own = own_cache(common)?;
    let common = with_cache(common, own.path());
    let wanted = Wanted::new(&common, Profile::Strict);
    let stop = interrupt::watch(printer)?;
    let benches = Bench::open_all(&common, &common.device, wanted, printer)?;
    let pools: Vec<_> = benches.iter().map(|bench| SessionPool::new(&bench.judge)).collect();
    let hardware = benches.first().map(|bench| bench.judge.facts().hardware.clone());
    let is_cuda = benches.first().is_some_and(|bench| bench.judge.config().device.is_cuda());
    let tasks = benches.iter().map(sessions).sum();
    let mut subjects = subjects::all(tasks, subjects::least_rows(is_cuda));
    let at = Site {
        benches: &benches,
        pools: &pools,
        tasks: subjects.iter().map(|subject| subject.task.clone()).collect(),
        hardware: hardware.unwrap_or_default(),
        rules: wanted.rules(),
        judged: Mutex::default(),
        nats: plan.nats.as_deref(),
        stop: &stop,
        printer,
    };
    let ways = ways(plan, pools.len())?;
    printer.say(&format!("opening {} tasks on {}", subjects.len(), at.devices().join(", ")));
    let one_each: Vec<Job> = subjects.iter_mut().map(|subject| job(subject, plan.stage)).collect();
    let mut one_each = one_each.into_iter();
    at.go(Way::Here, &Supply::new(&mut || one_each.next(), None))?;
    let mut report = ServingReport {
        version: VERSION,
        devices: at.devices(),
        hardware: at.hardware.clone(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        hands: hands::count(&at.pools(Way::Here)),
        seconds: plan.seconds.as_secs_f64(),
        stage: plan.stage,
        ways: ways.into_iter().map(Gone::new).collect(),
    };
    let span = Span { warm: WARM.min(plan.seconds), counted: plan.seconds };
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..report.ways.len()).collect();
        // There and back: what drifts meets all alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let way = report.ways[index].way;
            // Of one device those that are open there.
            let step = if way == Way::HttpOneDevice { pools.len() } else { 1 };
            let mut numbers = (0..tasks).step_by(step).cycle();
            let mut next = || Some(job(&mut subjects[numbers.next()?], plan.stage));
            let judged = at.go(way, &Supply::new(&mut next, Some(span)))?;
            let rate = judged.there.len() as f64 / plan.seconds.as_secs_f64();
            printer.say(&format!("round {}: {rate:.2} a second {}", round + 1, way.name()));
            for (bench, used) in benches.iter().zip(&judged.used) {
                printer.say(&device_use::describe(&bench.device(), used, plan.seconds));
            }
            printer.say(&tell_stages(&judged.stages));
            report.ways[index].rates.push(rate);
            report.ways[index].stages.push(judged.stages);
            report.ways[index].there.push(judged.there);
        }
        let first = report.ways[0].rates[round];
        for way in &mut report.ways {
            way.ratios.push(way.rates[round] / first);
        }
    }
    Ok(report)
}

/// Those that are wanted, as far as there are such.
fn ways(plan: &ServingPlan, devices: usize) -> Result<Vec<Way>, Failure> {
    let is_there = |way: &Way| match way {
        Way::Here | Way::Http => true,
        Way::Nats => plan.nats.is_some(),
        Way::HttpOneDevice => devices > 1,
    };
    let all = Way::value_variants();
    let ways: Vec<Way> = if plan.ways.is_empty() {
        all.iter().copied().filter(is_there).collect()
    } else {
        plan.ways.clone()
    };
    match ways.iter().find(|way| !is_there(way)) {
        None => Ok(ways),
        Some(way) => Err(Failure::usage(
            format!("there is no way {}", way.name()),
            "--nats names a server of NATS, --device several devices".to_owned(),
        )),
    }
}

/// What a verdict took, in the median and in the mean, and how many waited for baselines: their task had to be
/// opened once more.
fn tell_stages(stages: &[PhaseSeconds]) -> String {
    let each = STAGES.map(|(name, of)| {
        let all: Vec<f64> = stages.iter().map(of).collect();
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        format!("{name} {:.2} ({mean:.2}) s", median(all))
    });
    let opened = stages.iter().filter(|seconds| seconds.baselines > PREPARED).count();
    format!(
        "a verdict in the median (mean): {}; tasks opened again: {opened} in {} verdicts",
        each.join(", "),
        stages.len()
    )
}

fn job(subject: &mut Subject, stage: Stage) -> Job {
    let candidate = subject.candidate(Form::Launcher);
    Job { task: subject.task.clone(), candidate, stage, fresh: false }
}

/// A table for people.
pub(crate) fn render(report: &ServingReport) -> String {
    let mut text = format!(
        "{}: {}, {} cores; verdicts to stage {:?} in {} s each time, {} at once\n\n{:<24}{:>26}{:>30}\n",
        report.devices.join(", "),
        report.hardware,
        report.cores,
        report.stage,
        report.seconds,
        report.hands,
        "Asked",
        "verdicts a second (median)",
        "of the first way (each round)"
    );
    for (index, way) in report.ways.iter().enumerate() {
        let percent = |ratio: &f64| format!("{:.1} %", 100.0 * ratio);
        let ratios: Vec<String> = way.ratios.iter().map(percent).collect();
        let ratios = if index == 0 { String::new() } else { ratios.join(", ") };
        let rate = median(way.rates.clone());
        let _ = writeln!(text, "{:<24}{rate:>26.2}{ratios:>30}", format!("  {}", way.way.name()));
    }
    text
}
