//! Tests that the oracle and the baseline process hold the device while they compute there, and only then.
//! On the host, `tests/holding.py` serves the oracle or the baseline of a GPU, and replaces each operation
//! that needs one by a log entry.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use warpwright_jail::{Child, Spec};

use crate::device::arena::{Arena, HostArena};
use crate::device::device_arbiter::AccessMode;
use crate::judge::LocalJudge;
use crate::process::channel::{Channel, NoAnswer, decode};
use crate::process::memory::{Memory, Work};
use crate::process::wire::{Opened, Sets, Sizes, Value};
use crate::testing::shared_judge;
use crate::timing::baseline::Baseline;

const PATIENCE: Duration = Duration::from_mins(5);

/// Without pointwise functions, so that no C++ is compiled.
const SQUARE: &str = "import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x

def get_inputs():
    return [torch.randn(8, 8)]
";

/// With weights of every kind that is moved for the other variant.
const WEIGHTS: &str = "import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.linear(x))

def get_inputs():
    return [torch.randn(4, 8)]
";

/// References of many kinds; the last keep something of what they computed.
const REFERENCES: [(&str, &str); 6] = [
    ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2))", "self.part(x)"),
    ("nn.MultiheadAttention(16, 4)", "self.part(x[0], x[0], x[0])[0]"),
    ("nn.Linear(16, 32)", "{'sizes': self.part(x).softmax(-1), 'best': self.part(x).argmax(-1)}"),
    ("nn.Identity()", "(x.cumsum(1)[:, ::2], x.bool())"),
    ("nn.Linear(16, 16)", "kept('state', lambda: torch.randn(16)) + self.part(x)"),
    ("nn.Linear(16, 16)", "self.__dict__.setdefault('first', self.part(x)) + x"),
];

fn reference(part: &str, forward: &str) -> String {
    format!(
        "import torch
from torch import nn

cache = {{}}

def kept(name, make):
    if name not in cache:
        cache[name] = make()
    return cache[name]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = {part}

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(2, 3, 16, 16)]
"
    )
}

/// A process, and the accesses that it requested during the last request.
struct Serving {
    channel: Channel,
    child: Child,
    accesses: Vec<AccessMode>,
}

#[derive(Deserialize)]
struct Told {
    told: Vec<String>,
}

impl Serving {
    fn baseline() -> Self {
        Self::start(|spec, _| spec)
    }

    fn oracle() -> Self {
        Self::start(|spec, judge| {
            let library = &judge.processes.host.library;
            spec.args(["--library", &library.to_string_lossy()]).read_only(library)
        })
    }

    fn start(more: impl FnOnce(Spec, &LocalJudge) -> Spec) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let judge = shared_judge();
        let host = &judge.processes.host;
        let tests = fs_err::canonicalize(here.join("tests")).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let spec = Spec::new(&host.python)
            .args(["-P", &tests.join("holding.py").to_string_lossy(), "--channel", "3"])
            .env("PYTHONPATH", host.package.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TORCHINDUCTOR_COMPILE_THREADS", "1")
            .with_system()
            .with_python(&host.python)
            .read_only(&host.package)
            .read_only(&tests)
            .fd(OwnedFd::from(theirs), 3);
        let child = host.jail.spawn(more(spec, judge)).unwrap();
        Self { channel: Channel::new(ours), child, accesses: Vec::new() }
    }

    /// Asks; gives what the process did, in order.
    fn ask(&mut self, request: &Json) -> Result<Vec<String>, NoAnswer> {
        self.accesses.clear();
        let hold = |access| self.accesses.push(access);
        self.channel.ask_holding(request, PATIENCE, hold).map(|Told { told }| told)
    }

    /// Hands memory over, to `adopt`.
    fn hand_over(&mut self, what: &str, arena: &Arena) -> Result<Vec<String>, NoAnswer> {
        self.accesses.clear();
        let request = json!({"do": what, "arena_bytes": arena.len()});
        self.channel.send(&request, PATIENCE)?;
        self.channel.send_descriptor(arena.lend().unwrap().as_fd())?;
        let hold = |access| self.accesses.push(access);
        self.channel.answer_holding(PATIENCE, hold).map(|Told { told }| told)
    }

    fn open(&mut self, source: &str, asks: &str) -> Vec<String> {
        let request = json!({
            "do": "open", "source": source, "profile": "strict", "mode": "eval", "seed": 1,
            "weights": "init",
            "device_bytes": null, "asks": asks,
        });
        let opened = self.ask(&request);
        opened.unwrap_or_else(|e| panic!("{e:?} {:?}", self.child.output_so_far()))
    }

    fn compile(&mut self, which: Baseline, asks: &str) -> Result<Vec<String>, NoAnswer> {
        let request = json!({
            "do": "compile", "which": which.name(), "seed": 1, "warm_calls": 2, "asks": asks,
        });
        self.ask(&request)
    }
}

/// What was done without the device held as `needed`, and with it that would keep others waiting.
fn mistakes(told: &[String], needed: &str) -> Vec<String> {
    let mut holding = "nothing";
    let mut mistakes = Vec::new();
    for (k, step) in told.iter().map(String::as_str).enumerate() {
        let right = match step {
            "moves" | "draws" | "computes" | "times" | "maps" => holding == needed,
            "builds" | "perturbs" | "compiles" | "compiled" => holding == "nothing",
            // SingleFlight back only when what was begun is done.
            "nothing" => k > 0 && told[k - 1] == "waits",
            _ => true,
        };
        if !right {
            mistakes.push(format!("{step} holding {holding}"));
        }
        if ["alone", "shared", "nothing"].contains(&step) {
            holding = step;
        }
    }
    mistakes
}

fn count(told: &[String], step: &str) -> usize {
    told.iter().filter(|told| *told == step).count()
}

#[test]
fn an_oracle_makes_its_models_before_it_asks_for_the_device() {
    let mut serving = Serving::oracle();
    let told = serving.open(WEIGHTS, "rightly");
    assert_eq!(mistakes(&told, "shared"), Vec::<String>::new(), "{told:?}");
    let done = ["builds", "perturbs", "moves", "draws", "computes"].map(|step| count(&told, step));
    assert_eq!(done, [2, 1, 2, 8, 7], "{told:?}");
    assert_eq!(serving.accesses, [AccessMode::Shared, AccessMode::Nothing], "{told:?}");

    // Their weights are those of the seed, whatever was done in which order.
    let weights = serving.ask(&json!({"do": "weights"})).unwrap();
    assert_eq!(weights, serving.ask(&json!({"do": "wanted", "seed": 1})).unwrap());
    assert_ne!(weights[0], weights[1]);
    assert_ne!(weights, serving.ask(&json!({"do": "wanted", "seed": 2})).unwrap());

    // Its memory is mapped beside others as well, and then holds what it is asked for.
    let arena = Arena::Host(HostArena::create(1 << 20).unwrap());
    let told = serving.hand_over("adopt", &arena).unwrap();
    assert_eq!(told, ["shared", "maps", "waits", "nothing"]);
    assert_eq!(serving.accesses, [AccessMode::Shared, AccessMode::Nothing]);

    // An oracle that did not ask would be seen, and so would one that held the device all along.
    let told = serving.open(WEIGHTS, "never");
    assert_eq!(mistakes(&told, "shared").len(), 2 + 8 + 7, "{told:?}");
    let told = serving.open(WEIGHTS, "throughout");
    let kept = ["builds", "builds", "perturbs"].map(|step| format!("{step} holding shared"));
    assert_eq!(mistakes(&told, "shared")[..3], kept, "{told:?}");
}

/// As on a GPU, where candidates have one memory after the other.
#[test]
fn an_oracle_stores_inputs_in_the_candidates_arena() {
    let mut serving = Serving::oracle();
    serving.open(SQUARE, "rightly");
    let memory = || Arena::Host(HostArena::create(1 << 20).unwrap());
    let (own, candidates) = (memory(), memory());
    serving.hand_over("adopt", &own).unwrap();
    let offsets = [1 << 16, 4096, 1 << 19];
    let drawn = json!({"seeds": [5, 6, 5], "families": ["own", "own", "own"]});
    // With the descriptor where the memory is mapped anew; kept mapped where the next window has it too.
    let mut ask = |what: &str, more: (&str, Json), (map, keep): (bool, bool)| {
        let mut request = drawn.clone();
        request["do"] = what.into();
        request[more.0] = more.1;
        request["at"] = json!(0);
        request["bytes"] = json!(1 << 20);
        request["map"] = map.into();
        request["keep"] = keep.into();
        serving.channel.send(&request, PATIENCE).unwrap();
        if map {
            serving.channel.send_descriptor(candidates.lend().unwrap().as_fd()).unwrap();
        }
        decode::<Sets>(&serving.channel.receive(PATIENCE).unwrap()).unwrap().sets
    };
    let bytes = |arena: &Arena, set: &Value| {
        let at = &set.tensors[0];
        let mut bytes = vec![0; at.bytes as usize];
        arena.read(at.offset.unwrap(), &mut bytes).unwrap();
        bytes
    };
    let once = ask("provide", ("offsets", json!(offsets)), (true, false));
    let provided = ask("provide", ("offsets", json!(offsets)), (true, true));
    assert_eq!(once, provided);
    let there: Vec<_> = provided.iter().map(|set| bytes(&candidates, set)).collect();
    assert_eq!(
        provided.iter().map(|set| set.tensors[0].offset.unwrap()).collect::<Vec<_>>(),
        offsets
    );
    let made = ask("inputs", ("offset", json!(0)), (false, false));
    let here: Vec<_> = made.iter().map(|set| bytes(&own, set)).collect();
    assert_eq!(there, here);
    assert_eq!(there[0], there[2]);
    assert_ne!(there[0], there[1], "positive control");

    // Other places of the memory that it kept.
    let later = [1 << 18, 8192, 1 << 17];
    let moved = ask("provide", ("offsets", json!(later)), (false, false));
    assert_eq!(moved.iter().map(|set| bytes(&candidates, set)).collect::<Vec<_>>(), there);

    // Nothing else was touched.
    let mut all = vec![0; 1 << 20];
    candidates.read(0, &mut all).unwrap();
    for (offset, bytes) in offsets.iter().chain(&later).zip(there.iter().chain(&there)) {
        all[*offset as usize..][..bytes.len()].fill(0);
    }
    assert!(all.iter().all(|byte| *byte == 0));
    // What lies there outlives the process's view of it.
    assert_eq!(serving.ask(&json!({"do": "closed"})).unwrap(), Vec::<String>::new());
    assert_eq!(bytes(&candidates, &provided[1]), there[1]);
}

#[test]
fn predicted_sizes_match_the_opened_task() {
    #[derive(Deserialize)]
    struct Both {
        foreseen: Option<Sizes>,
        opened: Opened,
    }
    let mut serving = Serving::oracle();
    let mut ask = |source: &str, mode: &str, small_bytes: u64| {
        let request = json!({
            "do": "foreseen", "source": source, "profile": "strict", "mode": mode, "seed": 1,
            "device_bytes": null, "small_bytes": small_bytes,
        });
        let both = serving.channel.ask_holding::<Both>(&request, PATIENCE, |_| ());
        both.unwrap_or_else(|e| panic!("{source}: {e:?} {:?}", serving.child.output_so_far()))
    };
    for (part, forward) in REFERENCES {
        for mode in ["eval", "train"] {
            let Both { foreseen, opened } = ask(&reference(part, forward), mode, 0);
            let foreseen = foreseen.unwrap_or_else(|| panic!("nothing is foreseen of {part}"));
            let (sizes, actual) = (&foreseen, &opened.sizes);
            assert_eq!(sizes.inputs.bytes(), actual.inputs.bytes(), "{part}");
            assert_eq!(sizes.outputs.bytes(), actual.outputs.bytes(), "{part}");
            assert_eq!(sizes.outputs.tree, actual.outputs.tree, "{part}");
            assert_eq!(sizes.state.len(), actual.state.len(), "{part}");
            let needs = |sizes| Memory::needed(sizes, Work::Judging);
            let (wanted, needed) = (needs(sizes), needs(actual));
            // What a reference keeps is allocated by the first call, which is the one foreseen.
            assert!(needed <= wanted && wanted <= needed + needed / 4, "{part}: {wanted} {needed}");
        }
    }
    // Of a chain, what is alive at once is little of what is allocated.
    let part = "nn.Sequential(*[nn.Hardtanh() for _ in range(10)])";
    let Both { foreseen, opened } = ask(&reference(part, "self.part(x)"), "eval", 0);
    let (sizes, result) = (foreseen.as_ref().unwrap(), opened.sizes.outputs.bytes());
    assert!(opened.allocated_bytes >= 10 * result, "{}", opened.allocated_bytes);
    assert!((2 * result..4 * result).contains(&sizes.peak_bytes), "{}", sizes.peak_bytes);
    // Nothing is said of small tasks, of what depends on values or on the device, and of what would
    // take long.
    let (part, forward) = REFERENCES[0];
    assert!(ask(&reference(part, forward), "eval", 64 << 20).foreseen.is_none());
    for (part, forward) in [
        ("nn.Identity()", "nn.functional.scaled_dot_product_attention(x, x, x)"),
        ("nn.LSTM(16, 16, 2, batch_first=True)", "self.part(x[0])"),
        ("nn.Identity()", "sum(x for _ in range(5000))"),
    ] {
        let foreseen = ask(&reference(part, forward), "eval", 0).foreseen;
        assert!(foreseen.is_none(), "{part} {forward}: {foreseen:?}");
    }
}

#[test]
fn an_oracle_that_fails_while_it_computes_gives_the_device_back() {
    let mut serving = Serving::oracle();
    let request = json!({
        "do": "open", "source": SQUARE.replace("return x @ x", "raise ValueError('no')"),
        "profile": "strict", "mode": "eval", "seed": 1, "device_bytes": null, "weights": "init",
        "asks": "rightly",
    });
    let failed = serving.ask(&request);
    assert!(matches!(failed, Err(NoAnswer::Complaint(_))), "{failed:?}");
    assert_eq!(serving.accesses, [AccessMode::Shared, AccessMode::Nothing]);
}

#[test]
fn a_baseline_loads_its_model_before_it_asks_for_the_device() {
    let mut serving = Serving::baseline();
    let told = serving.open(WEIGHTS, "rightly");
    assert_eq!(told, ["builds", "shared", "moves", "waits", "nothing"]);
    assert_eq!(serving.accesses, [AccessMode::Shared, AccessMode::Nothing]);
}

#[test]
fn a_compile_holds_the_device_only_while_it_computes() {
    let mut serving = Serving::baseline();
    serving.open(SQUARE, "rightly");
    let told = serving.compile(Baseline::Compile, "rightly").unwrap();
    assert_eq!(mistakes(&told, "alone"), Vec::<String>::new(), "{told:?}");
    // Two warm calls; one variant, timed while the graph is compiled.
    let done = ["computes", "times", "compiled"].map(|step| count(&told, step));
    assert_eq!(done, [2, 1, 1], "{told:?}");
    // For the inputs, the variant, the first call and all others; the judge hears what the process does.
    assert_eq!(serving.accesses, [AccessMode::Alone, AccessMode::Nothing].repeat(4), "{told:?}");

    // A compile that did not ask would be seen, and so would one that held the device all along.
    let told = serving.compile(Baseline::Compile, "never").unwrap();
    let unasked = ["times", "computes"].map(|step| format!("{step} holding nothing"));
    assert_eq!(mistakes(&told, "alone"), unasked, "{told:?}");
    let told = serving.compile(Baseline::Compile, "throughout").unwrap();
    let kept = ["compiles", "compiled"].map(|step| format!("{step} holding alone"));
    assert_eq!(mistakes(&told, "alone"), kept, "{told:?}");
}

#[test]
fn graphs_compiled_on_meta_tensors_are_reused() {
    let mut serving = Serving::baseline();
    let meta_compile = |serving: &mut Serving, source: &str| {
        let request = json!({
            "do": "meta_compile", "source": source, "profile": "strict", "mode": "eval", "seed": 1,
            "weights": "init",
            "which": ["compile"],
        });
        let told = serving.ask(&request).unwrap();
        assert_eq!(count(&told, "computes"), 0, "{told:?}");
        let accesses = std::mem::take(&mut serving.accesses);
        serving.open(source, "rightly");
        let compile = json!({
            "do": "compile", "which": "compile", "seed": 1, "warm_calls": 2, "asks": "rightly",
            "keep": true,
        });
        let later = serving.ask(&compile).unwrap();
        (told, accesses, later)
    };
    let (told, accesses, later) = meta_compile(&mut serving, SQUARE);
    assert_eq!(count(&told, "compiled"), 1, "{told:?}");
    assert!(told.contains(&"missing: ".to_owned()), "{told:?}");
    // Alone while the variant is timed, and for nothing else.
    assert_eq!(accesses, [AccessMode::Alone, AccessMode::Nothing], "{told:?}");
    assert_eq!((count(&later, "compiles"), count(&later, "computes")), (0, 2), "{later:?}");

    let linear = WEIGHTS.replace("self.norm(self.linear(x))", "self.linear(x)");
    // Weights are put back, and were looked at by nobody.
    let (told, _, later) = meta_compile(&mut serving, &linear);
    assert!(told.contains(&"missing: ".to_owned()), "{told:?}");
    assert_eq!((count(&later, "compiles"), count(&later, "computes")), (0, 2), "{later:?}");

    // What a user's compile leaves out of its graphs is not compiled otherwise for that.
    let two = "y = x @ x\n        torch._dynamo.graph_break()\n        return y @ y";
    let broken = SQUARE.replace("return x @ x", two);
    let (told, _, later) = meta_compile(&mut serving, &broken);
    assert_ne!(told.last().map(String::as_str), Some("missing: "), "{told:?}");
    assert!(count(&later, "compiles") > 0, "{later:?}");
}

#[test]
fn a_baseline_that_fails_while_it_computes_gives_the_device_back() {
    let mut serving = Serving::baseline();
    serving.open(&SQUARE.replace("return x @ x", "raise ValueError('no')"), "rightly");
    let failed = serving.compile(Baseline::Eager, "rightly");
    assert!(matches!(failed, Err(NoAnswer::Complaint(_))), "{failed:?}");
    assert_eq!(serving.accesses, [AccessMode::Alone, AccessMode::Nothing]);
}
