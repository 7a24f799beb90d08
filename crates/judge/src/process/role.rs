//! The three kinds of process, and the differences between them.

use crate::device::device_arbiter::Purpose;

/// Role of a process. Those before [`Self::Replayer`] are forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Oracle,
    Baseline,
    Runner,
    Recorder,
    Replayer,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Baseline => "baseline",
            Self::Runner => "runner",
            Self::Recorder => "recorder",
            Self::Replayer => "replayer",
        }
    }

    /// Environment variables that torch and its libraries read when they are loaded. `on_host`:
    /// whether they compute on the host's cores.
    pub(crate) fn environment(self, on_host: bool) -> &'static [(&'static str, &'static str)] {
        match (self, on_host) {
            // Memory that is given back to the system must be cleared by it when it is needed again,
            // which takes longer than most that is computed there. Nobody times it: its threads leave
            // the cores to others while they wait.
            (Self::Oracle, true) => &[
                ("MALLOC_MMAP_MAX_", "0"),
                ("MALLOC_TRIM_THRESHOLD_", "4294967296"),
                ("OMP_WAIT_POLICY", "PASSIVE"),
            ],
            (Self::Baseline, false) => &[("TORCHINDUCTOR_COMPILE_THREADS", "1")],
            // Probing which vector instructions work starts torch a dozen times; the compiler tells
            // soon enough.
            (Self::Baseline, true) => {
                &[("TORCHINDUCTOR_COMPILE_THREADS", "1"), ("TORCHINDUCTOR_VEC_ISA_OK", "1")]
            }
            (Self::Oracle | Self::Runner | Self::Recorder | Self::Replayer, _) => &[],
        }
    }

    /// Purpose for which the process holds the device after its start.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::Oracle => Purpose::Reference,
            Self::Baseline => Purpose::Baselines,
            Self::Runner | Self::Replayer => Purpose::Start,
            Self::Recorder => Purpose::Host,
        }
    }
}
