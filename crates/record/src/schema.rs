//! JSON Schemas of the serialised types, generated from the types.

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};

use crate::event::EventLine;
use crate::findings::Findings;
use crate::regions::ModelRegions;
use crate::run::RunHeader;
use crate::verdict::Verdict;
use crate::whole_model::WholeModel;

/// The schemas by name. `schemas/<name>.schema.json` in the repository is each one's copy, kept
/// true by a test; `UPDATE_SCHEMAS=1` rewrites it.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    // For what a reader accepts: there, a figure that is not finite is `null`.
    let root = |f: fn(SchemaGenerator) -> Schema| {
        unlinked(f(SchemaSettings::draft2020_12().for_deserialize().into_generator()))
    };
    vec![
        ("verdict", root(SchemaGenerator::into_root_schema_for::<Verdict>)),
        ("findings", root(SchemaGenerator::into_root_schema_for::<Findings>)),
        ("event", root(SchemaGenerator::into_root_schema_for::<EventLine>)),
        ("run", root(SchemaGenerator::into_root_schema_for::<RunHeader>)),
        ("whole-model", root(SchemaGenerator::into_root_schema_for::<WholeModel>)),
        ("regions", root(SchemaGenerator::into_root_schema_for::<ModelRegions>)),
    ]
}

/// A schema whose descriptions are plain text.
pub fn unlinked(mut schema: Schema) -> Schema {
    RecursiveTransform(unlink).transform(&mut schema);
    schema
}

/// Descriptions come from doc comments, whose links lead nowhere in a schema.
fn unlink(schema: &mut Schema) {
    if let Some(serde_json::Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("[`", "`").replace("`]", "`").replace("crate::", "");
    }
}
