use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};

use proptest::prelude::*;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::Stage;
use warpwright_task::Task;

use super::*;
use crate::worker::{Done, work};

const HERE: Station = Station(0);
const WIDE: Limits = Limits { waiting: 1000, per_client: 1000 };

fn job(name: &str) -> Job {
    let candidate = Candidate::from_files(BTreeMap::new());
    Job { task: Task::from_source(name, ""), candidate, stage: Stage::Built, fresh: false }
}

/// Submits, and where its news come.
fn submit(queue: &Arc<Queue>, client: &str, name: &str) -> (Ticket, Receiver<JobEvent>) {
    // JobEvent of one job: more begin than it may would hang the test.
    let (tell, told) = sync_channel(8);
    let listener = Box::new(move |news| {
        // Whoever asked may be gone.
        let _ = tell.send(news);
    });
    (queue.submit(client, job(name), listener).unwrap(), told)
}

fn failed() -> Answer {
    Err(Failed::Task { message: "it is none".to_owned(), hint: None })
}

/// What a job came to, after it began.
fn ended(told: &Receiver<JobEvent>) -> Failed {
    loop {
        match told.recv_timeout(Duration::from_mins(1)).unwrap() {
            JobEvent::Started => {}
            JobEvent::Ended(answer) => return answer.unwrap_err(),
        }
    }
}

#[test]
fn clients_are_served_in_turn() {
    let queue = Arc::new(Queue::new(WIDE));
    let many: Vec<_> = (0..4).map(|i| submit(&queue, "many", &format!("many{i}"))).collect();
    let one = submit(&queue, "one", "one0");
    assert_eq!((many[3].0.ahead(), one.0.ahead()), (Some(3), Some(4)), "by arrival");
    let mut order = Vec::new();
    for _ in 0..5 {
        let leased = queue.take(HERE).unwrap();
        order.push(leased.job().task.name.clone());
        leased.end(failed());
    }
    assert_eq!(order, ["many0", "one0", "many1", "many2", "many3"]);
    assert_eq!(one.0.ahead(), None);
    assert_eq!(queue.load().waiting + queue.load().running, 0);
}

#[test]
fn limits_refuse_jobs_with_their_values() {
    let queue = Arc::new(Queue::new(Limits { waiting: 3, per_client: 2 }));
    let refused = |client| queue.submit(client, job("j"), Box::new(|_| {})).unwrap_err();
    let first = submit(&queue, "a", "1");
    let _second = submit(&queue, "a", "2");
    assert_eq!(refused("a"), Refused::Client { jobs: 2 });
    let _third = submit(&queue, "b", "3");
    assert_eq!(refused("c"), Refused::Full { waiting: 3 });
    // One that is judged counts for its client, and leaves room for others.
    let leased = queue.take(HERE).unwrap();
    assert_eq!(refused("a"), Refused::Client { jobs: 2 });
    let _fourth = submit(&queue, "c", "4");
    leased.end(failed());
    assert_eq!(ended(&first.1), failed().unwrap_err());
    queue.end();
    assert_eq!(refused("d"), Refused::Ending);
}

#[test]
fn a_dropped_ticket_cancels_its_job() {
    let queue = Arc::new(Queue::new(WIDE));
    let (gone, told) = submit(&queue, "a", "gone");
    let (stays, _) = submit(&queue, "a", "stays");
    drop(gone);
    assert!(told.recv().is_err(), "nothing is told, and nobody holds its listener");
    assert_eq!(stays.ahead(), Some(0));
    assert_eq!(queue.take(HERE).unwrap().job().task.name, "stays");
}

#[test]
fn a_panic_or_a_dropped_job_is_answered() {
    let queue = Arc::new(Queue::new(WIDE));
    let (_a, panicked) = submit(&queue, "a", "panics");
    let (_b, fine) = submit(&queue, "a", "fine");
    let (_c, left) = submit(&queue, "a", "left");
    queue.end();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            work(&queue, HERE, |job| {
                assert!(job.task.name != "panics", "on purpose");
                Done::Answered(failed())
            });
        });
    });
    assert!(ended(&panicked).to_string().contains("panicked"));
    assert_eq!(ended(&fine), failed().unwrap_err());
    assert_eq!(ended(&left), failed().unwrap_err());

    let queue = Arc::new(Queue::new(WIDE));
    let (_d, died) = submit(&queue, "a", "died");
    drop(queue.take(HERE));
    assert!(ended(&died).to_string().contains("died"));
}

#[test]
fn a_lost_device_passes_its_job_on() {
    let queue = Arc::new(Queue::new(WIDE));
    let (_a, told) = submit(&queue, "a", "a");
    // One device goes, the other judges.
    let judges = queue.enter(HERE);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&queue, HERE, |_| Done::Gone));
    });
    queue.take(HERE).unwrap().end(failed());
    assert_eq!(ended(&told), failed().unwrap_err());
    let (_b, told) = submit(&queue, "a", "b");
    drop(judges);
    assert!(ended(&told).to_string().contains("every device is lost"));
    let again = queue.submit("a", job("c"), Box::new(|_| {}));
    assert_eq!(again.unwrap_err(), Refused::Deserted);
}

#[test]
fn a_job_that_loses_every_device_fails() {
    let queue = Arc::new(Queue::new(WIDE));
    let _judges = queue.enter(HERE);
    let (_a, told) = submit(&queue, "a", "a");
    for _ in 0..ATTEMPTS {
        queue.take(HERE).unwrap().give_back();
    }
    assert!(ended(&told).to_string().contains("3 devices"));
}

#[test]
fn abandon_fails_waiting_jobs_and_finishes_running_ones() {
    let queue = Arc::new(Queue::new(WIDE));
    let (_a, runs) = submit(&queue, "a", "runs");
    let (_b, waits) = submit(&queue, "a", "waits");
    let leased = queue.take(HERE).unwrap();
    queue.abandon();
    assert_eq!(ended(&waits), Failed::Ending);
    assert!(!queue.wait_idle(Duration::from_millis(10)));
    leased.end(failed());
    assert!(queue.wait_idle(Duration::from_mins(1)));
    assert_eq!(ended(&runs), failed().unwrap_err());
    assert!(queue.take(HERE).is_none());
}

#[test]
fn the_wait_is_estimated_from_judging_times() {
    let load = Load { waiting: 9, running: 2, workers: 2, seconds: 3.0 };
    assert!((load.wait_seconds() - 15.0).abs() < 1e-9);
    let free = Load { running: 1, waiting: 0, ..load };
    assert!(free.wait_seconds().abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever workers and clients do, a job that is not given up ends once.
    #[test]
    fn every_job_ends_once(
        jobs in prop::collection::vec((0u8..4, 0u8..8), 1..60),
        workers in 1usize..5,
    ) {
        let queue = Arc::new(Queue::new(WIDE));
        let submitted: Vec<_> = jobs
            .iter()
            .map(|(client, does)| submit(&queue, &client.to_string(), &format!("does{does}")))
            .collect();
        queue.end();
        std::thread::scope(|scope| {
            for number in 0..workers {
                let queue = &queue;
                // The first one always stays.
                scope.spawn(move || work(queue, Station(number % 2), |job| match job.task.name.as_str() {
                    "does0" if number > 0 => Done::Gone,
                    "does1" => std::panic::resume_unwind(Box::new("quietly")),
                    _ => Done::Answered(failed()),
                }));
            }
        });
        for (_ticket, told) in &submitted {
            let ends = told.try_iter().filter(|news| matches!(news, JobEvent::Ended(_))).count();
            prop_assert_eq!(ends, 1);
        }
        let load = queue.load();
        prop_assert_eq!((load.waiting, load.running, load.workers), (0, 0, 0));
    }
}
