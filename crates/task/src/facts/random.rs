//! Random operators on the way of `forward`.
//!
//! The way is found by name: `forward` of `Model` and of every class of this module it mentions,
//! then every function and method mentioned from there. That is too much rather than too little,
//! but leaves out what only initialises: `nn.init.normal_` in a method that `__init__` calls.

use std::collections::BTreeSet;

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, ExprCall, Number, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;

use super::excerpt::Lines;
use super::found::{RandomUse, RandomWhen};
use super::module::{Binding, Module};
use super::names::Names;

/// Functions of `torch` that draw.
const TORCH_DRAWS: [&str; 11] = [
    "bernoulli",
    "binomial",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
];

/// Tensor methods that draw, in place or not.
const METHOD_DRAWS: [&str; 10] = [
    "bernoulli",
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "normal_",
    "random_",
    "uniform_",
];

/// `torch.nn` modules that drop or draw in train mode, with the position of their probability.
const DROPPING_MODULES: [&str; 7] = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "RReLU",
];

/// `torch.nn` modules with an argument `dropout`, and whether it is positive by default.
const MODULES_WITH_DROPOUT: [(&str, bool); 7] = [
    ("GRU", false),
    ("LSTM", false),
    ("MultiheadAttention", false),
    ("RNN", false),
    ("Transformer", true),
    ("TransformerDecoderLayer", true),
    ("TransformerEncoderLayer", true),
];

/// Random uses, in order of appearance, each place once.
pub(crate) fn read(module: &Module<'_>, names: &Names<'_>, lines: &Lines<'_>) -> Vec<RandomUse> {
    let Some(Binding::Class(model)) = module.get("Model") else { return Vec::new() };
    let mut search = Search {
        module,
        names,
        lines,
        place: Place::Constructor,
        found: Vec::new(),
        queue: Vec::new(),
        seen: BTreeSet::new(),
    };
    search.class(model);
    while let Some((class, function, place)) = search.queue.pop() {
        search.place = place;
        search.class_at_hand(class, function);
    }
    let mut found = search.found;
    found.sort_by_key(|use_| use_.position);
    found.dedup();
    found
}

/// What code is being read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Runs once: drawing is initialising; what counts is which modules are made.
    Constructor,
    /// Runs on every call.
    Forward,
}

type Step<'a> = (Option<&'a StmtClassDef>, &'a StmtFunctionDef, Place);

struct Search<'s, 'a> {
    module: &'s Module<'a>,
    names: &'s Names<'a>,
    lines: &'s Lines<'a>,
    place: Place,
    found: Vec<RandomUse>,
    queue: Vec<Step<'a>>,
    /// Functions by offset, with the place they were read as.
    seen: BTreeSet<(u32, Place)>,
}

impl<'a> Search<'_, 'a> {
    /// Reads a class's constructor and its `forward`.
    fn class(&mut self, class: &'a StmtClassDef) {
        for (name, place) in [
            ("__init__", Place::Constructor),
            ("forward", Place::Forward),
            ("__call__", Place::Forward),
        ] {
            if let Some(Binding::Function(function)) = self.module.method(class, name) {
                self.push(Some(class), function, place);
            }
        }
    }

    fn push(
        &mut self,
        class: Option<&'a StmtClassDef>,
        function: &'a StmtFunctionDef,
        place: Place,
    ) {
        if self.seen.insert((function.start().to_u32(), place)) {
            self.queue.push((class, function, place));
        }
    }

    fn class_at_hand(&mut self, class: Option<&'a StmtClassDef>, function: &'a StmtFunctionDef) {
        let mut mentions = Mentions::default();
        mentions.visit_body(&function.body);
        self.visit_body(&function.body);
        let place = self.place;
        for name in mentions.names {
            match self.module.get(name) {
                Some(Binding::Class(class)) => self.class(class),
                Some(Binding::Function(function)) => self.push(None, function, place),
                _ => {}
            }
        }
        for attribute in mentions.attributes {
            if let Some(class) = class
                && let Some(Binding::Function(method)) = self.module.method(class, attribute)
            {
                self.push(Some(class), method, place);
            }
        }
    }

    /// When, if ever, `call` draws.
    fn draws(&self, call: &ExprCall) -> Option<(String, RandomWhen)> {
        let Some(full) = self.names.full_name(&call.func) else {
            let Expr::Attribute(method) = &*call.func else { return None };
            let name = method.attr.as_str();
            let draws = self.place == Place::Forward && METHOD_DRAWS.contains(&name);
            return draws.then(|| (format!("Tensor.{name}"), RandomWhen::Always));
        };
        let when = match self.place {
            Place::Forward => drawn_by_function(&full, call),
            Place::Constructor => None,
        };
        let when = when.or_else(|| dropped_by_module(&full, call))?;
        Some((full, when))
    }
}

impl<'a> Visitor<'a> for Search<'_, 'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression
            && let Some((name, when)) = self.draws(call)
        {
            let position = self.lines.position(call.start());
            self.found.push(RandomUse { call: name, when, position });
        }
        walk_expr(self, expression);
    }
}

fn drawn_by_function(full: &str, call: &ExprCall) -> Option<RandomWhen> {
    if let Some(function) = full.strip_prefix("torch.nn.functional.") {
        return match function {
            "scaled_dot_product_attention" => {
                let probability = argument(call, "dropout_p", Some(4));
                let asked = probability.is_some_and(|p| !is_zero(p));
                // Usually `self.p if self.training else 0.0`; only a number is certain.
                asked.then_some(match probability {
                    Some(Expr::NumberLiteral(_)) => RandomWhen::Always,
                    _ => RandomWhen::Train,
                })
            }
            "gumbel_softmax" | "fractional_max_pool2d" | "fractional_max_pool3d" => {
                Some(RandomWhen::Always)
            }
            "rrelu" => trained(argument(call, "training", Some(3)), TrainingDefault::Off),
            _ if function.contains("dropout") => dropout(call, TrainingDefault::On),
            _ => None,
        };
    }
    if full == "torch.dropout" {
        return dropout(call, TrainingDefault::On);
    }
    let draws =
        full.strip_prefix("torch.").is_some_and(|f| TORCH_DRAWS.contains(&f) || f == "randperm")
            || full.starts_with("torch.nn.init.")
            || full.starts_with("torch.distributions.")
            || full.starts_with("numpy.random.")
            || full.starts_with("random.");
    draws.then_some(RandomWhen::Always)
}

/// `dropout(input, p, training)`.
fn dropout(call: &ExprCall, default: TrainingDefault) -> Option<RandomWhen> {
    if argument(call, "p", Some(1)).is_some_and(is_zero) {
        return None;
    }
    let training = argument(call, "training", Some(2)).or_else(|| argument(call, "train", None));
    trained(training, default)
}

#[derive(Clone, Copy)]
enum TrainingDefault {
    On,
    Off,
}

/// What an argument `training` means: a constant, or almost always `self.training`.
fn trained(training: Option<&Expr>, default: TrainingDefault) -> Option<RandomWhen> {
    match (training, default) {
        (Some(Expr::BooleanLiteral(literal)), _) => literal.value.then_some(RandomWhen::Always),
        (Some(_), _) => Some(RandomWhen::Train),
        (None, TrainingDefault::On) => Some(RandomWhen::Always),
        (None, TrainingDefault::Off) => None,
    }
}

/// Modules that draw when they run, by how they are made.
fn dropped_by_module(full: &str, call: &ExprCall) -> Option<RandomWhen> {
    let module = full.strip_prefix("torch.nn.")?;
    let module = module.strip_prefix("modules.").unwrap_or(module);
    if module.starts_with("FractionalMaxPool") {
        return Some(RandomWhen::Always);
    }
    if DROPPING_MODULES.contains(&module) {
        let never = module != "RReLU" && argument(call, "p", Some(0)).is_some_and(is_zero);
        return (!never).then_some(RandomWhen::Train);
    }
    let (_, by_default) = MODULES_WITH_DROPOUT.iter().find(|(name, _)| *name == module)?;
    let drops = argument(call, "dropout", None).map_or(*by_default, |p| !is_zero(p));
    drops.then_some(RandomWhen::Train)
}

/// The argument passed as `name`, or at `index`.
fn argument<'e>(call: &'e ExprCall, name: &str, index: Option<usize>) -> Option<&'e Expr> {
    let keywords = call.arguments.keywords.iter();
    let by_name = keywords
        .filter(|keyword| keyword.arg.as_ref().is_some_and(|arg| arg.as_str() == name))
        .map(|keyword| &keyword.value)
        .next();
    by_name.or_else(|| call.arguments.args.get(index?))
}

fn is_zero(expression: &Expr) -> bool {
    match expression {
        Expr::NumberLiteral(literal) => match &literal.value {
            Number::Int(n) => n.as_u8() == Some(0),
            Number::Float(x) => *x == 0.0,
            Number::Complex { .. } => false,
        },
        _ => false,
    }
}

/// Every name and attribute that a body mentions.
#[derive(Default)]
struct Mentions<'a> {
    names: BTreeSet<&'a str>,
    attributes: BTreeSet<&'a str>,
}

impl<'a> Visitor<'a> for Mentions<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        ruff_python_ast::visitor::walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) => {
                self.names.insert(&name.id);
            }
            Expr::Attribute(attribute) => {
                self.attributes.insert(&attribute.attr);
            }
            _ => {}
        }
        walk_expr(self, expression);
    }
}
