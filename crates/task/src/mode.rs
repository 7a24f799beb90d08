//! The mode that a reference and its candidates run in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `torch.nn.Module`'s mode, applied to reference and candidate alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `model.eval()`: dropout is the identity, batch norm uses its running statistics. Default.
    #[default]
    Eval,
    /// `model.train()`: buffers are restored between calls, active dropout is refused.
    Train,
}
