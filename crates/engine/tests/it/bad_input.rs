//! Invalid requests are refused with a message, and the engine stays usable.

use warpwright_engine::{LocalEngine, Settings};
use warpwright_learn::engine::{Engine, Loss, Prompt, Row, Sampler, Sampling, Step, Which};
use warpwright_learn::model_config::ModelConfig;

use crate::oracle::{engine, tiny};

#[test]
fn invalid_rows_are_refused() {
    let mut engine = engine(Settings::default());
    let mut refused = |ids: Vec<u32>, actions: Vec<u32>| {
        let row = Row { ids, actions, ..Row::default() };
        engine
            .score(&[Row { ids: vec![1, 2], actions: vec![1], ..Row::default() }, row])
            .unwrap_err()
            .to_string()
    };
    assert!(
        refused(vec![1, 61], vec![1]).contains("row 1: token 61 is not in the vocabulary of 61")
    );
    assert!(refused(vec![1; 129], vec![1]).contains("129 tokens; the model's limit is 128"));
    for actions in [vec![], vec![0], vec![2], vec![2, 1], vec![1, 1]] {
        assert!(refused(vec![1, 2], actions).contains("ascending"));
    }
    assert!(refused(vec![], vec![]).contains("ascending"));
}

#[test]
fn invalid_prompts_are_refused() {
    let mut engine = engine(Settings::default());
    let mut refused = |prompt: Vec<u32>, sampling: Sampling| {
        engine.sample(&Prompt::numbered([vec![1], prompt], 0), &sampling).unwrap_err().to_string()
    };
    assert!(refused(vec![61], Sampling::default()).contains("token 61 of a prompt"));
    assert!(
        refused(vec![], Sampling::default())
            .contains("a prompt has 0 tokens; it must have 1 to 127")
    );
    assert!(refused(vec![1; 128], Sampling::default()).contains("has 128 tokens"));
    for temperature in [-1.0, f64::NAN, f64::INFINITY] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        assert!(refused(vec![1], sampling).contains("is out of range"));
    }
    for top_p in [0.0, 1.5, f64::NAN] {
        let sampling = Sampling { top_p, ..Sampling::default() };
        assert!(refused(vec![1], sampling).contains("is out of range"));
    }
}

#[test]
fn missing_critic_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(Settings::default());
    assert!(
        engine.step(Which::Critic, &Step::default()).unwrap_err().to_string().contains("no critic")
    );
    engine.save(folder.path()).unwrap();
    fs_err::remove_file(folder.path().join("value_head.safetensors")).unwrap();
    fs_err::remove_file(folder.path().join("optimizer.safetensors")).unwrap();
    let mut engine = LocalEngine::load(folder.path(), Settings::default()).unwrap();
    let row = Row { ids: vec![1, 2], actions: vec![1], returns: vec![1.0], ..Row::default() };
    let refused =
        engine.backward(std::slice::from_ref(&row), &Loss::Value { clip: None }, 1.0).unwrap_err();
    assert!(refused.to_string().contains("no critic and no value head"), "{refused}");
    assert!(engine.score(&[row]).unwrap()[0].values.is_empty());
}

#[test]
fn checkpoint_of_another_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(Settings::default());
    engine.save(folder.path()).unwrap();
    let wide = ModelConfig { num_attention_heads: 8, ..tiny() };
    wide.write(&folder.path().join("config.json")).unwrap();
    let refused = LocalEngine::load(folder.path(), Settings::default()).unwrap_err().to_string();
    assert!(
        refused.contains("q_proj.weight has shape [64, 32]; config.json needs [128, 32]"),
        "{refused}"
    );
    tiny().write(&folder.path().join("config.json")).unwrap();
    let other = LocalEngine::initial(&wide, 1, Settings::default());
    let elsewhere = tempfile::tempdir().unwrap();
    other.unwrap().save(elsewhere.path()).unwrap();
    let state = "optimizer.safetensors";
    fs_err::copy(elsewhere.path().join(state), folder.path().join(state)).unwrap();
    let refused = LocalEngine::load(folder.path(), Settings::default()).unwrap_err().to_string();
    assert!(refused.contains("the optimizer state has no layers.0.qkv"), "{refused}");
    let none = LocalEngine::load(&folder.path().join("nowhere"), Settings::default());
    assert!(none.unwrap_err().to_string().contains("failed to read the model's config"));
}

#[test]
fn missing_gpu_is_an_error() {
    // No machine has so many GPUs.
    let settings = Settings { gpu: Some(99), ..Settings::default() };
    let refused = LocalEngine::initial(&tiny(), 1, settings).unwrap_err().to_string();
    assert!(refused.contains("torch failed"), "{refused}");
}
