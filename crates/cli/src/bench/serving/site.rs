//! The judge under measurement, and every transport to it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_fleet::nats::{Bridge, Kind, LinkConfig, RemoteWorker};
use warpwright_fleet::{Done, Job, Limits, Queue, Station};
use warpwright_judge::{SessionPool, Used};
use warpwright_record::verdict::{PhaseSeconds, Profile, Verdict};
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::judge_workers;
use warpwright_serve::{App, JudgeRequest, Served, SessionLimits, Settings, Tokens, router, serve};
use warpwright_task::Task;

use super::Transport;
use crate::client::Client;
use crate::failure::Failure;
use crate::printer::Printer;

/// Clients per judge worker: the queue is never empty before the end.
const CLIENTS: usize = 2;
/// Queue limit, above the number of clients.
const MOST: usize = 1 << 16;
/// Time limit for an answer.
const DEADLINE: Duration = Duration::from_hours(1);
/// Time limit for a worker to connect.
const COMING: Duration = Duration::from_secs(30);
/// Interval of checking whether the span is over.
const TICK: Duration = Duration::from_millis(20);

/// The span of time whose verdicts count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Verdicts before this time do not count.
    pub(super) warm: Duration,
    /// Length of the counted span after that. Requests without a verdict at its end are abandoned.
    pub(super) counted: Duration,
}

/// The jobs to judge, until none is left or the span is over.
pub(super) struct Supply<'s> {
    next: Mutex<&'s mut (dyn FnMut() -> Option<Job> + Send)>,
    span: Option<Span>,
}

impl<'s> Supply<'s> {
    /// Without a span every verdict counts.
    pub(super) const fn new(
        next: &'s mut (dyn FnMut() -> Option<Job> + Send),
        span: Option<Span>,
    ) -> Self {
        Self { next: Mutex::new(next), span }
    }

    /// The time range whose verdicts count.
    fn counts(&self, begun: Instant) -> Option<Range<Instant>> {
        self.span.map(|Span { warm, counted }| begun + warm..begun + warm + counted)
    }
}

/// Stage times of the counted verdicts, and their completion times in seconds from the beginning.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) stages: Vec<PhaseSeconds>,
    pub(super) completed: Vec<f64>,
    /// Use of the devices during the span, if there is one.
    pub(super) used: Vec<Used>,
}

/// The judge under measurement.
pub(super) struct Site<'p> {
    pub(super) hosts: &'p [JudgeHost],
    pub(super) pools: &'p [SessionPool<'p>],
    /// As many tasks as all devices together keep open.
    pub(super) tasks: Vec<Task>,
    pub(super) hardware: String,
    pub(super) rules: String,
    /// The verdicts of the current transport.
    pub(super) judged: Mutex<Judged>,
    pub(super) nats: Option<&'p str>,
    pub(super) stop: &'p AtomicBool,
    pub(super) printer: Printer,
}

impl<'p> Site<'p> {
    /// Judges all jobs over a transport, and returns the counted verdicts.
    pub(super) fn go(&self, transport: Transport, supply: &Supply<'_>) -> Result<Judged, Failure> {
        let pools = self.pools(transport);
        match transport {
            Transport::InProcess => self.here(&pools, supply),
            Transport::Http | Transport::HttpOneDevice => self.served(&pools, supply, None),
            Transport::Nats => self.served(&pools, supply, self.nats),
        }?;
        Ok(std::mem::take(&mut *self.judged()))
    }

    pub(super) fn devices(&self) -> Vec<String> {
        self.hosts.iter().map(JudgeHost::device).collect()
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pools(&self, transport: Transport) -> Vec<&'p SessionPool<'p>> {
        let most = if transport == Transport::HttpOneDevice { 1 } else { self.pools.len() };
        self.pools.iter().take(most).collect()
    }

    /// A queue that knows which device keeps each task open; tasks are assigned to devices in turn.
    fn queue(&self) -> Arc<Queue> {
        let queue = Queue::new(Limits { waiting: MOST, per_client: MOST });
        for (number, task) in self.tasks.iter().enumerate() {
            queue.settle(Station(number % self.pools.len()), task);
        }
        Arc::new(queue)
    }

    fn go_on(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::SeqCst) { Err(Failure::interrupted()) } else { Ok(()) }
    }

    fn here(&self, pools: &[&SessionPool<'_>], supply: &Supply<'_>) -> Result<(), Failure> {
        let queue = self.queue();
        std::thread::scope(|scope| {
            judge_workers::start(scope, pools, &queue, self.stop);
            let ask = |job: &Job, _| match judge_workers::through(&queue, job) {
                Done::Answered(Ok(verdict)) => Ok(*verdict),
                Done::Answered(Err(failed)) => Err(wrong(&failed.to_string())),
                Done::Gone => Err(wrong("every device is lost")),
            };
            let judged =
                self.each(CLIENTS * judge_workers::count(pools), supply, ask, || queue.abandon());
            queue.abandon();
            judged
        })
    }

    /// Requests verdicts for all jobs from `threads` threads. Requests that are pending when the
    /// span is over are abandoned: `over` may end them.
    fn each(
        &self,
        threads: usize,
        supply: &Supply<'_>,
        ask: impl Fn(&Job, Duration) -> Result<Verdict, Failure> + Sync,
        over: impl FnOnce() + Send,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let span = supply.counts(begun);
        let is_done = AtomicBool::new(false);
        let left = || span.as_ref().map_or(DEADLINE, |span| span.end - Instant::now());
        let client = || {
            while !left().is_zero() {
                self.go_on()?;
                let next = supply.next.lock().unwrap_or_else(PoisonError::into_inner)();
                let Some(job) = next else { break };
                let answer = ask(&job, left());
                if left().is_zero() {
                    break;
                }
                self.note(&answer?, begun, span.as_ref())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let watch = span.as_ref().map(|span| {
                let is_done = &is_done;
                scope.spawn(move || {
                    let wait = |until: Instant| {
                        while Instant::now() < until && !is_done.load(Ordering::SeqCst) {
                            std::thread::sleep(TICK.min(until - Instant::now()));
                        }
                    };
                    let used = || self.hosts.iter().map(|host| host.judge.device_use());
                    wait(span.start);
                    let before: Vec<Used> = used().collect();
                    wait(span.end);
                    let used = used().zip(before).map(|(now, before)| now - before).collect();
                    over();
                    used
                })
            });
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(client)).collect();
            let died = |_| wrong("a thread panicked");
            let asked = all.into_iter().try_for_each(|one| one.join().map_err(died)?);
            is_done.store(true, Ordering::SeqCst);
            if let Some(watch) = watch {
                self.judged().used = watch.join().map_err(died)?;
            }
            asked
        })
    }

    /// Checks that the candidate is verified, and records the times of its verdict if it counts.
    fn note(
        &self,
        verdict: &Verdict,
        begun: Instant,
        span: Option<&Range<Instant>>,
    ) -> Result<(), Failure> {
        if !verdict.verified {
            return Err(wrong("its verdict is not verified"));
        }
        let now = Instant::now();
        if span.is_none_or(|span| span.contains(&now)) {
            let mut judged = self.judged();
            judged.stages.push(verdict.seconds);
            judged.completed.push((now - begun).as_secs_f64());
        }
        Ok(())
    }

    /// Clients request verdicts over HTTP. Workers in this process or behind NATS judge.
    fn served(
        &self,
        pools: &[&SessionPool<'_>],
        supply: &Supply<'_>,
        nats: Option<&str>,
    ) -> Result<(), Failure> {
        let io = |error: std::io::Error| Failure::io("serve", &error);
        // The worker's own beyond NATS.
        let (queue, nearby) = (self.queue(), self.queue());
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
                judge_workers::start(scope, pools, nearby, self.stop);
                let slots = judge_workers::slots(nearby, judge_workers::count(pools));
                scope.spawn(move || worker.run(&slots, is_over, |text| self.printer.say(text)));
                scope.spawn(move || bridge.run(queue, is_over));
            } else {
                judge_workers::start(scope, pools, queue, self.stop);
            }
            let stopped = async {
                let _ = ended.await;
            };
            let server =
                serve(listener, Arc::clone(&app), router(Arc::clone(&app)), stopped, COMING);
            let server = runtime.spawn(server);
            let asked = self.asked(
                CLIENTS * judge_workers::count(pools),
                supply,
                &client,
                far.as_ref().map(|(bridge, _)| bridge),
            );
            let _ = end.send(());
            let ended = runtime.block_on(server);
            queue.abandon();
            nearby.abandon();
            is_over.store(true, Ordering::SeqCst);
            asked?;
            ended.map_err(std::io::Error::other).flatten().map(drop).map_err(io)
        })
    }

    fn asked(
        &self,
        clients: usize,
        supply: &Supply<'_>,
        client: &Client,
        bridge: Option<&Bridge>,
    ) -> Result<(), Failure> {
        let until = Instant::now() + COMING;
        while bridge.is_some_and(|bridge| bridge.roster().workers().is_empty()) {
            self.go_on()?;
            if Instant::now() > until {
                return Err(wrong("the NATS worker did not connect in time"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ask = |job: &Job, within: Duration| {
            let answer = client.judge(request(job), within, self.printer)?;
            match (answer.verdict, answer.infra_error) {
                (Some(verdict), _) => Ok(*verdict),
                (_, Some(error)) => Err(wrong(&error.message)),
                _ => Err(wrong("the response has no verdict")),
            }
        };
        // The server gives up what nobody waits for any more.
        self.each(clients, supply, ask, || ())
    }

    /// Both ends of the NATS transport.
    fn far(&self, nats: &str) -> Result<(Bridge, RemoteWorker), Failure> {
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
        Ok((bridge, RemoteWorker::open(&config, kind, "bench", self.devices())?))
    }

    fn settings(&self) -> Settings {
        let served = |device| Served { device, hardware: self.hardware.clone() };
        Settings {
            tokens: Tokens::none(),
            tasks: BTreeMap::new(),
            served: self.devices().into_iter().map(served).collect(),
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

fn wrong(why: &str) -> Failure {
    let hint = "run `warpwright doctor`".to_owned();
    Failure::infrastructure(format!("failed to verify the benchmark's own candidate: {why}"), hint)
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
