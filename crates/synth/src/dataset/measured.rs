//! Measurements of a task.

use serde::{Deserialize, Serialize};

/// Shape and element type of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorForm {
    /// Length of each axis; empty for a scalar.
    pub shape: Vec<u64>,
    /// Name in torch without `torch.`: `float32`.
    pub dtype: String,
}

/// Measurements of a task, all under one fingerprint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Arguments of `forward`, in order.
    pub inputs: Vec<TensorForm>,
    /// Results of `forward`, in order.
    pub outputs: Vec<TensorForm>,
    /// Minimum bytes that any implementation must move: inputs, parameters and outputs once each.
    pub bytes: u64,
    /// Time of the reference in eager mode, in milliseconds.
    pub eager_ms: f64,
    /// Time of the reference under `torch.compile`, in milliseconds.
    pub compile_ms: f64,
    /// `bytes` over the measured bandwidth of the device, in milliseconds: the lower bound set by
    /// memory traffic.
    pub floor_ms: f64,
    /// Machine and versions, as the judge writes them: JSON. Times under different fingerprints are never
    /// averaged.
    pub fingerprint: String,
}

impl Measured {
    /// The best baseline over the lower bound: the maximum speed-up that memory traffic allows.
    pub fn head_room(&self) -> f64 {
        self.eager_ms.min(self.compile_ms) / self.floor_ms
    }

    /// Returns the first invalid value.
    pub(super) fn check(&self) -> Result<(), String> {
        let times = [
            ("eager_ms", self.eager_ms),
            ("compile_ms", self.compile_ms),
            ("floor_ms", self.floor_ms),
        ];
        match times.iter().find(|(_, ms)| !(ms.is_finite() && *ms > 0.0)) {
            Some((name, ms)) => Err(format!("`{name}` is {ms}, not a time")),
            None => Ok(()),
        }
    }
}
