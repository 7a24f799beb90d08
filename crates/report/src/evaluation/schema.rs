//! The JSON Schema of an evaluation, generated from the types.

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::Evaluation;

/// The schema. `schemas/evaluation.schema.json` in the repository is its copy, kept true by a test;
/// `UPDATE_SCHEMAS=1` rewrites it.
pub fn schema() -> Schema {
    // For what a reader accepts: there, a figure that is not finite is `null`.
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    warpwright_record::schema::unlinked(
        settings.into_generator().into_root_schema_for::<Evaluation>(),
    )
}
