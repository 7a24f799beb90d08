//! A judge and a policy that follow a script, for tests of the loop alone.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpwright_jail::{Jail, Requirement};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Answer, FINDINGS_VERSION, Findings, Inspection};
use warpwright_record::interval::Interval;
use warpwright_record::libraries::Libraries;
use warpwright_record::message::{Message, ToolCall, ToolResult};
use warpwright_record::verdict::{
    Isolation, PhaseSeconds, Profile, Reward, Speedup, Stage, Tier, Times, VERDICT_VERSION, Verdict,
};

use crate::judge::{DeviceFacts, Judge, JudgeUnavailable};
use crate::policy::{Briefing, Policy, PolicyError};
use crate::tools::shell::{Provision, Shell};

/// A judge that gives the nth measured candidate the script's nth speedup. Candidates beyond the
/// script are wrong.
pub(crate) struct ScriptedJudge {
    speedups: Vec<f64>,
    failing: bool,
    asked: AtomicUsize,
}

impl ScriptedJudge {
    pub(crate) fn new(speedups: &[f64]) -> Self {
        Self { speedups: speedups.to_vec(), failing: false, asked: AtomicUsize::new(0) }
    }

    pub(crate) fn failing() -> Self {
        Self { speedups: Vec::new(), failing: true, asked: AtomicUsize::new(0) }
    }
}

impl Judge for ScriptedJudge {
    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        self.judge(candidate, Stage::Measured)
    }

    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable> {
        if self.failing {
            return Err(JudgeUnavailable { message: "the script says so".to_owned() });
        }
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        let faster = self.speedups.get(nth).copied();
        let figure = |value: f64| Interval { value, low: value * 0.99, high: value * 1.01 };
        let best = faster.map(figure);
        let speedup = Speedup {
            eager: best,
            best,
            best_baseline: best.map(|_| "eager".to_owned()),
            ..Speedup::default()
        };
        let verified = faster.is_some() && stage > Stage::Built;
        Ok(Verdict {
            version: VERDICT_VERSION,
            tier: Tier::Host,
            plan: None,
            replayer: None,
            task: "scripted".to_owned(),
            candidate: candidate.hash().to_owned(),
            device: "cpu".to_owned(),
            profile: Profile::Strict,
            dtype: None,
            fit: None,
            backward: false,
            stage,
            verified,
            failure: None,
            integrity: Vec::new(),
            checks: Vec::new(),
            times_ms: Times { candidate: faster.map(|f| figure(1.0 / f)), ..Times::default() },
            reward: Reward::of(verified, &speedup),
            speedup,
            workloads: Vec::new(),
            floor_ms: None,
            unavoidable_bytes: 0,
            libraries: Libraries::default(),
            kernels: Vec::new(),
            provenance: None,
            diagnostics: Vec::new(),
            isolation: Isolation::default(),
            caveats: Vec::new(),
            conditions: None,
            memory: None,
            seconds: PhaseSeconds::default(),
            fingerprint: warpwright_record::fingerprint::Fingerprint::default(),
        })
    }

    /// Has no tools.
    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable> {
        if self.failing {
            return Err(JudgeUnavailable { message: "the script says so".to_owned() });
        }
        Ok(Findings {
            version: FINDINGS_VERSION,
            task: "scripted".to_owned(),
            candidate: candidate.hash().to_owned(),
            device: "cpu".to_owned(),
            inspection: inspection.clone(),
            answer: Answer::Unavailable { reason: "a script has no tools".to_owned(), hint: None },
            caveats: Vec::new(),
            build_seconds: 0.0,
            run_seconds: 2.0,
            fingerprint: warpwright_record::fingerprint::Fingerprint::default(),
        })
    }

    fn device(&self) -> DeviceFacts {
        device()
    }
}

/// A shell with the interpreter of the tests, in the best jail this machine has.
pub(crate) fn shell() -> Shell {
    shell_with(Provision { python: Some(python()), ..Provision::default() })
}

/// A shell with these programs and limits.
pub(crate) fn shell_with(provision: Provision) -> Shell {
    let jail = Jail::detect(Requirement::Any).expect("a jail; build warpwright-jail first");
    Shell::new(jail, provision)
}

/// The interpreter that `make test` installs, or the one that the environment names.
pub(crate) fn python() -> PathBuf {
    let named = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = named.unwrap_or(own);
    assert!(python.exists(), "{} does not exist: run `make setup`", python.display());
    python
}

/// A small cpu device.
pub(crate) fn device() -> DeviceFacts {
    DeviceFacts {
        device: "cpu".to_owned(),
        hardware: "a test".to_owned(),
        arch: None,
        processors: 2,
        bandwidth_bytes_per_second: None,
        cache_bytes: 1 << 20,
        shared_bytes_per_block: 48 << 10,
        libraries: warpwright_record::libraries::LibrarySet::default(),
    }
}

/// A policy that sends the messages of a script in order, then stops. It records the results that
/// it gets.
pub(crate) struct ScriptedPolicy {
    script: Vec<Vec<ToolCall>>,
    said: usize,
    pub(crate) seen: std::sync::Arc<Mutex<Vec<ToolResult>>>,
}

impl ScriptedPolicy {
    pub(crate) fn new(script: Vec<Vec<ToolCall>>) -> Self {
        Self { script, said: 0, seen: std::sync::Arc::default() }
    }

    fn say(&mut self) -> Message {
        let calls = self.script.get(self.said).cloned().unwrap_or_default();
        self.said += 1;
        Message { text: format!("message {}", self.said), calls, ..Message::default() }
    }
}

impl Policy for ScriptedPolicy {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn begin(&mut self, _: &Briefing) -> Result<Message, PolicyError> {
        Ok(self.say())
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        self.seen.lock().unwrap().extend_from_slice(results);
        Ok(self.say())
    }
}
