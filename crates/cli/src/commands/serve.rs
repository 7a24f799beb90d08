//! `warpwright serve`.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use warpwright_fleet::nats::Bridge;
use warpwright_fleet::{Limits, Queue};
use warpwright_judge::SessionPool;
use warpwright_record::void::VoidTurns;
use warpwright_rollout::device_context::DeviceContext;
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::{judge_workers, tasks};
use warpwright_serve::hosting::{Host, Kept, Scratch};
use warpwright_serve::{App, DeviceUse, Served, SessionLimits, Settings, Tokens, router, serve};
use warpwright_task::Task;

use super::worker::link;
use crate::args::serve::ServeArgs;
use crate::commands::judge::command;
use crate::contract;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{exit, interrupt, judging};

/// Maximum requests of a batch.
const BATCH: usize = 256;
/// Time limit for receiving a request body.
const BODY_TIME: Duration = Duration::from_mins(1);
/// How long an answer is kept for its idempotency key, and the maximum bytes of such answers.
const REPLAY_TIME: Duration = Duration::from_hours(24);
const REPLAY_BYTES: usize = 64 << 20;
/// Period over which the use of a device is reported.
const USE_OF: Duration = Duration::from_secs(2);
/// Interval at which the server checks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &ServeArgs, printer: Printer) -> Result<u8, Failure> {
    let tokens = match &args.tokens {
        Some(path) => Tokens::read(path).map_err(|error| {
            let hint = "write each line as `CLIENT TOKEN [EXPIRES]`".to_owned();
            Failure::usage(format!("{}: {}", path.display(), chain(&error)), hint)
        })?,
        None if args.listen.ip().is_loopback() => Tokens::none(),
        None => {
            let hint = "name a token file with `--tokens`, or listen on 127.0.0.1".to_owned();
            let message = format!(
                "failed to listen on {} without tokens: other machines can reach it",
                args.listen
            );
            return Err(Failure::usage(message, hint));
        }
    };
    let suite = tasks::read_all(&args.suite, &|text| printer.say(text))?;
    let suite: BTreeMap<String, Task> =
        suite.into_iter().map(|task| (task.name.clone(), task)).collect();
    // Before the devices are opened: an address that is taken is found out now.
    let listener = TcpListener::bind(args.listen).map_err(|error| {
        let hint = "free the port, or select a free one with `--listen 127.0.0.1:0`".to_owned();
        Failure::usage(format!("failed to listen on {}: {error}", args.listen), hint)
    })?;
    let address = listener.local_addr().map_err(|error| Failure::io("listen", &error))?;
    let profile = args.profile.into();
    let wanted = judging::training_options(&args.common, profile);
    let hosts =
        if args.no_device { Vec::new() } else { judging::open_all(&args.common, wanted, printer)? };
    let hardware = hosts.first().map(|host| host.judge.facts().hardware.as_str());
    let bridge = args.nats.as_ref().map(|url| {
        let (config, rules) = (link(url, &args.fleet), wanted.rules());
        Bridge::open(&config, env!("CARGO_PKG_VERSION"), &rules, hardware)
    });
    let bridge = bridge.transpose()?;
    let stop = interrupt::watch(printer)?;
    let served = |host: &JudgeHost| Served {
        device: host.device(),
        hardware: host.judge.facts().hardware.clone(),
    };
    let pools: Vec<_> = hosts.iter().map(|host| SessionPool::new(&host.judge)).collect();
    let devices: Result<Vec<DeviceContext<'_>>, RolloutError> = hosts
        .iter()
        .zip(&pools)
        .map(|(host, pool)| DeviceContext::new(host, pool, None, profile))
        .collect();
    let scratch = Scratch::new(&std::env::temp_dir())
        .map_err(|error| Failure::io("create a folder for sessions", &error))?;
    let kept = args.keep_sessions.as_ref();
    let kept = kept.map(|folder| Kept::new(folder, args.max_kept_sessions as usize));
    let host = Host {
        devices: devices?,
        profile,
        turns: args.session_turns,
        scratch: scratch.path(),
        kept: kept.transpose()?,
        command: command(),
        notice: printer.notice(),
    };
    let settings = Settings {
        tokens,
        tasks: suite,
        served: hosts.iter().map(served).collect(),
        profile,
        body_bytes: (args.body_mib as usize) << 20,
        body_time: BODY_TIME,
        deadline: Duration::from_secs(args.deadline),
        batch: BATCH,
        replay_time: REPLAY_TIME,
        replay_bytes: REPLAY_BYTES,
        sessions: SessionLimits {
            // They are played beside a device.
            most: if hosts.is_empty() { 0 } else { args.sessions as usize },
            per_client: args.sessions_per_client as usize,
            idle: Duration::from_secs(args.session_idle),
        },
        skill: host.devices.first().map(|device| device.skill.clone()).unwrap_or_default(),
    };
    let limits = Limits { waiting: args.max_queue as usize, per_client: args.per_client as usize };
    let queue = Arc::new(Queue::new(limits));
    let app = App::new(settings, Arc::clone(&queue));
    if let Some(bridge) = &bridge {
        app.remote_workers.set(bridge.roster()).ok();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("start threads", &error))?;

    let (drain, is_over) = (Duration::from_secs(args.drain), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        judge_workers::start(scope, &pools, &queue, &stop);
        if let Some(bridge) = &bridge {
            let (queue, is_over) = (&queue, &is_over);
            scope.spawn(move || bridge.run(queue, is_over));
        }
        let (told, seen) = (&app, &hosts);
        let ends = &is_over;
        scope.spawn(move || tell_uses(told, seen, ends, printer));
        let (host, sessions) = (&host, &app.sessions);
        scope.spawn(move || host.host(scope, sessions));
        let devices: Vec<String> = hosts.iter().map(JudgeHost::device).collect();
        let mut judges = devices.clone();
        judges.extend(bridge.is_some().then(|| "remote workers".to_owned()));
        printer.say(&format!("judging on {}: http://{address}", judges.join(", ")));
        let url = format!("http://{address}");
        printer.object(&json!({ "version": contract::VERSION, "url": url, "devices": devices }));
        let stopped = async {
            while !stop.load(Ordering::SeqCst) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let ended = runtime.block_on(serve(
            listener,
            Arc::clone(&app),
            router(Arc::clone(&app)),
            stopped,
            drain,
        ));
        // Also when it failed: the workers end.
        queue.abandon();
        app.sessions.abandon();
        is_over.store(true, Ordering::SeqCst);
        ended
    });
    let all = ended.map_err(|error| Failure::io("serve", &error))?;
    printer.say(if all {
        "stopped; the server has answered every accepted request"
    } else {
        "stopped; `--drain` was over before every accepted request was answered"
    });
    Ok(exit::OK)
}

/// All judges of a host share a cache folder, and tell the same.
fn distinct(voids: impl Iterator<Item = VoidTurns>) -> Vec<VoidTurns> {
    let mut found: Vec<VoidTurns> = Vec::new();
    for voided in voids {
        if !found.contains(&voided) {
            found.push(voided);
        }
    }
    found
}

/// Reports periodically how busy the devices are, and which verdicts have become void.
fn tell_uses(app: &App, hosts: &[JudgeHost], is_over: &AtomicBool, printer: Printer) {
    let mut unread = None;
    let now = || hosts.iter().map(|host| host.judge.device_use()).collect::<Vec<_>>();
    let (mut before, mut since) = (now(), Instant::now());
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK);
        let each = hosts.iter().map(|host| host.judge.voids());
        match each.collect::<Result<Vec<_>, _>>() {
            Ok(all) => app.voids.say(distinct(all.into_iter().flatten())),
            // Requests that need to know fail with the same error.
            Err(error) => {
                let text = chain(&error);
                if unread.as_ref() != Some(&text) {
                    printer.label("warning", "33", &text);
                }
                unread = Some(text);
            }
        }
        let of = since.elapsed();
        if of < USE_OF {
            continue;
        }
        let used = now();
        let each = hosts.iter().zip(&used).zip(&before);
        let uses =
            each.map(|((host, now), before)| DeviceUse::new(&host.device(), &(*now - *before), of));
        app.uses.say(uses.collect());
        (before, since) = (used, Instant::now());
    }
}
