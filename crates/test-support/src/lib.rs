//! What tests need of a machine: a test fails where it is missing, or is skipped if `WARPWRIGHT_SKIP` names it.
//!
//! The tests of all crates call [`missing`] where they find that the machine lacks something. The message of a failed test
//! says how to get it, and how to skip the tests that need it.
//!
//! ```no_run
//! use warpwright_test_support::{Need, missing};
//!
//! fn page_shows_the_verdict() {
//!     if !std::path::Path::new("/usr/bin/chromium").exists() {
//!         missing(Need::Browser);
//!         return;
//!     }
//! }
//! page_shows_the_verdict();
//! ```
//!
//! It detects nothing: each test finds out itself what is missing. It is a dev-dependency only; no program links it.

pub mod generated;

/// The environment variable that lists the names of what may be missing, separated by commas: `nvcc,fork-server`.
pub const VARIABLE: &str = "WARPWRIGHT_SKIP";

macro_rules! needs {
    ($($need:ident: $name:literal, $what:literal, $cure:literal;)+) => {
        /// What a test can need that a machine may lack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Need {
            $(#[doc = $what] $need,)+
        }

        impl Need {
            fn all() -> &'static [Self] {
                &[$(Self::$need),+]
            }

            /// Its name in [`VARIABLE`].
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$need => $name,)+
                }
            }

            /// What it is, and how to get it.
            fn explanation(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$need => ($what, $cure),)+
                }
            }
        }
    };
}

needs! {
    Browser: "browser", "Chromium or Chrome", "`sudo apt-get install -y chromium`";
    Bubblewrap: "bubblewrap", "bubblewrap", "`sudo apt-get install -y bubblewrap`";
    Cutlass: "cutlass", "the headers of CUTLASS", "`scripts/setup.d/libraries` installs them into .venv";
    Cgroup: "cgroup", "a control group for memory and processes",
        "run the tests as root where `/sys/fs/cgroup` can be written";
    ComputeSanitizer: "compute-sanitizer", "compute-sanitizer", "install the CUDA toolkit";
    Faketime: "faketime", "libfaketime", "`sudo apt-get install -y faketime`";
    ForkServer: "fork-server", "a jail with a fork server (backend `namespaces` or `user-namespaces`)",
        "run the tests as root";
    Landlock: "landlock", "Landlock", "use Linux 5.13 or newer, with Landlock enabled";
    Mount: "mount", "the right to mount a file system",
        "run the tests as root; a container needs `--cap-add SYS_ADMIN`";
    NatsServer: "nats-server", "nats-server", "`sudo apt-get install -y nats-server`";
    Ncu: "ncu", "Nsight Compute (`ncu`)", "install the CUDA toolkit";
    NetworkNamespaces: "network-namespaces", "`ip` and the right to create network namespaces",
        "`sudo apt-get install -y iproute2`, and allow user namespaces";
    Nvcc: "nvcc", "nvcc", "`TORCH_BACKEND=locked make setup` installs it into .venv";
    ProcessorTimes: "processor-times", "the processor times in `/proc/stat`",
        "run the tests outside the sandbox that hides them";
    Root: "root", "the rights of root", "run the tests as root";
    SecondGpu: "second-gpu", "two GPUs", "run the tests on a machine that has them";
    UserNamespaces: "user-namespaces", "the right to create user namespaces",
        "allow it, on Ubuntu by `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`";
}

/// Says that this machine lacks `need`. The caller, a test, then returns or leaves out what needs it.
///
/// If [`VARIABLE`] names the need, this prints one line, which says that the test is skipped.
///
/// # Panics
/// If [`VARIABLE`] does not name it, or contains an unknown name.
#[track_caller]
#[expect(clippy::panic, clippy::print_stderr, reason = "fails or skips a test")]
pub fn missing(need: Need) {
    let names = std::env::var(VARIABLE).unwrap_or_default();
    match skip(need, &names) {
        Ok(line) => eprintln!("{line}"),
        Err(message) => panic!("{message}"),
    }
}

/// The line of a skipped test, or the message of a failed one. `names` is the value of [`VARIABLE`].
fn skip(need: Need, names: &str) -> Result<String, String> {
    let mut names: Vec<&str> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let known: Vec<&str> = Need::all().iter().map(|need| need.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "{VARIABLE} has the unknown name {unknown}; known: {}",
            known.join(", ")
        ));
    }
    let (what, cure) = need.explanation();
    if names.contains(&need.name()) {
        return Ok(format!("skipped: this test needs {what}, and {VARIABLE} has {}", need.name()));
    }
    names.push(need.name());
    let gpu = matches!(need, Need::ComputeSanitizer | Need::Ncu | Need::SecondGpu);
    Err(format!(
        "this test needs {what}, which this machine lacks: {cure}. To skip the tests that need it: \
         {VARIABLE}={} make test{}",
        names.join(","),
        if gpu { "-gpu" } else { "" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_says_how_to_install_or_skip() {
        assert_eq!(
            skip(Need::Browser, "").unwrap_err(),
            "this test needs Chromium or Chrome, which this machine lacks: `sudo apt-get install -y chromium`. To skip \
             the tests that need it: WARPWRIGHT_SKIP=browser make test"
        );
        let further = skip(Need::Ncu, "root, nvcc").unwrap_err();
        assert!(further.ends_with(": WARPWRIGHT_SKIP=root,nvcc,ncu make test-gpu"), "{further}");
    }

    #[test]
    fn named_need_is_skipped_with_one_line() {
        for need in Need::all() {
            let line = skip(*need, &format!("mount, {},", need.name())).unwrap();
            assert!(line.starts_with("skipped: ") && line.ends_with(need.name()), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
        assert!(skip(Need::NatsServer, "nats-server").is_ok());
        assert!(skip(Need::Root, "nats-server").is_err(), "another name skips nothing");
    }

    #[test]
    fn unknown_name_in_the_list_is_refused() {
        for names in ["nat-server", "root,all"] {
            let message = skip(Need::Root, names).unwrap_err();
            assert!(
                message.contains("unknown name") && message.contains("second-gpu"),
                "{message}"
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Need::all().iter().map(|need| need.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Need::all().len());
    }
}
