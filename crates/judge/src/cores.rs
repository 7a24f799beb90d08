//! Processor cores kept for what is timed.
//!
//! Launching kernels is a processor's work: where processes that build, trace and compile keep every
//! core busy, a call of short kernels takes as long as its launches do. Some cores are taken away
//! from this thread, and so from every thread and process that it starts later; what is timed is
//! moved to them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Fewest cores that must remain for everything else.
const REMAINING: usize = 4;

/// Takes `count` cores from this thread's; none if too few would remain or the system refuses.
pub(crate) fn reserve(count: usize) -> Vec<usize> {
    let Ok(mine) = sched_getaffinity(None) else { return Vec::new() };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| mine.is_set(core)).collect();
    if allowed.len() < count + REMAINING {
        return Vec::new();
    }
    let kept = allowed[allowed.len() - count..].to_vec();
    let mut rest = mine;
    for &core in &kept {
        rest.unset(core);
    }
    if sched_setaffinity(None, &rest).is_err() {
        return Vec::new();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_cores_are_taken_from_this_thread_or_none_are() {
        // On a thread of its own: what it takes is gone for it.
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let kept = reserve(1);
            let after = sched_getaffinity(None).unwrap();
            if before.count() as usize > REMAINING {
                assert_eq!(kept.len(), 1);
                assert!(before.is_set(kept[0]) && !after.is_set(kept[0]));
                assert_eq!(after.count() + 1, before.count());
            } else {
                assert!(kept.is_empty());
                assert_eq!(after.count(), before.count());
            }
        })
        .join()
        .unwrap();
    }
}
