//! Helpers shared by the tests.
#![expect(clippy::disallowed_types, reason = "the positive controls run outside the jail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use warpwright_jail::{
    Backend, Child, Finished, ForkServer, Isolation, Jail, JailError, Outcome, Spec, Warm,
};
use warpwright_test_support::{Need, VARIABLE};

/// Set when the tests run again without privileges: the folder of the programs, readable by all
/// users.
pub(crate) const AGAIN: &str = "JAIL_TEST_AGAIN";

/// Whether this is the superuser.
pub(crate) fn is_root() -> bool {
    fs_err::read_to_string("/proc/self/status").expect("own status").contains("Uid:\t0\t")
}

/// A program that is built with the tests.
fn example(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(AGAIN) {
        return Path::new(&folder).join(name);
    }
    let own = std::env::current_exe().expect("own path");
    let folder = own.parent().and_then(Path::parent).expect("target folder").join("examples");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is built by cargo test", path.display());
    path
}

/// The attacker.
pub(crate) fn attack_program() -> PathBuf {
    example("attack")
}

/// The parent of forks (`examples/forked.rs`).
pub(crate) fn warm(arguments: &[&str]) -> Warm {
    Warm {
        label: "forked".into(),
        program: example("forked"),
        args: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        env: vec![("SERVER".into(), "yes".into())],
    }
}

/// A jail, and how programs start in it: executed by the helper, or as forks of a server.
pub(crate) struct Place {
    pub(crate) jail: Jail,
    pub(crate) server: Option<ForkServer>,
}

impl Place {
    /// The fork server; the place must come from [`forks`].
    pub(crate) fn server(&self) -> &ForkServer {
        self.server.as_ref().expect("a place of forks")
    }

    pub(crate) fn spawn(&self, spec: Spec) -> Result<Child, JailError> {
        match &self.server {
            None => self.jail.spawn(spec),
            Some(server) => server.spawn(spec),
        }
    }

    pub(crate) fn run(&self, spec: Spec) -> Result<Finished, JailError> {
        self.spawn(spec)?.wait()
    }

    pub(crate) fn isolation(&self) -> &Isolation {
        self.jail.isolation()
    }

    pub(crate) fn can_rename(&self) -> bool {
        self.jail.can_rename()
    }

    pub(crate) fn has_own_network(&self) -> bool {
        self.server.is_none() && self.jail.has_own_network()
    }
}

/// The backends to test as this user, each with all its ways to start programs. `namespaces` leaves
/// out Landlock, for tests of features that it lacks.
pub(crate) fn jails() -> Vec<(Backend, Place)> {
    let backends: &[Backend] = if is_root() {
        &[Backend::Namespaces, Backend::Landlock]
    } else {
        &[Backend::Bubblewrap, Backend::UserNamespaces, Backend::Landlock]
    };
    let mut places = Vec::new();
    for &backend in backends {
        let jail = match Jail::with_backend(backend) {
            Ok(jail) => jail,
            Err(error) => panic!("{} does not work here: {error}", backend.name()),
        };
        if matches!(backend, Backend::Namespaces | Backend::UserNamespaces) {
            let server = match ForkServer::start(&jail, &warm(&[])) {
                Ok(server) => Some(server),
                Err(error) => panic!("no fork server in {}: {error}", backend.name()),
            };
            places.push((backend, Place { jail: jail.clone(), server }));
        }
        places.push((backend, Place { jail, server: None }));
    }
    places
}

/// The places whose programs are forks.
pub(crate) fn forks() -> Vec<(Backend, Place)> {
    jails().into_iter().filter(|(_, place)| place.server.is_some()).collect()
}

/// The places with namespaces.
pub(crate) fn namespaces() -> Vec<(Backend, Place)> {
    jails().into_iter().filter(|(backend, _)| *backend != Backend::Landlock).collect()
}

/// An attack with the mounts it needs to start.
pub(crate) fn attack<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Spec {
    let program = attack_program();
    Spec::new(&program).args(arguments).with_system().read_only(&program)
}

/// Runs an attack in the jail.
pub(crate) fn inside(jail: &Place, spec: Spec) -> Finished {
    jail.run(spec).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs an attack outside: (whether it worked, its output).
pub(crate) fn outside(arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(attack_program()).args(arguments).output().expect("the attack starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Asserts that an attack was refused in the jail, with these words.
pub(crate) fn assert_refused(backend: Backend, finished: &Finished, words: &[&str]) {
    let said = finished.stdout.text();
    assert_eq!(finished.outcome, Outcome::Exited(1), "{}: {said}", backend.name());
    assert!(words.iter().any(|words| said.contains(words)), "{}: {said}", backend.name());
}

/// Asserts that an attack, or an honest action, worked.
pub(crate) fn assert_worked(backend: Backend, finished: &Finished) -> String {
    let said = finished.stdout.text();
    assert_eq!(
        finished.outcome,
        Outcome::Exited(0),
        "{}: {said}{}",
        backend.name(),
        finished.stderr.text()
    );
    said.trim().to_owned()
}

/// Number of processes, in any jail or none, whose command line names `path`.
pub(crate) fn processes_of(path: &Path) -> usize {
    let path = path.display().to_string();
    outside(&["processes"]).1.lines().filter(|line| line.contains(&path)).count()
}

/// A folder of this test, with its real name.
pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = fs_err::canonicalize(folder.path()).expect("its name");
    (folder, path)
}

/// A process outside that lives for a while; killed on drop.
pub(crate) struct Victim(std::process::Child);

impl Victim {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("3600").spawn().expect("sleep starts"))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }

    pub(crate) fn has_died(&mut self) -> bool {
        eventually(|| !self.is_alive())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Whether the condition becomes true; false only if something hangs.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_mins(2);
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Runs all tests of this binary again as `nobody`.
pub(crate) fn run_again_without_privileges() -> (bool, String) {
    let (_guard, folder) = folder();
    let own = std::env::current_exe().expect("own path");
    let helper =
        own.parent().and_then(Path::parent).expect("target folder").join("warpwright-jail-init");
    let programs = [
        (attack_program(), "attack"),
        (example("forked"), "forked"),
        (helper, "helper"),
        (own, "tests"),
    ];
    for (from, name) in programs {
        let copy = folder.join(name);
        fs_err::copy(from, &copy).expect("a copy of the program");
        // It must be what keeps programs from changing these that they are shown read-only.
        std::os::unix::fs::chown(copy, Some(65534), Some(65534)).expect("it changes hands");
    }
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).expect("the folder changes hands");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(folder.join("tests"))
        .args(["--test-threads", "2", "--skip", "without_privileges"])
        .env(AGAIN, &folder)
        .env(VARIABLE, Need::Root.name())
        .env("WARPWRIGHT_JAIL_INIT", folder.join("helper"))
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .expect("setpriv starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}
