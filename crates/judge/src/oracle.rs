//! The oracle of one task, as the judge sees it.

use std::time::Duration;

use serde_json::json;
use warpwright_record::verdict::Profile;
use warpwright_task::{Mode, Task};

use crate::arena::Arena;
use crate::channel::NoAnswer;
use crate::error::JudgeError;
use crate::gate::Gate;
use crate::memory::Memory;
use crate::process::{Grant, Host, Role, Worker};
use crate::wire::{Expected, Loaded, Opened, Sets, State};

/// Longest an oracle may take over one request. Its code is the task's.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// The process, its arena and what it said of the task.
pub(crate) struct Oracle {
    worker: Worker,
    task: String,
    pub(crate) arena: Arena,
    pub(crate) opened: Opened,
    /// Largest error of the same-precision reference seen so far, per output, in units of the
    /// output's root mean square.
    noise: Vec<f64>,
    /// Why truth is not float64, if it is not.
    pub(crate) doubt: String,
    profile: Profile,
}

/// Serialised name of a profile, as the Python side knows it.
pub(crate) fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Strict => "strict",
        Profile::Tf32 => "tf32",
        Profile::AsRun => "as-run",
        Profile::Paper => "paper",
    }
}

pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Eval => "eval",
        Mode::Train => "train",
    }
}

impl Oracle {
    /// Starts it and loads the task. Only [`Oracle::learn`] and what follows need an arena that
    /// holds inputs and outputs.
    pub(crate) fn open(
        host: &Host,
        task: &Task,
        settings: (Profile, u64),
        memory: Memory,
        arena: Arena,
        gate: &Gate,
    ) -> Result<Self, JudgeError> {
        let mut worker = Worker::start(host, Role::Oracle, &arena, &Grant::default(), gate)?;
        let (profile, seed) = settings;
        // On the cpu device loading it would disturb what is timed; a GPU it asks for itself.
        let _shared = host.gpu.is_none().then(|| gate.share());
        let load = json!({
            "do": "load",
            "source": task.source,
            "profile": profile_name(profile),
            "mode": mode_name(task.mode),
            "device_bytes": memory.oracle_torch(),
        });
        let loaded: Loaded = worker.ask(&load, PATIENCE).map_err(|e| {
            JudgeError::from_trusted(&task.name, Role::Oracle.name(), e, &worker.tail())
        })?;
        if let Some(foreseen) = &loaded.sizes {
            // A task that is too large costs the device nothing.
            memory.check(&task.name, foreseen)?;
        }
        let request = json!({"do": "open", "seed": seed});
        let opened: Opened = worker.ask_holding(&request, PATIENCE, gate).map_err(|e| {
            JudgeError::from_trusted(&task.name, Role::Oracle.name(), e, &worker.tail())
        })?;
        let noise = vec![0.0; opened.sizes.outputs.tensors.len()];
        let name = task.name.clone();
        Ok(Self { worker, task: name, arena, opened, noise, doubt: String::new(), profile })
    }

    /// Learns how large an honest error is.
    pub(crate) fn learn(&mut self, seed: u64) -> Result<(), JudgeError> {
        for (variant, calls) in [("init", 3), ("other", 1)] {
            for i in 0..calls {
                self.expected(variant, seed ^ (0x5eed_0000 + i))?;
            }
        }
        Ok(())
    }

    fn trusted(&self, answer: NoAnswer) -> JudgeError {
        JudgeError::from_trusted(&self.task, Role::Oracle.name(), answer, &self.worker.tail())
    }

    /// The weights of `init` or `other`, at the start of the oracle's arena.
    pub(crate) fn state(&mut self, variant: &str) -> Result<State, JudgeError> {
        let request = json!({"do": "state", "variant": variant});
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// The arguments of the model's constructor, tensors at the start of the oracle's arena.
    pub(crate) fn init(&mut self) -> Result<crate::wire::Value, JudgeError> {
        self.worker.ask(&json!({"do": "init"}), PATIENCE).map_err(|e| self.trusted(e))
    }

    /// How many sets of inputs its arena holds.
    pub(crate) fn sets_at_once(&self) -> usize {
        (self.arena.len() / self.opened.sizes.inputs.padded_bytes().max(1)).clamp(1, 4096) as usize
    }

    /// Inputs for each seed, one after the other from the start of the oracle's arena.
    pub(crate) fn inputs(&mut self, seeds: &[u64]) -> Result<Sets, JudgeError> {
        let request = json!({"do": "inputs", "seeds": seeds});
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// Inputs and truth for one seed.
    pub(crate) fn expected(&mut self, variant: &str, seed: u64) -> Result<Expected, JudgeError> {
        // The paper compares with eager, not with the truth.
        let double = self.profile != Profile::Paper;
        let request = json!({"do": "expected", "variant": variant, "seed": seed, "double": double});
        let expected: Expected =
            self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))?;
        for (noise, note) in self.noise.iter_mut().zip(&expected.notes) {
            if note.rms > 0.0 {
                *noise = noise.max(note.error / note.rms);
            }
        }
        self.doubt.clone_from(&expected.doubt);
        Ok(expected)
    }

    /// See the field.
    pub(crate) fn noise(&self, output: usize) -> f64 {
        self.noise.get(output).copied().unwrap_or(0.0)
    }
}
