//! A policy of the engine, sampled and updated by `learn`'s algorithms, improves its reward.

use warpwright_engine::{LocalEngine, Settings};
use warpwright_learn::batch::Episode;
use warpwright_learn::engine::{Engine, Prompt, Sampled, Sampler, Sampling, Step};
use warpwright_learn::recipe::Recipe;
use warpwright_learn::update::{Algorithm, Comparison, Report, Steps, update};
use warpwright_record::tokens::Sequence;

use crate::oracle::engine;

/// Tokens with a positive reward.
const WORTH: std::ops::Range<u32> = 0..15;
const EACH: usize = 8;

fn prompts() -> Vec<Vec<u32>> {
    let tasks = [vec![50, 51], vec![60], vec![52, 53, 54], vec![55, 56]];
    tasks.iter().flat_map(|task| std::iter::repeat_n(task.clone(), EACH)).collect()
}

/// The reward is the share of sampled tokens in `WORTH`.
fn episode(number: usize, prompt: &[u32], sampled: Sampled) -> Episode {
    let (before, drawn) = (prompt.len(), sampled.ids.len());
    let worth = sampled.ids.iter().filter(|id| WORTH.contains(id)).count();
    let sequence = Sequence {
        ids: [prompt, &sampled.ids].concat(),
        response_mask: [vec![0; before], vec![1; drawn]].concat(),
        rollout_log_probs: std::iter::repeat_n(None, before)
            .chain(sampled.logprobs.into_iter().map(Some))
            .collect(),
        turns: vec![1; before + drawn],
    };
    let task = format!("task {}", number / EACH);
    Episode { task, sequences: vec![sequence], reward: worth as f64 / drawn as f64 }
}

fn learn(engine: &mut LocalEngine, rule: &Algorithm, updates: u64, seed: u64) -> Vec<Report> {
    let step = Step { lr: 5e-3, weight_decay: 0.0, ..Step::default() };
    let steps = Steps {
        policy: step,
        critic: step,
        minibatches: 1,
        epochs: 1,
        zero_variance_tolerance: 0.0,
    };
    let mut reports = Vec::new();
    for number in 0..updates {
        let sampling = Sampling { max_new_tokens: 6, ..Sampling::default() };
        let drawn = Prompt::numbered(prompts(), seed * 1000 + number);
        let drawn = engine.sample(&drawn, &sampling).unwrap();
        let each = prompts().into_iter().zip(drawn).enumerate();
        let episodes: Vec<Episode> =
            each.map(|(number, (prompt, sampled))| episode(number, &prompt, sampled)).collect();
        reports.push(update(engine, rule, &steps, &episodes).unwrap());
    }
    reports
}

#[test]
fn every_algorithm_increases_the_reward() {
    let loss = Recipe::robust().policy;
    let rules = [
        (
            Algorithm::Ppo {
                recipe: Recipe::robust(),
                critic_steps_per_step: 2,
                critic_only: false,
            },
            true,
        ),
        (
            Algorithm::Ppo {
                recipe: Recipe::paper(),
                critic_steps_per_step: 1,
                critic_only: false,
            },
            false,
        ),
        (Algorithm::Group { by: Comparison::Rloo, loss }, false),
        (Algorithm::Group { by: Comparison::Grpo, loss }, false),
        (Algorithm::Rejection { above: 0.3 }, false),
    ];
    for (rule, separate_critic) in rules {
        let mut engine = engine(Settings::default());
        if separate_critic {
            engine.begin_critic().unwrap();
        }
        let reports = learn(&mut engine, &rule, 25, 1);
        let mean = |part: &[Report]| part.iter().map(|r| r.reward).sum::<f64>() / part.len() as f64;
        let (first, last) = (mean(&reports[..5]), mean(&reports[20..]));
        // 15 of 61 tokens by chance.
        assert!((first - 0.25).abs() < 0.2, "{rule:?}: {first}");
        assert!(last > first + 0.15, "{rule:?}: {first} {last}");
        // The sampler's and the trainer's log-probabilities agree.
        for mismatch in reports.iter().filter_map(|report| report.rollout_ratios) {
            assert!((mismatch.mean - 1.0).abs() < 1e-3, "{rule:?} {mismatch:?}");
            assert!(mismatch.effective_share > 0.999, "{rule:?} {mismatch:?}");
        }
    }
}

#[test]
fn critic_warmup_raises_explained_variance() {
    let mut engine = engine(Settings::default());
    engine.begin_critic().unwrap();
    let rule =
        Algorithm::Ppo { recipe: Recipe::robust(), critic_steps_per_step: 4, critic_only: true };
    let reports = learn(&mut engine, &rule, 60, 2);
    let explained: Vec<f64> = reports.iter().filter_map(|r| r.explained_variance).collect();
    assert!(explained[0] < 0.05, "{explained:?}");
    let last = explained[50..].iter().sum::<f64>() / 10.0;
    // Before the n-th of six tokens, n - 1 sixths of the sum are known: 5 / 12 on average.
    assert!(last > 0.2 && last < 0.55, "{last} {explained:?}");
}
