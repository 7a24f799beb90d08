//! The prompt of a language model: fills in the texts next to this file.
//!
//! The same seed, catalogue and constraints give the same prompt.

use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::admit::Window;

use super::super::error::ComposeError;
use super::super::{Composer as _, Grammar, Level};

const SYSTEM: &str = include_str!("system.md");
const ASK: &str = include_str!("ask.md");
const AGAIN: &str = include_str!("again.md");
const SETTINGS: &str = include_str!("settings.txt");

/// Number of operators offered in addition to those of one plan of the grammar.
const MORE_OPERATORS: usize = 2;
/// Number of examples shown.
const EXAMPLES: usize = 2;
/// Maximum plans tried per seed; few seeds need a second.
const DRAWS: usize = 8;
/// Maximum bytes of a reason.
const MAX_REASON: usize = 3000;

/// The start of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) system: String,
    pub(super) ask: String,
    /// Example sources.
    pub(super) examples: Vec<String>,
}

impl Prompt {
    /// The prompt of a seed. A plan of the grammar determines the number of operators, the level
    /// and fitting operators; the examples are other plans.
    pub(super) fn new(
        grammar: &Grammar,
        window: &Window,
        device: &str,
        seed: u64,
    ) -> Result<Self, ComposeError> {
        let mut random = StdRng::seed_from_u64(seed);
        let setting = {
            let all: Vec<&str> = SETTINGS.lines().collect();
            all[random.random_range(0..all.len())]
        };
        let plan = patiently(&mut random, |seed| grammar.plan(seed))?;
        let level = grammar.build(&plan)?.level;
        let mut names = plan.operators();
        for _ in 0..MORE_OPERATORS {
            names.extend(grammar.operator(&mut random).map(|(name, _)| name));
        }
        let mut examples = Vec::new();
        for _ in 0..EXAMPLES {
            examples.push(patiently(&mut random, |seed| grammar.compose(seed))?.source);
        }
        let shown: Vec<String> =
            examples.iter().map(|source| format!("```python\n{source}```")).collect();
        let count = match plan.steps.len() {
            1 => "one operator".to_owned(),
            count => format!("about {count} operators"),
        };
        let ask = filled(
            ASK,
            &[
                ("setting", setting),
                ("count", &count),
                ("level", &level.get().to_string()),
                ("effort", effort(level)),
                ("operators", &operators(grammar, &names)),
                ("examples", &shown.join("\n\n")),
            ],
        );
        Ok(Self { system: system(grammar, window, device), ask, examples })
    }
}

/// The message after a refusal.
pub(super) fn again(reason: &str) -> String {
    filled(AGAIN, &[("reason", clip(reason, MAX_REASON))])
}

/// A text truncated to at most `most` bytes, at a character boundary.
pub(super) fn clip(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn system(grammar: &Grammar, window: &Window, device: &str) -> String {
    let (range, budget) = (window.range(), &grammar.config().budget);
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    filled(
        SYSTEM,
        &[
            ("least_ms", &range.start().to_string()),
            ("most_ms", &range.end().to_string()),
            ("device", device),
            ("least_mb", &megabytes(*budget.traffic_bytes.start())),
            ("most_mb", &megabytes(*budget.traffic_bytes.end())),
            ("gflop", &(budget.max_flops as f64 / 1e9).to_string()),
        ],
    )
}

/// The optimisation work of a level, in words.
fn effort(level: Level) -> &'static str {
    match level.get() {
        1 => "one simple pass over memory, such as a chain of elementwise functions.",
        2 => "a short chain with one reduction or one normalisation.",
        3 => "one product, convolution or scan with what surrounds it, or several reductions.",
        4 => "several operators that each read all of their input, with branches or residuals.",
        _ => "a graph of several products and reductions whose results meet.",
    }
}

/// Name, signature and example of each operator.
fn operators(grammar: &Grammar, names: &[String]) -> String {
    let mut text = String::new();
    let mut seen = Vec::new();
    for name in names {
        let Some(entry) = grammar.library().entry(name).filter(|_| !seen.contains(&name)) else {
            continue;
        };
        seen.push(name);
        let (example, signature) = (entry.example.trim(), &entry.signature);
        let _ = write!(text, "`{name}{signature}`\n\n```python\n{example}\n```\n\n");
    }
    text.trim_end().to_owned()
}

/// The first success of a few samples.
fn patiently<T>(
    random: &mut StdRng,
    draw: impl Fn(u64) -> Result<T, ComposeError>,
) -> Result<T, ComposeError> {
    let mut tries = 1;
    loop {
        match draw(random.random()) {
            Err(ComposeError::Exhausted { .. }) if tries < DRAWS => tries += 1,
            drawn => return drawn,
        }
    }
}

/// A text with the names in double braces replaced. Replacements are not expanded again.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((name, rest)) = part.split_once("}}") else {
            text.push_str(part);
            continue;
        };
        text.push_str(values.iter().find(|(known, _)| *known == name).map_or("", |(_, v)| *v));
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Budget, Catalogue, GrammarConfig, Library};

    fn grammar(config: GrammarConfig) -> Grammar {
        Grammar::new(Library::new(&[Catalogue::torch().unwrap()]).unwrap(), config).unwrap()
    }

    fn prompt(grammar: &Grammar, seed: u64) -> Prompt {
        Prompt::new(grammar, &Window::host(), "2 cores {{of}} a CPU", seed).unwrap()
    }

    #[test]
    fn seed_determines_a_complete_prompt() {
        let grammar = grammar(GrammarConfig { budget: Budget::small(), ..Default::default() });
        let mut asks = BTreeSet::new();
        for seed in 0..20 {
            let asked = prompt(&grammar, seed);
            assert_eq!(asked, prompt(&grammar, seed));
            for word in [
                "class Model(nn.Module)",
                "get_inputs()",
                "get_init_inputs()",
                "float32",
                "between 0.1 and 50 milliseconds",
                "2 cores {{of}} a CPU",
                "between 0.1 and 33.6 MB",
                "at most 0.5 billion",
                "KernelBench",
                "```python",
            ] {
                assert!(asked.system.contains(word), "{word}\n{}", asked.system);
            }
            assert_eq!(asked.examples.len(), EXAMPLES);
            for example in &asked.examples {
                assert!(asked.ask.contains(example.as_str()) && example.contains("class Model"));
            }
            assert!(
                asked.ask.contains("assert tuple("),
                "no example of an operator: {}",
                asked.ask
            );
            assert!(!asked.ask.contains("{{"), "{}", asked.ask);
            assert!(asked.ask.len() + asked.system.len() < 24_000);
            asks.insert(asked.ask);
        }
        assert_eq!(asks.len(), 20);
    }

    #[test]
    fn prompt_has_the_requested_operator_count_and_level() {
        let config = GrammarConfig {
            operators: 4..=4,
            level: Level::new(4),
            budget: Budget::small(),
            shape: None,
        };
        let asked = prompt(&grammar(config), 7);
        assert!(asked.ask.contains("about 4 operators, at level 4 of 5: several"), "{}", asked.ask);
    }

    #[test]
    fn rejection_reason_is_quoted_verbatim_and_truncated() {
        let told = again("input 1 is {{reason}} ignored");
        assert!(told.contains("\n\ninput 1 is {{reason}} ignored\n\n"), "{told}");
        assert!(again(&"é".repeat(5000)).len() < 4000);
    }
}
