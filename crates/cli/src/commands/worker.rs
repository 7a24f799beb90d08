//! `warpwright worker`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use serde_json::json;
use warpwright_fleet::nats::{Bridge, Ended, Kind, LinkConfig, LinkError, RemoteWorker};
use warpwright_fleet::{Limits, Queue};
use warpwright_judge::SessionPool;
use warpwright_record::candidate::Candidate;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::judge_workers;

use crate::args::worker::{FleetArgs, WorkerArgs};
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{contract, exit, interrupt, judging};

pub(crate) fn run(args: &WorkerArgs, printer: Printer) -> Result<u8, Failure> {
    let config = link(&args.connect, &args.fleet);
    if let Some(folder) = &args.dead_letters {
        return dead_letters(&config, folder, printer);
    }
    let wanted = judging::training_options(&args.common, args.profile.into());
    let hosts = judging::open_all(&args.common, wanted, printer)?;
    let stop = interrupt::watch(printer)?;
    let hardware = hosts.first().map(|host| host.judge.facts().hardware.clone());
    let kind = Kind {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        rules: wanted.rules(),
        hardware: hardware.unwrap_or_default(),
    };
    let devices: Vec<String> = hosts.iter().map(JudgeHost::device).collect();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    let worker = RemoteWorker::open(&config, kind, host, devices.clone())?;
    let pools: Vec<_> = hosts.iter().map(|host| SessionPool::new(&host.judge)).collect();
    let count = judge_workers::count(&pools);
    let name = worker.name();
    printer.say(&format!("worker {name} judges on {}, {count} concurrently", devices.join(", ")));
    printer.object(&json!({
        "version": contract::VERSION, "worker": name, "devices": devices, "slots": count,
    }));
    let queue = Arc::new(Queue::new(Limits { waiting: count, per_client: count }));
    let ended = std::thread::scope(|scope| {
        judge_workers::start(scope, &pools, &queue, &stop);
        let ended =
            worker.run(&judge_workers::slots(&queue, count), &stop, |text| printer.say(text));
        queue.abandon();
        ended
    });
    match ended {
        Ended::Asked => {
            printer.say("stopped; the worker has judged every candidate that it began");
            Ok(exit::OK)
        }
        Ended::Deserted => {
            let hint = Some("`warpwright doctor` checks the devices".to_owned());
            Err(Failure::infrastructure("failed to judge: every device is lost".to_owned(), hint))
        }
        Ended::Refused(why) => {
            let hint = "start the worker with the server's version and options on the same hardware, \
                or in another `--fleet`";
            Err(Failure::usage(format!("failed to join the server: {why}"), hint.to_owned()))
        }
    }
}

pub(crate) fn link(url: &str, fleet: &FleetArgs) -> LinkConfig {
    let lease = Duration::from_secs(fleet.lease);
    LinkConfig { url: url.to_owned(), fleet: fleet.fleet.clone(), lease }
}

/// Writes the jobs of the dead-letter queue as tasks and candidates that `warpwright judge` reads.
fn dead_letters(config: &LinkConfig, folder: &Path, printer: Printer) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::io("write the dead-letter queue", &error);
    let all = Bridge::dead_letters(config)?;
    for letter in &all {
        // Written by whoever may connect: names are no paths.
        let word = letter.id.chars().all(|c| c.is_ascii_hexdigit()) && !letter.id.is_empty();
        let files =
            letter.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        let Ok(candidate) = Candidate::from_stranger(files.collect()) else { continue };
        if !word {
            continue;
        }
        let place = folder.join(&letter.id);
        fs::create_dir_all(&place).map_err(failed)?;
        fs::write(place.join("task.py"), &letter.reference).map_err(failed)?;
        let told = serde_json::to_vec_pretty(letter).map_err(|error| failed(error.into()))?;
        fs::write(place.join("dead-letter.json"), told).map_err(failed)?;
        for (name, bytes) in candidate.files() {
            let file = place.join("candidate").join(name);
            fs::create_dir_all(file.parent().unwrap_or(&place)).map_err(failed)?;
            fs::write(file, bytes).map_err(failed)?;
        }
        let workers = letter.workers.join(", ");
        printer.say(&format!("{}: task {}, begun by {workers}", place.display(), letter.task));
    }
    printer.say(&format!("{} jobs in the dead-letter queue", all.len()));
    let ids: Vec<_> = all.iter().map(|letter| &letter.id).collect();
    printer.object(&json!({ "version": contract::VERSION, "dead_letters": ids }));
    Ok(exit::OK)
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let (message, hint) = (chain(&error), error.hint().to_owned());
        match error {
            LinkError::Address(_) | LinkError::Name(_) => Self::usage(message, hint),
            _ => Self::infrastructure(message, Some(hint)),
        }
    }
}
