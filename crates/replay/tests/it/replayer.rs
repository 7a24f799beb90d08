//! Starts the program, and asks it.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value as Json, json};

/// Longest that a test waits for an answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program, and the judge's end of the conversation.
pub(crate) struct Replayer {
    child: Child,
    stream: UnixStream,
    questions: usize,
}

impl Replayer {
    /// Starts the program with this arena and these further arguments. It has not been spoken to.
    #[expect(clippy::disallowed_types, reason = "the test starts the program under test")]
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub(crate) fn start(arena: BorrowedFd<'_>, arguments: &[String]) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let (theirs, arena) = (OwnedFd::from(theirs), arena.try_clone_to_owned().unwrap());
        for inherited in [&theirs, &arena] {
            fcntl_setfd(inherited, FdFlags::empty()).unwrap();
        }
        let child = std::process::Command::new(program())
            .args(["--channel", &theirs.as_raw_fd().to_string()])
            .args(["--arena", &arena.as_raw_fd().to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, stream: ours, questions: 0 }
    }

    /// Goes through the start; the answer to the first request.
    pub(crate) fn greet(&mut self) -> Json {
        self.send(&json!({"do": "ping"}));
        for hold in ["shared", "nothing"] {
            assert_eq!(self.receive(), json!({ "hold": hold }));
            self.send(&json!({}));
        }
        self.receive()
    }

    /// Asks; the answer, without its nonce.
    pub(crate) fn ask(&mut self, request: Json) -> Json {
        self.ask_with(request, None)
    }

    /// The same, with a descriptor.
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub(crate) fn ask_with(&mut self, mut request: Json, with: Option<BorrowedFd<'_>>) -> Json {
        self.questions += 1;
        let nonce = json!(format!("nonce {}", self.questions));
        request["nonce"] = nonce.clone();
        self.send(&request);
        if let Some(descriptor) = with {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [descriptor.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            let byte = [IoSlice::new(&[0])];
            sendmsg(&self.stream, &byte, &mut control, SendFlags::NOSIGNAL).unwrap();
        }
        let mut answer = self.receive();
        let repeated = answer.as_object_mut().unwrap().remove("nonce");
        assert_eq!(repeated, Some(nonce), "{answer}");
        answer
    }

    /// Asks, and fails if the answer is an error.
    #[track_caller]
    pub(crate) fn done(&mut self, request: Json) -> Json {
        let what = request["do"].clone();
        let answer = self.ask(request);
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer
    }

    /// The cores that each of its threads may run on, as the kernel lists them.
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub(crate) fn cores(&self) -> Vec<String> {
        let threads = fs_err::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let status = threads.map(|thread| thread.unwrap().path().join("status"));
        // A thread that ended has none.
        let status = status.filter_map(|path| fs_err::read_to_string(path).ok());
        let cores = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_owned()
        };
        status.map(|text| cores(&text)).collect()
    }

    /// Closes the conversation; how the program ended, and what it printed.
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    pub(crate) fn close(mut self) -> (ExitStatus, String) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap(), printed)
    }

    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    fn send(&mut self, request: &Json) {
        let body = request.to_string().into_bytes();
        let head = u32::try_from(body.len()).unwrap().to_le_bytes();
        self.stream.write_all(&[&head[..], &body].concat()).unwrap();
    }

    #[expect(clippy::expect_used, reason = "a test fails here")]
    fn receive(&mut self) -> Json {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).expect("the program answers");
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        self.stream.read_exact(&mut body).expect("the program answers");
        serde_json::from_slice(&body).expect("an answer is JSON")
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program: on a machine without cargo, where WARPWRIGHT_REPLAYER says.
fn program() -> std::ffi::OsString {
    let built = env!("CARGO_BIN_EXE_warpwright-replayer");
    std::env::var_os("WARPWRIGHT_REPLAYER").unwrap_or_else(|| built.into())
}
