use std::collections::BTreeSet;
use std::fmt::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use warpwright_synth::{
    Catalogue, CatalogueError, Domain, Entry, Form, ShapeError, Sizes, Snippet,
};

use crate::support::{all_run, torch, transformers};

#[test]
fn committed_catalogues_are_complete() {
    let torch = Catalogue::torch().unwrap();
    assert!(torch.entries.len() >= 250, "{} operators of torch", torch.entries.len());
    let transformers = Catalogue::transformers().unwrap();
    assert!(transformers.entries.len() >= 80, "{} of transformers", transformers.entries.len());
    for catalogue in [&torch, &transformers] {
        assert!(catalogue.versions.contains_key("torch"));
        assert!(catalogue.versions.contains_key("python"));
        assert!(!catalogue.left_out.is_empty());
        let classes: BTreeSet<_> = catalogue.entries.iter().map(|e| e.class).collect();
        assert!(classes.len() >= 8, "{classes:?}");
    }
    assert!(transformers.versions.contains_key("transformers"));
    assert!(torch.entry("torch.unique_consecutive").is_none(), "its shape depends on values");
}

#[test]
fn catalogue_has_known_domains_and_shapes_of_operators() {
    let torch = Catalogue::torch().unwrap();
    let domain = |name: &str| torch.entry(name).unwrap().forms[0].inputs[0].domain;
    assert_eq!(domain("torch.log"), Domain::Positive);
    assert_eq!(domain("torch.sqrt"), Domain::NonNegative);
    assert_eq!(domain("torch.exp"), Domain::Any);
    assert_eq!(domain("torch.atanh"), Domain::OpenUnitBall);
    let outputs = |name: &str, shapes: &[&[u64]], chosen: &[(&str, u64)]| {
        let chosen: Sizes = chosen.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        let entry = torch.entry(name).unwrap();
        let fits = entry.forms.iter().find(|f| f.bind(shapes, &chosen).is_ok());
        fits.map(|form| form.outputs(shapes, &chosen).unwrap()[0].clone())
    };
    assert_eq!(outputs("torch.bmm", &[&[8, 5, 7], &[8, 7, 3]], &[]), Some(vec![8, 5, 3]));
    assert_eq!(outputs("torch.bmm", &[&[8, 5, 7], &[8, 6, 3]], &[]), None);
    assert_eq!(outputs("torch.cumsum", &[&[8, 5, 7]], &[]), Some(vec![8, 5, 7]));
}

#[test]
fn malformed_or_newer_catalogue_is_a_typed_error() {
    let good = serde_json::to_value(Catalogue::torch().unwrap()).unwrap();
    let read = |json: &serde_json::Value| Catalogue::from_json(&json.to_string());
    assert!(read(&good).is_ok());
    let mut newer = good.clone();
    newer["format"] = 99.into();
    newer["entries"] = "in another form".into();
    assert!(matches!(read(&newer), Err(CatalogueError::Newer { found: 99, .. })));
    assert!(matches!(Catalogue::from_json("{"), Err(CatalogueError::Broken { .. })));
    let broken = |change: fn(&mut serde_json::Value), at: &str| {
        let mut json = good.clone();
        change(&mut json);
        match read(&json) {
            Err(CatalogueError::Broken { path, .. }) => assert!(path.contains(at), "{path}"),
            other => panic!("{other:?}"),
        }
    };
    broken(|j| j["entries"][3]["name"] = "".into(), "entries[3].name");
    broken(|j| j["entries"][3]["forms"] = serde_json::json!([]), "entries[3].forms");
    broken(|j| j["entries"][3]["forms"][0]["call"] = "f({nothing})".into(), "entries[3].forms[0]");
    broken(
        |j| j["entries"][0]["forms"][0]["outputs"][0]["dims"] = serde_json::json!(["A +"]),
        "dims",
    );
    broken(|j| j["entries"][0]["kind"] = "spell".into(), "entries[0].kind");
    broken(|j| j["entries"][0]["more"] = 1.into(), "entries[0]");
    let missing = Catalogue::read(std::path::Path::new("/nowhere/catalogue.json"));
    assert!(matches!(missing, Err(CatalogueError::Io { .. })));
}

#[test]
fn mismatched_shapes_are_typed_errors() {
    let torch = Catalogue::torch().unwrap();
    let form = &torch.entry("torch.bmm").unwrap().forms[0];
    let of = |shapes: &[&[u64]]| form.outputs(shapes, &Sizes::new()).unwrap_err();
    assert!(matches!(of(&[&[4, 4, 4]]), ShapeError::Count { wanted: 2, given: 1 }));
    assert!(matches!(of(&[&[4, 4], &[4, 4, 4]]), ShapeError::Rank { wanted: 3, given: 2, .. }));
    let wrong = of(&[&[4, 5, 6], &[4, 7, 8]]);
    assert!(matches!(wrong, ShapeError::Dimension { dimension: 1, wanted: 6, given: 7, .. }));
    assert!(matches!(of(&[&[4, 5, 0], &[4, 0, 8]]), ShapeError::Refused { size: 0, .. }));
}

#[test]
fn every_torch_example_runs() {
    let torch_catalogue = Catalogue::torch().unwrap();
    all_run(&torch(), &examples(&torch_catalogue));
}

/// `.cache/model-server` has transformers (`scripts/setup.d/model-server`); so has what
/// `requirements/synth.lock` makes.
#[test]
fn long_every_transformers_example_and_form_runs() {
    let catalogue = Catalogue::transformers().unwrap();
    let miner = transformers();
    all_run(&miner, &examples(&catalogue));
    all_run(&miner, &shape_checks(&catalogue, 2));
}

fn examples(catalogue: &Catalogue) -> Vec<Snippet> {
    let of = |e: &Entry| Snippet { name: e.name.clone(), code: e.example.clone() };
    catalogue.entries.iter().map(of).collect()
}

/// Every form at sizes that mining did not use: torch is the oracle of shape inference.
#[test]
fn inferred_shapes_match_torch() {
    all_run(&torch(), &shape_checks(&Catalogue::torch().unwrap(), 2));
}

fn shape_checks(catalogue: &Catalogue, times: usize) -> Vec<Snippet> {
    let mut runner = TestRunner::deterministic();
    let mut snippets = Vec::new();
    for entry in &catalogue.entries {
        let mut code = format!("import torch\n{}\n", entry.imports.join("\n"));
        for form in &entry.forms {
            for _ in 0..times {
                let raw = prop::collection::vec(0_u64..40, 12).new_tree(&mut runner).unwrap();
                let sizes = sizes(form, &raw.current());
                form.check(&sizes).unwrap();
                code += &check(form, &sizes);
            }
        }
        snippets.push(Snippet { name: entry.name.clone(), code });
    }
    snippets
}

/// Sizes that the form accepts, from any numbers.
fn sizes(form: &Form, raw: &[u64]) -> Sizes {
    let mut sizes = Sizes::new();
    for ((name, rule), raw) in form.symbols.iter().zip(raw.iter().cycle()) {
        let size = (rule.min.max(3) + raw % 19).next_multiple_of(rule.multiple);
        sizes.insert(name.clone(), size);
    }
    for (name, rule) in &form.symbols {
        if let Some(other) = &rule.at_most {
            let size = sizes[name].max(rule.min);
            let more = sizes[other].max(size).next_multiple_of(form.symbols[other].multiple);
            sizes.insert(other.clone(), more);
        }
    }
    sizes
}

/// Python that calls the form at these sizes and compares the shapes of all outputs.
fn check(form: &Form, sizes: &Sizes) -> String {
    let mut code = String::new();
    let mut shapes: Vec<Vec<u64>> = Vec::new();
    for input in &form.inputs {
        let shape: Vec<u64> = input.dims.iter().map(|d| d.value(sizes).unwrap()).collect();
        let dims = shape.iter().map(|n| format!("{n}, ")).collect::<Vec<_>>().concat();
        let below = input.below.as_ref().map_or(8, |symbol| sizes[symbol]);
        let drawn = match input.domain {
            Domain::Integer | Domain::Index => format!("torch.randint(0, {below}, ({dims}))"),
            Domain::Bool => format!("torch.rand(({dims})) < 0.5"),
            Domain::AtLeastOne | Domain::AboveOne => format!("torch.rand(({dims})) + 1.1"),
            _ => format!("torch.rand(({dims})) * 0.5 + 0.25"),
        };
        let _ = writeln!(code, "{} = {drawn}", input.name);
        shapes.push(shape);
    }
    let filled = |template: &str| {
        let mut text = template.to_owned();
        for (name, size) in sizes {
            text = text.replace(&format!("{{{name}}}"), &size.to_string());
        }
        for input in &form.inputs {
            text = text.replace(&format!("{{{}}}", input.name), &input.name);
        }
        text
    };
    if let Some(init) = &form.init {
        let _ = writeln!(code, "module = {}.eval()", filled(init));
        for parameter in &form.parameters {
            let dims: Vec<u64> = parameter.dims.iter().map(|d| d.value(sizes).unwrap()).collect();
            let name = &parameter.name;
            let _ = writeln!(code, "got = list(module.get_parameter({name:?}).shape)");
            let _ = writeln!(code, "assert got == {dims:?}, ({name:?}, got, {dims:?})");
        }
    }
    let _ = writeln!(code, "result = {}", filled(&form.call));
    let given: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
    let outputs = form.outputs(&given, sizes).unwrap();
    for (output, shape) in form.outputs.iter().zip(outputs) {
        let _ = writeln!(code, "got = list(result{}.shape)", output.path);
        let _ = writeln!(code, "assert got == {shape:?}, (got, {shape:?})");
    }
    code
}
