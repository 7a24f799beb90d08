//! Names of Python and C++ for what others named.

use crate::error::ExportError;

/// Longest name that is made.
const LONGEST: usize = 64;
const KEYWORDS: [&str; 35] = [
    "false", "none", "true", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// Modules of Python and torch: a package of such a name would hide them, or be hidden.
const MODULES: &str = include_str!("modules.txt");

/// Whether a package of this name would take the place of a module.
fn is_module(name: &str) -> bool {
    MODULES.split_whitespace().any(|module| module == name)
}

/// The name of a package like `text`.
pub(crate) fn usual(text: &str) -> String {
    let name = identifier(text);
    if is_module(&name) { format!("{name}_kernels") } else { name }
}

/// A Python identifier in lower case like `text`.
pub(crate) fn identifier(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        if !(c == '_' && (name.is_empty() || name.ends_with('_'))) {
            name.push(c);
        }
    }
    name.truncate(LONGEST);
    let name = name.trim_end_matches('_');
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    match name {
        _ if !begins => format!("task_{name}").trim_end_matches('_').to_owned(),
        _ if KEYWORDS.contains(&name) => format!("{name}_"),
        _ => name.to_owned(),
    }
}

/// The name of a class like an identifier.
pub(crate) fn class(identifier: &str) -> String {
    let parts = identifier.split('_').filter(|part| !part.is_empty());
    let capital = |part: &str| {
        let (first, rest) = part.split_at(1);
        format!("{}{rest}", first.to_ascii_uppercase())
    };
    let name: String = parts.map(capital).collect();
    // Keywords of Python that begin with a capital.
    if matches!(name.as_str(), "None" | "True" | "False") { format!("{name}_") } else { name }
}

/// Whether a package may have this name.
pub(crate) fn package(name: &str) -> Result<(), ExportError> {
    if is_module(name) {
        return Err(ExportError::Module { name: name.to_owned() });
    }
    if identifier(name) == name && name.len() <= LONGEST {
        return Ok(());
    }
    Err(ExportError::Name { name: name.chars().take(LONGEST + 1).collect() })
}

/// A string literal of C++.
pub(crate) fn literal(text: &str) -> String {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_$. @:<>(),&*[]-".contains(&c);
    let each = text.bytes().map(|byte| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        // Three digits: the next character cannot be one of them.
        byte => format!("\\{byte:03o}"),
    });
    format!("\"{}\"", each.collect::<String>())
}

/// What may stand in a comment of C++ on one line.
pub(crate) fn comment(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || "_$. @:<>(),&[]-".contains(*c);
    text.chars().filter(plain).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_plain_identifiers() {
        let names =
            ["RMSNorm 3D", "../../etc/passwd", "12_Gemm", "class", "", "\"; rm -rf", "a__b"];
        let made = names.map(identifier);
        let expected =
            ["rmsnorm_3d", "etc_passwd", "task_12_gemm", "class_", "task", "rm_rf", "a_b"];
        assert_eq!(made, expected);
        assert_eq!(class("rms_norm_2d"), "RmsNorm2d");
        for name in made {
            package(&name).unwrap();
        }
        assert!(package("Not-One").is_err() && package("").is_err() && package("class").is_err());
    }

    #[test]
    fn names_of_modules_and_keywords_are_avoided() {
        for name in ["torch", "copy", "numbers", "json"] {
            assert!(matches!(package(name), Err(ExportError::Module { .. })), "{name}");
            package(&usual(name)).unwrap();
        }
        assert_eq!((usual("Copy").as_str(), usual("gelu").as_str()), ("copy_kernels", "gelu"));
        assert_eq!(class(&identifier("None")), "None_");
    }

    #[test]
    fn hostile_kernel_names_cannot_leave_their_literal() {
        assert_eq!(literal("a\"b\\c\n1"), "\"a\\042b\\134c\\0121\"");
        assert_eq!(comment("a\nb*/c\\"), "ab/c".replace('/', ""));
    }
}
