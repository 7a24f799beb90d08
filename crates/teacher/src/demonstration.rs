//! Demonstrations: episodes of the built-in policy with deliberate flaws at configured rates.
//!
//! ```text
//! [trace] -> write a version, maybe slow, maybe incorrect -> [profile] -> [repair] -> [make it faster] -> stop
//! ```
//!
//! A model from scratch is trained on them first. Slow and incorrect versions leave a signal for
//! reinforcement learning; repairs demonstrate how to react to a verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::policy::{Briefing, Policy, PolicyError};
use warpwright_record::message::{Message, ToolCall, ToolResult};
use warpwright_record::verdict::Profile;

use crate::draft::Draft;
use crate::policy::Teacher;
use crate::program::Files;
use crate::tune::Knobs;

mod flaws;
mod replacement;

/// Rates of the deliberate flaws in demonstrations, between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flaws {
    /// Rate of first versions with one kernel per operator.
    pub unfused: f64,
    /// Rate of first versions in plain scalar code.
    pub naive: f64,
    /// Rate of first versions with launch parameters that do not suit the device.
    pub slow: f64,
    /// Rate of first versions with a loop bound that is off by one.
    pub off_by_one: f64,
    /// Limit on the wrong bounds of such a version; each is repaired in a message of its own. 0 counts as 1.
    pub max_errors: u32,
    /// Rate of first versions that do not build because a name is undefined.
    pub undefined_name: f64,
    /// Rate of versions that are submitted to the judge.
    pub judge_rate: f64,
    /// Rate of incorrect versions, or versions that do not build, that are repaired.
    pub repair_rate: f64,
    /// Rate of small changes that are made with the edit tool instead of writing the whole file.
    pub edit_rate: f64,
    /// Rate of correct slow versions that are made faster.
    pub improve_rate: f64,
}

/// Cache of the graphs of traced tasks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Drafts(Arc<Mutex<BTreeMap<String, Arc<Draft>>>>);

impl Drafts {
    fn get(&self, task: &str) -> Option<Arc<Draft>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }

    fn put(&self, task: &str, draft: &Arc<Draft>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(task.to_owned(), Arc::clone(draft));
    }

    /// Fills the cache from an episode's record: the tool results contain the trace of its task. A
    /// resumed process thus has the same cache as an uninterrupted one. A task that cannot be
    /// traced adds nothing.
    pub fn learn(&self, briefing: &Briefing, answers: impl IntoIterator<Item = Vec<ToolResult>>) {
        let mut again = Demonstrator::new(Flaws::default(), self.clone());
        let mut went = again.begin(briefing).is_ok();
        for results in answers {
            if !went || again.draft.is_some() {
                break;
            }
            went = again.next(&results).is_ok();
        }
    }
}

/// First messages of episodes on a traced task, one per seed: files, and optionally a call that has
/// them judged. For pretraining without a judge. `trace` is the output of `utils/trace.py`; `seeds`
/// select the flaws.
///
/// # Errors
///
/// A message: the trace cannot be read, operators have no rule, or no kernel could be written.
pub fn first_messages(
    trace: &str,
    device: &DeviceFacts,
    profile: Profile,
    flaws: Flaws,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Vec<Message>, String> {
    let draft = Arc::new(Draft::of(trace, device, profile)?);
    let messages = seeds.into_iter().map(|seed| {
        let mut demonstrator = Demonstrator::new(flaws, Drafts::default());
        demonstrator.random = StdRng::seed_from_u64(seed);
        demonstrator.draft = Some(Arc::clone(&draft));
        demonstrator.first()
    });
    let messages: Vec<Message> = messages.filter(|message| !message.calls.is_empty()).collect();
    if messages.is_empty() {
        return Err("no kernel could be written".to_owned());
    }
    Ok(messages)
}

/// Plays one demonstration. See the module.
#[derive(Debug)]
pub struct Demonstrator {
    flaws: Flaws,
    drafts: Drafts,
    /// Traces a task that the cache does not have.
    teacher: Teacher,
    task: String,
    random: StdRng,
    draft: Option<Arc<Draft>>,
    written: Files,
    /// The version in the workspace.
    version: Version,
    calls: u32,
}

/// One way to write the kernels.
#[derive(Clone, Debug, Default, PartialEq)]
struct Version {
    is_unfused: bool,
    knobs: Knobs,
    /// Random numbers that select the off-by-one bounds, sampled per version.
    wrong: Vec<u64>,
    /// Random number that selects the value declared under another value's name.
    misnamed: Option<u64>,
}

impl Version {
    fn is_slow(&self) -> bool {
        self.is_unfused || self.knobs != best()
    }

    fn is_wrong(&self) -> bool {
        !self.wrong.is_empty() || self.misnamed.is_some()
    }
}

fn best() -> Knobs {
    Knobs { chain: true, ..Knobs::default() }
}

impl Demonstrator {
    /// A demonstrator for one episode.
    pub fn new(flaws: Flaws, drafts: Drafts) -> Self {
        Self {
            flaws,
            drafts,
            teacher: Teacher::new(),
            task: String::new(),
            random: StdRng::seed_from_u64(0),
            draft: None,
            written: Files::new(),
            version: Version::default(),
            calls: 0,
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        self.random.random_bool(share.clamp(0.0, 1.0))
    }

    fn call(&mut self, name: &str, arguments: serde_json::Value) -> ToolCall {
        self.calls += 1;
        ToolCall { id: format!("call-{}", self.calls), name: name.to_owned(), arguments }
    }

    /// The first version.
    fn first(&mut self) -> Message {
        let mut version = Version { knobs: best(), ..Version::default() };
        version.is_unfused = self.happens(self.flaws.unfused);
        if self.happens(self.flaws.naive) {
            version.knobs.safe = true;
        }
        if self.happens(self.flaws.slow) {
            let slow: [fn(&mut Knobs); 3] = [
                |knobs| knobs.items_shift = -6,
                |knobs| knobs.vec_shift = -2,
                |knobs| (knobs.threads_shift, knobs.reload) = (-2, true),
            ];
            if let Some(slow) = slow.choose(&mut self.random) {
                slow(&mut version.knobs);
            }
        }
        if self.happens(self.flaws.off_by_one) {
            let errors = self.flaws.max_errors.max(1);
            version.wrong = (0..errors).map(|_| self.random.random()).collect();
        }
        // Of two flaws it would not show which one was mended.
        if self.flaws.undefined_name > 0.0
            && version.wrong.is_empty()
            && self.happens(self.flaws.undefined_name)
        {
            version.misnamed = Some(self.random.random());
        }
        self.show(version)
    }

    /// Writes a version, and possibly submits it to the judge.
    fn show(&mut self, version: Version) -> Message {
        let Some(files) = self.files(&version) else {
            return say("The kernels could not be written.", vec![]);
        };
        let mut calls = Vec::new();
        let stale: Vec<String> =
            self.written.keys().filter(|path| !files.contains_key(*path)).cloned().collect();
        if !stale.is_empty() {
            let command = format!("rm -f {}", stale.join(" "));
            calls.push(self.call("Bash", json!({ "command": command })));
        }
        for (path, content) in &files {
            let before = self.written.get(path);
            if before == Some(content) {
                continue;
            }
            let replacement = before.and_then(|before| replacement::of(before, content));
            let arguments = json!({ "file_path": path, "content": content });
            calls.push(match replacement {
                // No chance is taken where there are no edits: episodes are as they were.
                Some((old, new))
                    if self.flaws.edit_rate > 0.0 && self.happens(self.flaws.edit_rate) =>
                {
                    let edit = json!({ "file_path": path, "old_string": old, "new_string": new });
                    self.call("Edit", edit)
                }
                _ => self.call("Write", arguments),
            });
        }
        (self.written, self.version) = (files, version);
        if self.happens(self.flaws.judge_rate) {
            let command = json!({ "command": "python3 -m utils.profiling" });
            calls.push(self.call("Bash", command));
        }
        say("", calls)
    }

    fn files(&self, version: &Version) -> Option<Files> {
        let draft = self.draft.as_ref()?;
        let mut files = if version.is_unfused {
            draft.unfused(&Knobs { chain: false, ..version.knobs.clone() }).ok()?
        } else {
            draft.files(&version.knobs).ok()?
        };
        flaws::break_bounds(&mut files, &version.wrong);
        if let Some(number) = version.misnamed {
            flaws::misname(&mut files, number);
        }
        Some(files)
    }

    fn go_on(&mut self, results: &[ToolResult]) -> Message {
        let verdict = results.last().and_then(|result| result.verdicts.last());
        let is_right = verdict.map(|verdict| verdict.verified);
        match is_right {
            Some(false) if self.version.is_wrong() && self.happens(self.flaws.repair_rate) => {
                let mut version = Version { misnamed: None, ..self.version.clone() };
                version.wrong.pop();
                self.show(version)
            }
            Some(true) if self.version.is_slow() && self.happens(self.flaws.improve_rate) => {
                self.show(Version { knobs: best(), ..Version::default() })
            }
            _ => say("Done.", vec![]),
        }
    }
}

impl Policy for Demonstrator {
    fn name(&self) -> String {
        "demonstrator".to_owned()
    }

    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError> {
        *self = Self::new(self.flaws, self.drafts.clone());
        self.task.clone_from(&briefing.task);
        self.random = StdRng::seed_from_u64(briefing.seed);
        self.draft = self.drafts.get(&briefing.task);
        if self.draft.is_some() {
            return Ok(self.first());
        }
        self.teacher.begin(briefing)
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        if self.draft.is_some() {
            return Ok(self.go_on(results));
        }
        // It has looked, or goes on looking, or gives up; what it would write is not said.
        let message = self.teacher.next(results)?;
        let Some(work) = &self.teacher.work else { return Ok(message) };
        self.drafts.put(&self.task, &work.draft);
        self.draft = Some(Arc::clone(&work.draft));
        Ok(self.first())
    }
}

fn say(text: &str, calls: Vec<ToolCall>) -> Message {
    Message { text: text.to_owned(), calls, ..Message::default() }
}

#[cfg(test)]
mod tests {
    use warpwright_record::message::ToolStatus;
    use warpwright_record::verdict::Stage;

    use super::flaws::is_kernel;
    use super::*;
    use crate::policy::tests::verdict;

    const TRACE: &str = include_str!("../tests/fixtures/softmax.json");

    fn briefing(seed: u64) -> Briefing {
        Briefing {
            task: "softmax".to_owned(),
            reference: String::new(),
            skill: String::new(),
            device: DeviceFacts::assumed("cpu"),
            profile: Profile::Strict,
            seed,
            turns: None,
        }
    }

    fn results(message: &Message) -> Vec<ToolResult> {
        let each = message.calls.iter().map(|call| ToolResult {
            call: call.id.clone(),
            status: ToolStatus::Ok,
            text: TRACE.to_owned(),
            verdicts: vec![],
            findings: vec![],
        });
        each.collect()
    }

    fn written(message: &Message) -> Files {
        let writes = message.calls.iter().filter(|call| call.name == "Write");
        let text = |call: &ToolCall, key: &str| call.arguments[key].as_str().unwrap().to_owned();
        writes.map(|call| (text(call, "file_path"), text(call, "content"))).collect()
    }

    /// The first version of an episode with one kind of flaw.
    fn version(flaws: Flaws, drafts: &Drafts, seed: u64) -> Files {
        let mut demonstrator = Demonstrator::new(flaws, drafts.clone());
        let mut message = demonstrator.begin(&briefing(seed)).unwrap();
        while written(&message).is_empty() {
            message = demonstrator.next(&results(&message)).unwrap();
        }
        let next = demonstrator.next(&results(&message)).unwrap();
        assert!(next.calls.is_empty() && next.text == "Done.", "nothing was asked for");
        written(&message)
    }

    #[test]
    fn each_flaw_shows_in_the_kernels() {
        let drafts = Drafts::default();
        let good = version(Flaws::default(), &drafts, 0);
        assert!(drafts.get("softmax").is_some(), "traced once");
        assert_eq!(version(Flaws::default(), &drafts, 1), good);
        let kernels = |files: &Files| files.keys().filter(|path| is_kernel(path)).count();
        let unfused = version(Flaws { unfused: 1.0, ..Flaws::default() }, &drafts, 0);
        assert!(kernels(&unfused) > kernels(&good), "{:?}", unfused.keys());
        let naive = version(Flaws { naive: 1.0, ..Flaws::default() }, &drafts, 0);
        assert_ne!(naive, good);
        let slow = |seed| version(Flaws { slow: 1.0, ..Flaws::default() }, &drafts, seed);
        assert!((0..8).map(slow).all(|slow| slow != good && slow.keys().eq(good.keys())));
        for seed in 0..8 {
            let wrong = version(Flaws { off_by_one: 1.0, ..Flaws::default() }, &drafts, seed);
            let differ: Vec<_> =
                wrong.iter().filter(|(path, text)| good[*path] != **text).collect();
            let [(path, text)] = differ[..] else { panic!("{differ:?}") };
            let lines = text.lines().zip(good[path].lines()).filter(|(a, b)| a != b);
            assert_eq!(lines.count(), 1, "one bound in one line");
        }
        for seed in 0..8 {
            let misnamed =
                version(Flaws { undefined_name: 1.0, ..Flaws::default() }, &drafts, seed);
            let (path, text) = misnamed.iter().find(|(path, text)| good[*path] != **text).unwrap();
            let lines: Vec<_> =
                text.lines().zip(good[path].lines()).filter(|(a, b)| a != b).collect();
            let [(bad, right)] = lines[..] else { panic!("{lines:?}") };
            let name = |line: &str| line.trim().split(' ').nth(2).unwrap().to_owned();
            assert_eq!(bad.replace(&name(bad), &name(right)), right);
            assert!(good[path].contains(&format!("const float {} = ", name(bad))), "of another");
        }
        let half = Flaws { off_by_one: 0.5, ..Flaws::default() };
        let right = (0..60).filter(|seed| version(half, &drafts, *seed) == good).count();
        assert!((15..=45).contains(&right), "{right}");
    }

    #[test]
    fn cache_is_filled_from_recorded_answers() {
        let drafts = Drafts::default();
        let looked =
            Demonstrator::new(Flaws::default(), drafts.clone()).begin(&briefing(0)).unwrap();
        drafts.learn(&briefing(0), []);
        assert!(drafts.get("softmax").is_none(), "nothing was answered yet");
        drafts.learn(&briefing(0), [results(&looked), vec![]]);
        let known = drafts.get("softmax").unwrap();
        let flaws = Flaws { off_by_one: 0.5, ..Flaws::default() };
        let other = Drafts::default();
        version(flaws, &other, 0);
        assert_eq!(version(flaws, &drafts, 7), version(flaws, &other, 7));
        drafts.learn(&briefing(1), [vec![]]);
        assert!(Arc::ptr_eq(&known, &drafts.get("softmax").unwrap()), "it was known");
    }

    /// Several errors are mended one after the other, each by replacing the line that it is in, until the kernels
    /// are those without any.
    #[test]
    fn errors_are_repaired_one_per_message() {
        let drafts = Drafts::default();
        let good = version(Flaws::default(), &drafts, 0);
        let flaws = Flaws {
            off_by_one: 1.0,
            max_errors: 3,
            judge_rate: 1.0,
            repair_rate: 1.0,
            edit_rate: 1.0,
            ..Flaws::default()
        };
        for seed in 0..8 {
            let mut demonstrator = Demonstrator::new(flaws, drafts.clone());
            let mut message = demonstrator.begin(&briefing(seed)).unwrap();
            let mut files = written(&message);
            let mut edits = 0;
            while files != good {
                let mut told = results(&message);
                told.last_mut().unwrap().verdicts = vec![verdict(Stage::Built, None)];
                message = demonstrator.next(&told).unwrap();
                let [edit, check] = &message.calls[..] else { panic!("{message:?}") };
                assert_eq!((&*edit.name, &*check.name), ("Edit", "Bash"));
                let text = |key: &str| edit.arguments[key].as_str().unwrap().to_owned();
                let file = files.get_mut(&text("file_path")).unwrap();
                assert_eq!(file.matches(&text("old_string")).count(), 1);
                *file = file.replace(&text("old_string"), &text("new_string"));
                edits += 1;
            }
            assert_eq!(edits, 3);
        }
    }

    #[test]
    fn first_messages_match_a_played_episode() {
        let flaws = Flaws { off_by_one: 0.5, slow: 0.5, unfused: 0.5, ..Flaws::default() };
        let (device, drafts) = (DeviceFacts::assumed("cpu"), Drafts::default());
        version(flaws, &drafts, 0);
        let messages = first_messages(TRACE, &device, Profile::Strict, flaws, 0..16).unwrap();
        let alone: Vec<Files> = messages.iter().map(written).collect();
        let episodes: Vec<Files> = (0..16).map(|seed| version(flaws, &drafts, seed)).collect();
        assert_eq!(alone, episodes);
        let error = first_messages("{}", &device, Profile::Strict, flaws, 0..1).unwrap_err();
        assert!(!error.is_empty());
    }
}
