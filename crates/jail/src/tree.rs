//! The processes of a jail as `/proc` of the host shows them.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use crate::sys;

/// One line of `/proc/<pid>/stat`, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    /// User and system time, its own and its reaped children's, in clock ticks.
    ticks: u64,
    /// When it began, in clock ticks since the machine did.
    started: u64,
    /// Where its stack begins: drawn when it was executed, and the same in forks. 0 if that is secret.
    stack: u64,
}

/// Linux fixes USER_HZ at 100 on every architecture in use here.
const TICKS_PER_SECOND: u64 = 100;

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything, a closing parenthesis too.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        started: number(19)?,
        stack: number(25)?,
    })
}

fn all() -> HashMap<i32, Stat> {
    let Ok(entries) = fs_err::read_dir("/proc") else { return HashMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, parse_stat(&fs_err::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect()
}

/// Ids of everything below `root`, itself left out.
fn below(root: i32, all: &HashMap<i32, Stat>) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (&pid, stat) in all {
        children.entry(stat.parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for &child in children.get(&pid).into_iter().flatten() {
            found.push(child);
            open.push(child);
        }
    }
    found
}

/// What a jail uses at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Anonymous and shared resident bytes; memory shared by several processes counts for each.
    pub(crate) memory_bytes: u64,
    pub(crate) cpu: Duration,
}

/// What a program has from the process that it is a fork of; nothing where it was executed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    /// Anonymous and shared resident bytes.
    pub(crate) resident_bytes: u64,
    /// Private writable mappings, as `RLIMIT_DATA` counts them.
    pub(crate) data_bytes: u64,
    /// Where their stacks begin until they execute something.
    stack: u64,
}

impl Inherited {
    /// What forks of this process will have.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let status = fs_err::read_to_string("/proc/self/status")?;
        let stat = stat_of(std::process::id() as i32);
        let stat = stat.ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self {
            resident_bytes: resident(&status),
            data_bytes: kilobytes(&status, "VmData:") * 1024,
            stack: stat.stack,
        })
    }
}

fn stat_of(pid: i32) -> Option<Stat> {
    parse_stat(&fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Sums over all descendants of `root`. Where they are forks, the `first`, which is ours, uses no memory
/// of its own, and what the program has inherited counts for nobody, once.
pub(crate) fn usage(root: i32, first: i32, inherited: &Inherited) -> Usage {
    let mut pids = descendants(root);
    let stats: Vec<(i32, Stat)> =
        pids.iter().filter_map(|&pid| Some((pid, stat_of(pid)?))).collect();
    let ticks: u64 = stats.iter().map(|(_, stat)| stat.ticks).sum();
    let mut shared = 0;
    if inherited.stack != 0 {
        pids.retain(|&pid| pid != first);
        let is_fork = |(pid, stat): &(i32, Stat)| *pid != first && stat.stack == inherited.stack;
        shared = if stats.iter().any(is_fork) { inherited.resident_bytes } else { 0 };
    }
    let memory_bytes: u64 = pids.iter().map(|&pid| resident_bytes(pid)).sum();
    Usage {
        memory_bytes: memory_bytes.saturating_sub(shared),
        cpu: Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND)),
    }
}

/// The descendants of `pid` that are there now, in no order, itself left out.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut pids = Vec::new();
    if children_into(pid, &mut pids).is_none() {
        pids = below(pid, &all());
    }
    pids
}

/// The processes that `pid` itself started and has not reaped, newest first.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let mut found: Vec<(u64, i32)> = descendants(pid)
        .into_iter()
        .filter_map(|child| Some((child, stat_of(child)?)))
        .filter(|(_, stat)| stat.parent == pid)
        .map(|(child, stat)| (stat.started, child))
        .collect();
    found.sort_unstable();
    found.into_iter().rev().map(|(_, child)| child).collect()
}

/// Whether `pid` is `root` or lies below it now.
pub(crate) fn is_within(mut pid: i32, root: i32) -> bool {
    // A chain of parents; a jail's bound on processes is far below this.
    for _ in 0..100_000 {
        if pid == root {
            return true;
        }
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        match parse_stat(&stat) {
            Some(stat) if stat.parent > 0 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

/// Collects descendants thread by thread, which reads only the jail's part of `/proc`; `None` on kernels
/// that do not list children. A process that moves meanwhile may be missed: good enough to measure, not
/// to kill.
fn children_into(pid: i32, found: &mut Vec<i32>) -> Option<()> {
    let Ok(threads) = fs_err::read_dir(format!("/proc/{pid}/task")) else { return Some(()) };
    for thread in threads.flatten() {
        let list = match fs_err::read_to_string(thread.path().join("children")) {
            Ok(list) => list,
            // The thread has ended, or the kernel has no such file for any thread.
            Err(_) if thread.path().exists() => return None,
            Err(_) => continue,
        };
        for child in list.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            children_into(child, found)?;
        }
    }
    Some(())
}

fn resident_bytes(pid: i32) -> u64 {
    let Ok(text) = fs_err::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    resident(&text)
}

/// Anonymous and shared resident bytes, from `/proc/<pid>/status`.
fn resident(status: &str) -> u64 {
    (kilobytes(status, "RssAnon:") + kilobytes(status, "RssShmem:")) * 1024
}

/// A field of `/proc/<pid>/status`.
fn kilobytes(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .unwrap_or(0)
}

/// Kills every descendant of this process and reaps them, for a jail without a process namespace.
///
/// Stopping all before killing any keeps a fork bomb from outrunning the list; the loop ends when nothing
/// is left, or after `rounds`. The caller is a child subreaper, so orphans come back to it.
pub(crate) fn kill_all_below(rounds: u32) -> bool {
    let own = std::process::id() as i32;
    for _ in 0..rounds {
        let pids = below(own, &all());
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            for &pid in &pids {
                // It may have ended by itself.
                drop(sys::kill(pid, signal));
            }
        }
        while let Ok(Some(_)) = sys::wait_any(false) {}
        if below(own, &all()).is_empty() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_methods_find_the_same_descendants() {
        let own = std::process::id() as i32;
        #[expect(clippy::disallowed_types, reason = "a child to be found")]
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600"])
            .spawn()
            .expect("a child");
        let mut both = (Vec::new(), Vec::new());
        for _ in 0..12_000 {
            both = (Vec::new(), below(own, &all()));
            children_into(own, &mut both.0).expect("this kernel lists children");
            if both.0.len() == 3 && both.1.len() == 3 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        both.0.sort_unstable();
        both.1.sort_unstable();
        for &pid in &both.1 {
            drop(sys::kill(pid, libc::SIGKILL));
        }
        drop(child.wait());
        assert_eq!(both.0.len(), 3);
        assert_eq!(both.0, both.1);
    }

    #[test]
    fn process_name_cannot_shift_the_stat_fields() {
        let text =
            "42 (a) R 1 2) S 7 1 1 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7 8 9 10 11 12";
        assert_eq!(parse_stat(text), Some(Stat { parent: 7, ticks: 100, started: 5, stack: 11 }));
    }

    #[test]
    fn descendants_are_followed_over_generations() {
        let stat = |parent| Stat { parent, ticks: 0, started: 0, stack: 0 };
        let all = HashMap::from([(2, stat(1)), (3, stat(2)), (4, stat(3)), (5, stat(1))]);
        let mut found = below(2, &all);
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }
}
