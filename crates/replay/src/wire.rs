//! Requests that the judge sends to the replayer, and the answers.
//!
//! Both travel as framed JSON: four bytes of length, little endian, then UTF-8. An answer repeats the `nonce` of
//! its request. Where a request fails, the answer is [`Failed`] instead.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use warpwright_plan::LaunchPlan;

use crate::failure::Failure;

/// Most calls of a window.
pub const MAX_CALLS: u32 = 4096;
/// Most bytes of an [`Exchange`]: the driver copies so many into its queue, and does not wait.
pub const MAX_EXCHANGE_BYTES: usize = 64 << 10;
/// Largest frame in either direction, bytes.
pub const MAX_FRAME_BYTES: u32 = 64 << 20;

/// What the judge asks. The field `do` names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Whether the context still works. Answer: [`Done`].
    Ping,
    /// Maps other memory where inputs lie; its descriptor follows. Answer: [`Done`].
    Inputs(Inputs),
    /// Loads a plan. Answer: [`Loaded`].
    Load(Box<Load>),
    /// Says where lasting blocks lie. Answer: [`Done`].
    Settle(Settle),
    /// Runs the nodes of `prepare`, and waits for them. Answer: [`Ran`].
    Prepare,
    /// Makes a window of calls ready. Answer: [`Done`].
    Stage(Stage),
    /// Has a part of one call's inputs be there only while that call of the staged window runs. Answer: [`Done`].
    Exchange(Exchange),
    /// Wakes the GPU; the process then polls for the next request. Answer: [`Done`].
    Turn,
    /// Runs the staged calls, and waits for them. Answer: [`Ran`].
    Go(Go),
    /// Forgets the plan, and unmaps the inputs. Answer: [`Done`].
    Unload,
    /// Keeps all threads of the process to some processor cores. Answer: [`Done`].
    Pin(Pin),
    /// Answer: [`Facts`].
    Facts,
    /// Answer: [`Occupancy`].
    Occupancy(OccupancyOf),
}

/// See [`Request::Inputs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// Bytes of the memory.
    pub bytes: u64,
}

/// See [`Request::Load`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The plan.
    pub plan: LaunchPlan,
    /// Folder that holds the files of its modules.
    pub artifact: PathBuf,
}

/// See [`Request::Settle`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// Offset in the arena of each lasting block ([`warpwright_plan::Role`] other than `Input` and `Call`), in the
    /// order of the plan's blocks.
    pub at: Vec<u64>,
    /// Whether to launch no kernel until blocks are placed anew: the other nodes run as ever.
    #[serde(default)]
    pub without_launches: bool,
}

/// See [`Request::Stage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Number of calls, at most [`MAX_CALLS`].
    pub calls: u32,
    /// For each call, the offset from the arena's start of each block that is not lasting, in the order of the
    /// plan's blocks: as little-endian words of eight bytes, in hexadecimal.
    pub at: String,
    /// Whether to capture the calls as one CUDA graph.
    #[serde(default)]
    pub graph: bool,
}

/// See [`Request::Exchange`]. What kernels read there before and after the call is not what the call reads: a kernel
/// that computes other calls than its own is found out. An empty window writes both once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Number of the call, from 0.
    pub call: u32,
    /// Offset from the arena's start, in the memory of inputs.
    pub at: u64,
    /// What is written right before the call, in hexadecimal.
    #[serde(with = "warpwright_plan::hex")]
    pub own: Vec<u8>,
    /// What is written right after it; as long.
    #[serde(with = "warpwright_plan::hex")]
    pub other: Vec<u8>,
}

/// Offsets as [`Stage::at`] has them.
pub fn words(offsets: &[u64]) -> String {
    offsets.iter().fold(String::new(), |mut text, offset| {
        // Writing to a text does not fail.
        let _ = write!(text, "{:016x}", offset.swap_bytes());
        text
    })
}

/// See [`Request::Go`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Go {
    /// Whether to launch the captured graph instead of each node.
    #[serde(default)]
    pub graph: bool,
}

/// See [`Request::Pin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Numbers of the cores.
    pub cores: Vec<usize>,
}

/// See [`Request::Occupancy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OccupancyOf {
    /// Index into the plan's kernels.
    pub kernel: u32,
    /// Threads per block.
    pub threads: u32,
    /// Dynamic shared memory per block, bytes.
    pub shared: u32,
}

/// An answer that says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Nodes were run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Number of nodes.
    pub launches: u64,
}

/// A plan was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Facts of each kernel, in the order of the plan.
    pub kernels: Vec<KernelFacts>,
    /// Functions of the device runtime that the images call, e.g. `vprintf`.
    pub needs: Vec<String>,
    /// Where the time went: `read`, `check`, `blas`, `dnn`, `modules`.
    pub seconds: BTreeMap<String, f64>,
}

/// What the driver says of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// Symbol in the image.
    pub name: String,
    /// Registers per thread.
    pub registers: i32,
    /// Static shared memory per block, bytes.
    pub static_shared: i32,
    /// Local memory per thread, bytes.
    pub local: i32,
}

/// Facts of the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub total_memory: u64,
    /// As `cuDriverGetVersion` says, e.g. 13000.
    pub driver_version: i32,
    /// Every `CUdevice_attribute` that the driver knows, by its number.
    pub attributes: BTreeMap<String, i32>,
}

/// How many blocks of a kernel one multiprocessor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Blocks.
    pub blocks: i32,
}

/// An answer that says why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Why.
    pub error: Complaint,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// `cuda`, `cublas` and `cudnn` (the libraries'), `kernel` (of the cpu device), `plan` (it does not fit its images,
    /// or a library), `artifact` (its files), `request` (the judge's mistake), or `system`.
    pub kind: String,
    /// What failed, on what, and why.
    pub message: String,
    /// Always empty: answers of other processes have it.
    pub trace: String,
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Self {
        Self {
            error: Complaint {
                kind: failure.kind().to_owned(),
                message: failure.to_string(),
                trace: String::new(),
            },
        }
    }
}

/// A frame as sent by the judge.
pub(crate) struct Received {
    pub(crate) nonce: Option<Json>,
    /// Whether a descriptor follows, also where the rest cannot be read.
    pub(crate) has_descriptor: bool,
    pub(crate) request: Result<Request, Failure>,
}

impl Received {
    pub(crate) fn read(frame: &[u8]) -> Self {
        let mut fields: Map<String, Json> = match serde_json::from_slice(frame) {
            Ok(fields) => fields,
            Err(error) => {
                let request = Err(Failure::Request(format!("a request is not JSON: {error}")));
                return Self { nonce: None, has_descriptor: false, request };
            }
        };
        let nonce = fields.remove("nonce");
        let has_descriptor = fields.get("do").and_then(Json::as_str) == Some("inputs");
        let request = Request::deserialize(Json::Object(fields))
            .map_err(|error| Failure::Request(format!("a request cannot be read: {error}")));
        Self { nonce, has_descriptor, request }
    }
}

/// The frame's content for an answer.
pub(crate) fn answer(reply: Result<Json, Failure>, nonce: Option<Json>) -> Json {
    let reply = reply.or_else(|failure| serde_json::to_value(Failed::from(&failure)));
    let mut reply = reply.unwrap_or_else(|_| Json::Object(Map::new()));
    if let (Json::Object(fields), Some(nonce)) = (&mut reply, nonce) {
        fields.insert("nonce".to_owned(), nonce);
    }
    reply
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_have_the_documented_form() {
        let cases = [
            (json!({"do": "ping"}), Request::Ping),
            (json!({"do": "inputs", "bytes": 7}), Request::Inputs(Inputs { bytes: 7 })),
            (
                json!({"do": "settle", "at": [0, 512]}),
                Request::Settle(Settle { at: vec![0, 512], without_launches: false }),
            ),
            (json!({"do": "pin", "cores": [2, 0]}), Request::Pin(Pin { cores: vec![2, 0] })),
            (json!({"do": "go"}), Request::Go(Go { graph: false })),
            (
                json!({"do": "exchange", "call": 3, "at": 9, "own": "00ff", "other": "01fe"}),
                Request::Exchange(Exchange {
                    call: 3,
                    at: 9,
                    own: vec![0, 255],
                    other: vec![1, 254],
                }),
            ),
            (json!({"do": "go", "graph": true}), Request::Go(Go { graph: true })),
            (
                json!({"do": "stage", "calls": 2, "at": "00"}),
                Request::Stage(Stage { calls: 2, at: "00".to_owned(), graph: false }),
            ),
        ];
        for (text, request) in cases {
            let received = Received::read(text.to_string().as_bytes());
            assert_eq!(received.request.unwrap(), request);
            assert_eq!(received.has_descriptor, text["do"] == "inputs");
        }
    }

    #[test]
    fn answer_repeats_the_nonce() {
        let received = Received::read(br#"{"do": "turn", "nonce": "n7"}"#);
        assert_eq!(received.request.unwrap(), Request::Turn);
        let done = serde_json::to_value(Done {}).unwrap();
        assert_eq!(answer(Ok(done), received.nonce.clone()), json!({"nonce": "n7"}));
        let failure = Failure::Request("no".to_owned());
        assert_eq!(
            answer(Err(failure), received.nonce),
            json!({"error": {"kind": "request", "message": "no", "trace": ""}, "nonce": "n7"})
        );
    }

    #[test]
    fn descriptor_is_expected_with_unreadable_inputs() {
        let received = Received::read(br#"{"do": "inputs", "bytes": -1, "nonce": "a"}"#);
        assert!(received.has_descriptor);
        assert!(received.request.is_err());
        assert_eq!(received.nonce, Some(json!("a")));
    }

    proptest! {
        #[test]
        fn hostile_frames_never_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Received::read(&frame);
        }

        #[test]
        fn mutated_requests_never_panic(at in 0usize..400, byte: u8, cut in 0usize..400) {
            let mut frame = json!({
                "do": "load", "artifact": "/a", "nonce": "n", "plan": {
                    "version": 1, "producer": {"kind": "k", "compiler": "c"}, "modules": [],
                    "kernels": [], "tensor_maps": [], "constants": [], "blocks": [{"bytes": 4, "role": {"input": 0}}],
                    "prepare": [], "forward": [{"op": {"upload": {"to": {"block": {"block": 0, "offset": 0}},
                    "bytes": "00ff"}}}], "outputs": {"tree": [], "tensors": []}
                }
            }).to_string().into_bytes();
            prop_assert!(Received::read(&frame).request.is_ok());
            let at = at % frame.len();
            frame[at] = byte;
            let _ = Received::read(&frame);
            frame.truncate(cut % frame.len());
            prop_assert!(Received::read(&frame).request.is_err());
        }
    }
}
