//! Authentication by bearer tokens.

use std::path::Path;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use fs_err as fs;
use jiff::Timestamp;
use thiserror::Error;

use crate::problem::{Kind, Problem};

/// Name of every client of a server without tokens.
const ANYBODY: &str = "anybody";
/// Minimum length of a token, characters: 128 random bits in hexadecimal.
const SHORTEST: usize = 32;

/// The accepted tokens. Only their hashes are kept: they are compared in constant time, and no message can
/// leak a token.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Option<Vec<Token>>);

#[derive(Clone, Debug)]
struct Token {
    client: String,
    hash: blake3::Hash,
    expires: Option<Timestamp>,
}

/// Why a token file cannot be used.
#[derive(Debug, Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("failed to read the token file")]
    Io(#[from] std::io::Error),
    /// A line is malformed.
    #[error("failed to parse line {line} of the token file: {reason}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// Why it is malformed.
        reason: String,
    },
}

impl Tokens {
    /// No token is needed.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether requests need a token.
    pub fn are_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Reads a file with lines `CLIENT TOKEN [EXPIRES]`, where `EXPIRES` is a time such as
    /// `2026-12-31T00:00:00Z`. Empty lines and lines that begin with `#` are comments.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        Self::parse(&fs::read_to_string(path)?)
    }

    /// Parses the text of such a file.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens: Vec<Token> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let failed = |reason: String| TokensError::Line { line, reason };
            let words: Vec<&str> = text.split_whitespace().collect();
            let (client, token, expires) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [client, token] => (client, token, None),
                [client, token, expires] => {
                    let time = expires.parse().map_err(|error| {
                        failed(format!(
                            "{expires} is not a time such as 2026-12-31T00:00:00Z: {error}"
                        ))
                    })?;
                    (client, token, Some(time))
                }
                _ => return Err(failed("expected `CLIENT TOKEN [EXPIRES]`".to_owned())),
            };
            if token.len() < SHORTEST {
                let hint = "`openssl rand -hex 32` generates one";
                return Err(failed(format!(
                    "the token is shorter than {SHORTEST} characters; {hint}"
                )));
            }
            let hash = blake3::hash(token.as_bytes());
            if tokens.iter().any(|other| other.hash == hash) {
                return Err(failed("an earlier line has the same token".to_owned()));
            }
            tokens.push(Token { client: client.to_owned(), hash, expires });
        }
        Ok(Self(Some(tokens)))
    }

    /// The client of a request.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Result<String, Problem> {
        let Some(tokens) = &self.0 else { return Ok(ANYBODY.to_owned()) };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let Some(given) = given else {
            let hint = Some("send it as `Authorization: Bearer TOKEN`");
            return Err(
                Problem::new(Kind::Unauthorized, "the request has no bearer token").hint(hint)
            );
        };
        let hash = blake3::hash(given.as_bytes());
        // `blake3::Hash` compares in constant time.
        let Some(token) = tokens.iter().find(|token| token.hash == hash) else {
            return Err(Problem::new(Kind::Unauthorized, "the server does not accept this token"));
        };
        if token.expires.is_some_and(|expires| expires <= Timestamp::now()) {
            let hint = Some("request a new token from the server's operator");
            return Err(Problem::new(Kind::TokenExpired, "the token has expired").hint(hint));
        }
        Ok(token.client.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const GOOD: &str = "0123456789abcdef0123456789abcdef";
    const OLD: &str = "fedcba9876543210fedcba9876543210";

    fn asked(tokens: &Tokens, header: Option<&str>) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(header).unwrap());
        }
        tokens.client(&headers).map_err(|problem| problem.uri)
    }

    #[test]
    fn token_identifies_the_client() {
        let text = format!(
            "# clients\n\ntrainer {GOOD} 2100-01-01T00:00:00Z\nold {OLD} 2020-01-01T00:00:00Z\n"
        );
        let tokens = Tokens::parse(&text).unwrap();
        assert_eq!(asked(&tokens, Some(&format!("Bearer {GOOD}"))).unwrap(), "trainer");
        assert_eq!(asked(&tokens, Some(&format!("bearer  {GOOD}"))).unwrap(), "trainer");
        let expired = asked(&tokens, Some(&format!("Bearer {OLD}"))).unwrap_err();
        assert_eq!(expired, "urn:warpwright:problem:token-expired");
        for header in [None, Some("Bearer"), Some("Basic x"), Some("Bearer 0123")] {
            let refused = asked(&tokens, header).unwrap_err();
            assert_eq!(refused, "urn:warpwright:problem:unauthorized", "{header:?}");
        }
        assert!(!format!("{tokens:?}").contains(GOOD), "it is not kept");
        assert_eq!(asked(&Tokens::none(), None).unwrap(), "anybody");
        // A file without tokens lets nobody in.
        assert!(asked(&Tokens::parse("").unwrap(), None).is_err());
    }

    #[test]
    fn invalid_token_file_is_refused_with_its_line() {
        let bad = [
            ("one".to_owned(), "line 1 of the token file: expected"),
            (format!("# x\na {GOOD} tomorrow"), "line 2 of the token file: tomorrow is not a time"),
            ("a short".to_owned(), "shorter than 32"),
            (format!("a {GOOD}\nb {GOOD}"), "line 2 of the token file: an earlier line"),
            (format!("a {GOOD} 2100-01-01T00:00:00Z more"), "expected `CLIENT"),
        ];
        for (text, why) in bad {
            let error = Tokens::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains(GOOD), "{error}");
        }
    }
}
