//! The stages of a training run, in order.

use serde::{Deserialize, Serialize};

use crate::config::Config;

/// A stage of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Demonstrations by the built-in policy.
    Demos,
    /// Training on source code and on unjudged kernels.
    Pretrain,
    /// Supervised training on the demonstrations.
    Sft,
    /// Reinforcement learning on episodes of one message.
    SingleTurn,
    /// Episodes of the policy, to be trained on later.
    Collect,
    /// Rejection fine-tuning on the collected episodes.
    Rft,
    /// Value pretraining on the collected episodes.
    Value,
    /// Reinforcement learning on whole episodes.
    Ppo,
    /// Evaluation on the held-out tasks.
    Eval,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 9] = [
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

    /// Its name on the command line, and of its folder.
    pub fn name(self) -> &'static str {
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
    pub fn table(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether the configuration has it.
    pub fn is_in(self, config: &Config) -> bool {
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
    pub fn salt(self) -> u64 {
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
    pub fn trains(self) -> bool {
        !matches!(self, Self::Demos | Self::Collect | Self::Eval)
    }
}
