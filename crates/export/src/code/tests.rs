//! Generated code is compiled, and run against libraries that print what it calls.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::texts::RUNTIME;

/// A plan with every kind of operation on a GPU that can be exported, in two streams.
fn plan() -> LaunchPlan {
    let launch = |kernel: u32, more: serde_json::Value| {
        let mut launch = json!({
            "kernel": kernel, "grid": [4, 1, 1], "block": [128, 1, 1], "shared": 16,
            "args": [
                {"bytes": "0000000000000000", "relocations": [{"at": 0, "to": {"block": 0, "offset": 8}}]},
                {"bytes": "0700000000000000"},
            ],
        });
        for (name, value) in more.as_object().unwrap() {
            launch[name] = value.clone();
        }
        json!({ "launch": launch })
    };
    let map = json!({"args": [
        {"bytes": "00".repeat(128), "tensor_maps": [[0, 0]]},
        {"bytes": "0000000000000000", "relocations": [{"at": 0, "to": {"block": 4, "offset": 0}}]},
    ]});
    let block = |block: u32, offset: u64| json!({"block": {"block": block, "offset": offset}});
    let symbol = json!({"symbol": {"module": 0, "name": "table\"; }", "offset": 4}});
    let gemm = json!({
        "transpose": [1, 0], "sizes": [8, 4, 16], "types": [0, 0, 0], "leading": [16, 16, 8],
        "operands": [{"block": 1, "offset": 0}, {"block": 0, "offset": 0}, {"block": 3, "offset": 0}],
        "strides": [128, 0, 32], "batch": 1, "alpha": {"f32": 0x3f80_0000}, "beta": {"f32": 0}, "compute": 68,
        "math": 0, "algorithm": -1,
    });
    let mut several = gemm.clone();
    several["batch"] = json!(2);
    let gemv = json!({
        "transpose": 0, "sizes": [8, 16], "dtype": 0, "leading": 8, "steps": [1, 1], "strides": [0, 0, 0],
        "operands": [{"block": 1, "offset": 0}, {"block": 0, "offset": 0}, {"block": 3, "offset": 64}],
        "batch": 1, "alpha": {"f32": 0x3f80_0000}, "beta": {"f32": 0}, "math": 0,
    });
    let fill =
        json!({"to": block(4, 0), "value": 1, "element": 4, "width": 8, "height": 1, "pitch": 0});
    let rows =
        json!({"to": symbol, "value": 255, "element": 1, "width": 8, "height": 2, "pitch": 32});
    let copy = json!({
        "to": block(3, 0), "from": block(0, 0), "width": 64, "height": 1, "to_pitch": 0, "from_pitch": 0,
    });
    let mut copies = copy.clone();
    copies["height"] = json!(3);
    copies["to_pitch"] = json!(128);
    copies["from_pitch"] = json!(64);
    let upload = json!({"to": block(2, 0), "bytes": "0102030405060708"});
    let linked = json!({
        "to": block(2, 64), "bytes": "0000000000000000",
        "relocations": [{"at": 0, "to": {"block": 1, "offset": 32}}],
    });
    let kernel = |name: &str| json!({"module": 0, "name": name, "params": [8, 8]});
    let mut special = kernel("_Z3addPf");
    special["max_dynamic_shared"] = json!(98304);
    special["shared_carveout"] = json!(-1);
    special["nonportable_cluster"] = json!(true);
    serde_json::from_value(json!({
        "version": 1,
        "producer": {"kind": "cuda-runtime", "compiler": "nvcc"},
        "modules": [{"hash": "00".repeat(32), "file": "m", "offset": 0, "bytes": 5}],
        "kernels": [kernel("relu\\\"\n"), special],
        "tensor_maps": [{
            "dtype": 7, "address": {"block": 1, "offset": 16}, "dims": [64, 32], "strides": [256],
            "box_dims": [16, 8], "element_strides": [1, 1], "interleave": 0, "swizzle": 3, "l2_promotion": 0,
            "oob_fill": 0,
        }],
        "constants": [],
        "blocks": [
            {"bytes": 4096, "role": {"input": 0}}, {"bytes": 4096, "role": {"weight": 5}},
            {"bytes": 512, "role": "kept"}, {"bytes": 4096, "role": {"call": {"born": 0, "freed": null}}},
            {"bytes": 4096, "role": {"call": {"born": 0, "freed": 5}}},
        ],
        "prepare": [{"op": {"upload": upload}}, {"op": {"upload": linked}}],
        "forward": [
            {"op": launch(0, json!({}))},
            {"stream": 1, "op": launch(1, json!({"cluster": [2, 1, 1], "programmatic": true}))},
            {"after": [1], "op": launch(0, json!({"programmatic": true, "cooperative": true}))},
            {"op": launch(1, map)},
            {"op": {"fill": fill}}, {"op": {"fill": rows}}, {"op": {"copy": copy}}, {"op": {"copy": copies}},
            {"op": {"gemm": gemm}}, {"stream": 1, "op": {"gemm": several}}, {"op": {"gemv": gemv}},
        ],
        "outputs": {"tree": {"tensor": 0}, "tensors": [
            {"at": {"block": 3, "offset": 0}, "shape": [32, 32], "strides": [32, 1], "dtype": "float32"},
        ]},
    }))
    .unwrap()
}

#[expect(clippy::disallowed_types, reason = "the test starts a compiler, and what it made")]
fn ran(program: &Path, arguments: &[&str], libraries: &Path) -> String {
    let mut command = std::process::Command::new(program);
    let output = command.args(arguments).env("LD_LIBRARY_PATH", libraries).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Compiles with all warnings as errors.
fn compiled(folder: &Path, flags: &[&str]) {
    let warnings = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I", text(folder)];
    ran(Path::new("c++"), &[&warnings[..], flags].concat(), folder);
}

/// A folder with the headers of packages and this launch code, compiled.
fn launch_code(code: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in RUNTIME {
        fs_err::write(folder.path().join(name), text).unwrap();
    }
    let (source, target) = (folder.path().join("launch.cpp"), folder.path().join("launch.so"));
    fs_err::write(&source, code).unwrap();
    compiled(folder.path(), &["-shared", "-fPIC", text(&source), "-o", text(&target), "-ldl"]);
    folder
}

#[test]
fn generated_code_calls_the_driver_as_the_plan_says() {
    let plan = plan();
    let layout = Layout::of(&plan).unwrap();
    let code = generate(Kind::Cuda, &plan, &layout, &[5]).unwrap();
    let folder = launch_code(&code);
    let at = |name: &str| folder.path().join(name);
    let stub = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stub_libraries.cpp");
    for library in ["libcuda.so.1", "libcublas.so.13"] {
        let target = at(library);
        ran(
            Path::new("c++"),
            &["-shared", "-fPIC", text(&stub), "-o", text(&target)],
            folder.path(),
        );
    }
    let main = at("main");
    compiled(folder.path(), &["-DMAIN", text(&stub), "-o", text(&main), "-ldl", "-pthread"]);
    let told = ran(&main, &[text(&at("launch.so"))], folder.path());
    let (first, captured) = told.split_at(told.rfind("ww_forward").unwrap());
    insta::assert_snapshot!(first, @r#"
    retain 0
    context c0
    load image
    function relu\"

    function _Z3addPf
    attribute 8 98304
    attribute 9 -1
    attribute 14 1
    variable table"; }
    ww_prepare
    record 9 104
    wait 103 104
    upload 4000 8 first 807060504030201
    upload 4040 8 first 2020
    record 103 105
    wait 9 105
    ww_forward
    record 9 104
    wait 103 104
    launch 101 in 9 grid 4 1 1 block 128 shared 16 args 1008 7
    launch 102 in 103 grid 4 1 1 block 128 shared 16 args 1008 7 attribute 4 2
    record 103 106
    wait 9 106
    launch 101 in 9 grid 4 1 1 block 128 shared 16 args 1008 7 attribute 2 1 attribute 6 1
    encode 7 rank 2 at 2010 dims 64 32 box 16 swizzle 3
    launch 102 in 9 grid 4 1 1 block 128 shared 16 args abcd 5000
    fill32 5000 pitch 32 value 1 8x1
    fill8 7004 pitch 32 value 255 8x2
    copy 3000 from 1000 64
    copy2d 3000 pitch 128 from 1000 pitch 64 64x3 kinds 2 2
    blas stream 9
    workspace 6000 33554432
    math 0
    gemm 10 8x4x16 alpha 1 beta 0 a 2000 lda 16 b 1000 c 3000 compute 68
    blas stream 103
    workspace 2006000 33554432
    math 0
    gemms 8x4x16 strides 128 32 batch 2
    blas stream 9
    workspace 6000 33554432
    math 0
    gemv 0 8x16 a 2000 lda 8 x 1000 step 1 y 3040
    record 103 105
    wait 9 105
    "#);
    // Programmatic serialization is left out while a graph is captured; an upload with addresses is in `prepare` only.
    let launch = |attributes: &str| format!("shared 16 args 1008 7{attributes}\n");
    assert!(first.contains(&launch(" attribute 2 1 attribute 6 1")), "{first}");
    assert!(captured.contains(&launch(" attribute 2 1")), "{captured}");
    assert!(!captured.contains("failed"), "{captured}");
    assert!(captured.starts_with("ww_forward\ncontext c0\n"), "{captured}");
}

#[test]
fn operations_that_cannot_be_exported_are_named() {
    let mut plan = plan();
    let layout = Layout::of(&plan).unwrap();
    assert!(generate(Kind::Cuda, &plan, &layout, &[5]).is_ok(), "control");
    assert!(generate(Kind::Cuda, &plan, &layout, &[]).is_err(), "a weight that is not given");
    let refused = generate(Kind::Host, &plan, &layout, &[5]).unwrap_err();
    assert!(refused.to_string().contains("a kernel has no place"), "{refused}");
    plan.kernels.iter_mut().for_each(|kernel| kernel.name = "k@0x40".to_owned());
    let refused = generate(Kind::Host, &plan, &layout, &[5]).unwrap_err();
    assert!(refused.to_string().contains("calls a library on the cpu device"), "{refused}");
}
