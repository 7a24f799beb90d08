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
//! are opened before anything is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpwright_fleet::nats::{Bridge, FarWorker, Kind, LinkConfig};
use warpwright_fleet::{Done, Job, Limits, Queue, Station};
use warpwright_judge::SessionPool;
use warpwright_record::verdict::{PhaseSeconds, Profile, Stage, Verdict};
use warpwright_serve::{App, JudgeRequest, Served, SessionLimits, Settings, Tokens, router, serve};
use warpwright_task::Task;

use super::table::STAGES;
use super::{Form, Subject, median, own_cache, sessions, subjects, with_cache};
use crate::args::Common;
use crate::client::Client;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::judging::{Bench, Wanted};
use crate::printer::Printer;
use crate::{device_use, hands, interrupt};

/// Clients for each hand: the queue is never empty before the end.
const CLIENTS: usize = 2;
/// How long an answer is waited for.
const DEADLINE: Duration = Duration::from_hours(1);
/// Who waits longer than this for baselines, seconds, is not told that they are there.
const PREPARED: f64 = 0.01;
/// How long a worker may take to be there.
const COMING: Duration = Duration::from_secs(30);

/// What to measure.
pub(crate) struct ServingPlan {
    /// Candidates each time.
    pub(crate) candidates: usize,
    /// Times that each way is gone.
    pub(crate) rounds: usize,
    pub(crate) stage: Stage,
    /// Where NATS is, if it is to be measured.
    pub(crate) nats: Option<String>,
}

/// How the judge is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Here,
    Http,
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
    candidates: usize,
    stage: Stage,
    ways: Vec<Gone>,
}

/// A way, and how fast it was.
#[derive(Debug, Serialize)]
struct Gone {
    way: Way,
    /// Verdicts a second, by round.
    rates: Vec<f64>,
    /// Each over that of the judge here in the same round.
    ratios: Vec<f64>,
    /// What each verdict took, by round: what devices share, such as the host, makes these longer.
    stages: Vec<Vec<PhaseSeconds>>,
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
        pools: &pools,
        tasks: subjects.iter().map(|subject| subject.task.clone()).collect(),
        devices: benches.iter().map(Bench::device).collect(),
        hardware: hardware.unwrap_or_default(),
        rules: wanted.rules(),
        stages: Mutex::default(),
        stop: &stop,
        printer,
    };
    printer.say(&format!("opening {} tasks on {}", subjects.len(), at.devices.join(", ")));
    let one_each: Vec<Job> = subjects.iter_mut().map(|subject| job(subject, plan.stage)).collect();
    at.go(Way::Here, &one_each, None)?;
    let mut report = ServingReport {
        version: VERSION,
        devices: at.devices.clone(),
        hardware: at.hardware.clone(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        hands: hands::count(&at.pools(Way::Here)),
        candidates: plan.candidates,
        stage: plan.stage,
        ways: Vec::new(),
    };
    let ways = [
        Some(Way::Here),
        Some(Way::Http),
        plan.nats.as_ref().map(|_| Way::Nats),
        (pools.len() > 1).then_some(Way::HttpOneDevice),
    ];
    let gone = |way| Gone { way, rates: Vec::new(), ratios: Vec::new(), stages: Vec::new() };
    report.ways = ways.into_iter().flatten().map(gone).collect();
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
            let jobs: Vec<Job> = (0..(plan.candidates / step).max(1))
                .map(|number| job(&mut subjects[number * step % tasks], plan.stage))
                .collect();
            let before: Vec<_> = benches.iter().map(|bench| bench.judge.device_use()).collect();
            let (seconds, stages) = at.go(way, &jobs, plan.nats.as_deref())?;
            let rate = jobs.len() as f64 / seconds;
            printer.say(&format!("round {}: {rate:.2} a second {}", round + 1, way.name()));
            for (bench, before) in benches.iter().zip(before) {
                let used = bench.judge.device_use() - before;
                let of = Duration::from_secs_f64(seconds);
                printer.say(&device_use::describe(&bench.device(), &used, of));
            }
            printer.say(&tell_stages(&stages));
            report.ways[index].rates.push(rate);
            report.ways[index].stages.push(stages);
        }
        let here = report.ways[0].rates[round];
        for way in &mut report.ways {
            way.ratios.push(way.rates[round] / here);
        }
    }
    Ok(report)
}

/// What a verdict took, in the median, and how many waited for baselines: their task had to be opened once more.
fn tell_stages(stages: &[PhaseSeconds]) -> String {
    let each =
        STAGES.map(|(name, of)| format!("{name} {:.2} s", median(stages.iter().map(of).collect())));
    let opened = stages.iter().filter(|seconds| seconds.baselines > PREPARED).count();
    format!(
        "a verdict in the median: {}; tasks opened again: {opened} in {} verdicts",
        each.join(", "),
        stages.len()
    )
}

fn job(subject: &mut Subject, stage: Stage) -> Job {
    let candidate = subject.candidate(Form::Launcher);
    Job { task: subject.task.clone(), candidate, stage, fresh: false }
}

fn wrong(why: &str) -> Failure {
    let hint = "run `warpwright doctor`".to_owned();
    Failure::infrastructure(
        format!("failed to judge the benchmark's own candidate as right: {why}"),
        hint,
    )
}

/// Where it is measured.
struct Site<'p> {
    pools: &'p [SessionPool<'p>],
    /// As many as all devices together keep open.
    tasks: Vec<Task>,
    devices: Vec<String>,
    hardware: String,
    rules: String,
    /// What the verdicts of the way that is gone took.
    stages: Mutex<Vec<PhaseSeconds>>,
    stop: &'p AtomicBool,
    printer: Printer,
}

impl<'p> Site<'p> {
    /// Finds the candidate right, and notes what that took.
    fn note(&self, verdict: &Verdict) -> Result<(), Failure> {
        if !verdict.verified {
            return Err(wrong("it was not verified"));
        }
        self.stages().push(verdict.seconds);
        Ok(())
    }

    /// Seconds that all jobs took, and what each verdict did.
    fn go(
        &self,
        way: Way,
        jobs: &[Job],
        nats: Option<&str>,
    ) -> Result<(f64, Vec<PhaseSeconds>), Failure> {
        let pools = self.pools(way);
        let seconds = match way {
            Way::Here => self.here(&pools, jobs),
            Way::Http | Way::HttpOneDevice => self.served(&pools, jobs, None),
            Way::Nats => self.served(&pools, jobs, nats),
        }?;
        Ok((seconds, std::mem::take(&mut *self.stages())))
    }

    fn stages(&self) -> MutexGuard<'_, Vec<PhaseSeconds>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pools(&self, way: Way) -> Vec<&'p SessionPool<'p>> {
        let most = if way == Way::HttpOneDevice { 1 } else { self.pools.len() };
        self.pools.iter().take(most).collect()
    }

    /// A queue that knows where tasks are open: they are dealt out to the devices.
    fn queue(&self, jobs: usize) -> Arc<Queue> {
        let queue = Queue::new(Limits { waiting: jobs + 1, per_client: jobs + 1 });
        for (number, task) in self.tasks.iter().enumerate() {
            queue.settle(Station(number % self.pools.len()), task);
        }
        Arc::new(queue)
    }

    fn go_on(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::SeqCst) { Err(Failure::interrupted()) } else { Ok(()) }
    }

    fn here(&self, pools: &[&SessionPool<'_>], jobs: &[Job]) -> Result<f64, Failure> {
        let queue = self.queue(jobs.len());
        std::thread::scope(|scope| {
            hands::start(scope, pools, &queue, self.stop);
            let begun = Instant::now();
            let clients = CLIENTS * hands::count(pools);
            let judged = self.each(clients, jobs, |job| match hands::through(&queue, job) {
                Done::Answered(Ok(verdict)) => self.note(&verdict),
                Done::Answered(Err(failed)) => Err(wrong(&failed.to_string())),
                Done::Gone => Err(wrong("every device is gone")),
            });
            queue.abandon();
            judged.map(|()| begun.elapsed().as_secs_f64())
        })
    }

    /// All jobs, by so many threads.
    fn each(
        &self,
        threads: usize,
        jobs: &[Job],
        ask: impl Fn(&Job) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let client = || {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.go_on()?;
                ask(job)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(client)).collect();
            all.into_iter().try_for_each(|one| one.join().map_err(|_| wrong("a thread died"))?)
        })
    }

    /// Asked by clients over HTTP, and judged by hands here, or by those of a worker beyond NATS.
    fn served(
        &self,
        pools: &[&SessionPool<'_>],
        jobs: &[Job],
        nats: Option<&str>,
    ) -> Result<f64, Failure> {
        let io = |error: std::io::Error| Failure::io("serve", &error);
        // The worker's own beyond NATS.
        let (queue, nearby) = (self.queue(jobs.len()), self.queue(jobs.len()));
        let app = App::new(self.settings(), Arc::clone(&queue));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
        let url = format!("http://{}", listener.local_addr().map_err(io)?);
        let client = Client::new(&url, None)?;
        let far = nats.map(|nats| self.far(nats)).transpose()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(io)?;
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_over, queue, nearby) = (&is_over, &queue, &nearby);
            if let Some((bridge, worker)) = &far {
                hands::start(scope, pools, nearby, self.stop);
                let slots = hands::slots(nearby, hands::count(pools));
                scope.spawn(move || worker.run(&slots, is_over, |text| self.printer.say(text)));
                scope.spawn(move || bridge.run(queue, is_over));
            } else {
                hands::start(scope, pools, queue, self.stop);
            }
            let stopped = async {
                let _ = ended.await;
            };
            let server =
                serve(listener, Arc::clone(&app), router(Arc::clone(&app)), stopped, COMING);
            let server = runtime.spawn(server);
            let asked = self.asked(
                CLIENTS * hands::count(pools),
                jobs,
                &client,
                far.as_ref().map(|(bridge, _)| bridge),
            );
            let _ = end.send(());
            let ended = runtime.block_on(server);
            queue.abandon();
            nearby.abandon();
            is_over.store(true, Ordering::SeqCst);
            let seconds = asked?;
            ended.map_err(std::io::Error::other).flatten().map_err(io)?;
            Ok(seconds)
        })
    }

    fn asked(
        &self,
        clients: usize,
        jobs: &[Job],
        client: &Client,
        bridge: Option<&Bridge>,
    ) -> Result<f64, Failure> {
        let until = Instant::now() + COMING;
        while bridge.is_some_and(|bridge| bridge.roster().there().is_empty()) {
            self.go_on()?;
            if Instant::now() > until {
                return Err(wrong("the worker did not come"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        self.each(clients, jobs, |job| {
            let answer = client.judge(request(job), DEADLINE, self.printer)?;
            match (answer.verdict, answer.infra_error) {
                (Some(verdict), _) => self.note(&verdict),
                (_, Some(error)) => Err(wrong(&error.message)),
                _ => Err(wrong("it was not verified")),
            }
        })?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Both ends of a way over NATS.
    fn far(&self, nats: &str) -> Result<(Bridge, FarWorker), Failure> {
        let config = LinkConfig {
            url: nats.to_owned(),
            fleet: "bench".to_owned(),
            lease: Duration::from_secs(20),
        };
        let version = env!("CARGO_PKG_VERSION");
        let kind = Kind {
            version: version.to_owned(),
            rules: self.rules.clone(),
            hardware: self.hardware.clone(),
        };
        let bridge = Bridge::open(&config, version, &self.rules, Some(&self.hardware))?;
        Ok((bridge, FarWorker::open(&config, kind, "bench", self.devices.clone())?))
    }

    fn settings(&self) -> Settings {
        let served =
            |device: &String| Served { device: device.clone(), hardware: self.hardware.clone() };
        Settings {
            tokens: Tokens::none(),
            tasks: BTreeMap::new(),
            served: self.devices.iter().map(served).collect(),
            profile: Profile::Strict,
            body_bytes: 1 << 20,
            body_time: COMING,
            deadline: DEADLINE,
            batch: 1,
            replay_time: DEADLINE,
            replay_bytes: 64 << 20,
            sessions: SessionLimits { most: 0, per_client: 0, idle: DEADLINE },
            skill: String::new(),
        }
    }
}

fn request(job: &Job) -> JudgeRequest {
    let files = job.candidate.files().iter();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    JudgeRequest {
        task: job.task.name.clone(),
        reference: Some(job.task.source.clone()),
        files: files.map(|(name, bytes)| (name.clone(), text(bytes))).collect(),
        stage: job.stage,
        reward: warpwright_record::verdict::Scheme::default(),
        fresh: job.fresh,
        deadline_seconds: None,
    }
}

/// A table for people.
pub(crate) fn render(report: &ServingReport) -> String {
    let mut text = format!(
        "{}: {}, {} cores; {} candidates each time to stage {:?}, {} at once\n\n{:<24}{:>26}{:>34}\n",
        report.devices.join(", "),
        report.hardware,
        report.cores,
        report.candidates,
        report.stage,
        report.hands,
        "Asked",
        "verdicts a second (median)",
        "of the judge here (each round)"
    );
    for way in &report.ways {
        let percent = |ratio: &f64| format!("{:.1} %", 100.0 * ratio);
        let ratios: Vec<String> = way.ratios.iter().map(percent).collect();
        let ratios = if way.way == Way::Here { String::new() } else { ratios.join(", ") };
        let rate = median(way.rates.clone());
        let _ = writeln!(text, "{:<24}{rate:>26.2}{ratios:>34}", format!("  {}", way.way.name()));
    }
    text
}
