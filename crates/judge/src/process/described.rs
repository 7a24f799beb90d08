//! What a recorder needs of a task, found on the host without a call of its reference.

use serde::Deserialize;
use serde_json::json;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::check::layout::place_all;
use crate::device::arena::{Arena, HostArena};
use crate::device::device_arbiter::DeviceArbiter;
use crate::error::JudgeError;
use crate::process::candidate::moves;
use crate::process::host::{Grant, Host};
use crate::process::oracle::{PATIENCE, mode_name, profile_name};
use crate::process::recorder::GivenWeights;
use crate::process::role::Role;
use crate::process::wire::{Place, State, Value, padded};
use crate::process::worker::Worker;

/// Host memory for a model and its inputs, bytes.
const MEMORY_BYTES: u64 = 16 << 30;

/// One set of weights, and inputs for two recordings.
pub(crate) struct Described {
    pub(crate) weights: GivenWeights,
    pub(crate) inputs: [Value; 2],
}

/// The oracle's answer to `describe`.
#[derive(Deserialize)]
struct Sizes {
    init: Value,
    inputs: [Value; 2],
    state: Vec<Place>,
}

impl Described {
    /// Has a process of its own make the model of a variant: `init` or `other`.
    pub(crate) fn of(
        host: &Host,
        task: &Task,
        (profile, seed): (Profile, u64),
        variant: &str,
        arbiter: &DeviceArbiter,
    ) -> Result<Self, JudgeError> {
        let grant = Grant { memory_bytes: Some(MEMORY_BYTES), ..Grant::default() };
        let mut worker = Worker::spawn(host, Role::Oracle, None, &grant)?.up(arbiter)?;
        let mut ask = |request| {
            let answer = worker.ask::<serde_json::Value>(&request, PATIENCE);
            answer.map_err(|answer| worker.failed(&task.name, answer))
        };
        ask(json!({
            "do": "load", "source": task.source, "profile": profile_name(profile),
            "mode": mode_name(task.mode),
        }))?;
        let seeds = [seed ^ 0x5eed_4000, seed ^ 0x5eed_4001];
        let sizes =
            ask(json!({"do": "describe", "variant": variant, "seed": seed, "seeds": seeds}))?;
        let Sizes { init, inputs, state } = parsed(sizes)?;
        let of_state: u64 = state.iter().map(|place| padded(place.bytes)).sum();
        let arena = HostArena::create(init.padded_bytes().max(of_state).max(4096))?;
        let arena = Arena::Host(arena);
        let request = json!({"do": "adopt", "arena_bytes": arena.len()});
        worker.hand_over(&request, &arena, PATIENCE, arbiter)?;
        let mut ask = |request| {
            let answer = worker.ask::<serde_json::Value>(&request, PATIENCE);
            answer.map_err(|answer| worker.failed(&task.name, answer))
        };
        let memory = HostArena::create((init.padded_bytes() + of_state).max(4096))?;
        let mut init: Value = parsed(ask(json!({"do": "init"}))?)?;
        let from = init.tensors.clone();
        let end = place_all(&mut init.tensors, 0);
        arena.copy_to_host(&memory, &moves(&from, &init.tensors))?;
        let mut state: State = parsed(ask(json!({"do": "state", "variant": variant}))?)?;
        let from = state.tensors.clone();
        if place_all(&mut state.tensors, end) > memory.len() {
            let reason = "the oracle sent weights of another size than before";
            return Err(JudgeError::infrastructure("copy weights for a recorder", reason));
        }
        arena.copy_to_host(&memory, &moves(&from, &state.tensors))?;
        let weights = GivenWeights::seal(init, state, memory)?;
        Ok(Self { weights, inputs })
    }
}

fn parsed<T: serde::de::DeserializeOwned>(answer: serde_json::Value) -> Result<T, JudgeError> {
    let failed = |error| JudgeError::infrastructure("read what the oracle said", error);
    serde_json::from_value(answer).map_err(failed)
}
