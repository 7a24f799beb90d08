//! The kernels on the cpu device, compared with torch.

#![expect(clippy::disallowed_types, reason = "the sources are this crate's own")]

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use proptest::prelude::*;
use tch::{Device, Kind};
use warpwright_hostcuda::{compile_flags, fingerprint, translate, write_headers};
use warpwright_learn::engine::{Loss, Row, Sampling};
use warpwright_learn::losses::PolicyLoss;

use super::*;
use crate::decoder::{Decoder, Given, Room};
use crate::losses::Signals;
use crate::model::Model;
use crate::pass::Pass;
use crate::weights::Weights;

mod attention;

const HALF: Kind = Kind::BFloat16;
const EPSILON: f64 = 1e-6;

/// Builds the kernels for the host unless they exist: tests are separate processes.
fn library() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let launchers = fs::read_to_string(here.join("tests/host_kernels.cu")).unwrap();
    let source = SOURCE.trim_end_matches('\0').to_owned() + &launchers;
    let cpp = translate(&source, "kernels.cu").unwrap().cpp;
    let folder = here.join(format!("../../target/tmp/engine-kernels-{}", &fingerprint()[..16]));
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.file().lock().unwrap();
    let (text, built) = (folder.join("kernels.cpp"), folder.join("kernels.so"));
    if built.exists() && fs::read_to_string(&text).is_ok_and(|old| old == cpp) {
        return built;
    }
    write_headers(&folder.join("include")).unwrap();
    fs::write(&text, &cpp).unwrap();
    let partial = folder.join("partial.so");
    let mut compiler = Command::new("g++");
    compiler.args(compile_flags()).arg("-I").arg(folder.join("include"));
    let out = compiler.args(["-shared", "-o"]).args([&partial, &text]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fs::rename(&partial, &built).unwrap();
    built
}

fn on_host() -> Kernels {
    let library = CString::new(library().to_str().unwrap()).unwrap();
    // SAFETY: a NUL-terminated string.
    check(unsafe { warpwright_kernels_on_host(library.as_ptr()) }).unwrap();
    Kernels(())
}

/// Standard normal numbers times `scale`.
fn random(size: &[i64], scale: f64) -> Tensor {
    Tensor::randn(size, (Kind::Float, Device::Cpu)) * scale
}

fn half(tensor: &Tensor) -> Tensor {
    tensor.to_kind(HALF)
}

/// Equal except for one in a hundred elements, where a sum's last bit changes its rounding.
fn assert_near(found: &Tensor, wanted: &Tensor) {
    assert_eq!((found.kind(), found.size()), (wanted.kind(), wanted.size()));
    let differ = found.ne_tensor(wanted).sum(Kind::Int64).int64_value(&[]);
    assert!(differ <= found.numel() as i64 / 100, "{differ} of {}", found.numel());
    let close =
        found.to_kind(Kind::Float).allclose(&wanted.to_kind(Kind::Float), 1e-2, 1e-5, false);
    assert!(close, "{found}\n{wanted}");
}

/// Relative distance between two tensors.
fn far(found: &Tensor, wanted: &Tensor) -> f64 {
    assert_eq!(found.size(), wanted.size());
    let (found, wanted) = (found.to_kind(Kind::Double), wanted.to_kind(Kind::Double));
    ((found - &wanted).norm() / wanted.norm()).double_value(&[])
}

/// A few times bfloat16's rounding.
const ROUNDING: f64 = 0.01;

/// Leaf tensors, in their type and in float64.
fn leaves<const N: usize>(all: [&Tensor; N]) -> ([Tensor; N], [Tensor; N]) {
    let leaf = |tensor: Tensor| tensor.detach().copy().set_requires_grad(true);
    (
        all.map(|tensor| leaf(tensor.shallow_clone())),
        all.map(|tensor| leaf(tensor.to_kind(Kind::Double))),
    )
}

/// The leaves' gradients equal those in float64.
fn assert_gradients<const N: usize>((found, wanted): &([Tensor; N], [Tensor; N])) {
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let off = far(&found.grad(), &wanted.grad());
        assert!(off < ROUNDING, "leaf {number}: {off}");
    }
}

/// In the argument's type.
fn rms_norm(x: &Tensor, weight: &Tensor) -> Tensor {
    x.rms_norm([weight.size()[0]], Some(weight), EPSILON)
}

#[test]
fn kernels_compile_for_every_bfloat16_architecture() {
    for capability in [80, 86, 89, 90, 100, 120] {
        assert!(compile(capability).unwrap() > 1000);
    }
}

#[test]
fn add_norm_matches_torch_forward_and_backward() {
    let kernels = on_host();
    tch::manual_seed(3);
    for (rows, width) in [(16, 192), (7, 512), (3, 64), (5, 1000), (1, 4), (2500, 16)] {
        let stream = random(&[rows, width], 3.0);
        let added = half(&random(&[rows, width], 1.0));
        let weight = random(&[width], 0.3) + 1.0;
        let d_out = half(&random(&[rows, width], 1.0));
        let d_sum = random(&[rows, width], 1.0);
        for adds in [false, true] {
            let given = leaves([&stream, &weight, &added]);
            let [s, w, a] = &given.0;
            let (sum, out) = kernels.add_norm(s, adds.then_some(a), w, EPSILON).unwrap();
            let wanted = if adds { s + a } else { s.shallow_clone() };
            assert_eq!(sum, wanted);
            assert_near(&out, &half(&rms_norm(&wanted, w)));

            let loss = (out.to_kind(Kind::Float) * &d_out).sum(Kind::Float);
            // Without an addend, the sum's gradient bypasses the kernels.
            (loss + (sum * &d_sum).sum(Kind::Float)).backward();
            let [s, w, a] = &given.1;
            let sum = if adds { s + a } else { s.shallow_clone() };
            let loss = (rms_norm(&sum, w) * &d_out).sum(Kind::Double);
            (loss + (sum * &d_sum).sum(Kind::Double)).backward();
            if adds {
                assert_gradients(&given);
            } else {
                let (found, wanted) = &given;
                let first = |all: &[Tensor; 3]| [all[0].shallow_clone(), all[1].shallow_clone()];
                assert_gradients(&(first(found), first(wanted)));
            }
        }
    }
}

#[test]
fn unused_norm_gradients_are_not_computed() {
    let kernels = on_host();
    tch::manual_seed(4);
    let given = leaves([&random(&[6, 32], 1.0)]);
    let added = half(&random(&[6, 32], 1.0));
    let weight = random(&[32], 0.3) + 1.0;
    let [stream] = &given.0;
    let (sum, _) = kernels.add_norm(stream, Some(&added), &weight, EPSILON).unwrap();
    sum.sum(Kind::Float).backward();
    assert_eq!(stream.grad(), stream.ones_like());
    let (_, out) = kernels.add_norm(stream, Some(&added), &weight, EPSILON).unwrap();
    let _ = stream.grad().zero_();
    out.sum(Kind::Float).backward();
    let [stream] = &given.1;
    rms_norm(&(stream + &added), &weight.to_kind(Kind::Double)).sum(Kind::Double).backward();
    assert_gradients(&given);
}

/// Rotary embedding in the argument's type. Tables are `[rows, 1, width]`.
fn turned(x: &Tensor, norm: &Tensor, cosines: &Tensor, sines: &Tensor) -> Tensor {
    let x = rms_norm(x, norm);
    let rolled = x.roll([x.size()[2] / 2], [2]);
    (x * cosines).addcmul(&rolled, sines)
}

struct Turns {
    every: Tensor,
    norms: [Tensor; 2],
    angles: (Tensor, Tensor),
    positions: Tensor,
    sizes: [i64; 3],
}

impl Turns {
    fn new(rows: i64, heads: i64, groups: i64, width: i64) -> Self {
        let angles = random(&[30, width / 2], 1.0);
        Self {
            every: half(&random(&[rows, (heads + 2 * groups) * width], 1.0)),
            norms: [0.3, 0.5].map(|scale| random(&[width], scale) + 1.0),
            angles: (
                Tensor::cat(&[angles.cos(), angles.cos()], 1),
                Tensor::cat(&[-angles.sin(), angles.sin()], 1),
            ),
            positions: Tensor::randint(20, [rows], (Kind::Int64, Device::Cpu)),
            sizes: [heads, groups, width],
        }
    }

    fn by<'t>(&'t self, [q_norm, k_norm]: [&'t Tensor; 2]) -> Turning<'t> {
        Turning {
            norms: (q_norm, k_norm),
            angles: (&self.angles.0, &self.angles.1),
            positions: &self.positions,
            epsilon: EPSILON,
        }
    }

    /// Torch's result in the argument's type; tables and norms in bfloat16.
    fn wanted(&self, [every, q_norm, k_norm]: [&Tensor; 3]) -> [Tensor; 3] {
        let [heads, groups, width] = self.sizes;
        let kind = every.kind();
        let table = |table: &Tensor| {
            half(&table.index_select(0, &self.positions).unsqueeze(1)).to_kind(kind)
        };
        let (cosines, sines) = (table(&self.angles.0), table(&self.angles.1));
        let all = every.view([-1, heads + 2 * groups, width]);
        let parts = all.split_with_sizes([heads, groups, groups], 1);
        let turn = |x: &Tensor, norm: &Tensor| turned(x, norm, &cosines, &sines);
        [turn(&parts[0], q_norm), turn(&parts[1], k_norm), parts[2].shallow_clone()]
    }
}

#[test]
fn rotary_embedding_matches_torch_forward_and_backward() {
    let kernels = on_host();
    tch::manual_seed(5);
    let shapes = [
        (16, 6, 2, 32),
        (5, 8, 8, 64),
        (3, 4, 1, 128),
        (2, 2, 2, 16),
        (1, 1, 1, 8),
        (9, 3, 3, 256),
    ];
    for (rows, heads, groups, width) in shapes.into_iter().chain([(3000, 4, 2, 16)]) {
        let turns = Turns::new(rows, heads, groups, width);
        // In bfloat16: the kernels round them, the reference does not.
        let norms = turns.norms.each_ref().map(|norm| half(norm).to_kind(Kind::Float));
        let given = leaves([&turns.every, &norms[0], &norms[1]]);
        let [every, q_norm, k_norm] = &given.0;
        let (q, k, v) = kernels.turn(every, heads, turns.by([q_norm, k_norm])).unwrap();
        let wanted = turns.wanted([&turns.every, &half(&norms[0]), &half(&norms[1])]);
        for (found, wanted) in [&q, &k, &v].into_iter().zip(&wanted) {
            assert_near(found, &wanted.contiguous());
        }

        let weighs = wanted.each_ref().map(|like| half(&random(&like.size(), 1.0)));
        let loss = |all: [&Tensor; 3], kind: Kind| {
            let each = all.into_iter().zip(&weighs);
            each.map(|(one, weigh)| (one.to_kind(kind) * weigh).sum(kind)).sum::<Tensor>()
        };
        loss([&q, &k, &v], Kind::Float).backward();
        let wanted = turns.wanted(given.1.each_ref());
        loss(wanted.each_ref(), Kind::Double).backward();
        assert_gradients(&given);
    }
}

#[test]
fn gate_matches_torch_forward_and_backward() {
    let kernels = on_host();
    tch::manual_seed(7);
    for (rows, inner) in [(16, 640), (3, 1536), (5, 8), (1, 4)] {
        let given = leaves([&half(&random(&[rows, 2 * inner], 3.0))]);
        let gated = |both: &Tensor| {
            let parts = both.split(inner, -1);
            parts[0].silu() * &parts[1]
        };
        let out = kernels.gate(&given.0[0]).unwrap();
        assert_near(&out, &gated(&given.0[0].detach()));
        let weigh = half(&random(&[rows, inner], 1.0));
        (out.to_kind(Kind::Float) * &weigh).sum(Kind::Float).backward();
        (gated(&given.1[0]) * &weigh).sum(Kind::Double).backward();
        assert_gradients(&given);
    }
}

#[test]
fn likelihood_matches_torch_forward_and_backward() {
    let kernels = on_host();
    tch::manual_seed(8);
    for (rows, words, scale) in [(40, 2048, 4.0), (7, 1000, 1.0), (3, 36, 20.0), (2, 4, 0.0)] {
        let given = leaves([&half(&random(&[rows, words], scale))]);
        let chosen = Tensor::randint(words, [rows], (Kind::Int64, Device::Cpu));
        let [logprobs, entropies] = kernels.likelihood(&given.0[0], &chosen).unwrap();
        let odds = given.1[0].log_softmax(-1, Kind::Double);
        let wanted = odds.gather(1, &chosen.unsqueeze(1), false).squeeze_dim(1);
        let near = |found: &Tensor, wanted: &Tensor| {
            let found = found.to_kind(Kind::Double);
            assert!(found.allclose(wanted, 1e-5, 2e-5, false), "{found} {wanted}");
        };
        near(&logprobs, &wanted);
        let entropy = -(odds.exp() * &odds).sum_dim_intlist(-1, false, Kind::Double);
        near(&entropies, &entropy.detach());
        assert!(!entropies.requires_grad());
        let weigh = random(&[rows], 1.0);
        (logprobs * &weigh).sum(Kind::Float).backward();
        (wanted * &weigh).sum(Kind::Double).backward();
        assert_gradients(&given);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// The expected token is the first at which the cumulative probability of the nucleus exceeds
    /// the random number. A token is in the nucleus if all more probable ones sum to less than
    /// `top_p`.
    #[test]
    fn sampling_kernel_follows_given_random_numbers(
        words in prop::sample::select(vec![2048, 1000, 33, 1]),
        temperature in prop::sample::select(vec![1.0, 0.7, 1.3]),
        top_p in prop::sample::select(vec![1.0, 0.95, 0.5, 1e-6]),
        spread in 0.1..8.0,
        (seed, chance) in (0..1000i64, prop_oneof![0.0..1.0, Just(0.0), Just(1.0)]),
    ) {
        let kernels = on_host();
        tch::manual_seed(seed);
        let logits = half(&random(&[1, words], spread));
        let given = Tensor::from_slice(&[chance]);
        let drawn = kernels.choose(&logits, &given, (temperature, top_p)).unwrap();
        let (id, logprob) = (drawn.double_value(&[0, 0]) as usize, drawn.double_value(&[1, 0]));

        let odds = (logits.to_kind(Kind::Double) / temperature).softmax(-1, Kind::Double);
        let odds: Vec<f64> = Vec::try_from(odds.view([-1])).unwrap();
        let likelier = |odd: f64| odds.iter().filter(|other| **other > odd).sum::<f64>();
        // Float32 sums may differ slightly.
        let near = |odd: &f64| (likelier(*odd) - top_p).abs() < 1e-5 * top_p;
        prop_assume!(top_p >= 1.0 || !odds.iter().any(near));
        let may: Vec<bool> =
            odds.iter().map(|odd| top_p >= 1.0 || likelier(*odd) < top_p).collect();
        let kept = |to: usize| -> f64 {
            odds.iter().zip(&may).take(to).filter(|(_, may)| **may).map(|(odd, _)| *odd).sum()
        };
        let all = kept(odds.len());
        prop_assert!(may[id]);
        prop_assert!((logprob - (odds[id] / all).ln()).abs() < 2e-5);
        let (before, to) = (kept(id) / all, kept(id + 1) / all);
        prop_assert!(before - 1e-6 <= chance && chance <= to + 1e-6, "{before} {chance} {to}");
    }
}

/// A model that the kernels support, with grouped heads and weights that differ from the initial
/// ones.
fn models(head_dim: i64) -> [Model; 3] {
    let config = ModelConfig {
        vocab_size: 64,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 3,
        head_dim,
        ..crate::tiny()
    };
    let weights = || {
        let weights = Weights::initial(&config, 5).with_value_head().trained_on(Device::Cpu);
        tch::manual_seed(9);
        for (_, weight) in weights.named() {
            let _ = weight.detach().g_add_(&random(&weight.size(), 0.1));
        }
        weights
    };
    let model = |kind| Model::new(config.clone(), weights(), kind);
    let own = model(HALF).by(Some(on_host()));
    assert!(own.kernels().is_some());
    [own, model(HALF), model(Kind::Float)]
}

fn rows() -> Vec<Row> {
    let row = |number: u32| {
        let length = 5 + 7 * number;
        let actions: Vec<u32> = (1..length).filter(|at| at % 5 != number % 5).collect();
        let each = |scale: f32| (0..actions.len()).map(|i| (i as f32).sin() * scale).collect();
        Row {
            ids: (0..length).map(|at| (number * 31 + at * at) % 64).collect(),
            advantages: each(1.0),
            old_log_probs: each(0.1),
            rollout_log_probs: each(0.1),
            returns: each(0.7),
            actions,
            ..Row::default()
        }
    };
    (1..5).map(row).collect()
}

/// Gradients are as near to float32's as torch's in bfloat16 are, for every loss and with or
/// without gradient checkpointing.
#[test]
fn fused_training_matches_torch() {
    let loss = PolicyLoss {
        clip_ratio_low: 10.0,
        clip_ratio_high: 10.0,
        clip_ratio_c: None,
        rollout_is_threshold: None,
        bypass_mode: false,
    };
    for (gradient_checkpointing, loss) in [
        (false, Loss::Likelihood),
        (true, Loss::Likelihood),
        (false, Loss::Policy(loss)),
        (false, Loss::Value { clip: None }),
    ] {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        let models = models(16);
        let [own, torchs, exact] = models.each_ref().map(|model| {
            let signals = Signals::of(&rows, &loss, Device::Cpu).unwrap();
            let pass = Pass::new(&rows, Device::Cpu);
            pass.backward(model, &signals, 50.0, gradient_checkpointing).unwrap().read().unwrap()
        });
        let off = |found: f64| (found - exact.0).abs() / exact.0.abs();
        assert!(off(own.0) < 0.02, "{loss:?}: {} {} {}", own.0, torchs.0, exact.0);
        let numbers = |scores: &[warpwright_learn::engine::Scores]| {
            let each = scores.iter().flat_map(|row| [&row.logprobs, &row.entropies, &row.values]);
            Tensor::from_slice(&each.flatten().copied().collect::<Vec<f32>>())
        };
        let wanted = numbers(&exact.1);
        let (found, before) = (far(&numbers(&own.1), &wanted), far(&numbers(&torchs.1), &wanted));
        assert!(found < 0.02 && found < 2.0 * before, "{loss:?}: {found} {before}");
        let named = models.each_ref().map(|model| model.weights.named());
        for (number, (name, own)) in named[0].iter().enumerate() {
            let wanted = named[2][number].1.grad();
            assert_eq!(own.grad().defined(), wanted.defined(), "{name}");
            if !wanted.defined() {
                continue;
            }
            let (found, torchs) =
                (far(&own.grad(), &wanted), far(&named[1][number].1.grad(), &wanted));
            assert!(found < 0.06 && found < 2.0 * torchs, "{loss:?}: {name}: {found} {torchs}");
        }
    }
}

/// Scores do not depend on the batch, and sampled tokens have the trainer's log-probabilities.
#[test]
fn fused_sampling_matches_trainer_log_probabilities() {
    let _no_grad = tch::no_grad_guard();
    let [own, torchs, _] = models(32);
    let sampling = Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() };
    let drawn = |model: &Model| {
        let mut decoder = Decoder::new(model, &model.weights, Room::of(1, 40), &sampling, false);
        let given = Given { token: 3, position: 0 };
        let chances =
            std::iter::successors(Some(0.37), |chance: &f32| Some((chance * 7.3).fract()));
        let chances: Vec<Vec<f32>> = chances.take(39).map(|chance| vec![chance]).collect();
        decoder.steps(&[Some(given)], &chances).unwrap().concat()
    };
    let by_own = drawn(&own);
    let ids: Vec<u32> = std::iter::once(3).chain(by_own.iter().map(|(id, _)| *id)).collect();
    let row = Row { actions: (1..ids.len() as u32).collect(), ids, ..Row::default() };
    let scores = Pass::new(&[&row], Device::Cpu).score(&own, None).unwrap();
    let (_, scores) = scores.read().unwrap();
    for ((_, said), scored) in by_own.iter().zip(&scores[0].logprobs) {
        assert!((said - scored).abs() < 0.03, "{said} {scored}");
    }
    let by_torch = drawn(&torchs);
    let equal = by_own.iter().zip(&by_torch).take_while(|(a, b)| a.0 == b.0).count();
    assert!(equal > 10, "{equal} of 39 tokens are equal before the first difference");
}

#[test]
fn unsupported_shapes_are_refused() {
    let kernels = on_host();
    let says = |told: Result<Tensor, EngineError>, wanted: &str| {
        let told = told.unwrap_err().to_string();
        assert!(told.contains(wanted), "{told}");
    };
    says(kernels.gate(&half(&random(&[2, 12], 1.0))), "the width 6 is not a multiple of 4");
    says(kernels.gate(&random(&[2, 16], 1.0)), "a kernel takes BFloat16");
    let odd = Turns::new(2, 1, 1, 24);
    says(
        kernels.turn(&odd.every, 1, odd.by(odd.norms.each_ref())).map(|(q, ..)| q),
        "must be a power of two from 8 to 256",
    );
    let heads = |width| half(&random(&[2, 3, width], 1.0));
    let attend = |width: i64, groups: i64| {
        let kept = half(&random(&[2, 4, groups, width], 1.0));
        let positions = Tensor::zeros([2], (Kind::Int64, Device::Cpu));
        kernels.attend(&heads(width), (&kept, &kept), &positions)
    };
    says(attend(24, 1), "must be a power of two from 8 to 256");
    says(attend(16, 2), "3 heads cannot share 2 groups");
    let stream = random(&[2, 16], 1.0);
    let weight = random(&[8], 1.0);
    says(kernels.add_norm(&stream, None, &weight, EPSILON).map(|(_, out)| out), "[16]");
    let shifted = half(&random(&[33], 1.0)).narrow(0, 1, 32).view([2, 16]);
    says(kernels.gate(&shifted), "multiple of 8 bytes");
    let config = crate::tiny();
    assert!(!Kernels::serve(&config), "61 words are not a multiple of four");
}
