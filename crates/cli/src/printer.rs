//! The only place that writes to stdout and stderr: data on stdout, messages on stderr. Both
//! contain text of candidates, tools and policies, so control characters are escaped here.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use serde::Serialize;
use warpwright_report::text::clean;
use warpwright_rollout::{Notice, environment};

use crate::failure::Failure;

/// Prints a command's data and messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    json: bool,
    colour: bool,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        let colour =
            std::io::stderr().is_terminal() && environment::get(environment::NO_COLOR).is_none();
        Self { json, colour }
    }

    /// Whether data on stdout may have colours.
    pub(crate) fn is_coloured_stdout(self) -> bool {
        !self.json
            && std::io::stdout().is_terminal()
            && environment::get(environment::NO_COLOR).is_none()
    }

    /// Prints the command's JSON object, with `--json` only.
    pub(crate) fn object<T: Serialize>(self, object: &T) {
        if self.json
            && let Ok(text) = serde_json::to_string(object)
        {
            stdout(&format!("{text}\n"));
        }
    }

    /// Prints data as text, such as a listing. Not with `--json`.
    pub(crate) fn data(self, text: &str) {
        self.drawn(&clean(text));
    }

    /// Prints text with colours. The caller has escaped the control characters of untrusted text.
    pub(crate) fn drawn(self, text: &str) {
        if !self.json {
            stdout(text);
        }
    }

    /// Prints a message.
    #[expect(clippy::unused_self, reason = "everything that is printed goes through a printer")]
    pub(crate) fn say(self, text: &str) {
        stderr(&format!("{}\n", clean(text)));
    }

    /// Prints the messages of the parts below. Those that begin with `warning:` or `note:` are labelled.
    pub(crate) fn notice(self) -> Notice {
        Arc::new(move |text| match text.split_once(": ") {
            Some(("warning", rest)) => self.label("warning", "33", rest),
            Some(("note", rest)) => self.label("note", "36", rest),
            _ => self.say(text),
        })
    }

    /// Prints a message that begins with a coloured word.
    pub(crate) fn label(self, word: &str, colour: &str, text: &str) {
        let text = clean(text);
        if self.colour {
            stderr(&format!("\x1b[1;{colour}m{word}:\x1b[0m {text}\n"));
        } else {
            stderr(&format!("{word}: {text}\n"));
        }
    }

    /// Prints a failure: `error:`, `hint:`, and with `--json` the object.
    pub(crate) fn failure(self, failure: &Failure) {
        self.label("error", "31", &failure.message);
        if let Some(hint) = &failure.hint {
            self.label("hint", "36", hint);
        }
        self.object(&failure.object());
    }
}

fn stderr(text: &str) {
    // A closed stderr is no reason to stop working.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn stdout(text: &str) {
    // A reader that has closed its end (`| head`) wants no more.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
