//! Dialogues with a scripted server on loopback, and one with a real model server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::Profile;
use warpwright_record::writer::RunWriter;

use super::endpoint::{Endpoint, Limits};
use super::policy::RemotePolicy;
use super::wire::WireFormat;
use crate::episode::{Ended, Parts, Start};
use crate::policy::{Briefing, Policy as _};
use crate::scripted::{self, ScriptedJudge};
use crate::workspace;

mod dialogues;
mod episodes;
mod failures;
mod real_server;
mod server;
mod speaking;

/// A body as a server would send it. The fixtures were written after the public descriptions of the
/// formats; `tests/fixtures/remote/README.md` says which.
fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/remote");
    fs_err::read(folder.join(name)).unwrap()
}

/// Short pauses between tries, and timeouts that only a hung server reaches.
fn quick() -> Limits {
    Limits {
        connect: Duration::from_mins(1),
        first_byte: Duration::from_mins(1),
        between_chunks: Duration::from_mins(1),
        whole: Duration::from_mins(5),
        backoff_first: Duration::from_millis(20),
        backoff_most: Duration::from_millis(100),
        patience: Duration::from_mins(1),
        ..Limits::default()
    }
}

fn endpoint(format: Box<dyn WireFormat>, server: &server::Server, limits: Limits) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(format, &server.base(), None, false, limits, Arc::default()).unwrap())
}

fn briefing() -> Briefing {
    Briefing {
        task: "gelu".to_owned(),
        reference: "class Model: ...\n".to_owned(),
        skill: "Write kernels.".to_owned(),
        device: scripted::device(),
        profile: Profile::Strict,
        seed: 0,
        turns: None,
    }
}

/// An episode in the real loop and the real jail, with a judge that likes nothing; recorded in
/// `folder/run`.
fn episode(
    policy: &mut RemotePolicy,
    folder: &Path,
    turns: Option<u32>,
    stop: &AtomicBool,
) -> Ended {
    let record = RunWriter::create(&folder.join("run"), RunInfo::default()).unwrap();
    let source = record.put_blob(b"class Model: ...").unwrap();
    let parts = Parts {
        id: EpisodeId(0),
        setup: EpisodeSetup {
            task: "gelu".to_owned(),
            source,
            shown: None,
            skill: None,
            policy: policy.name(),
            device: "cpu".to_owned(),
            profile: Profile::Strict,
            dtype: None,
            fit: None,
            backward: false,
            seed: 0,
            attempt: 0,
            level: None,
            budget: Budget { turns, ..Budget::default() },
        },
        briefing: briefing(),
        workspace: &workspace::for_tests(&folder.join("w")),
        shell: &scripted::shell(),
        judge: &ScriptedJudge::new(&[]),
        record: &record,
        observer: &|_: &Event| {},
        stop,
    };
    crate::episode::run(&parts, policy, Start::Fresh).unwrap()
}
