use warpwright_learn::outcome::{Fault, Useless, fault, learned, reward};
use warpwright_record::event::{EpisodeId, Outcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::message::{Generation, Tokens};
use warpwright_record::reader::RunReader;
use warpwright_record::tokens::NoTokens;
use warpwright_record::verdict::{IntegrityFinding, Scheme};

use crate::sample;

/// An episode with a good candidate, one with a bad one, one that was killed.
fn episodes() -> [Episode; 3] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    sample::finish(sample::write_run(&path));
    let mut history = History::read(&RunReader::open(&path).unwrap()).unwrap();
    [0, 1, 2].map(|number| history.episodes.remove(&EpisodeId(number)).unwrap())
}

fn good() -> Episode {
    let [good, ..] = episodes();
    good
}

#[test]
fn infrastructure_failure_has_no_reward() {
    let [good, bad, killed] = episodes();
    let paper = |episode: &Episode| reward(episode, Scheme::Paper);
    assert_eq!(paper(&good), Some(3.0));
    let last = good.end.as_ref().unwrap().final_verdict.as_ref().unwrap().reward;
    assert_eq!(reward(&good, Scheme::Bounded), Some(last.bounded));
    assert_eq!(reward(&good, Scheme::Speedup), Some(last.speedup));
    assert_eq!(paper(&bad), Some(-1.0));
    assert_eq!(paper(&killed), None, "it is not over");
    let ended = |outcome: Outcome| {
        let mut episode = bad.clone();
        let end = episode.end.as_mut().unwrap();
        (end.outcome, end.final_verdict) = (outcome, None);
        paper(&episode)
    };
    // Looping with no candidate.
    assert_eq!(ended(Outcome::Looping), Some(-1.0));
    assert_eq!(ended(Outcome::BudgetTokens), Some(-1.0));
    assert_eq!(ended(Outcome::Interrupted), None);
    assert_eq!(ended(Outcome::Infrastructure { message: "the GPU is lost".into() }), None);
}

#[test]
fn each_fault_excludes_an_episode() {
    assert_eq!(fault(&good(), Scheme::Paper, 0.0), None);
    assert_eq!(fault(&good(), Scheme::Paper, 3.0), Some(Fault::Reward));
    let [_, bad, killed] = episodes();
    assert_eq!(fault(&bad, Scheme::Paper, 0.0), Some(Fault::Reward));
    assert_eq!(fault(&killed, Scheme::Paper, -9.0), Some(Fault::Reward));

    let mut hacked = good();
    let finding = IntegrityFinding { class: "caches_results".into(), message: "so".into() };
    hacked.turns[2].verdicts[0].verdict.integrity.push(finding);
    assert_eq!(fault(&hacked, Scheme::Paper, 0.0), Some(Fault::Integrity));

    let mut garbled = good();
    garbled.turns[0].message.calls[0].arguments = "{\"file_path\": ".into();
    assert_eq!(fault(&garbled, Scheme::Paper, 0.0), Some(Fault::Call));

    // Turns 3 and 5 measure the same files with different results.
    let mut looping = good();
    assert_eq!(
        looping.turns[2].snapshot.as_ref().unwrap().0,
        looping.turns[4].snapshot.as_ref().unwrap().0
    );
    looping.turns[4].results[0].0.text = looping.turns[2].results[0].0.text.clone();
    assert_eq!(fault(&looping, Scheme::Paper, 0.0), Some(Fault::Loop));
    // On other files the call is not a repetition.
    looping.turns[4].snapshot = looping.turns[3].snapshot.clone();
    assert_eq!(fault(&looping, Scheme::Paper, 0.0), None);
}

#[test]
fn episode_without_recorded_tokens_is_refused() {
    let none = learned(&good(), Scheme::Paper).unwrap_err();
    assert_eq!(none, Useless::NoTokens(NoTokens::None));
    let mut sampled = good();
    for (number, turn) in (0..).zip(&mut sampled.turns) {
        let tokens =
            Tokens { kept: 3 * number, prompt: vec![1, 2], sampled: vec![7], logprobs: vec![-0.5] };
        turn.message.generation =
            Some(Box::new(Generation { tokens: Some(tokens), ..Generation::default() }));
    }
    let episode = learned(&sampled, Scheme::Paper).unwrap();
    assert_eq!((episode.task.as_str(), episode.reward), ("bias_gelu_residual", 3.0));
    let [sequence] = &episode.sequences[..] else { panic!("{:?}", episode.sequences) };
    assert_eq!(sequence.ids, [1, 2, 7].repeat(6));
    sampled.end = None;
    assert_eq!(learned(&sampled, Scheme::Paper).unwrap_err(), Useless::NoReward);
}
