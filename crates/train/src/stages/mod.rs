//! The work of each stage: one file per stage, or per kind of stage.

mod collect;
mod demos;
mod eval;
mod fit;
mod online;
mod pretrain;
mod rft;
mod sft;
mod value;

use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::run::Run;
use crate::stage::Stage;

/// What a stage does. A new stage is one implementation, a variant of [`Stage`] and its table in
/// [`Config`](crate::config::Config).
pub(crate) trait StageWork {
    /// Does what is left of the stage, and marks its folder as done.
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError>;
}

/// The work of a stage.
pub(crate) fn work(stage: Stage) -> &'static dyn StageWork {
    match stage {
        Stage::Demos => &demos::DemosStage,
        Stage::Pretrain => &pretrain::PretrainStage,
        Stage::Sft => &sft::SftStage,
        Stage::SingleTurn => &online::SingleTurnStage,
        Stage::Collect => &collect::CollectStage,
        Stage::Rft => &rft::RftStage,
        Stage::Value => &value::ValueStage,
        Stage::Ppo => &online::PpoStage,
        Stage::Eval => &eval::EvalStage,
    }
}

#[cfg(test)]
mod tests;
