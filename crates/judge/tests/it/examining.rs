//! Examines tasks without a candidate on the cpu device: each fault raises its objection, and a sound task
//! raises none.

use crate::support::{body, shared_judge};
use warpwright_judge::{Bar, Device, Examination, Objection, SessionPool, Sharing};
use warpwright_task::Task;
use warpwright_task::similarity::OpGraph;

/// A task with this forward pass, and these lines in the constructor.
fn task(name: &str, made: &str, forward: &str, inputs: &str) -> Task {
    let source = format!(
        "import torch\n\
         from torch import nn\n\n\n\
         class Model(nn.Module):\n\
         \x20   def __init__(self):\n\
         \x20       super().__init__()\n\
         \x20       {made}\n\n\
         \x20   def forward(self, x, y):\n\
         {}\n\n\n\
         def get_inputs():\n\
         \x20   return [{inputs}]\n",
        body(&format!("return {forward}"))
    );
    Task::from_source(name, source)
}

const TWO: &str = "torch.randn(64, 32), torch.randn(64, 32)";

fn names(examination: &Examination) -> Vec<String> {
    examination.objections.iter().map(|o| format!("{}: {o}", o.name())).collect()
}

#[test]
fn a_sound_task_is_timed_without_objections() {
    let judge = shared_judge(Device::Cpu);
    let sound = task(
        "sound",
        "self.scale = nn.Parameter(torch.rand(32) + 0.5)",
        "torch.relu(x * self.scale + y).sum(dim=1)",
        TWO,
    );
    let found = SessionPool::new(judge).examine(&sound, None, Bar::Sound, Sharing::Own).unwrap();
    assert_eq!(names(&found), Vec::<String>::new());
    assert!(!found.fingerprint.torch.is_empty());
    assert_eq!(found.inputs.len(), 2);
    assert_eq!(found.outputs[0].shape, [64]);
    assert_eq!(found.unavoidable_bytes, 2 * 64 * 32 * 4 + 32 * 4 + 64 * 4);
    assert!(found.eager_ms > 0.0 && found.eager_ms < 100.0, "{found:?}");
    assert_eq!(found.compiled_ms[0].0, "compile");
    assert!(found.best_ms() <= found.eager_ms);
    assert!(found.head_room().unwrap() > 1.0, "{found:?}");
    let operators = |found: &Examination| -> Vec<String> {
        let nodes = found.graph.as_ref().unwrap().nodes().iter();
        nodes.map(|node| node.op.clone()).collect()
    };
    let wanted = [
        "parameter",
        "input",
        "input",
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.relu.default",
        "aten.sum.dim_IntList",
    ];
    assert_eq!(operators(&found), wanted);
    assert_eq!(judge.graph(&sound).unwrap(), found.graph);
    // Where the graph is one that is not wanted, nothing is looked at or compiled.
    let unwanted = |graph: &OpGraph| Some(graph) == found.graph.as_ref();
    let how = (Bar::Clear, Sharing::Own);
    let copy = SessionPool::new(judge).examine_unless(&sound, None, how, &unwanted).unwrap();
    assert_eq!((copy.graph, copy.compiled_ms.len()), (found.graph.clone(), 0));
    let kept = serde_json::to_string(&found).unwrap();
    let read: Examination = serde_json::from_str(&kept).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), kept);
}

/// Where results jump, an honest program is far off now and then, and so is what is allowed: no task to
/// keep. Nor is one whose results are not finite where an input has a zero, which it has now and then.
#[test]
fn a_task_that_fails_on_rare_samples_gets_an_objection() {
    let judge = shared_judge(Device::Cpu);
    let pool = SessionPool::new(judge);
    let object_to = |task: &Task, bar: Bar| {
        let found = pool.examine(task, None, bar, Sharing::Own).unwrap();
        found.objections.iter().map(Objection::name).collect::<Vec<_>>()
    };
    let object = |name: &str, forward: &str, inputs: &str, bar: Bar| {
        object_to(&task(name, "pass", forward, inputs), bar)
    };
    let normal = "torch.randn(1024, 1024), torch.randn(1024, 1024)";
    let uniform = "torch.rand(256, 1024), torch.rand(256, 1024)";
    let computed = "torch.fmod(torch.exp(x), 1.0) + y";
    assert!(object("computed", computed, normal, Bar::Clear).contains(&"brittle"));
    assert!(!object("computed, again", computed, normal, Bar::Sound).contains(&"brittle"));
    // What an input is rounded to decides as well.
    let given = "torch.frexp(x).mantissa + y";
    assert!(object("given", given, normal, Bar::Clear).contains(&"brittle"));
    // As it is made, the norm scales by 0.999995: nowhere near a jump, until its weights are others. Of
    // an eighth as many elements, one lies at a jump in three of four looks.
    let norm = "self.norm = nn.BatchNorm1d(1024)";
    let many = "torch.rand(2048, 1024), torch.rand(2048, 1024)";
    let hidden = task("hidden", norm, "torch.fmod(self.norm(x), x + 0.1) + y", many);
    assert_eq!(object_to(&hidden, Bar::Clear), ["brittle"]);
    let pole = "torch.log(x) + y";
    assert!(object("a pole", pole, uniform, Bar::Clear).contains(&"not_finite"));
    for (name, forward, inputs) in [
        ("no jump", "torch.tanh(0.05 * (x @ y)) + x", normal),
        ("a kink", "torch.relu(x) * y", normal),
        ("sums", "(x * y).sum(dim=1)", normal),
        ("no pole", "torch.log(x + 0.1) + y", uniform),
    ] {
        assert_eq!(object(name, forward, inputs, Bar::Clear), Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn each_fault_of_a_task_is_named() {
    let judge = shared_judge(Device::Cpu);
    let pool = SessionPool::new(judge);
    let bias = "self.bias = nn.Parameter(torch.randn(32))";
    let cases = [
        (
            "an input that never wins",
            bias,
            "torch.maximum(x, y - 100) + self.bias",
            TWO,
            "input_ignored",
        ),
        (
            "a parameter that is too small",
            bias,
            "x * y + 1e-9 * self.bias",
            TWO,
            "parameter_ignored",
        ),
        ("nothing but zeros", bias, "torch.relu(-(x + y + self.bias).abs())", TWO, "one_value"),
        // Some elements are finite in float32; the squares of others are not even in float64.
        ("beyond float32", bias, "(1e10 * (x + y)) ** 16 + self.bias", TWO, "not_finite"),
        ("infinite", bias, "1 / (x - x + 0 * y) + self.bias", TWO, "not_finite"),
    ];
    for (name, made, forward, inputs, wanted) in cases {
        let found = pool
            .examine(&task(name, made, forward, inputs), None, Bar::Sound, Sharing::Own)
            .unwrap();
        assert!(found.objections.iter().any(|o| o.name() == wanted), "{name}: {:?}", names(&found));
        assert!(found.compiled_ms.is_empty(), "{name}: nothing is compiled in vain");
    }
    let long = task("too long", bias, "x * y + self.bias", TWO);
    let found = pool.examine(&long, Some(&(1e3..=1e4)), Bar::Sound, Sharing::Own).unwrap();
    assert!(found.objections.is_empty() && found.compiled_ms.is_empty(), "{found:?}");
    let copied = task("a copy", "pass", "torch.where(x > 9, y, x)", TWO);
    let found = pool.examine(&copied, None, Bar::Sound, Sharing::Own).unwrap();
    let answer =
        |o: &Objection| matches!(o, Objection::Counterfeit { answer } if answer == "input 0");
    assert!(found.objections.iter().any(answer), "{:?}", names(&found));
}
