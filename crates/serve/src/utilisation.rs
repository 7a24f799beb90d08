//! Utilisation of the devices, as the caller last reported it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use warpwright_judge::{Purpose, Used};

/// Recent utilisation of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceUse {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Fraction of the time in which a holder had it, 0 to 1.
    pub busy: f64,
    /// The same per holder, e.g. `measuring`.
    pub by: Vec<(String, f64)>,
}

impl DeviceUse {
    /// The shares of the time `of` for which the purposes in `used` held a device.
    pub fn new(device: &str, used: &Used, of: Duration) -> Self {
        let share = |part: Duration| part.as_secs_f64() / of.as_secs_f64().max(1e-9);
        let by = Purpose::ALL.into_iter().zip(used.by).filter(|(_, part)| !part.held.is_zero());
        Self {
            device: device.to_owned(),
            busy: share(used.alone + used.shared).min(1.0),
            by: by.map(|(purpose, part)| (purpose.name().to_owned(), share(part.held))).collect(),
        }
    }
}

/// The latest utilisation of all devices.
#[derive(Debug, Default)]
pub struct Uses(Mutex<Vec<DeviceUse>>);

impl Uses {
    /// Replaces the stored utilisation.
    pub fn say(&self, uses: Vec<DeviceUse>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = uses;
    }

    pub(crate) fn said(&self) -> Vec<DeviceUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
