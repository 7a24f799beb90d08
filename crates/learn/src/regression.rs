//! Detects lower rewards of the same tasks (`reward_regression`).
//!
//! The tasks of a training step are sampled, and tasks of zero-variance groups are sampled less
//! often. The mean reward of a step can therefore fall while the policy stays equally good, and
//! stay equal while the policy becomes worse. So each task is compared with itself: its rewards in
//! the last few steps minus those in the steps before. The shift common to all tasks, estimated by
//! least squares, is `sum(w d) / sum(w)` with `w = n m / (n + m)` of `n` visits now and `m` before.
//! Its variance is `s^2 / sum(w)`, with `s^2` the variance of visits within a task and a span
//! (two-way layout with unequal numbers, Scheffé, *The Analysis of Variance*, 1959, section 4.4).
//! `run_monitor.rs` applies the same estimate to entropies.

use std::collections::BTreeMap;

use crate::moments::mean;
use crate::step_metrics::Update;

/// Training steps that count as now, and those before them that count as before.
const LATELY: usize = 5;
const EARLIER: usize = 20;

/// Minimum degrees of freedom of the variance.
const LEAST: usize = 30;

/// A regression is a shift of at least this many standard errors below 0. It is tested after every
/// training step, and visits are not normal: without any shift it was raised in 0.3 to 3 % of runs
/// of 100 steps (the tests below).
const ERRORS: f64 = 4.0;

/// A regression is a shift of at least this share of the first steps' reward spread: among tasks
/// whose rewards hardly vary, any shift is significant.
const SHARE: f64 = 0.25;

/// A shift common to all tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shift {
    /// Increase of the figure.
    pub(crate) value: f64,
    /// Its standard error.
    pub(crate) error: f64,
}

/// Whether rewards are lower than before. `course` has the training steps in order, ending with the
/// one in question. `spread` is the standard deviation of a task's rewards in the first steps.
pub(crate) fn declines(course: &[&Update], spread: f64) -> bool {
    let found = shift(course, LATELY, EARLIER, |update| update.rewards.clone());
    found.is_some_and(|s| s.value < -ERRORS * s.error && s.value < -SHARE * spread)
}

/// Shift of a figure that each task has in each training step that samples it: the last `lately`
/// steps compared with the `earlier` steps before them. `None` if too few tasks occur in both
/// spans.
pub(crate) fn shift(
    course: &[&Update],
    lately: usize,
    earlier: usize,
    of: impl Fn(&Update) -> BTreeMap<usize, f64>,
) -> Option<Shift> {
    let lately = course.len().checked_sub(lately)?;
    let now = visits(&course[lately..], &of);
    let before = visits(&course[lately.saturating_sub(earlier)..lately], &of);
    let (mut weights, mut weighted, mut squares, mut free) = (0.0, 0.0, 0.0, 0);
    for (task, now) in &now {
        let Some(before) = before.get(task) else { continue };
        let (n, m) = (now.len() as f64, before.len() as f64);
        let weight = n * m / (n + m);
        weights += weight;
        weighted += weight * (mean(now) - mean(before));
        for figures in [now, before] {
            let centre = mean(figures);
            squares += figures.iter().map(|figure| (figure - centre).powi(2)).sum::<f64>();
            free += figures.len() - 1;
        }
    }
    let variance = squares / free as f64;
    let error = (variance / weights).sqrt();
    (free >= LEAST).then_some(Shift { value: weighted / weights, error })
}

/// The figure of each visit to a task.
fn visits(
    updates: &[&Update],
    of: impl Fn(&Update) -> BTreeMap<usize, f64>,
) -> BTreeMap<usize, Vec<f64>> {
    let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (task, figure) in updates.iter().flat_map(|update| of(update)) {
        by_task.entry(task).or_default().push(figure);
    }
    by_task
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::index::sample;
    use rand::{RngExt, SeedableRng};

    /// Tasks, some of them hard, with six episodes per sampled task. Incorrect episodes have reward
    /// -1, correct ones the task's reward with noise. `lost` is the share of correct episodes that
    /// become incorrect from a training step on.
    struct Field {
        tasks: usize,
        of_update: usize,
        lost: fn(u32) -> f64,
    }

    impl Field {
        fn updates(&self, seed: u64, count: u32) -> Vec<Update> {
            let mut random = StdRng::seed_from_u64(seed);
            let kinds: Vec<(f64, f64)> = (0..self.tasks)
                .map(|_| {
                    let right = if random.random_bool(0.2) { random.random() } else { 0.99 };
                    (right, random.random_range(0.0..2.0))
                })
                .collect();
            (0..count)
                .map(|number| {
                    let drawn = sample(&mut random, self.tasks, self.of_update);
                    let rewards = drawn.iter().map(|task| {
                        let (right, reward) = kinds[task];
                        let right = right * (1.0 - (self.lost)(number));
                        let played: Vec<f64> = (0..6)
                            .map(|_| {
                                let noise = random.random_range(-0.2..0.2);
                                if random.random_bool(right) { reward + noise } else { -1.0 }
                            })
                            .collect();
                        (task, mean(&played))
                    });
                    Update { number, rewards: rewards.collect(), ..Update::default() }
                })
                .collect()
        }

        /// The first update that is lower than those before it.
        fn first(&self, seed: u64, count: u32) -> Option<u32> {
            let updates = self.updates(seed, count);
            let course: Vec<&Update> = updates.iter().collect();
            let lower = |n: &usize| declines(&course[..*n], 0.3);
            (1..=course.len()).find(lower).map(|n| n as u32 - 1)
        }
    }

    #[test]
    fn shift_uses_tasks_seen_in_both_spans() {
        let visit = |number: u32, rewards: &[(usize, f64)]| Update {
            number,
            rewards: rewards.iter().copied().collect(),
            ..Update::default()
        };
        // Rewards of task 0 alternate between 1 and 2, then between 0.5 and 1.5. Task 1 has 5, then 4.5. Task 2 is new; task 3 is no longer sampled.
        let mut updates = Vec::new();
        for number in 0..12 {
            let own = 1.0 + f64::from(number % 2);
            updates.push(visit(number, &[(0, own), (1, 5.0), (3, 9.0)]));
        }
        for number in 12..17 {
            let own = 0.5 + f64::from(number % 2);
            updates.push(visit(number, &[(0, own), (1, 4.5), (2, -1.0)]));
        }
        let course: Vec<&Update> = updates.iter().collect();
        let found = shift(&course, LATELY, EARLIER, |u| u.rewards.clone()).unwrap();
        // Before, 0: twelve visits around 1.5; now five (0.5, 1.5, 0.5, 1.5, 0.5), mean 0.9; weight 60/17 each.
        assert!((found.value - (-0.6 - 0.5) / 2.0).abs() < 1e-12, "{found:?}");
        let squares = 12.0 * 0.25 + (3.0 * 0.16 + 2.0 * 0.36);
        let variance = squares / (2.0 * (11.0 + 4.0));
        let error = f64::sqrt(variance / (2.0 * 60.0 / 17.0));
        assert!((found.error - error).abs() < 1e-12, "{found:?}");
        let of = |course: &[&Update]| shift(course, LATELY, EARLIER, |u| u.rewards.clone());
        assert_eq!(of(&course[..4]), None);
        // Nothing was seen before.
        assert_eq!(of(&course[..5]), None);
    }

    #[test]
    fn no_shift_rarely_raises_an_alarm() {
        let fields = [(96, 16), (3, 3), (16, 16)];
        for (tasks, of_update) in fields {
            let field = Field { tasks, of_update, lost: |_| 0.0 };
            let raised = (0..400).filter(|seed| field.first(*seed, 100).is_some()).count();
            println!("{tasks} tasks, {of_update} an update: {raised} of 400 runs");
            assert!(raised <= 16, "{tasks} tasks: {raised} of 400 runs of 100 updates");
        }
    }

    #[test]
    fn ten_percent_loss_is_detected_within_eight_steps() {
        let lost = |number| if number >= 60 { 0.1 } else { 0.0 };
        let field = Field { tasks: 96, of_update: 16, lost };
        let seen = (0..200).filter(|seed| {
            field.first(*seed, 100).is_some_and(|number| (60..68).contains(&number))
        });
        let seen = seen.count();
        println!("{seen} of 200");
        assert!(seen >= 180, "{seen} of 200");
    }

    #[test]
    fn changed_task_mix_is_no_regression() {
        // The easy tasks, with reward 2, are no longer sampled after a while.
        let mut random = StdRng::seed_from_u64(3);
        let updates: Vec<Update> = (0..60)
            .map(|number| {
                let easy = if number < 30 { 20 } else { 2 };
                let drawn: Vec<usize> = (0..easy).chain(20..30).collect();
                let reward = |task: usize| if task < 20 { 2.0 } else { 0.0 };
                let rewards = drawn
                    .into_iter()
                    .map(|task| (task, reward(task) + random.random_range(-0.3..0.3)));
                Update { number, rewards: rewards.collect(), ..Update::default() }
            })
            .collect();
        let course: Vec<&Update> = updates.iter().collect();
        assert!((1..=60).all(|n| !declines(&course[..n], 0.3)));
    }
}
