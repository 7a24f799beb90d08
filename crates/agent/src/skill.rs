//! The skill: the agent's system prompt, rendered for the device.

use minijinja::{Environment, UndefinedBehavior, context};
use thiserror::Error;
use warpwright_record::verdict::Profile;

use crate::judge::DeviceFacts;

/// The built-in text with its placeholders: `skills/cuda/SKILL.md`.
pub const TEMPLATE: &str = include_str!("../../../skills/cuda/SKILL.md");

/// Placeholders of a template.
pub const PLACEHOLDERS: [&str; 11] = [
    "device",
    "hardware",
    "arch",
    "processors",
    "shared_kib",
    "cache_mib",
    "bandwidth_gb",
    "on_cpu",
    "traces",
    "profile",
    "precision",
];

/// Why a skill cannot be rendered. A usage error if the user wrote its text.
#[derive(Debug, Error)]
pub enum SkillError {
    /// It uses an unknown placeholder.
    #[error(
        "failed to render the skill: {} unknown; a skill can use {}",
        unknown(.names),
        PLACEHOLDERS.join(", ")
    )]
    Unknown {
        /// The unknown placeholders, sorted.
        names: Vec<String>,
    },
    /// It is not a valid template.
    #[error("failed to render the skill: {source}")]
    Template {
        /// The template engine's error, with its position.
        source: minijinja::Error,
    },
}

fn unknown(names: &[String]) -> String {
    let named: Vec<String> = names.iter().map(|name| format!("{{{{ {name} }}}}")).collect();
    format!("{} {}", named.join(", "), if names.len() == 1 { "is" } else { "are" })
}

/// Checks that a template can be rendered, without a device.
pub fn check(template: &str, profile: Profile) -> Result<(), SkillError> {
    for device in ["cpu", "cuda:0"] {
        render(template, &DeviceFacts::assumed(device), profile)?;
    }
    Ok(())
}

/// Renders a skill's text, such as [`TEMPLATE`], for a device and a profile.
pub fn render(
    template: &str,
    device: &DeviceFacts,
    profile: Profile,
) -> Result<String, SkillError> {
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
    let failed = |source| SkillError::Template { source };
    let parsed = environment.template_from_str(template).map_err(failed)?;
    // Named in a branch that is not taken here, it would fail on another device.
    let mut names: Vec<String> = parsed
        .undeclared_variables(false)
        .into_iter()
        .filter(|name| !PLACEHOLDERS.contains(&name.as_str()))
        .collect();
    if !names.is_empty() {
        names.sort();
        return Err(SkillError::Unknown { names });
    }
    parsed.render(values).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skill_of_every_device_and_profile_leaves_no_placeholders() {
        let cpu = crate::scripted::device();
        let gpu = DeviceFacts {
            bandwidth_bytes_per_second: Some(4_100_000_000_000),
            ..DeviceFacts::assumed("cuda:0")
        };
        for device in [&cpu, &gpu] {
            for profile in [Profile::Strict, Profile::Tf32, Profile::AsRun, Profile::Paper] {
                let text = render(TEMPLATE, device, profile).unwrap();
                assert!(!text.contains("{{") && !text.contains("{%"), "{text}");
                assert!(text.contains(&device.hardware));
            }
        }
        let on_gpu = render(TEMPLATE, &gpu, Profile::Strict).unwrap();
        assert!(on_gpu.contains("4100 GB/s") && on_gpu.contains("no GPU"), "{on_gpu}");
        assert!(!render(TEMPLATE, &cpu, Profile::Strict).unwrap().contains("cuDNN"));
    }

    #[test]
    fn custom_skill_renders_and_invalid_skill_is_refused() {
        let cpu = crate::scripted::device();
        let own = "On {{ device }}{% if not on_cpu %} with {{ shared_kib }} KiB{% endif %}.";
        assert_eq!(render(own, &cpu, Profile::Strict).unwrap(), "On cpu.");
        let said = |text: &str| render(text, &cpu, Profile::Strict).unwrap_err().to_string();
        insta::assert_snapshot!(said("{% if not on_cpu %}{{ gpu }} {{ card }}{% endif %}"), @"failed to render the skill: {{ card }}, {{ gpu }} are unknown; a skill can use device, hardware, arch, processors, shared_kib, cache_mib, bandwidth_gb, on_cpu, traces, profile, precision");
        assert!(said("{% if %}").starts_with("failed to render the skill: syntax error"));
    }
}
