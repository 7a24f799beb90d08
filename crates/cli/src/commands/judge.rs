//! `warpwright judge TASK --candidate DIR_OR_FILE`.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use warpwright_agent::feedback;
use warpwright_judge::{JudgeError, Objection, SessionPool};
use warpwright_record::candidate::{Candidate, CandidateError};
use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event, Outcome, RunOutcome};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{Scheme, Stage, Verdict};
use warpwright_record::writer::RunWriter;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::pool_judge::nothing_to_earn;
use warpwright_rollout::{fit, tasks};
use warpwright_serve::JudgeRequest;
use warpwright_task::Task;

use crate::args::JudgeArgs;
use crate::client::Client;
use crate::contract::Judged;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{exit, judging};

pub(crate) fn run(args: &JudgeArgs, printer: Printer) -> Result<u8, Failure> {
    let mut task = tasks::read_one(&args.task, &|text| printer.say(text))?;
    if let Some(dtype) = args.dtype {
        task = dtype.cast(task)?;
    }
    if args.backward {
        task = task.with_backward();
    }
    let read = Candidate::read(&args.candidate);
    let candidate = read.map_err(|error| no_candidate(&args.candidate, &error))?;
    let stage = args.stage.into();
    if let Some(server) = &args.server {
        return elsewhere(args, server, (&task, &candidate, stage), printer);
    }
    let profile = args.profile.into();
    let wanted = judging::options(&args.common, profile).of_any_task();
    let [device] = args.common.device[..] else {
        let hint = "name one device, e.g. `--device cuda:0`".to_owned();
        return Err(Failure::usage("failed to open the devices: `judge` uses one", hint));
    };
    let host = judging::open(&args.common, device, wanted, printer)?;
    let record = record(args)?;
    let pool = SessionPool::new(&host.judge);
    if args.fit {
        let (fitted, told) = fit::workloads(&task, |bound| pool.open_whole(bound))?;
        for text in told {
            printer.say(&format!("warning: {text}"));
        }
        task = fitted;
    }
    let verdict = loop {
        let error = match judged((&host, &pool), (&task, &candidate, stage), printer) {
            Ok(verdict) => break verdict,
            Err(error) => error,
        };
        let smaller = if args.fit { fit::after(&task, &error) } else { None };
        task = match smaller {
            None => return Err(error.into()),
            Some(Err(refused)) => return Err(Failure::usage(refused.message, refused.hint)),
            Some(Ok(smaller)) => smaller,
        };
        printer.say(&format!("warning: {}", fit::scaled(&chain(&error), &task)));
    };
    // With the run, where it outlasts the cache. Without it the verdict counts all the same.
    let plans = verdict.plans().filter_map(|plan| host.judge.plan_file(plan).ok().flatten());
    if let Some(record) = &record {
        plans.map(|plan| record.put_blob(&plan)).collect::<Result<Vec<_>, _>>()?;
    }
    told(args, record, (&task, &candidate, stage), &verdict, printer)
}

/// Judges here, on every workload of the task.
fn judged(
    (host, pool): (&JudgeHost, &SessionPool<'_>),
    (task, candidate, stage): (&Task, &Candidate, Stage),
    printer: Printer,
) -> Result<Verdict, JudgeError> {
    let warn = |reasons: &[Objection]| {
        if let Some(text) = nothing_to_earn(&task.name, reasons) {
            printer.say(&format!("warning: {text}"));
        }
    };
    // Refused already if they cannot be read.
    if task.workloads().is_ok_and(|workloads| workloads.is_empty()) {
        let mut session = host.judge.task(task)?;
        warn(session.degenerate());
        return session.judge(candidate, stage);
    }
    let verdict = pool.afresh(task, candidate, stage)?;
    warn(&pool.degenerate(task));
    Ok(verdict)
}

/// Judges on a server instead of this machine.
fn elsewhere(
    args: &JudgeArgs,
    server: &str,
    (task, candidate, stage): (&Task, &Candidate, Stage),
    printer: Printer,
) -> Result<u8, Failure> {
    let client = Client::new(server, args.token.clone())?;
    let record = record(args)?;
    let text = |(name, bytes): (&String, &Vec<u8>)| {
        let text = String::from_utf8(bytes.clone()).map_err(|_| {
            let hint = "save the file as UTF-8, or judge without `--server`".to_owned();
            Failure::usage(format!("failed to send {name} to the server: it is not UTF-8"), hint)
        });
        Ok::<_, Failure>((name.clone(), text?))
    };
    let request = JudgeRequest {
        task: task.name.clone(),
        reference: Some(task.source.clone()),
        files: candidate.files().iter().map(text).collect::<Result<_, _>>()?,
        stage,
        reward: Scheme::default(),
        fresh: false,
        deadline_seconds: None,
    };
    let answer = client.judge(request, Duration::from_secs(args.deadline), printer)?;
    match (answer.verdict, answer.infra_error) {
        (Some(verdict), _) => told(args, record, (task, candidate, stage), &verdict, printer),
        (None, Some(error)) => Err(Failure::infrastructure(error.message, error.hint)),
        (None, None) => {
            let message = format!(
                "failed to get a verdict from {server}: its response has neither verdict nor error"
            );
            let hint = "check that the server has the version of this program".to_owned();
            Err(Failure::infrastructure(message, hint))
        }
    }
}

/// Creates the run folder before judging, so that a full disk or an existing run is found first.
fn record(args: &JudgeArgs) -> Result<Option<RunWriter>, Failure> {
    let info = || RunInfo { command: command(), ..RunInfo::default() };
    Ok(args.out.as_ref().map(|dir| RunWriter::create(dir, info())).transpose()?)
}

/// Records and prints a verdict.
fn told(
    args: &JudgeArgs,
    record: Option<RunWriter>,
    (task, candidate, stage): (&Task, &Candidate, Stage),
    verdict: &Verdict,
    printer: Printer,
) -> Result<u8, Failure> {
    if let Some(record) = record {
        keep(record, args, task, candidate, verdict)?;
    }
    printer.data(&feedback::render(verdict));
    printer.object(&Judged::new(verdict));
    let good = if stage == Stage::Built { feedback::succeeded(verdict) } else { verdict.verified };
    Ok(if good { exit::OK } else { exit::NOT_VERIFIED })
}

/// Records a run with one episode without turns, since no policy wrote the candidate.
fn keep(
    record: RunWriter,
    args: &JudgeArgs,
    task: &Task,
    candidate: &Candidate,
    verdict: &Verdict,
) -> Result<(), Failure> {
    let episode = EpisodeId(0);
    let setup = EpisodeSetup {
        task: task.name.clone(),
        source: record.put_blob(task.source.as_bytes())?,
        shown: None,
        skill: None,
        policy: "judge".to_owned(),
        device: verdict.device.clone(),
        profile: verdict.profile,
        dtype: verdict.dtype,
        fit: verdict.fit.clone(),
        backward: verdict.backward,
        seed: args.common.seed,
        attempt: 0,
        level: None,
        budget: Budget::default(),
    };
    let stored = record.put_candidate(candidate)?;
    record.append(&Event::EpisodeStarted { episode, setup })?;
    let (verdict, files) = (Box::new(verdict.clone()), stored.files.clone());
    record.append(&Event::VerdictGiven { episode, turn: None, verdict: verdict.clone(), files })?;
    let seconds = verdict.seconds;
    record.append(&Event::EpisodeFinished {
        episode,
        outcome: Outcome::Stopped,
        final_verdict: Some(verdict),
        best_verdict: None,
        candidate: Some(stored),
        turns: 0,
        seconds: seconds.build
            + seconds.record
            + seconds.start
            + seconds.load
            + seconds.verify
            + seconds.measure,
    })?;
    record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
    Ok(record.close()?)
}

fn no_candidate(path: &Path, error: &CandidateError) -> Failure {
    let message = match error {
        CandidateError::Io(error) if error.kind() == ErrorKind::NotFound => {
            let path = path.display();
            format!("failed to read a candidate from {path}: there is no such file or folder")
        }
        _ => chain(error),
    };
    let hint = match error {
        CandidateError::NoModel { .. } | CandidateError::Io(_) => {
            "a candidate is a folder with model_new.py and kernels/, or one Python file with ModelNew"
        }
        CandidateError::Unacceptable { .. } => {
            "model_new.py and the files in kernels/ must be regular files of at most 4 MiB"
        }
    };
    Failure::usage(message, hint.to_owned())
}

/// The command line, for display.
pub(crate) fn command() -> String {
    let words: Vec<_> = std::env::args().skip(1).collect();
    format!("warpwright {}", words.join(" "))
}
