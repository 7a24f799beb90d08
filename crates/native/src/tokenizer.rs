//! Text to tokens and back: byte-level BPE, with marks that no text can contain.

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

/// A token that text cannot contain: what it stands for is said by whoever builds the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The task follows.
    Task,
    /// The policy speaks.
    Policy,
    /// A call of the tool that follows.
    Call,
    /// An argument's name follows.
    Key,
    /// The argument's value follows, as text.
    Is,
    /// The argument's value follows, as JSON.
    Json,
    /// The policy has spoken.
    End,
    /// A tool's result follows.
    Tool,
}

impl Mark {
    /// All, in the order of their ids.
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

    /// As it stands in `tokenizer.json`.
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

/// Where a text is split before byte-level BPE merges: no token reaches across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pretokenizer {
    /// At words and digits, as GPT-2 and Qwen do.
    #[default]
    Words,
    /// At line ends: a frequent line becomes one token, for tiny models.
    Lines,
}

/// Why there is no tokenizer.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// Training or reading failed.
    #[error("failed to {attempt}: {reason}")]
    Library {
        /// What was attempted.
        attempt: String,
        /// What the library says.
        reason: String,
    },
    /// It has no token for a mark: it is not one of ours.
    #[error("failed to use the tokenizer {path}: it has no token {mark}")]
    NoMark {
        /// Which file.
        path: PathBuf,
        /// The mark.
        mark: &'static str,
    },
}

fn library(attempt: impl Into<String>) -> impl FnOnce(tokenizers::Error) -> TokenizerError {
    let attempt = attempt.into();
    move |error| TokenizerError::Library { attempt, reason: error.to_string() }
}

/// Byte-level BPE: every text has tokens, and they give the same text back.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Inner,
    /// Ids of [`Mark::ALL`].
    marks: [u32; Mark::ALL.len()],
}

impl Tokenizer {
    /// Learns at most so many tokens from texts; at least the 256 bytes and the marks are there. Equal
    /// texts give equal tokenizers.
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
        Self::of(inner, Path::new("that was trained"))
    }

    /// Reads a `tokenizer.json` that [`Tokenizer::save`] wrote.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let inner = Inner::from_file(path)
            .map_err(library(format!("read the tokenizer {}", path.display())))?;
        Self::of(inner, path)
    }

    fn of(mut inner: Inner, path: &Path) -> Result<Self, TokenizerError> {
        // A mark in a text is text.
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

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Whether there are none; never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A mark's id.
    pub fn id(&self, mark: Mark) -> u32 {
        self.marks[mark as usize]
    }

    /// What an id stands for, if that is a mark.
    pub fn mark(&self, id: u32) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| self.id(*mark) == id)
    }

    /// Tokens of a text; none of them is a mark.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        // Bytes are all there: nothing can be unknown.
        self.inner.encode_fast(text, false).map_or_else(|_| Vec::new(), |e| e.get_ids().to_vec())
    }

    /// The text of tokens without marks. Bytes that are no UTF-8 are replaced.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, true).unwrap_or_default()
    }
}

impl Pretokenizer {
    fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, TokenizerError> {
        // Qwen's, without what is for natural languages: digits stand alone, indentation stays whole.
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
    fn a_mark_in_a_text_is_text() {
        let tokenizer = trained(Pretokenizer::Words);
        for mark in Mark::ALL {
            let ids = tokenizer.encode(mark.text());
            assert!(ids.len() > 1 && ids.iter().all(|id| tokenizer.mark(*id).is_none()), "{ids:?}");
            assert_eq!(tokenizer.decode(&ids), mark.text());
            assert_eq!(tokenizer.mark(tokenizer.id(mark)), Some(mark));
        }
    }

    #[test]
    fn what_is_said_often_is_one_token_within_a_line_or_a_word() {
        let line = "    int i = blockIdx.x * ";
        assert_eq!(trained(Pretokenizer::Lines).encode(line).len(), 1);
        let words = trained(Pretokenizer::Words);
        assert!((6..=20).contains(&words.encode(line).len()), "{}", words.encode(line).len());
        assert_eq!(words.encode("2048").len(), 4, "digits stand alone");
    }

    #[test]
    fn it_is_the_same_again_from_the_same_texts_and_from_its_file() {
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
    fn what_is_none_of_ours_is_refused_by_name() {
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
        fn every_text_comes_back(text in any::<String>(), lines in any::<bool>()) {
            let tokenizer = trained(if lines { Pretokenizer::Lines } else { Pretokenizer::Words });
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
        }
    }
}
