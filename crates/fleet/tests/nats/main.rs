//! Remote workers, with a real NATS server and workers that are processes: killed, disconnected, of
//! another version, with another clock; and NATS itself killed and restarted.

#![cfg(test)]

mod server;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpwright_fleet::nats::{
    Bridge, Ended, Kind, LinkConfig, RemoteWorker, RemoteWorkerStatus, Slot,
};
use warpwright_fleet::{Answer, Done, Failed, Job, JobEvent, Limits, Queue, Ticket};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::Stage;
use warpwright_task::Task;
use warpwright_test_support::{Need, missing};

use crate::server::Nats;

const LEASE: Duration = Duration::from_secs(1);
/// Deadline of every wait; only what hangs reaches it.
const PATIENCE: Duration = Duration::from_mins(2);
const URL: &str = "FLEET_TEST_URL";

fn config(url: &str) -> LinkConfig {
    LinkConfig { url: url.to_owned(), fleet: "test".to_owned(), lease: LEASE }
}

fn kind() -> Kind {
    let word = |word: &str| word.to_owned();
    Kind { version: word("1"), rules: word("strict"), hardware: word("paper") }
}

/// Behaviour of a worker of these tests, by the task's name.
fn judge(job: &Job) -> Done {
    let name = &job.task.name;
    if name == "kill" {
        std::process::abort();
    }
    if name.starts_with("until-") {
        let over = Until::path(name);
        while !over.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    if let Some(ms) = name.strip_prefix("slow-") {
        std::thread::sleep(Duration::from_millis(ms.parse().unwrap_or(0)));
    }
    let message = format!("{name} of {}", std::process::id());
    Done::Answered(Err(Failed::Task { message, hint: None }))
}

/// A file, and the name of a job that lasts until the file exists.
struct Until(String);

impl Until {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        Self(format!("until-{}-{number}", std::process::id()))
    }

    /// The file of a job. Names of tasks contain no path.
    fn path(job: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("warpwright-fleet-{job}"))
    }

    fn job(&self) -> String {
        self.0.clone()
    }

    /// Lets every such job end.
    fn end(&self) {
        std::fs::File::create(Self::path(&self.0)).unwrap();
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        // A test that failed may not have made it.
        let _ = std::fs::remove_file(Self::path(&self.0));
    }
}

/// Not a test: the worker process that [`Worker`] starts.
#[test]
fn worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let worker = RemoteWorker::open(&config(&url), kind(), "host", vec!["cpu".to_owned()]).unwrap();
    let slots: Vec<Slot<'_>> = (0..4).map(|_| -> Slot<'_> { Box::new(judge) }).collect();
    worker.run(&slots, &AtomicBool::new(false), |_| {});
}

struct Worker(Child);

impl Worker {
    #[expect(clippy::disallowed_types, reason = "a test starts itself")]
    fn start(url: &str, more: &[(&str, &str)]) -> Self {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker_process"])
            .env(URL, url)
            .envs(more.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// In a separate network namespace that gets one end of the wire.
    #[expect(clippy::disallowed_types, reason = "a test starts itself")]
    fn start_in_a_namespace(url: &str, wire: &str, address: &str) -> Self {
        let line = format!(
            "ip link set lo up; until ip link show {wire}; do sleep 0.05; done; \
             ip addr add {address} dev {wire}; ip link set {wire} up; exec \"$0\" --exact worker_process"
        );
        let child = std::process::Command::new("unshare")
            .args(["--net", "--", "sh", "-ec", &line])
            .arg(std::env::current_exe().unwrap())
            .env(URL, url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // `unshare` leaves its own namespace before it becomes the shell.
        let there = || format!("/proc/{}/ns/net", child.id());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        wait_for("a namespace", || std::fs::read_link(there()).is_ok_and(|link| link != own));
        assert!(shell(&format!("ip link set {wire} netns {}", child.id())));
        Self(child)
    }

    /// Kills the worker with SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn is_gone(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A queue that only remote workers serve, until the test ends.
fn served(url: &str, hardware: Option<&str>, test: impl FnOnce(&Arc<Queue>, &Bridge)) {
    let queue = Arc::new(Queue::new(Limits { waiting: 10_000, per_client: 10_000 }));
    let bridge = Bridge::open(&config(url), "1", "strict", hardware).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = DoneGuard(&is_over);
        scope.spawn(|| bridge.run(&queue, &is_over));
        test(&queue, &bridge);
        drop(done);
    });
}

/// Ends the bridge also if the test panics: the test would hang otherwise.
struct DoneGuard<'o>(&'o AtomicBool);

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Submitted = (Ticket, Receiver<Answer>);

fn submit(queue: &Arc<Queue>, name: &str, file: &[u8]) -> Submitted {
    let files = BTreeMap::from([("model_new.py".to_owned(), file.to_vec())]);
    let candidate = Candidate::from_files(files);
    let task = Task::from_source(name, "source");
    let job = Job { task, candidate, stage: Stage::Measured, fresh: false };
    // A second end of a job would be seen.
    let (tell, told) = sync_channel(8);
    let listener = Box::new(move |news| {
        if let JobEvent::Ended(answer) = news {
            tell.send(answer).unwrap();
        }
    });
    (queue.submit("client", job, listener).unwrap(), told)
}

fn failure(told: &Submitted) -> Failed {
    told.1.recv_timeout(PATIENCE).unwrap().unwrap_err()
}

/// That of a worker that judged it.
fn judged(told: &Submitted, name: &str) -> String {
    let failed = failure(told);
    let Failed::Task { message, .. } = failed else { panic!("not judged: {failed}") };
    assert!(message.starts_with(&format!("{name} of ")), "{message}");
    message
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_job_ends_once_despite_killed_workers() {
    let Some(mut nats) = Nats::start() else { return };
    let url = nats.url();
    served(&url, None, |queue, bridge| {
        // One has a clock of its own.
        let skewed = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
        let skew =
            [("LD_PRELOAD", skewed), ("FAKETIME", "+3d"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let has = std::path::Path::new(skewed).exists();
        if !has {
            missing(Need::Faketime);
        }
        let mut one = Worker::start(&url, &[]);
        let _two = Worker::start(&url, if has { &skew } else { &[] });
        wait_for("two workers", || bridge.roster().workers().len() == 2);
        // Large ones are in parts.
        let large: Vec<u8> =
            (0..900_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        // The first jobs occupy every slot, until NATS is back.
        let until = Until::new();
        let name = |i| if i < 8 { until.job() } else { format!("slow-{}", i % 40) };
        let names: Vec<String> = (0..200).map(name).collect();
        let all: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| submit(queue, name, if i % 50 == 7 { &large } else { b"small" }))
            .collect();
        let is_busy = |worker: &RemoteWorkerStatus| worker.running == 4;
        wait_for("both judge", || bridge.roster().workers().iter().all(is_busy));
        one.kill();
        nats.restart();
        until.end();
        for (told, name) in all.iter().zip(&names) {
            judged(told, name);
        }
        wait_for("an end", || queue.load().running == 0);
        // What was delivered twice is not answered twice. On a slow machine this finds less; it never fails.
        std::thread::sleep(LEASE * 2);
        assert!(all.iter().all(|told| told.1.try_recv().is_err()));
    });
}

#[test]
fn job_that_kills_every_worker_is_dead_lettered() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    served(&url, None, |queue, _| {
        let told = submit(queue, "kill", b"evil");
        let mut workers = Vec::new();
        let mut fell = 0;
        let failed = loop {
            if workers.iter_mut().all(Worker::is_gone) {
                fell += workers.len();
                workers = vec![Worker::start(&url, &[])];
            }
            if let Ok(answer) = told.1.recv_timeout(Duration::from_millis(50)) {
                break answer.unwrap_err();
            }
            assert!(fell < 10, "it is tried for ever");
        };
        let Failed::Infrastructure { message, hint } = failed else { panic!("{failed}") };
        assert!(message.contains("3 workers took this job"), "{message}");
        assert_eq!(fell, 3);
        let letters = Bridge::dead_letters(&config(&url)).unwrap();
        assert_eq!(letters.len(), 1);
        assert!(hint.unwrap().contains(&letters[0].id));
        assert_eq!((letters[0].task.as_str(), letters[0].deliveries), ("kill", 3));
        assert_eq!(letters[0].files["model_new.py"], "evil");
        assert_eq!(letters[0].workers.len(), 3, "{:?}", letters[0].workers);
        // The next job is judged.
        judged(&submit(queue, "slow-0", b""), "slow-0");
    });
}

#[test]
fn only_workers_of_the_same_kind_judge() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let refused = |kind: Kind| {
        let worker = RemoteWorker::open(&config(&url), kind, "host", Vec::new()).unwrap();
        let slots: [Slot<'_>; 1] = [Box::new(|_| panic!("it must not judge"))];
        match worker.run(&slots, &AtomicBool::new(false), |_| {}) {
            Ended::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    };
    served(&url, None, |queue, bridge| {
        let word = |word: &str| word.to_owned();
        let told = submit(queue, "slow-0", b"");
        let why = refused(Kind { version: word("0"), ..kind() });
        assert_eq!(why, r#"the worker's version is "0", the server's "1""#);
        assert!(refused(Kind { rules: word("paper"), ..kind() }).contains("rules"));
        let _worker = Worker::start(&url, &[]);
        judged(&told, "slow-0");
        // The first that came says what hardware it is.
        assert!(refused(Kind { hardware: word("stone"), ..kind() }).contains("hardware"));
        assert_eq!(bridge.roster().workers().len(), 1);
    });
}

/// A connection to NATS that can be cut as a network can: neither side is notified.
struct Proxy {
    url: String,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    fn new(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let ways =
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
                for (from, to) in ways {
                    let is_cut = Arc::clone(&is_cut);
                    std::thread::spawn(move || pass(from, to, &is_cut));
                }
            }
        });
        Self { url, cut }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16_384];
    while let Ok(n) = from.read(&mut bytes) {
        while is_cut.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if n == 0 || to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}

#[test]
fn disconnected_worker_loses_its_jobs_to_another() {
    let Some(nats) = Nats::start() else { return };
    let (proxy, until) = (Proxy::new(nats.port()), Until::new());
    served(&nats.url(), None, |queue, bridge| {
        let remote = Worker::start(&proxy.url, &[]);
        wait_for("a worker", || bridge.roster().workers().len() == 1);
        let told = submit(queue, &until.job(), b"");
        wait_for("a begin", || bridge.roster().workers().iter().any(|worker| worker.running == 1));
        proxy.cut.store(true, Ordering::SeqCst);
        until.end();
        let near = Worker::start(&nats.url(), &[]);
        let message = judged(&told, &until.job());
        assert!(message.ends_with(&format!(" of {}", near.0.id())), "{message}");
        // It comes back, and what it says of that job interests nobody.
        proxy.cut.store(false, Ordering::SeqCst);
        drop(near);
        wait_for("its return", || judges_again(queue, &remote));
        assert!(told.1.try_recv().is_err());
    });
}

/// Whether this worker judges new jobs.
fn judges_again(queue: &Arc<Queue>, worker: &Worker) -> bool {
    let again = submit(queue, "slow-0", b"");
    again.1.recv_timeout(Duration::from_secs(10)).is_ok_and(|answer| {
        answer.unwrap_err().to_string().ends_with(&format!(" of {}", worker.0.id()))
    })
}

/// Runs a shell line; returns whether it succeeded.
#[expect(clippy::disallowed_types, reason = "a test lays wires")]
fn shell(line: &str) -> bool {
    let ran = std::process::Command::new("sh").args(["-ec", line]).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

/// A wire between two network namespaces, taken down and up again: packets vanish without notice.
/// The test restarts itself in a separate namespace, so that it changes nothing on this machine.
#[test]
fn worker_without_network_loses_its_jobs_to_another() {
    if std::env::var_os("FLEET_TEST_INSIDE").is_none() {
        let inside = "unshare --user --map-root-user --net --";
        if !shell(&format!("{inside} ip link add name here type veth peer name there")) {
            missing(Need::NetworkNamespaces);
            return;
        }
        let me = std::env::current_exe().unwrap();
        let name = "worker_without_network_loses_its_jobs_to_another";
        let line = format!("FLEET_TEST_INSIDE=1 exec {inside} {} --exact {name}", me.display());
        assert!(shell(&line), "{line}");
        return;
    }
    assert!(shell("ip link set lo up; ip link add name here type veth peer name there"));
    assert!(shell("ip addr add 10.9.0.1/24 dev here; ip link set here up"));
    let Some(nats) = Nats::start_at("10.9.0.1") else { return };
    served(&nats.url(), None, |queue, bridge| {
        let remote = Worker::start_in_a_namespace(&nats.url(), "there", "10.9.0.2/24");
        wait_for("a worker", || bridge.roster().workers().len() == 1);
        let until = Until::new();
        let told = submit(queue, &until.job(), b"");
        wait_for("a begin", || bridge.roster().workers().iter().any(|worker| worker.running == 1));
        assert!(shell("ip link set here down"));
        until.end();
        // There is no way from here to that address any more, but from itself.
        assert!(shell("ip addr replace 10.9.0.1/24 dev lo"));
        let near = Worker::start(&nats.url(), &[]);
        let message = judged(&told, &until.job());
        assert!(message.ends_with(&format!(" of {}", near.0.id())), "{message}");
        assert!(shell(
            "ip addr del 10.9.0.1/24 dev lo; ip addr replace 10.9.0.1/24 dev here; ip link set here up"
        ));
        drop(near);
        wait_for("its return", || judges_again(queue, &remote));
        assert!(told.1.try_recv().is_err());
    });
}

#[test]
fn jobs_fail_when_the_last_worker_is_gone() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    served(&url, Some("paper"), |queue, bridge| {
        let mut worker = Worker::start(&url, &[]);
        wait_for("a worker", || bridge.roster().workers().len() == 1);
        let all: Vec<_> = (0..10).map(|_| submit(queue, "slow-60000", b"")).collect();
        wait_for("a begin", || bridge.roster().workers().iter().any(|worker| worker.running > 0));
        worker.kill();
        for told in &all {
            assert!(matches!(failure(told), Failed::Infrastructure { .. }));
        }
        assert!(bridge.roster().workers().is_empty());
        assert_eq!(queue.load().workers, 0);
        // Whoever comes later finds nothing of that, and judges what is new.
        let _next = Worker::start(&url, &[]);
        wait_for("a worker", || queue.load().workers > 0);
        judged(&submit(queue, "slow-0", b""), "slow-0");
    });
}

#[test]
fn ended_server_leaves_no_jobs_behind() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let (kept, until) = (Mutex::new(Vec::new()), Until::new());
    let mut worker = None;
    served(&url, None, |queue, bridge| {
        worker = Some(Worker::start(&url, &[]));
        wait_for("a worker", || bridge.roster().workers().len() == 1);
        kept.lock().unwrap().extend((0..8).map(|_| submit(queue, &until.job(), b"")));
        wait_for("a begin", || queue.load().running == 4);
    });
    let ended: Vec<Failed> = kept
        .lock()
        .unwrap()
        .iter()
        .filter_map(|told: &Submitted| Some(told.1.try_recv().ok()?.unwrap_err()))
        .collect();
    assert_eq!(ended.len(), 8, "{ended:?}");
    assert!(!ended.iter().any(|failed| matches!(failed, Failed::Task { .. })), "{ended:?}");
    until.end();
    // The next server's jobs are not behind those.
    served(&url, None, |queue, _| {
        judged(&submit(queue, "slow-0", b""), "slow-0");
    });
}
