//! A lock on one GPU among all processes of a host that judge on it: files in a folder that everybody can use.
//!
//! [`DeviceArbiter`](super::device_arbiter::DeviceArbiter) orders the work of one process. Two processes on a GPU
//! would lengthen each other's timing windows. So each takes an advisory lock (`flock`) with its first turn and
//! returns it with its last: shared if turns share the device, exclusive if one has it alone. The kernel returns the
//! lock of a process that is killed.
//!
//! There are two files. A process locks the second one, the *queue*, while it waits for the device. Turns of a busy
//! process can overlap without end; while another process holds the queue, the busy one begins no new turns.
//!
//! Nothing is read from the files or written to them: anybody can create them.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

/// Folder of the files.
const FOLDER: &str = "/tmp";
/// Between two attempts to get a lock.
const PAUSE: Duration = Duration::from_millis(2);
/// After so long a wait the judge says whom it waits for.
const SAID_AFTER: Duration = Duration::from_secs(2);

/// Tells people something.
pub(crate) type Notice = Box<dyn Fn(&str) + Send + Sync>;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Others may hold it so, too.
    Shared,
    /// Nobody else holds it.
    Exclusive,
}

/// A GPU's lock, as one process holds it: counts its turns.
pub(crate) struct DeviceLock {
    /// Name of the device, for people.
    device: String,
    /// `None` if they cannot be opened. Then this process waits for no other.
    files: Option<Files>,
    state: Mutex<State>,
    changed: Condvar,
    said_after: Duration,
    notices: Mutex<Notices>,
}

struct Files {
    device: File,
    queue: File,
}

#[derive(Debug, Default)]
struct State {
    /// Turns that use the device.
    turns: usize,
    exclusive: bool,
    /// A thread waits for the lock.
    asking: bool,
}

#[derive(Default)]
struct Notices {
    notice: Option<Notice>,
    /// What was to be said before anybody listened.
    unsaid: Option<String>,
    /// Whether it was said who is waited for, or that locking fails.
    said: bool,
}

impl DeviceLock {
    /// The lock of the GPU with this identity (UUID), named `device` here. Where there can be none, judges do not
    /// wait for each other, and this one says so.
    pub(crate) fn of_gpu(identity: &str, device: &str) -> Self {
        Self::open(Path::new(FOLDER), identity, device)
    }

    fn open(folder: &Path, identity: &str, device: &str) -> Self {
        let opened = Files::open(folder, identity);
        let (files, trouble) = match opened {
            Ok(files) => (Some(files), None),
            Err(error) => (None, Some(error)),
        };
        let lock = Self {
            device: device.to_owned(),
            files,
            state: Mutex::default(),
            changed: Condvar::new(),
            said_after: SAID_AFTER,
            notices: Mutex::default(),
        };
        if let Some(error) = trouble {
            lock.say_trouble(&error);
        }
        lock
    }

    /// From now on says by this what there is to say, and what there was.
    pub(crate) fn set_notice(&self, notice: Notice) {
        let mut notices = lock(&self.notices);
        if let Some(text) = notices.unsaid.take() {
            notice(&text);
        }
        notices.notice = Some(notice);
    }

    /// Begins a turn that shares the device with others of this process. One that `yields` does not begin beside
    /// them while another process waits for the device; nobody whom it would keep waiting may wait for it.
    pub(crate) fn share(&self, yields: bool) {
        self.begin(Hold::Shared, yields);
    }

    /// Begins a turn that has the device alone. If processes of this judge are starting, it shares the device until
    /// [`Self::make_exclusive`].
    pub(crate) fn alone(&self) {
        self.begin(Hold::Exclusive, false);
    }

    fn begin(&self, hold: Hold, yields: bool) {
        let Some(files) = &self.files else { return };
        let mut state = lock(&self.state);
        loop {
            match *state {
                State { asking: true, .. } => {}
                State { turns: 0, .. } => break,
                _ if yields && files.is_waited_for() => {}
                _ => {
                    state.turns += 1;
                    return;
                }
            }
            // Another process says nothing when it stops waiting.
            let woken = self.changed.wait_timeout(state, PAUSE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.asking = true;
        drop(state);
        self.get(files, hold);
        let mut state = lock(&self.state);
        *state = State { turns: 1, exclusive: hold == Hold::Exclusive, asking: false };
        drop(state);
        self.changed.notify_all();
    }

    /// The only turn of this process needs the device for itself from now on.
    pub(crate) fn make_exclusive(&self) {
        let Some(files) = &self.files else { return };
        let mut state = lock(&self.state);
        if state.exclusive {
            return;
        }
        state.asking = true;
        drop(state);
        // Two processes that both waited with a shared lock would wait forever.
        let _ = flock(&files.device, FlockOperation::Unlock);
        self.get(files, Hold::Exclusive);
        let mut state = lock(&self.state);
        (state.exclusive, state.asking) = (true, false);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether no other process that takes this lock uses the device now, as far as that can be told.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.files.is_none() || lock(&self.state).exclusive
    }

    /// Ends a turn.
    pub(crate) fn end(&self) {
        let Some(files) = &self.files else { return };
        let mut state = lock(&self.state);
        state.turns -= 1;
        if state.turns == 0 {
            state.exclusive = false;
            // Fails for no file that was locked.
            let _ = flock(&files.device, FlockOperation::Unlock);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the lock. One thread of a process does at a time.
    fn get(&self, files: &Files, hold: Hold) {
        let began = Instant::now();
        let operation = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        self.wait(&files.queue, FlockOperation::NonBlockingLockExclusive, began);
        self.wait(&files.device, operation, began);
        let _ = flock(&files.queue, FlockOperation::Unlock);
    }

    fn wait(&self, file: &File, operation: FlockOperation, began: Instant) {
        loop {
            match flock(file, operation) {
                Ok(()) => return,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if began.elapsed() >= self.said_after {
                        let device = &self.device;
                        self.say(format!(
                            "note: {device} is used by another warpwright process; waiting for it"
                        ));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return self.say_trouble(&error.into()),
            }
        }
    }

    fn say_trouble(&self, error: &io::Error) {
        let device = &self.device;
        self.say(format!(
            "warning: other warpwright processes on {device} are not waited for, and may disturb times: failed to \
             lock the GPU: {error}"
        ));
    }

    /// Says the first of all texts.
    fn say(&self, text: String) {
        let mut notices = lock(&self.notices);
        if std::mem::replace(&mut notices.said, true) {
            return;
        }
        match &notices.notice {
            Some(notice) => notice(&text),
            None => notices.unsaid = Some(text),
        }
    }
}

impl std::fmt::Debug for DeviceLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceLock").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Files {
    fn open(folder: &Path, identity: &str) -> io::Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if identity.is_empty() || !identity.chars().all(plain) {
            return Err(io::Error::other("the driver gives it no UUID"));
        }
        let open = |kind: &str| {
            let path = folder.join(format!("warpwright-gpu-{identity}.{kind}"));
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
            shared_file(&path).map_err(named)
        };
        Ok(Self { device: open("lock")?, queue: open("queue")? })
    }

    /// Whether another process waits for the device. No thread of this one may be waiting: its own lock would change.
    fn is_waited_for(&self) -> bool {
        match flock(&self.queue, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.queue, FlockOperation::Unlock);
                false
            }
            Err(error) => error == rustix::io::Errno::WOULDBLOCK,
        }
    }
}

/// A file that all users of the host may lock, in a folder where anybody may have made it.
fn shared_file(path: &Path) -> io::Result<File> {
    // No link is followed, and a pipe blocks nobody.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let flags = flags.cast_signed();
    let open = || OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Only where there is none: the kernel refuses to open another user's file with the flag to create it.
            let mut new = OpenOptions::new();
            new.read(true).write(true).create_new(true).mode(0o666).custom_flags(flags);
            match new.open(path) {
                Ok(file) => {
                    // Whatever the mask of this process is.
                    file.set_permissions(Permissions::from_mode(0o666))?;
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open()?,
                Err(error) => return Err(error),
            }
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The bookkeeping is whole after every statement, also after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
