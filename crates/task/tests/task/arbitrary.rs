//! Whatever the text, an answer and no panic.

use proptest::prelude::*;
use warpwright_task::{Mode, TaskErrorKind, facts};

use crate::GOOD;

/// Reading must decide by itself: `Unreadable` would be a panic caught on its way.
fn decides(source: &str) {
    match facts(source) {
        Ok(facts) => {
            facts.warnings(Mode::Train);
        }
        Err(error) => {
            assert!(!matches!(*error.kind, TaskErrorKind::Unreadable), "{source:?}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Pieces that Python is made of, so that more than the lexer is reached.
pub(crate) fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "class Model",
        "def forward",
        "def get_inputs",
        "async ",
        "(self, x)",
        "()",
        ":",
        "\n",
        "\n    ",
        "\n        ",
        "return ",
        "torch.rand",
        "F.dropout",
        "import torch",
        "from . import x",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "=",
        "x",
        "1",
        "'",
        "\"\"\"",
        "f'{",
        "\\",
        "\r",
        "\t",
        "lambda ",
        "if ",
        "else",
        "try",
        "except",
        "with ",
        "match x",
        "case _",
        "@",
        "*",
        "**",
        ",",
        ".",
        " ",
        "#",
        "é",
        "\u{feff}",
        "\0",
        "$",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_text_is_accepted_or_refused(source in "\\PC{0,200}|(?s).{0,200}") {
        decides(&source);
    }

    #[test]
    fn random_python_fragments_are_accepted_or_refused(source in pieces()) {
        decides(&source);
    }

    #[test]
    fn mutated_valid_source_is_accepted_or_refused(from in 0..GOOD.len(), length in 0usize..40, with in pieces()) {
        let to = (from + length).min(GOOD.len());
        decides(&format!("{}{with}{}", &GOOD[..from], &GOOD[to..]));
    }
}
