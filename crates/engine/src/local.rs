//! The engine of one process: a policy, an optional separate critic, and their optimizers.

use std::path::{Path, PathBuf};

use fs_err as fs;
use tch::{Device, Kind, Tensor};
use warpwright_learn::engine::{
    Completion, Description, Engine, Loss, Passed, Row, SampleRequest, Sampler, Scores, Step, Which,
};

use crate::checkpoint::{self, Checkpoint};
use crate::deviation::Drafts;
use crate::error::{EngineError, guarded};
use crate::fused::Kernels;
use crate::losses::Signals;
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::pass::{Pass, Said};
use crate::sampler::{Drawing, Source};
use crate::settings::{Dtype, Settings};
use crate::shim;
use crate::weights::Weights;
use warpwright_learn::model_config::ModelConfig;

const OPTIMIZER: &str = "optimizer.safetensors";
const CRITIC: &str = "critic";
/// Tokens per sequence that a GPU samples before the host reads them. After a sequence's end up to
/// seven more are sampled and discarded, of hundreds.
const UNREAD: u32 = 8;
/// Seed of new adapters.
const ADAPTERS_SEED: u64 = 1;

/// A model in training.
#[derive(Debug)]
struct Trained {
    model: Model,
    optimizer: Optimizer,
    /// Folder of the adapters' base model.
    base: PathBuf,
}

impl Trained {
    fn new(
        Checkpoint { config, weights, base }: Checkpoint,
        settings: &Settings,
    ) -> Result<Self, EngineError> {
        // Set explicitly: torch's default has changed before.
        shim::precision("highest")?;
        if let Some(threads) = settings.num_threads {
            tch::set_num_threads(threads.clamp(1, i32::MAX as usize) as i32);
        }
        let device = settings.gpu.map_or(Device::Cpu, Device::Cuda);
        let weights = match settings.lora {
            None => weights.merged().trained_on(device),
            Some(lora) if weights.lora().is_some_and(|found| !found.is_like(lora)) => {
                let found = weights.lora().unwrap_or(lora);
                let message = format!("the adapters have {found}; the settings have {lora}");
                return Err(EngineError::request(message));
            }
            Some(lora) => weights.adapted_on(device, settings.dtype.kind(), lora, ADAPTERS_SEED),
        };
        let optimizer = Optimizer::new(&weights, settings.optimizer_state_dtype.kind());
        let kernels = match settings.gpu {
            Some(gpu) if settings.fused_kernels && settings.dtype == Dtype::Bfloat16 => {
                Some(Kernels::load(gpu)?)
            }
            _ => None,
        };
        let model = Model::new(config, weights, settings.dtype.kind()).by(kernels);
        Ok(Self { model, optimizer, base })
    }

    fn load(folder: &Path, settings: &Settings) -> Result<Self, EngineError> {
        let checkpoint = checkpoint::read(folder)?;
        // The optimizer state of a whole model does not fit adapters, nor the reverse.
        let goes_on = checkpoint.weights.is_adapted() == settings.lora.is_some();
        let mut trained = Self::new(checkpoint, settings)?;
        let state = folder.join(OPTIMIZER);
        if goes_on && state.exists() {
            trained.optimizer.restore(&checkpoint::read_tensors(&state)?)?;
        }
        Ok(trained)
    }

    fn save(&self, folder: &Path) -> Result<(), EngineError> {
        let (config, weights) = (&self.model.config, &self.model.weights);
        if weights.is_adapted() {
            if self.base.as_os_str().is_empty() {
                let message = "its adapters have no base model on disk";
                return Err(EngineError::request(message));
            }
            checkpoint::write_adapters(folder, config, weights, &self.base)?;
        } else {
            checkpoint::write(folder, config, weights, Kind::Float)?;
        }
        // Tensors keep their types.
        checkpoint::write_tensors(&folder.join(OPTIMIZER), self.optimizer.state(), None)
    }
}

/// Computes in this process, on one device.
#[derive(Debug)]
pub struct LocalEngine {
    policy: Trained,
    critic: Option<Trained>,
    drafts: Drafts,
    drawing: Drawing,
    settings: Settings,
    /// Models whose accumulated gradients wait for a step.
    pending: Vec<Which>,
}

impl LocalEngine {
    /// A model with random weights and a value head on its trunk.
    pub fn initial(
        config: &ModelConfig,
        seed: u64,
        settings: Settings,
    ) -> Result<Self, EngineError> {
        config.check().map_err(EngineError::request)?;
        guarded(|| {
            let weights = Weights::initial(config, seed).with_value_head();
            let begun = Checkpoint { config: config.clone(), weights, base: PathBuf::new() };
            let policy = Trained::new(begun, &settings)?;
            Ok(Self::of(policy, None, settings))
        })
    }

    /// Loads a checkpoint of ours or of transformers, and its critic if it has one.
    pub fn load(folder: &Path, settings: Settings) -> Result<Self, EngineError> {
        guarded(|| {
            let policy = Trained::load(folder, &settings)?;
            let critic = folder.join(CRITIC);
            let critic =
                if critic.exists() { Some(Trained::load(&critic, &settings)?) } else { None };
            Ok(Self::of(policy, critic, settings))
        })
    }

    fn of(policy: Trained, critic: Option<Trained>, settings: Settings) -> Self {
        let drafts = Drafts::new(settings.sampler, &policy.model.weights);
        Self { policy, critic, drafts, drawing: Drawing::default(), settings, pending: Vec::new() }
    }

    /// The policy's config.
    pub fn config(&self) -> &ModelConfig {
        &self.policy.model.config
    }

    /// The model that computes values, if any.
    fn valuer(&self) -> Option<&Model> {
        let model = self.critic.as_ref().map_or(&self.policy.model, |critic| &critic.model);
        model.weights.value.is_some().then_some(model)
    }

    fn check(&self, rows: &[Row]) -> Result<(), EngineError> {
        let words = self.config().vocab_size;
        let most = self.config().max_position_embeddings;
        for (number, row) in rows.iter().enumerate() {
            let broken = |message: String| EngineError::request(format!("row {number}: {message}"));
            if row.ids.len() as i64 > most {
                return Err(broken(format!(
                    "it has {} tokens; the model's limit is {most}",
                    row.ids.len()
                )));
            }
            if let Some(id) = row.ids.iter().find(|id| i64::from(**id) >= words) {
                return Err(broken(format!("token {id} is not in the vocabulary of {words}")));
            }
            let rises = row.actions.windows(2).all(|pair| pair[0] < pair[1]);
            let first = row.actions.first().copied().unwrap_or(0);
            let last = row.actions.last().copied().unwrap_or(0);
            if first < 1 || !rises || last as usize >= row.ids.len() {
                let message = "actions must be ascending indices of the row's tokens, from 1";
                return Err(broken(message.to_owned()));
            }
        }
        Ok(())
    }

    /// Splits rows into micro-batches, in order.
    fn passes<'r>(&self, rows: &'r [Row]) -> Vec<Vec<&'r Row>> {
        let mut passes: Vec<Vec<&Row>> = Vec::new();
        let mut room = 0;
        for row in rows {
            match passes.last_mut() {
                Some(pass) if row.ids.len() <= room => pass.push(row),
                _ => {
                    passes.push(vec![row]);
                    room = self.settings.max_token_len;
                }
            }
            room = room.saturating_sub(row.ids.len());
        }
        passes
    }

    /// Halves the tokens per micro-batch.
    fn pass_fewer(&mut self) -> Result<(), EngineError> {
        self.settings.max_token_len = (self.settings.max_token_len / 2).max(1);
        self.empty_cache()
    }

    fn empty_cache(&mut self) -> Result<(), EngineError> {
        self.drawing.begin_again();
        if self.settings.gpu.is_some() { shim::empty_cache() } else { Ok(()) }
    }

    fn score_once(&self, rows: &[Row]) -> Result<Vec<Scores>, EngineError> {
        let _no_grad = tch::no_grad_guard();
        let passes = self.passes(rows).into_iter();
        let passes: Vec<Pass> =
            passes.map(|rows| Pass::new(&rows, self.policy.model.device())).collect();
        let each = passes.iter().map(|pass| pass.score(&self.policy.model, self.valuer()));
        let said: Vec<Said> = each.collect::<Result<_, _>>()?;
        let mut scores = Vec::new();
        for said in said {
            scores.extend(said.read()?.1);
        }
        Ok(scores)
    }

    fn draw_once(&mut self, steps: u32, over: &mut Vec<Completion>) -> Result<(), EngineError> {
        let model = &self.policy.model;
        let drafts = self.drafts.weights();
        let is_gpu = model.device().is_cuda();
        let source = Source {
            model,
            weights: drafts.as_ref().unwrap_or(&model.weights),
            max_num_seqs: self.settings.max_num_seqs,
            unread: self.settings.unread.unwrap_or(if is_gpu { UNREAD } else { 1 }),
            cuda_graphs: self.settings.cuda_graphs && is_gpu,
            max_token_len: self.settings.max_token_len,
        };
        self.drawing.draw(&source, steps, over)
    }

    /// Cancels all running requests.
    pub(crate) fn stop_drawing(&mut self) {
        self.drawing = Drawing::default();
    }

    fn backward_once(
        &mut self,
        rows: &[Row],
        loss: &Loss,
        over: f64,
    ) -> Result<Passed, EngineError> {
        let device = self.policy.model.device();
        let copied = self
            .passes(rows)
            .into_iter()
            .map(|rows| Ok((Pass::new(&rows, device), Signals::of(&rows, loss, device)?)));
        let copied: Vec<(Pass, Signals)> = copied.collect::<Result<_, EngineError>>()?;
        let mut said = Vec::new();
        for (pass, signals) in &copied {
            let model = if signals.is_value() {
                let none = || EngineError::request("the engine has no critic and no value head");
                self.valuer().ok_or_else(none)?
            } else {
                &self.policy.model
            };
            said.push(pass.backward(model, signals, over, self.settings.gradient_checkpointing)?);
        }
        let mut passed = Passed::default();
        for said in said {
            let (loss, scores) = said.read()?;
            passed.loss += loss;
            passed.scores.extend(scores);
        }
        Ok(passed)
    }

    /// The parameters that a step updates.
    pub(crate) fn parameters(&self, which: Which) -> Result<Vec<Tensor>, EngineError> {
        let none = || EngineError::request("there is no critic with weights of its own");
        let trained = match which {
            Which::Policy => &self.policy,
            Which::Critic => self.critic.as_ref().ok_or_else(none)?,
        };
        Ok(trained.optimizer.parameters())
    }

    /// Hashes of the weights; equal weights have equal hashes.
    pub(crate) fn digest(&self) -> Result<Vec<u64>, EngineError> {
        guarded(|| {
            let _no_grad = tch::no_grad_guard();
            let trained = std::iter::once(&self.policy).chain(&self.critic);
            let tensors = trained.flat_map(|trained| trained.model.weights.named());
            let sums: Vec<Tensor> = tensors.map(|(_, tensor)| tensor.sum(Kind::Double)).collect();
            let sums = Vec::<f64>::try_from(Tensor::stack(&sums, 0))?;
            Ok(sums.into_iter().map(f64::to_bits).collect())
        })
    }

    /// Discards all gradients and releases the allocator's cache.
    pub(crate) fn forget(&mut self) -> Result<(), EngineError> {
        self.pending.clear();
        for trained in std::iter::once(&self.policy).chain(&self.critic) {
            let all: Vec<Tensor> =
                trained.model.weights.named().iter().map(|(_, t)| t.shallow_clone()).collect();
            shim::forget_gradients(&all)?;
        }
        self.empty_cache()
    }
}

impl Engine for LocalEngine {
    type Error = EngineError;

    fn describe(&mut self) -> Result<Description, EngineError> {
        let config = self.config();
        let count = |size: i64| u32::try_from(size).unwrap_or(u32::MAX);
        Ok(Description {
            vocabulary: count(config.vocab_size),
            positions: count(config.max_position_embeddings),
            parameters: config.parameters() as u64,
            has_values: self.valuer().is_some(),
            has_critic: self.critic.is_some(),
            device: self.settings.gpu.map_or("cpu".to_owned(), |gpu| format!("cuda:{gpu}")),
        })
    }

    fn begin_critic(&mut self) -> Result<(), EngineError> {
        guarded(|| {
            let mut weights = self.policy.model.weights.map(|t| t.detach().copy());
            (weights.value, weights.head) = (None, None);
            let weights = weights.with_value_head();
            let mut config = self.policy.model.config.clone();
            // The critic predicts no tokens.
            config.tie_word_embeddings = true;
            let begun = Checkpoint { config, weights, base: self.policy.base.clone() };
            self.critic = Some(Trained::new(begun, &self.settings)?);
            Ok(())
        })
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, EngineError> {
        self.check(rows)?;
        loop {
            match guarded(|| self.score_once(rows)) {
                Err(EngineError::Memory { .. }) if self.passes(rows).len() < rows.len() => {
                    self.pass_fewer()?;
                }
                done => return done,
            }
        }
    }

    /// If the device runs out of memory, the engine uses smaller micro-batches, with the same
    /// result. If gradients of earlier calls would be lost with this one's, it discards all and
    /// returns an error.
    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, EngineError> {
        self.check(rows)?;
        loop {
            let done = guarded(|| self.backward_once(rows, loss, over));
            match done {
                Ok(passed) => {
                    let is_value = matches!(loss, Loss::Value { .. });
                    let own = is_value && self.critic.is_some();
                    self.pending.push(if own { Which::Critic } else { Which::Policy });
                    return Ok(passed);
                }
                Err(EngineError::Memory { message }) => {
                    let alone = self.passes(rows).len() >= rows.len();
                    let pending = !self.pending.is_empty();
                    self.forget()?;
                    if alone {
                        return Err(EngineError::Memory { message });
                    }
                    self.pass_fewer()?;
                    if pending {
                        let message = format!(
                            "{message}; gradients of earlier calls are discarded; micro-batches are smaller now"
                        );
                        return Err(EngineError::Memory { message });
                    }
                }
                Err(error) => {
                    // A partial backward pass must not count.
                    self.forget()?;
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, EngineError> {
        let none = || EngineError::request("there is no critic with weights of its own");
        let trained = match which {
            Which::Policy => &mut self.policy,
            Which::Critic => self.critic.as_mut().ok_or_else(none)?,
        };
        let norm = match guarded(|| trained.optimizer.step(step)) {
            Ok(norm) => norm,
            Err(error) => {
                self.forget()?;
                return Err(error);
            }
        };
        if which == Which::Policy {
            self.drawing.policy_moved();
            guarded(|| {
                self.drafts.moved(&self.policy.model.weights);
                Ok(())
            })?;
        }
        self.pending.retain(|pending| *pending != which);
        Ok(norm)
    }

    fn save(&mut self, folder: &Path) -> Result<(), EngineError> {
        guarded(|| {
            self.policy.save(folder)?;
            let critic: PathBuf = folder.join(CRITIC);
            match &self.critic {
                Some(trained) => trained.save(&critic),
                // A critic of an earlier save would be loaded with these weights.
                None if critic.exists() => fs::remove_dir_all(&critic)
                    .map_err(|source| EngineError::Io { what: "remove the old critic", source }),
                None => Ok(()),
            }
        })
    }
}

impl Sampler for LocalEngine {
    type Error = EngineError;

    /// If the device runs out of memory, fewer sequences are sampled at once, with the same result.
    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, EngineError> {
        let mut over = Vec::new();
        self.drawing.take_on(&self.policy.model, requests, &mut over);
        loop {
            match guarded(|| self.draw_once(steps, &mut over)) {
                Ok(()) => return Ok(over),
                Err(EngineError::Memory { .. })
                    if self.drawing.count().min(self.settings.max_num_seqs) > 1 =>
                {
                    // The sampled tokens do not depend on the batch size.
                    self.settings.max_num_seqs =
                        self.drawing.count().min(self.settings.max_num_seqs) / 2;
                    self.drawing.take_less();
                    self.empty_cache()?;
                }
                Err(error) => {
                    self.stop_drawing();
                    return Err(error);
                }
            }
        }
    }
}
