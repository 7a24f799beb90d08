//! LoRA adapters: only they are trained, their files have PEFT's format, and transformers computes
//! the same with them.

use std::path::Path;

use serde_json::{Value, json};
use warpwright_engine::{LocalEngine, Lora, Settings};
use warpwright_learn::engine::{Engine, Loss, Prompt, Row, Sampler, Sampling, Step, Which};
use warpwright_learn::recipe::Recipe;

use crate::oracle::{actions, engine, named, rows, tensors, transformers};

/// A scale whose last bits change when it is multiplied and divided by the rank.
const LORA: Lora = Lora { rank: 3, scale: 1.9 };

fn usual() -> Settings {
    Settings { num_threads: Some(1), ..Settings::default() }
}

fn adapted() -> Settings {
    Settings { lora: Some(LORA), ..usual() }
}

/// A model with weights that differ from the initial ones, on disk.
fn base() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(usual());
    learn(&mut engine, 3);
    engine.save(folder.path()).unwrap();
    folder
}

fn learn(engine: &mut LocalEngine, steps: usize) {
    for _ in 0..steps {
        engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
        engine.step(Which::Policy, &Step { lr: 1e-2, ..Step::default() }).unwrap();
    }
}

fn scores(engine: &mut LocalEngine) -> Vec<f32> {
    engine.score(&rows()).unwrap().into_iter().flat_map(|s| s.logprobs).collect()
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn load(folder: &Path, settings: Settings) -> LocalEngine {
    LocalEngine::load(folder, settings).unwrap()
}

#[test]
fn new_adapters_change_nothing_and_base_is_frozen() {
    let base = base();
    let before = fs_err::read(base.path().join("model.safetensors")).unwrap();
    let mut whole = load(base.path(), usual());
    let mut engine = load(base.path(), adapted());
    assert_eq!(scores(&mut engine), scores(&mut whole));
    let likely = |scores: Vec<f32>| scores.iter().sum::<f32>();
    let at_first = likely(scores(&mut engine));
    learn(&mut engine, 12);
    assert!(likely(scores(&mut engine)) > at_first + 5.0);

    let out = tempfile::tempdir().unwrap();
    engine.save(out.path()).unwrap();
    assert!(!out.path().join("model.safetensors").exists(), "the model is where it was");
    assert_eq!(fs_err::read(base.path().join("model.safetensors")).unwrap(), before);
    // Every adapter had a gradient.
    let written = tensors(&out.path().join("adapter_model.safetensors"));
    assert_eq!(written.len(), 2 * 7 * 2);
    for (name, tensor) in &written {
        let largest = tensor.abs().max().double_value(&[]);
        assert!(largest > 1e-3, "{name} is {largest}");
    }
}

#[test]
fn saved_adapters_resume_bit_for_bit() {
    let (base, out) = (base(), tempfile::tempdir().unwrap());
    let mut engine = load(base.path(), adapted());
    learn(&mut engine, 4);
    engine.save(out.path()).unwrap();
    let mut again = load(out.path(), adapted());
    let mut merged = load(out.path(), usual());
    assert_eq!(scores(&mut again), scores(&mut engine));
    let far = furthest(&scores(&mut merged), &scores(&mut engine));
    assert!(far < 1e-4, "{far}");
    learn(&mut again, 2);
    learn(&mut engine, 2);
    assert_eq!(scores(&mut again), scores(&mut engine));
    // A base model named by a relative path.
    let up = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = Path::new(&up).join(base.path().strip_prefix("/").unwrap());
    let third = tempfile::tempdir().unwrap();
    load(&relative, adapted()).save(third.path()).unwrap();
    load(third.path(), adapted());
    // Saved again it still names the base model, not itself.
    let second = tempfile::tempdir().unwrap();
    again.save(second.path()).unwrap();
    assert_eq!(scores(&mut load(second.path(), adapted())), scores(&mut engine));
}

#[test]
fn transformers_reads_written_adapters_with_equal_results() {
    let (base, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    transformers("write", base.path());
    let mut engine = load(base.path(), adapted());
    learn(&mut engine, 6);
    engine.save(out.path()).unwrap();
    transformers("adapted", out.path());
    assert_agree(&mut engine, &given(base.path()), out.path());
}

/// Rows that a folder has.
fn given(folder: &Path) -> Vec<Row> {
    let given = fs_err::read_to_string(folder.join("rows.json")).unwrap();
    let given: Value = serde_json::from_str(&given).unwrap();
    let numbers = |list: &Value| serde_json::from_value::<Vec<u32>>(list.clone()).unwrap();
    let row = |row: &Value| Row {
        ids: numbers(&row["ids"]),
        actions: numbers(&row["actions"]),
        ..Row::default()
    };
    given["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Prints transformers' results, in `folder`.
#[track_caller]
fn assert_agree(engine: &mut LocalEngine, rows: &[Row], folder: &Path) {
    let found = tensors(&folder.join("found.safetensors"));
    for (number, scores) in engine.score(rows).unwrap().iter().enumerate() {
        let theirs = named(&found, &format!("logprobs.{number}"));
        let theirs: Vec<f32> = Vec::try_from(theirs).unwrap();
        let far = furthest(&scores.logprobs, &theirs);
        assert!(far < 1e-4, "{far}");
    }
}

/// A checkpoint of Qwen3-0.6B's shape, written by transformers: loaded, scored, adapted, trained
/// whole, sampled from, updated by PPO's loss, saved, and read by transformers again.
#[test]
fn long_qwen3_shaped_checkpoint_trains_and_reloads() {
    let base = tempfile::tempdir().unwrap();
    transformers("large", base.path());
    let rows = given(base.path());
    let settings = Settings { num_threads: None, ..usual() };
    for lora in [Some(Lora { rank: 8, scale: 2.0 }), None] {
        let mut engine = load(base.path(), Settings { lora, ..settings });
        assert_agree(&mut engine, &rows, base.path());
        let step = Step { lr: 1e-3, ..Step::default() };
        let first = engine.backward(&rows, &Loss::Likelihood, actions(&rows)).unwrap().loss;
        engine.step(Which::Policy, &step).unwrap();
        let mut asked = rows.clone();
        for (row, scores) in asked.iter_mut().zip(engine.score(&rows).unwrap()) {
            (row.rollout_log_probs, row.old_log_probs) = (scores.logprobs.clone(), scores.logprobs);
            row.advantages = vec![1.0; row.actions.len()];
        }
        let policy = Loss::Policy(Recipe::robust().policy);
        engine.backward(&asked, &policy, actions(&rows)).unwrap();
        engine.step(Which::Policy, &step).unwrap();
        let last = engine.backward(&rows, &Loss::Likelihood, actions(&rows)).unwrap().loss;
        assert!(last < first, "{first} {last}");
        let prompts = Prompt::numbered([vec![785, 6722], vec![315]], 0);
        let sampling = Sampling { max_new_tokens: 4, ..Sampling::default() };
        let drawn = engine.sample(&prompts, &sampling).unwrap();
        assert!(drawn.iter().all(|drawn| drawn.ids.len() == 4));
        let out = tempfile::tempdir().unwrap();
        engine.save(out.path()).unwrap();
        transformers(if lora.is_some() { "adapted" } else { "logits" }, out.path());
        assert_agree(&mut engine, &rows, out.path());
    }
}

#[test]
fn adapters_train_sample_and_support_a_critic() {
    let base = base();
    for gradient_checkpointing in [false, true] {
        let mut engine = load(base.path(), Settings { gradient_checkpointing, ..adapted() });
        engine.begin_critic().unwrap();
        learn(&mut engine, 3);
        let prompts: Vec<Vec<u32>> = (1..9).map(|i| vec![i; i as usize]).collect();
        let sampling = Sampling { max_new_tokens: 20, ..Sampling::default() };
        let drawn = engine.sample(&Prompt::numbered(prompts.clone(), 0), &sampling).unwrap();
        let row = |(prompt, drawn): (&Vec<u32>, &warpwright_learn::engine::Sampled)| Row {
            ids: [&prompt[..], &drawn.ids].concat(),
            actions: (prompt.len() as u32..(prompt.len() + drawn.ids.len()) as u32).collect(),
            rollout_log_probs: drawn.logprobs.clone(),
            advantages: vec![1.0; drawn.ids.len()],
            returns: vec![0.5; drawn.ids.len()],
            ..Row::default()
        };
        let mut rows: Vec<Row> = prompts.iter().zip(&drawn).map(row).collect();
        let before = engine.score(&rows).unwrap();
        for (row, scores) in rows.iter_mut().zip(&before) {
            // The sampler's matrices have the adapters merged; the trainer adds them to the output.
            let far = furthest(&row.rollout_log_probs, &scores.logprobs);
            assert!(far < 1e-4, "{far}");
            row.old_log_probs.clone_from(&scores.logprobs);
        }
        let step = Step { lr: 1e-3, ..Step::default() };
        let policy = Loss::Policy(Recipe::robust().policy);
        engine.backward(&rows, &policy, actions(&rows)).unwrap();
        assert!(engine.step(Which::Policy, &step).unwrap() > 0.0);
        engine.backward(&rows, &Loss::Value { clip: None }, actions(&rows)).unwrap();
        assert!(engine.step(Which::Critic, &step).unwrap() > 0.0);
        let after = engine.score(&rows).unwrap();
        let sum = |scores: &[warpwright_learn::engine::Scores]| -> f32 {
            scores.iter().flat_map(|s| &s.logprobs).sum()
        };
        assert!(sum(&after) > sum(&before), "what was good is likelier");
        let out = tempfile::tempdir().unwrap();
        engine.save(out.path()).unwrap();
        let again = load(out.path(), Settings { gradient_checkpointing, ..adapted() })
            .score(&rows)
            .unwrap();
        assert_eq!(again, after);
    }
}

#[test]
fn mismatched_adapters_are_refused_by_name() {
    let (base, out) = (base(), tempfile::tempdir().unwrap());
    load(base.path(), adapted()).save(out.path()).unwrap();
    let refused = || LocalEngine::load(out.path(), adapted()).unwrap_err().to_string();
    let path = out.path().join("adapter_config.json");
    let text = fs_err::read_to_string(&path).unwrap();
    let with = |key: &str, value: Value| {
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json[key] = value;
        fs_err::write(&path, json.to_string()).unwrap();
    };
    with("base_model_name_or_path", json!("/nowhere"));
    assert!(refused().contains("read the model's config"), "{}", refused());
    with("base_model_name_or_path", json!(null));
    assert!(refused().contains("has no base_model_name_or_path"), "{}", refused());
    with("r", json!(4));
    assert!(refused().contains("do not fit"), "{}", refused());
    with("r", json!("many"));
    assert!(refused().contains("r must be a number above 0"), "{}", refused());
    with("peft_type", json!("IA3"));
    assert!(refused().contains("peft_type is not LORA"), "{}", refused());
    fs_err::write(&path, &text).unwrap();
    for (key, value) in [("use_rslora", json!(true)), ("alpha_pattern", json!({"q_proj": 8}))] {
        with(key, value);
        assert!(refused().contains(&format!("{key} is not supported")), "{}", refused());
    }
    fs_err::write(&path, &text).unwrap();
    let other = Settings { lora: Some(Lora { rank: 4, ..LORA }), ..usual() };
    let other = LocalEngine::load(out.path(), other).unwrap_err().to_string();
    assert!(other.contains("rank 3") && other.contains("rank 4"), "{other}");
    let weights = out.path().join("adapter_model.safetensors");
    let mut all = tensors(&weights);
    let (lost, _) = all.remove(0);
    tch::Tensor::write_safetensors(&all, &weights).unwrap();
    assert!(refused().contains(&format!("it has no tensor {lost}")), "{}", refused());
    // The adapters' base model was never saved.
    let mut nothing = LocalEngine::initial(&crate::oracle::tiny(), 1, adapted()).unwrap();
    let told = nothing.save(out.path()).unwrap_err().to_string();
    assert!(told.contains("no base model on disk"), "{told}");
}
