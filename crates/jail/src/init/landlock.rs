//! The Landlock backend, for machines that allow no namespaces: the program keeps the host's file system,
//! process list and user, but may open only what was named.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::plan::Plan;
use crate::spec::{Access, Gpu};
use crate::sys;

use super::failure::Failure;

/// Newest interface this was written against; older kernels get what they know.
const TARGET: ABI = ABI::V7;

/// Devices every program may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Restricts this process, and all it starts, to the plan's paths.
pub(super) fn restrict(plan: &Plan) -> Result<(), Failure> {
    let failure =
        |message: String| Failure { step: "restrict paths with Landlock".into(), message };
    match build(plan) {
        Ok(RulesetStatus::NotEnforced) => Err(failure("this kernel has no Landlock".into())),
        Ok(_) => Ok(()),
        Err(error) => Err(failure(error.to_string())),
    }
}

fn build(plan: &Plan) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(TARGET);
    let read = AccessFs::from_read(TARGET);
    let paths = |access: Access| -> Vec<PathBuf> {
        plan.mounts
            .iter()
            .filter(|mount| mount.access == access)
            .map(|mount| mount.source.clone())
            .collect()
    };
    let mut writable = paths(Access::ReadWrite);
    writable.extend(plan.scratch.clone());
    let mut readable = paths(Access::ReadOnly);
    readable.push("/proc".into());
    let mut usable: Vec<PathBuf> = DEVICES.map(PathBuf::from).into();
    if plan.gpu != Gpu::None {
        writable.push("/dev/shm".into());
        // CUDA names its threads.
        usable.extend(fs_err::canonicalize("/proc/self").ok());
    }
    let use_files: BitFlags<AccessFs> = AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::ReadDir
        | AccessFs::Truncate
        | AccessFs::IoctlDev;
    let status = Ruleset::default()
        .handle_access(all)?
        .handle_access(AccessNet::from_all(TARGET))?
        .scope(Scope::from_all(TARGET))?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, all))?
        .add_rules(path_beneath_rules(usable, use_files))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Threads of this user that run now: `RLIMIT_NPROC` counts them all, so the jail's share comes on top.
pub(super) fn threads_of_user(uid: u32) -> u64 {
    let Ok(entries) = fs_err::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| threads(&entry.path(), uid))
        .sum()
}

fn threads(process: &Path, uid: u32) -> Option<u64> {
    let text = fs_err::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
    };
    (field("Uid:")?.parse() == Ok(uid)).then(|| field("Threads:")?.parse().ok()).flatten()
}

/// Version of the interface that this kernel offers; 0 without Landlock.
pub(crate) fn kernel_version() -> i64 {
    const LANDLOCK_CREATE_RULESET_VERSION: usize = 1;
    sys::attempt(libc::SYS_landlock_create_ruleset, [0, 0, LANDLOCK_CREATE_RULESET_VERSION])
        .unwrap_or(0)
}
