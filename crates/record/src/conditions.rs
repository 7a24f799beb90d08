//! The machine while a candidate was timed: what a reader needs to believe a time.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine while a candidate was timed, over the rounds that count. What could not be read is
/// `None`, and the verdict's caveats say why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// The GPU's SM clock in MHz, read after each window.
    pub sm_mhz: Option<Spread>,
    /// Its memory clock in MHz, likewise.
    pub memory_mhz: Option<Spread>,
    /// Its temperature in degrees Celsius.
    pub celsius: Option<Spread>,
    /// Its power draw in watts.
    pub watts: Option<Spread>,
    /// What lowered its clocks, in the driver's terms, e.g. `sw_power_cap`; sorted.
    pub throttling: Vec<String>,
    /// Rounds that were measured again because the machine disturbed them.
    pub repeated_rounds: u32,
    /// Rounds whose baseline windows are those of a candidate of the same task that was timed at most half a minute
    /// before.
    #[serde(default)]
    pub shared_rounds: u32,
    /// Processes of others that had the GPU open.
    pub other_processes: Option<Vec<OtherProcess>>,
    /// Share, from 0 to 1, of the processor cores timed on that others used.
    pub host_load: Option<f64>,
    /// How many times longer windows in which nothing is computed took than the quickest of them since
    /// the judge was opened: 1 on a quiet host. On a GPU only.
    pub empty_window: Option<f64>,
    /// Coefficient of variation of the candidate's windows: standard deviation over mean.
    pub variation: Option<f64>,
}

/// How far a reading went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Least.
    pub min: u32,
    /// Median.
    pub median: u32,
    /// Largest.
    pub max: u32,
}

impl Spread {
    /// Of readings; `None` where there are none.
    pub fn of(readings: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut sorted: Vec<u32> = readings.into_iter().collect();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len() / 2)?;
        Some(Self { min: *sorted.first()?, median, max: *sorted.last()? })
    }

    /// That of all readings; its median is that of the medians.
    fn over(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let all: Vec<Self> = all.into_iter().collect();
        let median = Self::of(all.iter().map(|spread| spread.median))?.median;
        let min = all.iter().map(|spread| spread.min).min()?;
        Some(Self { min, median, max: all.iter().map(|spread| spread.max).max()? })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.median)?;
        if self.min == self.max { Ok(()) } else { write!(f, " ({} to {})", self.min, self.max) }
    }
}

/// A process of others that had the GPU open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherProcess {
    /// Its id.
    pub pid: u32,
    /// Its name, as far as the system tells it.
    pub name: String,
    /// Memory of the GPU that it held, in bytes.
    pub memory_bytes: Option<u64>,
    /// The largest share of the GPU's time that it used meanwhile, in percent.
    pub sm_percent: Option<u32>,
}

impl Conditions {
    /// The worst of several measurements: of each reading the whole spread, of each disturbance the largest. What one
    /// of them could not read is `None` only if none could. `None` if there are none.
    pub fn worst<'c>(of: impl IntoIterator<Item = &'c Self>) -> Option<Self> {
        let of: Vec<&Self> = of.into_iter().collect();
        let spread = |reading: fn(&Self) -> Option<Spread>| {
            Spread::over(of.iter().filter_map(|one| reading(one)))
        };
        let largest = |reading: fn(&Self) -> Option<f64>| {
            of.iter().filter_map(|one| reading(one)).reduce(f64::max)
        };
        let mut throttling: Vec<String> =
            of.iter().flat_map(|one| one.throttling.iter().cloned()).collect();
        throttling.sort_unstable();
        throttling.dedup();
        let mut others: Option<Vec<OtherProcess>> = None;
        for process in of.iter().filter_map(|one| one.other_processes.as_ref()).flatten() {
            let others = others.get_or_insert_default();
            match others.iter_mut().find(|known| known.pid == process.pid) {
                Some(known) => {
                    known.memory_bytes = known.memory_bytes.max(process.memory_bytes);
                    known.sm_percent = known.sm_percent.max(process.sm_percent);
                }
                None => others.push(process.clone()),
            }
        }
        if of.iter().any(|one| one.other_processes.is_some()) {
            others.get_or_insert_default();
        }
        (!of.is_empty()).then(|| Self {
            sm_mhz: spread(|one| one.sm_mhz),
            memory_mhz: spread(|one| one.memory_mhz),
            celsius: spread(|one| one.celsius),
            watts: spread(|one| one.watts),
            throttling,
            repeated_rounds: of.iter().map(|one| one.repeated_rounds).sum(),
            shared_rounds: of.iter().map(|one| one.shared_rounds).sum(),
            other_processes: others,
            host_load: largest(|one| one.host_load),
            empty_window: largest(|one| one.empty_window),
            variation: largest(|one| one.variation),
        })
    }

    /// The clocks as a fingerprint has them: `SM 1980 MHz, memory 3201 MHz`. Empty where they could
    /// not be read.
    pub fn clocks(&self) -> String {
        let of = |name, spread: Option<Spread>| spread.map(|s| format!("{name} {} MHz", s.median));
        let parts: Vec<_> =
            [of("SM", self.sm_mhz), of("memory", self.memory_mhz)].into_iter().flatten().collect();
        parts.join(", ")
    }
}

/// In one line: `SM 1980 (1965 to 1980) MHz, memory 3201 MHz, 54 C, 512 W, alone on the GPU, host 3 %
/// used by others, windows vary by 0.4 %`.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let readings = [
            ("SM ", self.sm_mhz, " MHz"),
            ("memory ", self.memory_mhz, " MHz"),
            ("", self.celsius, " C"),
            ("", self.watts, " W"),
        ];
        for (name, spread, unit) in readings {
            parts.extend(spread.map(|spread| format!("{name}{spread}{unit}")));
        }
        if !self.throttling.is_empty() {
            parts.push(format!("clocks lowered by {}", self.throttling.join(", ")));
        }
        match self.repeated_rounds {
            0 => {}
            1 => parts.push("1 round repeated".to_owned()),
            n => parts.push(format!("{n} rounds repeated")),
        }
        match self.shared_rounds {
            0 => {}
            1 => parts.push("baselines of 1 round shared".to_owned()),
            n => parts.push(format!("baselines of {n} rounds shared")),
        }
        match self.other_processes.as_deref() {
            None => {}
            Some([]) => parts.push("alone on the GPU".to_owned()),
            Some([_]) => parts.push("1 other process on the GPU".to_owned()),
            Some(others) => parts.push(format!("{} other processes on the GPU", others.len())),
        }
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        parts.extend(self.host_load.map(|s| format!("host {} used by others", percent(s))));
        parts.extend(self.empty_window.map(|x| format!("empty windows at {x:.2} of the quickest")));
        parts.extend(self.variation.map(|s| format!("windows vary by {}", percent(s))));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_summarises_the_readings() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread::of([1980, 1965, 1980]).unwrap();
        assert_eq!(spread, Spread { min: 1965, median: 1980, max: 1980 });
        assert_eq!(spread.to_string(), "1980 (1965 to 1980)");
        assert_eq!(Spread::of([7]).unwrap().to_string(), "7");
    }

    #[test]
    fn conditions_of_workloads_become_the_worst() {
        let process = |pid, sm_percent| OtherProcess {
            pid,
            name: "x".to_owned(),
            memory_bytes: None,
            sm_percent,
        };
        let one = Conditions {
            sm_mhz: Spread::of([1900, 1980]),
            throttling: vec!["b".to_owned(), "c".to_owned()],
            repeated_rounds: 1,
            other_processes: Some(vec![process(7, Some(2))]),
            variation: Some(0.01),
            ..Conditions::default()
        };
        let other = Conditions {
            sm_mhz: Spread::of([1700]),
            throttling: vec!["a".to_owned(), "b".to_owned()],
            repeated_rounds: 2,
            other_processes: Some(vec![process(7, Some(9)), process(8, None)]),
            host_load: Some(0.2),
            variation: Some(0.002),
            ..Conditions::default()
        };
        let worst = Conditions::worst([&one, &other]).unwrap();
        assert_eq!(worst.sm_mhz, Some(Spread { min: 1700, median: 1980, max: 1980 }));
        assert_eq!((worst.throttling.join(""), worst.repeated_rounds), ("abc".to_owned(), 3));
        assert_eq!(worst.other_processes, Some(vec![process(7, Some(9)), process(8, None)]));
        assert_eq!((worst.host_load, worst.variation), (Some(0.2), Some(0.01)));
        assert_eq!(Conditions::worst([&one]), Some(one));
        assert_eq!(Conditions::worst([]), None);
    }

    #[test]
    fn missing_readings_are_omitted() {
        assert_eq!(Conditions::default().to_string(), "");
        assert_eq!(Conditions::default().clocks(), "");
        let conditions = Conditions {
            sm_mhz: Spread::of([1965, 1980, 1980]),
            memory_mhz: Spread::of([3201]),
            celsius: Spread::of([54]),
            throttling: vec!["sw_power_cap".to_owned()],
            repeated_rounds: 1,
            other_processes: Some(Vec::new()),
            host_load: Some(0.034),
            variation: Some(0.004),
            ..Conditions::default()
        };
        assert_eq!(conditions.clocks(), "SM 1980 MHz, memory 3201 MHz");
        assert_eq!(
            conditions.to_string(),
            "SM 1980 (1965 to 1980) MHz, memory 3201 MHz, 54 C, clocks lowered by sw_power_cap, \
             1 round repeated, alone on the GPU, host 3.4 % used by others, windows vary by 0.4 %"
        );
    }
}
