//! The device tier: a candidate is recorded where there is no GPU (`recording.rs`), and its launch plans are
//! judged. None of its host code runs while anything is checked or timed.

use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpwright_build::Artifact;
use warpwright_jail::Outcome;
use warpwright_plan::{LaunchPlan, Op};
use warpwright_record::candidate::Candidate;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{
    AblationResult, IntegrityFinding, Provenance, ReplayerTurn, Stage, Tier,
};

use super::TaskSession;
use super::ablation::{LIBRARIES_ONLY, decoy_kernels};
use super::recording::{NoPlan, Plans};
use super::repeat::Judged;
use super::stages::Way;
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::verify::look;
use crate::device::arena::{Arena, Poison, Zone};
use crate::error::JudgeError;
use crate::process::candidate::LoadedCandidate;
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble, classify, finding};
use crate::process::replayer::{Replay, Replayer, Standing, Unreplayable};

const SIGKILL: i32 = 9;
/// Windows without kernels that are tried until one can be compared.
const ABLATED: usize = 4;

impl TaskSession<'_> {
    /// Records a candidate and judges its plans. `None` if that was done; else why it cannot be.
    pub(super) fn run_in_the_device_tier(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<Option<NoPlan>, JudgeError> {
        let tools = match &self.processes.host.plans {
            Ok(tools) => tools,
            Err(why) => return Ok(Some(NoPlan::of_machine(why.clone()))),
        };
        let started = Instant::now();
        let plans = match self.record(candidate, artifact, tools)? {
            Ok(plans) => plans,
            Err(why) => return Ok(Some(why)),
        };
        let recorded = started.elapsed().as_secs_f64();
        let before = found.clone();
        let why = self.run_under_memory_pressure(Way::Plans(&plans), artifact, stage, found)?;
        let why = why.or_else(|| plans.in_doubt(found));
        if why.is_some() {
            *found = before;
            return Ok(why);
        }
        found.tier = Tier::Device;
        found.seconds.record = recorded;
        self.store(&plans, artifact, found);
        Ok(None)
    }

    /// Judges the plans of a candidate in a replayer. `None` if that was done; else why it cannot be.
    pub(super) fn run_as_plans(
        &mut self,
        plans: &Plans,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<Option<NoPlan>, JudgeError> {
        let started = Instant::now();
        let (machine, processes) = (self.machine, self.processes);
        let Some(pool) = &processes.replayer_pool else {
            return Ok(Some(NoPlan::new("the judge has no replayer")));
        };
        let timed = stage == Stage::Measured;
        let arena = processes.runner_arena(machine, &self.task, (self.layout.len(), timed))?;
        let replayer = pool.take(&arena)?;
        found.seconds.start = started.elapsed().as_secs_f64();
        let (before, standing) = (found.clone(), replayer.standing());
        let place = (artifact, &arena);
        let (replayer, went) = self.judge_once(replayer, plans, place, stage, found);
        if matches!(went, Ok(None)) && self.is_to_be_repeated() {
            let by = Judged { standing, replayer };
            return self.repeat((pool, by), plans, place, stage, (before, found));
        }
        pool.give_back(replayer, &arena);
        went
    }

    /// Judges plans in this replayer, which comes back if another candidate may have it. Says why they cannot be
    /// judged, if they cannot.
    pub(super) fn judge_once(
        &mut self,
        replayer: Replayer,
        plans: &Plans,
        place: (&Artifact, &Arc<Arena>),
        stage: Stage,
        found: &mut Findings,
    ) -> (Option<Replayer>, Result<Option<NoPlan>, JudgeError>) {
        let Standing { id, turn, .. } = replayer.standing();
        found.replayer = Some(ReplayerTurn { id, turn });
        let (replayer, went) = self.run_in_replayer(replayer, plans, place, stage, found);
        let went = match went {
            Ok(why) => Ok(why),
            Err(Trouble::Judge(error)) => Err(error),
            Err(Trouble::Unplanned(why)) => Ok(Some(NoPlan::new(why))),
            Err(Trouble::Candidate(stumble)) => {
                found.integrity.extend(finding(&stumble));
                found.failure = Some(classify(&stumble, None, ""));
                Ok(None)
            }
        };
        (replayer, went)
    }

    /// Verifies and measures plans in a replayer, which comes back if another candidate may have it.
    fn run_in_replayer(
        &mut self,
        replayer: Replayer,
        plans: &Plans,
        (artifact, arena): (&Artifact, &Arc<Arena>),
        stage: Stage,
        found: &mut Findings,
    ) -> (Option<Replayer>, Result<Option<NoPlan>, Trouble>) {
        let waiting = Instant::now();
        let held = self.hold(stage);
        found.seconds.wait = waiting.elapsed().as_secs_f64();
        let holding = Instant::now();
        // On the cpu device memory is new, or was poisoned for this candidate, and what is not touched costs
        // nothing.
        let weights = self.layout.weights;
        let lasting = match **arena {
            Arena::Cuda(_) => Zone { offset: 0, bytes: arena.len() / 4 * 4 },
            Arena::Host(_) => Zone { offset: weights.offset, bytes: weights.bytes / 4 * 4 },
        };
        if let Err(error) = arena.poison(lasting.offset, lasting.bytes, Poison::NAN) {
            return (Some(replayer), Err(error.into()));
        }
        let random = StdRng::seed_from_u64(self.random.random());
        let terms = (Arc::clone(arena), self.layout, random);
        let limits = (self.patience(), self.machine.cores.as_slice());
        let recorded = (plans.of.clone(), plans.trees.clone());
        let loaded = Replay::load(replayer, recorded, &artifact.dir, terms, limits);
        let mut replay = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(Unreplayable { replayer, reason })) => {
                return (Some(replayer), Ok(Some(NoPlan::new(reason))));
            }
            Err(Trouble::Candidate(stumble)) => {
                return (None, Ok(Some(NoPlan::new(classify(&stumble, None, "").message))));
            }
            Err(trouble) => return (None, Err(trouble)),
        };
        found.seconds.load = holding.elapsed().as_secs_f64();
        found.times.prepare = Some(plans.prepare_ms);
        let went = self.verify(&mut replay, found);
        let went = went.and_then(|()| self.measure_if_verified(&mut replay, (stage, &held), found));
        let went = went.map_err(|trouble| self.unless_disturbed(trouble));
        held.untimed();
        let spent = replay.window_state().spent;
        found.seconds.inputs = spent.inputs.as_secs_f64();
        found.seconds.windows += spent.windows.as_secs_f64();
        let ending = Instant::now();
        let went = went.and_then(|()| Ok(replay.foreign_writes()?));
        if let Ok(words @ 1..) = went {
            found.integrity.push(IntegrityFinding {
                class: "foreign_write".to_owned(),
                message: format!("{words} words were written outside of the candidate's memory"),
            });
        }
        let went = went.and_then(|words| {
            self.conclude_provenance(&mut replay, plans, artifact, found).map(|()| words)
        });
        // Work of kernels that need more than the plan, and what was written elsewhere, may last: the next
        // candidate gets a new context.
        let gone = matches!(&went, Err(trouble) if is_closed(trouble));
        let unmapped = self.oracle.unmap_inputs();
        let lasts = self.machine.device.is_accelerator() && plans.needs_nothing();
        let replayer = replay.end(matches!(went, Ok(0)) && lasts, gone);
        let well = self.machine.device.probe();
        drop(held);
        found.seconds.end = ending.elapsed().as_secs_f64();
        self.usual.insert(stage, holding.elapsed());
        let (replayer, outcome) = match replayer {
            Ok(replayer) => (Some(replayer), None),
            Err(outcome) => (None, outcome),
        };
        // Kernels of the cpu device take memory of the replayer's jail.
        let outcome = outcome.filter(|outcome| {
            self.machine.device.is_accelerator() || *outcome != Outcome::OutOfMemory
        });
        let went = went.map_err(|trouble| blamed(trouble, outcome.as_ref()));
        let went = went.and_then(|_| {
            unmapped?;
            Ok(well.map(|()| None)?)
        });
        (replayer, went)
    }

    /// What computed the results of a plan: kernels and products are known by construction, and whether the
    /// kernels take part in results of products is found out by leaving them out.
    fn conclude_provenance(
        &mut self,
        replay: &mut Replay,
        plans: &Plans,
        artifact: &Artifact,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        if found.bad() {
            return Ok(());
        }
        let Some((_, first)) = plans.of.first() else { return Ok(()) };
        let means = Means::of(&first.plan);
        let mut ablation = AblationResult::NotRun;
        if means.products && !means.launches {
            found.caveats.push(LIBRARIES_ONLY.to_owned());
        } else if means.products && self.oracle.opened.computes {
            ablation = if self.is_right_without_launches(replay)? {
                found.integrity.push(decoy_kernels());
                AblationResult::Passed
            } else {
                AblationResult::FailedWithoutKernels
            };
        }
        found.provenance = Some(Provenance {
            own_kernels: first.plan.kernels.len() as u32,
            library_calls: if means.products { artifact.library_calls.clone() } else { Vec::new() },
            ablation,
        });
        Ok(())
    }

    /// Whether the plan's other operations alone give right results. The replay is of no use after this.
    fn is_right_without_launches(&mut self, replay: &mut Replay) -> Result<bool, Trouble> {
        replay.leave_out_launches();
        let (played, profile) = (self.oracle.played, self.machine.config.profile);
        for _ in 0..ABLATED {
            let draw = Draw::fresh(InputFamily::Own, &mut self.random);
            let window = replay.play(&mut self.oracle, played, &[draw])?;
            let question = (played, draw);
            let name = "without its kernels";
            let looked = look(&mut self.oracle, replay, &window, 0, question, name, profile)?;
            // Where honest programs need not agree, nothing was compared.
            if !looked.void {
                return Ok(looked.failure.is_none() && looked.integrity.is_none());
            }
        }
        Ok(false)
    }
}

/// What a plan can compute with.
struct Means {
    launches: bool,
    products: bool,
}

impl Means {
    fn of(plan: &LaunchPlan) -> Self {
        let any =
            |is: fn(&Op) -> bool| plan.prepare.iter().chain(&plan.forward).any(|node| is(&node.op));
        Self {
            launches: any(|op| matches!(op, Op::Launch(_))),
            products: any(|op| {
                matches!(op, Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_) | Op::Convolution(_))
            }),
        }
    }
}

fn is_closed(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Candidate(Stumble { answer: NoAnswer::Closed, .. }))
}

/// Whose failure it is that a replayer closed the conversation: none of the candidate's host code is in there, so
/// one that was killed, or ran out of memory, is no candidate's.
fn blamed(trouble: Trouble, outcome: Option<&Outcome>) -> Trouble {
    match outcome {
        Some(Outcome::Signalled(SIGKILL) | Outcome::OutOfMemory) if is_closed(&trouble) => {
            JudgeError::killed("replayer").into()
        }
        _ => trouble,
    }
}
