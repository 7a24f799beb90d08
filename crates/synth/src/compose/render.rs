//! Renders a plan as readable source in KernelBench form.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::catalogue::{Class, Domain, Input, Kind, ShapeError, Size};

use super::build::{Built, BuiltStep};
use super::error::ComposeError;
use super::grammar::is_window;
use super::guard;
use super::names::{Scope, short};
use super::plan::Source;

/// Two-tensor functions that have an operator in Python.
const INFIX: &[(&str, &str)] =
    &[("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("matmul", "@")];

/// Maximum length of an operator's name as the name of its result; longer ones use the kind of
/// work.
const LONGEST_LOCAL: usize = 20;

/// Maximum line length before a signature is broken.
const LONGEST_LINE: usize = 100;

/// Name of the task in snake case, from its operators: `conv2d_gelu_mean`.
pub(super) fn name(built: &Built<'_>) -> String {
    let names: Vec<String> = built.steps.iter().map(|step| short(&step.entry.name)).collect();
    let mut name = names.join("_");
    name.truncate(100);
    name
}

/// The parts of the file, collected while rendering.
#[derive(Default)]
struct File {
    constants: Vec<(String, u64)>,
    constant_names: Scope,
    /// Attributes of the model and locals of `forward`.
    attributes: Scope,
    locals: Scope,
    imports: BTreeSet<String>,
    init: Vec<String>,
    forward: Vec<String>,
    /// Arguments of `forward`, and the expression in `get_inputs` for each.
    inputs: Vec<(String, String)>,
    epsilon: bool,
}

/// A value in `forward`: its name and its dimensions as text.
struct Value {
    name: String,
    dims: Vec<String>,
}

/// Texts of a step's symbols.
type Texts = BTreeMap<String, String>;

/// The whole file.
pub(super) fn source(built: &Built<'_>) -> Result<String, ComposeError> {
    let mut file = File::default();
    let dims: Vec<String> = root_names(built)
        .iter()
        .zip(&built.root)
        .map(|(wish, size)| file.constant(wish, *size))
        .collect();
    file.locals.exactly("x");
    file.inputs.push(("x".into(), guard::drawn(built.root_domain, &dims.join(", "), "")));
    let mut values = vec![Value { name: "x".into(), dims }];
    for (i, step) in built.steps.iter().enumerate() {
        let value = file.step(built, step, &values, i + 1 == built.steps.len())?;
        values.push(value);
    }
    Ok(file.text())
}

/// Names of the first input's dimensions, by the operator that uses it.
fn root_names(built: &Built<'_>) -> &'static [&'static str] {
    let spatial = built.steps.iter().any(|step| {
        matches!(step.form.class, Class::Convolution | Class::Pooling)
            && step.sources.contains(&Source::Value(0))
    });
    match built.root.len() {
        1 => &["SIZE"],
        2 => &["ROWS", "FEATURES"],
        3 if spatial => &["BATCH", "CHANNELS", "LENGTH"],
        3 => &["BATCH", "LENGTH", "FEATURES"],
        4 => &["BATCH", "CHANNELS", "HEIGHT", "WIDTH"],
        _ => &["BATCH", "CHANNELS", "DEPTH", "HEIGHT", "WIDTH"],
    }
}

/// Name of a result, by kind of work.
fn result_name(class: Class) -> &'static str {
    match class {
        Class::Elementwise => "mapped",
        Class::Layout => "moved",
        Class::Gather | Class::Scatter => "gathered",
        Class::Reduction => "reduced",
        Class::Scan => "scanned",
        Class::Normalisation => "normed",
        Class::Window | Class::Pooling => "pooled",
        Class::Resample => "resized",
        Class::Product | Class::Pairwise | Class::Factorisation => "projected",
        Class::Convolution => "convolved",
        Class::Attention => "attended",
        Class::Recurrent => "hidden",
        Class::Transform => "spectrum",
        Class::Sort => "ordered",
    }
}

/// Name of a chosen size.
fn chosen_name(class: Class) -> &'static str {
    match class {
        Class::Convolution => "OUT_CHANNELS",
        Class::Product => "OUT_FEATURES",
        Class::Attention => "KEYS",
        Class::Gather => "SELECTED",
        Class::Recurrent => "HIDDEN",
        _ => "OUT_SIZE",
    }
}

impl File {
    fn constant(&mut self, wish: &str, size: u64) -> String {
        let name = self.constant_names.exactly(wish);
        self.constants.push((name.clone(), size));
        name
    }

    /// Renders one step and returns its result.
    fn step(
        &mut self,
        built: &Built<'_>,
        step: &BuiltStep<'_>,
        values: &[Value],
        last: bool,
    ) -> Result<Value, ComposeError> {
        for line in &step.entry.imports {
            self.imports.insert(line.clone());
        }
        let texts = self.texts(step, values);
        let mut arguments = BTreeMap::new();
        for (i, input) in step.form.inputs.iter().enumerate() {
            let argument = match step.sources[i] {
                Source::Value(value) => {
                    let range = built.range(value);
                    let drawn = value == 0 && built.root_domain == input.domain;
                    let guard = if drawn { None } else { guard::guard(range, input.domain) };
                    self.guarded(&values[value].name, input.domain, guard)
                }
                Source::Input => self.input(input, &texts)?,
                Source::Parameter => self.parameter(step.form.class, input, &texts)?,
            };
            arguments.insert(input.name.clone(), argument);
        }
        let mut module = String::new();
        if let (Kind::Module, Some(init)) = (step.entry.kind, &step.form.init) {
            module = format!("self.{}", self.attributes.name(&short(&step.entry.name)));
            let init = tidy(&filled(init, |name| texts.get(name).map(|text| lower(text))));
            self.init.push(format!("{module} = {init}"));
        }
        let call = expression(step, &arguments, &texts, &module);
        let call = format!("{call}{}", step.form.outputs[0].path);
        let mut dims = Vec::new();
        for (size, value) in step.form.outputs[0].dims.iter().zip(&step.output) {
            let text = size.symbol().and_then(|symbol| texts.get(symbol)).cloned();
            dims.push(text.unwrap_or_else(|| value.to_string()));
        }
        if last {
            self.forward.push(format!("return {call}"));
            return Ok(Value { name: String::new(), dims });
        }
        let mut wish = short(&step.entry.name);
        if wish.len() > LONGEST_LOCAL {
            result_name(step.form.class).clone_into(&mut wish);
        }
        let name = self.locals.name(&wish);
        self.forward.push(format!("{name} = {call}"));
        Ok(Value { name, dims })
    }

    /// Text of each symbol of a step: a constant's name, or a number.
    fn texts(&mut self, step: &BuiltStep<'_>, values: &[Value]) -> Texts {
        let mut texts = Texts::new();
        for (input, source) in step.form.inputs.iter().zip(&step.sources) {
            let Source::Value(value) = source else { continue };
            for (dim, text) in input.dims.iter().zip(&values[*value].dims) {
                // A dimension of 1 is repeated, and says nothing of the symbol.
                if let Some(symbol) = dim.symbol()
                    && !(step.form.broadcasts && text == "1")
                {
                    texts.entry(symbol.to_owned()).or_insert_with(|| text.clone());
                }
            }
        }
        for (symbol, size) in &step.sizes {
            if !texts.contains_key(symbol) {
                let window = is_window(step.form, symbol);
                let wish = match step.form.class {
                    Class::Convolution if window => "KERNEL",
                    class => chosen_name(class),
                };
                let name = self.constant(wish, *size);
                texts.insert(symbol.clone(), name);
            }
        }
        texts
    }

    /// A value after its guard, which has its own line.
    fn guarded(&mut self, value: &str, domain: Domain, guard: Option<&str>) -> String {
        let Some(guard) = guard else { return value.to_owned() };
        self.epsilon |= guard.contains("EPSILON");
        let wish = match domain {
            Domain::Positive => "positive",
            Domain::NonNegative | Domain::AboveMinusOne => "magnitude",
            Domain::ClosedUnit | Domain::OpenUnit => "probability",
            Domain::ClosedUnitBall | Domain::OpenUnitBall => "bounded",
            _ => "shifted",
        };
        let name = self.locals.name(wish);
        self.forward.push(format!("{name} = {}", guard.replace("{}", value)));
        name
    }

    /// Another argument of `forward`.
    fn input(&mut self, input: &Input, texts: &Texts) -> Result<String, ComposeError> {
        let wish = match (input.domain, input.name.as_str()) {
            (Domain::Bool, _) => "mask",
            (Domain::Index, _) => "index",
            (_, name @ ("query" | "key" | "value" | "target" | "residual" | "condition")) => name,
            _ => "y",
        };
        let name = self.locals.exactly(wish);
        let below = input.below.as_ref().and_then(|symbol| texts.get(symbol));
        let below = below.map_or("", String::as_str);
        let shape = dims_text(&input.dims, texts)?.join(", ");
        self.inputs.push((name.clone(), guard::drawn(input.domain, &shape, below)));
        Ok(name)
    }

    /// A parameter tensor of the model.
    fn parameter(
        &mut self,
        class: Class,
        input: &Input,
        texts: &Texts,
    ) -> Result<String, ComposeError> {
        let known = ["weight", "bias", "running_mean", "running_var", "cos", "sin"];
        let wish = if known.contains(&input.name.as_str()) { &input.name } else { "weight" };
        let name = self.attributes.exactly(wish);
        let dims = dims_text(&input.dims, texts)?;
        let arguments: Vec<String> = dims.iter().map(|dim| lower(dim)).collect();
        let shape = arguments.join(", ");
        let drawn = match (class, input.domain) {
            (Class::Product | Class::Convolution, Domain::Any) => {
                format!("0.02 * torch.randn({shape})")
            }
            (Class::Normalisation, Domain::Any) if wish == "weight" => {
                format!("1.0 + 0.1 * torch.randn({shape})")
            }
            (_, domain) => guard::drawn(domain, &shape, ""),
        };
        let line = if wish.starts_with("running") || wish == "cos" || wish == "sin" {
            format!("self.register_buffer(\"{name}\", {drawn})")
        } else {
            format!("self.{name} = nn.Parameter({drawn})")
        };
        self.init.push(line);
        Ok(format!("self.{name}"))
    }

    /// The file's text.
    fn text(&self) -> String {
        let mut text = String::from("import torch\nfrom torch import nn\n");
        let body = self.init.join("\n") + &self.forward.join("\n");
        if body.contains("F.") {
            text += "from torch.nn import functional as F\n";
        }
        let (standard, others): (Vec<_>, Vec<_>) =
            self.imports.iter().partition(|line| line.starts_with("from types "));
        for line in &standard {
            text = format!("{line}\n\n{text}");
        }
        for line in others {
            let _ = writeln!(text, "{line}");
        }
        text += "\n";
        for (name, size) in &self.constants {
            let _ = writeln!(text, "{name} = {size}");
        }
        if self.epsilon {
            text += "EPSILON = 1e-6\n";
        }
        let init = self.init.join("\n");
        let arguments: Vec<(String, &str)> = self
            .constants
            .iter()
            .map(|(name, _)| (name.to_ascii_lowercase(), name.as_str()))
            .filter(|(lower, _)| mentions(&init, lower))
            .collect();
        text += "\n\nclass Model(nn.Module):\n";
        if !self.init.is_empty() {
            let typed: Vec<String> =
                arguments.iter().map(|(lower, _)| format!("{lower}: int")).collect();
            text += &signature("__init__", &typed, "None");
            text += "        super().__init__()\n";
            for line in &self.init {
                let _ = writeln!(text, "        {line}");
            }
            text += "\n";
        }
        let typed: Vec<String> =
            self.inputs.iter().map(|(name, _)| format!("{name}: torch.Tensor")).collect();
        text += &signature("forward", &typed, "torch.Tensor");
        for line in &self.forward {
            let _ = writeln!(text, "        {line}");
        }
        text += "\n\ndef get_inputs() -> list[torch.Tensor]:\n";
        let drawn: Vec<&str> = self.inputs.iter().map(|(_, drawn)| drawn.as_str()).collect();
        let line = drawn.join(", ");
        if line.len() > 80 {
            let _ = writeln!(text, "    return [\n        {},\n    ]", drawn.join(",\n        "));
        } else {
            let _ = writeln!(text, "    return [{line}]");
        }
        let names: Vec<&str> = arguments.iter().map(|(_, name)| *name).collect();
        let _ = write!(
            text,
            "\n\ndef get_init_inputs() -> list[int]:\n    return [{}]\n",
            names.join(", ")
        );
        text
    }
}

/// The first line of a method; one argument per line if it would be too long.
fn signature(name: &str, arguments: &[String], result: &str) -> String {
    let all: Vec<&str> =
        std::iter::once("self").chain(arguments.iter().map(String::as_str)).collect();
    let line = format!("    def {name}({}) -> {result}:\n", all.join(", "));
    if line.len() <= LONGEST_LINE {
        return line;
    }
    format!("    def {name}(\n        {},\n    ) -> {result}:\n", all.join(",\n        "))
}

/// The call with all placeholders filled in.
fn expression(
    step: &BuiltStep<'_>,
    arguments: &BTreeMap<String, String>,
    texts: &Texts,
    module: &str,
) -> String {
    let call = &step.form.call;
    for (function, operator) in INFIX {
        if let Some(rest) = call.strip_prefix(&format!("torch.{function}({{"))
            && let [first, second] = step.form.inputs.as_slice()
            && rest == format!("{}}}, {{{}}})", first.name, second.name)
        {
            return format!("{} {operator} {}", arguments[&first.name], arguments[&second.name]);
        }
    }
    let call = match call.strip_prefix("module(") {
        Some(rest) => format!("{module}({rest}"),
        None => call.clone(),
    };
    tidy(&filled(&call, |name| arguments.get(name).or_else(|| texts.get(name)).cloned()))
}

/// The template with names in braces replaced; names without a text stay.
fn filled(template: &str, text: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = template.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some((name, rest)) = part.split_once('}') {
            filled += &text(name).unwrap_or_else(|| format!("{{{name}}}"));
            filled += rest;
        } else {
            filled.push('{');
            filled += part;
        }
    }
    filled
}

/// Replaces torch's module names with their usual short names.
fn tidy(text: &str) -> String {
    text.replace("torch.nn.functional.", "F.").replace("torch.nn.", "nn.").replace('\'', "\"")
}

/// Dimensions as text.
fn dims_text(dims: &[Size], texts: &Texts) -> Result<Vec<String>, ShapeError> {
    dims.iter()
        .map(|dim| match dim.symbol() {
            Some(symbol) => texts
                .get(symbol)
                .cloned()
                .ok_or_else(|| ShapeError::Unchosen { symbol: symbol.to_owned() }),
            None => Ok(dim.to_string()),
        })
        .collect()
}

/// A constant as the argument of `__init__` that carries it; a number is unchanged.
fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// Whether `text` contains `word` as a whole name.
fn mentions(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}
