//! A plan with inferred shapes.

use crate::catalogue::{Class, Domain, Dtype, Entry, Form, Sizes, shape};

use super::cost;
use super::error::ComposeError;
use super::level::Level;
use super::library::Library;
use super::plan::{Plan, Source};

/// A valid plan: every step's shapes are known.
#[derive(Clone, Debug)]
pub struct Built<'a> {
    pub(super) steps: Vec<BuiltStep<'a>>,
    /// Domain of value 0.
    pub(super) root_domain: Domain,
    pub(super) root: Vec<u64>,
    /// Bytes that eager execution moves: the inputs and outputs of each step.
    pub traffic_bytes: u64,
    /// Operations that torch counts: products and convolutions.
    pub flops: u64,
    /// Estimated microseconds of eager execution on a GPU with about 4 TB/s.
    pub gpu_micros: u64,
    /// Difficulty.
    pub level: Level,
}

#[derive(Clone, Debug)]
pub(super) struct BuiltStep<'a> {
    pub(super) entry: &'a Entry,
    pub(super) form: &'a Form,
    pub(super) sources: Vec<Source>,
    pub(super) sizes: Sizes,
    /// Shapes of its tensors.
    pub(super) shapes: Vec<Vec<u64>>,
    pub(super) output: Vec<u64>,
    /// Elements of all parameter tensors of the step.
    pub(super) parameters: u64,
    /// Range of its values, if known.
    pub(super) range: Option<Domain>,
}

impl Built<'_> {
    /// Shape of the model's result.
    pub fn output(&self) -> &[u64] {
        self.steps.last().map_or(&self.root, |step| &step.output)
    }

    /// Shape of a value.
    pub(super) fn shape(&self, value: usize) -> &[u64] {
        if value == 0 { &self.root } else { &self.steps[value - 1].output }
    }

    /// Range of a value, if known.
    pub(super) fn range(&self, value: usize) -> Option<Domain> {
        if value == 0 {
            super::guard::range_of(self.root_domain)
        } else {
            self.steps[value - 1].range
        }
    }
}

/// Infers all shapes. The error names the mismatch.
pub(super) fn build<'a>(library: &'a Library, plan: &Plan) -> Result<Built<'a>, ComposeError> {
    let mut built = Built {
        steps: Vec::new(),
        root_domain: root_domain(library, plan)?,
        root: plan.root.clone(),
        traffic_bytes: 0,
        flops: 0,
        gpu_micros: 0,
        level: Level::MOST,
    };
    let mut joins = 0;
    for step in &plan.steps {
        let missing = || {
            ComposeError::Plan(format!(
                "the catalogue has no form {} of {}",
                step.form, step.operator
            ))
        };
        let entry = library.entry(&step.operator).ok_or_else(missing)?;
        let form = entry.forms.get(step.form).ok_or_else(missing)?;
        let built_step = build_step(&built, entry, form, &step.sources, &step.chosen)?;
        let values = step.sources.iter().filter(|s| matches!(s, Source::Value(_))).count();
        joins += values.saturating_sub(1);
        built.traffic_bytes = built.traffic_bytes.saturating_add(cost::moved(&built_step));
        built.gpu_micros = built.gpu_micros.saturating_add(cost::micros(&built_step));
        if let Some(flops) = &form.flops_per_output {
            let each =
                flops.value(&built_step.sizes).map_err(crate::catalogue::ShapeError::from)?;
            built.flops =
                built.flops.saturating_add(each.saturating_mul(self::elements(&built_step.output)));
        }
        built.steps.push(built_step);
    }
    let forms: Vec<&Form> = built.steps.iter().map(|step| step.form).collect();
    built.level = Level::of(&forms, joins);
    Ok(built)
}

/// Number of elements of a shape. It saturates, so that limits on it hold.
pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size))
}

/// Builds one step after the others.
pub(super) fn build_step<'a>(
    built: &Built<'a>,
    entry: &'a Entry,
    form: &'a Form,
    sources: &[Source],
    chosen: &Sizes,
) -> Result<BuiltStep<'a>, ComposeError> {
    if sources.len() != form.inputs.len() {
        return Err(ComposeError::Plan(format!(
            "{} takes {} tensors",
            entry.name,
            form.inputs.len()
        )));
    }
    let sizes = known_sizes(built, form, sources)?;
    // What values do not say was chosen.
    let mut all = sizes;
    for (name, size) in chosen {
        all.entry(name.clone()).or_insert(*size);
    }
    form.check(&all)?;
    let mut shapes = Vec::new();
    for (input, source) in form.inputs.iter().zip(sources) {
        shapes.push(match source {
            Source::Value(value) => built.shape(*value).to_vec(),
            Source::Input | Source::Parameter => shape(&input.dims, &all)?,
        });
    }
    let given: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
    let output = form
        .outputs(&given, &all)?
        .into_iter()
        .next()
        .ok_or_else(|| ComposeError::Plan(format!("{} has no output", entry.name)))?;
    let mut parameters = 0_u64;
    for parameter in &form.parameters {
        parameters = parameters.saturating_add(elements(&shape(&parameter.dims, &all)?));
    }
    for (shape, source) in shapes.iter().zip(sources) {
        if *source == Source::Parameter {
            parameters = parameters.saturating_add(elements(shape));
        }
    }
    if output.contains(&0) {
        return Err(ComposeError::Plan(format!(
            "the output of {} is empty at this size",
            entry.name
        )));
    }
    let range = form.outputs[0].range.or_else(|| passed_on(built, form, sources));
    Ok(BuiltStep {
        entry,
        form,
        sources: sources.to_vec(),
        sizes: all,
        shapes,
        output,
        parameters,
        range,
    })
}

/// Sizes that the values among the sources determine.
pub(super) fn known_sizes(
    built: &Built<'_>,
    form: &Form,
    sources: &[Source],
) -> Result<Sizes, ComposeError> {
    let mut sizes = Sizes::new();
    for (input, source) in form.inputs.iter().zip(sources) {
        if let Source::Value(value) = source {
            if input.dtype != Dtype::Float32 || *value > built.steps.len() {
                return Err(ComposeError::Plan(format!(
                    "input `{}` cannot take an intermediate value",
                    input.name
                )));
            }
            input.bind(built.shape(*value), form.broadcasts, &mut sizes)?;
        }
    }
    Ok(sizes)
}

/// The range of a form that only moves elements: that of its input.
fn passed_on(built: &Built<'_>, form: &Form, sources: &[Source]) -> Option<Domain> {
    match (form.class, sources) {
        (Class::Layout, [Source::Value(value)]) => built.range(*value),
        _ => None,
    }
}

/// The domain of value 0: that of the only step that restricts it, if all other steps accept it.
fn root_domain(library: &Library, plan: &Plan) -> Result<Domain, ComposeError> {
    let mut wanted = Domain::Any;
    for step in &plan.steps {
        let form = library.form(&step.operator, step.form).ok_or_else(|| {
            ComposeError::Plan(format!("the catalogue has no operator {}", step.operator))
        })?;
        for (input, source) in form.inputs.iter().zip(&step.sources) {
            if *source == Source::Value(0) && input.domain != Domain::Any {
                if wanted != Domain::Any && wanted != input.domain {
                    // Two wishes: guards in `forward` see to it.
                    return Ok(Domain::Any);
                }
                wanted = input.domain;
            }
        }
    }
    Ok(wanted)
}
