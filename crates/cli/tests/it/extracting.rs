//! `task extract` divides whole models into tasks.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::program::{Program, Ran};

/// A file beside the tests, read from where the program runs.
fn scene(model: &str) -> Program {
    let program = Program::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(model);
    program.write("model.py", &fs_err::read_to_string(file).unwrap());
    program
}

/// Divides the model, with every module that can be a region. Times decide nothing.
fn extract(program: &Program, function: &str, more: &[&str]) -> Ran {
    let model = format!("model.py:{function}");
    let flags = ["--device", "cpu", "--cover", "1", "--min-share", "0", "--out", "out", "--json"];
    let named = ["task", "extract", "--model", &model, "--inputs", "model.py"];
    program.run(&[&named[..], &flags[..], more].concat())
}

fn region<'a>(found: &'a Json, task: &str) -> &'a Json {
    let regions = found["regions"].as_array().unwrap();
    let region = regions.iter().find(|region| region["task"] == task);
    assert!(region.is_some(), "{task} is not in {found:#}");
    region.unwrap()
}

/// Runs a script beside the tests, which imports `warpwright_model`.
fn script(program: &Program, name: &str, arguments: &[&str], packages: &[&Path]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = here.join("../../python");
    let search: Vec<String> = [&[own.as_path()], packages]
        .concat()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut command = program.other(&program.python().display().to_string());
    command.env("PYTHONPATH", search.join(":")).env("OMP_WAIT_POLICY", "PASSIVE");
    command.arg("-B").arg(here.join("tests/models").join(name)).args(arguments);
    let ran = program.ran(command);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    ran.stdout
}

/// The number of regions that a process of its own put into a model and removed.
fn patched(program: &Program, file: &str, packages: &[&Path]) -> u64 {
    script(program, "patching.py", &[file], packages).trim().parse().unwrap()
}

#[test]
fn kernels_are_attributed_by_their_launches() {
    script(&Program::new(), "attribution.py", &[], &[]);
}

/// The comparisons of modules with their tasks that a process of its own makes.
fn compared(program: &Program) -> u64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/compare.py");
    let mut command = program.other(&program.python().display().to_string());
    command.arg("-B").arg(script).args(["model.py", "out"]);
    let ran = program.ran(command);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    ran.stdout.trim().parse().unwrap()
}

#[test]
fn equal_decoder_layers_become_one_task() {
    let program = scene("decoder.py");
    let ran = extract(&program, "build", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    let layer = region(&found, "layer");
    assert_eq!(layer["modules"], 3);
    assert_eq!(layer["workloads"], serde_json::json!(["prefill", "decode"]));
    assert_eq!(found["graph_breaks"], serde_json::json!([]));
    let source = fs_err::read_to_string(program.path("out/tasks/layer.py")).unwrap();
    assert_eq!(source.matches("class Model").count(), 1);
    assert!(source.contains("F.scaled_dot_product_attention"), "{source}");
    // Three layers, norm, head and embedding, on two input sets.
    assert_eq!(compared(&program), 12);
    let lint = program.run(&["task", "lint", "out/tasks", "--device", "cpu", "--json"]);
    let linted = lint.object();
    let rows = linted["tasks"].as_array().unwrap();
    // The judge opens all. The mask of the layer is the same in each sample, which lint names.
    assert!(rows.len() == 4 && rows.iter().all(|row| row["refused"].is_null()), "{linted:#}");
    assert_eq!(linted["sound"], 3, "{linted:#}");
    // The tasks of another model would be mixed with these.
    let again = extract(&program, "build", &[]);
    assert_eq!(again.code, Some(2), "{}", again.show());
    assert!(again.stdout.contains("it has files"), "{}", again.show());
}

#[test]
fn each_shape_is_a_task_on_request() {
    let program = scene("decoder.py");
    let ran = extract(&program, "build", &["--separate"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    for (task, workload) in [("layer_prefill", "prefill"), ("layer_decode", "decode")] {
        let found = ran.object();
        assert_eq!(region(&found, task)["workloads"], serde_json::json!([workload]));
    }
}

#[test]
fn channels_last_blocks_keep_their_strides() {
    let program = scene("images.py");
    let ran = extract(&program, "build", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert_eq!(region(&ran.object(), "block")["modules"], 2);
    let stored = fs_err::read_to_string(program.path("out/regions.json")).unwrap();
    let stored: Json = serde_json::from_str(&stored).unwrap();
    let input = &region(&stored, "block")["inputs"][0];
    assert_eq!(input["strides"], serde_json::json!([[1024, 1, 128, 16]]));
    assert_eq!(compared(&program), 5);
}

#[test]
fn regions_between_graph_breaks_become_tasks() {
    let program = scene("odd.py");
    let ran = extract(&program, "breaks", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["regions"].as_array().unwrap().len(), 2);
    let place = found["graph_breaks"][0]["where"].as_str().unwrap();
    assert!(place.starts_with("model.py:") && place.ends_with("in forward"), "{found:#}");
    assert_eq!(found["left_out"][0]["class"], "Breaks");
}

#[test]
fn module_with_python_state_is_no_region() {
    let program = scene("odd.py");
    let ran = extract(&program, "counts", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    let regions = found["regions"].as_array().unwrap();
    assert!(regions.iter().all(|region| region["class"] == "Sequential"), "{found:#}");
    let out = found["left_out"].as_array().unwrap();
    let counts = out.iter().find(|one| one["class"] == "Counts").unwrap();
    assert_eq!(counts["reason"], "its task returns other values");
}

#[test]
fn models_and_inputs_that_fail_are_usage_errors() {
    let program = scene("odd.py");
    program.write("none.py", "x = 1\n");
    program
        .write("shape.py", "import torch\n\n\ndef get_inputs():\n    return [torch.randn(3, 5)]\n");
    program.write("text.py", "def get_inputs():\n    return 'x'\n");
    let cases = [
        ("model.py:writes", "model.py", "it writes to its inputs"),
        ("model.py:number", "model.py", "returned a int, no torch.nn.Module"),
        ("model.py:raises", "model.py", "ValueError: no weights"),
        ("model.py:nothing", "model.py", "no function `nothing`"),
        ("model.py:breaks", "none.py", "no function `get_inputs`"),
        ("model.py:breaks", "shape.py", "the model raised on inputs: RuntimeError"),
        ("model.py:breaks", "text.py", "returned a str, no list and no dict"),
        ("absent.py:breaks", "model.py", "no such file"),
        ("absent.module:breaks", "model.py", "ModuleNotFoundError"),
        ("model.py", "model.py", "it has no `:`"),
    ];
    for (model, inputs, cause) in cases {
        let named = ["task", "extract", "--model", model, "--inputs", inputs];
        let ran = program.run(&[&named[..], &["--device", "cpu", "--out", "out"]].concat());
        assert_eq!(ran.code, Some(2), "{model}: {}", ran.show());
        assert!(ran.stderr.contains(cause) && ran.stderr.contains("hint"), "{}", ran.show());
        assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.show());
        assert!(!program.path("out").exists(), "{model}");
    }
}

#[test]
fn patched_and_unpatched_models_agree() {
    for (model, regions) in [("decoder.py", 4), ("images.py", 4)] {
        assert_eq!(patched(&scene(model), "model.py", &[]), regions, "{model}");
    }
}

#[test]
fn whole_model_is_optimised_and_measured() {
    let program = scene("odd.py");
    let model =
        ["optimize", "--model", "model.py:breaks", "--inputs", "model.py", "--cover", "0.1"];
    let more = ["--device", "cpu", "--max-turns", "3", "--out", "whole", "--json"];
    let ran = program.run(&[&model[..], &more[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!((&found["tasks"], &found["verified"]), (&1.into(), &1.into()), "{found:#}");
    let set = &found["whole_model"]["input_sets"][0];
    for name in ["eager", "compile", "patched"] {
        assert!(set["milliseconds"][name]["value"].as_f64().unwrap() > 0.0, "{found:#}");
        assert!(set["error"][name].as_f64().unwrap() < 1e-4, "{found:#}");
    }
    for region in found["whole_model"]["regions"].as_array().unwrap() {
        // Whether the model gains is for the machine to say.
        assert!(region["gain"]["value"].as_f64().is_some(), "{found:#}");
        assert_eq!(region["fallback_calls"], 0);
    }
    for file in ["regions.json", "whole-model.json", "whole-model.html", "run/report.html"] {
        assert!(program.path("whole").join(file).is_file(), "{file}");
    }
}

/// A configuration of a small Llama.
const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
"vocab_size": 256, "max_position_embeddings": 512}"#;

/// `scripts/setup.d/model-server` installs transformers.
fn transformers() -> PathBuf {
    let baked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("WARPWRIGHT_TRANSFORMERS_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| baked.join(".cache/model-server/bin/python"));
    let libraries = python.parent().unwrap().join("../lib");
    let mut versions = fs_err::read_dir(libraries).unwrap().flatten();
    versions
        .find(|entry| entry.path().join("site-packages").is_dir())
        .unwrap()
        .path()
        .join("site-packages")
}

#[test]
fn layers_of_transformers_become_one_task() {
    let program = Program::new();
    program.write("config.json", CONFIG);
    let packages = transformers();
    let named = ["task", "extract", "--hf", "config.json", "--device", "cpu", "--json"];
    let bare = program.run(&[&named[..], &["--out", "bare"]].concat());
    assert_eq!(bare.code, Some(2), "{}", bare.show());
    assert!(bare.stdout.contains("--packages"), "{}", bare.show());
    let more = ["--cover", "1", "--min-share", "0", "--out", "out", "--packages"];
    let ran = program.run(&[&named[..], &more[..], &[&packages.display().to_string()]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert_eq!(region(&ran.object(), "llama_decoder_layer")["modules"], 2);
    assert!(patched(&program, "config.json", &[&packages]) >= 4);
}
