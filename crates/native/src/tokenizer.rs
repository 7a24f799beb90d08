//! Tokenizer: byte-level BPE, with special tokens (marks) that no text can produce.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split as SplitAt, SplitPattern};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{
    AddedToken, DecoderWrapper, SplitDelimiterBehavior, TokenizerBuilder, TokenizerImpl,
};

type Inner = TokenizerImpl<
    BPE,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// A special token that no text can produce; [`crate::Marks`] gives it its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The task follows.
    Task,
    /// The policy's message follows.
    Policy,
    /// The name of a tool call follows.
    Call,
    /// An argument's name follows.
    Key,
    /// The argument's value follows, as text.
    Is,
    /// The argument's value follows, as JSON.
    Json,
    /// End of the policy's message.
    End,
    /// A tool's result follows.
    Tool,
}

impl Mark {
    /// All marks, in the order of their ids.
    pub const ALL: [Self; 8] = [
        Self::Task,
        Self::Policy,
        Self::Call,
        Self::Key,
        Self::Is,
        Self::Json,
        Self::End,
        Self::Tool,
    ];

    /// Its text in `tokenizer.json`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Task => "<|task|>",
            Self::Policy => "<|policy|>",
            Self::Call => "<|call|>",
            Self::Key => "<|key|>",
            Self::Is => "<|is|>",
            Self::Json => "<|json|>",
            Self::End => "<|end|>",
            Self::Tool => "<|tool|>",
        }
    }
}

/// How a text is split before byte-level BPE merges: no token crosses a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pretokenizer {
    /// At words and digits, as GPT-2 and Qwen do.
    #[default]
    Words,
    /// At line ends: a frequent line becomes one token, for tiny models.
    Lines,
}

/// Why a tokenizer cannot be used.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// Training or reading failed.
    #[error("failed to {attempt}: {reason}")]
    Library {
        /// What was attempted.
        attempt: String,
        /// The library's message.
        reason: String,
    },
    /// It has no token for a mark: `warpwright train` did not write it.
    #[error("failed to use the tokenizer {path}: it has no token {mark}")]
    NoMark {
        /// The file.
        path: PathBuf,
        /// The mark.
        mark: &'static str,
    },
}

fn library(attempt: impl Into<String>) -> impl FnOnce(tokenizers::Error) -> TokenizerError {
    let attempt = attempt.into();
    move |error| TokenizerError::Library { attempt, reason: error.to_string() }
}

/// Byte-level BPE: every text is encodable, and decoding gives the same text.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Inner,
    /// Ids of [`Mark::ALL`].
    marks: [u32; Mark::ALL.len()],
}

impl Tokenizer {
    /// Trains a tokenizer of at most `size` tokens on texts. It has at least the 256 bytes and the
    /// marks. Equal texts give equal tokenizers.
    pub fn train<'t>(
        texts: impl IntoIterator<Item = &'t str>,
        vocabulary: usize,
        split: Pretokenizer,
    ) -> Result<Self, TokenizerError> {
        let train = || library("train a tokenizer");
        let marks: Vec<AddedToken> =
            Mark::ALL.iter().map(|mark| AddedToken::from(mark.text(), true)).collect();
        let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
        alphabet.sort_unstable();
        let mut trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(vocabulary)
            .min_frequency(2)
            .special_tokens(marks)
            .initial_alphabet(alphabet.into_iter().collect())
            .build();
        let mut inner: Inner = TokenizerBuilder::new()
            .with_model(BPE::default())
            .with_pre_tokenizer(Some(split.pre_tokenizer()?))
            .with_decoder(Some(ByteLevel::default().into()))
            .build()
            .map_err(train())?;
        let texts: Vec<&str> = texts.into_iter().collect();
        inner.train(&mut trainer, texts.into_iter()).map_err(train())?;
        Self::of(inner, Path::new("(just trained)"))
    }

    /// Reads a `tokenizer.json` that [`Tokenizer::save`] wrote.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let inner = Inner::from_file(path)
            .map_err(library(format!("read the tokenizer {}", path.display())))?;
        Self::of(inner, path)
    }

    fn of(mut inner: Inner, path: &Path) -> Result<Self, TokenizerError> {
        // Marks in a text are encoded as text.
        inner.set_encode_special_tokens(true);
        let mut marks = [0; Mark::ALL.len()];
        for (id, mark) in marks.iter_mut().zip(Mark::ALL) {
            let missing = || TokenizerError::NoMark { path: path.to_owned(), mark: mark.text() };
            *id = inner.token_to_id(mark.text()).ok_or_else(missing)?;
        }
        Ok(Self { inner, marks })
    }

    /// Writes `tokenizer.json`, which `transformers` reads too.
    pub fn save(&self, path: &Path) -> Result<(), TokenizerError> {
        let attempt = format!("write the tokenizer {}", path.display());
        self.inner.save(path, false).map_err(library(attempt))
    }

    /// Vocabulary size.
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A mark's id.
    pub fn id(&self, mark: Mark) -> u32 {
        self.marks[mark as usize]
    }

    /// The mark of an id, if it is one.
    pub fn mark(&self, id: u32) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| self.id(*mark) == id)
    }

    /// Tokens of a text; none of them is a mark.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        // Cannot fail: all bytes are in the vocabulary.
        self.inner.encode_fast(text, false).map_or_else(|_| Vec::new(), |e| e.get_ids().to_vec())
    }

    /// Decodes tokens without marks. Invalid UTF-8 is replaced.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, true).unwrap_or_default()
    }
}

impl Pretokenizer {
    fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, TokenizerError> {
        // Qwen's pattern without its natural-language parts: each digit is a token, indentation is
        // not split.
        let pattern = match self {
            Self::Words => r"[^\r\n\w]?[A-Za-z_]+|\d| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|\w",
            Self::Lines => r"[^\n]*\n|[^\n]+",
        };
        let split = SplitAt::new(
            SplitPattern::Regex(pattern.to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        );
        let split = split.map_err(library("make a tokenizer"))?;
        let bytes = ByteLevel::new(false, false, false);
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(vec![split.into(), bytes.into()])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: [&str; 2] = [
        "__global__ void f(float* x, int n) {\n    int i = blockIdx.x * 256 + threadIdx.x;\n}\n",
        "__global__ void g(float* y, int n) {\n    int i = blockIdx.x * 512 + threadIdx.x;\n}\n",
    ];

    fn trained(split: Pretokenizer) -> Tokenizer {
        Tokenizer::train(TEXTS, 400, split).unwrap()
    }

    #[test]
    fn mark_in_text_is_encoded_as_text() {
        let tokenizer = trained(Pretokenizer::Words);
        for mark in Mark::ALL {
            let ids = tokenizer.encode(mark.text());
            assert!(ids.len() > 1 && ids.iter().all(|id| tokenizer.mark(*id).is_none()), "{ids:?}");
            assert_eq!(tokenizer.decode(&ids), mark.text());
            assert_eq!(tokenizer.mark(tokenizer.id(mark)), Some(mark));
        }
    }

    #[test]
    fn frequent_words_and_lines_become_tokens() {
        let line = "    int i = blockIdx.x * ";
        assert_eq!(trained(Pretokenizer::Lines).encode(line).len(), 1);
        let words = trained(Pretokenizer::Words);
        assert!((6..=20).contains(&words.encode(line).len()), "{}", words.encode(line).len());
        assert_eq!(words.encode("2048").len(), 4, "digits stand alone");
    }

    #[test]
    fn tokenizer_is_deterministic_and_reloads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let tokenizer = trained(Pretokenizer::Words);
        tokenizer.save(&path).unwrap();
        let read = Tokenizer::load(&path).unwrap();
        assert_eq!(read.encode(TEXTS[0]), tokenizer.encode(TEXTS[0]));
        let again = folder.path().join("again.json");
        trained(Pretokenizer::Words).save(&again).unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), fs_err::read(&again).unwrap());
        assert_eq!(read.len(), tokenizer.len());
    }

    #[test]
    fn foreign_tokenizer_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        trained(Pretokenizer::Words).save(&path).unwrap();
        let other = fs_err::read_to_string(&path).unwrap().replace("<|call|>", "<|other|>");
        fs_err::write(&path, other).unwrap();
        let error = Tokenizer::load(&path).unwrap_err().to_string();
        assert!(error.ends_with("it has no token <|call|>"), "{error}");
        fs_err::write(&path, "{\"model\": ").unwrap();
        let error = Tokenizer::load(&path).unwrap_err().to_string();
        assert!(error.starts_with("failed to read the tokenizer"), "{error}");
    }

    proptest! {
        #[test]
        fn every_text_round_trips(text in any::<String>(), lines in any::<bool>()) {
            let tokenizer = trained(if lines { Pretokenizer::Lines } else { Pretokenizer::Words });
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
        }
    }
}
