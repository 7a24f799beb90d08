//! A remote worker: takes orders, judges, answers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::runtime::Runtime;
use warpwright_record::candidate::Candidate;
use warpwright_task::{Mode, Task};

use super::files::{self, FileError, Files};
use super::kind::Kind;
use super::link::{Link, LinkConfig, LinkError, fresh_name};
use super::notes::{Begun, Greeting, Note, Order, Outcome, Presence};
use crate::job::{Answer, Failed, Job};
use crate::worker::Done;

/// Deliveries per order, over all workers. An order that kills every worker must not be retried for ever.
const ATTEMPTS: i64 = 3;
/// Timeout of one request for an order; between two, the worker checks whether it must stop.
const ASKING: Duration = Duration::from_secs(1);
/// Pause after NATS does not answer.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval of a worker's heartbeats.
pub(crate) const PRESENT: Duration = Duration::from_secs(1);

/// Judges one job at a time.
pub type Slot<'s> = Box<dyn Fn(&Job) -> Done + Send + Sync + 's>;

/// Why a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user stopped it.
    Asked,
    /// Every device is lost.
    Deserted,
    /// The server refused it, for this reason.
    Refused(String),
}

/// A worker that is connected to NATS.
#[derive(Debug)]
pub struct RemoteWorker {
    runtime: Runtime,
    link: Link,
    files: Files,
    kind: Kind,
    name: String,
    devices: Vec<String>,
}

impl RemoteWorker {
    /// Connects. `host` becomes part of the worker's name.
    pub fn open(
        config: &LinkConfig,
        kind: Kind,
        host: &str,
        devices: Vec<String>,
    ) -> Result<Self, LinkError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let link = runtime.block_on(Link::open(config))?;
        let name = format!("{host}-{}", &fresh_name()[..6]);
        Ok(Self { runtime, link, files: Files::default(), kind, name, devices })
    }

    /// The worker's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Judges until `stop` is set, every slot's device is lost, or the server refuses this worker. A job that was
    /// begun is finished. `tell` gets log messages for the user.
    pub fn run(&self, slots: &[Slot<'_>], stop: &AtomicBool, tell: impl Fn(&str) + Sync) -> Ended {
        let state = State {
            over: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            left: AtomicUsize::new(slots.len()),
            refused: Mutex::new(None),
        };
        std::thread::scope(|scope| {
            let (state, tell) = (&state, &tell);
            scope.spawn(move || self.runtime.block_on(self.be_present(state, slots.len(), stop)));
            for slot in slots {
                scope.spawn(move || {
                    self.work(slot, state, stop, tell);
                    state.left.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let refused = state.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        match refused {
            Some(why) => Ended::Refused(why),
            None if stop.load(Ordering::SeqCst) => Ended::Asked,
            None => Ended::Deserted,
        }
    }

    /// Sends heartbeats until every slot has ended.
    async fn be_present(&self, state: &State, slots: usize, stop: &AtomicBool) {
        loop {
            let left = state.left.load(Ordering::SeqCst);
            let leaving = left == 0 || stop.load(Ordering::SeqCst);
            let presence = Presence {
                worker: self.name.clone(),
                kind: self.kind.clone(),
                devices: self.devices.clone(),
                slots: left.min(slots),
                running: state.running.load(Ordering::SeqCst),
                leaving,
            };
            let said = self.link.client.request(self.link.presence_subject(), json(&presence));
            // An absent server, or NATS, may come back.
            if let Ok(Ok(answer)) = tokio::time::timeout(PRESENT, said).await
                && let Ok(Greeting::Refused(why)) = serde_json::from_slice(&answer.payload)
            {
                *state.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                state.over.store(true, Ordering::SeqCst);
            }
            if left == 0 {
                return;
            }
            tokio::time::sleep(PRESENT).await;
        }
    }

    fn work(&self, slot: &Slot<'_>, state: &State, stop: &AtomicBool, tell: &impl Fn(&str)) {
        let ends = || stop.load(Ordering::SeqCst) || state.over.load(Ordering::SeqCst);
        let mut consumer = None;
        while !ends() {
            let Some(message) = self.runtime.block_on(self.next(&mut consumer)) else { continue };
            state.running.fetch_add(1, Ordering::SeqCst);
            let is_gone = self.serve(slot, &message, tell);
            state.running.fetch_sub(1, Ordering::SeqCst);
            if is_gone {
                return;
            }
        }
    }

    /// An order, if one comes soon.
    async fn next(&self, consumer: &mut Option<Consumer<pull::Config>>) -> Option<Message> {
        if consumer.is_none() {
            // Also after a restart of NATS: the first worker creates the consumer.
            let Ok(made) = self.link.job_consumer(&self.kind.word()).await else {
                tokio::time::sleep(PAUSE).await;
                return None;
            };
            *consumer = Some(made);
        }
        let asked = consumer.as_ref()?.fetch().max_messages(1).expires(ASKING).messages();
        // The connection may break meanwhile.
        let came = async { asked.await.ok()?.next().await?.ok() };
        let Ok(came) = tokio::time::timeout(ASKING * 3, came).await else {
            *consumer = None;
            return None;
        };
        if came.is_none()
            && self.link.client.connection_state() != async_nats::connection::State::Connected
        {
            *consumer = None;
            tokio::time::sleep(PAUSE).await;
        }
        came
    }

    /// Judges an order and answers; whether the device is lost.
    fn serve(&self, slot: &Slot<'_>, message: &Message, tell: &impl Fn(&str)) -> bool {
        let Ok(order) = serde_json::from_slice::<Order>(&message.payload) else {
            // A server of this version did not write it.
            tell("discarded an order: its message is not in this version's format");
            let _ = self.runtime.block_on(message.ack_with(AckKind::Term));
            return false;
        };
        let deliveries = message.info().map_or(1, |info| info.delivered);
        let reply = message.reply.clone();
        let keeps = reply.map(|reply| {
            let (client, pause) = (self.link.client.clone(), self.link.lease / 4);
            self.runtime.spawn(async move {
                loop {
                    tokio::time::sleep(pause).await;
                    let progress = Bytes::from(AckKind::Progress);
                    let _ = client.publish(reply.clone(), progress).await;
                }
            })
        });
        let is_gone = self.answer(slot, &order, deliveries, message, tell);
        if let Some(keeps) = keeps {
            keeps.abort();
        }
        is_gone
    }

    fn answer(
        &self,
        slot: &Slot<'_>,
        order: &Order,
        deliveries: i64,
        message: &Message,
        tell: &impl Fn(&str),
    ) -> bool {
        let outcome = if deliveries > ATTEMPTS {
            Outcome::Exhausted(deliveries - 1)
        } else {
            let answer = match self.runtime.block_on(self.job(order)) {
                Ok(job) => match catch_unwind(AssertUnwindSafe(|| slot(&job))) {
                    Ok(Done::Answered(answer)) => answer,
                    Ok(Done::Gone) => {
                        tell(&format!(
                            "{}: the device was lost; another worker gets the job",
                            order.name
                        ));
                        let _ = self.runtime.block_on(message.ack_with(AckKind::Nak(None)));
                        return true;
                    }
                    Err(_) => Err(Failed::ours("failed to judge: the judge panicked")),
                },
                Err(why) => Err(Failed::ours(format!("failed to read an order from NATS: {why}"))),
            };
            match self.runtime.block_on(self.files.put(&self.link, &packed(&answer))) {
                Ok(file) => Outcome::Answer(file),
                Err(why) => {
                    // Not acknowledged: NATS redelivers it; after the last attempt it is a dead letter.
                    tell(&format!("{}: failed to send the answer: {why}", order.name));
                    return false;
                }
            }
        };
        let note = Note { id: order.id.clone(), worker: self.name.clone(), outcome };
        let subject = self.link.answer_subject(&order.server);
        let identity = format!("{}-{deliveries}", order.id);
        let sent = self.link.publish(subject, json(&note), Some(&identity));
        match self.runtime.block_on(sent) {
            Ok(()) => {
                let _ = self.runtime.block_on(message.double_ack());
            }
            Err(why) => tell(&format!("{}: failed to send the answer: {why}", order.name)),
        }
        false
    }

    /// The order's job. Its contents are checked: any client of NATS may have written them.
    async fn job(&self, order: &Order) -> Result<Job, String> {
        let begun = Begun { id: order.id.clone(), worker: self.name.clone() };
        let _ =
            self.link.client.publish(self.link.begun_subject(&order.server), json(&begun)).await;
        let task = files::get(&self.link, &self.link.files, &order.task).await;
        let candidate = files::get(&self.link, &self.link.files, &order.candidate).await;
        unpacked(
            &task.map_err(|error: FileError| error.to_string())?,
            &candidate.map_err(|error| error.to_string())?,
            order,
        )
    }
}

#[derive(Debug)]
struct State {
    /// The server refused this worker.
    over: AtomicBool,
    running: AtomicUsize,
    /// Slots that have not ended.
    left: AtomicUsize,
    refused: Mutex<Option<String>>,
}

pub(crate) fn json<T: serde::Serialize>(said: &T) -> Bytes {
    // Of plain structures: it cannot fail.
    Bytes::from(serde_json::to_vec(said).unwrap_or_default())
}

fn packed(answer: &Answer) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

/// Task and candidate as contents.
pub(crate) fn contents(job: &Job) -> Result<(Vec<u8>, Vec<u8>), String> {
    let task = serde_json::to_vec(&(&job.task.name, &job.task.source, job.task.mode));
    let candidate = postcard::to_stdvec(job.candidate.files());
    Ok((task.map_err(|e| e.to_string())?, candidate.map_err(|e| e.to_string())?))
}

pub(crate) fn unpacked(task: &[u8], candidate: &[u8], order: &Order) -> Result<Job, String> {
    let (name, source, mode): (String, String, Mode) = serde_json::from_slice(task)
        .map_err(|error| format!("failed to parse the task: {error}"))?;
    let mut task = Task::from_source(&name, source);
    task.mode = mode;
    let files: BTreeMap<String, Vec<u8>> = postcard::from_bytes(candidate)
        .map_err(|error| format!("failed to parse the candidate: {error}"))?;
    let candidate = Candidate::from_stranger(files).map_err(|error| error.to_string())?;
    Ok(Job { task, candidate, stage: order.stage, fresh: order.fresh })
}
