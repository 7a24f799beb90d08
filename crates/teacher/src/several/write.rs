//! The files of a candidate for several workloads.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{General, Side, suffixes};
use crate::chain;
use crate::draft::{Planned, Workload};
use crate::index::numel;
use crate::module::{self, Parts, Prologue, method, python_name, tuple};
use crate::plan::Target;
use crate::program::{Files, Of, Texts};
use crate::sizes::Samples;
use crate::trace::Trace;
use crate::tune::Knobs;

/// Most elements of a tensor in a general form: positions are 32-bit numbers there.
const MOST_ELEMENTS: i64 = i32::MAX as i64 - (1 << 20);

/// Writes all files.
pub(crate) fn write(
    workloads: &[Workload],
    general: &[General],
    target: &Target,
    knobs: &Knobs,
) -> Result<Files, String> {
    let knobs = Knobs { sizes: true, ..knobs.clone() };
    let suffixes = suffixes(workloads);
    let mut texts = Texts::default();
    let mut programs = Vec::new();
    for (i, (workload, suffix)) in workloads.iter().zip(&suffixes).enumerate() {
        let suffix = if i == 0 { "" } else { suffix };
        let of = Of { suffix, ..workload.planned.of(target, &knobs) };
        let chain = format!("{}{}{suffix}", chain::NAME, if i == 0 { "" } else { "_" });
        programs.push((of, of.program(&mut texts, &chain)?));
    }
    // What depends on weights alone is mostly the same for all.
    let prefix = |i: usize| suffixes.get(i).map(|s| format!("{s}_")).unwrap_or_default();
    let mut parts: Vec<Parts> = programs.iter().map(|(of, p)| p.parts(of, "")).collect();
    let is_shared = parts.iter().all(|other| Some(&other.ready) == parts.first().map(|p| &p.ready));
    if !is_shared {
        let own = programs.iter().enumerate();
        parts = own.map(|(i, (of, p))| p.parts(of, &prefix(i))).collect();
    }
    let (first, graph) = match programs.first() {
        Some((of, _)) => (of.trace, of.graph),
        None => return Err("there is no workload".to_owned()),
    };
    let arguments: Vec<String> = first.inputs.iter().map(|i| python_name(&i.name)).collect();
    let mut forms: Vec<Form> = Vec::new();
    for one in general {
        let Some(parts) = parts.get(one.like) else { continue };
        let prefix = if is_shared { String::new() } else { prefix(one.like) };
        // Products in parts, and launchers of several kernels, have numbers of their own.
        let like = Some(one.volume().min(1 << 40));
        let knobs = Knobs { split: false, chain: false, like, ..knobs.clone() };
        let suffix = suffixes.get(one.like).map_or_else(String::new, |s| format!("any_{s}"));
        let form = |side: &Side| -> Option<(Form, Texts)> {
            let mut trial = texts.clone();
            let first = Of { suffix: &suffix, ..side.planned.first()?.of(target, &knobs) };
            first.program(&mut trial, chain::NAME).ok()?;
            let of = |planned: &'_ Planned| -> Option<(Parts, Vec<i64>)> {
                let of = planned.of(target, &knobs);
                let counts = of.graph.nodes.iter().map(|node| numel(&node.shape)).collect();
                Some((of.known_program(&trial)?.parts(&of, &prefix), counts))
            };
            let samples = side.planned.iter().map(of).collect::<Option<Vec<_>>>()?;
            Some((Form::new((one, side), &samples, parts, &arguments)?, trial))
        };
        if let Some((form, with_its)) = one.sides.iter().find_map(form) {
            forms.push(form);
            texts = with_its;
        }
    }
    let mut files = texts.files;
    let known: Vec<(String, String)> = workloads
        .iter()
        .zip(&suffixes)
        .map(|(workload, suffix)| (key_of(&workload.planned.trace), suffix.clone()))
        .collect();
    let helpers = helpers(&known);
    let mut whole = first.clone();
    whole.constants = constants(workloads)?;
    let mut out = Prologue { parts: &parts, helpers: &helpers }.written(&whole);
    let mut lines = Vec::new();
    let (ready, hold) = prepared(&parts, is_shared);
    if let Some(prepare) = module::prepare(graph, &ready, &hold) {
        out.push_str(&prepare);
        lines.push(module::prepares(!hold.is_empty()));
    }
    let given = arguments.join(", ");
    let key = key(first, &arguments);
    let choice = format!("getattr(self, _METHODS.get({key}) or self._nearest({given}))({given})");
    out.push_str(&method("forward", &arguments, &lines, &choice));
    for (parts, suffix) in parts.iter().zip(&suffixes) {
        let lines: Vec<String> = parts.checks.iter().chain(&parts.body).cloned().collect();
        out.push_str(&method(&method_of(suffix), &arguments, &lines, &parts.returned));
    }
    out.push_str(&nearest(first, &forms, &arguments));
    let mut written = BTreeSet::new();
    for form in &forms {
        let name = form.name(&forms);
        if written.insert(name.clone()) {
            out.push_str(&method(&name, &arguments, &form.lines, &form.returned));
        }
    }
    files.insert("model_new.py".to_owned(), out);
    Ok(files)
}

/// The statements of `prepare()`.
fn prepared(parts: &[Parts], is_shared: bool) -> (Vec<String>, Vec<String>) {
    let few = if is_shared { parts.get(..1) } else { None }.unwrap_or(parts);
    let ready = few.iter().flat_map(|parts| parts.ready.iter().cloned()).collect();
    (ready, parts.iter().flat_map(|parts| parts.hold.iter().cloned()).collect())
}

fn method_of(suffix: &str) -> String {
    format!("_forward_{suffix}")
}

/// The forward pass for all sizes.
#[derive(Debug)]
struct Form {
    lines: Vec<String>,
    returned: String,
    /// Shapes of the inputs that are tensors.
    shapes: Vec<String>,
    /// What must not be large.
    counts: Vec<String>,
    /// Statements that read the sizes, and their names.
    reads: Vec<String>,
    names: Vec<String>,
    volume: i64,
}

impl Form {
    fn new(
        (general, side): (&General, &Side),
        samples: &[(Parts, Vec<i64>)],
        workload: &Parts,
        arguments: &[String],
    ) -> Option<Self> {
        let of = &side.samples;
        let is_ready = |line: &String| workload.ready.contains(line);
        if !samples.iter().all(|(parts, _)| parts.ready.iter().all(is_ready)) {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        let mut reads = Vec::new();
        for (i, dim) in general.dims.iter().enumerate() {
            let mut name = format!("size_{i}");
            while arguments.contains(&name) {
                name.push('_');
            }
            let argument = arguments.get(dim.input)?;
            reads.push(format!("{name} = {argument}.shape[{}]", dim.dim));
            names.push(name);
        }
        let text = |part: &dyn Fn(&Parts) -> Vec<String>| -> Option<Vec<String>> {
            let lists: Vec<Vec<String>> = samples.iter().map(|(parts, _)| part(parts)).collect();
            let count = lists.first()?.len();
            if lists.iter().any(|list| list.len() != count) {
                return None;
            }
            let line = |i: usize| {
                let lines: Option<Vec<&str>> =
                    lists.iter().map(|list| list.get(i).map(String::as_str)).collect();
                of.line(&lines?, &names)
            };
            (0..count).map(line).collect()
        };
        let checks = text(&|parts| parts.checks.clone())?;
        let body = text(&|parts| parts.body.clone())?;
        let returned = text(&|parts| vec![parts.returned.clone()])?.pop()?;
        let mut lines = reads.clone();
        lines.extend(checks);
        lines.extend(body);
        let used = |name: &String| {
            let in_line = |line: &String| crate::emit::elementwise::mentions(line, name);
            lines.iter().skip(reads.len()).chain([&returned]).any(in_line)
        };
        let kept: Vec<String> =
            reads.iter().zip(&names).filter(|(_, name)| used(name)).map(|r| r.0.clone()).collect();
        lines.drain(..reads.len());
        lines.splice(..0, kept);
        let shapes = shapes(side, &names)?;
        let counts = counts(samples, of, &names)?;
        let volume = general.volume();
        Some(Self { lines, returned, shapes, counts, reads, names, volume })
    }

    /// Its method. Forms with the same text have one.
    fn name(&self, all: &[Self]) -> String {
        let same = |other: &&Self| other.lines == self.lines && other.returned == self.returned;
        let number = all.iter().position(|other| same(&other)).unwrap_or(0);
        format!("_forward_any_{number}")
    }
}

/// The shapes of all inputs that are tensors, as Python.
fn shapes(side: &Side, names: &[String]) -> Option<Vec<String>> {
    let first = side.planned.first()?;
    let mut out = Vec::new();
    for (i, input) in first.trace.inputs.iter().enumerate() {
        if input.tensor.is_none() {
            continue;
        }
        let shape = |planned: &Planned| -> Option<String> {
            Some(tuple(&planned.trace.inputs.get(i)?.tensor.as_ref()?.shape))
        };
        let texts: Option<Vec<String>> = side.planned.iter().map(shape).collect();
        let texts = texts?;
        let lines: Vec<&str> = texts.iter().map(String::as_str).collect();
        out.push(side.samples.line(&lines, names)?);
    }
    Some(out)
}

/// The numbers of elements of tensors that depend on sizes, as Python, each once.
fn counts(samples: &[(Parts, Vec<i64>)], of: &Samples, names: &[String]) -> Option<Vec<String>> {
    let (_, first) = samples.first()?;
    let mut out = BTreeSet::new();
    for i in 0..first.len() {
        let count = |(_, counts): &(Parts, Vec<i64>)| {
            let same = counts.len() == first.len();
            counts.get(i).filter(|_| same).map(i64::to_string)
        };
        let texts: Vec<String> = samples.iter().map(count).collect::<Option<_>>()?;
        let lines: Vec<&str> = texts.iter().map(String::as_str).collect();
        let rule = of.line(&lines, names)?;
        if rule.bytes().any(|b| b.is_ascii_alphabetic()) {
            out.insert(rule);
        }
    }
    Some(out.into_iter().collect())
}

/// `(x.shape, x.dtype, scale)`.
fn key(trace: &Trace, arguments: &[String]) -> String {
    let mut out: Vec<String> = Vec::new();
    for (input, argument) in trace.inputs.iter().zip(arguments) {
        if input.tensor.is_some() {
            out.push(format!("{argument}.shape, {argument}.dtype"));
        } else {
            out.push(argument.clone());
        }
    }
    format!("({},)", out.join(", "))
}

/// The same of a graph: `((64, 2048), torch.float32, 2)`.
fn key_of(trace: &Trace) -> String {
    let one = |input: &crate::trace::TracedInput| match &input.tensor {
        Some(meta) => format!("{}, {}", tuple(&meta.shape), meta.dtype.torch()),
        None => literal(&input.scalar),
    };
    format!("({},)", trace.inputs.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// A number, text or nothing, as Python.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Object(tagged) => {
            let name = tagged.get("f").and_then(Value::as_str).unwrap_or("nan");
            format!("float(\"{name}\")")
        }
        other => other.to_string(),
    }
}

/// The table of methods, and what refuses inputs.
fn helpers(known: &[(String, String)]) -> String {
    let mut out =
        "# The method for the shapes and types of each workload's inputs.\n_METHODS = {\n"
            .to_owned();
    for (key, suffix) in known {
        out.push_str(&format!("    {key}: \"{}\",\n", method_of(suffix)));
    }
    out.push_str(
        "}


def _refuse(*inputs: object) -> None:
    given = [tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs]
    known = list(_METHODS)
    raise ValueError(f\"no kernel was made for inputs of {given}, only for {known}\")


",
    );
    out
}

/// The method that chooses a form for sizes that no workload has.
fn nearest(trace: &Trace, forms: &[Form], arguments: &[String]) -> String {
    let given = arguments.join(", ");
    let refuse = format!("_refuse({given})");
    let mut lines = vec!["\"\"\"The method for sizes that no workload has.\"\"\"".to_owned()];
    let Some(first) = forms.first() else {
        lines.push(refuse);
        return method("_nearest", arguments, &lines, "\"\"");
    };
    let tensors = trace.inputs.iter().zip(arguments).filter(|(i, _)| i.tensor.is_some());
    let (mut here, mut wanted) = (Vec::new(), Vec::new());
    for (input, argument) in trace.inputs.iter().zip(arguments) {
        if let Some(meta) = &input.tensor {
            here.push(format!("{argument}.dim(), {argument}.dtype"));
            wanted.push(format!("{}, {}", meta.shape.len(), meta.dtype.torch()));
        } else {
            here.push(argument.clone());
            wanted.push(literal(&input.scalar));
        }
    }
    lines.push(format!("if ({},) != ({},):", here.join(", "), wanted.join(", ")));
    lines.push(format!("    {refuse}"));
    lines.extend(first.reads.iter().cloned());
    let shapes: Vec<String> = tensors.map(|(_, argument)| format!("{argument}.shape")).collect();
    lines.push(format!("if ({},) != ({},):", shapes.join(", "), first.shapes.join(", ")));
    lines.push(format!("    {refuse}"));
    lines.push(format!("if max({}, 0) > {MOST_ELEMENTS}:", first.counts.join(", ")));
    lines.push(format!("    {refuse}"));
    for pair in forms.windows(2) {
        let [small, large] = pair else { continue };
        let names = (small.name(forms), large.name(forms));
        if names.0 == names.1 {
            continue;
        }
        // Halfway between the two on a logarithmic scale.
        let limit = (small.volume as f64 * large.volume as f64).sqrt() as i64;
        lines.push(format!("if {} <= {limit}:", small.names.join(" * ")));
        lines.push(format!("    return \"{}\"", names.0));
    }
    let last = forms.last().map(|form| form.name(forms)).unwrap_or_default();
    method("_nearest", arguments, &lines, &format!("\"{last}\""))
}

/// The constants of all workloads.
fn constants(workloads: &[Workload]) -> Result<Vec<crate::trace::Constant>, String> {
    let mut out: Vec<crate::trace::Constant> = Vec::new();
    for constant in workloads.iter().flat_map(|w| &w.planned.trace.constants) {
        match out.iter().find(|known| known.name == constant.name) {
            None => out.push(constant.clone()),
            Some(known) if known.values == constant.values && known.shape == constant.shape => {}
            Some(_) if constant.values.len() == 1 => {}
            Some(_) => {
                return Err(format!("constant {} has two values", constant.name));
            }
        }
    }
    Ok(out)
}
