//! `model_new.py`: the module that holds the weights and calls the kernels.

use std::collections::{BTreeMap, BTreeSet};

use crate::chain::Chain;
use crate::dtype::DType;
use crate::emit::KernelFile;
use crate::index::{numel, strides_of};
use crate::ir::{Graph, NodeId, Op, Source, stem};
use crate::trace::Trace;

/// Bytes of an input that kernels may read, given its node.
pub(crate) fn span(trace: &Trace, graph: &Graph, node: NodeId) -> i64 {
    let dense = numel(graph.shape(node)) * graph.dtype(node).size();
    let Op::Leaf(leaf) = &graph.node(node).op else { return dense };
    let Source::Input(slot) = leaf.source else { return dense };
    let meta = trace.inputs.get(slot).and_then(|i| i.tensor.as_ref());
    meta.map_or(dense, |meta| elements(&meta.shape, &meta.stride) * graph.dtype(node).size())
}

/// Elements from the first to the last of a tensor in memory.
fn elements(shape: &[i64], strides: &[i64]) -> i64 {
    if shape.contains(&0) {
        return 0;
    }
    1 + shape.iter().zip(strides).map(|(e, s)| (e - 1) * s).sum::<i64>()
}

/// Statements of `model_new.py` for one graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// What checks the inputs.
    pub(crate) checks: Vec<String>,
    /// What computes and keeps the values that depend on weights alone.
    pub(crate) ready: Vec<String>,
    /// What gives the addresses of weights to a chain.
    pub(crate) hold: Vec<String>,
    /// The forward pass, and what it returns.
    pub(crate) body: Vec<String>,
    pub(crate) returned: String,
}

/// The statements for a graph. Those of `prepare()` call the kernels that run `once`. Forward calls
/// the others, one by one or all through their chain.
pub(crate) fn parts(
    (trace, graph): (&Trace, &Graph),
    kernels: &[KernelFile],
    once: &[bool],
    chain: Option<&Chain>,
    kept: &str,
) -> Parts {
    let mut names: BTreeMap<NodeId, String> = BTreeMap::new();
    let mut taken: BTreeSet<String> =
        ["self", "torch", "nn", "itertools", "cuda_extension", "device"]
            .iter()
            .map(|s| (*s).to_owned())
            .collect();
    let arguments: Vec<String> = trace.inputs.iter().map(|i| python_name(&i.name)).collect();
    taken.extend(arguments.iter().cloned());
    let mut checks = Vec::new();
    let mut used_leaves: BTreeSet<NodeId> = BTreeSet::new();
    used_leaves.extend(kernels.iter().flat_map(|k| k.args.iter().copied()));
    for (i, node) in graph.nodes.iter().enumerate() {
        let id = NodeId(i);
        let Op::Leaf(leaf) = &node.op else { continue };
        if !used_leaves.contains(&id) {
            continue;
        }
        match &leaf.source {
            Source::State(name) => _ = names.insert(id, attribute(name)),
            Source::Input(slot) => {
                let Some(meta) = trace.inputs.get(*slot).and_then(|i| i.tensor.as_ref()) else {
                    continue;
                };
                let argument = arguments[*slot].clone();
                if is_dense(&meta.shape, &meta.stride) {
                    names.insert(id, argument);
                } else {
                    // The kernel indexes with the traced strides; the launcher wants a plain span.
                    let span = elements(&meta.shape, &meta.stride);
                    let strides = tuple(&meta.stride);
                    let check = format!("_expect_strides({argument}, {strides})");
                    if !checks.contains(&check) {
                        checks.push(check);
                    }
                    names.insert(id, format!("{argument}.as_strided(({span},), (1,))"));
                }
            }
        }
    }
    // Forward's statements, and those of prepare.
    let (mut body, mut ready, mut hold) = (Vec::new(), Vec::new(), Vec::new());
    let kept = format!("self.prepared_{kept}");
    let device = device_expression(trace, graph, &arguments);
    for (k, once) in kernels.iter().zip(once) {
        if !once && chain.is_some() {
            continue;
        }
        let lines = if *once { &mut ready } else { &mut body };
        let mut args = Vec::new();
        for node in &k.args {
            if !names.contains_key(node) {
                let prefix = if *once { &*kept } else { "" };
                let name = variable(&mut taken, prefix, &graph.node(*node).name);
                lines.push(format!("{name} = {}", empty(graph.shape(*node), graph.dtype(*node))));
                names.insert(*node, name);
            }
            args.push(names[node].clone());
        }
        for (i, (shape, dtype)) in k.scratch.iter().enumerate() {
            let name = format!("scratch_{i}");
            lines.push(format!("{name} = {}", empty(shape, *dtype)));
            args.push(name);
        }
        args.extend(k.sizes.iter().map(i64::to_string));
        lines.push(format!("cuda_extension.{}_launcher({})", k.name, args.join(", ")));
    }
    if let Some(chain) = chain {
        for node in &chain.results {
            let name = variable(&mut taken, "", &graph.node(*node).name);
            body.push(format!("{name} = {}", empty(graph.shape(*node), graph.dtype(*node))));
            names.insert(*node, name);
        }
        let called = |launcher: &str, nodes: &[NodeId]| {
            let args: Vec<String> = nodes.iter().map(|n| format!(", {}", names[n])).collect();
            format!("cuda_extension.{launcher}_launcher(self.chain_model{})", args.concat())
        };
        for (part, held) in chain.held_in_parts().enumerate() {
            hold.push(called(&format!("{}_hold_{part}", chain.name), held));
        }
        body.push(called(&chain.name, &[&chain.given[..], &chain.results].concat()));
    }
    let outputs: Vec<String> = graph
        .outputs
        .iter()
        .map(|o| {
            names.get(o).cloned().unwrap_or_else(|| {
                // No elements, hence no kernel.
                empty(graph.shape(*o), graph.dtype(*o))
            })
        })
        .collect();
    let returned = match trace.structure.as_str() {
        "tensor" => outputs.join(", "),
        "list" => format!("[{}]", outputs.join(", ")),
        _ => format!("({},)", outputs.join(", ")),
    };
    if body.iter().any(|l| l.contains("device=device")) || returned.contains("device=device") {
        body.insert(0, format!("device = {device}"));
    }
    Parts { checks, ready, hold, body, returned }
}

/// Writes `model_new.py` for one graph.
pub(crate) fn write(trace: &Trace, graph: &Graph, parts: &Parts) -> String {
    let arguments: Vec<String> = trace.inputs.iter().map(|i| python_name(&i.name)).collect();
    let mut out = Prologue { parts: std::slice::from_ref(parts), helpers: "" }.written(trace);
    let mut lines = parts.checks.clone();
    if let Some(prepare) = prepare(graph, &parts.ready, &parts.hold) {
        out.push_str(&prepare);
        lines.push(prepares(!parts.hold.is_empty()));
    }
    lines.extend(parts.body.iter().cloned());
    out.push_str(&method("forward", &arguments, &lines, &parts.returned));
    out
}

/// A method of the model.
pub(crate) fn method(name: &str, arguments: &[String], lines: &[String], returned: &str) -> String {
    let mut parameters = vec!["self".to_owned()];
    parameters.extend(arguments.iter().cloned());
    let mut out = format!("\n    def {name}({}):\n", parameters.join(", "));
    for l in lines {
        out.push_str(&format!("        {l}\n"));
    }
    out.push_str(&format!("        return {returned}\n"));
    out
}

/// What precedes the methods of a model.
pub(crate) struct Prologue<'p> {
    pub(crate) parts: &'p [Parts],
    /// Further text before the class.
    pub(crate) helpers: &'p str,
}

impl Prologue<'_> {
    /// The file up to the end of the constructor.
    pub(crate) fn written(&self, trace: &Trace) -> String {
        let chained = self.parts.iter().any(|parts| !parts.hold.is_empty());
        let is_ready =
            self.parts.iter().all(|parts| parts.ready.is_empty() && parts.hold.is_empty());
        let mut out =
            String::from("\"\"\"The module on its own CUDA kernels; see kernels/.\"\"\"\n\n");
        out.push_str("from __future__ import annotations\n\n");
        if chained {
            out.push_str("import itertools\n\n");
        }
        out.push_str("import cuda_extension\nimport torch\nfrom torch import nn\n\n");
        out.push_str(if chained { MODELS } else { "\n" });
        if self.parts.iter().any(|parts| !parts.checks.is_empty()) {
            out.push_str(STRIDES);
        }
        let (registrations, helper) = registrations(trace);
        if helper {
            out.push_str(OWNER);
        }
        out.push_str(self.helpers);
        out.push_str("class ModelNew(nn.Module):\n");
        out.push_str(&format!("    def __init__{}:\n", signature(&trace.init_signature)));
        out.push_str("        super().__init__()\n");
        for l in registrations {
            out.push_str(&format!("        {l}\n"));
        }
        if !is_ready {
            // A model that nobody prepared prepares itself.
            out.push_str("        self.is_prepared = False\n");
            if chained {
                out.push_str("        self.chain_of = 0\n");
            }
        }
        out
    }
}

/// `prepare()`, if there is something to prepare.
pub(crate) fn prepare(graph: &Graph, ready: &[String], hold: &[String]) -> Option<String> {
    if ready.is_empty() && hold.is_empty() {
        return None;
    }
    let mut out = String::from("\n    def prepare(self) -> None:\n");
    out.push_str(
        "        \"\"\"Computes what depends on the weights alone; again after they change.\"\"\"\n",
    );
    let mut lines = ready.to_vec();
    if ready.iter().any(|l| l.contains("device=device")) {
        lines.insert(0, format!("device = {}", state_device(graph)));
    }
    if !hold.is_empty() {
        lines.push(NUMBERED.to_owned());
    }
    for l in lines.iter().chain(hold) {
        out.push_str(&format!("        {l}\n"));
    }
    out.push_str("        self.is_prepared = True\n");
    Some(out)
}

/// Forward's statement that prepares a model that nobody prepared.
pub(crate) fn prepares(chained: bool) -> String {
    let foreign = if chained { " or self.chain_of != id(self)" } else { "" };
    format!("if not self.is_prepared{foreign}:\n            self.prepare()")
}

const MODELS: &str = "# Models are told apart by number: each has weights at addresses of its own.
_MODELS = itertools.count()


";

/// A copy of a prepared model has other weights than its original.
const NUMBERED: &str = "if self.chain_of != id(self):
            self.chain_of, self.chain_model = id(self), next(_MODELS)";

/// A variable for a traced name: without its number, or with it if the name is taken.
fn variable(taken: &mut BTreeSet<String>, prefix: &str, traced: &str) -> String {
    let short = format!("{prefix}{}", python_name(stem(traced)));
    if taken.insert(short.clone()) {
        return short;
    }
    free(taken, format!("{prefix}{}", python_name(traced)))
}

/// `name`, or with underscores if that is taken.
fn free(taken: &mut BTreeSet<String>, mut name: String) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// A new tensor, on the current device.
fn empty(shape: &[i64], dtype: DType) -> String {
    format!("torch.empty({}, dtype={}, device=device)", tuple(shape), dtype.torch())
}

const STRIDES: &str = "def _expect_strides(x: torch.Tensor, strides: tuple[int, ...]) -> None:
    if x.stride() != strides:
        raise ValueError(f\"made for strides {strides}, got {x.stride()}\")


";

const OWNER: &str = "def _owner(root: nn.Module, path: list[str]) -> nn.Module:
    \"\"\"The submodule at a path, made where it is missing.\"\"\"
    for name in path:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root._modules[name]
    return root


";

fn registrations(trace: &Trace) -> (Vec<String>, bool) {
    let mut out = Vec::new();
    let mut helper = false;
    for s in &trace.state {
        let mut path: Vec<&str> = s.name.split('.').collect();
        let last = path.pop().unwrap_or_default();
        let owner = if path.is_empty() {
            "self".to_owned()
        } else {
            helper = true;
            format!("_owner(self, {})", python_list(&path))
        };
        let made = if s.values.is_empty() {
            format!("torch.empty({}, dtype={})", tuple(&s.shape), s.dtype.torch())
        } else {
            filled(&s.shape, s.dtype.torch(), &s.values)
        };
        out.push(if s.kind == "parameter" {
            format!(
                "{owner}.register_parameter(\"{last}\", nn.Parameter({made}, requires_grad=False))"
            )
        } else if s.persistent {
            format!("{owner}.register_buffer(\"{last}\", {made})")
        } else {
            format!("{owner}.register_buffer(\"{last}\", {made}, persistent=False)")
        });
    }
    for c in trace.constants.iter().filter(|c| c.values.len() > 1) {
        let made = filled(&c.shape, c.dtype.torch(), &c.values);
        out.push(format!("self.register_buffer(\"{}\", {made}, persistent=False)", c.name));
    }
    (out, helper)
}

fn filled(shape: &[i64], dtype: &str, values: &[serde_json::Value]) -> String {
    let text = |v: &serde_json::Value| match v {
        serde_json::Value::Object(o) => {
            format!("float(\"{}\")", o.get("f").and_then(|f| f.as_str()).unwrap_or("nan"))
        }
        serde_json::Value::Bool(b) => if *b { "True" } else { "False" }.to_owned(),
        other => other.to_string(),
    };
    if values.len() == 1 {
        return format!("torch.full({}, {}, dtype={dtype})", tuple(shape), text(&values[0]));
    }
    let list: Vec<String> = values.iter().map(text).collect();
    format!("torch.tensor([{}], dtype={dtype}).view({})", list.join(", "), tuple(shape))
}

/// The reference's own signature if its defaults are plain literals.
fn signature(traced: &str) -> String {
    let plain = traced.starts_with("(self")
        && traced.split('=').skip(1).all(|d| {
            d.trim_start().starts_with(|c: char| c.is_ascii_digit() || "-'\"NTF([".contains(c))
        })
        && !traced.contains('<')
        && !traced.contains('\n');
    if plain { traced.to_owned() } else { "(self, *args, **kwargs)".to_owned() }
}

/// `self.norm.weight`, or with `getattr` if a name is not an identifier.
fn attribute(path: &str) -> String {
    path.split('.').fold("self".to_owned(), |owner, name| {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            format!("getattr({owner}, \"{name}\")")
        } else {
            format!("{owner}.{name}")
        }
    })
}

fn device_expression(trace: &Trace, graph: &Graph, arguments: &[String]) -> String {
    let tensor = trace.inputs.iter().position(|i| i.tensor.is_some());
    if let Some(argument) = tensor.and_then(|i| arguments.get(i)) {
        return format!("{argument}.device");
    }
    state_device(graph)
}

/// The device of the weights.
fn state_device(graph: &Graph) -> String {
    let state = graph.nodes.iter().find_map(|n| match &n.op {
        Op::Leaf(leaf) => match &leaf.source {
            Source::State(name) => Some(format!("{}.device", attribute(name))),
            Source::Input(_) => None,
        },
        _ => None,
    });
    state.unwrap_or_else(|| "torch.device(\"cuda\")".to_owned())
}

/// Whether a tensor fills its memory without gaps in some order of its dims, row-major included.
fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut dims: Vec<(i64, i64)> =
        shape.iter().zip(strides).filter(|(e, _)| **e != 1).map(|(e, s)| (*s, *e)).collect();
    dims.sort_unstable_by(|a, b| b.cmp(a));
    let extents: Vec<i64> = dims.iter().map(|d| d.1).collect();
    let dense = strides_of(&extents);
    let row_major: Vec<i64> =
        shape.iter().zip(strides).filter(|(e, _)| **e != 1).map(|(_, s)| *s).collect();
    dims.iter().map(|d| d.0).eq(dense.iter().copied())
        && row_major.windows(2).all(|w| w[0] >= w[1])
        && numel(shape) > 0
}

pub(crate) fn tuple(shape: &[i64]) -> String {
    match shape {
        [] => "()".to_owned(),
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn python_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

pub(crate) fn python_name(name: &str) -> String {
    const KEYWORDS: [&str; 12] =
        ["in", "is", "if", "as", "or", "and", "not", "from", "def", "del", "for", "lambda"];
    let mut out: String =
        name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if KEYWORDS.contains(&&*out) {
        out.push('_');
    }
    out
}
