//! What a run says while it goes on.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpwright_learn::course::Update;
use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::Back;

use crate::printer::Printer;
use crate::train::stage::Stage;

const EVERY: Duration = Duration::from_secs(2);

/// Says how many of many are done, every few seconds.
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

/// Says how far an epoch has come, every few seconds.
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
    let explained = epoch.explained_variance.map_or_else(String::new, |share| {
        format!(", {:.0} % of the variance explained", 100.0 * share)
    });
    format!(
        "{}: epoch {}: loss {:.4}, held out {:.4}{explained}",
        stage.name(),
        epoch.number + 1,
        epoch.loss,
        epoch.held_out
    )
}

pub(crate) fn told_update(stage: Stage, update: &Update, of: u32) -> String {
    let report = &update.report;
    let explained = report
        .explained_variance
        .map_or_else(String::new, |share| format!(", explained {share:.2}"));
    let moved = update.moved().map_or_else(String::new, |nats| format!(", moved {nats:.3}"));
    let alarms: Vec<String> = report.alarms.iter().map(|alarm| format!("{alarm:?}")).collect();
    let alarms =
        if alarms.is_empty() { String::new() } else { format!(", alarms {}", alarms.join(" ")) };
    format!(
        "{}: update {}/{of}: reward {:.2}, verified {:.0} %, faster {:.0} %, entropy {:.3}, {:.0} \
         tokens{explained}{moved}, {:.1} s + {:.1} s{alarms}",
        stage.name(),
        update.number + 1,
        report.reward,
        100.0 * update.passed,
        100.0 * update.faster,
        report.entropy,
        update.tokens,
        update.play_seconds,
        update.learn_seconds,
    )
}

pub(crate) fn told_back(stage: Stage, back: Back) -> String {
    let (number, Back { alarm, .. }) = (back.number + 1, back);
    let goes_on = match back.to {
        None => "it is made again with half the rate".to_owned(),
        Some(to) => format!("it goes on from update {to} with half the rate and other episodes"),
    };
    format!("warning: {}: update {number} is thrown away, alarm {alarm:?}; {goes_on}", stage.name())
}

/// An alarm that ends a stage after so many updates of all.
pub(crate) fn told_end(stage: Stage, (made, all): (usize, u32), alarm: Alarm) -> String {
    let cure = match alarm {
        Alarm::ForeignSampler => {
            ": what the engine draws is not by the weights that it learns with. That is a fault of the engine; \
             `fused = false` in [engine], or another --device, may be without it"
        }
        _ => "",
    };
    format!("warning: {} ends after {made} of {all} updates: alarm {alarm:?}{cure}", stage.name())
}
