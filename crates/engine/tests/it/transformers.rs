//! The engine's numbers and files equal those of transformers' Qwen3.

use warpwright_engine::{LocalEngine, Settings};
use warpwright_learn::engine::{Engine, Loss, Row, Step, Which};

use crate::oracle::{named, tensors, transformers};

#[derive(serde::Deserialize)]
struct Given {
    rows: Vec<Ids>,
    step: Step,
}

#[derive(serde::Deserialize)]
struct Ids {
    ids: Vec<u32>,
    actions: Vec<u32>,
}

fn near(found: &[f32], wanted: &tch::Tensor, by: f64) {
    let wanted: Vec<f64> = Vec::try_from(wanted.to_kind(tch::Kind::Double).view([-1])).unwrap();
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((f64::from(*found) - wanted).abs() <= by, "{found} {wanted}");
    }
}

#[test]
fn transformers_computes_trains_and_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    transformers("write", folder.path());
    let expected = tensors(&folder.path().join("expected.safetensors"));
    let given = fs_err::read_to_string(folder.path().join("rows.json")).unwrap();
    let Given { rows, step } = serde_json::from_str(&given).unwrap();
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|row| Row { ids: row.ids, actions: row.actions, ..Row::default() })
        .collect();
    let mut engine = LocalEngine::load(folder.path(), Settings::default()).unwrap();

    // All rows in one micro-batch, packed.
    for (number, scores) in engine.score(&rows).unwrap().iter().enumerate() {
        near(&scores.logprobs, named(&expected, &format!("logprobs.{number}")), 1e-4);
        near(&scores.entropies, named(&expected, &format!("entropies.{number}")), 1e-4);
        assert!(scores.values.is_empty(), "transformers' model estimates nothing");
    }

    let over = rows.iter().map(|row| row.actions.len()).sum::<usize>() as f64;
    let passed = engine.backward(&rows, &Loss::Likelihood, over).unwrap();
    near(&[passed.loss as f32], named(&expected, "loss"), 1e-4);
    let norm = engine.step(Which::Policy, &step).unwrap();
    near(&[norm as f32], named(&expected, "norm"), 1e-4 * norm);
    let stepped = tempfile::tempdir().unwrap();
    engine.save(stepped.path()).unwrap();
    let mine = tensors(&stepped.path().join("model.safetensors"));
    assert_eq!(mine.len(), 2 + 11 * 2 + 1);
    for (name, tensor) in &mine {
        let wanted = named(&expected, &format!("stepped.{name}"));
        assert_eq!(tensor.size(), wanted.size(), "{name}");
        let apart = (tensor - wanted).abs().max().double_value(&[]);
        // A step changes a weight by 1e-3; its sign is the gradient's.
        assert!(apart < 1e-5, "{name}: {apart:e}");
    }

    transformers("logits", stepped.path());
    let found = tensors(&stepped.path().join("found.safetensors"));
    for (number, scores) in engine.score(&rows).unwrap().iter().enumerate() {
        near(&scores.logprobs, named(&found, &format!("logprobs.{number}")), 1e-4);
    }
}
