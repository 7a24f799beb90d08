//! A compile has the device alone for what computes there, and holds nothing of it meanwhile. On the
//! host: `tests/holding.py` serves the baseline of a GPU, with a note in place of what needs one.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use warpwright_jail::{Child, Jail, Requirement, Spec};

use super::*;
use crate::channel::Channel;
use crate::gate::Wish;

/// Without pointwise functions, so that no C++ is compiled.
const SQUARE: &str = "import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x @ x

def get_inputs():
    return [torch.randn(8, 8)]
";

/// A baseline process, and what it wished during the last request.
struct Serving {
    channel: Channel,
    child: Child,
    wishes: Vec<Wish>,
}

#[derive(Deserialize)]
struct Told {
    told: Vec<String>,
}

impl Serving {
    fn start() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let named = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
        let python = named.unwrap_or_else(|| here.join("../../.venv/bin/python"));
        let folder = fs_err::canonicalize(python.parent().unwrap()).unwrap();
        let python = folder.join(python.file_name().unwrap());
        let package = fs_err::canonicalize(here.join("../../python")).unwrap();
        let tests = fs_err::canonicalize(here.join("tests")).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let spec = Spec::new(&python)
            .args(["-P", &tests.join("holding.py").to_string_lossy(), "--channel", "3"])
            .env("PYTHONPATH", package.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TORCHINDUCTOR_COMPILE_THREADS", "1")
            .with_system()
            .with_python(&python)
            .read_only(&package)
            .read_only(&tests)
            .fd(OwnedFd::from(theirs), 3);
        let child = Jail::detect(Requirement::Any).unwrap().spawn(spec).unwrap();
        Self { channel: Channel::new(ours), child, wishes: Vec::new() }
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, request: &Json) -> Result<T, NoAnswer> {
        self.wishes.clear();
        let hold = |wish| self.wishes.push(wish);
        self.channel.ask_holding(request, PATIENCE, hold)
    }

    fn open(&mut self, source: &str) {
        let request = json!({
            "do": "open", "source": source, "profile": "strict", "mode": "eval", "seed": 1,
        });
        let opened = self.ask::<Json>(&request);
        assert!(opened.is_ok(), "{opened:?} {:?}", self.child.output_so_far());
    }

    /// Compiles; gives what the process did, in order.
    fn compile(&mut self, which: Baseline, asks: &str) -> Result<Vec<String>, NoAnswer> {
        let request = json!({
            "do": "compile", "which": which.name(), "seed": 1, "warm_calls": 2, "asks": asks,
        });
        self.ask(&request).map(|Told { told }| told)
    }
}

/// What was done without the device that needs it, and with it that would keep others waiting.
fn mistakes(told: &[String]) -> Vec<String> {
    let mut holding = "nothing";
    let mut mistakes = Vec::new();
    for (k, step) in told.iter().map(String::as_str).enumerate() {
        let right = match step {
            "computes" | "times" => holding == "alone",
            "compiles" | "compiled" => holding == "nothing",
            // Given back only when what was begun is done.
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

#[test]
fn a_compile_asks_for_the_device_around_what_computes_and_holds_nothing_meanwhile() {
    let mut serving = Serving::start();
    serving.open(SQUARE);
    let told = serving.compile(Baseline::Compile, "rightly").unwrap();
    assert_eq!(mistakes(&told), Vec::<String>::new(), "{told:?}");
    let count = |step: &str| told.iter().filter(|told| *told == step).count();
    // Two warm calls; one variant, timed while the graph is compiled.
    assert_eq!((count("computes"), count("times"), count("compiled")), (2, 1, 1), "{told:?}");
    // For the inputs, the variant and each call; the judge hears what the process does.
    assert_eq!(serving.wishes, [Wish::Alone, Wish::Nothing].repeat(4), "{told:?}");

    // A compile that did not ask would be seen, and so would one that held the device all along.
    let told = serving.compile(Baseline::Compile, "never").unwrap();
    let unasked = ["times", "computes", "computes"].map(|step| format!("{step} holding nothing"));
    assert_eq!(mistakes(&told), unasked, "{told:?}");
    let told = serving.compile(Baseline::Compile, "throughout").unwrap();
    let kept = ["compiles", "compiled"].map(|step| format!("{step} holding alone"));
    assert_eq!(mistakes(&told), kept, "{told:?}");
}

#[test]
fn a_baseline_that_fails_while_it_computes_gives_the_device_back() {
    let mut serving = Serving::start();
    serving.open(&SQUARE.replace("return x @ x", "raise ValueError('no')"));
    let failed = serving.compile(Baseline::Eager, "rightly");
    assert!(matches!(failed, Err(NoAnswer::Complaint(_))), "{failed:?}");
    assert_eq!(serving.wishes, [Wish::Alone, Wish::Nothing].repeat(2));
}
