//! The result of training does not depend on micro-batches, and a resumed run continues exactly.

use std::path::Path;

use tch::Tensor;
use warpwright_engine::{Dtype, LocalEngine, Settings};
use warpwright_learn::engine::{Engine, Loss, Row, Step, Which};
use warpwright_learn::recipe::Recipe;

use crate::oracle::{actions, engine, named, rows, tensors};

fn weights(engine: &mut LocalEngine) -> Vec<(String, Tensor)> {
    let folder = tempfile::tempdir().unwrap();
    engine.save(folder.path()).unwrap();
    let mut all = tensors(&folder.path().join("model.safetensors"));
    all.extend(tensors(&folder.path().join("value_head.safetensors")));
    all
}

/// Largest difference of any weight.
fn apart(a: &[(String, Tensor)], b: &[(String, Tensor)]) -> f64 {
    assert_eq!(a.len(), b.len());
    let each = a.iter().map(|(name, x)| (x - named(b, name)).abs().max().double_value(&[]));
    each.fold(0.0, f64::max)
}

/// Rows with the signals of every loss.
fn signalled(engine: &mut LocalEngine) -> Vec<Row> {
    let (mut all, scores) = (rows(), engine.score(&rows()).unwrap());
    for (row, scores) in all.iter_mut().zip(scores) {
        let count = row.actions.len();
        row.rollout_log_probs = scores.logprobs.iter().map(|p| p - 0.1).collect();
        row.old_log_probs = scores.logprobs;
        row.advantages = (0..count).map(|i| ((i * 7 + count) % 5) as f32 - 2.0).collect();
        row.returns = (0..count).map(|i| (i % 3) as f32 - 1.0).collect();
        row.values = scores.values;
    }
    all
}

fn losses() -> [Loss; 3] {
    [Loss::Likelihood, Loss::Policy(Recipe::robust().policy), Loss::Value { clip: Some(0.2) }]
}

type Weights = Vec<(String, Tensor)>;

/// Loss and norm of two steps, and the weights after them. `calls`: number of `backward` calls per
/// step.
fn learnt(settings: Settings, (loss, calls): (&Loss, usize)) -> (Vec<(f64, f64)>, Weights) {
    let mut engine = engine(settings);
    let rows = signalled(&mut engine);
    let mut steps = Vec::new();
    for _ in 0..2 {
        let parts = rows.chunks(rows.len().div_ceil(calls));
        let each = parts.map(|part| engine.backward(part, loss, actions(&rows)).unwrap().loss);
        let sum = each.sum();
        steps.push((sum, engine.step(Which::Policy, &Step::default()).unwrap()));
    }
    (steps, weights(&mut engine))
}

#[test]
fn training_result_is_independent_of_micro_batches() {
    let usual = Settings::default();
    let ways = [
        (Settings { max_token_len: 1, ..usual }, 1),
        (Settings { max_token_len: 25, gradient_checkpointing: true, ..usual }, 1),
        (usual, 2),
        (usual, 4),
    ];
    for loss in losses() {
        let (steps, weights) = learnt(usual, (&loss, 1));
        assert!(steps[0].1 > 1e-3, "{loss:?} {steps:?}");
        for (settings, calls) in &ways {
            let (mine, moved) = learnt(*settings, (&loss, *calls));
            for (a, b) in mine.iter().zip(&steps) {
                let near = (a.0 - b.0).abs() < 1e-5 && (a.1 - b.1).abs() < 1e-4 * b.1;
                assert!(near, "{loss:?} {settings:?}: {mine:?} {steps:?}");
            }
            let apart = apart(&moved, &weights);
            assert!(apart < 1e-5, "{loss:?} {settings:?}: {apart:e}");
        }
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    let mut engine = engine(Settings::default());
    let rows = signalled(&mut engine);
    // Without weight decay only a gradient changes a weight.
    let step = Step { lr: 1e-3, weight_decay: 0.0, ..Step::default() };
    let before = weights(&mut engine);
    engine.backward(&rows, &Loss::Likelihood, actions(&rows)).unwrap();
    engine.backward(&rows, &Loss::Value { clip: None }, actions(&rows)).unwrap();
    engine.step(Which::Policy, &step).unwrap();
    for (name, now) in weights(&mut engine) {
        assert_ne!(now, *named(&before, &name), "{name}");
    }
}

#[test]
fn critic_step_leaves_policy_weights_unchanged() {
    let mut engine = engine(Settings::default());
    engine.begin_critic().unwrap();
    let rows = signalled(&mut engine);
    let (before, loss) = (weights(&mut engine), Loss::Value { clip: None });
    let mut errors = Vec::new();
    for _ in 0..60 {
        errors.push(engine.backward(&rows, &loss, actions(&rows)).unwrap().loss);
        engine
            .step(Which::Critic, &Step { lr: 3e-3, weight_decay: 0.0, ..Step::default() })
            .unwrap();
    }
    assert!(errors[59] < 0.2 * errors[0], "{} {}", errors[0], errors[59]);
    assert!(apart(&before, &weights(&mut engine)).abs() < f64::EPSILON);
}

#[test]
fn policy_loss_raises_probability_of_rewarded_actions() {
    let mut engine = engine(Settings::default());
    let mut rows = signalled(&mut engine);
    for row in &mut rows {
        row.advantages = vec![1.0; row.actions.len()];
    }
    let loss = Loss::Policy(Recipe::paper().policy);
    engine.backward(&rows, &loss, actions(&rows)).unwrap();
    engine.step(Which::Policy, &Step { lr: 1e-3, ..Step::default() }).unwrap();
    let sum = |scores: &[f32]| scores.iter().sum::<f32>();
    for (row, scores) in rows.iter().zip(engine.score(&rows).unwrap()) {
        assert!(sum(&scores.logprobs) > sum(&row.old_log_probs));
    }
}

fn train(engine: &mut LocalEngine, steps: usize) {
    let rows = rows();
    for _ in 0..steps {
        engine.backward(&rows, &Loss::Likelihood, actions(&rows)).unwrap();
        engine.step(Which::Policy, &Step { lr: 1e-3, ..Step::default() }).unwrap();
    }
}

#[test]
fn saved_run_resumes_bit_for_bit() {
    for moments in [Dtype::Float32, Dtype::Bfloat16] {
        let settings = Settings { optimizer_state_dtype: moments, ..Settings::default() };
        let mut straight = engine(settings);
        train(&mut straight, 4);
        let mut first = engine(settings);
        train(&mut first, 2);
        let folder = tempfile::tempdir().unwrap();
        first.save(folder.path()).unwrap();
        let mut second = LocalEngine::load(folder.path(), settings).unwrap();
        train(&mut second, 2);
        assert!(apart(&weights(&mut straight), &weights(&mut second)).abs() < f64::EPSILON);
        assert!(apart(&weights(&mut straight), &weights(&mut first)) > 1e-4);
    }
}

#[test]
fn nan_gradients_change_no_weights() {
    let mut engine = engine(Settings::default());
    let mut rows = signalled(&mut engine);
    let before = weights(&mut engine);
    rows[1].advantages[0] = f32::NAN;
    let loss = Loss::Policy(Recipe::robust().policy);
    engine.backward(&rows, &loss, actions(&rows)).unwrap();
    let norm = engine.step(Which::Policy, &Step::default()).unwrap();
    assert!(norm.is_nan());
    assert!(apart(&before, &weights(&mut engine)).abs() < f64::EPSILON);
    // And no gradient of it remains.
    rows[1].advantages[0] = 1.0;
    engine.backward(&rows, &loss, actions(&rows)).unwrap();
    assert!(engine.step(Which::Policy, &Step::default()).unwrap().is_finite());
}

#[test]
fn bfloat16_matches_float32_approximately() {
    let mut exact = engine(Settings::default());
    train(&mut exact, 30);
    let folder = tempfile::tempdir().unwrap();
    exact.save(folder.path()).unwrap();
    let half = Settings { dtype: Dtype::Bfloat16, ..Settings::default() };
    let mut half = LocalEngine::load(Path::new(folder.path()), half).unwrap();
    let pairs = exact.score(&rows()).unwrap().into_iter().zip(half.score(&rows()).unwrap());
    let far = |(a, b): (warpwright_learn::engine::Scores, warpwright_learn::engine::Scores)| {
        let pairs = a.logprobs.into_iter().zip(b.logprobs);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    let far = pairs.map(far).fold(0.0, f32::max);
    assert!(far < 0.1 && far > 1e-5, "{far}");
}
