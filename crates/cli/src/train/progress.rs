//! Progress lines and warnings of a training run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::Back;
use warpwright_learn::run_monitor::Update;

use crate::printer::Printer;
use crate::train::stage::Stage;

const EVERY: Duration = Duration::from_secs(2);

/// Prints every few seconds how many episodes are done.
pub(crate) struct Progress {
    printer: Printer,
    name: String,
    all: usize,
    state: Mutex<(usize, Instant)>,
}

impl Progress {
    pub(crate) fn new(printer: Printer, name: &str, all: usize) -> Self {
        Self { printer, name: name.to_owned(), all, state: Mutex::new((0, Instant::now())) }
    }

    pub(crate) fn one_more(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        if state.0 == self.all || state.1.elapsed() >= EVERY {
            state.1 = Instant::now();
            self.printer.say(&format!("{}: {} of {} episodes", self.name, state.0, self.all));
        }
    }
}

/// Prints every few seconds how many steps of an epoch are done.
pub(crate) struct Steps {
    printer: Printer,
    stage: Stage,
    said: Instant,
}

impl Steps {
    pub(crate) fn new(printer: Printer, stage: Stage) -> Self {
        Self { printer, stage, said: Instant::now() }
    }

    pub(crate) fn tell(&mut self, epoch: u32, made: usize, of: usize) {
        if self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            let (stage, epoch) = (self.stage.name(), epoch + 1);
            self.printer.say(&format!("{stage}: epoch {epoch}: {made} of {of} steps"));
        }
    }
}

pub(crate) fn told_epoch(stage: Stage, epoch: &Epoch) -> String {
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

pub(crate) fn told_update(stage: Stage, update: &Update, of: u32) -> String {
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

pub(crate) fn told_back(stage: Stage, back: Back) -> String {
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
pub(crate) fn told_end(stage: Stage, (made, all): (usize, u32), alarm: Alarm) -> String {
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
