//! A parent that was made ready, as the caller sees it: programs that start as forks of it.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::capture::Drain;
use crate::child::{Child, Outfit};
use crate::detect::Jail;
use crate::error::JailError;
use crate::init::server_filter;
use crate::isolation::Backend;
use crate::plan::{FORK_FDS, Forked, Greeting, VERSION};
use crate::prepare::Means;
use crate::spec::{Network, Spec};
use crate::supervisor::Process;
use crate::sys;

/// Longest a server that is ready may take to fork.
const FORK_PATIENCE: Duration = Duration::from_secs(30);
/// How long its last words are waited for.
const DRAIN: Duration = Duration::from_millis(200);
/// What of its standard error is kept, bytes.
const KEPT: usize = 16 << 10;

/// The program of a fork server.
#[derive(Clone, Debug)]
pub struct Warm {
    /// For messages.
    pub label: String,
    /// Absolute path on the host.
    pub program: PathBuf,
    /// Arguments, without the program's name.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
}

/// A process of our own code that has made itself ready (has imported what takes long) and of which forks
/// enter jails: see [`serve_forks`](crate::serve_forks). It dies when this is dropped, or when this process
/// is killed; what it has started lives as long as each [`Child`].
///
/// It makes jails, so it is as privileged as the helper, and must be trusted as much. It has no network,
/// an environment that is named, and makes only the system calls that a jailed program may make, and
/// those that make jails.
#[derive(Debug)]
pub struct ForkServer {
    means: Means,
    label: String,
    conversation: Mutex<Conversation>,
    /// To end it while another thread waits for it.
    handle: OwnedFd,
    pid: u32,
}

#[derive(Debug)]
struct Conversation {
    socket: OwnedFd,
    greeted: bool,
    process: std::process::Child,
    stderr: Drain,
}

impl ForkServer {
    /// Starts a server without waiting until it is ready.
    ///
    /// # Errors
    /// [`JailError::Fork`] if the backend cannot fork; see [`Jail::can_fork`].
    pub fn start(jail: &Jail, warm: &Warm) -> Result<Self, JailError> {
        let means = jail.means().clone();
        if !jail.can_fork() {
            return Err(JailError::Fork {
                label: warm.label.clone(),
                reason: format!("backend {} cannot fork", means.backend.name()),
            });
        }
        let user = (means.backend == Backend::UserNamespaces)
            .then(|| (sys::effective_uid(), sys::effective_gid()));
        let failed = |cause| JailError::Start {
            label: warm.label.clone(),
            program: warm.program.clone(),
            cause,
        };
        let program = fs_err::canonicalize(&warm.program).map_err(failed)?;
        let (ours, theirs) = sys::packet_pair().map_err(failed)?;
        let (heard, said) = sys::pipe().map_err(failed)?;
        #[expect(clippy::disallowed_types, reason = "this crate starts the processes")]
        let mut command = std::process::Command::new(&warm.program);
        command
            .args(&warm.args)
            .env_clear()
            .envs(warm.env.iter().map(|(key, value)| (key, value)))
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(said);
        sys::seclude(&mut command, &program, user, server_filter()).map_err(failed)?;
        let process = command.spawn().map_err(failed)?;
        // It holds our end of the pipe that the server writes to.
        drop(command);
        let stderr = Drain::start(File::from(heard), KEPT);
        let pid = process.id();
        let handle = sys::pidfd_open(pid as i32).map_err(failed)?;
        let conversation = Conversation { socket: ours, greeted: false, process, stderr };
        Ok(Self {
            means,
            label: warm.label.clone(),
            conversation: Mutex::new(conversation),
            handle,
            pid,
        })
    }

    /// Waits at most `patience` until the server is ready.
    ///
    /// # Errors
    /// [`JailError::Fork`] if the server refuses, exits or is late.
    pub fn ready(&self, patience: Duration) -> Result<(), JailError> {
        self.greeted(&mut self.lock(), patience)
    }

    /// Starts a program as a fork of a server that is [`ForkServer::ready`]: `args` and `env` of the
    /// specification are for the server's own code to go by, and `program` is executed only if that does.
    pub fn spawn(&self, spec: Spec) -> Result<Child, JailError> {
        if spec.network == Network::Loopback {
            let reason = "a forked process cannot have a loopback network".into();
            return Err(JailError::Spec { label: spec.label, reason });
        }
        if spec.fds.len() + FORK_FDS > sys::MOST_DESCRIPTORS {
            return Err(self.failed("the specification passes too many descriptors for a fork"));
        }
        Child::begin(&self.means, spec, |outfit| {
            let Outfit { plan, control, fds, stdin, stdout, stderr } = outfit;
            let first = [plan, control, stdin, stdout, stderr];
            let fds: Vec<_> = first.into_iter().chain(fds).map(OwnedFd::as_fd).collect();
            Ok(self.fork(&fds).map(Process::Forked))
        })
    }

    /// Its id, as the host sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        sys::poll_readable(&[self.handle.as_fd()], 0)
            .is_ok_and(|ready| ready.first() == Some(&false))
    }

    /// Kills the server. Programs that it has started continue.
    pub fn kill(&self) {
        drop(sys::pidfd_signal(self.handle.as_fd(), libc::SIGKILL));
    }

    /// Has it fork: a descriptor of the supervisor, which reports to the control socket among `fds`.
    fn fork(&self, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, JailError> {
        let mut conversation = self.lock();
        self.greeted(&mut conversation, FORK_PATIENCE)?;
        sys::send_packet(conversation.socket.as_fd(), b"fork", fds)
            .map_err(|error| self.lost(&mut conversation, &error.to_string()))?;
        let (bytes, mut fds) = self.next(&mut conversation, FORK_PATIENCE)?;
        match serde_json::from_slice(&bytes) {
            Ok(Forked::Supervisor(_)) if fds.len() == 1 => Ok(fds.remove(0)),
            Ok(Forked::Failed(reason)) => Err(self.failed(&reason)),
            _ => Err(self.lost(&mut conversation, "the fork server sent an unexpected answer")),
        }
    }

    fn greeted(
        &self,
        conversation: &mut Conversation,
        patience: Duration,
    ) -> Result<(), JailError> {
        if conversation.greeted {
            return Ok(());
        }
        let (bytes, _) = self.next(conversation, patience)?;
        let greeting: Greeting = serde_json::from_slice(&bytes)
            .map_err(|error| self.lost(conversation, &error.to_string()))?;
        if greeting.version != VERSION {
            return Err(self.lost(conversation, "the fork server is of another build"));
        }
        if let Some(refusal) = greeting.refusal {
            return Err(self.lost(conversation, &refusal));
        }
        conversation.greeted = true;
        Ok(())
    }

    /// Its next packet. Once one is missing the conversation is out of step, so that ends it.
    fn next(
        &self,
        conversation: &mut Conversation,
        patience: Duration,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), JailError> {
        let until = Instant::now() + patience;
        loop {
            let wait = until.saturating_duration_since(Instant::now()).as_millis() as i32;
            let ready = sys::poll_readable(&[conversation.socket.as_fd()], wait);
            match ready.as_deref() {
                Ok([true]) => break,
                Ok(_) if Instant::now() < until => {}
                Ok(_) => {
                    return Err(self.lost(conversation, "the fork server did not answer in time"));
                }
                Err(error) => {
                    let error = error.to_string();
                    return Err(self.lost(conversation, &error));
                }
            }
        }
        match sys::receive_packet(conversation.socket.as_fd()) {
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err(self.lost(conversation, "the fork server exited")),
            Err(error) => Err(self.lost(conversation, &error.to_string())),
        }
    }

    /// It cannot be used any more.
    fn lost(&self, conversation: &mut Conversation, reason: &str) -> JailError {
        self.kill();
        drop(conversation.process.wait());
        let said = conversation.stderr.finish(DRAIN).text();
        let said = said.trim();
        self.failed(&if said.is_empty() { reason.to_owned() } else { format!("{reason}: {said}") })
    }

    fn failed(&self, reason: &str) -> JailError {
        JailError::Fork { label: self.label.clone(), reason: reason.to_owned() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It holds nothing that an orderly end would bring to safety.
        self.kill();
        drop(self.lock().process.wait());
    }
}
