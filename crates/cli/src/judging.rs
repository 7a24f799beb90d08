//! Opens the judges that the options of a command select.

use warpwright_jail::{Jail, Requirement};
use warpwright_judge::Degenerate;
use warpwright_record::verdict::Profile;
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::folders;
use warpwright_rollout::judge_host::{HostFiles, JudgeHost, JudgeOptions, RequiredTier};

use crate::args::{Common, HostArgs, IsolationArg, TierArg};
use crate::failure::Failure;
use crate::printer::Printer;

/// The options of a judge with this profile.
pub(crate) fn options(common: &Common, profile: Profile) -> JudgeOptions {
    JudgeOptions {
        profile,
        seed: common.seed,
        baselines: common.host.baselines.set(),
        require_full_isolation: common.host.require_isolation == IsolationArg::Full,
        degenerate: Degenerate::Refused,
        tier: common.require_tier.and_then(TierArg::required).into(),
        libraries: common.libraries.unwrap_or_default(),
        share_baselines: true,
        memory_limit: common.memory_limit.map(|limit| limit.0),
        window_ms: None,
    }
}

/// The same, for a command whose verdicts may train a policy: unless the user names a tier, one in which no host
/// code of a candidate runs while it is judged, on devices where that costs little.
pub(crate) fn training_options(common: &Common, profile: Profile) -> JudgeOptions {
    let options = options(common, profile);
    match common.require_tier {
        Some(_) => options,
        None => JudgeOptions { tier: RequiredTier::DeviceOnGpus, ..options },
    }
}

/// The files of this machine that judging uses.
pub(crate) fn files(host: &HostArgs) -> HostFiles {
    let cache = folders::cache(host.cache.as_deref());
    HostFiles { python: host.python.clone(), cache }
}

/// The jail of commands that open no judge.
pub(crate) fn jail(host: &HostArgs) -> Result<Jail, Failure> {
    jail_of(host.require_isolation)
}

/// The same, by the required isolation alone.
pub(crate) fn jail_of(isolation: IsolationArg) -> Result<Jail, Failure> {
    let full = isolation == IsolationArg::Full;
    let requirement = if full { Requirement::Full } else { Requirement::Any };
    Ok(Jail::detect(requirement).map_err(RolloutError::from)?)
}

/// Opens one device.
pub(crate) fn open(
    common: &Common,
    device: DeviceChoice,
    options: JudgeOptions,
    printer: Printer,
) -> Result<JudgeHost, Failure> {
    Ok(JudgeHost::open(&files(&common.host), device, options, &printer.notice())?)
}

/// Opens the devices that the command names.
pub(crate) fn open_all(
    common: &Common,
    options: JudgeOptions,
    printer: Printer,
) -> Result<Vec<JudgeHost>, Failure> {
    Ok(JudgeHost::open_all(&files(&common.host), &common.device, options, &printer.notice())?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use warpwright_record::verdict::Tier;

    use super::*;
    use crate::args::{Cli, Command};

    /// The options of `train` with these arguments.
    fn of_training(more: &[&str]) -> Common {
        let words = ["warpwright", "train", "run", "config.toml"].iter().chain(more);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Train(args) => args.common,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn required_tier_has_a_default_per_command() {
        let usual = of_training(&[]);
        assert_eq!(options(&usual, Profile::Strict).tier, RequiredTier::Any);
        assert_eq!(training_options(&usual, Profile::Strict).tier, RequiredTier::DeviceOnGpus);
        for (word, tier) in [
            ("any", RequiredTier::Any),
            ("host", RequiredTier::Always(Tier::Host)),
            ("device", RequiredTier::Always(Tier::Device)),
        ] {
            let chosen = of_training(&["--require-tier", word]);
            assert_eq!(options(&chosen, Profile::Strict).tier, tier);
            assert_eq!(training_options(&chosen, Profile::Strict).tier, tier);
        }
    }
}
