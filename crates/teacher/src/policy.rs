//! The policy: decides which tool calls to make, and in which order.
//!
//! ```text
//! trace -> [read pages] -> write + compile -> verify -> profile -> variants... -> final -> verify
//! ```
//!
//! Every step is a tool call that a model could have made. Decisions use the verdicts in the tool
//! results: a variant is kept if its measured time is lower than the best by more than noise. The
//! search ends at the lower bound, at its budget, or when no knob is left.

use std::sync::Arc;

use serde_json::json;
use warpwright_agent::policy::{Briefing, Policy, PolicyError};
use warpwright_record::message::{Message, ToolCall, ToolResult, ToolStatus};

use crate::draft::{Draft, NoDraft};
use crate::plan::Target;
use crate::program::Files;
use crate::search::{Breadth, Search};
use crate::trace::{self, first_line, first_object};
use crate::tune::Knobs;

/// Lines of the trace read per call; a line has at most about 1,400 characters.
const PAGE_LINES: u64 = 40;
/// Maximum pages per turn: a network of a hundred layers needs this many.
const PAGES: usize = 64;

/// The built-in policy. See the crate's root.
#[derive(Debug, Default)]
pub struct Teacher {
    breadth: Breadth,
    target: Option<Target>,
    stage: Stage,
    /// Trace text read so far.
    pages: String,
    pub(crate) work: Option<Work>,
    /// Files in the workspace.
    written: Files,
    calls: u32,
    /// Messages sent, and the maximum.
    said: u32,
    turns: Option<u32>,
}

/// The answer that the policy is waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Trace,
    Pages {
        lines: u64,
        next: u64,
    },
    Compile,
    Verify,
    Profile,
    Variant,
    Final,
    Done,
}

/// The state after planning.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) draft: Arc<Draft>,
    search: Search,
}

impl Teacher {
    /// A built-in policy for one episode.
    pub fn new() -> Self {
        Self::default()
    }

    /// A built-in policy that measures every version that its rules can write.
    pub fn exhaustive() -> Self {
        Self { breadth: Breadth::Exhaustive, ..Self::default() }
    }

    fn call(&mut self, name: &str, arguments: serde_json::Value) -> ToolCall {
        self.calls += 1;
        ToolCall { id: format!("call-{}", self.calls), name: name.to_owned(), arguments }
    }

    fn bash(&mut self, command: &str) -> ToolCall {
        self.call("Bash", json!({ "command": command }))
    }

    fn stop(&mut self, text: impl Into<String>) -> Message {
        self.stage = Stage::Done;
        say(text, vec![])
    }

    /// Calls that make the workspace hold exactly `files`.
    fn write(&mut self, files: &Files) -> Vec<ToolCall> {
        let mut calls = Vec::new();
        let stale: Vec<String> =
            self.written.keys().filter(|f| !files.contains_key(*f)).cloned().collect();
        if !stale.is_empty() {
            calls.push(self.bash(&format!("rm -f {}", stale.join(" "))));
        }
        for (path, content) in files {
            if self.written.get(path) != Some(content) {
                let arguments = json!({ "file_path": path, "content": content });
                calls.push(self.call("Write", arguments));
            }
        }
        self.written.clone_from(files);
        calls
    }

    fn files(&self, knobs: &Knobs) -> Result<Files, String> {
        let work = self.work.as_ref().ok_or("nothing is planned")?;
        work.draft.files(knobs)
    }

    /// The trace is complete: lower, plan, write the first version.
    fn first_version(&mut self, text: &str) -> Message {
        let trace = match trace::parse(text) {
            Ok(trace) => trace,
            Err(reason) => return self.stop(reason),
        };
        let Some(target) = self.target.clone() else { return self.stop("No device was named.") };
        let draft = match Draft::new(trace, target) {
            Ok(draft) => draft,
            Err(NoDraft::Unsupported(unsupported)) => {
                return self.stop(format!(
                    "The built-in policy has no rule for these operators, so it leaves no \
                     candidate: {}.",
                    unsupported.operators.join(", ")
                ));
            }
            Err(NoDraft::Unplanned(reason)) => {
                return self.stop(format!("The graph could not be planned: {reason}."));
            }
        };
        let search = Search::new(&draft, self.breadth);
        let first = search.best();
        let (calls, kernels) = (draft.operators(), draft.steps(&first).len());
        self.work = Some(Work { draft: Arc::new(draft), search });
        let files = match self.files(&first) {
            Ok(files) => files,
            Err(reason) => {
                return self.stop(format!("The kernels could not be written: {reason}."));
            }
        };
        self.note(&files);
        let mut tools = self.write(&files);
        tools.push(self.bash("bash utils/compile.sh"));
        self.stage = Stage::Compile;
        let plural = if kernels == 1 { "kernel" } else { "kernels" };
        say(
            format!(
                "{calls} traced operators become {kernels} {plural}. Writing and compiling them."
            ),
            tools,
        )
    }

    /// The next action after a version failed: the safe version, once; then stop.
    fn fall_back(&mut self, why: &str) -> Message {
        let Some(work) = &mut self.work else { return self.stop(why) };
        let Some(knobs) = work.search.fall_back() else {
            return self.stop(format!("{why} The plain version failed as well; giving up."));
        };
        match self.files(&knobs) {
            Ok(files) => {
                let mut tools = self.write(&files);
                tools.push(self.bash("python3 -m utils.verification"));
                self.stage = Stage::Verify;
                let plainer = "kernels called one by one, products in float32";
                let what = if knobs.safe { "plain scalar code" } else { plainer };
                say(format!("{why} Falling back to {what}."), tools)
            }
            Err(reason) => self.stop(format!("{why} No other version could be written: {reason}.")),
        }
    }

    /// The next variant to measure, or the final candidate.
    fn go_on(&mut self) -> Message {
        loop {
            // The last message leaves what is judged: the fastest version, not the last one tried.
            if self.turns.is_some_and(|most| self.said + 1 >= most) {
                return self.finish();
            }
            let Some(work) = &mut self.work else { return self.stop("Nothing is planned.") };
            let Some(knobs) = work.search.next() else { return self.finish() };
            let Ok(files) = self.files(&knobs) else { continue };
            if files == self.written || !self.note(&files) {
                continue;
            }
            let mut tools = self.write(&files);
            tools.push(self.bash("python3 -m utils.profiling"));
            self.stage = Stage::Variant;
            return say(format!("Trying {}.", knobs.describe()), tools);
        }
    }

    /// Remembers the files of a variant; false if they were measured before.
    fn note(&mut self, files: &Files) -> bool {
        self.work.as_mut().is_some_and(|w| w.search.note(files))
    }

    fn finish(&mut self) -> Message {
        let Some(work) = &self.work else { return self.stop("Nothing is planned.") };
        let best = work.search.best();
        match self.files(&best) {
            // It was measured, and nothing has changed since.
            Ok(files) if files == self.written && work.search.was_measured() => {
                let summary = self.summary();
                self.stop(summary)
            }
            Ok(files) => {
                let mut tools = self.write(&files);
                tools.push(self.bash("python3 -m utils.verification"));
                self.stage = Stage::Final;
                say(
                    format!("Keeping the fastest version ({}) and verifying it.", best.describe()),
                    tools,
                )
            }
            Err(reason) => self.stop(format!("The best version could not be written: {reason}.")),
        }
    }
}

impl Policy for Teacher {
    fn name(&self) -> String {
        match self.breadth {
            Breadth::Climb => "teacher".to_owned(),
            Breadth::Exhaustive => "teacher:exhaustive".to_owned(),
        }
    }

    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError> {
        *self = Self { breadth: self.breadth, ..Self::default() };
        (self.said, self.turns) = (1, briefing.turns);
        self.target = Some(Target::of(&briefing.device, briefing.profile));
        // Reading model_new.py, if there is one, is what allows writing it.
        let look = self.bash("ls model_new.py kernels 2>/dev/null || true");
        let trace = self.bash("python3 -m utils.trace");
        let read = self.call("Read", json!({ "file_path": "model_new.py" }));
        Ok(say("Tracing the reference to an operator graph.", vec![look, trace, read]))
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        let last = results.last().ok_or_else(|| PolicyError {
            policy: self.name(),
            message: "the last message's calls have no results".to_owned(),
        })?;
        let verdict = last.verdicts.last().cloned();
        let message = match self.stage {
            Stage::Trace => {
                let text = results.get(1).map(|r| r.text.clone()).unwrap_or_default();
                self.traced(&text)
            }
            Stage::Pages { lines, next } => self.page(results, lines, next),
            Stage::Compile => match verdict {
                Some(v) if v.failure.is_none() => {
                    // Whoever measures compares first: a verification of its own would be a second
                    // run of the same.
                    self.stage = Stage::Profile;
                    let call = self.bash("python3 -m utils.profiling");
                    let text = "It compiles. Comparing it, and measuring it against the baselines.";
                    say(text, vec![call])
                }
                _ => self.fall_back(&format!("It does not compile: {}", first_line(&last.text))),
            },
            Stage::Verify => match verdict {
                Some(v) if v.verified => {
                    self.stage = Stage::Profile;
                    let call = self.bash("python3 -m utils.profiling");
                    say("It is right. Measuring it against the baselines.", vec![call])
                }
                _ => self.fall_back(&format!("Verification failed: {}", first_line(&last.text))),
            },
            Stage::Profile => match (&mut self.work, verdict) {
                (Some(work), Some(v)) if v.verified => {
                    work.search.measured(&v);
                    self.go_on()
                }
                (_, Some(_)) => {
                    self.fall_back(&format!("It is not right: {}", first_line(&last.text)))
                }
                (work, None) => {
                    if let Some(work) = work {
                        work.search.give_up();
                    }
                    self.go_on()
                }
            },
            Stage::Variant => {
                if let Some(work) = &mut self.work {
                    match verdict {
                        Some(v) => work.search.measured(&v),
                        None => work.search.failed(),
                    }
                }
                self.go_on()
            }
            Stage::Final => match verdict {
                Some(v) if v.verified => {
                    let summary = self.summary();
                    self.stop(summary)
                }
                _ => self.fall_back(&format!(
                    "The final version is not right: {}",
                    first_line(&last.text)
                )),
            },
            Stage::Done => self.stop("Done."),
        };
        self.said += 1;
        Ok(message)
    }
}

fn say(text: impl Into<String>, calls: Vec<ToolCall>) -> Message {
    Message { text: text.into(), calls, ..Message::default() }
}

impl Teacher {
    fn traced(&mut self, text: &str) -> Message {
        #[derive(serde::Deserialize)]
        struct Paged {
            lines: u64,
        }
        match first_object::<Paged>(text) {
            Some(paged) => {
                let calls = self.page_calls(paged.lines, 1);
                say("The graph is long; reading it in pages.", calls)
            }
            None => self.first_version(text),
        }
    }

    /// Reads pages from line `at` on.
    fn page_calls(&mut self, lines: u64, mut at: u64) -> Vec<ToolCall> {
        let mut calls = Vec::new();
        while at <= lines && calls.len() < PAGES {
            let arguments =
                json!({ "file_path": ".trace.json", "offset": at, "limit": PAGE_LINES });
            calls.push(self.call("Read", arguments));
            at += PAGE_LINES;
        }
        self.stage = Stage::Pages { lines, next: at };
        calls
    }

    fn page(&mut self, results: &[ToolResult], lines: u64, next: u64) -> Message {
        for result in results {
            if result.status != ToolStatus::Ok {
                return self
                    .stop(format!("The graph could not be read: {}", first_line(&result.text)));
            }
            for line in result.text.lines() {
                // `   12\t{...}`
                let Some((number, content)) = line.split_once('\t') else { continue };
                if number.trim().parse::<u64>().is_ok() {
                    self.pages.push_str(content);
                    self.pages.push('\n');
                }
            }
        }
        if next > lines {
            let text = std::mem::take(&mut self.pages);
            return self.first_version(&text);
        }
        let calls = self.page_calls(lines, next);
        say("", calls)
    }

    fn summary(&self) -> String {
        let Some(work) = &self.work else { return "Done.".to_owned() };
        let kernels: Vec<String> = self
            .written
            .keys()
            .filter_map(|f| f.strip_prefix("kernels/").map(str::to_owned))
            .collect();
        format!(
            "Done: {} traced operators in {} kernel file(s) ({}). {}",
            work.draft.operators(),
            kernels.len(),
            kernels.join(", "),
            work.search.summary()
        )
    }
}

#[cfg(test)]
pub(crate) mod tests;
