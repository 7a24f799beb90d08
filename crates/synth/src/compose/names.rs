//! Readable names for generated code.

use std::collections::BTreeSet;

/// Short names that Python or torch already use.
const TAKEN: &[&str] = &[
    "abs", "all", "any", "bool", "float", "int", "len", "list", "max", "min", "nn", "pow", "range",
    "round", "set", "sum", "torch", "tuple", "type", "lambda", "self", "in", "is", "F", "x",
];

/// `torch.nn.BatchNorm2d` as `batch_norm2d`, `torch.nn.GELU` as `gelu`.
pub(super) fn short(name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    let letters = last.chars().filter(char::is_ascii_alphabetic).count();
    if letters <= 5 {
        // Acronyms have no words: ReLU, SiLU, PReLU.
        return last.to_ascii_lowercase();
    }
    let characters: Vec<char> = last.chars().collect();
    let mut text = String::new();
    for (i, c) in characters.iter().enumerate() {
        let after_word =
            i > 0 && !characters[i - 1].is_ascii_uppercase() && characters[i - 1] != '_';
        let before_word = i > 0
            && characters[i - 1].is_ascii_uppercase()
            && characters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (after_word || before_word) {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// Unique names of one scope.
#[derive(Debug, Default)]
pub(super) struct Scope(BTreeSet<String>);

impl Scope {
    /// `wish`, or `wish` with a number if it is taken.
    pub(super) fn name(&mut self, wish: &str) -> String {
        let wish = if TAKEN.contains(&wish) { format!("{wish}_out") } else { wish.to_owned() };
        self.exactly(&wish)
    }

    /// Like [`Scope::name`], for names that shadow nothing where they are used.
    pub(super) fn exactly(&mut self, wish: &str) -> String {
        let mut name = wish.to_owned();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{wish}_{number}");
            number += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_snake_case() {
        for (name, expected) in [
            ("torch.nn.BatchNorm2d", "batch_norm2d"),
            ("torch.nn.GELU", "gelu"),
            ("torch.nn.PReLU", "prelu"),
            ("torch.nn.functional.gelu", "gelu"),
            ("transformers.models.llama.modeling_llama.LlamaRMSNorm", "llama_rms_norm"),
            ("torch.nn.ConvTranspose1d", "conv_transpose1d"),
        ] {
            assert_eq!(short(name), expected);
        }
    }

    #[test]
    fn scope_gives_unique_names() {
        let mut scope = Scope::default();
        let names: Vec<String> = ["gelu", "gelu", "max", "gelu"].map(|n| scope.name(n)).into();
        assert_eq!(names, ["gelu", "gelu_2", "max_out", "gelu_3"]);
    }
}
