//! A language model as a composer.
//!
//! ```text
//! seed ──► Prompt ──► Author ──► answer ──► code ──► Reading ──► Proposal ──► examined elsewhere ──► kept
//!            ▲                                │          │                          │
//!            └──────── the reason, in the same conversation, a few times ◄──────────┘
//! ```
//!
//! Answers are not trusted: this module extracts and parses the code, and other processes run it.
//! The prompt is in the texts next to `prompt.rs`.

mod answer;
mod author;
mod calls;
mod file;
mod prompt;
mod reading;
mod vocabulary;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpwright_task::similarity::AstProfile;
use warpwright_task::{RandomWhen, facts};

pub use answer::AnswerError;
pub use author::{Author, AuthorError, Turn};

use crate::admit::Window;
use crate::catalogue::{Catalogue, Form};
use crate::proposal::{Proposal, Provenance};

use super::error::ComposeError;
use super::names::short;
use super::{Composer, Examine, Grammar, Level};
use prompt::{Prompt, again, clip};
use vocabulary::Vocabulary;

/// Maximum consecutive answers without a valid task before the composer stops asking the author.
const MAX_USELESS: u32 = 20;
/// Maximum bytes of an answer that are sent back to its author.
const MAX_SHOWN: usize = 32 << 10;
/// Maximum similarity of an answer and an example.
const PARROT: f64 = 0.9;
/// Maximum words of a name, and maximum bytes.
const NAME_WORDS: usize = 6;
const NAME_BYTES: usize = 60;

/// Settings of the composer in addition to its [`Grammar`].
#[derive(Clone, Debug, PartialEq)]
pub struct LlmConfig {
    /// Accepted eager time per call; default 0.05 to 10 ms.
    pub window: Window,
    /// The target device in words: `an NVIDIA H200`.
    pub device: String,
    /// Maximum further answers per conversation; default 2.
    pub repairs: u32,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self { window: Window::fast(), device: "a GPU".to_owned(), repairs: 2 }
    }
}

/// The composer that asks a language model.
pub struct Llm {
    author: Arc<dyn Author>,
    grammar: Grammar,
    vocabulary: Vocabulary,
    config: LlmConfig,
    /// Consecutive answers without a valid task, over all conversations.
    useless: AtomicU32,
}

impl Llm {
    /// The grammar samples the requests (numbers of operators, levels, sizes) and the examples;
    /// `catalogues` are those that it composes from.
    pub fn new(
        author: Arc<dyn Author>,
        grammar: Grammar,
        catalogues: &[Catalogue],
        config: LlmConfig,
    ) -> Self {
        let vocabulary = Vocabulary::new(catalogues);
        Self { author, grammar, vocabulary, config, useless: AtomicU32::new(0) }
    }

    fn prompt(&self, seed: u64) -> Result<Prompt, ComposeError> {
        Prompt::new(&self.grammar, &self.config.window, &self.config.device, seed)
    }

    /// The proposal in an answer.
    fn read(&self, answer: &str, prompt: &Prompt, seed: u64) -> Result<Proposal, AnswerError> {
        let source = answer::code(answer)?;
        let no_task = |error: warpwright_task::TaskError| {
            AnswerError::NoTask(error.of(Path::new("the answer")))
        };
        let facts = facts(&source).map_err(no_task)?;
        let reading = reading::read(&source)?;
        if let Some(place) = facts.device_uses.first() {
            return Err(AnswerError::Device { place: place.position().to_string() });
        }
        if let Some(random) = facts.random.iter().find(|r| r.when == RandomWhen::Always) {
            return Err(AnswerError::Random { call: random.call.clone() });
        }
        let profile = AstProfile::of(&source).map_err(no_task)?;
        for example in &prompt.examples {
            let example = AstProfile::of(example).map_err(no_task)?;
            if example.similarity(&profile) >= PARROT {
                return Err(AnswerError::Parroted);
            }
        }
        let operators: Vec<String> = reading
            .calls
            .iter()
            .filter_map(|called| self.vocabulary.operator(called).map(str::to_owned))
            .collect();
        if operators.is_empty() {
            return Err(AnswerError::NoOperator);
        }
        let level = self.level(&operators);
        if let Some(wanted) = self.grammar.config().level
            && wanted != level
        {
            let (found, wanted) = (level.get(), wanted.get());
            return Err(AnswerError::Level { found, wanted });
        }
        Ok(Proposal {
            name: name(reading.title.as_deref().unwrap_or_default(), &operators),
            source,
            operators,
            level: level.get(),
            provenance: Provenance {
                composer: self.author.name().to_owned(),
                seed,
                catalogue: self.grammar.library().hash().to_owned(),
                parent: None,
            },
        })
    }

    /// The level on the grammar's scale, as if each operator took one value.
    fn level(&self, operators: &[String]) -> Level {
        let library = self.grammar.library();
        let forms: Vec<&Form> =
            operators.iter().filter_map(|name| self.vocabulary.form(library, name)).collect();
        Level::of(&forms, 0)
    }

    /// Counts consecutive answers without a valid task.
    fn count(&self, read: Result<(), &AnswerError>) -> Result<(), AuthorError> {
        let Err(error) = read else {
            self.useless.store(0, Ordering::Relaxed);
            return Ok(());
        };
        let answers = self.useless.fetch_add(1, Ordering::Relaxed) + 1;
        if answers < MAX_USELESS {
            return Ok(());
        }
        let (author, reason) = (self.author.name().to_owned(), error.to_string());
        Err(AuthorError::NoTasks { author, answers, reason })
    }
}

impl Composer for Llm {
    fn name(&self) -> &str {
        self.author.name()
    }

    /// The proposal of the first valid answer.
    fn compose(&self, seed: u64) -> Result<Proposal, ComposeError> {
        let mut last = None;
        self.compose_until(seed, &mut |proposal| {
            let reason = proposal.as_ref().err().map(ToString::to_string);
            last = Some(proposal);
            reason
        })?;
        last.unwrap_or(Err(ComposeError::Wishes("the policy was never asked")))
    }

    fn compose_until(&self, seed: u64, examine: Examine<'_>) -> Result<(), AuthorError> {
        let prompt = match self.prompt(seed) {
            Ok(prompt) => prompt,
            Err(error) => {
                examine(Err(error));
                return Ok(());
            }
        };
        let mut conversation = vec![Turn::Asked(prompt.ask.clone())];
        for _ in 0..=self.config.repairs {
            let answer = self.author.write(&prompt.system, &conversation)?;
            let read = self.read(&answer, &prompt, seed);
            let useful = self.count(read.as_ref().map(|_| ()));
            let reason = examine(read.map_err(ComposeError::from));
            useful?;
            let Some(reason) = reason else { break };
            conversation.push(Turn::Answered(clip(&answer, MAX_SHOWN).to_owned()));
            conversation.push(Turn::Asked(again(&reason)));
        }
        Ok(())
    }
}

/// A snake-case name from the first words of the title, or from the operators.
fn name(title: &str, operators: &[String]) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.filter(|word| !["a", "an", "the"].contains(&word.to_lowercase().as_str()));
    let words: Vec<String> = words.take(NAME_WORDS).map(str::to_ascii_lowercase).collect();
    let mut name = words.join("_");
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name = operators.iter().map(|name| short(name)).collect::<Vec<_>>().join("_");
    }
    name.truncate(NAME_BYTES);
    name.trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests;
