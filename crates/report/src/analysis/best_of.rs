//! Two policies by the best of N episodes per task.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::pool::Pool;
use super::{AnalysisError, VERSION, speedup_cell};
use crate::evaluation::rows::Row;
use crate::evaluation::statistics::{Term, geometric, mean};
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// Two policies by the best of N episodes, over the tasks that both were judged on.
///
/// Of N episodes of a task, the one counts whose kernel was the fastest in the verdicts that the
/// policy saw. Its score is that of its final kernel. Each figure is a mean over all subsets of N
/// episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestOfTable {
    /// Version of the serialised form.
    pub version: u32,
    /// A policy.
    pub one: String,
    /// The policy to compare with it.
    pub other: String,
    /// Number of tasks.
    pub tasks: u32,
    /// N of `one` against 1 and N of `other`, for N up to the smallest number of episodes of a task.
    pub lines: Vec<BestOfLine>,
}

/// Best of `one.n` against best of `other.n`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestOfLine {
    /// The first policy.
    pub one: BestOf,
    /// The other policy.
    pub other: BestOf,
    /// Geometric-mean speed-up of the other over that of the first, paired by task.
    pub ratio: Option<Interval>,
}

/// The best of N episodes of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestOf {
    /// Number of episodes.
    pub n: u32,
    /// Mean number of turns of N episodes.
    pub turns: f64,
    /// Geometric-mean speed-up over the best baseline; an incorrect kernel counts as 1.
    pub speedup: Option<Interval>,
}

/// The episodes of a task: whether and how fast the policy saw its best kernel, and the score of the
/// final kernel.
type Episodes = Vec<(Seen, f64)>;

/// Whether the episode is verified, and the best speed-up over the best baseline that the policy saw.
type Seen = (bool, f64);

impl BestOfTable {
    /// Compares the policies `one` and `other`; [`Pool::policy`] finds both by name.
    ///
    /// # Errors
    /// [`AnalysisError::Policy`] and [`AnalysisError::NothingShared`].
    pub fn of(pool: &Pool<'_>, one: &str, other: &str) -> Result<Self, AnalysisError> {
        let (one, other) = (pool.policy(one)?, pool.policy(other)?);
        let (mut first, mut second) = (episodes(pool, one), episodes(pool, other));
        first.retain(|task, _| second.contains_key(task));
        second.retain(|task, _| first.contains_key(task));
        let counts = first.values().chain(second.values()).map(Vec::len);
        let Some(largest) = counts.min() else {
            let (one, other) = (one.to_owned(), other.to_owned());
            return Err(AnalysisError::NothingShared { one, other });
        };
        let turns = |policy: &str| {
            let rows = pool.rows_of(policy).filter(|row| first.contains_key(row.task.as_str()));
            mean(&rows.map(|row| f64::from(row.turns)).collect::<Vec<_>>()).unwrap_or_default()
        };
        let (turns_one, turns_other) = (turns(one), turns(other));
        let best = |tasks: &BTreeMap<&str, Episodes>, n: usize| -> Vec<f64> {
            tasks.values().map(|episodes| best_of(episodes, n)).collect()
        };
        let column = |logs: &[f64], turns: f64, n: usize| BestOf {
            n: n as u32,
            turns: n as f64 * turns,
            speedup: geometric(&logs.iter().copied().map(Term::counted).collect::<Vec<_>>()),
        };
        let line = |n: usize, m: usize| {
            let (logs, others) = (best(&first, n), best(&second, m));
            let pairs = logs.iter().zip(&others).map(|(log, other)| Term::counted(other - log));
            BestOfLine {
                one: column(&logs, turns_one, n),
                other: column(&others, turns_other, m),
                ratio: geometric(&pairs.collect::<Vec<_>>()),
            }
        };
        // Of the two lines for N = 1, which are equal, one is left out.
        let pairs = (1..=largest).flat_map(|n| [(n, 1), (n, n)]).skip(1);
        Ok(Self {
            version: VERSION,
            one: one.to_owned(),
            other: other.to_owned(),
            tasks: first.len() as u32,
            lines: pairs.map(|(n, m)| line(n, m)).collect(),
        })
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = format!(
            "one: {}\nother: {}\n{} tasks\n",
            one_line(&self.one, 80),
            one_line(&self.other, 80),
            self.tasks
        );
        let mut grid = style(width);
        grid.set_header([
            "one, best of",
            "turns",
            "speed-up",
            "other, best of",
            "turns",
            "speed-up",
            "other over one",
        ]);
        for line in &self.lines {
            let mut cells = Vec::new();
            for best in [&line.one, &line.other] {
                cells.push(right(Some(best.n.to_string())));
                cells.push(right(Some(figures::digits(best.turns))));
                cells.push(speedup_cell(best.speedup.as_ref()));
            }
            cells.push(speedup_cell(line.ratio.as_ref()));
            grid.add_row(cells);
        }
        let _ = writeln!(text, "{grid}");
        text.push_str(
            "Speed-ups are geometric means over the best baseline; an incorrect kernel counts as \
             1x. Intervals are 95 %, by bootstrap over tasks.",
        );
        trimmed(&text)
    }
}

/// The episodes of a policy by task.
fn episodes<'a>(pool: &Pool<'a>, policy: &str) -> BTreeMap<&'a str, Episodes> {
    let mut tasks: BTreeMap<&str, Episodes> = BTreeMap::new();
    for row in pool.rows_of(policy) {
        let score = pool.finals().score(row);
        tasks.entry(row.task.as_str()).or_default().push((seen(row), score));
    }
    tasks
}

fn seen(row: &Row) -> Seen {
    let best = row.best_seen.as_ref().and_then(|seen| seen.best);
    (row.verified, best.map_or(0.0, |best| best.value))
}

/// The mean score of the best of `n` episodes, over all subsets of `n` of them. Of equal episodes
/// the first is the best.
///
/// Of k episodes sorted from the best on, episode r (from 0) is the best of its subset if the other
/// n - 1 are among the k - 1 - r after it. The share of such subsets is C(k - 1 - r, n - 1) / C(k, n).
fn best_of(episodes: &[(Seen, f64)], n: usize) -> f64 {
    let mut sorted: Vec<&(Seen, f64)> = episodes.iter().collect();
    // A stable sort.
    sorted.sort_by(|(a, _), (b, _)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let k = sorted.len();
    let mut share = n as f64 / k as f64;
    let mut sum = 0.0;
    for (r, (_, score)) in sorted.into_iter().enumerate().take(k + 1 - n) {
        sum += share * score;
        // Of the next episode: zero after the last that can be the best.
        share *= (k - r - n) as f64 / (k - 1 - r).max(1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::sample::{evaluation, exact, row};

    /// The definition, written out over all subsets.
    fn by_counting(episodes: &[(Seen, f64)], n: u32) -> f64 {
        let subsets = (0u32..1 << episodes.len()).filter(|set| set.count_ones() == n);
        let scores: Vec<f64> = subsets
            .map(|set| {
                let chosen = episodes.iter().enumerate().filter(|(i, _)| (set >> i) & 1 == 1);
                let mut best: Option<&(Seen, f64)> = None;
                for (_, episode) in chosen {
                    if best.is_none_or(|best| episode.0 > best.0) {
                        best = Some(episode);
                    }
                }
                best.unwrap().1
            })
            .collect();
        scores.iter().sum::<f64>() / scores.len() as f64
    }

    #[test]
    fn best_of_two_matches_hand_computed_values() {
        let episodes = [((true, 2.0), 1.0), ((false, 0.0), 0.0), ((true, 3.0), 0.5)];
        assert!((best_of(&episodes, 1) - 0.5).abs() < 1e-12);
        // Subsets: {2.0, 0.0}: 1.0; {2.0, 3.0}: 0.5; {0.0, 3.0}: 0.5.
        assert!((best_of(&episodes, 2) - 2.0 / 3.0).abs() < 1e-12);
        assert!((best_of(&episodes, 3) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn best_of_n_lines_compare_with_one_and_n() {
        let attempt = |policy: &str, task: &str, saw: f64, last: f64| {
            let mut row = row(policy, task, Some(last));
            row.best_seen.as_mut().unwrap().best = Some(exact(saw));
            row
        };
        let evaluations = [evaluation([
            attempt("one", "a", 2.0, 2.0),
            attempt("one", "a", 8.0, 8.0),
            attempt("other", "a", 4.0, 4.0),
            attempt("other", "a", 4.0, 4.0),
            attempt("other", "b", 4.0, 4.0),
        ])];
        let table = BestOfTable::of(&Pool::of(&evaluations).unwrap(), "one", "other").unwrap();
        let lines: Vec<(u32, u32)> = table.lines.iter().map(|l| (l.one.n, l.other.n)).collect();
        assert_eq!((table.tasks, lines), (1, vec![(1, 1), (2, 1), (2, 2)]));
        let speedup = |best: &BestOf| best.speedup.unwrap().value;
        let ratio = |n: usize| table.lines[n].ratio.unwrap().value;
        assert!((speedup(&table.lines[0].one) - 4.0).abs() < 1e-12, "mean of 2 and 8");
        assert!((speedup(&table.lines[1].one) - 8.0).abs() < 1e-12, "the faster of both");
        assert!((ratio(0) - 1.0).abs() < 1e-12 && (ratio(2) - 0.5).abs() < 1e-12);
        assert!((table.lines[2].other.turns - 6.0).abs() < 1e-12);
        assert!(table.text(None).contains("one, best of"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn best_of_n_is_the_mean_over_all_subsets(
            episodes in prop::collection::vec(((any::<bool>(), 0u8..4), -1.0f64..1.0), 1..8),
            n in 1usize..8
        ) {
            // Few values, so that there are ties.
            let episodes: Vec<(Seen, f64)> = episodes
                .into_iter()
                .map(|((verified, saw), score)| ((verified, f64::from(saw)), score))
                .collect();
            prop_assume!(n <= episodes.len());
            let expected = by_counting(&episodes, n as u32);
            prop_assert!((best_of(&episodes, n) - expected).abs() < 1e-9);
        }
    }
}
