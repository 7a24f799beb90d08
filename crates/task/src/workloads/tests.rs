use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dtype::Dtype;
use crate::task::Task;

const HEAD: &str =
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n";
const INPUTS: &str =
    "def get_inputs(batch=16, length=512):\n    return [torch.rand(batch, length)]\n";

fn task(list: &str) -> Task {
    Task::from_source("t", format!("{HEAD}def get_workloads():\n    return {list}\n{INPUTS}"))
}

fn two() -> Task {
    task(
        "[{'name': 'small', 'arguments': {'batch': 2, 'length': 8}}, \
          {'name': 'large', 'arguments': {'batch': 4, 'length': 16}, 'tolerance': {'atol': 1e-2, 'rtol': 0}}]",
    )
}

fn refused(list: &str) -> String {
    let error = task(list).facts().unwrap_err();
    format!("{error}; {}", error.hint())
}

#[test]
fn workloads_are_read_from_a_literal_list() {
    let workloads = two().workloads().unwrap();
    let names: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["small", "large"]);
    assert_eq!(workloads[1].arguments.to_value(), json!({"batch": 4, "length": 16}));
    assert_eq!(workloads[1].tolerance, Some(WorkloadTolerance { atol: 1e-2, rtol: 0.0 }));
    assert_eq!(two().facts().unwrap().workloads, names);
    let bare = task("[{'batch': -1}, {'batch': 3}]").workloads().unwrap();
    assert_eq!((bare[0].name.as_str(), bare[1].name.as_str()), ("workload 1", "workload 2"));
    assert_eq!(bare[0].arguments.to_value(), json!({"batch": -1}));
    let positional = task("([1, 2], (3, 4))").workloads().unwrap();
    assert_eq!(positional[1].arguments, Arguments::Positional(vec![json!(3), json!(4)]));
    assert!(Task::from_source("t", format!("{HEAD}{INPUTS}")).workloads().unwrap().is_empty());
}

#[test]
fn bad_workloads_are_refused_with_cause_and_cure() {
    let cases = [
        ("[{'batch': n} for n in (1, 2)]", "literal list", "write the list literally"),
        ("[{'batch': 2 * 3}]", "computed", "write the list literally"),
        ("[{'batch': 1j}]", "not one of JSON", "a workload is"),
        ("[{'batch': 1e999}]", "not one of JSON", "a workload is"),
        ("[]", "0 workloads", "shorten"),
        ("[3]", "neither a dict nor a list", "a workload is"),
        ("[{1: 2}]", "not a string literal", "a workload is"),
        ("[{'name': '', 'arguments': {}}]", "1 to 64 characters", "a workload is"),
        ("[{'arguments': {}, 'shape': 3}]", "no key `shape`", "a workload is"),
        ("[{'arguments': {}, 'tolerance': {'atol': -1}}]", "`atol` is not", "a workload is"),
        ("[{'rows': 3}]", "no parameter `rows`", "name parameters"),
        ("[[1, 2, 3]]", "takes 2 positional", "name parameters"),
        ("[{'batch': 1}, {'length': 1}]", "other arguments", "same arguments"),
        ("[{'batch': 1}, {'batch': [1]}]", "nested in another way", "same arguments"),
        ("[{'batch': 1}, [1]]", "names its arguments", "same arguments"),
        ("[{'arguments': {}, 'held_out': True}]", "all workloads are held out", "leave one"),
        (
            "[{'name': 'a', 'arguments': {}}, {'name': 'a', 'arguments': {}}]",
            "two workloads have the name `a`",
            "a name of its own",
        ),
    ];
    for (list, cause, cure) in cases {
        let told = refused(list);
        assert!(told.contains(cause) && told.contains(cure), "{list}: {told}");
    }
    let many = format!("[{}]", vec!["{'batch': 1}"; 65].join(", "));
    assert!(refused(&many).contains("65 workloads"));
    let deep = format!("[{{'batch': {}1{}}}]", "[".repeat(20), "]".repeat(20));
    assert!(refused(&deep).contains("nested more than 8 deep"));
    for source in ["get_workloads = [1]\n", "from other import get_workloads\n"] {
        let error = Task::from_source("t", format!("{source}{HEAD}{INPUTS}")).facts().unwrap_err();
        assert!(error.to_string().contains("assigned or imported"), "{error}");
    }
}

#[test]
fn a_bound_task_is_a_task_of_its_own() {
    let bound = two().of_workload(1).unwrap().unwrap();
    assert_eq!((bound.name.as_str(), bound.sharing), ("t.large", 2));
    assert!(bound.workloads().unwrap().is_empty());
    let workload = bound.workload().unwrap();
    assert_eq!((workload.name.as_str(), workload.tolerance.map(|t| t.atol)), ("large", Some(1e-2)));
    assert_ne!(bound.hash, two().of_workload(0).unwrap().unwrap().hash);
    assert_eq!(bound.unbound_source(), two().of_workload(0).unwrap().unwrap().unbound_source());
    assert!(bound.facts().is_ok());
    assert_eq!(two().of_workload(2).unwrap(), None);
    assert_eq!(two().workload(), None);
}

#[test]
fn the_cast_of_a_bound_task_is_kept() {
    let cast = two().cast(Dtype::Bf16).of_workload(0).unwrap().unwrap();
    assert_eq!(cast.dtype(), Some(Dtype::Bf16));
    assert_eq!(cast.workload().unwrap().name, "small");
    let at = |text: &str| cast.source.find(text).unwrap();
    assert!(at("_warpwright_workload(\"") < at("_warpwright_cast(\"bfloat16\")"));
    let later = two().of_workload(0).unwrap().unwrap().cast(Dtype::Bf16);
    assert_eq!(later.workload().unwrap().name, "small");
}

#[test]
fn held_out_workloads_are_not_shown() {
    let five = "[{'batch': 1}, {'batch': 2}, {'batch': 3}, {'batch': 4}, {'batch': 5}]";
    let task = task(five).hold_out(2, 7).unwrap();
    let all = task.workloads().unwrap();
    let held: Vec<&Workload> = all.iter().filter(|w| w.held_out).collect();
    assert_eq!((all.len(), held.len()), (5, 2));
    let shown = task.shown().unwrap();
    assert_eq!((shown.workloads().unwrap().len(), shown.hidden), (3, 2));
    for workload in held {
        assert!(!shown.source.contains(&workload.name), "{}", shown.source);
    }
    assert!(shown.source.contains("2 more are held out"));
    assert!(shown.facts().is_ok());
    let seen = all.iter().position(|w| !w.held_out).unwrap();
    let of_all = task.of_workload(seen).unwrap().unwrap();
    let of_shown = shown.of_workload(0).unwrap().unwrap();
    assert_eq!((&of_all.source, of_all.sharing), (&of_shown.source, of_shown.sharing));
    assert_eq!(self::task(five).hold_out(2, 7).unwrap(), task, "the seed decides");
    let others = (0..20).any(|seed| self::task(five).hold_out(2, seed).unwrap() != task);
    assert!(others);
    let none = self::task(five).hold_out(5, 7).unwrap_err();
    assert!(none.to_string().contains("hold out 5 workloads of task t: it has 5"), "{none}");
    let single = Task::from_source("t", format!("{HEAD}{INPUTS}"));
    assert!(single.clone().hold_out(1, 7).is_err());
    assert_eq!(single.clone().hold_out(0, 7).unwrap(), single);
}

#[test]
fn default_of_held_out_workload_is_not_shown() {
    let source = |inputs: &str, list: &str| {
        format!(
            "{HEAD}def get_workloads():\n    return {list}\ndef get_inputs({inputs}):\n    return []\n"
        )
    };
    let list = "[{'name': 'big', 'arguments': {'rows': 7919, 'side': -5}, 'held_out': True}, \
                {'name': 'a', 'arguments': {'rows': 31, 'side': 2}}, {'rows': 32, 'side': 2}]";
    let all = Task::from_source("t", source("seed=3, rows: int = 7919, *, side = (-5)", list));
    let shown = all.shown().unwrap();
    assert!(shown.source.contains("def get_inputs(seed=3, rows: int = 31, *, side = (2))"));
    assert!(["7919", "big", "-5"].iter().all(|told| !shown.source.contains(told)), "{shown:?}");
    assert!(all.source.contains("7919"), "positive control");
    // What is judged is the same, whether the others are held out or not.
    let second = |task: &Task, at| task.of_workload(at).unwrap().unwrap();
    assert_eq!(second(&all, 1).source, second(&shown, 0).source);
    assert_eq!((second(&all, 2).name, second(&all, 2).sharing), (second(&shown, 1).name, 3));
    assert_eq!(second(&all, 0).workload().unwrap().name, "big");
    let positional = "[[4, 5], {'name': 'big', 'arguments': [7919, 6], 'held_out': True}]";
    let shown = Task::from_source("t", source("rows=7919, side=6", positional)).shown().unwrap();
    assert!(shown.source.contains("def get_inputs(rows=4, side=5)"), "{}", shown.source);
    // What a computed default shows is not known.
    let computed = format!("ROWS = 7919\n{}", source("rows=ROWS", "[{'rows': 7919}, {'rows': 2}]"));
    let computed = Task::from_source("t", computed);
    assert!(computed.workloads().is_ok(), "nothing is held out");
    let error = computed.hold_out(1, 3).unwrap_err();
    assert!(error.to_string().contains("a default of `get_inputs` is computed"), "{error}");
    assert!(error.hint().contains("as a literal"), "{}", error.hint());
}

#[test]
fn tensor_of_held_out_workload_is_not_shown() {
    let list = "[{'name': 'a', 'arguments': {'x': 'a/x'}}, \
                {'name': 'b', 'arguments': {'x': 'b/x'}, 'held_out': True}]";
    let table = "_warpwright_tensors = {\n    \"a/x\": [1],\n    \"b/x\": [2],\n}\n";
    let task = Task::from_source(
        "t",
        format!(
            "{HEAD}{table}def get_workloads():\n    return {list}\ndef get_inputs(x='b/x'):\n    return []\n"
        ),
    );
    let shown = task.shown().unwrap().source;
    assert!(shown.contains("\"a/x\": [1]") && !shown.contains("b/x"), "{shown}");
}

proptest! {
    /// Whatever stands in the list: an answer or an error, never a panic; and what was read is read again from
    /// what is written of it.
    #[test]
    fn any_list_is_read_or_refused(list in "[\\[\\]{}()'\"a-c0-9:,.\\- \\\\\n*]{0,60}") {
        let task = task(&list);
        if let Ok(workloads) = task.workloads() {
            let again = task.clone().hold_out(workloads.len().saturating_sub(1), 1).unwrap();
            let names = |of: &[Workload]| of.iter().map(|w| (w.name.clone(), w.arguments.to_value())).collect::<Vec<_>>();
            prop_assert_eq!(names(&again.workloads().unwrap()), names(&workloads));
            for (index, workload) in workloads.iter().enumerate() {
                let bound = task.of_workload(index).unwrap().unwrap().workload();
                prop_assert_eq!(bound.as_ref(), Some(workload));
            }
        }
    }

    #[test]
    fn names_and_values_survive_their_source(name in "\\PC{1,64}", text in "\\PC{0,40}", number in any::<i64>(), float in any::<f64>()) {
        let float = if float.is_finite() { float } else { 0.5 };
        let value = json!([text, number, float, null, true, {"k": text.clone()}]);
        let list = format!(
            "[{{'name': {}, 'arguments': {{'batch': {}}}}}]",
            literal::python(&json!(name)), literal::python(&value)
        );
        let Ok(read) = task(&list).workloads() else {
            // Only for the name: spaces at its ends, control characters.
            prop_assert!(name.trim() != name || name.chars().any(char::is_control));
            return Ok(());
        };
        prop_assert_eq!(&read[0].arguments.to_value()["batch"], &value);
        let bound = task(&list).of_workload(0).unwrap().unwrap().workload();
        prop_assert_eq!(bound.as_ref(), Some(&read[0]));
    }
}
