//! Reads and checks the list that `get_workloads` returns.

use std::collections::HashSet;

use ruff_python_ast::{Expr, Parameters, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange};
use serde_json::{Map, Value};

use super::defaults::{self, InputDefault};
use super::literal::{NotLiteral, value};
use super::{Arguments, MAX_WORKLOAD_NAME, MAX_WORKLOADS, Workload, WorkloadTolerance};
use crate::facts::error::TaskErrorKind;
use crate::facts::excerpt::Lines;
use crate::facts::module::{Binding, Module};

/// Name of the function.
pub(crate) const NAME: &str = "get_workloads";
const LITERALLY: &str = "write the list literally: `def get_workloads(): return [{\"name\": \"batch16\", \"arguments\": {\"batch\": 16}}]`";
const FORM: &str = "a workload is {\"name\": \"batch16\", \"arguments\": {\"batch\": 16}}, a dict of arguments, or a list of positional arguments";
const SHOWN: &str = "write the default as a literal; the agent sees the values of a workload that it may know in its place";
const ALIKE: &str = "name the same arguments, nested in the same way, in every workload";

/// The function `get_workloads` at module level, if there is one.
pub(crate) fn definition<'a>(
    body: &'a [Stmt],
    module: &Module<'a>,
    lines: &Lines<'_>,
) -> Result<Option<&'a StmtFunctionDef>, TaskErrorKind> {
    let defined = body.iter().filter_map(|statement| match statement {
        Stmt::FunctionDef(function) if function.name.as_str() == NAME => Some(function),
        _ => None,
    });
    let defined: Vec<_> = defined.collect();
    let wrong = |at: TextRange, message: &str, cure| TaskErrorKind::Workloads {
        at: lines.place(at.start()),
        message: message.to_owned(),
        cure,
    };
    match (module.get(NAME), defined.as_slice()) {
        (None, _) => Ok(None),
        (Some(Binding::Function(bound)), [only]) if bound.range() == only.range() => {
            if only.is_async || !only.decorator_list.is_empty() || !only.parameters.is_empty() {
                let message = "it must be a plain function without parameters and decorators";
                return Err(wrong(only.name.range(), message, LITERALLY));
            }
            Ok(Some(only))
        }
        (Some(Binding::Function(bound)), []) => {
            Err(wrong(bound.name.range(), "it is not at the top level of the module", LITERALLY))
        }
        (_, [first, ..]) => {
            Err(wrong(first.name.range(), "the name is bound more than once", LITERALLY))
        }
        (Some(Binding::Class(class)), []) => {
            Err(wrong(class.name.range(), "it is a class", LITERALLY))
        }
        (Some(Binding::Unknown), []) => Err(TaskErrorKind::Workloads {
            at: lines.place(body.first().map_or(0.into(), Ranged::start)),
            message: "it is assigned or imported, and tasks are read without executing them"
                .to_owned(),
            cure: LITERALLY,
        }),
    }
}

/// The workloads of a module; empty if it has none.
pub(crate) fn read(
    body: &[Stmt],
    module: &Module<'_>,
    lines: &Lines<'_>,
) -> Result<Vec<Workload>, TaskErrorKind> {
    let Some(function) = definition(body, module, lines)? else { return Ok(Vec::new()) };
    let wrong = |told: NotLiteral, cure| TaskErrorKind::Workloads {
        at: lines.place(told.at.start()),
        message: told.message,
        cure,
    };
    let list = returned(function).ok_or_else(|| {
        let message = "it does more than return a literal list";
        wrong(NotLiteral::new(&function.name, message), LITERALLY)
    })?;
    let parameters = parameters(module);
    if list.is_empty() || list.len() > MAX_WORKLOADS {
        let message = format!("it has {} workloads; 1 to {MAX_WORKLOADS} are allowed", list.len());
        return Err(wrong(NotLiteral::new(&function.name, message), "shorten the list"));
    }
    let (mut workloads, mut names) = (Vec::<Workload>::new(), HashSet::new());
    for (i, expression) in list.iter().enumerate() {
        let value = value(expression).map_err(|told| {
            let cure = if told.computed { LITERALLY } else { FORM };
            wrong(told, cure)
        })?;
        let at = |message: String| NotLiteral::new(expression, message);
        let workload = one(i, value).map_err(|message| wrong(at(message), FORM))?;
        if !names.insert(workload.name.clone()) {
            let message = format!("two workloads have the name `{}`", workload.name);
            return Err(wrong(at(message), "give each workload a name of its own"));
        }
        if let Some(message) = parameters.and_then(|known| unknown(&workload.arguments, known)) {
            let cure = "name parameters of `get_inputs` only";
            return Err(wrong(at(message), cure));
        }
        if let Some(first) = workloads.first()
            && let Some(message) = unlike(first, &workload)
        {
            return Err(wrong(at(message), ALIKE));
        }
        workloads.push(workload);
    }
    if workloads.iter().all(|workload| workload.held_out) {
        let message = "all workloads are held out";
        let cure = "leave one that the agent sees";
        return Err(wrong(NotLiteral::new(&function.name, message), cure));
    }
    let held_out = workloads.iter().any(|workload| workload.held_out);
    if held_out && parameters.is_none() {
        let message = "workloads are held out, and `get_inputs` is not one plain function: its defaults may be theirs";
        return Err(wrong(NotLiteral::new(&function.name, message.to_owned()), SHOWN));
    }
    if held_out
        && let (Some(known), Some(first)) = (parameters, workloads.first())
        && let Some(told) = defaults::computed(known, first)
    {
        let message = "workloads are held out, and a default of `get_inputs` is computed: it may be one of theirs";
        return Err(wrong(NotLiteral { message: message.to_owned(), ..told }, SHOWN));
    }
    Ok(workloads)
}

fn parameters<'a>(module: &Module<'a>) -> Option<&'a Parameters> {
    match module.get("get_inputs") {
        Some(Binding::Function(inputs)) => Some(&*inputs.parameters),
        _ => None,
    }
}

/// The defaults of the parameters of `get_inputs`.
pub(crate) fn defaults(module: &Module<'_>) -> Vec<InputDefault> {
    parameters(module).map(defaults::of).unwrap_or_default()
}

/// The elements of the literal list that the function returns, if it does nothing else.
fn returned(function: &StmtFunctionDef) -> Option<&[Expr]> {
    let is_text = |statement: &Stmt| match statement {
        Stmt::Expr(expression) => expression.value.is_string_literal_expr(),
        _ => false,
    };
    let body = match function.body.as_slice() {
        [text, rest @ ..] if is_text(text) => rest,
        all => all,
    };
    let [Stmt::Return(returned)] = body else { return None };
    match returned.value.as_deref()? {
        Expr::List(list) => Some(&list.elts),
        Expr::Tuple(tuple) => Some(&tuple.elts),
        _ => None,
    }
}

/// The workload of one element.
fn one(index: usize, value: Value) -> Result<Workload, String> {
    let usual = || format!("workload {}", index + 1);
    let plain = |arguments| Workload { name: usual(), arguments, tolerance: None, held_out: false };
    match value {
        Value::Array(values) => Ok(plain(Arguments::Positional(values))),
        Value::Object(map) if map.contains_key("arguments") => named(map, usual()),
        Value::Object(map) => Ok(plain(Arguments::Named(map))),
        _ => Err("a workload is neither a dict nor a list".to_owned()),
    }
}

fn named(map: Map<String, Value>, usual: String) -> Result<Workload, String> {
    let mut workload = Workload {
        name: usual,
        arguments: Arguments::Positional(Vec::new()),
        tolerance: None,
        held_out: false,
    };
    for (key, value) in map {
        match (key.as_str(), value) {
            ("name", Value::String(name)) => {
                let fits = (1..=MAX_WORKLOAD_NAME).contains(&name.chars().count());
                if !fits || name.trim() != name || name.chars().any(char::is_control) {
                    return Err(format!(
                        "a name has 1 to {MAX_WORKLOAD_NAME} characters, none of them control characters, and no spaces at its ends"
                    ));
                }
                workload.name = name;
            }
            ("name", _) => return Err("a name is not a string".to_owned()),
            ("arguments", Value::Object(named)) => workload.arguments = Arguments::Named(named),
            ("arguments", Value::Array(all)) => workload.arguments = Arguments::Positional(all),
            ("arguments", _) => return Err("`arguments` is neither a dict nor a list".to_owned()),
            ("tolerance", value) => workload.tolerance = tolerance(&value)?,
            ("held_out", Value::Bool(held_out)) => workload.held_out = held_out,
            ("held_out", _) => return Err("`held_out` is not True or False".to_owned()),
            (other, _) => return Err(format!("a workload has no key `{}`", short(other))),
        }
    }
    Ok(workload)
}

fn tolerance(value: &Value) -> Result<Option<WorkloadTolerance>, String> {
    let map = match value {
        Value::Null => return Ok(None),
        Value::Object(map) => map,
        _ => return Err("`tolerance` is not a dict of `atol` and `rtol`".to_owned()),
    };
    let mut tolerance = WorkloadTolerance::default();
    for (key, value) in map {
        let number = value.as_f64().filter(|number| *number >= 0.0);
        match (key.as_str(), number) {
            ("atol", Some(number)) => tolerance.atol = number,
            ("rtol", Some(number)) => tolerance.rtol = number,
            ("atol" | "rtol", None) => {
                return Err(format!("`{key}` is not a number of at least 0"));
            }
            (other, _) => return Err(format!("a tolerance has no key `{}`", short(other))),
        }
    }
    Ok(Some(tolerance))
}

/// Why `get_inputs` cannot be called with the arguments, as far as its parameters tell.
fn unknown(arguments: &Arguments, parameters: &Parameters) -> Option<String> {
    match arguments {
        Arguments::Named(_) if parameters.kwarg.is_some() => None,
        Arguments::Named(named) => {
            let has = |name: &str| {
                let mut all = parameters.args.iter().chain(&parameters.kwonlyargs);
                all.any(|parameter| parameter.parameter.name.as_str() == name)
            };
            let unknown = named.keys().find(|name| !has(name))?;
            Some(format!("`get_inputs` has no parameter `{}`", short(unknown)))
        }
        Arguments::Positional(_) if parameters.vararg.is_some() => None,
        Arguments::Positional(values) => {
            let most = parameters.posonlyargs.len() + parameters.args.len();
            (values.len() > most).then(|| {
                format!(
                    "`get_inputs` takes {most} positional arguments, and {} are given",
                    values.len()
                )
            })
        }
    }
}

/// How the arguments of a workload are not like those of the first.
fn unlike(first: &Workload, other: &Workload) -> Option<String> {
    let (name, of) = (&other.name, &first.name);
    match (&first.arguments, &other.arguments) {
        (Arguments::Named(a), Arguments::Named(b)) => {
            if a.len() != b.len() || !a.keys().all(|key| b.contains_key(key)) {
                return Some(format!("workload `{name}` has other arguments than `{of}`"));
            }
            let unlike =
                |(key, a): &(&String, &Value)| !b.get(*key).is_some_and(|b| nests_like(a, b));
            let (key, _) = a.iter().find(unlike)?;
            let key = short(key);
            Some(format!(
                "argument `{key}` of workload `{name}` is nested in another way than in `{of}`"
            ))
        }
        (Arguments::Positional(a), Arguments::Positional(b)) => {
            if a.len() != b.len() {
                return Some(format!("workload `{name}` has other arguments than `{of}`"));
            }
            let i = a.iter().zip(b).position(|(a, b)| !nests_like(a, b))? + 1;
            Some(format!(
                "argument {i} of workload `{name}` is nested in another way than in `{of}`"
            ))
        }
        _ => {
            Some(format!("of `{of}` and `{name}` one names its arguments, and the other does not"))
        }
    }
}

/// Whether two values have the same nesting; lists may differ in length.
fn nests_like(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            let mut all = a.iter().chain(b);
            all.next().is_none_or(|first| all.all(|other| nests_like(first, other)))
        }
        (Value::Object(a), Value::Object(b)) => {
            let like = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| nests_like(a, b));
            a.len() == b.len() && a.iter().all(like)
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        _ => true,
    }
}

/// A stranger's word, short enough for a message.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_WORKLOAD_NAME).collect()
}
