//! The engine's own CUDA kernels on the cpu device, built as a candidate's are, beside torch.

use std::path::{Path, PathBuf};

use crate::program::Program;

/// What a candidate needs beside its kernels to be built.
const TASK: &str = "import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
";
const CANDIDATE: &str = "from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x + 1
";

#[test]
fn the_engines_kernels_do_what_torch_does() {
    let program = Program::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine_kernels");
    let read = |path: PathBuf| fs_err::read_to_string(path).unwrap();
    program.write("task.py", TASK);
    program.write("candidate/model_new.py", CANDIDATE);
    let kernels = here.join("../../../engine/csrc/kernels.cu");
    let source = read(kernels) + &read(here.join("launchers.cu"));
    program.write("candidate/kernels/kernels.cu", &source);
    let asked = ["judge", "task.py", "--candidate", "candidate", "--device", "cpu"];
    let mut command = program.command(&[&asked[..], &["--stage", "built"]].concat());
    // One of its own, in which nothing else is built.
    command.env("WARPWRIGHT_CACHE", program.path("cache"));
    let ran = program.ran(command);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let built = library(&program.path("cache/build/artifacts")).unwrap();
    let ran = program.python_tests(&here, &[("WARPWRIGHT_KERNELS", &built.to_string_lossy())]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
}

/// The library that kernels were built to, somewhere below a folder.
fn library(folder: &Path) -> Option<PathBuf> {
    fs_err::read_dir(folder).ok()?.find_map(|entry| {
        let path = entry.ok()?.path();
        let is_it = path.file_name().is_some_and(|name| name == "libkernels.so");
        if is_it {
            Some(path)
        } else if path.is_dir() {
            library(&path)
        } else {
            None
        }
    })
}
