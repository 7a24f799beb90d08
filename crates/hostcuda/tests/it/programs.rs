//! Builds and runs `tests/programs/*.cu`: each compares kernels with plain C++ for a GPU's results,
//! and returns 0 if nothing differs.
#![expect(clippy::disallowed_types, reason = "the sources are this repository's own")]

use std::path::Path;
use std::process::Command;

use fs_err as fs;
use warpwright_hostcuda::{compile_flags, translate_with, write_headers};

fn run(name: &str) {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let file = programs.join(format!("{name}.cu"));
    let beside = |name: &str, _: &str| {
        let path = programs.join(name);
        Some((path.display().to_string(), fs::read_to_string(&path).ok()?))
    };
    let text = fs::read_to_string(&file).unwrap();
    let cpp = match translate_with(&text, &file.display().to_string(), &beside) {
        Ok(translated) => translated.cpp,
        Err(refused) => panic!("{refused:?}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("p.cpp"), folder.path().join("p"));
    fs::write(&source, cpp).unwrap();
    write_headers(&folder.path().join("include")).unwrap();
    let out = Command::new("g++")
        .args(compile_flags())
        .arg("-I")
        .arg(folder.path().join("include"))
        .arg("-o")
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(&program).env("OMP_NUM_THREADS", "2").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{name}: {:?}\n{said}", out.status);
}

#[test]
fn thread_indices_are_unsigned() {
    run("indices");
}

#[test]
fn conversions_saturate() {
    run("conversions");
}

#[test]
fn rounding_intrinsics_round_as_specified() {
    run("rounding");
}

#[test]
fn device_functions_and_intrinsics_are_correct() {
    run("functions");
}

#[test]
fn partial_warp_operations_are_correct() {
    run("warps");
}

#[test]
fn honest_kernels_match_gpu_results() {
    run("honest");
}

#[test]
fn constructors_and_multiline_macros_are_rewritten() {
    run("classes");
}

#[test]
fn recorder_hears_every_call_and_nothing_runs() {
    run("recording");
}
