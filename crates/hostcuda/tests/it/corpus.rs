//! Builds `tests/corpus/*.cu` and runs the Python drivers next to it.
#![expect(clippy::disallowed_types, reason = "the sources are this repository's own")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use warpwright_hostcuda::{compile_flags, fingerprint, launchers, translate_with, write_headers};
use warpwright_test_support::{Need, missing};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn python() -> PathBuf {
    match std::env::var_os("WARPWRIGHT_PYTHON") {
        Some(path) => path.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python"),
    }
}

fn sources() -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = fs::read_dir(here().join("corpus"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    list.sort();
    list
}

fn translated(source: &Path) -> String {
    let text = fs::read_to_string(source).unwrap();
    let beside = |name: &str, _: &str| {
        let path = source.parent()?.join(name);
        Some((path.display().to_string(), fs::read_to_string(&path).ok()?))
    };
    let file = source.display().to_string();
    match translate_with(&text, &file, &beside) {
        Ok(translated) => translated.cpp,
        Err(refused) => panic!("{refused:?}"),
    }
}

/// Compiles one file unless another test process has compiled it.
fn build_one(source: &Path, folder: &Path) {
    let cpp = translated(source);
    let stem = source.file_stem().unwrap().to_str().unwrap();
    let (text, library) = (folder.join(format!("{stem}.cpp")), folder.join(format!("{stem}.so")));
    if library.exists() && fs::read_to_string(&text).is_ok_and(|old| old == cpp) {
        return;
    }
    fs::write(&text, &cpp).unwrap();
    let partial = folder.join(format!("{stem}.partial"));
    let out = Command::new("g++")
        .args(compile_flags())
        .arg("-I")
        .arg(folder.join("include"))
        .args(["-shared", "-o"])
        .args([&partial, &text])
        .output()
        .unwrap();
    assert!(out.status.success(), "{stem}: {}", String::from_utf8_lossy(&out.stderr));
    fs::rename(&partial, &library).unwrap();
}

/// A folder with a library for every file of the corpus.
fn build() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("corpus-{}", &fingerprint()[..16]));
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    write_headers(&folder.join("include")).unwrap();
    let sources = sources();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (sources, folder) = (&sources, &folder);
            scope.spawn(move || {
                sources.iter().skip(half).step_by(2).for_each(|s| build_one(s, folder));
            });
        }
    });
    folder
}

fn drive(script: &str, args: &[&str], threads: &str) {
    let folder = build();
    let out = Command::new(python())
        .arg(here().join(script))
        .arg(&folder)
        .args(args)
        .env("OMP_NUM_THREADS", threads)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}: `make setup` provides it", python().display()));
    let said = String::from_utf8_lossy(&out.stdout);
    let failed: Vec<&str> = said.lines().filter(|l| !l.starts_with("ok ")).collect();
    assert!(out.status.success(), "{failed:#?}\n{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn corpus_kernels_match_torch() {
    drive("corpus.py", &[], "4");
}

/// Nothing runs while the corpus is recorded, and another copy of a library computes the same bits.
#[test]
fn recorded_launches_give_direct_bits() {
    drive("replay.py", &[], "2");
}

#[test]
fn concurrent_repeated_launches_give_identical_bits() {
    drive("stress.py", &["5"], "4");
}

#[test]
fn long_concurrent_repeated_launches_give_identical_bits() {
    drive("stress.py", &["120"], "4");
}

/// The driver names launchers by hand; this test detects missing ones.
#[test]
fn every_launcher_of_the_corpus_has_a_case() {
    let driver = fs::read_to_string(here().join("corpus.py")).unwrap();
    for source in sources() {
        let stem = source.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&source).unwrap();
        for launcher in launchers(&text, &stem).unwrap() {
            let case = format!("@case(\"{stem}\", \"{}\")", launcher.name);
            assert!(driver.contains(&case), "{case}");
        }
    }
}

/// Compiler messages must point at the `.cu` file, despite text inserted before the location.
#[test]
fn compiler_messages_name_the_cuda_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_headers(&folder.join("include")).unwrap();
    let text = "#include \"helper.cuh\"\n__global__ void k(float* x,\n                  int n) {\n  \
                __shared__ float s[4][\n     4];\n  __syncthreads();\n  x[0] = undeclared_thing;\n}\n\
                extern \"C\" void f(float* x) { k<<<1,\n 32>>>(x,\n 1); other_thing(); }\n";
    let helper =
        |_: &str, _: &str| Some(("helper.cuh".to_owned(), "#pragma once\n\n\n".to_owned()));
    let cpp = translate_with(text, "kernels/broken.cu", &helper).unwrap().cpp;
    let path = folder.join("broken.cpp");
    fs::write(&path, cpp).unwrap();
    let out = Command::new("g++")
        .args(compile_flags())
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(folder.join("include"))
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("kernels/broken.cu:7:10: error"), "{said}");
    assert!(said.contains("kernels/broken.cu:11:6: error"), "{said}");
}

/// The corpus is CUDA, not a dialect: `nvcc` accepts it.
#[test]
fn long_nvcc_compiles_the_corpus() {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let wheel = std::fs::read_dir(libraries)
        .into_iter()
        .flatten()
        .flatten()
        .map(|python| python.path().join("site-packages/nvidia/cu13/bin/nvcc"))
        .find(|nvcc| nvcc.exists());
    let nvcc = wheel.unwrap_or_else(|| PathBuf::from("nvcc"));
    if Command::new(&nvcc).arg("--version").output().is_err() {
        missing(Need::Nvcc);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for source in sources() {
        let out = Command::new(&nvcc)
            .args(["-std=c++17", "-arch=sm_90", "-c", "-o"])
            .arg(folder.path().join("out.o"))
            .arg(&source)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}: {said}", source.display());
    }
}
