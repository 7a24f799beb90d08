//! A model that knows few operators, with the built-in policy as fallback.

use std::collections::BTreeSet;

use warpwright_agent::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use warpwright_agent::tools::arguments::Bash;
use warpwright_record::message::{Message, ToolResult};
use warpwright_teacher::Teacher;

/// The model works on tasks whose operators it all knows. The built-in policy works on the others,
/// and continues where the model has ended without a verified kernel. If the model did not have its
/// last files judged, they are judged first, and discarded if they are not verified.
pub(crate) struct WithTeacher {
    model: Box<dyn Policy>,
    teacher: Teacher,
    known: BTreeSet<String>,
    at_work: Worker,
    briefing: Option<Briefing>,
    /// Messages sent so far.
    said: u32,
    /// Result of the last verdict; `None` if the last call had none: the files may have changed.
    verified: Option<bool>,
}

/// Id and command of a call that judges the current files.
const CHECK: (&str, &str) = ("check", "python3 -m utils.profiling");
/// Discards the current files.
const SWEEP: (&str, &str) = ("anew", "rm -rf model_new.py kernels/*");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Model,
    /// Judges the model's last files.
    Check,
    /// Discards them.
    Broom,
    Teacher,
}

impl WithTeacher {
    /// For one episode.
    pub(crate) fn new(model: Box<dyn Policy>, known: BTreeSet<String>) -> Self {
        let teacher = Teacher::new();
        let (at_work, briefing) = (Worker::Model, None);
        Self { model, teacher, known, at_work, briefing, said: 0, verified: None }
    }

    fn start(&mut self, briefing: &Briefing) {
        let found = warpwright_task::operators(&briefing.reference);
        let knows = found.is_some_and(|found| !found.is_empty() && found.is_subset(&self.known));
        self.at_work = if knows { Worker::Model } else { Worker::Teacher };
        self.briefing = Some(briefing.clone());
        (self.said, self.verified) = (0, None);
    }

    fn look(&mut self, results: &[ToolResult]) {
        // After a truncated message there are no results.
        if let Some(last) = results.last() {
            self.verified = last.verdicts.last().map(|verdict| verdict.verified);
        }
    }

    /// The model's message, or the step that follows its end.
    fn or_after(&mut self, said: Message) -> Message {
        if !said.calls.is_empty() || !said.stop.is_done() {
            self.said += 1;
            return said;
        }
        match self.verified {
            Some(true) => {
                self.said += 1;
                said
            }
            None if self.said > 0 => {
                self.at_work = Worker::Check;
                self.call("The last files were not judged: judge them.", CHECK)
            }
            _ => self.sweep(),
        }
    }

    fn sweep(&mut self) -> Message {
        self.at_work = Worker::Broom;
        self.call("No kernel is verified: start over.", SWEEP)
    }

    /// The step after judging the model's last files.
    fn checked(&mut self, results: &[ToolResult]) -> Message {
        self.look(results);
        if self.verified == Some(true) {
            return Message { text: "The candidate is verified.".to_owned(), ..Message::default() };
        }
        self.sweep()
    }

    fn call(&mut self, text: &str, (id, command): (&str, &str)) -> Message {
        self.said += 1;
        let calls = vec![Bash::call(id, command)];
        Message { text: text.to_owned(), calls, ..Message::default() }
    }

    fn teacher_begins(&mut self) -> Result<Message, PolicyError> {
        self.at_work = Worker::Teacher;
        let Some(briefing) = &self.briefing else {
            let message = "the episode has not begun".to_owned();
            return Err(PolicyError { policy: self.name(), message });
        };
        self.teacher.begin(&after(briefing, self.said))
    }
}

/// The briefing with fewer messages left.
fn after(briefing: &Briefing, said: u32) -> Briefing {
    let turns = briefing.turns.map(|turns| turns.saturating_sub(said).max(1));
    Briefing { turns, ..briefing.clone() }
}

impl Policy for WithTeacher {
    fn name(&self) -> String {
        "native".to_owned()
    }

    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError> {
        self.start(briefing);
        match self.at_work {
            Worker::Teacher => self.teacher.begin(briefing),
            Worker::Model => {
                let said = self.model.begin(briefing)?;
                Ok(self.or_after(said))
            }
            Worker::Check | Worker::Broom => self.teacher_begins(),
        }
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        match self.at_work {
            Worker::Teacher => self.teacher.next(results),
            Worker::Model => {
                self.look(results);
                let said = self.model.next(results)?;
                Ok(self.or_after(said))
            }
            Worker::Check => Ok(self.checked(results)),
            Worker::Broom => self.teacher_begins(),
        }
    }

    /// Restores both policies: the model's messages were sampled, the built-in policy's were not.
    fn resume(&mut self, briefing: &Briefing, past: &[Past]) -> Result<Message, ResumeError> {
        self.start(briefing);
        if self.at_work == Worker::Teacher {
            return self.teacher.resume(briefing, past);
        }
        let drawn = past.iter().take_while(|past| past.message.generation.is_some()).count();
        let (models, mut after_them) = past.split_at(drawn);
        self.said = models.len() as u32;
        if let [check, rest @ ..] = after_them
            && check.message.calls.iter().any(|call| call.id == CHECK.0)
        {
            self.said += 1;
            if rest.is_empty() {
                return Ok(self.checked(&check.results));
            }
            after_them = rest;
        }
        if let [_sweep, teachers @ ..] = after_them {
            self.said += 1;
            self.at_work = Worker::Teacher;
            return self.teacher.resume(&after(briefing, self.said), teachers);
        }
        for past in models {
            self.look(&past.results);
        }
        let said = self.model.resume(briefing, models)?;
        Ok(self.or_after(said))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use warpwright_agent::judge::DeviceFacts;
    use warpwright_record::message::{Generation, ToolCall, ToolStatus};
    use warpwright_record::verdict::Profile;

    use super::*;

    /// Sends this many calls, then ends.
    struct Model(u32);

    impl Policy for Model {
        fn name(&self) -> String {
            "model".to_owned()
        }

        fn begin(&mut self, _: &Briefing) -> Result<Message, PolicyError> {
            self.next(&[])
        }

        fn next(&mut self, _: &[ToolResult]) -> Result<Message, PolicyError> {
            let (name, arguments) = ("Bash".to_owned(), json!({}));
            let call = ToolCall { id: self.0.to_string(), name, arguments };
            let calls = if self.0 > 0 { vec![call] } else { Vec::new() };
            self.0 = self.0.saturating_sub(1);
            let generation = Some(Box::new(Generation::default()));
            Ok(Message { text: "model".to_owned(), calls, generation, ..Message::default() })
        }

        fn resume(&mut self, _: &Briefing, past: &[Past]) -> Result<Message, ResumeError> {
            self.0 -= past.len() as u32;
            Ok(self.next(&[])?)
        }
    }

    fn briefing(forward: &str) -> Briefing {
        Briefing {
            task: "task".to_owned(),
            reference: format!(
                "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        \
                 return {forward}\n"
            ),
            skill: String::new(),
            device: DeviceFacts::assumed("cpu"),
            profile: Profile::Strict,
            seed: 0,
            turns: Some(20),
        }
    }

    fn policy(calls: u32) -> WithTeacher {
        let known = BTreeSet::from(["torch.relu".to_owned()]);
        WithTeacher::new(Box::new(Model(calls)), known)
    }

    fn result(verified: Option<bool>) -> ToolResult {
        let text = include_str!("../../../serve/tests/verdict.json");
        let verdict: warpwright_record::verdict::Verdict = serde_json::from_str(text).unwrap();
        let verdicts = verified.map(|verified| {
            let mut verdict = verdict;
            verdict.verified = verified;
            verdict
        });
        ToolResult {
            call: "1".to_owned(),
            status: ToolStatus::Ok,
            text: String::new(),
            verdicts: verdicts.into_iter().collect(),
            findings: Vec::new(),
        }
    }

    #[test]
    fn built_in_policy_takes_unknown_operators() {
        for unknown in ["torch.erf(x)", "torch.relu(x) + x", "self.y(x)", "x"] {
            let first = policy(3).begin(&briefing(unknown)).unwrap();
            assert_ne!(first.text, "model", "{unknown}");
            assert!(!first.calls.is_empty());
        }
        assert_eq!(policy(3).begin(&briefing("torch.relu(x)")).unwrap().text, "model");
    }

    #[test]
    fn built_in_policy_continues_after_an_unverified_model() {
        for (verdict, ends) in [(Some(true), true), (Some(false), false)] {
            let mut policy = policy(1);
            policy.begin(&briefing("torch.relu(x)")).unwrap();
            let second = policy.next(&[result(verdict)]).unwrap();
            assert_eq!(second.calls.is_empty(), ends, "{verdict:?}");
            assert_eq!(second.text == "model", ends);
        }
        // One that says nothing at all.
        assert!(!policy(0).begin(&briefing("torch.relu(x)")).unwrap().calls.is_empty());
    }

    #[test]
    fn unjudged_files_are_judged_before_discarding() {
        // What was written after the verdict has none.
        for late in [vec![result(Some(true)), result(None)], vec![result(None)]] {
            for right in [Some(true), Some(false), None] {
                let mut policy = policy(2);
                policy.begin(&briefing("torch.relu(x)")).unwrap();
                policy.next(&[result(Some(true))]).unwrap();
                let check = policy.next(&late).unwrap();
                assert_eq!(check.calls, vec![Bash::call(CHECK.0, CHECK.1)]);
                let then = policy.next(&[result(right)]).unwrap();
                let sweep = vec![Bash::call(SWEEP.0, SWEEP.1)];
                assert_eq!(then.calls, if right == Some(true) { Vec::new() } else { sweep });
            }
        }
    }

    #[test]
    fn resumed_episode_restores_both_policies() {
        taken_up(&[Some(true), Some(false), None, None]);
        // The model's last files were not judged: that comes first.
        taken_up(&[Some(true), None, Some(false), None, None]);
        taken_up(&[Some(true), None, Some(true)]);
    }

    /// An episode with these verdicts, resumed after any message, equals an uninterrupted one.
    fn taken_up(verdicts: &[Option<bool>]) {
        let briefing = briefing("torch.relu(x)");
        let mut whole = policy(2);
        let mut past = Vec::new();
        let mut message = whole.begin(&briefing).unwrap();
        for verified in verdicts.iter().copied() {
            let results = vec![result(verified)];
            past.push(Past { message, results: results.clone() });
            message = whole.next(&results).unwrap();
            let again = policy(2).resume(&briefing, &past).unwrap();
            assert_eq!(again, message, "after {}", past.len());
        }
        assert_ne!(message.text, "model");
    }
}
