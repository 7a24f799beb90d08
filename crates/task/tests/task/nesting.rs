//! Sources that nest as deep as the size limit lets them.

use warpwright_task::{MAX_SOURCE_BYTES, Mode, TaskErrorKind, facts};

use crate::GOOD;

/// A task whose `forward` holds `before` as often as fits, then `middle`, then as many `after`.
/// Everything that walks a source walks it there.
fn nested(before: &str, middle: &str, after: &str) -> String {
    let room = MAX_SOURCE_BYTES - GOOD.len() - middle.len() - 64;
    let count = room / (before.len() + after.len());
    let line = format!("x = {}{middle}{}", before.repeat(count), after.repeat(count));
    GOOD.replace("return x + self.bias", &format!("{line}\n        return x + self.bias"))
}

#[test]
fn deeply_nested_task_is_analysed() {
    for (before, middle, after) in [
        ("-", "1", ""),
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{", "1", "}"),
        ("not ", "1", ""),
        ("1+", "1", ""),
        ("f(", "1", ")"),
        ("", "f", "()"),
        ("", "f", "[0]"),
        ("", "f", ".a"),
        ("1**", "1", ""),
        ("lambda:", "1", ""),
        ("1 if 1 else ", "1", ""),
        ("{0:", "1", "}"),
        ("[x for x in ", "y", "]"),
    ] {
        let source = nested(before, middle, after);
        let facts =
            facts(&source).unwrap_or_else(|error| panic!("{before}{middle}{after}: {error}"));
        assert!(facts.warnings(Mode::Train).is_empty());
    }
}

#[test]
fn deeply_nested_invalid_python_is_refused() {
    for source in [
        nested("[", "1", ""),
        nested("(", "", ""),
        // The lexer's time grows with the square of this one: 9 s at the size limit.
        format!("x = {}", "f'{".repeat(10_000)),
        (0..480).flat_map(|depth| [" ".repeat(depth), "if x:\n".to_owned()]).collect(),
    ] {
        let error = facts(&source).expect_err("not closed");
        assert!(matches!(*error.kind, TaskErrorKind::Syntax { .. }), "{error}");
    }
}
