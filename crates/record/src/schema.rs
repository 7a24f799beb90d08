//! JSON Schemas of what is serialised, generated from the types.

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};

use crate::event::EventLine;
use crate::run::RunHeader;
use crate::verdict::Verdict;

/// The schemas by name. `schemas/<name>.schema.json` in the repository is each one's copy, kept
/// true by a test; `UPDATE_SCHEMAS=1` rewrites it.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    // For what a reader accepts: there, a figure that is not finite is `null`.
    let root = |f: fn(SchemaGenerator) -> Schema| {
        f(SchemaSettings::draft2020_12().for_deserialize().into_generator())
    };
    vec![
        ("verdict", root(SchemaGenerator::into_root_schema_for::<Verdict>)),
        ("event", root(SchemaGenerator::into_root_schema_for::<EventLine>)),
        ("run", root(SchemaGenerator::into_root_schema_for::<RunHeader>)),
    ]
}
