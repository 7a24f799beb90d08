//! Several replicas give the results of one engine.

use std::path::Path;

use tch::{Cuda, Tensor};
use warpwright_engine::{Dtype, EngineError, LocalEngine, Replicas, Settings};
use warpwright_learn::engine::{Engine, Loss, Prompt, Row, Sampler, Sampling, Step, Which};
use warpwright_learn::recipe::Recipe;
use warpwright_test_support::{Need, missing};

use crate::oracle::{actions, engine, named, rows, tensors, tiny};

/// Replicas with the weights of `oracle::engine`.
fn replicas(settings: &[Settings]) -> Replicas {
    let one = |settings: &Settings| Settings { num_threads: Some(1), ..*settings };
    Replicas::initial(&tiny(), 5, &settings.iter().map(one).collect::<Vec<_>>()).unwrap()
}

fn hosts(count: usize) -> Replicas {
    replicas(&vec![Settings::default(); count])
}

/// Rows with the signals of every loss.
fn signalled<E: Engine>(engine: &mut E) -> Vec<Row> {
    let (mut all, scores) = (rows(), engine.score(&rows()).unwrap());
    for (row, scores) in all.iter_mut().zip(scores) {
        row.rollout_log_probs = scores.logprobs.iter().map(|p| p - 0.1).collect();
        row.old_log_probs = scores.logprobs;
        row.advantages = (0..row.actions.len()).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
        row.returns = (0..row.actions.len()).map(|i| (i % 3) as f32 - 1.0).collect();
        row.values = scores.values;
    }
    all
}

type Learnt = (Vec<(f64, f64)>, Vec<(String, Tensor)>);

/// Losses and norms of two policy steps per loss and two critic steps, and the final weights.
fn learnt<E: Engine>(mut engine: E) -> Learnt {
    engine.begin_critic().unwrap();
    let rows = signalled(&mut engine);
    let value = Loss::Value { clip: Some(0.2) };
    let all = [
        (Loss::Likelihood, Which::Policy),
        (Loss::Policy(Recipe::robust().policy), Which::Policy),
        (value, Which::Critic),
    ];
    let mut told = Vec::new();
    for (loss, which) in all.iter().chain(&all) {
        let passed = engine.backward(&rows, loss, actions(&rows)).unwrap();
        assert_eq!(passed.scores.len(), rows.len());
        told.push((passed.loss, engine.step(*which, &Step::default()).unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    engine.save(folder.path()).unwrap();
    let mut weights = tensors(&folder.path().join("model.safetensors"));
    let critic = tensors(&folder.path().join("critic/model.safetensors"));
    weights.extend(critic.into_iter().map(|(name, tensor)| (format!("critic.{name}"), tensor)));
    (told, weights)
}

fn assert_equal_results(mine: &Learnt, theirs: &Learnt) {
    for (a, b) in mine.0.iter().zip(&theirs.0) {
        let near = (a.0 - b.0).abs() < 1e-4 && (a.1 - b.1).abs() < 1e-3 * b.1;
        assert!(near, "{:?} {:?}", mine.0, theirs.0);
    }
    assert_eq!(mine.1.len(), theirs.1.len());
    for (name, tensor) in &mine.1 {
        let apart = (tensor - named(&theirs.1, name)).abs().max().double_value(&[]);
        assert!(apart < 2e-5, "{name}: {apart:e}");
    }
}

#[test]
fn training_result_is_independent_of_replica_count() {
    let one = learnt(engine(Settings::default()));
    assert!(one.0.iter().all(|(_, norm)| *norm > 1e-4), "{:?}", one.0);
    // With more replicas than rows, some replicas have no rows.
    for count in [1, 2, 3, 6] {
        assert_equal_results(&learnt(hosts(count)), &one);
    }
}

#[test]
fn replicas_return_results_in_request_order() {
    let (mut one, mut three) = (engine(Settings::default()), hosts(3));
    assert_eq!(one.score(&rows()).unwrap().len(), three.score(&rows()).unwrap().len());
    for (a, b) in one.score(&rows()).unwrap().iter().zip(three.score(&rows()).unwrap()) {
        let far = a.logprobs.iter().zip(&b.logprobs).map(|(a, b)| (a - b).abs());
        assert!(far.fold(0.0, f32::max) < 1e-5);
    }
    let prompts = Prompt::numbered((1..8).map(|i| vec![i; i as usize]), 3);
    let sampling = Sampling { max_new_tokens: 20, ..Sampling::default() };
    let ids = |drawn: Vec<warpwright_learn::engine::Sampled>| {
        drawn.into_iter().map(|s| s.ids).collect::<Vec<_>>()
    };
    let drawn = ids(one.sample(&prompts, &sampling).unwrap());
    assert_eq!(ids(three.sample(&prompts, &sampling).unwrap()), drawn);
    assert_eq!(three.sample(&[], &sampling).unwrap(), []);
    assert_eq!(three.describe().unwrap().device, "cpu,cpu,cpu");
}

#[test]
fn checkpoint_resumes_with_any_replica_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut two = hosts(2);
    train(&mut two);
    two.save(folder.path()).unwrap();
    let settings = Settings { num_threads: Some(1), ..Settings::default() };
    let mut one = LocalEngine::load(folder.path(), settings).unwrap();
    let mut three = Replicas::load(folder.path(), &[settings; 3]).unwrap();
    let (a, b) = (train(&mut one), train(&mut three));
    assert!((a - b).abs() < 1e-3 * a, "{a} {b}");
}

fn train<E: Engine>(engine: &mut E) -> f64 {
    engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
    engine.step(Which::Policy, &Step::default()).unwrap()
}

#[test]
fn failed_replica_discards_all_gradients_then_recovers() {
    let mut two = hosts(2);
    // The second replica gets the invalid row.
    let mut broken = rows();
    broken[3].ids[0] = 9999;
    let error = two.backward(&broken, &Loss::Likelihood, 1.0).unwrap_err();
    assert!(error.to_string().contains("token 9999"), "{error}");
    // The first replica's gradients are discarded too.
    let error = two.step(Which::Policy, &Step::default()).unwrap_err();
    assert!(error.to_string().contains("no parameter has a gradient"), "{error}");
    let (mut one, lone) = (engine(Settings::default()), train(&mut two));
    assert!((train(&mut one) - lone).abs() < 1e-4 * lone);
    // After a refusal the replicas stay usable.
    two.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
    let error = two.step(Which::Critic, &Step::default()).unwrap_err();
    assert!(error.to_string().contains("no critic"), "{error}");
    two.step(Which::Policy, &Step::default()).unwrap();
}

#[test]
fn load_failure_of_a_device_is_reported() {
    let error = Replicas::load(Path::new("/nowhere"), &[Settings::default(); 2]).unwrap_err();
    assert!(matches!(error, EngineError::Config(_)), "{error:?}");
    assert!(Replicas::load(Path::new("/nowhere"), &[]).is_err());
}

#[test]
fn gpu_two_devices_match_one() {
    if Cuda::device_count() < 2 {
        missing(Need::SecondGpu);
        return;
    }
    let on = |gpu| Settings { gpu: Some(gpu), ..Settings::default() };
    assert_equal_results(&learnt(replicas(&[on(0), on(1)])), &learnt(engine(on(0))));
    let half = |gpu| Settings { dtype: Dtype::Bfloat16, max_num_seqs: 4, ..on(gpu) };
    let (mut one, mut two) = (engine(half(0)), replicas(&[half(0), half(1)]));
    let sampling = Sampling { max_new_tokens: 30, ..Sampling::default() };
    for turn in 0..3 {
        let prompts = Prompt::numbered((1..17).map(|i| vec![i; i as usize]), turn);
        let (a, b) = (one.sample(&prompts, &sampling).unwrap(), two.sample(&prompts, &sampling));
        // Tokens decided by rounding may differ in another batch.
        let same = a.iter().zip(b.unwrap()).filter(|(a, b)| a.ids == b.ids).count();
        assert!(same >= 12, "{same} of 16");
        let (a, b) = (train(&mut one), train(&mut two));
        assert!((a - b).abs() < 0.02 * a, "{a} {b}");
    }
}
