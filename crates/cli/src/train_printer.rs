//! Prints what happens in training: progress lines and warnings.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::Back;
use warpwright_learn::run_monitor::Update;
use warpwright_report::evaluation::gap::Gap;
use warpwright_report::evaluation::table;
use warpwright_rollout::device_use;
use warpwright_train::observer::{Observer, TrainEvent};
use warpwright_train::stage::Stage;

use crate::commands::report::width;
use crate::failure::chain;
use crate::printer::Printer;

/// Progress within a stage is printed at this interval.
const EVERY: Duration = Duration::from_secs(2);

/// Prints the events of training.
pub(crate) struct TrainPrinter {
    printer: Printer,
    progress: Mutex<Progress>,
}

/// The phase whose progress was observed last.
struct Progress {
    phase: String,
    /// When its progress was printed, at first when it began.
    said: Instant,
}

impl TrainPrinter {
    pub(crate) fn new(printer: Printer) -> Self {
        let progress = Progress { phase: String::new(), said: Instant::now() };
        Self { printer, progress: Mutex::new(progress) }
    }

    /// Prints progress within a phase, unless it printed some lately. With `is_end` it always prints.
    fn progress(&self, phase: &str, is_end: bool, line: &str) {
        // Held while it prints: of two workers that end an episode, the second one's line comes second.
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.phase != phase {
            *progress = Progress { phase: phase.to_owned(), said: Instant::now() };
        }
        if is_end || progress.said.elapsed() >= EVERY {
            progress.said = Instant::now();
            self.printer.say(line);
        }
    }
}

impl Observer for TrainPrinter {
    fn observe(&self, event: &TrainEvent<'_>) {
        let lines = lines(event);
        match (event, &lines[..]) {
            (TrainEvent::Episodes { name, done, of }, [line]) => {
                self.progress(name, done == of, line);
            }
            (TrainEvent::Traced { done, of }, [line]) => {
                self.progress("tracing", done == of, line);
            }
            (TrainEvent::Steps { stage, .. }, [line]) => {
                self.progress(&format!("steps of {}", stage.name()), false, line);
            }
            _ => lines.iter().for_each(|line| self.printer.say(line)),
        }
        if let TrainEvent::Evaluated { evaluation, .. } = event {
            self.printer.data(&format!("{}\n", table::tables(evaluation, width())));
        }
    }
}

/// An event as lines of text.
fn lines(event: &TrainEvent<'_>) -> Vec<String> {
    vec![match event {
        TrainEvent::Begun(out) => format!("run: {}", out.display()),
        TrainEvent::AlreadyDone(stage) => format!("{}: already done", stage.name()),
        TrainEvent::Ended { stage, took, is_done } => {
            let what = if *is_done { "" } else { ", not finished" };
            format!("{}: {:.0} s{what}", stage.name(), took.as_secs_f64())
        }
        TrainEvent::DeviceUse { device, used, of } => device_use::describe(device, used, *of),
        TrainEvent::Verdicts { measured, cached } => {
            format!("{measured} verdicts measured, {cached} from the verdict cache")
        }
        TrainEvent::Episodes { name, done, of } => format!("{name}: {done} of {of} episodes"),
        TrainEvent::Traced { done, of } => format!("pretrain: {done} of {of} tasks traced"),
        TrainEvent::TrainingTokenizer => "pretrain: training the tokenizer".to_owned(),
        TrainEvent::Corpus { .. } | TrainEvent::Demonstrations { .. } => return told_texts(event),
        TrainEvent::Selected { kept, of, left_out } => {
            let reasons: Vec<String> =
                left_out.iter().map(|(fault, n)| format!("{n} for {fault}")).collect();
            let left_out = if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") };
            format!("rft: training on {kept} of {of} episodes; left out: {left_out}")
        }
        TrainEvent::Steps { stage, epoch, made, of } => {
            format!("{}: epoch {}: {made} of {of} steps", stage.name(), epoch + 1)
        }
        TrainEvent::Epoch(stage, epoch) => told_epoch(*stage, epoch),
        TrainEvent::Update { stage, update, of } => told_update(*stage, update, *of),
        TrainEvent::RolledBack(stage, back) => told_back(*stage, *back),
        TrainEvent::Halted { stage, made, of, alarm } => told_end(*stage, (*made, *of), *alarm),
        TrainEvent::Evaluated { name, .. } => format!("eval: {name}"),
        TrainEvent::Gap { name, gap } => told_gap(name, gap),
        TrainEvent::Arm { name, seed, number, of } => {
            format!("{name}, seed {seed}: run {number} of {of}")
        }
        TrainEvent::ArmFailed(error) => {
            format!("warning: the run failed and will not be repeated: {}", chain(error))
        }
        TrainEvent::NoOptimizerState(checkpoint) => format!(
            "warning: {} has no optimizer.safetensors: the optimizer state starts at zero, so the first steps \
             change the policy more than earlier ones",
            checkpoint.display()
        ),
        TrainEvent::MetricsNotWritten(error) => {
            format!("warning: failed to write a step's metrics for TensorBoard: {error}")
        }
        TrainEvent::ReportNotWritten(error) => format!("warning: {}", chain(error)),
        TrainEvent::Notice(text) => (*text).to_owned(),
    }]
}

/// The texts that a stage trains on.
fn told_texts(event: &TrainEvent<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    match event {
        TrainEvent::Corpus { tasks, kernels, kernel_tokens, source_tokens, too_long, without } => {
            lines.push(format!(
                "pretrain: {kernels} kernels for {tasks} tasks, {kernel_tokens} tokens; {source_tokens} tokens of \
                 source code"
            ));
            if *too_long > 0 {
                lines.push(format!(
                    "warning: {too_long} kernels are longer than max_position_embeddings and left out"
                ));
            }
            let all: usize = without.values().sum();
            if all > 0 {
                let mut line = format!("pretrain: {all} tasks have no kernel");
                if let Some((reason, count)) = without.iter().max_by_key(|(_, count)| **count) {
                    let _ = write!(line, "; {count}: {reason}");
                }
                lines.push(line);
            }
        }
        TrainEvent::Demonstrations { count, tokens, longest, vocabulary, left_out, positions } => {
            lines.push(format!(
                "sft: {count} demonstrations, {tokens} tokens, the longest {longest}; vocabulary of {vocabulary}"
            ));
            if *left_out > 0 {
                lines.push(format!(
                    "warning: {left_out} demonstrations are longer than the model's context of {positions} tokens \
                     and left out"
                ));
            }
        }
        _ => {}
    }
    lines
}

fn told_gap(name: &str, Gap { closed, tasks, open }: &Gap) -> String {
    let closed = closed.map_or("no task is open".to_owned(), |c| {
        let [value, low, high] = [c.value, c.low, c.high].map(|share| 100.0 * share);
        format!("{value:.0} % [{low:.0}, {high:.0}] of the gap to the best known result closed")
    });
    format!("eval: {name}: {closed}, {open} of {tasks} tasks open")
}

fn told_epoch(stage: Stage, epoch: &Epoch) -> String {
    let explained = epoch
        .explained_variance
        .map_or_else(String::new, |share| format!(", explained variance {share:.2}"));
    format!(
        "{}: epoch {}: training loss {:.4}, validation loss {:.4}{explained}",
        stage.name(),
        epoch.number + 1,
        epoch.loss,
        epoch.validation_loss
    )
}

fn told_update(stage: Stage, update: &Update, of: u32) -> String {
    let report = &update.report;
    let explained = report
        .explained_variance
        .map_or_else(String::new, |share| format!(", explained variance {share:.2}"));
    let kl = update
        .kl_per_episode()
        .map_or_else(String::new, |nats| format!(", KL {nats:.3} nats per episode"));
    let alarms: Vec<String> = report.alarms.iter().map(Alarm::to_string).collect();
    let alarms =
        if alarms.is_empty() { String::new() } else { format!(", alarms: {}", alarms.join(", ")) };
    format!(
        "{}: step {}/{of}: reward {:.2}, pass rate {:.0} %, faster {:.0} %, entropy {:.3}, {:.0} \
         tokens{explained}{kl}, rollouts {:.1} s, update {:.1} s{alarms}",
        stage.name(),
        update.number + 1,
        report.reward,
        100.0 * update.pass_rate,
        100.0 * update.faster_rate,
        report.entropy,
        update.response_tokens,
        update.play_seconds,
        update.learn_seconds,
    )
}

fn told_back(stage: Stage, back: Back) -> String {
    let (stage, step, alarm) = (stage.name(), back.number + 1, back.alarm);
    match back.to {
        None => format!(
            "warning: {stage}: alarm {alarm} in step {step}: the update is discarded and repeated with half the \
             learning rate"
        ),
        Some(to) => format!(
            "warning: {stage}: alarm {alarm} in step {step}: training rolls back to step {to} and continues with \
             half the learning rate and new rollouts"
        ),
    }
}

/// The warning of an alarm that halts a stage after `made` of `all` steps.
fn told_end(stage: Stage, (made, all): (usize, u32), alarm: Alarm) -> String {
    let cure = match alarm {
        Alarm::SamplerWeightMismatch => {
            ". The engine's sampler and trainer have different weights, which is a fault of the engine; \
             `--set engine.fused_kernels=false` or another --device may avoid it"
        }
        _ => "",
    };
    format!(
        "warning: {}: alarm {alarm} halts the stage after {made} of {all} steps{cure}",
        stage.name()
    )
}
