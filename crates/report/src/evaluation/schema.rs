//! The JSON Schemas of an evaluation, of a comparison, and of what is said of a trajectory, generated
//! from the types.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use warpwright_record::schema::unlinked;

use super::Evaluation;
use super::compare::Comparison;
use crate::trajectory::export::Metadata;

/// The schemas by name. `schemas/<name>.schema.json` in the repository is each one's copy, kept true
/// by a test; `UPDATE_SCHEMAS=1` rewrites it.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    // For what a reader accepts: there, a figure that is not finite is `null`.
    let generator = || SchemaSettings::draft2020_12().for_deserialize().into_generator();
    vec![
        ("evaluation", unlinked(generator().into_root_schema_for::<Evaluation>())),
        ("comparison", unlinked(generator().into_root_schema_for::<Comparison>())),
        ("trajectory", unlinked(generator().into_root_schema_for::<Metadata>())),
    ]
}
