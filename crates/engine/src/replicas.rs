//! Several engines with the same weights, each on a device of its own, that share the work of one.
//!
//! ```text
//! rows, prompts ─► dealt ─► an engine each, in a thread of its own ─► gradients summed ─► each steps
//! ```
//!
//! They begin with the same weights and move them by the same gradients, so none is ever sent. That they
//! are the same, to the last bit, is looked at when they begin and whenever they are saved.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use tch::{Device, Kind, Tensor};
use warpwright_learn::engine::{
    Completion, Description, Engine, Loss, Passed, Row, SampleRequest, Sampler, Scores, Step, Which,
};

use crate::error::{EngineError, guarded};
use crate::local::LocalEngine;
use crate::settings::Settings;
use crate::shim;
use warpwright_learn::model_config::ModelConfig;

type Work<T> = Box<dyn FnOnce(&mut LocalEngine) -> T + Send>;

/// Data parallelism over several devices of this host.
#[derive(Debug)]
pub struct Replicas {
    workers: Vec<Worker>,
    /// Number of sequences that each replica is sampling.
    drawing: Vec<usize>,
}

impl Replicas {
    /// As [`LocalEngine::initial`], one replica per entry of `settings`.
    pub fn initial(
        config: &ModelConfig,
        seed: u64,
        settings: &[Settings],
    ) -> Result<Self, EngineError> {
        Self::start(settings, |settings| {
            let config = config.clone();
            Box::new(move || LocalEngine::initial(&config, seed, settings))
        })
    }

    /// As [`LocalEngine::load`], one replica per entry of `settings`.
    pub fn load(folder: &Path, settings: &[Settings]) -> Result<Self, EngineError> {
        Self::start(settings, |settings| {
            let folder = folder.to_owned();
            Box::new(move || LocalEngine::load(&folder, settings))
        })
    }

    fn start(settings: &[Settings], make: impl Fn(Settings) -> Make) -> Result<Self, EngineError> {
        if settings.is_empty() {
            return Err(EngineError::request("no device was given"));
        }
        let begun = settings.iter().map(|settings| Worker::start(*settings, make(*settings)));
        // All load concurrently.
        let begun: Vec<_> = begun.collect::<Result<_, _>>()?;
        let loaded = begun.into_iter().map(|(worker, ready)| answer(&ready)?.map(|()| worker));
        let workers: Vec<Worker> = loaded.collect::<Result<_, _>>()?;
        let replicas = Self { drawing: vec![0; workers.len()], workers };
        replicas.check_equal_weights()?;
        let devices: Vec<Device> =
            settings.iter().map(|one| one.gpu.map_or(Device::Cpu, Device::Cuda)).collect();
        if have_gpus_of_their_own(&devices) {
            let each = |device: &Device| Tensor::f_zeros([1], (Kind::Float, *device));
            let zeros: Vec<Tensor> = devices.iter().map(each).collect::<Result<_, _>>()?;
            // NCCL allocates its buffers at the first sum, outside torch's pool, which may hold all
            // free memory: its unused part is released before.
            guarded(|| shim::empty_cache().and_then(|()| shim::all_reduce(&zeros)))?;
        }
        Ok(replicas)
    }

    fn check_equal_weights(&self) -> Result<(), EngineError> {
        let digests = self.each(|_| Box::new(|engine| engine.digest()))?;
        if digests.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(());
        }
        let message = "the replicas' weights differ: resume from the last checkpoint";
        Err(EngineError::Torch { message: message.to_owned() })
    }

    /// Runs each replica's work concurrently; results in the replicas' order.
    fn all<T: Send + 'static>(
        &self,
        work: impl Fn(usize) -> Work<T>,
    ) -> Result<Vec<T>, EngineError> {
        let asked: Vec<_> = self
            .workers
            .iter()
            .enumerate()
            .map(|(i, w)| w.ask(work(i)))
            .collect::<Result<_, _>>()?;
        asked.iter().map(answer).collect()
    }

    /// The same for work that may fail.
    fn each<T: Send + 'static>(
        &self,
        work: impl Fn(usize) -> Work<Result<T, EngineError>>,
    ) -> Result<Vec<T>, EngineError> {
        self.all(work)?.into_iter().collect()
    }

    /// The same; if one fails, the gradients of all are discarded.
    fn together<T: Send + 'static>(
        &self,
        work: impl Fn(usize) -> Work<Result<T, EngineError>>,
    ) -> Result<Vec<T>, EngineError> {
        let done = self.each(work);
        if done.is_err() {
            self.forget()?;
        }
        done
    }

    /// Discards all gradients.
    fn forget(&self) -> Result<(), EngineError> {
        self.each(|_| Box::new(|engine| guarded(|| engine.forget()))).map(|_| ())
    }

    /// Each replica's share of the rows, with about equal numbers of tokens.
    fn deal(&self, rows: &[Row]) -> Vec<Vec<Row>> {
        let sizes: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        shares(&sizes, self.workers.len()).into_iter().map(|part| rows[part].to_vec()).collect()
    }
}

impl Engine for Replicas {
    type Error = EngineError;

    fn describe(&mut self) -> Result<Description, EngineError> {
        let each = self.each(|_| Box::new(LocalEngine::describe))?;
        let devices: Vec<&str> = each.iter().map(|one| one.device.as_str()).collect();
        let device = devices.join(",");
        let first = each.into_iter().next().ok_or_else(gone)?;
        Ok(Description { device, ..first })
    }

    fn begin_critic(&mut self) -> Result<(), EngineError> {
        self.each(|_| Box::new(LocalEngine::begin_critic))?;
        self.check_equal_weights()
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, EngineError> {
        let dealt = self.deal(rows);
        let scored = self.each(|i| {
            let rows = dealt[i].clone();
            Box::new(move |engine| engine.score(&rows))
        })?;
        Ok(scored.concat())
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, EngineError> {
        let dealt = self.deal(rows);
        let each = self.together(|i| {
            let (rows, loss) = (dealt[i].clone(), *loss);
            Box::new(move |engine| engine.backward(&rows, &loss, over))
        })?;
        let mut all = Passed::default();
        for passed in each {
            all.loss += passed.loss;
            all.scores.extend(passed.scores);
        }
        Ok(all)
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, EngineError> {
        let parameters = self.each(|_| Box::new(move |engine| engine.parameters(which)))?;
        if let Err(error) = guarded(|| sum_gradients(&parameters)) {
            self.forget()?;
            return Err(error);
        }
        let step = *step;
        let norms = self.together(|_| Box::new(move |engine| engine.step(which, &step)))?;
        norms.first().copied().ok_or_else(gone)
    }

    fn save(&mut self, folder: &Path) -> Result<(), EngineError> {
        self.check_equal_weights()?;
        let folder: PathBuf = folder.to_owned();
        let first = self.workers.first().ok_or_else(gone)?;
        answer(&first.ask(Box::new(move |engine| engine.save(&folder)))?)?
    }
}

impl Sampler for Replicas {
    type Error = EngineError;

    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, EngineError> {
        // Lengths are not known in advance: each request goes to the replica with the fewest
        // sequences.
        let mut dealt: Vec<Vec<SampleRequest>> = vec![Vec::new(); self.workers.len()];
        for request in requests {
            let least = (0..dealt.len()).min_by_key(|i| self.drawing[*i]).ok_or_else(gone)?;
            self.drawing[least] += 1;
            dealt[least].push(request);
        }
        let drawn = self.each(|i| {
            let requests = dealt[i].clone();
            Box::new(move |engine| engine.draw(requests, steps))
        });
        if drawn.is_err() {
            self.drawing.fill(0);
            self.all(|_| Box::new(LocalEngine::stop_drawing))?;
        }
        let drawn = drawn?;
        for (drawing, over) in self.drawing.iter_mut().zip(&drawn) {
            *drawing = drawing.saturating_sub(over.len());
        }
        Ok(drawn.concat())
    }
}

/// Sums the gradients of each parameter over the replicas; every replica gets the sum.
fn sum_gradients(replicas: &[Vec<Tensor>]) -> Result<(), EngineError> {
    let _no_grad = tch::no_grad_guard();
    let [first, others @ ..] = replicas else { return Ok(()) };
    for (number, parameter) in first.iter().enumerate() {
        let same: Vec<&Tensor> =
            std::iter::once(parameter).chain(others.iter().map(|other| &other[number])).collect();
        // A replica without rows has no gradients; a head that no loss used has none on any
        // replica.
        if same.iter().all(|parameter| !parameter.grad().defined()) {
            continue;
        }
        let gradients = same.iter().map(|parameter| shim::gradient(parameter));
        let mut gradients: Vec<Tensor> = gradients.collect::<Result<_, _>>()?;
        let devices: Vec<Device> = gradients.iter().map(Tensor::device).collect();
        if have_gpus_of_their_own(&devices) {
            shim::all_reduce(&gradients)?;
            continue;
        }
        let (sum, rest) = gradients.split_at_mut(1);
        for other in rest.iter() {
            let _ = sum[0].f_add_(&other.f_to_device(devices[0])?)?;
        }
        for other in rest.iter_mut() {
            other.f_copy_(&sum[0])?;
        }
    }
    Ok(())
}

/// Whether NCCL can sum over the devices: more than one, and no GPU twice.
fn have_gpus_of_their_own(devices: &[Device]) -> bool {
    let distinct = (1..devices.len()).all(|i| !devices[..i].contains(&devices[i]));
    devices.len() > 1 && distinct && devices.iter().all(|device| device.is_cuda())
}

/// Splits a list of sizes into `of` ranges of about equal sums, in order; some may be empty.
fn shares(sizes: &[usize], of: usize) -> Vec<Range<usize>> {
    let total: usize = sizes.iter().sum();
    let (mut ranges, mut start, mut before) = (Vec::new(), 0, 0);
    for number in 1..=of {
        let goal = total * number / of;
        let mut end = start;
        // An item belongs to the range that has more than half of it.
        while end < sizes.len() && (number == of || before + sizes[end].div_ceil(2) <= goal) {
            before += sizes[end];
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

type Make = Box<dyn FnOnce() -> Result<LocalEngine, EngineError> + Send>;
type Job = Box<dyn FnOnce(&mut LocalEngine) + Send>;

/// An engine in a thread of its own, since CUDA keeps state per thread.
#[derive(Debug)]
struct Worker {
    /// `None` when the thread shall end.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, which creates its engine; the receiver gets the result.
    fn start(
        settings: Settings,
        make: Make,
    ) -> Result<(Self, Receiver<Result<(), EngineError>>), EngineError> {
        let (jobs, asked) = mpsc::sync_channel::<Job>(1);
        let (ready, made) = mpsc::sync_channel(1);
        let work = move || {
            let on_device = || settings.gpu.map_or(Ok(()), shim::use_gpu);
            let engine = guarded(|| on_device().and_then(|()| make()));
            let (engine, told) = match engine {
                Ok(engine) => (Some(engine), Ok(())),
                Err(error) => (None, Err(error)),
            };
            if ready.send(told).is_err() {
                return;
            }
            let Some(mut engine) = engine else { return };
            for job in asked {
                job(&mut engine);
            }
        };
        let thread = std::thread::Builder::new().name("replica".to_owned()).spawn(work);
        let thread =
            thread.map_err(|source| EngineError::Io { what: "start an engine thread", source })?;
        Ok((Self { jobs: Some(jobs), thread: Some(thread) }, made))
    }

    fn ask<T: Send + 'static>(&self, work: Work<T>) -> Result<Receiver<T>, EngineError> {
        let (tell, told) = mpsc::sync_channel(1);
        let job: Job = Box::new(move |engine| {
            // The caller may be gone.
            let _ = tell.send(work(engine));
        });
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())?;
        Ok(told)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // If the thread died, its caller has had an error.
            let _ = thread.join();
        }
    }
}

fn answer<T>(told: &Receiver<T>) -> Result<T, EngineError> {
    told.recv().map_err(|_| gone())
}

fn gone() -> EngineError {
    EngineError::Torch { message: "the thread of a device's engine died".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn diverged_replica_weights_are_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = ModelConfig::read(&here.join("tests/tiny.json")).unwrap();
        let seeds = AtomicU64::new(1);
        let other_seeds = |settings| -> Make {
            let (config, seed) = (config.clone(), seeds.fetch_add(1, Ordering::SeqCst));
            Box::new(move || LocalEngine::initial(&config, seed, settings))
        };
        let error = Replicas::start(&[Settings::default(); 2], other_seeds).unwrap_err();
        assert!(error.to_string().contains("weights differ"), "{error}");
    }

    proptest! {
        #[test]
        fn shares_cover_everything_in_balanced_ranges(
            sizes in prop::collection::vec(1usize..50, 0..40), of in 1usize..6,
        ) {
            let shares = shares(&sizes, of);
            prop_assert_eq!(shares.len(), of);
            let all: Vec<usize> = shares.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            let (total, most) = (sizes.iter().sum::<usize>(), sizes.iter().max().copied());
            for share in shares {
                let sum: usize = sizes[share].iter().sum();
                prop_assert!(sum <= total / of + most.unwrap_or(0) + 1);
            }
        }
    }
}
