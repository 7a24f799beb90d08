//! From the queue to workers of other hosts, and back.

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

/// How often it is looked who has gone, and whether all is over.
const LOOK: Duration = Duration::from_millis(200);
/// Leases that a worker may be silent for before it counts as gone.
const SILENT: u32 = 2;
/// And at least: connections are made anew in seconds.
const SILENT_LEAST: Duration = Duration::from_secs(6);
/// Answers that are asked for at once, and for how long.
const ANSWERS: usize = 64;
const ASKING: Duration = Duration::from_secs(1);
/// How long is left to tell NATS that what nobody waits for need not be judged.
const FAREWELL: Duration = Duration::from_secs(2);

/// One server's way to workers of other hosts.
#[derive(Debug)]
pub struct Bridge {
    runtime: Runtime,
    pub(super) link: Link,
    files: Files,
    version: String,
    rules: String,
    /// Of whoever judges; of a server without devices of its own that of the first worker.
    hardware: Mutex<Option<String>>,
    server: String,
    roster: Arc<Roster>,
}

/// What is under way elsewhere.
struct Out<'q> {
    leased: Leased<'q>,
    order: Option<Order>,
    /// Who began it.
    workers: Vec<String>,
}

/// Room for jobs elsewhere.
#[derive(Debug, Default)]
struct Room {
    /// Jobs that workers take at once.
    slots: AtomicUsize,
    /// Jobs that were taken from the queue.
    out: AtomicUsize,
}

/// An order, and who began it.
pub(super) type Asked = (Order, Vec<String>);

/// What was waited for.
enum Came {
    /// An order lies in NATS, or could not be put there.
    Published(String, Result<Order, String>),
    /// An answer, and the message that brought it.
    Answered(Box<Message>, String, Answer),
}

impl Bridge {
    /// Connects. Workers must be of this version and these rules, and of the hardware, if one is named.
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

    /// Who is there.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }

    /// Works on the queue by the hands of others, until `is_over`, or until the queue has ended and what was
    /// taken is judged.
    pub fn run(&self, queue: &Queue, is_over: &AtomicBool) {
        let room = Room::default();
        let done = AtomicBool::new(false);
        let (give, taken) = mpsc::unbounded_channel();
        std::thread::scope(|scope| {
            let (room, done) = (&room, &done);
            scope.spawn(move || {
                let ready = || {
                    if done.load(Ordering::SeqCst) {
                        return Ready::Never;
                    }
                    let is_room =
                        room.out.load(Ordering::SeqCst) < room.slots.load(Ordering::SeqCst);
                    if is_room { Ready::Yes } else { Ready::NotYet }
                };
                while let Some(leased) = queue.take_when(Station::ELSEWHERE, ready) {
                    room.out.fetch_add(1, Ordering::SeqCst);
                    if give.send(leased).is_err() {
                        return;
                    }
                }
            });
            self.runtime.block_on(async {
                let mut pump = Pump::new(self, queue, room);
                let (tell, answers) = mpsc::channel(ANSWERS);
                tokio::select! {
                    () = pump.run(taken, answers, is_over) => {}
                    () = self.listen(tell) => {}
                }
                done.store(true, Ordering::SeqCst);
                queue.nudge();
                pump.end().await;
            });
        });
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        let hardware = self.hardware.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Kind { version: self.version.clone(), rules: self.rules.clone(), hardware })
    }

    /// What a worker is told, who came.
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

    /// Puts a job where workers find it.
    async fn publish(&self, id: &str, job: &Job) -> Result<Order, String> {
        let kind = self.kind().ok_or("nobody is there")?;
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

    /// Nobody waits for what lies there any more.
    async fn withdraw(&self) {
        let Some(kind) = self.kind() else { return };
        let subject = self.link.job_subject(&kind.word(), &self.server);
        let _ = self.link.jobs.purge().filter(subject).await;
    }

    /// Brings what workers answer, for ever.
    async fn listen(&self, tell: mpsc::Sender<Message>) {
        loop {
            // Also after NATS began anew.
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

    async fn read(&self, message: Message, note: Note, asked: Option<Asked>) -> Came {
        let answer = match note.outcome {
            Outcome::Answer(file) => match files::get(&self.link, &self.link.files, &file).await {
                Ok(content) => serde_json::from_slice(&content).unwrap_or_else(|error| {
                    Err(Failed::ours(format!("failed to read an answer: {error}")))
                }),
                Err(error) => Err(Failed::ours(format!("failed to read an answer: {error}"))),
            },
            Outcome::Exhausted(deliveries) => Err(self.park(asked, &note.id, deliveries).await),
        };
        Came::Answered(Box::new(message), note.id, answer)
    }
}

/// A worker that is there.
struct Present<'q> {
    seen: Instant,
    at_work: Vec<AtWork<'q>>,
}

/// What the bridge is at: all that may come is looked at in one place, one after the other.
struct Pump<'p, 'q> {
    bridge: &'p Bridge,
    queue: &'q Queue,
    room: &'p Room,
    /// By the number of its order.
    out: HashMap<String, Out<'q>>,
    /// By name.
    workers: BTreeMap<String, Present<'q>>,
    coming: FuturesUnordered<BoxFuture<'p, Came>>,
    /// Since when NATS has been there.
    connected: Option<Instant>,
}

impl<'p, 'q> Pump<'p, 'q> {
    fn new(bridge: &'p Bridge, queue: &'q Queue, room: &'p Room) -> Self {
        Self {
            bridge,
            queue,
            room,
            out: HashMap::new(),
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
        while takes || !self.out.is_empty() {
            tokio::select! {
                leased = taken.recv(), if takes => match leased {
                    Some(leased) => self.send(leased),
                    None => takes = false,
                },
                Some(message) = begun.next() => {
                    if let Ok(begun) = serde_json::from_slice::<Begun>(&message.payload)
                        && let Some(out) = self.out.get_mut(&begun.id)
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

    /// Gives a job to NATS.
    fn send(&mut self, leased: Leased<'q>) {
        if self.workers.is_empty() {
            self.room.out.fetch_sub(1, Ordering::SeqCst);
            if self.queue.load().workers > 0 {
                leased.give_back();
            } else {
                leased.end(Err(Failed::ours("failed to judge: every device is gone")));
            }
            return;
        }
        let id = fresh_name();
        let job = leased.shared_job();
        self.out.insert(id.clone(), Out { leased, order: None, workers: Vec::new() });
        let bridge = self.bridge;
        self.coming.push(Box::pin(async move {
            let published = bridge.publish(&id, &job).await;
            Came::Published(id, published)
        }));
    }

    /// Who says that it is there.
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
            // None is taken again for those who have gone.
            self.room.slots.store(0, Ordering::SeqCst);
            // Before nobody is there: somebody else, here or later elsewhere, is to judge them.
            for (_, out) in self.out.drain() {
                self.room.out.fetch_sub(1, Ordering::SeqCst);
                out.leased.give_back();
            }
        }
        // Before its place is given up: whoever is told that nobody judges any more finds nobody there.
        self.bridge.roster.went(worker);
        self.workers.remove(worker);
    }

    fn count(&self) {
        let slots = self.workers.values().map(|present| present.at_work.len()).sum();
        self.room.slots.store(slots, Ordering::SeqCst);
        self.queue.nudge();
    }

    /// Finds out who has gone without a word. While NATS is away nobody can say one.
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
        let out = self.out.get(&note.id);
        let asked = out.and_then(|out| out.order.clone().map(|order| (order, out.workers.clone())));
        self.coming.push(Box::pin(self.bridge.read(message, note, asked)));
    }

    async fn came(&mut self, came: Came) {
        match came {
            Came::Published(id, Ok(order)) => {
                if let Some(out) = self.out.get_mut(&id) {
                    out.order = Some(order);
                }
            }
            Came::Published(id, Err(_)) => {
                if let Some(out) = self.out.remove(&id) {
                    self.room.out.fetch_sub(1, Ordering::SeqCst);
                    out.leased.give_back();
                }
            }
            Came::Answered(message, id, answer) => {
                // What was answered before, or is judged elsewhere by now, has nobody who waits for it.
                if let Some(out) = self.out.remove(&id) {
                    self.room.out.fetch_sub(1, Ordering::SeqCst);
                    out.leased.end(answer);
                }
                let _ = message.ack().await;
            }
        }
    }

    /// Nothing more is waited for.
    async fn end(mut self) {
        for (_, out) in self.out.drain() {
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
