//! Watches the machine during one measurement.

use std::time::SystemTime;

use warpwright_record::conditions::{Conditions, OtherProcess, Spread};

use super::decide::{Disturbance, RoundSamples, disturbed};
use super::host::{Cores, Load};
use super::{Health, NoReading, Reasons, Sample, tenants};
use crate::error::JudgeError;

/// From this share of the cores timed on, 0 to 1, the verdict tells that others used them.
const BUSY_HOST: f64 = 0.1;

/// Readings of one measurement, round by round.
pub(crate) struct Watch<'a> {
    health: &'a Health,
    device: String,
    contenders: usize,
    since: SystemTime,
    load: Load,
    /// Readings of the rounds that count.
    rounds: Vec<RoundSamples>,
    /// Readings of the current round.
    now: RoundSamples,
    repeated: Vec<Disturbance>,
    /// Why clocks cannot be read.
    unread: Option<String>,
}

impl<'a> Watch<'a> {
    /// Begins, before the first round. `contenders`: windows of a round.
    pub(crate) fn begin(health: &'a Health, device: String, contenders: usize, on: Cores) -> Self {
        Self {
            health,
            device,
            contenders,
            since: SystemTime::now(),
            load: Load::begin(on),
            rounds: Vec::new(),
            now: vec![None; contenders],
            repeated: Vec::new(),
            unread: None,
        }
    }

    /// Reads the GPU right after a contender's window, while its clocks are still those.
    pub(crate) fn window(&mut self, contender: usize) -> Result<(), JudgeError> {
        let Some(gauge) = self.health.gauge().filter(|_| self.unread.is_none()) else {
            return Ok(());
        };
        match gauge.sample() {
            Ok(sample) => self.now[contender] = Some(sample),
            Err(NoReading::Lost(reason)) => return Err(self.lost(reason)),
            // Not asked again: once said is enough.
            Err(NoReading::Refused(why)) => self.unread = Some(why),
        }
        Ok(())
    }

    /// Ends a round. Which rounds do not count, this or earlier ones, the latest first: the caller
    /// forgets their times, as their readings are forgotten here.
    pub(crate) fn round(&mut self) -> Vec<usize> {
        self.rounds.push(std::mem::replace(&mut self.now, vec![None; self.contenders]));
        let mut gone = Vec::new();
        for (round, why) in disturbed(&self.rounds).into_iter().rev() {
            self.rounds.remove(round);
            self.repeated.push(why);
            gone.push(round);
        }
        gone
    }

    /// Forgets the readings of a round that the caller takes out.
    pub(crate) fn forget(&mut self, round: usize) {
        if round < self.rounds.len() {
            self.rounds.remove(round);
        }
    }

    /// Fails once more than `most` rounds were disturbed: such a machine is not measured on.
    pub(crate) fn bear(&self, most: usize) -> Result<(), JudgeError> {
        let Some(why) = self.repeated.last().filter(|_| self.repeated.len() > most) else {
            return Ok(());
        };
        let (device, repeated) = (self.device.clone(), self.repeated.len());
        let reason =
            format!("{repeated} rounds of one measurement were disturbed, the last by: {why}");
        let hint =
            "check `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`; let the GPU cool down, or \
                    repair its cooling or power supply"
                .to_owned();
        Err(JudgeError::Unfit { device, reason, hint })
    }

    /// Whether other processes used so much of the cores timed on that the verdict says so.
    pub(crate) fn busy_host(&self) -> bool {
        self.load.by_others().is_some_and(|share| share > BUSY_HOST)
    }

    /// The machine's conditions, and their caveats. Fails if the machine was unfit for timing.
    pub(crate) fn end(
        self,
        variation: Option<f64>,
    ) -> Result<(Conditions, Vec<String>), JudgeError> {
        let mut caveats = Vec::new();
        let other_processes = self.others(&mut caveats)?;
        let host_load = self.load.by_others();
        if let Some(first) = self.repeated.first() {
            let n = self.repeated.len();
            let rounds = if n == 1 { "1 round was" } else { &format!("{n} rounds were") };
            caveats.push(format!("{rounds} measured again: {first}"));
        }
        match host_load {
            None => caveats.push("the host load could not be read".to_owned()),
            Some(share) if share > BUSY_HOST => caveats.push(format!(
                "other processes used {:.0} % of the cores reserved for timing",
                100.0 * share
            )),
            Some(_) => {}
        }
        let samples = || self.rounds.iter().flatten().flatten();
        let spread = |of: fn(&Sample) -> Option<u32>| Spread::of(samples().filter_map(of));
        let reasons = Reasons(samples().fold(0, |all, sample| all | sample.reasons.0));
        let doubtful = reasons.doubtful().names();
        if !doubtful.is_empty() {
            let names = doubtful.join(", ");
            caveats.push(format!("the GPU throttled while timing: {names}"));
        }
        let mut throttling: Vec<_> = reasons.names().into_iter().map(str::to_owned).collect();
        throttling.sort_unstable();
        let conditions = Conditions {
            sm_mhz: spread(|s| s.sm_mhz),
            memory_mhz: spread(|s| s.memory_mhz),
            celsius: spread(|s| s.celsius),
            watts: spread(|s| s.watts),
            throttling,
            repeated_rounds: self.repeated.len() as u32,
            shared_rounds: 0,
            other_processes,
            host_load,
            empty_window: None,
            variation,
        };
        Ok((conditions, caveats))
    }

    /// Other processes that have the GPU open.
    fn others(&self, caveats: &mut Vec<String>) -> Result<Option<Vec<OtherProcess>>, JudgeError> {
        let gauge = match self.health {
            Health::Host => {
                caveats.push("host processor clocks are not monitored".to_owned());
                return Ok(None);
            }
            Health::Blind(why) => {
                caveats
                    .push(format!("clocks, throttling and co-tenants could not be read ({why})"));
                return Ok(None);
            }
            Health::Gpu(gauge) => gauge,
        };
        if let Some(why) = &self.unread {
            caveats.push(format!("clocks and throttling could not be read ({why})"));
        }
        let listed = match gauge.processes(self.since) {
            Ok(listed) => listed,
            Err(NoReading::Lost(reason)) => return Err(self.lost(reason)),
            Err(NoReading::Refused(why)) => {
                caveats.push(format!("co-tenants cannot be seen ({why})"));
                return Ok(None);
            }
        };
        let judge = std::process::id();
        let Some(others) = tenants::others(&listed, judge, tenants::parent, tenants::name) else {
            let why = "the driver does not list this program's own process";
            caveats.push(format!("co-tenants cannot be seen ({why})"));
            return Ok(None);
        };
        if let Some(busy) = tenants::busiest(&others) {
            let device = self.device.clone();
            let reason = format!("another process used the GPU: {}", tenants::words(busy));
            let hint = "stop that process or wait for its end, then run again; or use another GPU";
            return Err(JudgeError::Unfit { device, reason, hint: hint.to_owned() });
        }
        if !others.is_empty() {
            let words: Vec<_> = others.iter().map(tenants::words).collect();
            caveats.push(format!("other processes had the GPU open: {}", words.join("; ")));
        }
        Ok(Some(others))
    }

    fn lost(&self, reason: String) -> JudgeError {
        JudgeError::DeviceLost { device: self.device.clone(), reason }
    }
}
