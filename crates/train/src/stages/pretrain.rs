//! Stage `pretrain`, the first of a policy from scratch: trains on source code of the machine, and
//! on kernels that the built-in policy writes for many tasks. Nothing is run or judged.
//!
//! ```text
//! tasks ─► traced ─► kernels with flaws ─┐
//! folders ─► files ──────────────────────┴─► tokenizer ─► sequences, shuffled together ─► likelihood
//! ```

use std::collections::BTreeMap;
use std::num::NonZero;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::Serialize;
use warpwright_agent::policy::Briefing;
use warpwright_agent::tracer::{Tracer, TracerError};
use warpwright_learn::batch;
use warpwright_learn::fit::Aim;
use warpwright_native::{Dialogue, Marks, Tokenizer};
use warpwright_record::reader::RunReader;
use warpwright_record::tokens::Sequence;
use warpwright_rollout::error::chain;
use warpwright_teacher::first_messages;

use crate::config::Pretraining;
use crate::corpus::{self, Described, Shown};
use crate::error::TrainError;
use crate::folder::{StageFolder, write_json};
use crate::observer::TrainEvent;
use crate::run::Run;
use crate::sources::Sources;
use crate::stage::Stage;
use crate::stages::StageWork;
use crate::stages::fit::fit;

/// Statistics of the stage's texts, in its folder.
const CORPUS: &str = "corpus.json";
/// Limit on the bytes of each kind of text that the tokenizer is trained on.
const TOKENIZER_BYTES: usize = 8 << 20;
/// Limit on the tokens of a piece of source code.
const PIECE_TOKENS: usize = 1024;

/// Statistics of the training texts.
#[derive(Debug, Serialize)]
struct Corpus<'a> {
    tasks: usize,
    /// Numbers of tasks without kernels, by reason.
    without: BTreeMap<String, usize>,
    kernels: usize,
    /// Number of kernels that are longer than the model's maximum sequence length.
    too_long: usize,
    kernel_tokens: usize,
    sources: Option<&'a Sources>,
    source_tokens: usize,
}

pub(super) struct PretrainStage;

impl StageWork for PretrainStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let Some(pretrain) = &run.config.pretrain else { return Ok(()) };
        let (kernels, without) = kernels(run, pretrain)?;
        tokenize_by(run, &kernels)?;
        let read = Tokenizer::load(&run.tokenizer());
        let tokenizer = read.map_err(|error| TrainError::infrastructure(chain(&error), None))?;
        let positions = Described::read(&run.out.join("model"))?.positions(None);
        let dialogue = Marks::new(tokenizer, run.config.sampling.max_tool_result_tokens);

        let mut told = parallel_map(&kernels, |shown| vec![shown.episode(&dialogue)]);
        let written = told.len();
        told.retain(|episode| length(episode) <= positions);
        let too_long = written - told.len();
        let texts = run.sources.map_or(&[][..], |sources| &sources.texts);
        let pieces = parallel_map(texts, |text| pieces(&dialogue, text, positions));
        let source_tokens = pieces.iter().map(length).sum();
        if let Some(share) = pretrain.max_kernel_share {
            told.shuffle(&mut StdRng::seed_from_u64(run.seed(Stage::Pretrain.salt())));
            keep_share(&mut told, source_tokens, share);
        }
        let corpus = Corpus {
            tasks: run.written.len(),
            without,
            kernels: told.len(),
            too_long,
            kernel_tokens: told.iter().map(length).sum(),
            source_tokens,
            sources: run.sources,
        };
        run.observe(&TrainEvent::Corpus {
            tasks: corpus.tasks,
            kernels: corpus.kernels,
            kernel_tokens: corpus.kernel_tokens,
            source_tokens,
            too_long,
            without: &corpus.without,
        });
        write_json(&folder.path.join(CORPUS), &corpus)?;
        told.extend(pieces);
        if told.is_empty() {
            let hint = "increase model.max_position_embeddings, or use smaller tasks".to_owned();
            let message = format!(
                "failed to pretrain: no kernel is shorter than max_position_embeddings, {positions} tokens"
            );
            return Err(TrainError::usage(message, hint));
        }
        fit(run, Stage::Pretrain, folder, &pretrain.fit, Aim::Likelihood, &told, false)
    }
}

/// Kernels for the tasks, and the reasons why other tasks have none.
fn kernels(
    run: &Run<'_, '_>,
    pretrain: &Pretraining,
) -> Result<(Vec<Shown>, BTreeMap<String, usize>), TrainError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let Some(host) = run.hosts.first() else {
        return Err(TrainError::infrastructure("failed to trace: no device is open", None));
    };
    let tracer =
        Tracer { jail: &host.jail, python: &host.python, processes: cores, stop: run.stop };
    let references: Vec<&str> = run.written.iter().map(|task| task.source.as_str()).collect();
    let traced = tracer.trace(&references, &|done| {
        run.observe(&TrainEvent::Traced { done, of: references.len() });
    });
    let traced = traced.map_err(|error| match error {
        TracerError::Interrupted => TrainError::interrupted(),
        other => TrainError::infrastructure(chain(&other), None),
    })?;
    let device = &run.rollouts.devices[0];
    let numbered: Vec<_> = run.written.iter().zip(&traced).zip(0u64..).collect();
    let written = parallel_map(&numbered, |((task, trace), number)| {
        let seeds = (0..pretrain.kernels_per_task as u64).map(|version| {
            run.seed(1 << 32 | *number << 8 ^ version ^ Stage::Pretrain.salt() << 56)
        });
        let profile = run.config.profile;
        let messages = trace
            .as_ref()
            .map_err(String::clone)
            .and_then(|trace| first_messages(trace, &device.facts, profile, pretrain.flaws, seeds));
        let messages = match messages {
            Ok(messages) => messages,
            Err(reason) => return vec![Err(reason)],
        };
        let shown = messages.into_iter().map(|message| {
            let briefing = Briefing {
                task: task.name.clone(),
                reference: task.shown_source(),
                skill: String::new(),
                device: device.facts.clone(),
                profile,
                seed: 0,
                turns: None,
            };
            Ok(Shown::first(briefing, message))
        });
        shown.collect()
    });
    let (mut kernels, mut without) = (Vec::new(), BTreeMap::new());
    for one in written {
        match one {
            Ok(shown) => kernels.push(shown),
            Err(reason) => *without.entry(reason).or_insert(0) += 1,
        }
    }
    Ok((kernels, without))
}

/// Trains the run's tokenizer if it has none: on the demonstrations, these kernels and the source
/// code, up to a limit of each.
fn tokenize_by(run: &Run<'_, '_>, kernels: &[Shown]) -> Result<(), TrainError> {
    let Some(shape) = run.untokenized() else { return Ok(()) };
    let mut texts = Vec::new();
    if run.config.demos.is_some() {
        let path = run.stage_folder(Stage::Demos)?.path.join("record");
        let device = &run.rollouts.devices[0];
        let shown = corpus::shown(&RunReader::open(&path)?, &device.facts, &device.skill)?;
        texts.extend(up_to(shown.iter().flat_map(Shown::texts)));
    }
    texts.extend(up_to(kernels.iter().flat_map(Shown::texts)));
    texts.extend(up_to(run.sources.into_iter().flat_map(|s| s.texts.iter().cloned())));
    run.observe(&TrainEvent::TrainingTokenizer);
    corpus::begin_model(&texts, shape, &run.config.sampling, &run.out.join("model"))
}

fn length(episode: &batch::Episode) -> usize {
    episode.sequences.iter().map(|sequence| sequence.ids.len()).sum()
}

/// Keeps the first kernels that make up at most this share of all tokens.
fn keep_share(kernels: &mut Vec<batch::Episode>, source_tokens: usize, share: f64) {
    let most = share / (1.0 - share) * source_tokens as f64;
    let mut tokens = 0;
    let kept = kernels.iter().take_while(|kernel| {
        tokens += length(kernel);
        tokens as f64 <= most
    });
    let kept = kept.count();
    kernels.truncate(kept);
}

/// The first texts, up to the limit in bytes.
fn up_to(texts: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut bytes = 0;
    texts.take_while(move |text| {
        bytes += text.len();
        bytes <= TOKENIZER_BYTES
    })
}

/// Splits a text into sequences that fit the model. Each begins after a mark that ends messages, so
/// that its first token is trained too.
fn pieces(dialogue: &Marks, text: &str, positions: usize) -> Vec<batch::Episode> {
    let ids = dialogue.tokenizer().encode(text);
    let begin = dialogue.stops()[0];
    let pieces = ids.chunks((positions - 1).clamp(1, PIECE_TOKENS)).map(|piece| {
        let count = piece.len();
        let sequence = Sequence {
            ids: [&[begin], piece].concat(),
            response_mask: [vec![0], vec![1; count]].concat(),
            rollout_log_probs: [vec![None], vec![Some(0.0); count]].concat(),
            turns: vec![1; count + 1],
        };
        batch::Episode { task: String::new(), sequences: vec![sequence], reward: 0.0 }
    });
    pieces.collect()
}

/// Maps on all cores; results keep their order.
fn parallel_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Vec<R> + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let size = items.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = items
            .chunks(size)
            .map(|part| scope.spawn(move || part.iter().flat_map(work).collect::<Vec<R>>()))
            .collect();
        let done = parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.collect()
    })
}

#[cfg(test)]
mod tests {
    use warpwright_native::Pretokenizer;

    use super::*;

    #[test]
    fn source_pieces_cover_every_token() {
        let text = "int add(int a, int b) { return a + b; }\n".repeat(9);
        let tokenizer = Tokenizer::train([text.as_str()], 300, Pretokenizer::Words).unwrap();
        let dialogue = Marks::new(tokenizer, 8);
        let pieces = pieces(&dialogue, &text, 7);
        assert!(pieces.iter().all(|piece| length(piece) <= 7));
        let learned = pieces.iter().flat_map(|piece| {
            let sequence = &piece.sequences[0];
            let actions = sequence.ids.iter().zip(&sequence.response_mask);
            actions.filter_map(|(id, response_mask)| (*response_mask == 1).then_some(*id))
        });
        assert_eq!(dialogue.tokenizer().decode(&learned.collect::<Vec<_>>()), text);
        assert!(batch::Batch::new(&pieces).is_ok());
    }

    #[test]
    fn kernel_share_of_tokens_is_limited() {
        let of = |tokens: usize| batch::Episode {
            task: String::new(),
            sequences: vec![Sequence { ids: vec![0; tokens], ..Sequence::default() }],
            reward: 0.0,
        };
        let left = |share| {
            let mut kernels = vec![of(10); 100];
            keep_share(&mut kernels, 9_000, share);
            kernels.len()
        };
        assert_eq!([0.0, 0.001, 0.01, 0.1, 0.5].map(left), [0, 0, 9, 100, 100]);
    }

    #[test]
    fn parallel_map_keeps_order() {
        let numbers: Vec<usize> = (0..97).collect();
        let doubled = parallel_map(&numbers, |n| vec![*n; *n % 3]);
        let expected: Vec<usize> = numbers.iter().flat_map(|n| vec![*n; *n % 3]).collect();
        assert_eq!(doubled, expected);
    }
}
