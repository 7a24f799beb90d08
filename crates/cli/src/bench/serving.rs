//! `warpwright bench serve`: throughput of the judge over HTTP and NATS, relative to calls in this process.
//!
//! ```text
//! in process:  workers ──────────────────────────────────────► judge
//! http:        clients ─► server ─► queue ─► workers ────────► judge
//! nats:        clients ─► server ─► queue ─► NATS ─► workers ► judge
//! ```
//!
//! The same judge with the same number of workers serves each transport in turn, in several rounds:
//! disturbances of the machine affect all transports equally. Every candidate is new to the caches.
//! Each device has as many tasks as it keeps open; they are opened before the measurement. Clients
//! send candidates without a pause. Only the verdicts of a span of time count: it starts when every
//! device has had its first turns, and ends while all devices still have work.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use warpwright_fleet::Job;
use warpwright_judge::SessionPool;
use warpwright_record::verdict::{PhaseSeconds, Profile, Stage};
use warpwright_rollout::{device_use, judge_workers};

use self::site::{Site, Span, Supply};
use super::table::STAGES;
use super::{Form, Subject, median, own_cache, sessions, subjects, with_cache};
use crate::args::Common;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{interrupt, judging};

mod site;

/// Maximum time before verdicts are counted: by then each device has had its first turns.
const WARM: Duration = Duration::from_secs(10);
/// A verdict that waited longer than this for baselines, seconds, had to reopen its task.
const PREPARED: f64 = 0.01;

/// The parameters of a benchmark.
pub(crate) struct ServingPlan {
    /// Length of each span in which verdicts are counted.
    pub(crate) seconds: Duration,
    /// Measurements per transport.
    pub(crate) rounds: usize,
    /// Transports to measure; empty for all available ones.
    pub(crate) transports: Vec<Transport>,
    pub(crate) stage: Stage,
    /// URL of the NATS server, if NATS is measured.
    pub(crate) nats: Option<String>,
}

/// How the judge is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    /// Calls in this process.
    InProcess,
    /// HTTP.
    Http,
    /// HTTP to the server, NATS from the server to a worker.
    Nats,
    /// HTTP, with the first device alone.
    HttpOneDevice,
}

impl Transport {
    const fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in this process",
            Self::Http => "over HTTP",
            Self::Nats => "over HTTP and NATS",
            Self::HttpOneDevice => "over HTTP, one device",
        }
    }
}

/// The results of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct ServingReport {
    version: u32,
    devices: Vec<String>,
    hardware: String,
    cores: usize,
    /// Number of judging threads on all devices.
    judge_workers: usize,
    /// Length of each span in which verdicts were counted.
    seconds: f64,
    stage: Stage,
    transports: Vec<Measured>,
}

/// A transport and its throughput.
#[derive(Debug, Serialize)]
struct Measured {
    transport: Transport,
    /// Verdicts per second, by round.
    rates: Vec<f64>,
    /// Rates divided by those of the first transport in the same round.
    ratios: Vec<f64>,
    /// Stage times of the counted verdicts, by round. Contention for shared resources, such as the
    /// host, makes them longer.
    stages: Vec<Vec<PhaseSeconds>>,
    /// Completion times of the verdicts, in seconds from the beginning of the round, in the same
    /// order.
    completed: Vec<Vec<f64>>,
}

impl Measured {
    const fn new(transport: Transport) -> Self {
        Self {
            transport,
            rates: Vec::new(),
            ratios: Vec::new(),
            stages: Vec::new(),
            completed: Vec::new(),
        }
    }
}

/// Measures every transport in every round.
pub(crate) fn run(
    plan: &ServingPlan,
    common: &Common,
    printer: Printer,
) -> Result<ServingReport, Failure> {
    let own = own_cache(common)?;
    let common = with_cache(common, own.path());
    let wanted = judging::options(&common, Profile::Strict);
    let stop = interrupt::watch(printer)?;
    let hosts = judging::open_all(&common, wanted, printer)?;
    let pools: Vec<_> = hosts.iter().map(|host| SessionPool::new(&host.judge)).collect();
    let hardware = hosts.first().map(|host| host.judge.facts().hardware.clone());
    let is_accelerator = hosts.first().is_some_and(|host| host.judge.is_accelerator());
    let tasks = hosts.iter().map(sessions).sum();
    let mut subjects = subjects::all(tasks, subjects::least_rows(is_accelerator));
    let at = Site {
        hosts: &hosts,
        pools: &pools,
        tasks: subjects.iter().map(|subject| subject.task.clone()).collect(),
        hardware: hardware.unwrap_or_default(),
        rules: wanted.rules(),
        judged: Mutex::default(),
        nats: plan.nats.as_deref(),
        stop: &stop,
        printer,
    };
    let transports = transports(plan, pools.len())?;
    printer.say(&format!("opening {} tasks on {}", subjects.len(), at.devices().join(", ")));
    let one_each: Vec<Job> = subjects.iter_mut().map(|subject| job(subject, plan.stage)).collect();
    let mut one_each = one_each.into_iter();
    at.go(Transport::InProcess, &Supply::new(&mut || one_each.next(), None))?;
    let mut report = ServingReport {
        version: VERSION,
        devices: at.devices(),
        hardware: at.hardware.clone(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        judge_workers: judge_workers::count(&at.pools(Transport::InProcess)),
        seconds: plan.seconds.as_secs_f64(),
        stage: plan.stage,
        transports: transports.into_iter().map(Measured::new).collect(),
    };
    let span = Span { warm: WARM.min(plan.seconds), counted: plan.seconds };
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..report.transports.len()).collect();
        // There and back: drift affects all equally.
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let transport = report.transports[index].transport;
            // Of one device those that are open there.
            let step = if transport == Transport::HttpOneDevice { pools.len() } else { 1 };
            let mut numbers = (0..tasks).step_by(step).cycle();
            let mut next = || Some(job(&mut subjects[numbers.next()?], plan.stage));
            let judged = at.go(transport, &Supply::new(&mut next, Some(span)))?;
            let rate = judged.completed.len() as f64 / plan.seconds.as_secs_f64();
            let name = transport.name();
            printer.say(&format!("round {}: {rate:.2} verdicts/s {name}", round + 1));
            for (host, used) in hosts.iter().zip(&judged.used) {
                printer.say(&device_use::describe(&host.device(), used, plan.seconds));
            }
            printer.say(&tell_stages(&judged.stages));
            report.transports[index].rates.push(rate);
            report.transports[index].stages.push(judged.stages);
            report.transports[index].completed.push(judged.completed);
        }
        let first = report.transports[0].rates[round];
        for measured in &mut report.transports {
            measured.ratios.push(measured.rates[round] / first);
        }
    }
    Ok(report)
}

/// The transports to measure; an unavailable one is an error.
fn transports(plan: &ServingPlan, devices: usize) -> Result<Vec<Transport>, Failure> {
    let is_available = |transport: &Transport| match transport {
        Transport::InProcess | Transport::Http => true,
        Transport::Nats => plan.nats.is_some(),
        Transport::HttpOneDevice => devices > 1,
    };
    let all = Transport::value_variants();
    let transports: Vec<Transport> = if plan.transports.is_empty() {
        all.iter().copied().filter(is_available).collect()
    } else {
        plan.transports.clone()
    };
    match transports.iter().find(|transport| !is_available(transport)) {
        None => Ok(transports),
        Some(transport) => Err(Failure::usage(
            format!(
                "failed to measure requests {}: the transport is not available",
                transport.name()
            ),
            "`nats` needs `--nats URL`, `http-one-device` needs several `--device`".to_owned(),
        )),
    }
}

/// Median and mean stage times of the verdicts, and how many of them had to reopen their task.
fn tell_stages(stages: &[PhaseSeconds]) -> String {
    let each = STAGES.map(|(name, of)| {
        let all: Vec<f64> = stages.iter().map(of).collect();
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        format!("{name} {:.2} ({mean:.2}) s", median(all))
    });
    let opened = stages.iter().filter(|seconds| seconds.baselines > PREPARED).count();
    format!(
        "time per verdict, median (mean): {}; tasks reopened: {opened} in {} verdicts",
        each.join(", "),
        stages.len()
    )
}

fn job(subject: &mut Subject, stage: Stage) -> Job {
    let candidate = subject.candidate(Form::Launcher);
    Job { task: subject.task.clone(), candidate, stage, fresh: false }
}

/// The results as a table.
pub(crate) fn render(report: &ServingReport) -> String {
    let mut text = format!(
        "{}: {}, {} cores; verdicts to stage {} in {} s per round, {} concurrently\n\n{:<24}{:>26}{:>30}\n",
        report.devices.join(", "),
        report.hardware,
        report.cores,
        stage_name(report.stage),
        report.seconds,
        report.judge_workers,
        "Transport",
        "verdicts/s (median)",
        "ratio to the first, per round"
    );
    for (index, measured) in report.transports.iter().enumerate() {
        let percent = |ratio: &f64| format!("{:.1} %", 100.0 * ratio);
        let ratios: Vec<String> = measured.ratios.iter().map(percent).collect();
        let ratios = if index == 0 { String::new() } else { ratios.join(", ") };
        let rate = median(measured.rates.clone());
        let name = format!("  {}", measured.transport.name());
        let _ = writeln!(text, "{name:<24}{rate:>26.2}{ratios:>30}");
    }
    text
}

/// The stage as `--stage` spells it.
const fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Built => "built",
        Stage::Verified => "verified",
        Stage::Measured => "measured",
    }
}
