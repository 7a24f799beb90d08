//! Sampled tokens and their log-probabilities.

use std::collections::BTreeMap;

use warpwright_engine::{Deviation, LocalEngine, SamplerDtype, Settings};
use warpwright_learn::engine::{
    Completion, Engine, Loss, Prompt, Row, SampleRequest, Sampled, Sampler, Sampling, Step, Which,
};

use crate::oracle::{actions, engine, rows};

/// An engine with weights that differ from the initial ones, so that logits are uneven.
fn taught(slots: usize) -> LocalEngine {
    taught_by(Settings { max_num_seqs: slots, ..Settings::default() })
}

fn taught_by(settings: Settings) -> LocalEngine {
    let mut engine = engine(settings);
    for _ in 0..20 {
        engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
        engine.step(Which::Policy, &Step { lr: 3e-3, ..Step::default() }).unwrap();
    }
    engine
}

fn prompts() -> Vec<Vec<u32>> {
    let of = |n: u32| (0..=n * 5 % 23).map(|i| (i * 3 + n) % 61).collect();
    (0..11).map(of).collect()
}

fn asked(seed: u64) -> Vec<Prompt> {
    Prompt::numbered(prompts(), seed)
}

fn whole(prompt: &[u32], sampled: &Sampled) -> Row {
    let ids = [prompt, &sampled.ids].concat();
    let actions = (prompt.len() as u32..ids.len() as u32).collect();
    Row { ids, actions, ..Row::default() }
}

#[test]
fn sampler_and_trainer_log_probabilities_agree() {
    let mut engine = taught(4);
    let sampling = Sampling { max_new_tokens: 70, ..Sampling::default() };
    let sampled = engine.sample(&asked(8), &sampling).unwrap();
    let rows: Vec<Row> = prompts().iter().zip(&sampled).map(|(p, s)| whole(p, s)).collect();
    for (scores, sampled) in engine.score(&rows).unwrap().iter().zip(&sampled) {
        assert_eq!(sampled.ids.len(), 70);
        for (a, b) in scores.logprobs.iter().zip(&sampled.logprobs) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }
}

#[test]
fn sampled_tokens_are_independent_of_the_batch() {
    let sampling = Sampling { max_new_tokens: 40, stop: vec![7, 30], ..Sampling::default() };
    let drawn = |slots| taught(slots).sample(&asked(4), &sampling).unwrap();
    let ids = |all: &[Sampled]| all.iter().map(|s| s.ids.clone()).collect::<Vec<_>>();
    let alone = drawn(1);
    // Bit for bit, with log-probabilities: a resumed run in other batches must train on the same.
    assert_eq!(alone, drawn(3));
    assert_eq!(alone, drawn(64));
    // However late the host reads the sampled tokens.
    for unread in [2, 8, 100] {
        let settings = Settings { unread: Some(unread), max_num_seqs: 3, ..Settings::default() };
        assert_eq!(alone, taught_by(settings).sample(&asked(4), &sampling).unwrap(), "{unread}");
    }
    let mut engine = taught(64);
    for (one, drawn) in asked(4).into_iter().zip(&alone) {
        assert_eq!(engine.sample(&[one], &sampling).unwrap(), std::slice::from_ref(drawn));
    }
    // Slots are reused at different times.
    let lengths: std::collections::BTreeSet<usize> = alone.iter().map(|s| s.ids.len()).collect();
    assert!(lengths.len() > 3, "{lengths:?}");
    assert_ne!(ids(&alone), ids(&taught(3).sample(&asked(5), &sampling).unwrap()));
}

/// Requests arrive one after the other, some with other sampling parameters, while others are
/// running; the decoder grows with them and shrinks when they complete.
#[test]
fn joining_request_samples_as_if_alone() {
    let manners = [(1.0, 40, vec![7, 30]), (1.0, 9, vec![]), (0.7, 20, vec![30])];
    let request = |ticket: u64| {
        let (temperature, most, stop) = manners[ticket as usize * ticket as usize % 7 % 3].clone();
        let prompt = asked(ticket / 11)[ticket as usize % 11].clone();
        let sampling = Sampling { temperature, max_new_tokens: most, stop, ..Sampling::default() };
        SampleRequest { ticket, prompt, sampling }
    };
    let count = 80;
    let mut engine = taught(64);
    let alone: Vec<Sampled> = (0..count)
        .map(request)
        .map(|one| engine.sample(&[one.prompt], &one.sampling).unwrap().remove(0))
        .collect();
    for (slots, steps, at_once, unread) in
        [(64, 3, 5, 1), (64, 1, 40, 1), (3, 7, 2, 1), (64, 11, 1, 1), (64, 11, 5, 4), (3, 50, 9, 8)]
    {
        let unread = Some(unread);
        let mut engine = taught_by(Settings { max_num_seqs: slots, unread, ..Settings::default() });
        let mut requests = (0..count).map(request);
        let mut found: BTreeMap<u64, Sampled> = BTreeMap::new();
        while found.len() < count as usize {
            let joining = requests.by_ref().take(at_once).collect();
            for completion in engine.draw(joining, steps).unwrap() {
                let twice = found.insert(completion.ticket, completion.sampled.unwrap());
                assert_eq!(twice, None);
            }
        }
        assert!(
            found.into_values().eq(alone.iter().cloned()),
            "{slots} {steps} {at_once} {unread:?}"
        );
        assert_eq!(engine.draw(vec![], 5).unwrap(), []);
    }
}

#[test]
fn invalid_request_does_not_affect_others() {
    let mut engine = taught(4);
    let request = |ticket, id, most| {
        let sampling = Sampling { max_new_tokens: most, ..Sampling::default() };
        SampleRequest { ticket, prompt: Prompt { ids: vec![id], stream: 1 }, sampling }
    };
    let over = engine.draw(vec![request(5, 1, 50), request(6, 99, 50)], 3).unwrap();
    let [Completion { ticket: 6, sampled: Err(refusal) }] = &over[..] else { panic!("{over:?}") };
    assert_eq!(refusal.message, "token 99 of a prompt is not in the vocabulary of 61");
    let over = engine.draw(vec![], 50).unwrap();
    assert_eq!(over[0].ticket, 5);
    assert_eq!(over[0].sampled.as_ref().unwrap().ids.len(), 50);
}

/// The trainer's log-probabilities agree, before the update by the old policy and after it by the
/// new one.
#[test]
fn running_sequences_continue_under_updated_weights() {
    const BEFORE: u32 = 10;
    for (max_token_len, behind) in [(32_768, 0), (1, 0), (32_768, 1)] {
        let sampler = Deviation { lag: behind, ..Deviation::default() };
        let mut engine = taught_by(Settings { max_token_len, sampler, ..Settings::default() });
        let request = |(prompt, ticket): (Prompt, u64)| SampleRequest {
            ticket,
            prompt,
            sampling: Sampling { max_new_tokens: 20 + ticket as u32, ..Sampling::default() },
        };
        let requests: Vec<SampleRequest> =
            asked(6).into_iter().take(6).zip(0..).map(request).collect();
        // Each has its first token before the first step.
        assert_eq!(engine.draw(requests.clone(), BEFORE - 1).unwrap(), []);
        let old = tempfile::tempdir().unwrap();
        engine.save(old.path()).unwrap();
        engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
        engine.step(Which::Policy, &Step { lr: 3e-2, ..Step::default() }).unwrap();
        // Another request joins.
        let late = SampleRequest { ticket: 6, ..requests[2].clone() };
        let mut over = engine.draw(vec![late.clone()], 50).unwrap();
        over.sort_by_key(|one| one.ticket);
        assert_eq!(over.len(), 7);
        let sampled: Vec<Sampled> = over.into_iter().map(|one| one.sampled.unwrap()).collect();
        let whole_rows: Vec<Row> = requests
            .iter()
            .chain([&late])
            .zip(&sampled)
            .map(|(request, sampled)| whole(&request.prompt.ids, sampled))
            .collect();
        let new = engine.score(&whole_rows).unwrap();
        let mut engine = LocalEngine::load(old.path(), Settings::default()).unwrap();
        let old = engine.score(&whole_rows).unwrap();
        let away = |said: &[f32], found: &[f32]| {
            said.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        for (at, sampled) in sampled.iter().enumerate() {
            let from = if at == 6 { 0 } else { BEFORE as usize };
            let (first, then) = sampled.logprobs.split_at(from);
            let (old, new) = (&old[at].logprobs, &new[at].logprobs);
            let (now, other) = if behind == 0 { (new, old) } else { (old, new) };
            if behind == 0 {
                assert!(away(first, &old[..from]) < 1e-4, "{at}");
            }
            assert!(away(then, &now[from..]) < 1e-4, "{at}: {}", away(then, &now[from..]));
            assert!(away(then, &other[from..]) > 1e-2, "{at}: the policy has hardly moved");
        }
    }
}

#[test]
fn stop_token_or_length_limit_ends_sequence() {
    let mut engine = taught(4);
    let sampling = Sampling { max_new_tokens: 500, stop: vec![7, 30], ..Sampling::default() };
    for (prompt, sampled) in prompts().iter().zip(engine.sample(&asked(4), &sampling).unwrap()) {
        let stops = sampled.ids.iter().filter(|id| sampling.stop.contains(id)).count();
        assert_eq!(stops, usize::from(sampled.is_complete));
        if sampled.is_complete {
            assert!(sampling.stop.contains(sampled.ids.last().unwrap()));
        } else {
            assert_eq!(prompt.len() + sampled.ids.len(), 128, "as long as the model goes");
        }
        assert_eq!(sampled.ids.len(), sampled.logprobs.len());
    }
    let none = Sampling { max_new_tokens: 0, ..Sampling::default() };
    assert!(engine.sample(&asked(4), &none).unwrap().iter().all(|s| s.ids.is_empty()));
    assert!(engine.sample(&[], &Sampling::default()).unwrap().is_empty());
}

#[test]
fn sampled_frequencies_follow_the_distribution() {
    let mut engine = taught(256);
    let prompt = vec![5, 9, 2];
    let many = Prompt::numbered(vec![prompt.clone(); 2000], 3);
    // Probabilities, token by token.
    let all: Vec<Row> = (0..61)
        .map(|id| Row { ids: [&prompt[..], &[id]].concat(), actions: vec![3], ..Row::default() })
        .collect();
    let odds = engine.score(&all).unwrap();
    let odds: Vec<f64> = odds.iter().map(|s| f64::from(s.logprobs[0])).collect();
    for (temperature, top_p) in [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6)] {
        let sampling = Sampling { temperature, top_p, max_new_tokens: 1, ..Sampling::default() };
        let drawn = engine.sample(&many, &sampling).unwrap();
        let mut counts = vec![0_u32; 61];
        for s in &drawn {
            counts[s.ids[0] as usize] += 1;
        }
        let wanted = expected(&odds, temperature, top_p);
        let mut chi2 = 0.0;
        for (id, count) in counts.iter().enumerate() {
            let expected = 2000.0 * wanted[id];
            if wanted[id] == 0.0 {
                assert_eq!(*count, 0, "{id} is not among the likeliest");
            } else {
                chi2 += (f64::from(*count) - expected).powi(2) / expected;
            }
        }
        // 60 degrees of freedom: above 100 with probability one in a thousand.
        assert!(chi2 < 100.0, "{temperature} {top_p}: {chi2}");
        for s in &drawn {
            let said = f64::from(s.logprobs[0]).exp();
            assert!((said - wanted[s.ids[0] as usize]).abs() < 1e-4);
        }
    }
    let greedy = Sampling { temperature: 0.0, max_new_tokens: 1, ..Sampling::default() };
    let best = (0..61).max_by(|&a, &b| odds[a].total_cmp(&odds[b])).unwrap() as u32;
    assert_eq!(engine.sample(&Prompt::numbered([prompt], 0), &greedy).unwrap()[0].ids, [best]);
}

/// Reference: tempered, restricted to the most probable tokens that together reach `top_p`,
/// normalised.
fn expected(logprobs: &[f64], temperature: f64, top_p: f64) -> Vec<f64> {
    let powers: Vec<f64> = logprobs.iter().map(|p| (p / temperature).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let mut odds: Vec<(usize, f64)> = powers.iter().map(|p| p / sum).enumerate().collect();
    odds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut kept, mut reached) = (vec![0.0; logprobs.len()], 0.0);
    for (id, p) in odds {
        if reached < top_p {
            kept[id] = p;
        }
        reached += p;
    }
    let sum: f64 = kept.iter().sum();
    kept.iter().map(|p| p / sum).collect()
}

/// Largest difference between the sampler's and the trainer's log-probabilities.
fn mismatch(engine: &mut LocalEngine) -> f32 {
    let sampling = Sampling { max_new_tokens: 20, ..Sampling::default() };
    let sampled = engine.sample(&asked(8), &sampling).unwrap();
    let rows: Vec<Row> = prompts().iter().zip(&sampled).map(|(p, s)| whole(p, s)).collect();
    let scores = engine.score(&rows).unwrap();
    let pairs = scores.iter().zip(&sampled).flat_map(|(a, b)| a.logprobs.iter().zip(&b.logprobs));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn rounded_sampler_weights_cause_expected_mismatch() {
    let folder = tempfile::tempdir().unwrap();
    taught(4).save(folder.path()).unwrap();
    let of = |dtype| {
        let sampler = Deviation { dtype, lag: 0 };
        let settings = Settings { sampler, num_threads: Some(1), ..Settings::default() };
        mismatch(&mut LocalEngine::load(folder.path(), settings).unwrap())
    };
    let [none, half, fp8] = [SamplerDtype::Same, SamplerDtype::Bfloat16, SamplerDtype::Fp8].map(of);
    assert!(none < 1e-4 && half > 10.0 * none && fp8 > 3.0 * half, "{none} {half} {fp8}");
}

#[test]
fn lagging_sampler_uses_earlier_weights() {
    let behind = |behind| Settings {
        sampler: Deviation { lag: behind, ..Deviation::default() },
        ..Settings::default()
    };
    let sampling = Sampling { max_new_tokens: 12, ..Sampling::default() };
    let teach = |engine: &mut LocalEngine| {
        engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
        engine.step(Which::Policy, &Step { lr: 3e-3, ..Step::default() }).unwrap();
    };
    let (mut now, mut late) = (engine(behind(0)), engine(behind(2)));
    let mut drawn = vec![now.sample(&asked(2), &sampling).unwrap()];
    for _ in 0..4 {
        teach(&mut now);
        drawn.push(now.sample(&asked(2), &sampling).unwrap());
    }
    for of in [0, 0, 0, 1, 2] {
        assert_eq!(late.sample(&asked(2), &sampling).unwrap(), drawn[of], "{of}");
        teach(&mut late);
    }
}
