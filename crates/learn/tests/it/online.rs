use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpwright_learn::engine::Step;
use warpwright_learn::losses::PolicyLoss;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::{
    Back, Ended, Judged, MAX_ROLLBACKS, Online, OnlineError, Play, State,
};
use warpwright_learn::run_monitor::first_and_last;
use warpwright_learn::schedule::{LrSchedule, LrSchedulerType};
use warpwright_learn::update::{Algorithm, Comparison, Steps};
use warpwright_record::verdict::Scheme;

use crate::coin::{Coin, Table};

const LINEAR: LrSchedule = LrSchedule { kind: LrSchedulerType::Linear, warmup_steps: 0 };

fn online() -> Online {
    let loss = PolicyLoss {
        clip_ratio_low: 0.2,
        clip_ratio_high: 0.28,
        clip_ratio_c: None,
        rollout_is_threshold: None,
        bypass_mode: false,
    };
    let step = Step { lr: 0.5, ..Step::default() };
    Online {
        algorithm: Algorithm::Group { by: Comparison::Rloo, loss },
        steps: Steps {
            policy: step,
            critic: step,
            minibatches: 1,
            epochs: 1,
            zero_variance_tolerance: 0.0,
        },
        schedule: LINEAR,
        total_training_steps: 8,
        critic_warmup_steps: 0,
        train_batch_size: 2,
        rollout_n: 6,
        reward: Scheme::Paper,
        zero_variance_sample_weight: 0.1,
        halt_on: vec![Alarm::NotFinite],
        rollback_on: vec![],
        lr_kl_target_per_episode: None,
        max_staleness: 0,
        seed: 7,
    }
}

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// The result of a run: the weights, the state, the episodes played.
fn whole(online: &Online) -> (Coin, State, Vec<Play>) {
    let (mut coin, table, mut state) = (Coin::default(), Table::new(0), State::default());
    online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
    (coin, state, table.asked())
}

/// The state without fields that differ between identical runs.
fn timeless(mut state: State) -> State {
    for update in &mut state.updates {
        (update.play_seconds, update.learn_seconds) = (0.0, 0.0);
    }
    state
}

#[test]
fn rewarded_token_becomes_likelier_under_linear_schedule() {
    let (coin, state, asked) = whole(&online());
    assert!(coin.odds > 0.5, "{}", coin.odds);
    assert_eq!(state.updates.len(), 8);
    assert!(coin.rates.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", coin.rates);
    assert!((coin.rates[0] - 0.5).abs() < 1e-12);
    let numbers: Vec<u32> = asked.iter().map(|play| play.number).collect();
    assert!(numbers.iter().copied().eq(0..8 * 12), "each step has its own numbers: {numbers:?}");
    let mut seeds: Vec<u64> = asked.iter().map(|play| play.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 96);
    // Judge use is reported per training step.
    let judged = state.updates[3].judged;
    assert_eq!((judged.judged, judged.repeated), (12, 24));
    assert!((judged.seconds - 6.0).abs() < 1e-9);
    // Episodes have one message each; half are verified and three times as fast as eager.
    let first = &state.updates[0];
    assert!(
        (first.turns - 1.0).abs() < 1e-12
            && first.pass_rate > 0.0
            && (first.pass_rate - first.faster_rate).abs() < 1e-12
    );
    // Each of the step's two tasks has six episodes.
    for update in &state.updates {
        let mean = update.rewards.values().sum::<f64>() / 2.0;
        assert_eq!(update.rewards.len(), 2);
        assert!((mean - update.report.reward).abs() < 1e-12, "{mean} {}", update.report.reward);
    }
}

#[test]
fn zero_variance_task_is_sampled_less_often() {
    let (_, state, asked) =
        whole(&Online { total_training_steps: 60, train_batch_size: 1, ..online() });
    let of = |task| asked.iter().filter(|play| play.task == task).count() / 6;
    assert!(state.zero_variance[&2]);
    assert!(of(2) < of(0) / 2 && of(2) < of(1) / 2, "{} {} {}", of(0), of(1), of(2));
}

#[test]
fn resumed_run_equals_uninterrupted_run() {
    let wanted = whole(&online());
    for cut in 1..8 {
        let (mut coin, table, mut state) = (Coin::default(), Table::new(0), State::default());
        let stop = |_: &mut Coin, state: &State| {
            if state.updates.len() == cut { ControlFlow::Break(()) } else { GO_ON }
        };
        online().run(&mut coin, &table, &mut state, stop).unwrap();
        // As stored on disk.
        let text = serde_json::to_string(&state).unwrap();
        let mut state: State = serde_json::from_str(&text).unwrap();
        online().run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        assert_eq!((coin, timeless(state)), (wanted.0.clone(), timeless(wanted.1.clone())));
        assert_eq!(table.asked(), wanted.2);
    }
}

/// A run in which episodes of `max_staleness` later steps begin before those of the current step
/// end, up to the last step. No current episode ends before they have begun.
fn stale(max_staleness: u32) -> (Online, Table) {
    let awaits = (12 * (max_staleness - 1) + 1, (8 - max_staleness) * 12);
    (Online { max_staleness, ..online() }, Table { awaits, ..Table::new(0) })
}

#[test]
fn later_episodes_begin_before_the_step_ends() {
    for many in [1, 2, 5] {
        let (online, table) = stale(many);
        let (mut coin, mut state) = (Coin::default(), State::default());
        online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        assert_eq!(table.alone.load(Ordering::SeqCst), 0, "episodes of {many} later steps waited");
        assert_eq!(state.updates.len(), 8);
        let mut asked: Vec<u32> = table.asked().iter().map(|play| play.number).collect();
        // Concurrent batches are requested by threads of their own, in any order.
        asked.sort_unstable();
        assert!(asked.into_iter().eq(0..8 * 12), "each episode is played once");
        assert!(!table.abandoned.load(Ordering::SeqCst));
        assert!(coin.odds > 0.5, "{}", coin.odds);
        // A zero-variance group is known that many steps later.
        let online = Online { total_training_steps: 60, train_batch_size: 1, ..online };
        let (mut coin, table, mut state) = (Coin::default(), Table::new(0), State::default());
        online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        let asked = table.asked();
        let of = |task| asked.iter().filter(|play| play.task == task).count() / 6;
        assert!(of(2) < of(0) / 2 && of(2) < of(1) / 2, "{} {} {}", of(0), of(1), of(2));
    }
}

/// No more steps begin than the limit: waiting for one more times out.
#[test]
fn episodes_begin_within_the_staleness_limit() {
    let (online, table) = stale(2);
    let patience = Duration::from_secs(10);
    let table = Table { awaits: (12 * 2 + 1, 12), patience, ..table };
    let online = Online { total_training_steps: 5, ..online };
    let (mut coin, mut state) = (Coin::default(), State::default());
    online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
    assert_eq!(table.alone.load(Ordering::SeqCst), 1);
}

#[test]
fn resumed_stale_run_equals_uninterrupted_run() {
    for (many, cut) in [1, 2, 3].into_iter().flat_map(|many| (1..8).map(move |cut| (many, cut))) {
        let (online, table) = stale(many);
        let (mut coin, mut state) = (Coin::default(), State::default());
        online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        let wanted: HashMap<u32, Play> =
            table.asked().into_iter().map(|play| (play.number, play)).collect();
        let (online, table) = stale(many);
        let (mut again, mut taken_up) = (Coin::default(), State::default());
        let stop = |_: &mut Coin, state: &State| {
            if state.updates.len() == cut { ControlFlow::Break(()) } else { GO_ON }
        };
        online.run(&mut again, &table, &mut taken_up, stop).unwrap();
        assert!(table.abandoned.load(Ordering::SeqCst), "running episodes are cancelled");
        let text = serde_json::to_string(&taken_up).unwrap();
        let mut taken_up: State = serde_json::from_str(&text).unwrap();
        online.run(&mut again, &table, &mut taken_up, |_, _| GO_ON).unwrap();
        // The episodes that had begun are requested again, with the same tasks and seeds.
        assert!(table.asked().iter().all(|play| wanted[&play.number] == *play));
        let count = |mut state: State| {
            for update in &mut state.updates {
                update.judged = Judged::default();
            }
            timeless(state)
        };
        assert_eq!((again, count(taken_up)), (coin, count(state)), "{many} ahead, cut at {cut}");
    }
}

#[test]
fn rollback_discards_episodes_of_the_discarded_policy() {
    for many in [1, 3] {
        let (online, table) = stale(many);
        let online = Online {
            rollback_on: vec![Alarm::Truncation],
            total_training_steps: 20,
            schedule: LrSchedule::CONSTANT,
            ..online
        };
        let (mut coin, mut state) = (Coin::default(), State::default());
        let table = Table { cut: 12 * 12..13 * 12, ..table };
        let ended = online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        let back = Back { number: 12, alarm: Alarm::Truncation, to: Some(5), staleness: many };
        assert_eq!(ended, Ended::Back(back));
        let used = (13 + many) * 12;
        assert!(table.asked().iter().all(|play| play.number < used));
        let ended = online.run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
        assert_eq!((ended, state.updates.len()), (Ended::Here, 20));
        let mut since: Vec<u32> = table.asked().iter().map(|play| play.number).collect();
        since.sort_unstable();
        assert!(since.iter().copied().eq(used..used + 15 * 12), "{since:?}");
    }
}

#[test]
fn infrastructure_failures_are_counted_not_trained_on() {
    let (mut coin, table, mut state) = (Coin::default(), Table::new(3), State::default());
    online().run(&mut coin, &table, &mut state, |_, _| GO_ON).unwrap();
    assert!(state.updates.iter().all(|u| u.failed == 4 && u.report.episodes == 8));
    let all = Table::new(1);
    let error =
        online().run(&mut Coin::default(), &all, &mut State::default(), |_, _| GO_ON).unwrap_err();
    assert!(matches!(error, OnlineError::NoEpisodes { number: 0, episodes: 12, .. }), "{error}");
}

#[test]
fn halt_on_alarm_ends_the_run() {
    let mut state = State::default();
    let online = Online {
        steps: Steps { policy: Step { lr: f64::NAN, ..Step::default() }, ..online().steps },
        ..online()
    };
    online.run(&mut Coin::default(), &Table::new(0), &mut state, |_, _| GO_ON).unwrap();
    assert_eq!(online.alarm(&state), Some(Alarm::NotFinite));
    assert!(state.updates.len() < 8 && online.is_over(&state));
}

/// The sampler is a fair coin, whatever the policy is: its tokens do not come from a policy far
/// from that.
#[test]
fn sampler_weight_mismatch_halts_during_critic_warmup() {
    let online =
        Online { halt_on: vec![Alarm::SamplerWeightMismatch], critic_warmup_steps: 2, ..online() };
    for (odds, alarm, made) in [(8.0, Some(Alarm::SamplerWeightMismatch), 1), (0.0, None, 8)] {
        let (mut coin, mut state) = (Coin::default(), State::default());
        coin.odds = odds;
        online.run(&mut coin, &Table::new(0), &mut state, |_, _| GO_ON).unwrap();
        assert_eq!((online.alarm(&state), state.updates.len()), (alarm, made));
    }
}

#[test]
fn first_and_last_average_a_fifth_of_steps() {
    assert_eq!(first_and_last(&[]), None);
    let (_, state, _) = whole(&online());
    let rewards: Vec<f64> = state.updates.iter().map(|update| update.report.reward).collect();
    let (first, last) = first_and_last(&state.updates).unwrap();
    assert!((first - f64::midpoint(rewards[0], rewards[1])).abs() < 1e-12);
    assert!((last - f64::midpoint(rewards[6], rewards[7])).abs() < 1e-12);
}

#[test]
fn rollback_repeats_the_step_with_half_lr() {
    let careless =
        Online { rollback_on: vec![Alarm::Divergence], schedule: LrSchedule::CONSTANT, ..online() };
    let careless = Online {
        steps: Steps { policy: Step { lr: 12.8, ..Step::default() }, ..careless.steps },
        ..careless
    };
    let (mut kept, mut state) = (Coin::default(), State::default());
    let mut played = Vec::new();
    let table = Table::new(0);
    loop {
        // The weights of the last step that was kept, as a restarted engine would load them.
        let mut coin = kept.clone();
        let ended = careless
            .run(&mut coin, &table, &mut state, |coin, _| {
                kept = coin.clone();
                GO_ON
            })
            .unwrap();
        played.push(table.asked());
        let Ended::Back(back) = ended else { break };
        assert_eq!(back.alarm, Alarm::Divergence);
        assert_eq!(back.number as usize, state.updates.len());
        assert_eq!(state.back.last(), Some(&back));
    }
    // The repeated step uses the same episodes.
    for (before, after) in played.iter().zip(&played[1..]) {
        let last = &before[before.len() - 12..];
        assert_eq!(last, &after[..12]);
    }
    let halved = state.back.len();
    assert!((2..MAX_ROLLBACKS).contains(&halved), "{halved}");
    let rate = 12.8 * 0.5f64.powi(halved as i32);
    assert!((kept.rates.last().unwrap() - rate).abs() < 1e-12);
    assert_eq!((state.updates.len(), careless.alarm(&state)), (8, None));
}

#[test]
fn max_rollbacks_then_alarm_halts() {
    let hopeless = Online {
        rollback_on: vec![Alarm::NotFinite],
        steps: Steps { policy: Step { lr: f64::NAN, ..Step::default() }, ..online().steps },
        ..online()
    };
    let (mut state, mut times) = (State::default(), 0);
    while let Ended::Back(_) =
        hopeless.run(&mut Coin::default(), &Table::new(0), &mut state, |_, _| GO_ON).unwrap()
    {
        times += 1;
    }
    assert_eq!((times, state.back.len()), (MAX_ROLLBACKS, MAX_ROLLBACKS));
    assert_eq!(hopeless.alarm(&state), Some(Alarm::NotFinite));
    assert!(hopeless.is_over(&state));
}

#[test]
fn faulty_episodes_roll_back_to_kept_checkpoint() {
    let online = Online {
        rollback_on: vec![Alarm::Truncation],
        total_training_steps: 20,
        schedule: LrSchedule::CONSTANT,
        ..online()
    };
    let (mut coin, mut state) = (Coin::default(), State::default());
    // The episodes of the thirteenth step, 12 per step.
    let mut table = Table { cut: 12 * 12..13 * 12, ..Table::new(0) };
    let mut kept = Vec::new();
    let mut run = |coin: &mut Coin, table: &mut Table, state: &mut State| {
        let each = |coin: &mut Coin, state: &State| {
            kept.push((state.updates.len(), coin.clone()));
            GO_ON
        };
        online.run(coin, table, state, each).unwrap()
    };
    let back = Back { number: 12, alarm: Alarm::Truncation, to: Some(5), staleness: 0 };
    assert_eq!(run(&mut coin, &mut table, &mut state), Ended::Back(back));
    assert_eq!(
        (state.updates.len(), &state.rollback_checkpoints[..], &state.back[..]),
        (5, &[5][..], &[back][..])
    );

    // From the kept weights and the stored state.
    let (_, mut coin) = kept.iter().find(|(number, _)| *number == 5).unwrap().clone();
    let before = coin.rates.len();
    let mut state: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    let run = |coin: &mut Coin, table: &mut Table, state: &mut State| {
        online.run(coin, table, state, |_, _| GO_ON).unwrap()
    };
    assert_eq!(run(&mut coin, &mut table, &mut state), Ended::Here);
    assert_eq!((state.updates.len(), online.alarm(&state)), (20, None));
    assert_eq!(state.rollback_checkpoints, [15, 20]);
    assert!(coin.rates[before..].iter().all(|rate| (rate - 0.25).abs() < 1e-12));
    let numbers: Vec<u32> = table.asked().iter().map(|play| play.number).collect();
    assert!(numbers.iter().copied().eq(0..(13 + 15) * 12), "no episode is played twice");
}

#[test]
fn rollback_without_checkpoint_returns_to_first_policy() {
    let online = Online { rollback_on: vec![Alarm::Failures], ..online() };
    let mut state = State::default();
    // Four of twelve episodes per step, from the first step on.
    let ended = online.run(&mut Coin::default(), &Table::new(3), &mut state, |_, _| GO_ON);
    let back = Back { number: 0, alarm: Alarm::Failures, to: Some(0), staleness: 0 };
    assert_eq!(ended.unwrap(), Ended::Back(back));
    assert_eq!((state.updates.len(), &state.rollback_checkpoints[..]), (0, &[][..]));
}

/// Whatever the learning rate, a step's KL divergence is near the target; a small rate stays as it
/// is.
#[test]
fn learning_rate_follows_the_kl_target() {
    let step = |lr| Step { lr, ..Step::default() };
    let with = |rate| Online {
        steps: Steps { policy: step(rate), ..online().steps },
        lr_kl_target_per_episode: Some(2e-3),
        schedule: LrSchedule::CONSTANT,
        total_training_steps: 30,
        // Both tasks in every step, so that each step has a signal.
        train_batch_size: 3,
        rollout_n: 32,
        ..online()
    };
    let (coin, state, _) = whole(&with(1e-3));
    assert!((coin.rates[0] - 1e-4).abs() < 1e-12 && (coin.rates[29] - 1e-3).abs() < 1e-12);
    assert!(state.updates.iter().all(|u| u.kl_per_episode().unwrap() < 2e-3));
    for (rate, first) in [(20.0, 2.0), (5.0, 0.5)] {
        let (coin, state, _) = whole(&with(rate));
        assert!((coin.rates[0] - first).abs() < 1e-12);
        let pairs: Vec<f64> = coin.rates.windows(2).map(|pair| pair[1] / pair[0]).collect();
        assert!(pairs.iter().all(|by| (0.5..=2.0).contains(by)), "{pairs:?}");
        let mut moved: Vec<f64> =
            state.updates[10..].iter().map(|update| update.kl_per_episode().unwrap()).collect();
        moved.sort_by(f64::total_cmp);
        assert!((1e-3..4e-3).contains(&moved[10]), "{moved:?}");
        assert!(state.updates.iter().zip(&coin.rates).all(|(u, rate)| (u.lr - rate).abs() < 1e-12));
    }
}

#[test]
fn four_times_kl_target_raises_divergence() {
    let careless = |target| Online {
        lr_kl_target_per_episode: Some(target),
        total_training_steps: 1,
        ..online()
    };
    let alarms = |online: &Online| {
        let (_, state, _) = whole(online);
        (state.updates[0].kl_per_episode().unwrap(), state.updates[0].report.alarms.clone())
    };
    let (moved, _) = alarms(&careless(1e9));
    assert!(moved > 0.0);
    assert_eq!(alarms(&careless(moved / 3.9)).1, []);
    assert_eq!(alarms(&careless(moved / 4.1)).1, [Alarm::Divergence]);
}
