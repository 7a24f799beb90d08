//! Updates of a policy that is a table (`table.rs`).

use super::*;
use crate::table::{Table, episode};

/// Token 1 has a positive reward; 2 and 3 have a negative one.
fn episodes() -> Vec<Episode> {
    ["a", "b"]
        .iter()
        .flat_map(|task| {
            [(1, 1.0), (2, -1.0), (3, -1.0), (1, 1.0)]
                .map(|(token, reward)| episode(task, &[token], reward))
        })
        .collect()
}

fn steps(lr: f64) -> Steps {
    let step = Step { lr, ..Step::default() };
    Steps { policy: step, critic: step, minibatches: 1, epochs: 1, zero_variance_tolerance: 0.0 }
}

/// Whether each entry of `odds` is `share` times that of `of`.
fn is_share<const N: usize>(odds: &[[f64; N]; N], of: &[[f64; N]; N], share: f64) -> bool {
    let pairs = odds.iter().flatten().zip(of.iter().flatten());
    pairs.clone().any(|(_, of)| of.abs() > 1e-3)
        && pairs.clone().all(|(a, b)| (a - share * b).abs() < 1e-9)
}

fn ppo() -> Algorithm {
    Algorithm::Ppo { recipe: Recipe::robust(), critic_steps_per_step: 1, critic_only: false }
}

fn rules() -> [Algorithm; 4] {
    let loss = Recipe::robust().policy;
    [
        ppo(),
        Algorithm::Group { by: Comparison::Rloo, loss },
        Algorithm::Group { by: Comparison::Grpo, loss },
        Algorithm::Rejection { above: 0.0 },
    ]
}

#[test]
fn every_algorithm_raises_rewarded_token_probability() {
    for rule in rules() {
        let mut table = Table::new();
        let report = update(&mut table, &rule, &steps(0.5), &episodes()).unwrap();
        let logprobs = table.logprobs(0);
        assert!(logprobs[1] > 0.25f64.ln(), "{rule:?} {logprobs:?}");
        assert!(logprobs[2] < 0.25f64.ln() && logprobs[3] < 0.25f64.ln(), "{rule:?} {logprobs:?}");
        let (reward, zero_variance) = (report.reward, report.zero_variance_share);
        assert_eq!((report.episodes, reward, zero_variance), (8, 0.0, 0.0), "{rule:?}");
        assert!((report.entropy - 4f64.ln()).abs() < 1e-6, "{rule:?} {}", report.entropy);
        assert!(report.grad_norm > 0.0 && report.alarms.is_empty(), "{rule:?} {report:?}");
        assert_eq!(table.steps.0, 1, "{rule:?}");
    }
}

#[test]
fn rloo_step_matches_hand_computation() {
    // One action each: whitened advantages are 1 for the two tokens 1, -1 for the others; the ratio is 1.
    let loss = Recipe::robust().policy;
    let rule = Algorithm::Group { by: Comparison::Rloo, loss };
    let mut table = Table::new();
    let report = update(&mut table, &rule, &steps(1.0), &episodes()).unwrap();
    // d/d odds[1] = -(4 (1 - 1/4) - 4 (0 - 1/4)) / 8 = -1/2; odds[2]: -(-1/4 * 4 - (1 - 1/4) 2 + 1/4 2) / 8.
    let wanted = [0.0, 0.5, -0.25, -0.25];
    for (found, wanted) in table.odds[0].iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-6, "{:?}", table.odds[0]);
    }
    assert!((report.grad_norm - (0.25f64 + 2.0 * 0.0625).sqrt()).abs() < 1e-6);
    assert!(report.loss.abs() < 1e-6, "the mean of whitened advantages is none");
    let moved = report.update_ratios.unwrap();
    let sum: f64 = wanted.iter().map(|x| x.exp()).sum();
    let ratios = wanted.map(|x| 4.0 * x.exp() / sum);
    assert!((moved.mean - (ratios[1] * 4.0 + ratios[2] * 4.0) / 8.0).abs() < 1e-6);
    assert!((report.rollout_ratios.unwrap().mean - 1.0).abs() < 1e-6);
}

#[test]
fn zero_variance_groups_are_counted_and_not_trained() {
    let loss = Recipe::robust().policy;
    let mut all = episodes();
    all.extend([episode("same", &[3], 2.0), episode("same", &[3], 2.0)]);
    for by in [Comparison::Rloo, Comparison::Grpo] {
        let rule = Algorithm::Group { by, loss };
        let mut table = Table::new();
        let report = update(&mut table, &rule, &steps(0.5), &all).unwrap();
        assert_eq!((report.episodes, report.used, report.actions), (10, 8, 8));
        assert!((report.zero_variance_share - 1.0 / 3.0).abs() < 1e-12);
        assert!(table.logprobs(0)[3] < 0.25f64.ln(), "{by:?}: their reward is the highest");
    }
    let zero_variance = &all[8..];
    let mut table = Table::new();
    let rule = Algorithm::Group { by: Comparison::Rloo, loss };
    let report = update(&mut table, &rule, &steps(0.5), zero_variance).unwrap();
    assert_eq!((report.used, report.zero_variance_share, table), (0, 1.0, Table::new()));
}

#[test]
fn rejection_trains_on_episodes_above_the_bar() {
    let mut table = Table::new();
    let rule = Algorithm::Rejection { above: 0.0 };
    let report = update(&mut table, &rule, &steps(0.5), &episodes()).unwrap();
    assert_eq!((report.used, report.actions), (4, 4));
    assert!((report.loss - 4f64.ln()).abs() < 1e-6);
    let bar = Algorithm::Rejection { above: 1.0 };
    let mut table = Table::new();
    assert_eq!(update(&mut table, &bar, &steps(0.5), &episodes()).unwrap().used, 0);
    assert_eq!(table, Table::new());
}

#[test]
fn positive_nll_adds_to_the_surrogate() {
    let after = |rule: &Algorithm| {
        let mut table = Table::new();
        update(&mut table, rule, &steps(0.5), &episodes()).unwrap();
        table
    };
    let with = |positive_nll_weight: f64| Algorithm::Ppo {
        recipe: Recipe { positive_nll_weight, ..Recipe::robust() },
        critic_steps_per_step: 1,
        critic_only: false,
    };
    let (alone, both) = (after(&with(0.0)), after(&with(0.25)));
    let likelihood = after(&Algorithm::Rejection { above: 0.0 });
    // Steps are gradients times the learning rate, so that the steps of both losses add up.
    for (token, both) in both.odds[0].iter().enumerate() {
        let sum = alone.odds[0][token] + 0.25 * likelihood.odds[0][token];
        assert!((both - sum).abs() < 1e-6, "token {token}: {both}, {sum}");
    }
    assert!(both.odds[0][1] > alone.odds[0][1] + 0.01, "positive control");
    // Without a rewarded episode the likelihood term is empty.
    let bad: Vec<Episode> = episodes().into_iter().filter(|e| e.reward < 0.0).collect();
    let mut table = Table::new();
    update(&mut table, &with(0.25), &steps(0.5), &bad).unwrap();
    let mut plain = Table::new();
    update(&mut plain, &with(0.0), &steps(0.5), &bad).unwrap();
    assert_eq!(table, plain);
}

#[test]
fn dropped_zero_variance_groups_train_only_the_critic() {
    let with = |drop_zero_variance_groups: bool| Algorithm::Ppo {
        recipe: Recipe { drop_zero_variance_groups, ..Recipe::robust() },
        critic_steps_per_step: 1,
        critic_only: false,
    };
    let mut all = episodes();
    all.extend([episode("same", &[3], 2.0), episode("same", &[3], 2.0)]);
    let after = |skips: bool, all: &[Episode]| {
        let mut table = Table::new();
        let report = update(&mut table, &with(skips), &steps(0.5), all).unwrap();
        (table, report)
    };
    let (skipped, report) = after(true, &all);
    assert_eq!((report.episodes, report.used, report.actions), (10, 8, 8));
    // The policy's step is that without the zero-variance episodes, scaled by the remaining share
    // of the actions, eight of ten. The critic's step is unchanged.
    assert!(is_share(&skipped.odds, &after(false, &episodes()).0.odds, 0.8));
    let (plain, report) = after(false, &all);
    assert_eq!((skipped.values, report.used), (plain.values, 10));
    assert!(plain.odds[0][3] > skipped.odds[0][3], "positive control");
    // A group of one has no variance to test and counts.
    let single = [episode("one", &[1], 1.0), episode("other", &[2], -1.0)];
    assert_eq!(after(true, &single).1.used, 2);
    // If all groups are zero-variance the policy does not change.
    let (table, report) = after(true, &all[8..]);
    assert_eq!((table.odds, report.used, table.steps.0), (Table::new().odds, 0, 0));
}

#[test]
fn rewards_within_tolerance_are_zero_variance() {
    let mut all = episodes();
    all.extend([episode("nearly", &[3], 2.0), episode("nearly", &[1], 2.1)]);
    let ppo = Algorithm::Ppo {
        recipe: Recipe { drop_zero_variance_groups: true, ..Recipe::robust() },
        critic_steps_per_step: 1,
        critic_only: false,
    };
    let loss = Recipe::robust().policy;
    let by = |by| Algorithm::Group { by, loss };
    let after = |rule: &Algorithm, tolerance: f64, all: &[Episode]| {
        let mut table = Table::new();
        let steps = Steps { zero_variance_tolerance: tolerance, ..steps(0.5) };
        let report = update(&mut table, rule, &steps, all).unwrap();
        (table.odds, report.zero_variance_share, report.used)
    };
    for rule in [ppo, by(Comparison::Rloo), by(Comparison::Grpo)] {
        let (without, zero_variance, used) = after(&rule, 0.15, &episodes());
        let (odds, higher, same) = after(&rule, 0.15, &all);
        assert_eq!(used, same, "{rule:?}");
        // RLOO whitens over all episodes, including those of zero-variance groups.
        let is_whitened = matches!(rule, Algorithm::Group { by: Comparison::Rloo, .. });
        let share = if rule == ppo { 0.8 } else { 1.0 };
        assert!(is_whitened || is_share(&odds, &without, share), "{rule:?}");
        assert!(higher > zero_variance);
        let (apart, _, more) = after(&rule, 0.05, &all);
        assert!(apart != odds && more == used + 2, "positive control, {rule:?}");
    }
}

#[test]
fn critic_trains_alone_to_expected_returns() {
    // After token 0 comes 1 on average; after token 2 nothing.
    let all: Vec<Episode> =
        [(&[1][..], 1.0), (&[2, 3], 0.0), (&[1], 1.0), (&[2, 1], 0.0), (&[1], 2.0)]
            .map(|(produced, reward)| episode("a", produced, reward))
            .into();
    let rule =
        Algorithm::Ppo { recipe: Recipe::robust(), critic_steps_per_step: 2, critic_only: true };
    let mut table = Table::new();
    let mut explained = Vec::new();
    for _ in 0..40 {
        let report = update(&mut table, &rule, &steps(0.5), &all).unwrap();
        explained.push(report.explained_variance.unwrap());
        assert!(report.alarms.is_empty() && report.update_ratios.is_none());
    }
    assert_eq!(table.steps, (0, 80));
    assert_eq!(table.odds, Table::new().odds);
    assert!((table.values[0] - 0.8).abs() < 0.01, "{:?}", table.values);
    assert!(table.values[2].abs() < 0.01, "{:?}", table.values);
    assert!(explained[0].abs() < 1e-9 && explained[39] > 0.2, "{explained:?}");
}

#[test]
fn shared_value_head_is_trained_with_policy() {
    let mut table = Table { has_critic: false, ..Table::new() };
    let report = update(&mut table, &ppo(), &steps(0.5), &episodes()[..3]).unwrap();
    assert_eq!(table.steps, (1, 0));
    assert!(report.value_loss.unwrap() > 0.0 && table.values[0] < 0.0);
    let mut none = Table { has_values: false, ..Table::new() };
    let refused = update(&mut none, &ppo(), &steps(0.5), &episodes());
    assert!(matches!(refused, Err(UpdateError::NoValues)));
    // A critic on the policy's trunk cannot be trained alone; the request is refused.
    let alone =
        Algorithm::Ppo { recipe: Recipe::robust(), critic_steps_per_step: 1, critic_only: true };
    let refused = update(&mut table, &alone, &steps(0.5), &episodes());
    assert!(matches!(refused, Err(UpdateError::SharedTrunk)));
}

#[test]
fn each_minibatch_takes_one_optimizer_step() {
    let mut table = Table::new();
    let steps = Steps { minibatches: 4, ..steps(0.1) };
    let report = update(&mut table, &ppo(), &steps, &episodes()).unwrap();
    assert_eq!(table.steps, (4, 1));
    assert_eq!(report.used, 8);
    // More minibatches than episodes are capped at the number of episodes.
    let mut table = Table::new();
    update(&mut table, &ppo(), &Steps { minibatches: 99, ..steps }, &episodes()[..3]).unwrap();
    assert_eq!(table.steps, (3, 1));
}

#[test]
fn ppo_epochs_repeat_the_minibatches() {
    let (mut once, mut twice) = (Table::new(), Table::new());
    let steps = Steps { minibatches: 2, ..steps(0.05) };
    update(&mut once, &ppo(), &steps, &episodes()).unwrap();
    let report = update(&mut twice, &ppo(), &Steps { epochs: 3, ..steps }, &episodes()).unwrap();
    assert_eq!((once.steps, twice.steps), ((2, 1), (6, 1)));
    assert_eq!(report.used, 8, "an episode counts once");
    let moved = |table: &Table| table.odds.iter().flatten().map(|odds| odds.abs()).sum::<f64>();
    assert!(moved(&twice) > moved(&once));
}

#[test]
fn too_large_step_raises_divergence_alarm() {
    let mut table = Table::new();
    let report = update(&mut table, &ppo(), &steps(30.0), &episodes()).unwrap();
    assert!(report.alarms.contains(&Alarm::Divergence), "{report:?}");
    let mut table = Table::new();
    let report = update(&mut table, &ppo(), &steps(f64::NAN), &episodes()).unwrap();
    assert!(report.alarms.contains(&Alarm::NotFinite), "{report:?}");
}

#[test]
fn empty_or_nan_batch_changes_no_weights() {
    let mut table = Table::new();
    assert_eq!(update(&mut table, &ppo(), &steps(0.5), &[]).unwrap(), Report::default());
    let mut broken = episodes();
    broken[2].reward = f64::NAN;
    let refused = update(&mut table, &ppo(), &steps(0.5), &broken).unwrap_err();
    assert!(refused.to_string().contains("episode 2"), "{refused}");
    assert_eq!(table, Table::new());
}
