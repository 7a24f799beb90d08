//! Reserves processor cores for timed processes.
//!
//! The processor launches kernels. If processes that build, trace and compile keep every core busy, a call
//! of short kernels takes as long as its launches. The judge removes some cores from this thread, and so
//! from every thread and process that it starts later, and moves timed processes to them.

use std::num::NonZero;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Fewest cores that must remain for everything else.
const REMAINING: usize = 4;

/// Cores that this program may use, those that are kept for timing included.
pub(crate) fn all() -> usize {
    static ALL: OnceLock<usize> = OnceLock::new();
    *ALL.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Cores on which this thread may run.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(mine) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| mine.is_set(core)).collect()
}

/// Takes `count` cores or a few more from this thread's; none if too few would remain or the system
/// refuses. Threads of one physical core are taken together: a busy sibling slows a core as well.
pub(crate) fn reserve(count: usize) -> Vec<usize> {
    // Before some are taken.
    all();
    let Ok(mine) = sched_getaffinity(None) else { return Vec::new() };
    let allowed = allowed();
    let mut kept = choose(&allowed, count, siblings);
    if allowed.len() < kept.len() + REMAINING {
        return Vec::new();
    }
    kept.sort_unstable();
    let mut rest = mine;
    for &core in &kept {
        rest.unset(core);
    }
    if sched_setaffinity(None, &rest).is_err() {
        return Vec::new();
    }
    kept
}

/// Whole physical cores from the end until there are `count`.
fn choose(allowed: &[usize], count: usize, siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for &core in allowed.iter().rev() {
        if kept.len() >= count {
            break;
        }
        if !kept.contains(&core) {
            kept.push(core);
            let others = siblings(core).into_iter();
            kept.extend(others.filter(|other| *other != core && allowed.contains(other)));
        }
    }
    kept
}

/// Threads of the same physical core, as far as the system tells.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs_err::read_to_string(path).map_or_else(|_| Vec::new(), |text| list(text.trim()))
}

/// The kernel's list of numbers: `0,32` or `4-7,9`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (usize, usize) = (low.parse().ok()?, high.parse().ok()?);
        (high < CpuSet::MAX_CPU).then_some(low..=high)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_are_kept_together() {
        let pairs = |core: usize| vec![core % 4, core % 4 + 4];
        assert_eq!(choose(&[0, 1, 2, 3, 4, 5, 6, 7], 2, pairs), [7, 3]);
        assert_eq!(choose(&[0, 1, 2, 3, 4, 5, 6, 7], 3, pairs), [7, 3, 6, 2]);
        assert_eq!(choose(&[0, 1, 2, 7], 2, pairs), [7, 2], "what is not allowed is left alone");
        assert_eq!(choose(&[0, 1, 2], 2, |_| Vec::new()), [2, 1], "where nothing is told");
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(list("0,32"), [0, 32]);
        assert_eq!(list("4-7,9"), [4, 5, 6, 7, 9]);
        assert_eq!(list("5"), [5]);
        assert_eq!(list("x,-,3-,9999999999"), Vec::<usize>::new());
    }

    #[test]
    fn reserved_cores_leave_this_threads_affinity_mask() {
        // On a thread of its own: what it takes is gone for it.
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let kept = reserve(1);
            let after = sched_getaffinity(None).unwrap();
            if before.count() as usize > REMAINING {
                assert!(kept.iter().all(|&core| before.is_set(core) && !after.is_set(core)));
                assert_eq!(after.count() as usize + kept.len(), before.count() as usize);
            } else {
                assert!(kept.is_empty());
                assert_eq!(after.count(), before.count());
            }
        })
        .join()
        .unwrap();
    }
}
