//! Sizes as expressions over symbols: `A`, `3`, `(A - 3)//2 + 1`, `min(A, B)*C`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Sizes of symbols, by name.
pub type Sizes = BTreeMap<String, u64>;

/// Maximum nesting of parentheses; mined expressions have two levels.
const MAX_DEPTH: usize = 16;

/// An expression over symbols. `//` rounds down, as in Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size {
    text: String,
    node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(i64),
    Symbol(String),
    Binary(Operator, Box<(Node, Node)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    FloorDivide,
    Min,
    Max,
}

/// Why a size expression cannot be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not an expression.
    #[error("failed to read `{text}` as a size: {reason} at byte {at}")]
    Syntax {
        /// The whole text.
        text: String,
        /// The fault.
        reason: &'static str,
        /// Byte offset.
        at: usize,
    },
    /// A symbol has no value.
    #[error("failed to compute `{text}`: `{symbol}` has no value")]
    Unknown {
        /// The whole text.
        text: String,
        /// The symbol.
        symbol: String,
    },
    /// Negative, too large, or a division by zero.
    #[error("failed to compute `{text}`: the value is negative, too large or undefined")]
    Range {
        /// The whole text.
        text: String,
    },
}

impl Size {
    /// The value; an error if a symbol is missing or the value is negative.
    pub fn value(&self, sizes: &Sizes) -> Result<u64, SizeError> {
        let range = || SizeError::Range { text: self.text.clone() };
        let value = self.node.value(sizes).map_err(|symbol| match symbol {
            Some(symbol) => {
                SizeError::Unknown { text: self.text.clone(), symbol: symbol.to_owned() }
            }
            None => range(),
        })?;
        u64::try_from(value).map_err(|_| range())
    }

    /// The symbol, if the expression is a single symbol.
    pub fn symbol(&self) -> Option<&str> {
        match &self.node {
            Node::Symbol(name) => Some(name),
            _ => None,
        }
    }

    /// The number, if the expression is a single number.
    pub fn constant(&self) -> Option<u64> {
        match &self.node {
            Node::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Names of its symbols, in order of appearance, with repetition.
    pub fn symbols(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.node.symbols(&mut names);
        names
    }
}

impl Node {
    /// `Err(Some(symbol))` if the symbol has no value, `Err(None)` if the result has none.
    fn value<'a>(&'a self, sizes: &Sizes) -> Result<i64, Option<&'a str>> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Symbol(name) => {
                let size = sizes.get(name).ok_or(Some(name.as_str()))?;
                i64::try_from(*size).map_err(|_| None)
            }
            Self::Binary(operator, sides) => {
                let (a, b) = (sides.0.value(sizes)?, sides.1.value(sizes)?);
                let value = match operator {
                    Operator::Add => a.checked_add(b),
                    Operator::Subtract => a.checked_sub(b),
                    Operator::Multiply => a.checked_mul(b),
                    // Divisors are positive, where Euclid's quotient is the one rounded down.
                    Operator::FloorDivide if b > 0 => Some(a.div_euclid(b)),
                    Operator::FloorDivide => None,
                    Operator::Min => Some(a.min(b)),
                    Operator::Max => Some(a.max(b)),
                };
                value.ok_or(None)
            }
        }
    }

    fn symbols<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Number(_) => {}
            Self::Symbol(name) => names.push(name),
            Self::Binary(_, sides) => {
                sides.0.symbols(names);
                sides.1.symbols(names);
            }
        }
    }
}

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        let mut parser = Parser { text: &text, at: 0, depth: 0 };
        let node = parser.sum().and_then(|node| {
            parser.blank();
            if parser.at == text.len() {
                Ok(node)
            } else {
                Err("unexpected text after the expression")
            }
        });
        match node {
            Ok(node) => Ok(Self { text, node }),
            Err(reason) => {
                let at = parser.at;
                Err(SizeError::Syntax { text, reason, at })
            }
        }
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.text
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn blank(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches(' ').len();
    }

    fn take(&mut self, word: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn sum(&mut self) -> Result<Node, &'static str> {
        let mut node = self.product()?;
        loop {
            let operator = if self.take("+") {
                Operator::Add
            } else if self.take("-") {
                Operator::Subtract
            } else {
                return Ok(node);
            };
            node = Node::Binary(operator, Box::new((node, self.product()?)));
        }
    }

    fn product(&mut self) -> Result<Node, &'static str> {
        let mut node = self.factor()?;
        loop {
            let operator = if self.take("//") {
                Operator::FloorDivide
            } else if self.take("*") {
                Operator::Multiply
            } else {
                return Ok(node);
            };
            node = Node::Binary(operator, Box::new((node, self.factor()?)));
        }
    }

    fn factor(&mut self) -> Result<Node, &'static str> {
        if self.depth == MAX_DEPTH {
            return Err("nested too deeply");
        }
        self.depth += 1;
        let node = self.bare_factor();
        self.depth -= 1;
        node
    }

    fn bare_factor(&mut self) -> Result<Node, &'static str> {
        for (word, operator) in [("min(", Operator::Min), ("max(", Operator::Max)] {
            if self.take(word) {
                let first = self.sum()?;
                if !self.take(",") {
                    return Err("a comma is missing");
                }
                let node = Node::Binary(operator, Box::new((first, self.sum()?)));
                return if self.take(")") { Ok(node) } else { Err("a parenthesis is missing") };
            }
        }
        if self.take("(") {
            let node = self.sum()?;
            return if self.take(")") { Ok(node) } else { Err("a parenthesis is missing") };
        }
        if self.take("-") {
            return Ok(Node::Binary(
                Operator::Subtract,
                Box::new((Node::Number(0), self.factor()?)),
            ));
        }
        self.blank();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..end];
        let node = if word.starts_with(|c: char| c.is_ascii_digit()) {
            Node::Number(word.parse().map_err(|_| "not a number")?)
        } else if word.is_empty() {
            return Err("a size is missing");
        } else {
            Node::Symbol(word.to_owned())
        };
        self.at += end;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, sizes: &[(&str, u64)]) -> Result<u64, SizeError> {
        let sizes = sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        Size::try_from(text.to_owned())?.value(&sizes)
    }

    #[test]
    fn size_expressions_have_the_values_python_computes() {
        let at = [("A", 7), ("B", 4), ("C", 3)];
        for (text, expected) in [
            ("A", 7),
            ("12", 12),
            ("A*B + 1", 29),
            ("A + B*C", 19),
            ("A - B - C", 0),
            ("(A - 4)//2 + 1", 2),
            ("(A - 8)//2 + 1", 0),
            ("min(A, B)*max(B, C)", 16),
            ("-1*B + 9", 5),
            ("A*(A + 1)//2", 28),
        ] {
            assert_eq!(value(text, &at), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_size_expression_is_refused() {
        for text in ["", "A +", "(A", "min(A)", "A B", "A/2", "é", &"(".repeat(100_000)] {
            assert!(matches!(value(text, &[("A", 1)]), Err(SizeError::Syntax { .. })), "{text}");
        }
        assert!(matches!(value("Z", &[]), Err(SizeError::Unknown { .. })));
        for text in ["A - 9", "A//0", "9223372036854775807*A", "99999999999999999999"] {
            assert!(value(text, &[("A", 3)]).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_size_evaluation_panic(text in "[AB0-9+*/(), min-]{0,40}") {
            let _ = value(&text, &[("A", 5), ("B", u64::MAX)]);
        }

        #[test]
        fn window_count_equals_sliding_enumeration(n in 1_u64..200, k in 1_u64..9, s in 1_u64..5) {
            prop_assume!(n >= k);
            let slid = (0..n).step_by(s as usize).filter(|start| start + k <= n).count() as u64;
            prop_assert_eq!(value(&format!("(A - {k})//{s} + 1"), &[("A", n)]), Ok(slid));
        }
    }
}
