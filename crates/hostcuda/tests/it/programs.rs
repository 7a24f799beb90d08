//! Builds and runs `tests/programs/*.cu`: each compares kernels with plain C++ that says what a GPU
//! computes, and returns 0 if nothing differs.
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
fn indices_are_unsigned() {
    run("indices");
}

#[test]
fn conversions_saturate() {
    run("conversions");
}

#[test]
fn rounding_is_as_it_is_said() {
    run("rounding");
}

#[test]
fn functions_are_there_and_right() {
    run("functions");
}

#[test]
fn parts_of_warps_find_each_other() {
    run("warps");
}

#[test]
fn honest_kernels_give_what_a_gpu_gives() {
    run("honest");
}

#[test]
fn constructors_and_macros_of_several_lines_are_rewritten() {
    run("classes");
}
