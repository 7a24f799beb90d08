//! The alarms that compare a training step with earlier ones of its run.
//!
//! [`crate::monitor`] has the alarms of a single step. Here are those that need the steps before: a
//! rise of truncated messages, a surge or collapse of entropy, and rewards that no longer vary
//! although they are no better.

use crate::monitor::Alarm;
use crate::regression;

pub use crate::step_metrics::{Update, first_and_last};

/// Number of earlier training steps that a metric is compared with, and the minimum number.
const WINDOW: usize = 10;
const LEAST: usize = 5;

/// Thresholds of `docs/reference/training-metrics.md`.
const CUT_BY: f64 = 0.15;
const ENTROPY_TIMES: f64 = 2.0;
/// Training steps whose entropy counts as now.
const SURGE_OF: usize = 3;
const ENTROPY_LEFT: f64 = 0.05;
const SPREAD_LEFT: f64 = 0.5;
const NORM_TIMES: f64 = 10.0;
const MISMATCH: f64 = 0.01;
const MISMATCH_TIMES: f64 = 3.0;
const FOREIGN: f64 = 1.0;
const CLIPPED: f64 = 0.2;
const CLIPPED_TIMES: f64 = 2.0;
const FAILED: f64 = 0.2;

/// Whether entropy has doubled: in the last three training steps of a course compared with those
/// before. The comparison is per task if the tasks recur, since entropy can differ tenfold between
/// tasks; else per step.
fn surges(course: &[&Update]) -> bool {
    let logs = |update: &Update| {
        let least = |entropy: f64| entropy.max(f64::MIN_POSITIVE).ln();
        update.entropies.iter().map(|(task, entropy)| (*task, least(*entropy))).collect()
    };
    if let Some(found) = regression::shift(course, SURGE_OF, WINDOW, logs) {
        return found.value > ENTROPY_TIMES.ln();
    }
    let entropy =
        |updates: &[&Update]| middle_of(updates.iter().map(|u| u.report.entropy).collect());
    let (before, lately) = course.split_at(course.len() - SURGE_OF);
    let before = &before[before.len().saturating_sub(WINDOW)..];
    let (usual, now) = (entropy(before).unwrap_or(f64::MAX), entropy(lately).unwrap_or(0.0));
    now > ENTROPY_TIMES * usual
}

/// Alarms of a training step compared with those before. The last few count as recent, the first
/// few as initial.
pub fn alarms(before: &[Update], now: &Update) -> Vec<Alarm> {
    let mut raised = Vec::new();
    let mut raise = |is_raised: bool, alarm| {
        if is_raised {
            raised.push(alarm);
        }
    };
    let played = (now.failed + now.report.episodes).max(1);
    raise(now.failed as f64 > FAILED * played as f64, Alarm::Failures);
    let apart = now.report.rollout_ratios.map_or(0.0, |ratios| ratios.kl);
    raise(apart > FOREIGN, Alarm::SamplerWeightMismatch);
    if before.len() < LEAST {
        return raised;
    }
    let (first, last) = (&before[..LEAST], &before[before.len().saturating_sub(WINDOW)..]);
    let report = &now.report;

    raise(
        now.truncated_rate > median(last, |u| Some(u.truncated_rate)).unwrap_or(0.0) + CUT_BY,
        Alarm::Truncation,
    );
    let course: Vec<&Update> = before.iter().chain([now]).collect();
    raise(surges(&course), Alarm::EntropySurge);
    let at_first = median(first, |u| Some(u.report.entropy)).unwrap_or(0.0);
    raise(report.entropy < ENTROPY_LEFT * at_first, Alarm::EntropyCollapse);
    // If the mean has risen, rewards vary less because they are good.
    let spread = median(first, |u| Some(u.report.reward_std)).unwrap_or(0.0);
    let reward = median(first, |u| Some(u.report.reward)).unwrap_or(f64::MIN);
    let is_collapsed = report.reward_std < SPREAD_LEFT * spread && report.reward <= reward;
    raise(is_collapsed, Alarm::RewardStdCollapse);
    raise(regression::declines(&course, spread), Alarm::RewardRegression);
    let norm = median(last, |u| Some(u.report.grad_norm).filter(|norm| *norm > 0.0));
    raise(norm.is_some_and(|norm| report.grad_norm > NORM_TIMES * norm), Alarm::GradientNorm);
    let of_rare = |u: &Update| Some(u.report.rare_rollout_ratios?.kl);
    let (usual, found) = (median(last, of_rare).unwrap_or(0.0), of_rare(now).unwrap_or(0.0));
    raise(found > MISMATCH.max(MISMATCH_TIMES * usual), Alarm::Mismatch);
    if before.len() >= 2 * LEAST {
        let clipped = |u: &Update| Some(u.report.update_ratios?.clipped);
        let middle = before.len() - LEAST + 1;
        let earlier = median(&before[middle - LEAST..middle], clipped).unwrap_or(0.0);
        let mut lately: Vec<f64> = before[middle..].iter().filter_map(clipped).collect();
        lately.extend(clipped(now));
        let lately = middle_of(lately).unwrap_or(0.0);
        raise(lately > CLIPPED.max(CLIPPED_TIMES * earlier), Alarm::Clipping);
    }
    raised
}

fn median(updates: &[Update], of: impl Fn(&Update) -> Option<f64>) -> Option<f64> {
    middle_of(updates.iter().filter_map(of).collect())
}

fn middle_of(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::mean;
    use crate::monitor::Ratios;
    use crate::update::Report;

    fn usual(number: u32) -> Update {
        let ratios = Ratios { mean: 1.0, effective_share: 0.99, kl: 0.001, clipped: 0.05 };
        let report = Report {
            episodes: 60,
            reward: 0.5,
            reward_std: 0.8,
            entropy: 0.3,
            grad_norm: 0.2,
            rollout_ratios: Some(ratios),
            rare_rollout_ratios: Some(ratios),
            update_ratios: Some(ratios),
            ..Report::default()
        };
        Update { number, truncated_rate: 0.02, report, ..Update::default() }
    }

    fn after(count: u32, change: impl Fn(&mut Update)) -> Vec<Alarm> {
        let before: Vec<Update> = (0..count).map(usual).collect();
        let mut now = usual(count);
        change(&mut now);
        alarms(&before, &now)
    }

    #[test]
    fn each_trend_raises_its_alarm_after_enough_steps() {
        type Change = fn(&mut Update);
        let faults: [(Change, Alarm); 7] = [
            (|u| u.truncated_rate = 0.18, Alarm::Truncation),
            (|u| u.report.entropy = 0.01, Alarm::EntropyCollapse),
            (|u| u.report.reward_std = 0.3, Alarm::RewardStdCollapse),
            (|u| u.report.grad_norm = 2.5, Alarm::GradientNorm),
            (|u| u.report.rare_rollout_ratios = Some(ratios(0.02)), Alarm::Mismatch),
            (|u| u.report.rollout_ratios = Some(ratios(1.1)), Alarm::SamplerWeightMismatch),
            (|u| u.failed = 20, Alarm::Failures),
        ];
        for (fault, alarm) in faults {
            assert_eq!(after(12, fault), [alarm]);
            assert_eq!(after(5, fault), [alarm]);
            let is_by_itself = matches!(alarm, Alarm::Failures | Alarm::SamplerWeightMismatch);
            for early in [0, 4] {
                assert_eq!(after(early, fault).is_empty(), !is_by_itself, "{alarm:?}");
            }
        }
        let stale = |u: &mut Update| u.report.rollout_ratios = Some(ratios(0.9));
        assert_eq!(after(0, stale), []);
        assert_eq!(after(12, |_| ()), []);
    }

    fn ratios(kl: f64) -> Ratios {
        Ratios { mean: 1.0, effective_share: 1.0, kl, clipped: 0.0 }
    }

    #[test]
    fn lower_rewards_of_the_same_tasks_raise_regression() {
        let course = |lost: f64| {
            let update = |number| {
                let own =
                    |task: usize| task as f64 / 4.0 + 0.1 * f64::from((number + task as u32) % 2);
                let now = if number < 20 { 0.0 } else { lost };
                let rewards = (0..8).map(|task| (task, own(task) - now)).collect();
                Update { rewards, ..usual(number) }
            };
            let before: Vec<Update> = (0..24).map(update).collect();
            alarms(&before, &update(24))
        };
        assert_eq!(course(0.5), [Alarm::RewardRegression]);
        // Less than a quarter of how rewards of a task spread at first, 0.8, however certain.
        assert_eq!(course(0.19), []);
        assert_eq!(course(0.21), [Alarm::RewardRegression]);
        assert_eq!(course(-0.5), []);
    }

    #[test]
    fn equal_high_rewards_raise_no_alarm() {
        let good = |u: &mut Update| (u.report.reward_std, u.report.reward) = (0.1, 1.2);
        assert_eq!(after(12, good), []);
    }

    #[test]
    fn entropy_surge_needs_several_steps() {
        let course = |surges: &[u32], now: u32| {
            let update = |number| {
                let mut update = usual(number);
                update.report.entropy = if surges.contains(&number) { 0.7 } else { 0.3 };
                update
            };
            let before: Vec<Update> = (0..now).map(update).collect();
            alarms(&before, &update(now))
        };
        assert_eq!(course(&[12], 12), []);
        assert_eq!(course(&[10, 11], 12), [Alarm::EntropySurge]);
        assert_eq!(course(&[11, 12], 12), [Alarm::EntropySurge]);
        assert_eq!(course(&[3, 4, 9, 12], 12), []);
    }

    /// Of a policy that hardly hesitates the mean is that of the few tasks in which it does.
    #[test]
    fn entropy_surge_compares_the_same_tasks() {
        // Task 3 has ten times the entropy, and is sampled in some steps.
        let course = |drawn: fn(u32) -> bool, times: f64| {
            let update = |number: u32| {
                let now = if number < 17 { 1.0 } else { times };
                let varies = 1.0 + 0.2 * f64::from(number % 3);
                let own = |task: usize| if task == 3 { 0.02 } else { 0.002 };
                let tasks = (0..6).filter(|task| *task != 3 || drawn(number));
                let entropies = tasks.map(|task| (task, own(task) * varies * now)).collect();
                let mut update = Update { entropies, ..usual(number) };
                update.report.entropy =
                    mean(&update.entropies.values().copied().collect::<Vec<_>>());
                update
            };
            let before: Vec<Update> = (0..19).map(update).collect();
            alarms(&before, &update(19))
        };
        assert_eq!(course(|number| number >= 17 || number == 12, 1.0), []);
        assert_eq!(course(|_| true, 1.7), []);
        assert_eq!(course(|_| true, 2.4), [Alarm::EntropySurge]);
        assert_eq!(course(|number| number < 17, 2.4), [Alarm::EntropySurge]);
    }

    #[test]
    fn rising_clip_fraction_raises_clipping() {
        let clipped = |number: u32| {
            let mut update = usual(number);
            update.report.update_ratios.as_mut().unwrap().clipped =
                if number < 10 { 0.05 } else { 0.3 };
            update
        };
        let before: Vec<Update> = (0..12).map(clipped).collect();
        // Three of the last five.
        assert_eq!(alarms(&before, &clipped(12)), [Alarm::Clipping]);
        assert_eq!(alarms(&before[..11], &clipped(11)), []);
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(middle_of(vec![]), None);
        assert_eq!(middle_of(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle_of(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
