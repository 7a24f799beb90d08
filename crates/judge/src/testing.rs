//! What unit tests share.

use std::path::{Path, PathBuf};

use warpwright_jail::Requirement;
use warpwright_record::verdict::Profile;

use crate::degenerate::Degenerate;
use crate::device::Device;
use crate::judge::{BaselineSet, JudgeConfig, LocalJudge};

/// A judge on the cpu device, with the project's own torch and the cache that tests share.
pub(crate) fn judge() -> LocalJudge {
    judge_on(Device::Cpu)
}

/// The same on a device.
pub(crate) fn judge_on(device: Device) -> LocalJudge {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = fs_err::canonicalize(here.join("../..")).unwrap();
    let python = std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| workspace.join(".venv/bin/python"), PathBuf::from);
    LocalJudge::open(JudgeConfig {
        device,
        profile: Profile::Strict,
        seed: 1,
        baselines: BaselineSet::Usual,
        degenerate: Degenerate::Judged,
        isolation: Requirement::Any,
        python,
        cache: workspace.join("target/test-cache"),
        window: None,
    })
    .unwrap()
}
