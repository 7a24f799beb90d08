//! Runners that are forks of one process which has imported torch: a start takes 0.1 s or less instead of
//! a second or more of a core.
//!
//! The parent (`forkserver.py`) is started with the first runner, and once more should it die later. Where there is
//! none (another backend, no library beside the program) runners are executed, as all others are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpwright_jail::{Child, ForkServer, Spec, Warm};

use crate::error::JudgeError;
use crate::process::Host;

/// Longest the parent may take to import torch. A busy host is slow, not silent.
const READY_PATIENCE: Duration = Duration::from_mins(2);
/// How often one is started.
const STARTS: u32 = 2;

/// The parent of one judge's runners.
#[derive(Default)]
pub(crate) struct Forks(Mutex<State>);

#[derive(Default)]
struct State {
    server: Option<Arc<ForkServer>>,
    starts: u32,
    closed: bool,
    told: HowStarted,
}

/// How runners have been started so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HowStarted {
    /// As forks of a parent that has imported torch.
    pub forked: u64,
    /// By executing Python.
    pub executed: u64,
    /// Why not as forks, when that last failed.
    pub reason: Option<String>,
}

impl Forks {
    /// Starts what `make` describes, a module of the package, as a fork. `None`: it must be executed.
    pub(crate) fn spawn<T>(
        &self,
        host: &Host,
        make: &dyn Fn() -> Result<(Spec, T), JudgeError>,
    ) -> Result<Option<(Child, T)>, JudgeError> {
        while let Some(server) = self.server(host) {
            let (spec, rest) = make()?;
            match server.ready(READY_PATIENCE).and_then(|()| server.spawn(spec)) {
                Ok(child) => {
                    self.lock().told.forked += 1;
                    return Ok(Some((child, rest)));
                }
                Err(error) => {
                    let mut state = self.lock();
                    state.told.reason = Some(error.to_string());
                    if server.is_alive() {
                        // What fails with a parent that is well fails without one too, and is told then.
                        break;
                    }
                    if state.told.forked == 0 {
                        // One that never was well would not be the next time either.
                        state.starts = STARTS;
                    }
                }
            }
        }
        self.lock().told.executed += 1;
        Ok(None)
    }

    /// The parent, started if there is none; `None` if there will be none.
    fn server(&self, host: &Host) -> Option<Arc<ForkServer>> {
        let mut state = self.lock();
        if let Some(server) = state.server.as_ref().filter(|server| server.is_alive()) {
            return Some(Arc::clone(server));
        }
        if state.closed || state.starts == STARTS {
            return None;
        }
        state.starts += 1;
        match start(host) {
            Ok(server) => {
                let server = Arc::new(server);
                state.server = Some(Arc::clone(&server));
                Some(server)
            }
            Err(reason) => {
                state.starts = STARTS;
                state.told.reason = Some(reason);
                None
            }
        }
    }

    /// Ends the parent, and whoever waits for it.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(server) = state.server.take() {
            server.kill();
        }
    }

    /// Id of the parent that lives.
    #[cfg(test)]
    pub(crate) fn parent(&self) -> Option<u32> {
        let server = self.lock().server.clone();
        server.filter(|server| server.is_alive()).map(|server| server.pid())
    }

    pub(crate) fn told(&self) -> HowStarted {
        self.lock().told.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every statement, also after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a parent, and does not wait until it has imported torch.
fn start(host: &Host) -> Result<ForkServer, String> {
    let library =
        host.jail.fork_library().ok_or("there is no library for it beside the program")?;
    let library = library.to_string_lossy().into_owned();
    // Libraries read the environment when they are loaded: it is that of the runners to come.
    let env = host.module("runner", None).env;
    let module = "warpwright_oracle.forkserver";
    let args = ["-P", "-s", "-m", module, &library].map(str::to_owned).into();
    let warm = Warm { label: "runners".to_owned(), program: host.python.clone(), args, env };
    ForkServer::start(&host.jail, &warm).map_err(|error| error.to_string())
}
