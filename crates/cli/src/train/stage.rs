//! The stages of a training run, in order.

use serde::{Deserialize, Serialize};

use crate::train::config::Config;

/// A stage of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Demos,
    Pretrain,
    Sft,
    SingleTurn,
    Collect,
    Rft,
    Value,
    Ppo,
    Eval,
}

impl Stage {
    /// All stages, in order.
    pub(crate) const ALL: [Self; 9] = [
        Self::Demos,
        Self::Pretrain,
        Self::Sft,
        Self::SingleTurn,
        Self::Collect,
        Self::Rft,
        Self::Value,
        Self::Ppo,
        Self::Eval,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Demos => "demos",
            Self::Pretrain => "pretrain",
            Self::Sft => "sft",
            Self::SingleTurn => "single-turn",
            Self::Collect => "collect",
            Self::Rft => "rft",
            Self::Value => "value",
            Self::Ppo => "ppo",
            Self::Eval => "eval",
        }
    }

    /// Name of its table in the configuration.
    pub(crate) fn table(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether the configuration has it.
    pub(crate) fn is_in(self, config: &Config) -> bool {
        match self {
            Self::Demos => config.demos.is_some(),
            Self::Pretrain => config.pretrain.is_some(),
            Self::Sft => config.sft.is_some(),
            Self::SingleTurn => config.single_turn.is_some(),
            Self::Collect => config.collect.is_some(),
            Self::Rft => config.rft.is_some(),
            Self::Value => config.value.is_some(),
            Self::Ppo => config.ppo.is_some(),
            Self::Eval => config.eval.is_some(),
        }
    }

    /// Distinguishes its seeds from those of other stages; it never changes.
    pub(crate) fn salt(self) -> u64 {
        match self {
            Self::Demos => 0,
            Self::Sft => 1,
            Self::SingleTurn => 2,
            Self::Collect => 3,
            Self::Rft => 4,
            Self::Value => 5,
            Self::Ppo => 6,
            Self::Eval => 7,
            Self::Pretrain => 8,
        }
    }

    /// Whether it trains weights.
    pub(crate) fn trains(self) -> bool {
        !matches!(self, Self::Demos | Self::Collect | Self::Eval)
    }
}
