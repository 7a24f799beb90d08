//! The code in an answer. An answer is hostile input: any text of any size.

use thiserror::Error;
use warpwright_task::TaskError;

/// Largest answer that is looked into, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Largest source of a task, in bytes: the largest that people wrote for KernelBench has 20 KB, and
/// most have 2.
pub(super) const MAX_CODE_BYTES: usize = 24 << 10;
/// Shortest run of backticks or tildes that is a fence.
const FENCE: usize = 3;
/// Where a model's thoughts end that a server left in its answer.
const THOUGHTS_END: &str = "</think>";

/// Why an answer is no task. The text is what the author is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// Larger than any answer should be.
    #[error(
        "the answer has {bytes} bytes, more than {MAX_ANSWER_BYTES}; answer with one code block only"
    )]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// Words only.
    #[error(
        "the answer has no code block; answer with the whole file in one block that begins with ```python"
    )]
    NoCode,
    /// A block that begins and does not end.
    #[error("the code block is not closed, so the answer may have been cut; write a shorter file")]
    Unclosed,
    /// More than a task has.
    #[error("the file has {bytes} bytes, more than {MAX_CODE_BYTES}; write a shorter one")]
    CodeTooLong {
        /// Its size.
        bytes: usize,
    },
    /// It is no task: it does not parse, or lacks a part.
    #[error("{} ({})", .0.kind, .0.hint())]
    NoTask(TaskError),
    /// It needs what a task may not have.
    #[error(
        "line {line} imports `{module}`; a task may import only __future__, torch, collections, dataclasses, enum, \
         functools, itertools, math, numbers and typing, and of torch only parts with tensor operators (not, for \
         example, torch.cuda or torch.utils)"
    )]
    Import {
        /// As written, at most so many characters as are worth showing.
        module: String,
        /// From 1.
        line: usize,
    },
    /// It calls what no task has a use for.
    #[error("the code calls `{name}`, which a task must not use; remove the call")]
    Forbidden {
        /// One of Python's own.
        name: String,
    },
    /// It names a GPU.
    #[error(
        "the code names a device at {place}; create tensors without `device=`, the judge selects the device"
    )]
    Device {
        /// Line and column.
        place: String,
    },
    /// Its result changes from call to call.
    #[error("`{call}` samples random numbers in forward; equal inputs must give equal results")]
    Random {
        /// Its full name.
        call: String,
    },
    /// It changes what it is given.
    #[error("forward changes its input `{name}` in place; do not modify inputs")]
    Overwrites {
        /// The argument.
        name: String,
    },
    /// It may never end.
    #[error("line {line} is a `while` loop; use `for` with a fixed number of steps")]
    While {
        /// From 1.
        line: usize,
    },
    /// Nothing that is known is computed.
    #[error("forward calls no known operator; use functions and modules of torch")]
    NoOperator,
    /// It cannot be read as a program of steps.
    #[error("the code is too complex to analyse; write simpler code")]
    Tangled,
    /// Another level is wanted.
    #[error("the operators give level {found}, but level {wanted} was requested")]
    Level {
        /// As it was read.
        found: u8,
        /// As it was asked for.
        wanted: u8,
    },
    /// It is what it was shown.
    #[error("the task nearly copies the example in the prompt; write a different task")]
    Parroted,
}

impl AnswerError {
    /// One word for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooLong { .. } | Self::CodeTooLong { .. } => "too_long",
            Self::NoCode => "no_code",
            Self::Unclosed => "cut",
            Self::NoTask(_) => "no_task",
            Self::Import { .. } => "import",
            Self::Forbidden { .. } => "forbidden",
            Self::Device { .. } => "device",
            Self::Random { .. } => "random",
            Self::Overwrites { .. } => "overwrites",
            Self::While { .. } => "while",
            Self::NoOperator => "no_operator",
            Self::Tangled => "tangled",
            Self::Level { .. } => "level",
            Self::Parroted => "parroted",
        }
    }
}

/// A fenced block that was begun.
struct Block {
    mark: char,
    length: usize,
    indent: usize,
    /// Whether it says that it is something else than Python.
    foreign: bool,
    text: String,
}

/// The source in an answer: the last block with a `class Model`, else the last block, else the whole
/// answer if it is a file itself. What was thought aloud before is left out.
pub(super) fn code(answer: &str) -> Result<String, AnswerError> {
    if answer.len() > MAX_ANSWER_BYTES {
        return Err(AnswerError::TooLong { bytes: answer.len() });
    }
    let said = answer.rfind(THOUGHTS_END).map_or(answer, |at| &answer[at + THOUGHTS_END.len()..]);
    let (mut open, mut best, mut last): (Option<Block>, Option<String>, Option<String>) =
        (None, None, None);
    for line in said.lines() {
        let fence = fence(line);
        match (open.take(), fence) {
            (None, Some((mark, length, info))) => {
                let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
                let word = info.split([' ', '{', ',']).next().unwrap_or_default();
                let word = word.to_ascii_lowercase();
                let foreign = !["", "python", "py", "python3", "pytorch"].contains(&word.as_str());
                open = Some(Block { mark, length, indent, foreign, text: String::new() });
            }
            (Some(block), Some((mark, length, "")))
                if mark == block.mark && length >= block.length =>
            {
                if !block.foreign {
                    if has_model(&block.text) {
                        best = Some(block.text);
                    } else {
                        last = Some(block.text);
                    }
                }
            }
            (Some(mut block), _) => {
                block.text.push_str(unindented(line, block.indent));
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    let text = match (best, open, last) {
        (Some(text), _, _) | (None, None, Some(text)) => text,
        (None, Some(_), _) => return Err(AnswerError::Unclosed),
        (None, None, None) if has_model(said) => said.to_owned(),
        (None, None, None) => return Err(AnswerError::NoCode),
    };
    let text = tidy(&text);
    if text.len() > MAX_CODE_BYTES {
        return Err(AnswerError::CodeTooLong { bytes: text.len() });
    }
    Ok(text)
}

/// Mark, length and what follows, if the line is a fence.
fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    let info = line[length..].trim();
    (length >= FENCE && !info.contains('`')).then_some((mark, length, info))
}

/// The line without as many blanks as its block's fence has before it.
fn unindented(line: &str, indent: usize) -> &str {
    let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
    &line[indent.min(blanks)..]
}

/// Whether a line begins a class `Model`.
fn has_model(text: &str) -> bool {
    text.lines().any(|line| {
        line.strip_prefix("class Model")
            .is_some_and(|rest| rest.trim_start().starts_with(['(', ':']))
    })
}

/// Without empty lines at both ends and blanks at the ends of lines.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    format!("{}\n", text.trim_matches('\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODEL: &str = "class Model(nn.Module):\n    pass\n";

    #[test]
    fn the_last_block_with_a_model_is_taken() {
        let first = "class Model(nn.Module):\n    draft = 1\n";
        let answer = format!(
            "First:\n```python\n{first}```\nBetter:\n~~~ py\n{MODEL}~~~\nRun it:\n```bash\npython a.py\n```\n```\nx = 1\n```"
        );
        assert_eq!(code(&answer).unwrap(), MODEL);
        assert_eq!(code("Here:\n\n```\nx = 1\n```").unwrap(), "x = 1\n");
    }

    #[test]
    fn a_file_without_fences_is_taken_and_thoughts_are_not() {
        assert_eq!(
            code(&format!("import torch\n\n\n{MODEL}")).unwrap(),
            format!("import torch\n\n\n{MODEL}")
        );
        let thought = format!("<think>```python\n{MODEL}```</think>\nI would rather not.");
        assert_eq!(code(&thought), Err(AnswerError::NoCode));
    }

    #[test]
    fn an_indented_block_loses_its_indent_and_inline_code_is_no_fence() {
        let answer = "1. Use ```relu``` so:\n   ```python\n   class Model(nn.Module):\n       pass\n   ```\n";
        assert_eq!(code(answer).unwrap(), MODEL);
    }

    #[test]
    fn what_cannot_be_taken_says_why() {
        assert_eq!(code("I am sorry."), Err(AnswerError::NoCode));
        assert_eq!(code(""), Err(AnswerError::NoCode));
        assert_eq!(code(&format!("```python\n{MODEL}")), Err(AnswerError::Unclosed));
        assert_eq!(code("```rust\nfn f() {}\n```"), Err(AnswerError::NoCode));
        let long = format!("```\n{}\n{MODEL}```", "# long\n".repeat(MAX_CODE_BYTES / 6));
        assert!(matches!(code(&long), Err(AnswerError::CodeTooLong { .. })));
        let huge = "word ".repeat(MAX_ANSWER_BYTES / 4);
        assert!(matches!(code(&huge), Err(AnswerError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_code_of_bounded_size_or_an_error(
            pieces in prop::collection::vec(
                prop_oneof![
                    "\\PC{0,40}",
                    Just("\n".to_owned()),
                    Just("```".to_owned()),
                    Just("```python\n".to_owned()),
                    Just("~~~~\n".to_owned()),
                    Just("</think>".to_owned()),
                    Just("class Model(nn.Module):\n".to_owned()),
                ],
                0..40,
            )
        ) {
            let answer = pieces.concat();
            if let Ok(code) = code(&answer) {
                prop_assert!(code.len() <= answer.len() + 1);
                prop_assert!(code.ends_with('\n'));
            }
        }

        #[test]
        fn a_fenced_file_comes_out_as_it_went_in(
            before in "[a-zA-Z .,\n]{0,80}",
            after in "[a-zA-Z .,\n]{0,80}",
            lines in prop::collection::vec("( {0,12}[a-z_=+() .\"#0-9]{0,30}[a-z0-9])?", 0..20),
            fence in prop_oneof![Just("```"), Just("~~~"), Just("`````")],
        ) {
            let file = format!("import torch\n{}\n{MODEL}", lines.join("\n"));
            let answer = format!("{before}\n{fence}python\n{file}{fence}\n{after}");
            prop_assert_eq!(code(&answer).unwrap(), file);
        }
    }
}
