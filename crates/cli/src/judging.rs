//! Opens the judges that the options of a command select.

use warpwright_judge::{BaselineSet, Degenerate};
use warpwright_record::verdict::Profile;
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_rollout::folders;
use warpwright_rollout::judge_host::{HostFiles, JudgeHost, JudgeOptions};

use crate::args::{BaselinesArg, Common, IsolationArg};
use crate::failure::Failure;
use crate::printer::Printer;

/// The options of a judge with this profile.
pub(crate) fn options(common: &Common, profile: Profile) -> JudgeOptions {
    JudgeOptions {
        profile,
        seed: common.seed,
        baselines: match common.baselines {
            BaselinesArg::Default => BaselineSet::Usual,
            BaselinesArg::All => BaselineSet::All,
        },
        require_full_isolation: common.require_isolation == IsolationArg::Full,
        degenerate: Degenerate::Refused,
        tier: common.require_tier.required(),
        share_baselines: true,
        memory_limit: common.memory_limit.map(|limit| limit.0),
        window_ms: None,
    }
}

/// The files of this machine that judging uses.
pub(crate) fn files(common: &Common) -> HostFiles {
    let cache = folders::cache(common.cache.as_deref());
    HostFiles { python: common.python.clone(), cache }
}

/// Opens one device.
pub(crate) fn open(
    common: &Common,
    device: DeviceChoice,
    options: JudgeOptions,
    printer: Printer,
) -> Result<JudgeHost, Failure> {
    Ok(JudgeHost::open(&files(common), device, options, &|text| printer.say(text))?)
}

/// Opens the devices that the command names.
pub(crate) fn open_all(
    common: &Common,
    options: JudgeOptions,
    printer: Printer,
) -> Result<Vec<JudgeHost>, Failure> {
    let notice = &|text: &str| printer.say(text);
    Ok(JudgeHost::open_all(&files(common), &common.device, options, notice)?)
}
