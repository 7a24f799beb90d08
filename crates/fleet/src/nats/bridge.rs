//! The bridge: from the queue to remote workers, and back.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::connection::State as Line;
use async_nats::jetstream::Message;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::files::{self, Files};
use super::kind::Kind;
use super::link::{Link, LinkConfig, LinkError, fresh_name};
use super::notes::{Begun, Greeting, Note, Order, Outcome, Presence};
use super::roster::Roster;
use super::worker::{contents, json};
use crate::job::{Answer, Failed, Job};
use crate::queue::{AtWork, Leased, Queue, Ready, Station};

/// Interval of the checks for lost workers and for the end.
const LOOK: Duration = Duration::from_millis(200);
/// Leases without a heartbeat after which a worker counts as lost.
const SILENT: u32 = 2;
/// Lower limit of the same: a reconnect takes seconds.
const SILENT_LEAST: Duration = Duration::from_secs(6);
/// Answers per request, and the request's timeout.
const ANSWERS: usize = 64;
const ASKING: Duration = Duration::from_secs(1);
/// Timeout of withdrawing the jobs of clients that are gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// One server's connection to its remote workers.
#[derive(Debug)]
pub struct Bridge {
    runtime: Runtime,
    pub(super) link: Link,
    files: Files,
    version: String,
    rules: String,
    /// Hardware of the devices; on a server without devices, that of the first worker.
    hardware: Mutex<Option<String>>,
    server: String,
    roster: Arc<Roster>,
}

/// A job that a remote worker has or will get.
struct InFlight<'q> {
    leased: Leased<'q>,
    order: Option<Order>,
    /// Workers that began it.
    workers: Vec<String>,
}

/// Capacity of the remote workers.
#[derive(Debug, Default)]
struct Capacity {
    /// Jobs that the workers judge concurrently.
    slots: AtomicUsize,
    /// Jobs that were taken from the queue and have not ended.
    in_flight: AtomicUsize,
}

/// An order, and the workers that began it.
pub(super) type Asked = (Order, Vec<String>);

/// A finished NATS operation.
enum Completed {
    /// An order was published, or could not be.
    Published(String, Result<Order, String>),
    /// An answer, and the message that brought it.
    Answered(Box<Message>, String, Answer),
}

impl Bridge {
    /// Connects. Workers must have this version and these rules, and this hardware if one is given.
    pub fn open(
        config: &LinkConfig,
        version: &str,
        rules: &str,
        hardware: Option<&str>,
    ) -> Result<Self, LinkError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let link = runtime.block_on(Link::open(config))?;
        Ok(Self {
            runtime,
            link,
            files: Files::default(),
            version: version.to_owned(),
            rules: rules.to_owned(),
            hardware: Mutex::new(hardware.map(str::to_owned)),
            server: fresh_name(),
            roster: Arc::default(),
        })
    }

    /// The connected workers.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }

    /// Sends the queue's jobs to remote workers, until `is_over` is set, or until the queue has ended and every
    /// taken job is judged.
    pub fn run(&self, queue: &Queue, is_over: &AtomicBool) {
        let capacity = Capacity::default();
        let done = AtomicBool::new(false);
        let (give, taken) = mpsc::unbounded_channel();
        std::thread::scope(|scope| {
            let (capacity, done) = (&capacity, &done);
            scope.spawn(move || {
                let ready = || {
                    if done.load(Ordering::SeqCst) {
                        return Ready::Never;
                    }
                    let is_room = capacity.in_flight.load(Ordering::SeqCst)
                        < capacity.slots.load(Ordering::SeqCst);
                    if is_room { Ready::Yes } else { Ready::NotYet }
                };
                while let Some(leased) = queue.take_when(Station::ELSEWHERE, ready) {
                    capacity.in_flight.fetch_add(1, Ordering::SeqCst);
                    if give.send(leased).is_err() {
                        return;
                    }
                }
            });
            self.runtime.block_on(async {
                let mut events = EventLoop::new(self, queue, capacity);
                let (tell, answers) = mpsc::channel(ANSWERS);
                tokio::select! {
                    () = events.run(taken, answers, is_over) => {}
                    () = self.listen(tell) => {}
                }
                done.store(true, Ordering::SeqCst);
                queue.nudge();
                events.end().await;
            });
        });
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        let hardware = self.hardware.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Kind { version: self.version.clone(), rules: self.rules.clone(), hardware })
    }

    /// The reply to a worker's heartbeat.
    fn greet(&self, presence: &Presence) -> Greeting {
        let mut hardware = self.hardware.lock().unwrap_or_else(PoisonError::into_inner);
        let found = &presence.kind;
        let wanted = Kind {
            version: self.version.clone(),
            rules: self.rules.clone(),
            hardware: hardware.clone().unwrap_or_else(|| found.hardware.clone()),
        };
        if let Some(why) = wanted.objection(found) {
            return Greeting::Refused(why);
        }
        *hardware = Some(wanted.hardware);
        Greeting::Welcome
    }

    /// Publishes a job for the workers.
    async fn publish(&self, id: &str, job: &Job) -> Result<Order, String> {
        let kind = self.kind().ok_or("no remote worker is connected")?;
        let (task, candidate) = contents(job)?;
        let put = async |content: &[u8]| self.files.put(&self.link, content).await;
        let order = Order {
            id: id.to_owned(),
            server: self.server.clone(),
            name: job.task.name.clone(),
            task: put(&task).await.map_err(|error| error.to_string())?,
            candidate: put(&candidate).await.map_err(|error| error.to_string())?,
            stage: job.stage,
            fresh: job.fresh,
        };
        let subject = self.link.job_subject(&kind.word(), &self.server);
        self.link.publish(subject, json(&order), Some(id)).await?;
        Ok(order)
    }

    /// Deletes this server's published jobs when their clients are gone.
    async fn withdraw(&self) {
        let Some(kind) = self.kind() else { return };
        let subject = self.link.job_subject(&kind.word(), &self.server);
        let _ = self.link.jobs.purge().filter(subject).await;
    }

    /// Receives the workers' answers, for ever.
    async fn listen(&self, tell: mpsc::Sender<Message>) {
        loop {
            // Also after a restart of NATS.
            let consumer = self.link.answer_consumer(&self.server).await;
            let Ok(consumer) = consumer else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            loop {
                let asked = consumer.fetch().max_messages(ANSWERS).expires(ASKING).messages();
                let Ok(Ok(mut batch)) = tokio::time::timeout(ASKING * 3, asked).await else {
                    break;
                };
                let mut is_whole = true;
                // A batch ends by itself, unless the connection broke.
                while let Ok(came) = tokio::time::timeout(ASKING * 3, batch.next()).await {
                    match came {
                        Some(Ok(message)) => {
                            // Its reader ends first only when all is over.
                            let _ = tell.send(message).await;
                        }
                        Some(Err(_)) => is_whole = false,
                        None => break,
                    }
                }
                if !is_whole || self.link.client.connection_state() != Line::Connected {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn read(&self, message: Message, note: Note, asked: Option<Asked>) -> Completed {
        let answer = match note.outcome {
            Outcome::Answer(file) => match files::get(&self.link, &self.link.files, &file).await {
                Ok(content) => serde_json::from_slice(&content).unwrap_or_else(|error| {
                    Err(Failed::ours(format!("failed to read an answer: {error}")))
                }),
                Err(error) => Err(Failed::ours(format!("failed to read an answer: {error}"))),
            },
            Outcome::Exhausted(deliveries) => {
                Err(self.dead_letter(asked, &note.id, deliveries).await)
            }
        };
        Completed::Answered(Box::new(message), note.id, answer)
    }
}

/// A connected worker.
struct Present<'q> {
    seen: Instant,
    at_work: Vec<AtWork<'q>>,
}

/// The bridge's event loop: it handles every event, one after the other.
struct EventLoop<'p, 'q> {
    bridge: &'p Bridge,
    queue: &'q Queue,
    capacity: &'p Capacity,
    /// By the id of its order.
    in_flight: HashMap<String, InFlight<'q>>,
    /// By name.
    workers: BTreeMap<String, Present<'q>>,
    coming: FuturesUnordered<BoxFuture<'p, Completed>>,
    /// Since when NATS has been connected.
    connected: Option<Instant>,
}

impl<'p, 'q> EventLoop<'p, 'q> {
    fn new(bridge: &'p Bridge, queue: &'q Queue, capacity: &'p Capacity) -> Self {
        Self {
            bridge,
            queue,
            capacity,
            in_flight: HashMap::new(),
            workers: BTreeMap::new(),
            coming: FuturesUnordered::new(),
            connected: None,
        }
    }

    async fn run(
        &mut self,
        mut taken: mpsc::UnboundedReceiver<Leased<'q>>,
        mut answers: mpsc::Receiver<Message>,
        is_over: &AtomicBool,
    ) {
        let link = &self.bridge.link;
        let begun = link.client.subscribe(link.begun_subject(&self.bridge.server)).await;
        let presence = link.client.subscribe(link.presence_subject()).await;
        // They fail only where the connection was closed by ourselves.
        let (Ok(mut begun), Ok(mut presence)) = (begun, presence) else { return };
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut takes = true;
        while takes || !self.in_flight.is_empty() {
            tokio::select! {
                leased = taken.recv(), if takes => match leased {
                    Some(leased) => self.send(leased),
                    None => takes = false,
                },
                Some(message) = begun.next() => {
                    if let Ok(begun) = serde_json::from_slice::<Begun>(&message.payload)
                        && let Some(out) = self.in_flight.get_mut(&begun.id)
                    {
                        out.workers.push(begun.worker);
                        out.leased.started();
                    }
                }
                Some(message) = presence.next() => {
                    if let Ok(present) = serde_json::from_slice::<Presence>(&message.payload) {
                        let greeting = self.meet(present);
                        if let Some(reply) = message.reply {
                            let _ = link.client.publish(reply, json(&greeting)).await;
                        }
                    }
                }
                Some(message) = answers.recv() => self.answered(message),
                Some(came) = self.coming.next(), if !self.coming.is_empty() => self.came(came).await,
                _ = look.tick() => {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    self.miss().await;
                }
            }
        }
    }

    /// Publishes a job to NATS.
    fn send(&mut self, leased: Leased<'q>) {
        if self.workers.is_empty() {
            self.capacity.in_flight.fetch_sub(1, Ordering::SeqCst);
            if self.queue.load().workers > 0 {
                leased.give_back();
            } else {
                leased.end(Err(Failed::ours("failed to judge: every device is lost")));
            }
            return;
        }
        let id = fresh_name();
        let job = leased.shared_job();
        let in_flight = InFlight { leased, order: None, workers: Vec::new() };
        self.in_flight.insert(id.clone(), in_flight);
        let bridge = self.bridge;
        self.coming.push(Box::pin(async move {
            let published = bridge.publish(&id, &job).await;
            Completed::Published(id, published)
        }));
    }

    /// Handles a worker's heartbeat.
    fn meet(&mut self, presence: Presence) -> Greeting {
        let greeting = self.bridge.greet(&presence);
        if matches!(greeting, Greeting::Refused(_)) {
            return greeting;
        }
        let name = presence.worker.clone();
        let slots = if presence.leaving { 0 } else { presence.slots };
        if presence.leaving && presence.running == 0 {
            self.lose(&name);
        } else {
            let present = self.workers.entry(name);
            let present =
                present.or_insert_with(|| Present { seen: Instant::now(), at_work: Vec::new() });
            present.seen = Instant::now();
            present.at_work.truncate(slots);
            while present.at_work.len() < slots {
                present.at_work.push(self.queue.enter(Station::ELSEWHERE));
            }
            self.bridge.roster.came(presence);
        }
        self.count();
        greeting
    }

    fn lose(&mut self, worker: &str) {
        if self.workers.len() == 1 && self.workers.contains_key(worker) {
            // No job is taken for lost workers.
            self.capacity.slots.store(0, Ordering::SeqCst);
            // Before the last worker is removed: another worker, here or later, judges them.
            for (_, out) in self.in_flight.drain() {
                self.capacity.in_flight.fetch_sub(1, Ordering::SeqCst);
                out.leased.give_back();
            }
        }
        // Before its slots are released: a listener that sees the failure finds no worker in the roster.
        self.bridge.roster.went(worker);
        self.workers.remove(worker);
    }

    fn count(&self) {
        let slots = self.workers.values().map(|present| present.at_work.len()).sum();
        self.capacity.slots.store(slots, Ordering::SeqCst);
        self.queue.nudge();
    }

    /// Removes workers without heartbeats. While NATS is away no heartbeat can arrive.
    async fn miss(&mut self) {
        let link = &self.bridge.link;
        if link.client.connection_state() != Line::Connected {
            self.connected = None;
            return;
        }
        let connected = *self.connected.get_or_insert_with(Instant::now);
        let silent =
            |seen: Instant| seen.max(connected).elapsed() > (link.lease * SILENT).max(SILENT_LEAST);
        let gone: Vec<String> = self
            .workers
            .iter()
            .filter(|(_, present)| silent(present.seen))
            .map(|(name, _)| name.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        for worker in &gone {
            self.lose(worker);
        }
        self.count();
        if self.workers.is_empty() {
            let _ = tokio::time::timeout(FAREWELL, self.bridge.withdraw()).await;
        }
    }

    fn answered(&mut self, message: Message) {
        let Ok(note) = serde_json::from_slice::<Note>(&message.payload) else { return };
        let out = self.in_flight.get(&note.id);
        let asked = out.and_then(|out| out.order.clone().map(|order| (order, out.workers.clone())));
        self.coming.push(Box::pin(self.bridge.read(message, note, asked)));
    }

    async fn came(&mut self, came: Completed) {
        match came {
            Completed::Published(id, Ok(order)) => {
                if let Some(out) = self.in_flight.get_mut(&id) {
                    out.order = Some(order);
                }
            }
            Completed::Published(id, Err(_)) => {
                if let Some(out) = self.in_flight.remove(&id) {
                    self.capacity.in_flight.fetch_sub(1, Ordering::SeqCst);
                    out.leased.give_back();
                }
            }
            Completed::Answered(message, id, answer) => {
                // A second answer is discarded.
                if let Some(out) = self.in_flight.remove(&id) {
                    self.capacity.in_flight.fetch_sub(1, Ordering::SeqCst);
                    out.leased.end(answer);
                }
                let _ = message.ack().await;
            }
        }
    }

    /// Ends every job in flight, and withdraws it from NATS.
    async fn end(mut self) {
        for (_, out) in self.in_flight.drain() {
            out.leased.end(Err(Failed::Ending));
        }
        self.workers.clear();
        let bridge = self.bridge;
        let farewell = async {
            bridge.withdraw().await;
            let _ = bridge.link.answers.delete_consumer(&format!("server-{}", bridge.server)).await;
            let answers = bridge.link.answer_subject(&bridge.server);
            let _ = bridge.link.answers.purge().filter(answers).await;
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}
