//! Attributes the processes that have a GPU open: the judge's own or others'.

use fs_err as fs;
use warpwright_record::conditions::OtherProcess;

use super::GpuProcess;

/// From here on another's process that computed on the GPU meanwhile makes times worth nothing, in
/// percent of its time: the margin at which rewards change. Below, and where the driver does not say
/// how much one used, the verdict tells of it.
const BUSY_PERCENT: u32 = 5;

/// Deepest chain of parents that is followed.
const DEPTH: usize = 64;

/// Those that are not below `judge` in the tree of processes. `None` where the two cannot be told
/// apart: the judge has the GPU open itself, so a list that lacks it counts processes differently (as
/// inside a container that has its own numbers).
pub(crate) fn others(
    listed: &[GpuProcess],
    judge: u32,
    parent: impl Fn(u32) -> Option<u32>,
    name: impl Fn(u32) -> String,
) -> Option<Vec<OtherProcess>> {
    if !listed.iter().any(|process| process.pid == judge) {
        return None;
    }
    let ours = |pid: u32| {
        let ancestors = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|p| *p > 0));
        ancestors.take(DEPTH).any(|ancestor| ancestor == judge)
    };
    let strangers = listed.iter().filter(|process| !ours(process.pid));
    let other = |process: &GpuProcess| OtherProcess {
        pid: process.pid,
        name: name(process.pid),
        memory_bytes: process.memory_bytes,
        sm_percent: process.sm_percent,
    };
    Some(strangers.map(other).collect())
}

/// One that computed so much that times are worth nothing.
pub(crate) fn busiest(others: &[OtherProcess]) -> Option<&OtherProcess> {
    let busy = others.iter().filter(|other| other.sm_percent >= Some(BUSY_PERCENT));
    busy.max_by_key(|other| other.sm_percent)
}

/// As a verdict names it.
pub(crate) fn words(other: &OtherProcess) -> String {
    let mut text = format!("process {}", other.pid);
    if !other.name.is_empty() {
        text = format!("{text} ({})", other.name);
    }
    if let Some(bytes) = other.memory_bytes {
        text = format!("{text}, {} MiB", bytes >> 20);
    }
    if let Some(percent) = other.sm_percent {
        text = format!("{text}, {percent} % of the GPU's time");
    }
    text
}

/// The parent of a process, as this machine's `/proc` tells.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, a closing parenthesis too.
    text.get(text.rfind(')')? + 2..)?.split(' ').nth(1)?.parse().ok()
}

/// The name of a process, for people.
pub(crate) fn name(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim().chars().filter(|c| !c.is_control()).take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(pids: &[(u32, Option<u32>)]) -> Vec<GpuProcess> {
        let process = |(pid, sm_percent): &(u32, Option<u32>)| GpuProcess {
            pid: *pid,
            memory_bytes: Some(3 << 30),
            sm_percent: *sm_percent,
        };
        pids.iter().map(process).collect()
    }

    /// 100 is the judge; 130 is its great-grandchild; 200 and 201 are somebody else's.
    fn tree(pid: u32) -> Option<u32> {
        match pid {
            100 | 200 => Some(1),
            110 => Some(100),
            120 => Some(110),
            130 => Some(120),
            201 => Some(200),
            1 => Some(0),
            _ => None,
        }
    }

    fn find(pids: &[(u32, Option<u32>)]) -> Option<Vec<OtherProcess>> {
        others(&listed(pids), 100, tree, |_| "python3".to_owned())
    }

    #[test]
    fn jailed_processes_are_ours_below_any_parent() {
        assert_eq!(find(&[(100, None), (110, None), (130, Some(99))]), Some(Vec::new()));
    }

    #[test]
    fn foreign_processes_are_named() {
        let found = find(&[(100, Some(2)), (201, Some(37)), (999, None)]).unwrap();
        assert_eq!(found.iter().map(|o| o.pid).collect::<Vec<_>>(), [201, 999]);
        let busy = busiest(&found).unwrap();
        assert_eq!(words(busy), "process 201 (python3), 3072 MiB, 37 % of the GPU's time");
    }

    #[test]
    fn an_idle_process_with_an_open_gpu_is_not_busy() {
        let found = find(&[(100, None), (201, Some(4)), (999, None)]).unwrap();
        assert_eq!(busiest(&found), None);
        assert_eq!(found.len(), 2, "positive control");
    }

    /// Where the judge itself is not listed, ids mean something else, or nothing is listed at all.
    #[test]
    fn a_process_list_without_the_judge_is_ignored() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[(4711, Some(80)), (4712, None)]), None);
    }

    #[test]
    fn parents_are_read_from_this_machine() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
        assert!(!name(std::process::id()).is_empty());
    }
}
