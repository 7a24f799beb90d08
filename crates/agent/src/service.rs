//! Answers the scripts in `utils/` on a Unix socket that is mounted into the agent's jail.
//!
//! Each tool call has its own `serve`, so that every verdict belongs to the call that requested it.
//! Between calls, a `Refuser` refuses every request, including those of background commands. The
//! other side is hostile: `serve` reads one line of at most `MAX_REQUEST_BYTES`, under a deadline,
//! and uses nothing in it except the name of a stage or of an inspection. The candidate is taken
//! from the workspace, never from the request.
//!
//! ```text
//! -> {"version":1,"stage":"built"|"verified"|"measured"}\n
//! -> {"version":1,"inspection":{"kind":"kernels"|"counters"}}\n
//! -> {"version":1,"inspection":{"kind":"sanitize","checks":["memcheck"]}}\n
//! <- {"version":1,"good":true,"text":"BUILD OK ..."}\n
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{Stage, Verdict};

use crate::elide::elide_middle;
use crate::feedback;
use crate::judge::{Judge, JudgeUnavailable};
use crate::workspace::{NoCandidate, Workspace};

/// Maximum bytes of a request.
const MAX_REQUEST_BYTES: u64 = 4 << 10;
/// Maximum bytes of an answer's text.
const MAX_TEXT_BYTES: usize = 128 << 10;
/// Timeout for a client to send its request, and to read its answer.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum requests judged per call; further ones are refused.
const MAX_REQUESTS: usize = 64;
/// Pause after each request refused unread, so that a client's loop costs little.
const REFUSAL_PAUSE: Duration = Duration::from_millis(50);
/// Number of refused connections kept open, so that the client can still write its request and then
/// read the reason.
const KEPT_REFUSED: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    version: u32,
    stage: Option<Stage>,
    inspection: Option<Inspection>,
}

/// A client's request.
enum Question {
    Stage(Stage),
    Inspection(Inspection),
}

impl Request {
    fn question(self) -> Result<Question, String> {
        match (self.version, self.stage, self.inspection) {
            (1, Some(stage), None) => Ok(Question::Stage(stage)),
            (1, None, Some(Inspection::Sanitize { checks })) => {
                let mut once = Vec::new();
                for check in checks {
                    if !once.contains(&check) {
                        once.push(check);
                    }
                }
                if once.is_empty() {
                    return Err("it names no checks".to_owned());
                }
                Ok(Question::Inspection(Inspection::Sanitize { checks: once }))
            }
            (1, None, Some(inspection)) => Ok(Question::Inspection(inspection)),
            (1, ..) => Err("it must name either a stage or an inspection".to_owned()),
            (version, ..) => Err(format!("requests of version {version} are unknown")),
        }
    }
}

#[derive(Serialize)]
struct Reply {
    version: u32,
    good: bool,
    text: String,
}

/// A verdict with its candidate.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The candidate, for the archive.
    pub candidate: Candidate,
}

/// Verdicts and findings of one command.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// Verdicts in order.
    pub(crate) judged: Vec<Judged>,
    /// Findings in order.
    pub(crate) findings: Vec<Findings>,
    /// The judge failed: the episode ends.
    pub(crate) unavailable: Option<JudgeUnavailable>,
}

/// Ends a [`serve`] on another thread.
#[derive(Debug)]
pub(crate) struct Closer(OwnedFd);

impl Closer {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn close(&self) {
        // An eventfd that was just made takes this.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Creates the socket. Connecting needs write permission, which the jailed user must have; the
/// enclosing folder keeps other users out.
pub(crate) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = UnixListener::bind(path)?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Refuses requests that are made while no tool call is running.
#[derive(Debug, Default)]
pub(crate) struct Refuser {
    kept: VecDeque<UnixStream>,
}

impl Refuser {
    /// Refuses waiting requests, a few at a time. Call it again after [`Refuser::PAUSE`].
    pub(crate) fn refuse_waiting(&mut self, listener: &UnixListener) {
        for _ in 0..KEPT_REFUSED {
            let Ok((stream, _)) = listener.accept() else { return };
            send(
                &stream,
                &refuse(
                    "failed to judge: the judge answers only during a foreground Bash call; run the \
                     command without run_in_background"
                        .to_owned(),
                ),
            );
            let _ = stream.shutdown(std::net::Shutdown::Write);
            if self.kept.len() == KEPT_REFUSED {
                self.kept.pop_front();
            }
            self.kept.push_back(stream);
        }
    }

    /// Interval between two calls of [`Refuser::refuse_waiting`].
    pub(crate) const PAUSE: Duration = REFUSAL_PAUSE;
}

/// Answers requests, one at a time, until `closer` is closed. A request being judged at that time
/// is finished; waiting requests are left to a [`Refuser`].
pub(crate) fn serve(
    listener: &UnixListener,
    closer: &Closer,
    workspace: &Workspace,
    judge: &dyn Judge,
) -> Answered {
    let mut answered = Answered::default();
    let mut requests = 0;
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(closer.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        ];
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                let message = format!("the socket for its requests failed: {e}");
                answered.unavailable.get_or_insert(JudgeUnavailable { message });
                return answered;
            }
        }
        if !events[0].revents().is_empty() {
            return answered;
        }
        // Not ready after all, or the client has gone: nothing to answer.
        let Ok((stream, _)) = listener.accept() else { continue };
        requests += 1;
        let reply = if requests > MAX_REQUESTS {
            std::thread::sleep(REFUSAL_PAUSE);
            refuse(format!("one call may ask the judge {MAX_REQUESTS} times; make another"))
        } else {
            answer(&stream, workspace, judge, &mut answered)
        };
        send(&stream, &reply);
    }
}

fn answer(
    stream: &UnixStream,
    workspace: &Workspace,
    judge: &dyn Judge,
    answered: &mut Answered,
) -> Reply {
    if let Some(error) = &answered.unavailable {
        return refuse(error.to_string());
    }
    let question = match receive(stream).and_then(Request::question) {
        Ok(question) => question,
        Err(reason) => return refuse(format!("failed to read the request: {reason}")),
    };
    let candidate = match workspace.candidate() {
        Ok(candidate) => candidate,
        Err(NoCandidate::File(error)) if error.is_ours() => {
            let unavailable = JudgeUnavailable { message: error.to_string() };
            let reply = refuse(unavailable.to_string());
            answered.unavailable = Some(unavailable);
            return reply;
        }
        Err(reason) => return refuse(reason.to_string()),
    };
    let replied = match question {
        Question::Stage(stage) => judge.judge(&candidate, stage).map(|verdict| {
            let (good, text) = (feedback::succeeded(&verdict), feedback::render(&verdict));
            answered.judged.push(Judged { verdict, candidate });
            (good, text)
        }),
        Question::Inspection(inspection) => judge.inspect(&candidate, &inspection).map(|found| {
            let told = (feedback::findings::good(&found), feedback::findings::render(&found));
            answered.findings.push(found);
            told
        }),
    };
    match replied {
        Ok((good, text)) => Reply { version: 1, good, text: elide_middle(&text, MAX_TEXT_BYTES) },
        Err(unavailable) => {
            let reply = refuse(unavailable.to_string());
            answered.unavailable = Some(unavailable);
            reply
        }
    }
}

fn refuse(text: String) -> Reply {
    Reply { version: 1, good: false, text }
}

/// Reads one line under one deadline for the whole line, however slowly it arrives.
fn receive(stream: &UnixStream) -> Result<Request, String> {
    let fail = |e: std::io::Error| e.to_string();
    stream.set_nonblocking(false).map_err(fail)?;
    stream.set_read_timeout(Some(CLIENT_DEADLINE)).map_err(fail)?;
    let until = std::time::Instant::now() + CLIENT_DEADLINE;
    let mut reader = BufReader::with_capacity(512, stream.take(MAX_REQUEST_BYTES));
    let mut line = Vec::new();
    loop {
        let part = reader.fill_buf().map_err(fail)?;
        if part.is_empty() {
            break;
        }
        let end = part.iter().position(|b| *b == b'\n');
        let taken = end.map_or(part.len(), |i| i + 1);
        line.extend_from_slice(&part[..taken]);
        reader.consume(taken);
        if end.is_some() {
            break;
        }
        if std::time::Instant::now() > until {
            return Err("it took too long".to_owned());
        }
    }
    serde_json::from_slice(&line).map_err(|e| e.to_string())
}

fn send(mut stream: &UnixStream, reply: &Reply) {
    let Ok(mut bytes) = serde_json::to_vec(reply) else { return };
    bytes.push(b'\n');
    // A client that went away, or does not read, has only itself to blame.
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(CLIENT_DEADLINE));
    let _ = stream.write_all(&bytes);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::scripted::ScriptedJudge;
    use crate::workspace;

    fn ask(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn with_service(judge: &dyn Judge, client: impl FnOnce(&Path, &Workspace)) -> Answered {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace::for_tests(&folder.path().join("w"));
        let path = folder.path().join("judge.sock");
        let listener = listen(&path).unwrap();
        let closer = Closer::new().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| serve(&listener, &closer, &workspace, judge));
            client(&path, &workspace);
            closer.close();
            thread.join().unwrap()
        })
    }

    #[test]
    fn request_is_answered_and_its_verdict_is_recorded() {
        let judge = ScriptedJudge::new(&[1.5]);
        let replies = Mutex::new(Vec::new());
        let answered = with_service(&judge, |path, workspace| {
            replies.lock().unwrap().push(ask(path, br#"{"version":1,"stage":"built"}"#));
            workspace.files().write("model_new.py", b"new").unwrap();
            replies.lock().unwrap().push(ask(path, b"{\"version\":1,\"stage\":\"measured\"}\n"));
        });
        let replies = replies.into_inner().unwrap();
        insta::assert_snapshot!(replies[0].trim(), @r#"{"version":1,"good":false,"text":"failed to take the candidate: there is no model_new.py in the workspace"}"#);
        assert!(
            replies[1].contains("\"good\":true") && replies[1].contains("PROFILING OK"),
            "{replies:?}"
        );
        assert_eq!(answered.judged.len(), 1);
        assert_eq!(answered.judged[0].verdict.stage, Stage::Measured);
        assert!(answered.unavailable.is_none());
    }

    #[test]
    fn malformed_request_is_refused_and_the_service_continues() {
        let judge = ScriptedJudge::new(&[]);
        with_service(&judge, |path, _| {
            let long = vec![b'x'; 1 << 20];
            let mut stream = UnixStream::connect(path).unwrap();
            // The service stops reading; the write may fail, and must not be waited for.
            let _ = stream.write_all(&long);
            drop(stream);
            for request in [
                &b"hello\n"[..],
                b"",
                b"{\"version\":9,\"stage\":\"built\"}\n",
                b"{\"version\":1,\"stage\":\"built\",\"verified\":true}\n",
                b"{\"version\":1}\n",
                b"{\"version\":1,\"stage\":\"built\",\"inspection\":{\"kind\":\"kernels\"}}\n",
                b"{\"version\":1,\"inspection\":{\"kind\":\"sanitize\",\"checks\":[]}}\n",
                b"{\"version\":1,\"inspection\":{\"kind\":\"kernels\",\"command\":\"id\"}}\n",
            ] {
                let reply = ask(path, request);
                assert!(reply.contains("\"good\":false"), "{reply}");
            }
        });
    }

    #[test]
    fn inspection_findings_are_recorded_separately_from_verdicts() {
        let judge = ScriptedJudge::new(&[1.5]);
        let answered = with_service(&judge, |path, workspace| {
            workspace.files().write("model_new.py", b"new").unwrap();
            let twice = br#"{"version":1,"inspection":{"kind":"sanitize","checks":["memcheck","memcheck"]}}"#;
            let reply = ask(path, twice);
            assert!(reply.contains("\"good\":false") && reply.contains("NOT AVAILABLE"), "{reply}");
        });
        assert!(answered.judged.is_empty() && answered.unavailable.is_none());
        let checks = vec![warpwright_record::findings::SanitizerCheck::Memcheck];
        assert_eq!(answered.findings[0].inspection, Inspection::Sanitize { checks });
    }

    #[test]
    fn failing_judge_gives_no_verdict() {
        let judge = ScriptedJudge::failing();
        let answered = with_service(&judge, |path, workspace| {
            workspace.files().write("model_new.py", b"new").unwrap();
            let reply = ask(path, b"{\"version\":1,\"stage\":\"verified\"}\n");
            assert!(reply.contains("failed to judge"), "{reply}");
        });
        assert!(answered.judged.is_empty());
        assert!(answered.unavailable.is_some());
    }
}
