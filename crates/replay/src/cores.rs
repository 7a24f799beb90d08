//! The processor cores that this process runs on.

use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::failure::Failure;

/// Keeps all threads of this process, also those of the driver, to these cores.
pub(crate) fn pin(cores: &[usize]) -> Result<(), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        Failure::System(format!("failed to run on the cores {}: {why}", cores.join(", ")))
    };
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(fail(&format!("there is no core {core}")));
        }
        set.set(core);
    }
    for thread in fs_err::read_dir(Path::new("/proc/self/task")).map_err(|error| fail(&error))? {
        let name = thread.map_err(|error| fail(&error))?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| fail(&"a thread has no number"))?;
        match sched_setaffinity(Some(id), &set) {
            // A thread that ended since needs no core.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(fail(&error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_do_not_exist_are_refused() {
        let own = rustix::thread::sched_getaffinity(None).unwrap();
        let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core)).collect();
        assert_eq!(pin(&own), Ok(()), "the control");
        for cores in [vec![], vec![CpuSet::MAX_CPU - 1], vec![usize::MAX]] {
            let failure = pin(&cores).unwrap_err();
            assert_eq!(failure.kind(), "system", "{failure}");
        }
    }
}
