//! Launch plans that are stored with their verdict, and judged again from their file.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use fs_err as fs;
use warpwright_build::Artifact;
use warpwright_plan::{LaunchPlan, Module, Role};
use warpwright_record::blob::BlobHash;
use warpwright_record::verdict::{Stage, Tier, Verdict};
use warpwright_task::Task;

use super::TaskSession;
use super::recording::Plans;
use super::stages::Way;
use super::verdict::verdict;
use crate::check::findings::Findings;
use crate::error::JudgeError;
use crate::process::plan_file::{
    Head, PlanFileError, StoredPlan, StoredTask, StoredWeights, TensorForm, TensorForms,
};
use crate::process::replayer::PlanOf;
use crate::process::wire::{Place, Sizes};
use crate::timing::series::Measured;

const JUDGE_AGAIN: &str = "judge the candidate again on this machine";

impl TaskSession<'_> {
    /// Stores the plans of a candidate that was judged. The verdict counts without them: a caveat says what failed.
    /// Those of the cpu device are stored to be exported; they are not replayed, for their kernels are machine code.
    pub(super) fn store(&mut self, plans: &Plans, artifact: &Artifact, found: &mut Findings) {
        let stored = self.packed(plans, artifact).and_then(|stored| {
            let kept = stored.write().and_then(|file| self.machine.plans.put(&file));
            kept.map_err(|e| JudgeError::infrastructure("write it", e))
        });
        match stored {
            Ok(hash) => found.plan = Some(hash),
            Err(error) => found.caveats.push(format!("the launch plan was not stored: {error}")),
        }
    }

    fn packed(&mut self, plans: &Plans, artifact: &Artifact) -> Result<StoredPlan, JudgeError> {
        let mut weights = Vec::with_capacity(plans.of.len());
        for (name, of) in &plans.of {
            let (hash, constants) = (self.weights_to_record(name)?.hash(), &of.plan.constants);
            weights.push(StoredWeights {
                name: (*name).to_owned(),
                hash,
                constants: constants.clone(),
            });
        }
        let unread = || JudgeError::infrastructure("read its modules", "no weights were recorded");
        let (_, first) = plans.of.first().ok_or_else(unread)?;
        let (plan, images) = with_images(&first.plan, &artifact.dir)
            .map_err(|e| JudgeError::infrastructure("read its modules", e))?;
        let Task { name, source, mode, .. } = &self.task;
        let config = &self.machine.config;
        let head = Head {
            task: StoredTask { name: name.clone(), source: source.clone(), mode: *mode },
            candidate: plans.candidate.clone(),
            profile: config.profile,
            seed: config.seed,
            target: self.machine.device.target().label(),
            plan,
            weights,
            trees: plans.trees.clone(),
            prepare_ms: plans.prepare_ms,
            library_calls: artifact.library_calls.clone(),
            libraries: artifact.libraries.clone(),
            forms: Some(self.forms()),
        };
        let constants = plans.of.iter().map(|(_, of)| of.constants.clone()).collect();
        Ok(StoredPlan { head, images, constants })
    }

    fn forms(&self) -> TensorForms {
        let sizes = &self.oracle.opened.sizes;
        let forms = |places: &[Place]| places.iter().map(form).collect();
        let changed = sizes.changes.clone();
        TensorForms { inputs: forms(&sizes.inputs.tensors), state: forms(&sizes.state), changed }
    }

    /// Verifies and measures the plans of a file as those of a candidate that was just recorded. `hash` names the
    /// file.
    ///
    /// # Errors
    /// [`JudgeError::NotReplayable`] if they are not for this session; else as [`Self::judge`].
    pub fn replay(
        &mut self,
        stored: &StoredPlan,
        hash: BlobHash,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        self.replay_with_samples(stored, hash, stage).map(|(verdict, _)| verdict)
    }

    /// The same, with the samples of its times.
    pub(super) fn replay_with_samples(
        &mut self,
        stored: &StoredPlan,
        hash: BlobHash,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        self.machine.alive()?;
        let again = self.replay_within(stored, hash, stage);
        again.map_err(|error| self.machine.explain(error))
    }

    fn replay_within(
        &mut self,
        stored: &StoredPlan,
        hash: BlobHash,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        if let Err(why) = &self.processes.host.plans {
            let message = format!("launch plans cannot be replayed here: {why}");
            return Err(JudgeError::lacks(
                &message,
                "replay it on the kind of device that judged it",
            ));
        }
        if stored.is_host_code() {
            // Loading a library of a stranger can run its code before the executor is confined.
            let reason = "its kernels are machine code of the host, which is not run from a file";
            return Err(JudgeError::not_replayable(reason.to_owned(), JUDGE_AGAIN));
        }
        let plans = self.unpacked(stored)?;
        let scratch = self.machine.config.cache.join("build").join("scratch");
        let unwritten = |e: std::io::Error| JudgeError::infrastructure("unpack the launch plan", e);
        // Below the folder that replayers read.
        let folder = tempfile::Builder::new().prefix("r").tempdir_in(scratch).map_err(unwritten)?;
        fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .and_then(|()| stored.unpack(folder.path()))
            .map_err(unwritten)?;
        let artifact = unbuilt(folder.path(), stored);
        let mut found = Findings { plan: Some(hash), ..Findings::default() };
        if stage == Stage::Measured {
            found.seconds.baselines = self.prepare_baselines()?.as_secs_f64();
        }
        let way = Way::Plans(&plans);
        if let Some(why) = self.run_under_memory_pressure(way, &artifact, stage, &mut found)? {
            return Err(JudgeError::not_replayable(why.reason, JUDGE_AGAIN));
        }
        found.tier = Tier::Device;
        let known = self.known();
        let measured = std::mem::take(&mut found.measured);
        let (of, candidate) = ((stage, found), stored.candidate());
        let verdict = verdict(self.machine, &self.task, &known, candidate, Some(&artifact), of);
        Ok((verdict, measured))
    }

    /// The plans, if they are for this session.
    fn unpacked(&mut self, stored: &StoredPlan) -> Result<Plans, JudgeError> {
        self.fits(&stored.head)?;
        let mut plans = stored.plans().map_err(|e| unreadable(&e))?;
        let mut of = Vec::with_capacity(plans.len());
        let wanted = [self.oracle.played, self.oracle.rest()];
        for name in wanted {
            let Some(at) = plans.iter().position(|(known, _)| *known == name) else {
                let known: Vec<&str> = plans.iter().map(|(name, _)| *name).collect();
                let (known, wanted) = (known.join(" and "), wanted.join(" and "));
                let reason = format!(
                    "it was recorded with the weights {known}, and the task is judged with {wanted} here"
                );
                return Err(JudgeError::not_replayable(reason, JUDGE_AGAIN));
            };
            let (_, plan) = plans.swap_remove(at);
            self.same_weights(&stored.head, name, &plan)?;
            of.push((name, Arc::new(plan)));
        }
        let Head { candidate, trees, prepare_ms, .. } = &stored.head;
        let (candidate, trees) = (candidate.clone(), trees.clone());
        Ok(Plans { candidate, of, trees, prepare_ms: *prepare_ms })
    }

    /// Whether a plan is of this task, judged by these rules, on this kind of device.
    fn fits(&self, head: &Head) -> Result<(), JudgeError> {
        let config = &self.machine.config;
        let target = self.machine.device.target().label();
        if head.target != target {
            let device = config.device;
            let reason =
                format!("its kernels are compiled for {}, and {device} runs {target}", head.target);
            let hint =
                "replay it on a device of that kind, or judge the candidate again on this one";
            return Err(JudgeError::not_replayable(reason, hint));
        }
        if (head.profile, head.seed) != (config.profile, config.seed) {
            let reason = format!(
                "it was recorded under profile {} with seed {}, and the judge has profile {} and seed {}",
                head.profile, head.seed, config.profile, config.seed
            );
            return Err(JudgeError::not_replayable(reason, "open the judge with those"));
        }
        if head.task.source != self.task.source || head.task.mode != self.task.mode {
            let reason = format!("it is for another version of task {}", self.task.name);
            return Err(JudgeError::not_replayable(reason, "name the task that was judged"));
        }
        let sizes = &self.oracle.opened.sizes;
        let fit = head.plan.blocks.iter().all(|block| fits_in(block.role, block.bytes, sizes));
        if !fit {
            let reason = "its inputs or weights have other sizes than those of the task here";
            return Err(JudgeError::not_replayable(reason.to_owned(), JUDGE_AGAIN));
        }
        Ok(())
    }

    /// Whether the tables of a plan were computed from these weights; without tables it does not matter.
    fn same_weights(
        &mut self,
        head: &Head,
        name: &'static str,
        plan: &PlanOf,
    ) -> Result<(), JudgeError> {
        if plan.constants.is_empty() {
            return Ok(());
        }
        let hash = self.weights_to_record(name)?.hash();
        if head.weights.iter().any(|weights| weights.name == name && weights.hash == hash) {
            return Ok(());
        }
        let reason = "its tables were computed from other weights than the task has here: weights depend on the \
                      version of torch and on the device";
        Err(JudgeError::not_replayable(reason.to_owned(), JUDGE_AGAIN))
    }
}

fn unreadable(error: &PlanFileError) -> JudgeError {
    let hint = error.hint();
    JudgeError::not_replayable(error.to_string(), hint)
}

/// A plan whose modules are named by their hashes, and their images.
pub(super) fn with_images(
    plan: &LaunchPlan,
    artifact: &Path,
) -> std::io::Result<(LaunchPlan, Vec<Vec<u8>>)> {
    let mut plan = plan.clone();
    let mut images = Vec::with_capacity(plan.modules.len());
    for module in &mut plan.modules {
        let file = fs::File::open(artifact.join(&module.file))?;
        let mut image = vec![0; usize::try_from(module.bytes).map_err(std::io::Error::other)?];
        file.file().read_exact_at(&mut image, module.offset)?;
        if blake3::hash(&image).to_hex().as_str() != module.hash {
            let text = format!("the hash of device code in {} is not the plan's", module.file);
            return Err(std::io::Error::other(text));
        }
        let (hash, bytes) = (module.hash.clone(), module.bytes);
        *module = Module { file: hash.clone(), hash, offset: 0, bytes };
        images.push(image);
    }
    Ok((plan, images))
}

/// Whether a block that stands for a tensor of the task has its size.
fn fits_in(role: Role, bytes: u64, sizes: &Sizes) -> bool {
    let tensor = |all: &[Place], position: u32| {
        all.get(position as usize).is_some_and(|place| place.bytes == bytes)
    };
    match role {
        Role::Input(position) => tensor(&sizes.inputs.tensors, position),
        Role::Weight(position) => tensor(&sizes.state, position),
        Role::Init(position) => tensor(&sizes.init.tensors, position),
        Role::Constant(_) | Role::Kept | Role::Call { .. } => true,
    }
}

fn form(place: &Place) -> TensorForm {
    let Place { shape, strides, dtype, .. } = place;
    TensorForm { shape: shape.clone(), strides: strides.clone(), dtype: dtype.clone() }
}

/// What replaces an artifact where nothing was built.
fn unbuilt(folder: &Path, stored: &StoredPlan) -> Artifact {
    Artifact {
        dir: folder.to_owned(),
        launchers: Vec::new(),
        has_extension: false,
        inline: false,
        kernels: Vec::new(),
        own_kernels: 0,
        library_calls: stored.head.library_calls.clone(),
        kernels_alone: BTreeMap::new(),
        device_images: Vec::new(),
        libraries: stored.head.libraries.clone(),
        warnings: Vec::new(),
        cached: true,
        seconds: 0.0,
    }
}
