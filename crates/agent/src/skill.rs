//! The skill: what the agent is told, rendered for the device at hand.

use minijinja::{Environment, UndefinedBehavior, context};
use thiserror::Error;
use warpwright_record::verdict::Profile;

use crate::judge::DeviceFacts;

/// The text with its placeholders, as it lies in `skills/cuda/SKILL.md`.
pub const TEMPLATE: &str = include_str!("../../../skills/cuda/SKILL.md");

/// The skill template does not fit its placeholders: a mistake in the template.
#[derive(Debug, Error)]
#[error("failed to render the skill for {device}: {source}")]
pub struct SkillError {
    device: String,
    source: minijinja::Error,
}

/// Renders the skill for a device and a profile.
pub fn render(device: &DeviceFacts, profile: Profile) -> Result<String, SkillError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let precision = match profile {
        Profile::Strict => {
            "full float32 for matrix products and convolutions on both sides; no TF32, no half \
             precision inside. Your error is compared with the reference's own error against float64."
        }
        Profile::Tf32 => {
            "TF32 is allowed for matrix products and convolutions, and the reference uses it too."
        }
        Profile::AsRun => {
            "the dtype and flags of `model.py` hold for both sides. Your error is compared with the \
             reference's own error against float64."
        }
        Profile::Paper => {
            "each output must be within 1e-2, absolute and relative, of the reference's."
        }
    };
    let profile = match profile {
        Profile::Strict => "strict",
        Profile::Tf32 => "tf32",
        Profile::AsRun => "as-run",
        Profile::Paper => "paper",
    };
    let values = context! {
        device => device.device.clone(),
        hardware => device.hardware.clone(),
        arch => device.arch.clone(),
        processors => device.processors,
        shared_kib => device.shared_bytes_per_block / 1024,
        cache_mib => device.cache_bytes >> 20,
        bandwidth_gb => device.bandwidth_bytes_per_second.map(|b| b / 1_000_000_000),
        on_cpu => device.device == "cpu",
        traces => true,
        profile => profile,
        precision => precision,
    };
    environment
        .render_str(TEMPLATE, values)
        .map_err(|source| SkillError { device: device.device.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_and_profile_renders_without_leftovers() {
        let cpu = crate::scripted::device();
        let gpu = DeviceFacts {
            device: "cuda:0".to_owned(),
            hardware: "NVIDIA H200".to_owned(),
            arch: Some("sm_90".to_owned()),
            processors: 132,
            bandwidth_bytes_per_second: Some(4_100_000_000_000),
            cache_bytes: 50 << 20,
            shared_bytes_per_block: 227 << 10,
        };
        for device in [&cpu, &gpu] {
            for profile in [Profile::Strict, Profile::Tf32, Profile::AsRun, Profile::Paper] {
                let text = render(device, profile).unwrap();
                assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
                assert!(text.contains(&device.hardware));
            }
        }
        let on_gpu = render(&gpu, Profile::Strict).unwrap();
        assert!(on_gpu.contains("4100 GB/s") && on_gpu.contains("no GPU"), "{on_gpu}");
        assert!(!render(&cpu, Profile::Strict).unwrap().contains("cuDNN"));
    }
}
