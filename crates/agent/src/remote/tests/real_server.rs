//! An episode with a real model server: `transformers serve`, with a tiny model whose weights are
//! random and some of whose words are whole tool calls. `scripts/setup.d/model-server` installs it.

#![expect(clippy::disallowed_types, reason = "the test starts a server of its own")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use warpwright_record::event::{EpisodeId, Outcome};
use warpwright_record::history::History;
use warpwright_record::message::StopReason;
use warpwright_record::reader::RunReader;

use super::episode;
use crate::remote::endpoint::{Endpoint, Limits};
use crate::remote::openai_chat::OpenAiChat;
use crate::remote::policy::{RemotePolicy, RemoteSettings};
use crate::remote::wire::Sampling;

const TURNS: u32 = 5;

struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Programs of the server's environment; `WARPWRIGHT_MODEL_SERVER` names another.
fn program(name: &str) -> PathBuf {
    let named = std::env::var_os("WARPWRIGHT_MODEL_SERVER").map(PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/model-server");
    let program = named.unwrap_or(own).join("bin").join(name);
    assert!(
        program.exists(),
        "{} is not there: run scripts/setup.d/model-server",
        program.display()
    );
    program
}

/// A command that looks for nothing on the network and writes nothing outside `folder`.
fn offline(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(program(name));
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.join("home"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn serve(folder: &Path) -> Server {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model_server/serve_model.py");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = fs_err::File::create(folder.join("log")).unwrap();
    let child = offline("python", folder)
        .arg(script)
        .arg(folder.join("model"))
        .arg(port.to_string())
        .stderr(log.into_parts().0)
        .spawn()
        .unwrap();
    let mut server = Server { child, port };
    let until = Instant::now() + Duration::from_mins(3);
    while !is_up(port) {
        let said = || fs_err::read_to_string(folder.join("log")).unwrap();
        assert!(server.child.try_wait().unwrap().is_none(), "the server ended: {}", said());
        assert!(Instant::now() < until, "the server does not come up: {}", said());
        std::thread::sleep(Duration::from_millis(200));
    }
    server
}

fn is_up(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

#[test]
fn random_weights_on_a_real_server_end_as_a_bad_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    let stop = Arc::new(AtomicBool::new(false));
    let endpoint =
        Endpoint::new(Box::new(OpenAiChat), &base, None, false, Limits::default(), stop.clone());
    let model = folder.path().join("model").to_str().unwrap().to_owned();
    let settings = RemoteSettings {
        name: "openai:random".to_owned(),
        model: model.clone(),
        sampling: Sampling {
            temperature: Some(1.0),
            max_output_tokens: Some(16),
            ..Sampling::default()
        },
        context_tokens: 8192,
        prices: None,
    };
    let mut policy = RemotePolicy::new(Arc::new(endpoint.unwrap()), settings);
    let ended = episode(&mut policy, folder.path(), Some(TURNS), &stop);
    assert!(ended.final_verdict.is_none(), "nothing was written, so nothing is judged");
    let history = History::read(&RunReader::open(&folder.path().join("run")).unwrap()).unwrap();
    let turns = &history.episodes[&EpisodeId(0)].turns;
    let last = &turns.last().unwrap().message;
    let stopped = last.calls.is_empty() && last.stop == StopReason::Done;
    let expected = if stopped { Outcome::Stopped } else { Outcome::BudgetTurns };
    assert_eq!(ended.outcome, expected);
    assert!(stopped || ended.turns == TURNS, "{} turns", ended.turns);
    for turn in turns {
        let generation = turn.message.generation.as_ref().unwrap();
        assert!(generation.model.starts_with(&model), "{}", generation.model);
        let usage = generation.usage;
        assert!(usage.input_tokens > 100 && (1..=16).contains(&usage.output_tokens), "{usage:?}");
        assert_eq!(turn.results.len(), turn.message.calls.len());
    }
    assert!(!folder.path().join("outside").exists());
}
