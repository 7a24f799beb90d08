//! The skill: the agent's system prompt, rendered for the device.

use minijinja::{Environment, UndefinedBehavior, Value, context};
use thiserror::Error;
use warpwright_record::gpu::{ARCHITECTURES, GpuArchitecture};
use warpwright_record::libraries::Library;
use warpwright_record::verdict::Profile;

use crate::judge::DeviceFacts;

/// The built-in text with its placeholders: `skills/cuda/SKILL.md`.
pub const TEMPLATE: &str = include_str!("../../../skills/cuda/SKILL.md");

/// What is appended for a task with gradients: `skills/cuda/BACKWARD.md`.
const BACKWARD: &str = include_str!("../../../skills/cuda/BACKWARD.md");

/// Placeholders of a template.
pub const PLACEHOLDERS: [&str; 13] = [
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
    "architectures",
    "libraries",
];

/// The oldest compute capability, times ten, for which nvcc 13 compiles.
const OLDEST: u32 = 75;

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
    let libraries: Vec<&str> = device.libraries.list().into_iter().map(Library::parts).collect();
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
        architectures => architectures(device),
        libraries => libraries.join(", "),
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

/// A rendered skill for a task whose call computes gradients too.
pub fn with_backward(skill: &str) -> String {
    format!("{}\n{BACKWARD}", skill.trim_end())
}

/// Rows of the table of architectures, that of the device first; empty on the cpu device.
fn architectures(device: &DeviceFacts) -> Vec<Value> {
    if device.device == "cpu" {
        return Vec::new();
    }
    let own = device.arch.as_deref().and_then(GpuArchitecture::of);
    let others = ARCHITECTURES.iter().filter(|known| known.capability >= OLDEST);
    let others = others.filter(|known| Some(*known) != own);
    let row = |known: &GpuArchitecture| {
        context! {
            name => known.name(),
            cards => known.cards,
            is_own => Some(known) == own,
            block_kib => known.shared_kib_per_block(),
            shared_kib => known.shared_kib,
            threads => known.threads,
            blocks => known.blocks,
            l2 => known.l2,
            tensor_cores => known.tensor_cores,
            copies => known.copies,
        }
    };
    own.into_iter().chain(others).map(row).collect()
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

    /// The rows of the table of architectures.
    fn rows(device: &DeviceFacts) -> Vec<String> {
        let text = render(TEMPLATE, device, Profile::Strict).unwrap();
        text.lines().filter(|line| line.starts_with("| `sm_")).map(str::to_owned).collect()
    }

    #[test]
    fn architecture_of_the_device_comes_first() {
        for (arch, has, lacks) in [
            ("sm_75", "f16, int8", "bf16"),
            ("sm_80", "`cp.async`", "fp8"),
            ("sm_86", "99 / 100", "f64"),
            ("sm_89", "fp8", "TMA (`cp"),
            ("sm_90a", "`wgmma` from shared memory", "tcgen05"),
            ("sm_100a", "tensor memory", "without multicast"),
            ("sm_103a", "`tcgen05.mma`", "without multicast"),
            ("sm_120a", "kind::mxf8f6f4", "tensor memory"),
        ] {
            let device =
                DeviceFacts { arch: Some(arch.to_owned()), ..DeviceFacts::assumed("cuda:0") };
            let rows = rows(&device);
            let first = &rows[0];
            assert!(first.contains(&format!("`{arch}` (this GPU)")), "{first}");
            assert!(first.contains(has) && !first.contains(lacks), "{first}");
            assert_eq!(rows.len(), 10);
            assert!(rows[1..].iter().all(|row| !row.contains("this GPU")), "{rows:?}");
        }
        let unknown =
            DeviceFacts { arch: Some("sm_130a".to_owned()), ..DeviceFacts::assumed("cuda:0") };
        assert!(rows(&unknown).iter().all(|row| !row.contains("this GPU")));
    }

    #[test]
    fn cpu_device_has_no_architectures_or_libraries() {
        let cpu = crate::scripted::device();
        let cpu = DeviceFacts { libraries: Library::ALL.iter().collect(), ..cpu };
        let text = render(TEMPLATE, &cpu, Profile::Strict).unwrap();
        assert!(!["sm_", "TMA", "wgmma", "CUTLASS"].iter().any(|word| text.contains(word)));
    }

    #[test]
    fn allowed_libraries_are_named_on_a_gpu() {
        let gpu = DeviceFacts::assumed("cuda:0");
        let text = render(TEMPLATE, &gpu, Profile::Strict).unwrap();
        assert!(text.contains("cuDNN for convolutions, and no other library."), "{text}");
        let gpu = DeviceFacts { libraries: Library::ALL.iter().collect(), ..gpu };
        let text = render(TEMPLATE, &gpu, Profile::Strict).unwrap();
        assert!(text.contains("the headers of CUTLASS and CuTe, cub and thrust"), "{text}");
    }

    #[test]
    fn custom_skill_renders_and_invalid_skill_is_refused() {
        let cpu = crate::scripted::device();
        let own = "On {{ device }}{% if not on_cpu %} with {{ shared_kib }} KiB{% endif %}.";
        assert_eq!(render(own, &cpu, Profile::Strict).unwrap(), "On cpu.");
        let said = |text: &str| render(text, &cpu, Profile::Strict).unwrap_err().to_string();
        insta::assert_snapshot!(said("{% if not on_cpu %}{{ gpu }} {{ card }}{% endif %}"), @"failed to render the skill: {{ card }}, {{ gpu }} are unknown; a skill can use device, hardware, arch, processors, shared_kib, cache_mib, bandwidth_gb, on_cpu, traces, profile, precision, architectures, libraries");
        assert!(said("{% if %}").starts_with("failed to render the skill: syntax error"));
    }
}
