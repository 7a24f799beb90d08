//! `warpwright bench judge`: latency and throughput of the judge, and the same work without a judge.
//!
//! ```text
//! an empty cache ──► first candidate ──► one after the other ──► 1, 2, 4, ... workers ──► cold starts
//!                     (everything is     (`latency`: seconds     (`sustained`: verdicts    (`cold`: a new
//!                      made once)         per stage)              per hour)                 process each)
//! ```
//!
//! Every candidate is new to the caches (`subjects`). All figures of a report are measured in one run,
//! the ratio to a cold start too.

mod cold;
mod latency;
pub(crate) mod recording;
pub(crate) mod serving;
mod subjects;
mod sustained;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use warpwright_judge::SessionPool;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Profile, Stage, Verdict};
use warpwright_rollout::judge_host::{JudgeHost, JudgeOptions};
use warpwright_task::Task;

use crate::args::{BaselinesArg, Common, HostArgs, IsolationArg};
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{interrupt, judging};
pub(crate) use cold::Cold;
pub(crate) use latency::Latency;
pub(crate) use subjects::{Form, Subject};
pub(crate) use sustained::Sustained;
pub(crate) use table::render;

/// The parameters of a benchmark.
pub(crate) struct Plan {
    /// Candidates per form, judged one after another.
    pub(crate) candidates: usize,
    /// Forms of the candidates.
    pub(crate) forms: Vec<Form>,
    /// Numbers of concurrent workers; each number is measured in turn.
    pub(crate) concurrency: Vec<usize>,
    /// Seconds per number of concurrent workers.
    pub(crate) seconds: f64,
    /// Number of cold-start runs, after one warm-up that is not counted.
    pub(crate) cold_runs: usize,
    /// Whether candidates of a task share windows of its baselines.
    pub(crate) share_baselines: bool,
    /// Length of a timing window in milliseconds; `None` uses the device's default.
    pub(crate) window_ms: Option<u32>,
}

/// The results of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) device: String,
    pub(crate) hardware: String,
    pub(crate) cores: u32,
    /// Whether candidates of a task shared windows of its baselines, in the device tier.
    pub(crate) shared_baselines: bool,
    /// As requested; null for the device's default.
    pub(crate) window_ms: Option<u32>,
    /// Compilers and libraries, one per line.
    pub(crate) tools: Vec<String>,
    /// How runner processes were started.
    pub(crate) runners: Runners,
    /// Seconds to open the judge with an empty cache.
    pub(crate) open_seconds: f64,
    /// Seconds of the first candidate, including everything that is built once.
    pub(crate) first_seconds: f64,
    pub(crate) latency: Vec<Latency>,
    pub(crate) sustained: Vec<Sustained>,
    /// `None` without cold-start runs.
    pub(crate) cold: Option<Cold>,
    /// Seconds of a cold start divided by those of a warm candidate of the same form.
    pub(crate) ratio: Option<f64>,
}

/// Number of forked and of executed runner processes, and why processes were executed.
#[derive(Debug, Serialize)]
pub(crate) struct Runners {
    pub(crate) forked: u64,
    pub(crate) executed: u64,
    pub(crate) reason: Option<String>,
}

/// Runs all measurements, and calls `more` with the report after each. Compiled artifacts are kept
/// in a temporary folder.
pub(crate) fn run(
    plan: &Plan,
    common: &Common,
    printer: Printer,
    mut more: impl FnMut(&Report) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let own = own_cache(common)?;
    let [device] = common.device[..] else {
        let hint = "name one device, e.g. `--device cuda:0`".to_owned();
        return Err(Failure::usage("failed to open the devices: `bench judge` uses one", hint));
    };
    let common = with_cache(common, own.path());
    let stop = interrupt::watch(printer)?;
    let started = Instant::now();
    let wanted = JudgeOptions {
        share_baselines: plan.share_baselines,
        window_ms: plan.window_ms,
        ..judging::options(&common, Profile::Strict)
    };
    let host = judging::open(&common, device, wanted, printer)?;
    host.facts()?;
    let mut report = Report::begin(&host, plan, started.elapsed().as_secs_f64());
    let mut subjects =
        subjects::all(sessions(&host), subjects::least_rows(host.judge.is_accelerator()));
    printer.say(&format!("opened {} in {:.1} s", report.device, report.open_seconds));

    let at = DeviceContext { host: &host, pool: SessionPool::new(&host.judge), stop };
    let started = Instant::now();
    let first = &mut subjects[0];
    at.judged(first, plan.forms.first().copied().unwrap_or(Form::Launcher))?;
    report.first_seconds = started.elapsed().as_secs_f64();
    printer.say(&format!("first verdict: {:.1} s", report.first_seconds));

    for &form in &plan.forms {
        let row = latency::measure(&at, first, form, plan.candidates)?;
        printer.say(table::latency_row(&row).trim_end());
        report.latency.push(row);
        report.runners = Runners::of(&host);
        more(&report)?;
    }
    sustained::warm(&at, &mut subjects, printer)?;
    for &concurrency in &plan.concurrency {
        let row = sustained::measure(&at, &mut subjects, (concurrency, plan.seconds))?;
        printer.say(table::sustained_row(&row).trim_end());
        report.sustained.push(row);
        report.runners = Runners::of(&host);
        more(&report)?;
    }
    if plan.cold_runs > 0 {
        let cold = cold::measure(&at, &mut subjects[0], own.path(), plan.cold_runs, printer)?;
        let warm = report.latency.iter().find(|warm| warm.form == Form::Binding);
        report.ratio = warm.map(|warm| cold.median() / warm.median());
        report.cold = Some(cold);
        more(&report)?;
    }
    Ok(report)
}

impl Report {
    /// A report without measurements.
    fn begin(host: &JudgeHost, plan: &Plan, open_seconds: f64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            version: VERSION,
            device: host.device(),
            hardware: host.judge.facts().hardware.clone(),
            cores: cores as u32,
            shared_baselines: plan.share_baselines,
            window_ms: plan.window_ms,
            tools: host.judge.toolchain().describe(),
            runners: Runners::of(host),
            open_seconds,
            first_seconds: 0.0,
            latency: Vec::new(),
            sustained: Vec::new(),
            cold: None,
            ratio: None,
        }
    }
}

impl Runners {
    fn of(host: &JudgeHost) -> Self {
        let how = host.judge.how_started();
        Self { forked: how.forked, executed: how.executed, reason: how.reason }
    }
}

/// Maximum number of open tasks.
fn sessions(host: &JudgeHost) -> usize {
    if host.device() == "cpu" { 2 } else { 8 }
}

/// A new, empty cache folder.
fn own_cache(common: &Common) -> Result<tempfile::TempDir, Failure> {
    let folders = warpwright_rollout::folders::cache(common.host.cache.as_deref());
    let failed = |error: std::io::Error| {
        let hint = "name a writable folder with `--cache`".to_owned();
        Failure::infrastructure(
            format!("failed to create a cache folder for the benchmark: {error}"),
            hint,
        )
    };
    fs_err::create_dir_all(&folders).map_err(failed)?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(&folders).map_err(failed)
}

fn with_cache(common: &Common, cache: &Path) -> Common {
    Common {
        device: common.device.clone(),
        seed: common.seed,
        require_tier: common.require_tier,
        memory_limit: common.memory_limit,
        host: HostArgs {
            baselines: BaselinesArg::Default,
            require_isolation: IsolationArg::Any,
            cache: Some(cache.to_owned()),
            ..common.host.clone()
        },
        libraries: common.libraries,
    }
}

/// The device under measurement.
struct DeviceContext<'b> {
    host: &'b JudgeHost,
    pool: SessionPool<'b>,
    /// Set when the user wants to stop.
    stop: Arc<AtomicBool>,
}

impl DeviceContext<'_> {
    /// Judges a new candidate.
    fn judged(&self, subject: &mut Subject, form: Form) -> Result<Verdict, Failure> {
        let candidate = subject.candidate(form);
        self.verified(&subject.task, &candidate)
    }

    /// Verifies and measures a candidate. An unverified candidate takes less time, so it is a
    /// failure here.
    fn verified(&self, task: &Task, candidate: &Candidate) -> Result<Verdict, Failure> {
        self.go_on()?;
        let verdict = self.pool.verdict(task, candidate, Stage::Measured)?;
        if verdict.verified {
            return Ok(verdict);
        }
        let why = verdict.failure.map_or_else(|| "not verified".to_owned(), |f| f.message);
        Err(Failure::infrastructure(
            format!("failed to verify the benchmark's own candidate: {why}"),
            "run `warpwright doctor`".to_owned(),
        ))
    }

    /// Fails when the user wants to stop.
    fn go_on(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::SeqCst) { Err(Failure::interrupted()) } else { Ok(()) }
    }
}

/// The median; of an even number of values, the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
