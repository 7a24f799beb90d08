//! Matching brackets, computed once for all tokens. Every later question is a look-up, so no input
//! makes the rewriter scan its text once per token.

use crate::lexer::Token;

/// Maximum nesting of brackets. The host compiler's own limit is 256 too, by default.
pub(crate) const MAX_NESTING: usize = 256;

/// Why deeper brackets are refused.
pub(crate) const TOO_DEEP: &str = "brackets are nested more than 256 deep";

const NONE: u32 = u32::MAX;

/// Partners, statements and semicolons of a list of tokens.
pub(crate) struct Brackets {
    /// Per token the matching bracket, or [`NONE`]; `<` and `>` are matched if they can be template
    /// brackets.
    partners: Vec<u32>,
    /// Per token the first token of its statement.
    pub(crate) statements: Vec<u32>,
    /// Per token the next semicolon, or the number of tokens.
    pub(crate) semicolons: Vec<u32>,
    /// The first token that is nested too deep.
    pub(crate) too_deep: Option<usize>,
}

impl Brackets {
    pub(crate) fn new(source: &str, tokens: &[Token]) -> Self {
        let count = tokens.len();
        let mut found = Self {
            partners: vec![NONE; count],
            statements: Vec::with_capacity(count),
            semicolons: vec![count as u32; count],
            too_deep: None,
        };
        let text = |i: usize| tokens[i].text(source);
        // Open brackets, and where in the list the innermost one that is no `<` lies.
        let mut open: Vec<usize> = Vec::new();
        let mut depth = 0;
        let mut statement = 0;
        for i in 0..count {
            found.statements.push(statement);
            match text(i) {
                "(" | "[" | "{" => {
                    open.push(i);
                    depth += 1;
                }
                "<" => open.push(i),
                ">" => {
                    if let Some(&last) = open.last()
                        && text(last) == "<"
                    {
                        found.pair(last, i);
                        open.pop();
                    }
                }
                ")" | "]" | "}" => {
                    while open.pop_if(|last| text(*last) == "<").is_some() {}
                    if let Some(last) = open.pop() {
                        found.pair(last, i);
                        depth -= 1;
                    }
                }
                ";" => while open.pop_if(|last| text(*last) == "<").is_some() {},
                _ => {}
            }
            if matches!(text(i), ";" | "{" | "}") {
                statement = i as u32 + 1;
            }
            if found.too_deep.is_none() && depth > MAX_NESTING {
                found.too_deep = Some(i);
            }
        }
        let mut next = count as u32;
        for i in (0..count).rev() {
            if text(i) == ";" {
                next = i as u32;
            }
            found.semicolons[i] = next;
        }
        found
    }

    fn pair(&mut self, open: usize, close: usize) {
        self.partners[open] = close as u32;
        self.partners[close] = open as u32;
    }

    pub(crate) fn partner(&self, i: usize) -> Option<usize> {
        self.partners.get(i).filter(|at| **at != NONE).map(|at| *at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::lex;

    #[test]
    fn brackets_of_every_kind_are_matched() {
        let source = "k<T<int>, (a > b)> { x[f(1)] < 2; } y > (";
        let tokens: Vec<Token> = lex(source).into_iter().filter(Token::is_code).collect();
        let found = Brackets::new(source, &tokens);
        let pairs: Vec<String> = (0..tokens.len())
            .filter_map(|i| Some((i, found.partner(i).filter(|j| *j > i)?)))
            .map(|(i, j)| source[tokens[i].start..tokens[j].end].to_owned())
            .collect();
        assert_eq!(
            pairs,
            ["<T<int>, (a > b)>", "<int>", "(a > b)", "{ x[f(1)] < 2; }", "[f(1)]", "(1)"]
        );
    }
}
