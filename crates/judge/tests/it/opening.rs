//! Opens tasks on the cpu device. The judge refuses unusable ones with the reason, reports degenerate ones,
//! and accepts all others.

use crate::support::{body, config, shared_judge};
use warpwright_judge::{Degenerate, Device, JudgeConfig, JudgeError, LocalJudge, Objection};
use warpwright_task::Task;

/// A task with these lines before its model, in its constructor, in forward and in `get_inputs`.
fn task([module, made, forward, inputs]: [&str; 4]) -> Task {
    let source = format!(
        "import collections\n\
         import torch\n\
         from torch import nn\n\n\
         {module}\n\n\
         class Model(nn.Module):\n\
         \x20   def __init__(self):\n\
         \x20       super().__init__()\n\
         {}\n\
         \x20   def forward(self, x, y=2.0):\n\
         {}\n\n\
         def get_inputs():\n\
         {}\n",
        body(made),
        body(forward),
        body(inputs),
    );
    Task::from_source("case", source)
}

fn refused(judge: &LocalJudge, parts: [&str; 4]) -> String {
    match judge.task(&task(parts)).err() {
        Some(JudgeError::Reference { message, .. }) => message,
        other => panic!("{parts:?}: {other:?}"),
    }
}

const X: &str = "return [torch.randn(64, 32)]";
const PLAIN: &str = "return torch.tanh(x) * y";

#[test]
fn unsupported_input_types_are_refused_by_name() {
    let judge = shared_judge(Device::Cpu);
    for (inputs, said) in [
        (
            "return [{'a': [torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)]}]",
            "get_inputs()[0][\"a\"][0] is a tensor of qint8",
        ),
        ("return [torch.eye(4).to_sparse()]", "sparse"),
        ("return [torch.randn(4), torch.Generator()]", "Generator"),
        ("return [torch.randn(4).numpy()]", "ndarray"),
        ("return [torch.randn(4), slice(0, 2)]", "slice"),
        ("return [torch.randn(4), {0.5: 2.0}]", "keys of type float"),
        ("return None", "get_inputs returns None"),
        ("return {'x': torch.randn(4), 'z': 1.0}", "name forward's arguments"),
    ] {
        let message = refused(judge, ["", "pass", PLAIN, inputs]);
        assert!(message.contains(said), "{inputs}: {message}");
    }
}

#[test]
fn supported_forms_of_inputs_are_accepted() {
    let judge = shared_judge(Device::Cpu);
    for (forward, inputs) in [
        (PLAIN, "yield torch.randn(64, 32)"),
        (PLAIN, "return torch.randn(64, 32)"),
        (PLAIN, "return torch.randn(64, 32), 3"),
        (PLAIN, "return {'y': 3.0, 'x': torch.randn(64, 32)}"),
        (PLAIN, "return [torch.randn(64, 32), {'y': 3.0}]"),
        (
            "return x[3].a * y",
            "return [{3: collections.namedtuple('P', 'a b')(torch.randn(64, 32), 1)}]",
        ),
        ("return x['a'][0] * y[1]", "return [{'a': [torch.randn(64, 32)]}, (None, 2)]"),
        ("return torch.tanh(x), None, 'name', 3", X),
    ] {
        let session = judge.task(&task(["", "pass", forward, inputs]));
        let session = session.unwrap_or_else(|error| panic!("{inputs}: {error}"));
        assert_eq!(session.degenerate(), [], "{inputs}");
    }
}

#[test]
fn what_cannot_be_compared_is_named_with_its_place() {
    let judge = shared_judge(Device::Cpu);
    for (forward, said) in [
        ("return {'cache': [{1, 2}], 'y': x}", "output[\"cache\"][0] is a set"),
        ("return x, (part for part in x)", "output[1] is a generator"),
        ("return torch.Generator()", "output is a torch._C.Generator"),
        ("return [x, {7: x.to_sparse()}]", "output[1][7] is a sparse tensor"),
        ("return {1.0: x, '1.0': x}", "different keys of the same text"),
    ] {
        let message = refused(judge, ["", "pass", forward, X]);
        assert!(message.contains(said), "{forward}: {message}");
    }
}

#[test]
fn samples_that_differ_in_form_are_refused() {
    let judge = shared_judge(Device::Cpu);
    let once = "once = iter([torch.randn(64, 32)])";
    for (module, forward, inputs, said) in [
        ("import random", PLAIN, "return [torch.randn(random.randint(1, 64), 32)]", "its shape"),
        ("", "return x[x > 1.0]", X, "its shape"),
        ("", "return torch.tanh(x), x.sum().item()", X, "a number"),
        (once, PLAIN, "return once", "built differently"),
    ] {
        let message = refused(judge, [module, "pass", forward, inputs]);
        assert!(message.contains(said), "{inputs}: {message}");
    }
}

/// A candidate is given the weights by name, and would draw whatever else is random for itself.
#[test]
fn random_values_outside_the_state_dict_are_refused() {
    let judge = shared_judge(Device::Cpu);
    let scaled = "return x * self.k";
    for (module, made, forward, said) in [
        ("", "self.k = torch.randn(32)", scaled, "(k)"),
        ("", "self.register_buffer('k', torch.randn(32), persistent=False)", scaled, "(k)"),
        ("", "self.k = torch.rand(1).item()", scaled, "(k)"),
        ("K = torch.randn(32)", "pass", "return x * K", "(K)"),
        ("", "self.part = [nn.Linear(32, 8)]", "return self.part[0](x)", "part[0].weight"),
    ] {
        let message = refused(judge, [module, made, forward, X]);
        assert!(message.contains("state_dict") && message.contains(said), "{made}: {message}");
    }
    for (made, forward) in [
        // The same in every model, whatever the seed.
        ("torch.manual_seed(7); self.k = torch.randn(32)", scaled),
        ("self.k = torch.linspace(1, 2, 32)", scaled),
        // Derived from weights, each time anew.
        ("self.part = nn.utils.weight_norm(nn.Linear(32, 8))", "return self.part(x)"),
        (
            "self.k = nn.Parameter(torch.randn(32)); self.f = lambda x: x * self.k",
            "return self.f(x)",
        ),
    ] {
        judge.task(&task(["", made, forward, X])).unwrap_or_else(|e| panic!("{made}: {e}"));
    }
}

#[test]
fn random_or_stateful_references_are_refused() {
    let judge = shared_judge(Device::Cpu);
    let counts = "self.n = getattr(self, 'n', 0) + 1\nreturn x * self.n";
    let seeds = "torch.manual_seed(0)\nreturn x + torch.rand_like(x)";
    for (forward, said) in [
        ("return x + torch.rand_like(x)", "it is random"),
        // Also where it is less than an error of rounding in most elements.
        ("return torch.relu(x) * 2 + torch.rand_like(x) * 1e-9", "it is random"),
        ("import random\nreturn x * (1 + 1e-6 * random.random())", "it is random"),
        ("import numpy\nreturn x * (1 + 1e-6 * numpy.random.rand())", "it is random"),
        (counts, "a state from call to call"),
        (seeds, "seeds the random generators"),
    ] {
        let message = refused(judge, ["", "pass", forward, X]);
        assert!(message.contains(said), "{forward}: {message}");
    }
    // Drawn, and of no consequence.
    let unused = "return torch.where(torch.rand_like(x) > 2, 0 * x, x * 2)";
    judge.task(&task(["", "pass", unused, X])).unwrap();
}

#[test]
fn a_degenerate_task_has_its_reason() {
    let judge = shared_judge(Device::Cpu);
    let strict = JudgeConfig { degenerate: Degenerate::Refused, ..config(Device::Cpu) };
    let strict = LocalJudge::open(strict).unwrap();
    let names = |reasons: &[Objection]| reasons.iter().map(Objection::name).collect::<Vec<_>>();
    // Nothing could be right about these: refused by everybody.
    for (forward, inputs, reason) in [
        ("return None", X, "no_output"),
        ("return x[:0] * y", X, "empty"),
        (PLAIN, "torch.manual_seed(1)\nreturn [torch.randn(64, 32)]", "same_inputs"),
        (PLAIN, "return [torch.arange(128.0).view(8, 16)]", "same_inputs"),
        ("return torch.log(-torch.exp(x))", X, "nothing_finite"),
    ] {
        match judge.task(&task(["", "pass", forward, inputs])).err() {
            Some(JudgeError::Degenerate { reasons, .. }) => {
                assert_eq!(names(&reasons), [reason], "{forward}");
            }
            other => panic!("{forward}: {other:?}"),
        }
    }
    // These are judged where somebody wants it.
    for (forward, inputs, reason) in [
        ("return torch.relu(-x.abs() - 1)", X, "constant"),
        ("return torch.arange(32.0) + 0 * x", X, "independent"),
        ("return x.t()", X, "only_views"),
        ("return x + 1e-30 * torch.tanh(x)", X, "counterfeit"),
        ("return torch.tanh(x.add_(1))", X, "changes_inputs"),
        ("x.add_(1)\nreturn None", X, "changes_inputs"),
        ("return torch.arange(x, dtype=torch.float32)", "return [64]", "no_inputs"),
    ] {
        let task = task(["", "pass", forward, inputs]);
        let session = judge.task(&task).unwrap_or_else(|error| panic!("{forward}: {error}"));
        assert_eq!(names(session.degenerate()), [reason], "{forward}");
        let refused = strict.task(&task).err();
        assert!(matches!(refused, Some(JudgeError::Degenerate { .. })), "{forward}: {refused:?}");
    }
    // The reasons are not found where there are none. What `relu` gives is its input on some only.
    for (forward, inputs) in [
        (PLAIN, X),
        ("return torch.tanh(x).sum()", X),
        ("return (x > 2.5).float()", X),
        ("return torch.relu(x)", "return [torch.rand(64, 32)]"),
    ] {
        let task = task(["", "pass", forward, inputs]);
        let session = strict.task(&task).unwrap_or_else(|error| panic!("{forward}: {error}"));
        assert_eq!(session.degenerate(), [], "{forward}");
    }
}
