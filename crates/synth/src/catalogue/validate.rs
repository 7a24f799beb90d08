//! Validates the rules of a catalogue that its types do not express, so that later code need not
//! check them.

use super::{Catalogue, CatalogueError, Domain, Dtype, Entry, Form, Kind, Size};

/// Returns the first fault.
pub(super) fn check(catalogue: &Catalogue) -> Result<(), CatalogueError> {
    for (i, pair) in catalogue.entries.windows(2).enumerate() {
        if pair[0].name >= pair[1].name {
            return Err(broken(format!("entries[{}].name", i + 1), "not sorted, or a duplicate"));
        }
    }
    for (i, entry) in catalogue.entries.iter().enumerate() {
        check_entry(entry, &format!("entries[{i}]"))?;
    }
    Ok(())
}

fn check_entry(entry: &Entry, path: &str) -> Result<(), CatalogueError> {
    if entry.forms.is_empty() {
        return Err(broken(format!("{path}.forms"), "empty"));
    }
    for (i, form) in entry.forms.iter().enumerate() {
        let path = format!("{path}.forms[{i}]");
        if form.init.is_some() != (entry.kind == Kind::Module) {
            return Err(broken(
                format!("{path}.init"),
                "must be set for modules, and for modules only",
            ));
        }
        check_form(form, &path)?;
    }
    Ok(())
}

fn check_form(form: &Form, path: &str) -> Result<(), CatalogueError> {
    let known = |name: &str| form.symbols.contains_key(name);
    for (name, symbol) in &form.symbols {
        let path = format!("{path}.symbols.{name}");
        if symbol.multiple == 0 || symbol.min == 0 {
            return Err(broken(path, "0"));
        }
        if symbol.at_most.as_ref().is_some_and(|other| other == name || !known(other)) {
            return Err(broken(path, "`at_most` is not another symbol"));
        }
    }
    for (i, input) in form.inputs.iter().enumerate() {
        let path = format!("{path}.inputs[{i}]");
        if form.inputs[..i].iter().any(|other| other.name == input.name) || known(&input.name) {
            return Err(broken(format!("{path}.name"), "a duplicate"));
        }
        for dim in &input.dims {
            if dim.constant().is_none() && !dim.symbol().is_some_and(known) {
                return Err(broken(format!("{path}.dims"), "neither a symbol nor a number"));
            }
        }
        if input.below.as_deref().is_some_and(|name| !known(name))
            || (input.domain == Domain::Index) != input.below.is_some()
        {
            return Err(broken(format!("{path}.below"), "not a symbol, or not an index's bound"));
        }
        let fits = match input.domain {
            Domain::Integer | Domain::Index => input.dtype == Dtype::Int64,
            Domain::Bool => input.dtype == Dtype::Bool,
            _ => input.dtype == Dtype::Float32,
        };
        if !fits {
            return Err(broken(format!("{path}.domain"), "does not fit the element type"));
        }
    }
    if form.outputs.is_empty() || form.inputs.is_empty() {
        return Err(broken(path.to_owned(), "without inputs or outputs"));
    }
    let dims = form.outputs.iter().flat_map(|o| &o.dims);
    let dims = dims.chain(form.parameters.iter().flat_map(|p| &p.dims));
    let unknown = |size: &Size| size.symbols().iter().any(|name| !known(name));
    if dims.chain(&form.flops_per_output).any(unknown) {
        return Err(broken(path.to_owned(), "a size over an unknown symbol"));
    }
    for text in [Some(&form.call), form.init.as_ref()].into_iter().flatten() {
        for name in placeholders(text) {
            if !known(name) && !form.inputs.iter().any(|input| input.name == name) {
                return Err(broken(path.to_owned(), &format!("unknown placeholder `{name}`")));
            }
        }
    }
    let used: Vec<&str> = placeholders(&form.call).collect();
    if let Some(input) = form.inputs.iter().find(|i| !used.contains(&i.name.as_str())) {
        return Err(broken(path.to_owned(), &format!("`{}` is not in the call", input.name)));
    }
    Ok(())
}

/// Names in braces.
pub(crate) fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    template.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name)
}

fn broken(path: String, reason: &str) -> CatalogueError {
    CatalogueError::Broken { path, reason: reason.to_owned() }
}
