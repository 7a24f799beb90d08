//! Two evaluations, task by task: which verdicts changed, and how sure a difference of the figures
//! is. Tasks are paired, so that what makes a task hard or slow cancels.

use std::collections::BTreeSet;
use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::fit::Fit;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Dtype, Profile, judged_workloads};

use super::finals::Finals;
use super::gap::Gap;
use super::rows::{Measured, Row, RowState};
use super::scores::{
    Against, Of, Shot, best_shot, comparable, is_known, logs, logs_or_one, shares,
};
use super::statistics::{Term, geometric, ratio};
use super::table::percent;
use super::{Evaluation, Scored, VERSION};
use super::{SCALED_DOWN, call, rules};
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// Two policies' rows over the tasks they share. What `compare --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of the serialised form.
    pub version: u32,
    /// What is compared with.
    pub a: Compared,
    /// What is compared.
    pub b: Compared,
    /// Rules of precision and comparison, the same for both.
    pub profile: Profile,
    /// The dtype that the tasks of both were cast to; `None`: they kept their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Whether `--fit` scaled the tasks of both down, each to the same size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled_down: bool,
    /// Whether calls computed gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// Tasks judged in both.
    pub tasks: u32,
    /// Tasks judged in the first only.
    pub only_a: Vec<String>,
    /// Tasks judged in the second only.
    pub only_b: Vec<String>,
    /// Pass rate of the second minus that of the first.
    pub pass_rate_difference: Option<Interval>,
    /// Share of the second that is right and more than 5 % faster, minus that of the first.
    #[serde(default)]
    pub faster_rate_difference: Against<Option<Interval>>,
    /// Share of the gap from the first to the fastest final kernels of both that the second closes, in
    /// log-speed-ups over the best baseline. A kernel counts with the mean of its measurements in both
    /// runs, an incorrect one as 1. `None` if no task is open.
    #[serde(default)]
    pub gap_closed: Option<Interval>,
    /// Geometric-mean speed-up of the second over that of the first, over tasks right in both.
    pub geomean_ratio: Against<Option<Interval>>,
    /// The same over all shared tasks, one that is not right counting as 1.
    pub geomean_ratio_failures_as_one: Against<Option<Interval>>,
    /// Wrong in the first, right in the second.
    pub gained: Vec<Changed>,
    /// Right in the first, wrong in the second.
    pub lost: Vec<Changed>,
    /// Right in both; the second's speed-up over the best baseline lies above the first's interval.
    pub faster: Vec<Changed>,
    /// Right in both; the second's lies below the first's interval.
    pub slower: Vec<Changed>,
    /// Tasks of which nothing of this can be said.
    pub unchanged: u32,
    /// What makes the comparison weaker; for people.
    pub caveats: Vec<String>,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The run folder.
    pub run: String,
    /// The policy.
    pub policy: String,
    /// The device or devices.
    pub device: String,
}

/// A task of which something changed. Of several attempts, the best final candidate's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// The task.
    pub task: String,
    /// What the first came to, in words.
    pub a: String,
    /// What the second came to, in words.
    pub b: String,
    /// Speed-up over the best baseline in the first.
    pub speedup_a: Option<Interval>,
    /// In the second.
    pub speedup_b: Option<Interval>,
}

/// Why two runs cannot be compared. A usage error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompareError {
    /// Figures of different devices or profiles never stand in one number.
    #[error("failed to compare {a} with {b}: their {what} differs: {of_a} and {of_b}")]
    Different {
        /// The first run.
        a: String,
        /// The second.
        b: String,
        /// `device`, `hardware` or `profile`.
        what: &'static str,
        /// The first's.
        of_a: String,
        /// The second's.
        of_b: String,
    },
    /// The run has several policies, or none of this name.
    #[error("failed to choose a policy of {run}: {reason}; the run has {policies}")]
    Policy {
        /// The run.
        run: String,
        /// What is wrong.
        reason: String,
        /// Its policies.
        policies: String,
    },
    /// Nothing was judged in both.
    #[error("failed to compare {a} with {b}: no task was judged in both")]
    NothingShared {
        /// The first run.
        a: String,
        /// The second.
        b: String,
    },
}

impl CompareError {
    /// The cure.
    pub fn hint(&self) -> String {
        match self {
            Self::Different { .. } => {
                "evaluate both on the same device under the same profile".to_owned()
            }
            Self::Policy { .. } => "name one with `--policy-a` or `--policy-b`".to_owned(),
            Self::NothingShared { .. } => "name two runs over the same suite".to_owned(),
        }
    }
}

/// Most sizes of one task that attempts are sorted by: a power of two each.
const MOST_SIZES: usize = 64;

/// A task's judged attempts at one size.
struct Side<'a> {
    task: &'a str,
    rows: Vec<&'a Row>,
    shots: Vec<Shot>,
}

impl Side<'_> {
    /// How its task was scaled down.
    fn fit(&self) -> Option<&Fit> {
        self.rows.first().and_then(|row| row.fit.as_ref())
    }

    /// The sets of workloads that its figures are means over. A failed attempt has those up to its failure, which tell
    /// nothing.
    fn judged(&self) -> BTreeSet<BTreeSet<&str>> {
        let verified = self.rows.iter().filter(|row| row.verified);
        verified.map(|row| judged_workloads(&row.workloads)).collect()
    }

    /// Whether figures of both are means over the same workloads.
    fn same_workloads(&self, other: &Self) -> bool {
        self.judged().union(&other.judged()).count() <= 1
    }
}

impl Comparison {
    /// Compares `policy_a` of `a` with `policy_b` of `b`. A policy may be left out where the run has
    /// one only; that of the second run is the first's by default, if it is there.
    pub fn of(
        a: &Evaluation,
        b: &Evaluation,
        policy_a: Option<&str>,
        policy_b: Option<&str>,
    ) -> Result<Self, CompareError> {
        let table_a = choose(a, policy_a)?;
        let same = policy_b.is_none() && b.tables.iter().any(|t| t.policy == table_a.policy);
        let table_b = choose(b, if same { Some(&table_a.policy) } else { policy_b })?;
        check(a, table_a, b, table_b)?;
        let (rows_a, rows_b) = (sides(a, table_a), sides(b, table_b));
        let mut pairs: Vec<(&Side<'_>, &Side<'_>)> = Vec::new();
        for side in &rows_a {
            if pairs.last().is_some_and(|(last, _)| last.task == side.task) {
                continue; // Paired at another size.
            }
            let same = |other: &&Side<'_>| {
                other.task == side.task && other.fit() == side.fit() && side.same_workloads(other)
            };
            if let Some(other) = rows_b.iter().find(same) {
                pairs.push((side, other));
            }
        }
        if pairs.is_empty() {
            return Err(CompareError::NothingShared { a: a.run.clone(), b: b.run.clone() });
        }
        let names = |sides: &[Side<'_>]| -> BTreeSet<String> {
            sides.iter().map(|side| side.task.to_owned()).collect()
        };
        let (names_a, names_b) = (names(&rows_a), names(&rows_b));
        let compared = |e: &Evaluation, t: &Scored| Compared {
            run: e.run.clone(),
            policy: t.policy.clone(),
            device: t.device.clone(),
        };
        let shots = |side: fn(&(&Side<'_>, &Side<'_>)) -> Vec<Shot>| -> Vec<Vec<Shot>> {
            pairs.iter().map(side).collect()
        };
        let shots_a = shots(|(a, _)| a.shots.clone());
        let shots_b = shots(|(_, b)| b.shots.clone());
        let mut comparison = Self {
            version: VERSION,
            a: compared(a, table_a),
            b: compared(b, table_b),
            profile: table_a.profile,
            dtype: table_a.dtype,
            scaled_down: table_a.scaled_down,
            backward: table_a.backward,
            tasks: pairs.len() as u32,
            only_a: names_a.difference(&names_b).cloned().collect(),
            only_b: names_b.difference(&names_a).cloned().collect(),
            pass_rate_difference: difference(&shots_a, &shots_b, |shot| shot.verified),
            faster_rate_difference: against(|of| {
                let known = is_known(&shots_a, of) && is_known(&shots_b, of);
                known.then(|| difference(&shots_a, &shots_b, |s| s.is_surely_faster(of)))?
            }),
            gap_closed: gap(&pairs).closed,
            geomean_ratio: against(|of| {
                geometric(&minus(&logs(&shots_b, of), &logs(&shots_a, of)))
            }),
            geomean_ratio_failures_as_one: against(|of| {
                geometric(&minus(&logs_or_one(&shots_b, of), &logs_or_one(&shots_a, of)))
            }),
            gained: Vec::new(),
            lost: Vec::new(),
            faster: Vec::new(),
            slower: Vec::new(),
            unchanged: 0,
            caveats: unlike(&rows_a, &rows_b)
                .into_iter()
                .chain(caveats((a, table_a), (b, table_b)))
                .collect(),
        };
        for (a, b) in pairs {
            comparison.sort(a, b);
        }
        Ok(comparison)
    }

    fn sort(&mut self, a: &Side<'_>, b: &Side<'_>) {
        let (shot_a, shot_b) = (best_shot(&a.shots), best_shot(&b.shots));
        let words = |side: &Side<'_>, shot: &Shot| {
            let row = side.rows.iter().find(|row| row.verified == shot.verified);
            row.map_or_else(|| "not verified".to_owned(), |row| row.result.clone())
        };
        let changed = Changed {
            task: a.task.to_owned(),
            a: words(a, &shot_a),
            b: words(b, &shot_b),
            speedup_a: shot_a.measured.best,
            speedup_b: shot_b.measured.best,
        };
        let apart = |low: Option<Interval>, high: Option<Interval>| {
            low.zip(high).is_some_and(|(low, high)| low.high < high.low)
        };
        let list = match (shot_a.verified, shot_b.verified) {
            (false, true) => &mut self.gained,
            (true, false) => &mut self.lost,
            (true, true) if apart(changed.speedup_a, changed.speedup_b) => &mut self.faster,
            (true, true) if apart(changed.speedup_b, changed.speedup_a) => &mut self.slower,
            _ => {
                self.unchanged += 1;
                return;
            }
        };
        list.push(changed);
    }
}

fn choose<'a>(run: &'a Evaluation, policy: Option<&str>) -> Result<&'a Scored, CompareError> {
    let failed = |reason: &str| {
        let names: BTreeSet<String> = run.tables.iter().map(|t| one_line(&t.policy, 60)).collect();
        let names: Vec<String> = names.into_iter().collect();
        let policies = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        CompareError::Policy { run: run.run.clone(), reason: reason.to_owned(), policies }
    };
    let fits = |table: &&Scored| policy.is_none_or(|policy| table.policy == policy);
    // A run with tasks of full size is compared by these.
    let full = |table: &&Scored| !table.scaled_down;
    let is_full = run.tables.iter().filter(fits).any(|table| full(&table));
    let mut tables = run.tables.iter().filter(fits).filter(|table| !is_full || full(table));
    match (tables.next(), tables.next()) {
        (Some(table), None) => Ok(table),
        (None, _) => Err(failed("there is none of this name")),
        (Some(_), Some(_)) if policy.is_some() => {
            Err(failed("it ran under several profiles or on several kinds of device"))
        }
        (Some(_), Some(_)) => Err(failed("there are several")),
    }
}

/// Refuses what must not be compared.
fn check(
    a: &Evaluation,
    table_a: &Scored,
    b: &Evaluation,
    table_b: &Scored,
) -> Result<(), CompareError> {
    let kind = |table: &Scored| if table.is_cpu() { "cpu" } else { "cuda" }.to_owned();
    let dtype = |table: &Scored| table.dtype.map_or("their own", Dtype::name).to_owned();
    let size = |table: &Scored| if table.scaled_down { SCALED_DOWN } else { "full" }.to_owned();
    let calls = |table: &Scored| call(table.backward).to_owned();
    let hardware = |table: &Scored| table.fingerprint.as_ref().map(|print| print.hardware.clone());
    let (hardware_a, hardware_b) = (hardware(table_a), hardware(table_b));
    // Where a run has no verdict there is no hardware to differ.
    let (hardware_a, hardware_b) = hardware_a.zip(hardware_b).unwrap_or_default();
    let facts = [
        ("profile", table_a.profile.to_string(), table_b.profile.to_string()),
        ("dtype", dtype(table_a), dtype(table_b)),
        ("size of tasks", size(table_a), size(table_b)),
        ("call", calls(table_a), calls(table_b)),
        ("device", kind(table_a), kind(table_b)),
        ("hardware", hardware_a, hardware_b),
    ];
    for (what, of_a, of_b) in facts {
        if of_a != of_b {
            let (a, b) = (a.run.clone(), b.run.clone());
            return Err(CompareError::Different { a, b, what, of_a, of_b });
        }
    }
    Ok(())
}

fn sides<'a>(evaluation: &'a Evaluation, table: &Scored) -> Vec<Side<'a>> {
    let fits = |row: &&Row| row.state == RowState::Judged && table.has(row);
    let mut sides: Vec<Side<'a>> = Vec::new();
    for row in evaluation.rows.iter().filter(fits) {
        // Rows are sorted by task.
        let alike = |side: &&mut Side<'_>| side.task == row.task && side.fit() == row.fit.as_ref();
        match sides.iter_mut().rev().take(MOST_SIZES).find(alike) {
            Some(side) => side.rows.push(row),
            None => sides.push(Side { task: &row.task, rows: vec![row], shots: Vec::new() }),
        }
    }
    for side in &mut sides {
        side.shots = side.rows.iter().map(|row| Shot::last(row)).collect();
    }
    sides
}

/// Of the shares of attempts for which something holds, the second's minus the first's.
fn difference(a: &[Vec<Shot>], b: &[Vec<Shot>], holds: impl Fn(&Shot) -> bool) -> Option<Interval> {
    ratio(&minus(&shares(b, &holds), &shares(a, &holds)))
}

/// The gap between the first and the fastest final kernels of both, closed by the second.
fn gap<'a>(pairs: &[(&Side<'a>, &Side<'a>)]) -> Gap {
    let from = || pairs.iter().flat_map(|(a, _)| a.rows.iter().copied());
    let to = || pairs.iter().flat_map(|(_, b)| b.rows.iter().copied());
    Gap::between(&Finals::of(from().chain(to())), from(), to())
}

/// Paired differences; a task that is left out on one side is left out.
fn minus(b: &[Term], a: &[Term]) -> Vec<Term> {
    let pair = |(b, a): (&Term, &Term)| {
        if a.weight > 0.0 && b.weight > 0.0 {
            Term::counted(b.sum - a.sum)
        } else {
            Term::left_out()
        }
    };
    b.iter().zip(a).map(pair).collect()
}

fn against(of: impl Fn(Of) -> Option<Interval>) -> Against<Option<Interval>> {
    Against {
        eager: of(|m: &Measured| m.eager),
        compile: of(|m: &Measured| m.compile),
        best: of(|m: &Measured| m.best),
    }
}

/// Which attempts are in no pair although their task is in both: at different sizes, or on different workloads.
fn unlike<'a>(a: &[Side<'a>], b: &[Side<'a>]) -> Vec<String> {
    let same_size = |side: &Side<'a>, other: &Side<'a>| side.fit() == other.fit();
    let sizes = without_equal((a, b), |_, _| true, same_size);
    let workloads = without_equal((a, b), same_size, Side::same_workloads);
    let told = [
        (sizes, "scaled to other sizes in one of the runs; those attempts are left out"),
        (workloads, "judged on other workloads in one of the runs; those attempts are left out"),
    ];
    let told = told.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, text)| format!("{count} tasks were {text}")).collect()
}

/// How many tasks have an attempt in one run with attempts that are `alike` in the other, none of them `equal`.
fn without_equal<'a>(
    (a, b): (&[Side<'a>], &[Side<'a>]),
    alike: impl Fn(&Side<'a>, &Side<'a>) -> bool,
    equal: impl Fn(&Side<'a>, &Side<'a>) -> bool,
) -> usize {
    let lacks = |side: &&Side<'a>, of: &[Side<'a>]| {
        let others = of.iter().filter(|other| other.task == side.task && alike(side, other));
        let mut others = others.peekable();
        others.peek().is_some() && !others.any(|other| equal(side, other))
    };
    let of_a = a.iter().filter(|side| lacks(side, b));
    let of_b = b.iter().filter(|side| lacks(side, a));
    of_a.chain(of_b).map(|side| side.task).collect::<BTreeSet<_>>().len()
}

fn caveats((run_a, a): (&Evaluation, &Scored), (run_b, b): (&Evaluation, &Scored)) -> Vec<String> {
    let mut caveats = Vec::new();
    for (name, run, table) in [("first", run_a, a), ("second", run_b, b)] {
        let others = |other: &&Scored| other.policy == table.policy && other.scaled_down;
        let tasks: u32 = run.tables.iter().filter(others).map(|other| other.overall.tasks).sum();
        if tasks > 0 && !table.scaled_down {
            let text =
                format!("{tasks} tasks of the {name} run were scaled down, and are left out");
            caveats.push(text);
        }
    }
    if let (Some(print_a), Some(print_b)) = (&a.fingerprint, &b.fingerprint)
        && comparable(print_a) != comparable(print_b)
    {
        let facts = [
            ("driver", &print_a.driver, &print_b.driver),
            ("compiler", &print_a.compiler, &print_b.compiler),
            ("torch", &print_a.torch, &print_b.torch),
            ("Python", &print_a.python, &print_b.python),
            ("warpwright", &print_a.warpwright, &print_b.warpwright),
        ];
        let differing = facts.into_iter().filter(|(_, a, b)| a != b);
        let mut parts: Vec<String> = differing
            .map(|(what, a, b)| format!("{what} {} and {}", one_line(a, 60), one_line(b, 60)))
            .collect();
        if print_a.cores != print_b.cores {
            parts.push(format!("{} and {} cores", print_a.cores, print_b.cores));
        }
        caveats.push(format!(
            "the fingerprints differ ({}): the policy may not be the cause of a difference",
            parts.join("; ")
        ));
    }
    for (name, table) in [("first", a), ("second", b)] {
        let left_out = table.overall.not_judged;
        let lost = left_out.infrastructure + left_out.unfinished;
        if lost > 0 {
            caveats.push(format!("the {name} run has {lost} planned tasks that were not judged"));
        }
    }
    caveats
}

/// A comparison as text for a terminal `width` columns wide.
pub fn text(comparison: &Comparison, width: Option<u16>) -> String {
    let c = comparison;
    let mut text = String::new();
    for (name, side) in [("A", &c.a), ("B", &c.b)] {
        let (run, policy) = (one_line(&side.run, 80), one_line(&side.policy, 60));
        let _ =
            writeln!(text, "{name}: {run}, policy {policy}, device {}", one_line(&side.device, 60));
    }
    let scaled = c.scaled_down.then_some(SCALED_DOWN);
    let rules = rules(c.profile, c.dtype, scaled, c.backward);
    let _ = writeln!(text, "{} tasks judged in both, profile {rules}", c.tasks);
    for (name, tasks) in [("A", &c.only_a), ("B", &c.only_b)] {
        if !tasks.is_empty() {
            let _ = writeln!(text, "{} tasks judged in {name} only", tasks.len());
        }
    }
    let mut grid = style(width);
    grid.set_header(["B against A", "over eager", "over compile", "over the best"]);
    for (name, figures_of) in [
        ("speed-up geomean ratio, passed in both", &c.geomean_ratio),
        ("the same, failures as 1x", &c.geomean_ratio_failures_as_one),
    ] {
        let mut cells = vec![comfy_table::Cell::new(name)];
        let ratios = [figures_of.eager, figures_of.compile, figures_of.best];
        cells.extend(ratios.map(|ratio| right(ratio.as_ref().map(figures::speedup))));
        grid.add_row(cells);
    }
    let mut cells = vec![comfy_table::Cell::new("faster rate, B minus A")];
    let faster = &c.faster_rate_difference;
    let shares = [faster.eager, faster.compile, faster.best];
    cells.extend(shares.map(|share| right(share.as_ref().map(percent))));
    grid.add_row(cells);
    let _ = writeln!(text, "{grid}");
    if let Some(difference) = &c.pass_rate_difference {
        let _ =
            writeln!(text, "pass rate, B minus A, in percentage points: {}", percent(difference));
    }
    if let Some(closed) = &c.gap_closed {
        let _ = writeln!(text, "gap closed, from A to the fastest of both: {}", percent(closed));
    }
    let lists = [
        ("gained: failed in A, passed in B", &c.gained),
        ("lost: passed in A, failed in B", &c.lost),
        ("faster beyond the intervals", &c.faster),
        ("slower beyond the intervals", &c.slower),
    ];
    for (name, tasks) in lists {
        if tasks.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{name}: {}", tasks.len());
        for task in tasks {
            let side = |words: &str, speedup: &Option<Interval>| {
                speedup.as_ref().map_or_else(|| one_line(words, 60), figures::speedup)
            };
            let (a, b) = (side(&task.a, &task.speedup_a), side(&task.b, &task.speedup_b));
            let _ = writeln!(text, "  {}: {a} -> {b}", one_line(&task.task, 60));
        }
    }
    let _ = writeln!(text, "{} tasks unchanged within their intervals", c.unchanged);
    for caveat in &c.caveats {
        let _ = writeln!(text, "Note: {caveat}.");
    }
    text.push_str(
        "Intervals are 95 %, by bootstrap over paired tasks. Speed-ups in the lists are over the best \
         baseline.",
    );
    if c.a.device == "cpu" {
        text.push_str("\nMeasured on the host (cpu): this says nothing about a GPU.");
    }
    trimmed(&text)
}
