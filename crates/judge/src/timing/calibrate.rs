//! Calibration of a device, stored in the cache: its ceilings (copy bandwidth, launch time), measured with
//! the same windows as candidates, and the judge's timing accuracy on it (`session/self_calibration`).

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_record::exactness::Exactness;

use crate::error::JudgeError;
use crate::process::baseline::BaselineProcess;
use crate::process::embedded::put;
use crate::timing::stats;

pub(crate) mod known;

pub use known::{Kind, Trial};

/// Version of the file.
const CALIBRATION_VERSION: u32 = 1;
const ROUNDS: usize = 9;

/// The calibration of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Format version.
    pub version: u32,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Hardware that it was measured on.
    pub hardware: String,
    /// Bytes read plus bytes written per second by a large device-to-device copy.
    pub bandwidth_bytes_per_second: u64,
    /// Bytes of that copy's source.
    pub copy_bytes: u64,
    /// Microseconds per call of the smallest operation through torch.
    pub launch_microseconds: f64,
    /// Timing accuracy of the judge on this device; `None` if not measured.
    #[serde(default)]
    pub exactness: Option<Exactness>,
    /// The trials behind `exactness`.
    #[serde(default)]
    pub trials: Vec<Trial>,
}

fn path(cache: &Path, device: &str) -> PathBuf {
    cache.join(format!("calibration-{}.json", device.replace(':', "-")))
}

/// The stored calibration, if it belongs to this hardware.
pub(crate) fn load(cache: &Path, device: &str, hardware: &str) -> Option<Calibration> {
    let text = fs::read_to_string(path(cache, device)).ok()?;
    let known: Calibration = serde_json::from_str(&text).ok()?;
    (known.version == CALIBRATION_VERSION && known.hardware == hardware).then_some(known)
}

/// Measures and keeps.
pub(crate) fn measure(
    process: &mut BaselineProcess,
    cache: &Path,
    device: &str,
    hardware: &str,
    (copy_bytes, copies): (u64, usize),
) -> Result<Calibration, JudgeError> {
    process.stage_ceilings(copy_bytes)?;
    let copy = per_call(process, "copy", copies)?;
    let launch = per_call(process, "launch", 1000)?;
    let calibration = Calibration {
        version: CALIBRATION_VERSION,
        device: device.to_owned(),
        hardware: hardware.to_owned(),
        bandwidth_bytes_per_second: (2.0 * copy_bytes as f64 / copy) as u64,
        copy_bytes,
        launch_microseconds: launch * 1e6,
        exactness: None,
        trials: Vec::new(),
    };
    store(cache, &calibration)?;
    Ok(calibration)
}

/// Keeps what was measured.
pub(crate) fn store(cache: &Path, calibration: &Calibration) -> Result<(), JudgeError> {
    let keep = |e: std::io::Error| JudgeError::infrastructure("store the calibration", e);
    let text = serde_json::to_string_pretty(calibration)
        .map_err(|e| JudgeError::infrastructure("store the calibration", e))?;
    fs::create_dir_all(cache).map_err(keep)?;
    put(&path(cache, &calibration.device), text.as_bytes()).map_err(keep)
}

/// Seconds per call: windows of so many calls less windows of none, as for everything that is timed.
fn per_call(process: &mut BaselineProcess, which: &str, calls: usize) -> Result<f64, JudgeError> {
    let mut seconds = Vec::new();
    for round in 0..=ROUNDS {
        let nothing = process.nothing("calibration", None)?;
        let window = process.play("calibration", which, &vec![0; calls], None)?;
        // The first warms up.
        if round > 0 {
            seconds.push((window.as_secs_f64() - nothing.as_secs_f64()) / calls as f64);
        }
    }
    let seconds = stats::rough(&seconds);
    if seconds > 0.0 {
        return Ok(seconds);
    }
    Err(JudgeError::infrastructure(
        format!("calibrate `{which}`"),
        "its windows took no longer than empty windows",
    ))
}
