//! A judge on the cpu device whose "GPU" replays recorded readings: whole measurements on a machine that
//! overheats, is shared, or falls off the bus.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use warpwright_record::candidate::Candidate;
use warpwright_record::conditions::Spread;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

use super::*;
use crate::device::facts::Device;
use crate::error::JudgeError;
use crate::session::pool::SessionPool;
use crate::testing::own_judge;

const TASK: &str = "
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 1024)]
def get_init_inputs():
    return []
";
const MODEL: &str = "
import torch, cuda_extension
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        cuda_extension.relu_launcher(x, out, x.numel())
        return out
";
const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void relu(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f);
}
extern "C" void relu_launcher(const float* x, float* out, int n, cudaStream_t stream) {
    relu<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
}
"#;

fn candidate() -> Candidate {
    let files = [("model_new.py", MODEL), ("kernels/relu.cu", KERNEL)];
    Candidate::from_files(BTreeMap::from(files.map(|(n, t)| (n.to_owned(), t.as_bytes().to_vec()))))
}

/// What a machine does: its readings in order, the last of them for ever, and its processes.
#[derive(Clone)]
struct Script {
    samples: Vec<Result<Sample, NoReading>>,
    processes: Result<Vec<GpuProcess>, NoReading>,
    read: usize,
}

impl Script {
    fn new(samples: Vec<Result<Sample, NoReading>>) -> Self {
        Self { samples, processes: Ok(vec![process(std::process::id(), None)]), read: 0 }
    }

    fn with(mut self, process: GpuProcess) -> Self {
        self.processes = self.processes.map(|listed| [listed, vec![process]].concat());
        self
    }
}

struct Recorded(Arc<Mutex<Script>>);

impl Gauge for Recorded {
    fn sample(&self) -> Result<Sample, NoReading> {
        let mut script = self.0.lock().unwrap();
        let at = script.read.min(script.samples.len() - 1);
        script.read += 1;
        script.samples[at].clone()
    }

    fn processes(&self, _: SystemTime) -> Result<Vec<GpuProcess>, NoReading> {
        self.0.lock().unwrap().processes.clone()
    }
}

fn process(pid: u32, sm_percent: Option<u32>) -> GpuProcess {
    GpuProcess { pid, memory_bytes: Some(512 << 20), sm_percent }
}

#[expect(clippy::unnecessary_wraps, reason = "as it is read")]
fn reading(sm_mhz: u32, reasons: u64) -> Result<Sample, NoReading> {
    Ok(Sample {
        sm_mhz: Some(sm_mhz),
        memory_mhz: Some(3201),
        celsius: Some(50),
        watts: Some(400),
        reasons: Reasons(reasons),
    })
}

/// Steady but for readings number `at`.
fn but(at: &[(usize, Result<Sample, NoReading>)]) -> Script {
    let mut samples = vec![reading(1980, 1); 200];
    for (i, sample) in at {
        samples[*i] = sample.clone();
    }
    Script::new(samples)
}

/// A verdict for each script, from one session.
fn play<const N: usize>(scripts: [Script; N]) -> [Result<Verdict, JudgeError>; N] {
    let script = Arc::new(Mutex::new(but(&[])));
    let mut judge = own_judge(Device::Cpu);
    judge.machine.health = Health::Gpu(Box::new(Recorded(Arc::clone(&script))));
    let pool = SessionPool::new(&judge);
    let task = Task::from_source("relu", TASK);
    let one = |next| {
        *script.lock().unwrap() = next;
        pool.afresh(&task, &candidate(), Stage::Measured)
    };
    scripts.map(one)
}

fn said(verdict: &Verdict, text: &str) -> bool {
    verdict.caveats.iter().any(|caveat| caveat.contains(text))
}

/// Three windows a round: readings 6 to 8 are those of the third round, which is measured again.
#[test]
fn a_verdict_records_the_machines_conditions() {
    let mut blind = Script::new(vec![Err(NoReading::Refused("NVML: no permission".to_owned()))]);
    blind.processes = Ok(vec![process(u32::MAX - 1, Some(90))]);
    let hot = but(&[(7, reading(900, 0x48)), (13, reading(1500, Reasons::POWER_CAP))]);
    let verdicts = play([hot.with(process(1, Some(0))), blind]);
    let [hot, blind] = verdicts.map(|verdict| verdict.unwrap());

    assert!(hot.verified, "{hot:#?}");
    let conditions = hot.conditions.as_ref().unwrap();
    // Fewer where the machine is slow, more only where others compute on it.
    let most = if conditions.host_load.is_some_and(|share| share > 0.0) { 21 } else { 9 };
    let rounds = hot.times_ms.rounds.unwrap();
    assert!((7..=most).contains(&rounds), "{rounds}, {:?}", conditions.host_load);
    assert_eq!(conditions.repeated_rounds, 1);
    let clocks = conditions.sm_mhz.unwrap();
    assert_eq!(clocks, Spread { min: 1500, ..clocks }, "of the rounds that count");
    assert_eq!(conditions.throttling, ["sw_power_cap"]);
    assert!(conditions.variation.unwrap() > 0.0);
    assert_eq!(hot.fingerprint.clocks, "SM 1980 MHz, memory 3201 MHz");
    assert!(said(&hot, "1 round was measured again: hw_thermal_slowdown"));
    assert_eq!(conditions.other_processes.as_ref().unwrap().len(), 1);
    assert!(said(&hot, "other processes had the GPU open: process 1"), "{:?}", hot.caveats);

    assert!(blind.verified && said(&blind, "could not be read (NVML: no permission)"));
    assert!(said(&blind, "co-tenants cannot be seen"), "{:?}", blind.caveats);
    let conditions = blind.conditions.as_ref().unwrap();
    assert_eq!((conditions.sm_mhz, conditions.other_processes.as_ref()), (None, None));
    assert_eq!(blind.fingerprint.clocks, "");
}

#[test]
fn an_unfit_machine_gives_no_verdict() {
    let lost = NoReading::Lost("NVML: device fell off the bus".to_owned());
    let gone = but(&[(4, Err(lost))]);
    let verdicts = play([
        Script::new(vec![reading(990, 0x80)]),
        but(&[]).with(process(1, Some(37))),
        gone,
        but(&[]),
    ]);
    let [brake, shared, lost, after] = &verdicts;
    let Err(JudgeError::Unfit { reason, hint, .. }) = brake else { panic!("{brake:?}") };
    assert!(reason.contains("hw_power_brake_slowdown") && hint.contains("power"), "{reason}");
    let Err(JudgeError::Unfit { reason, .. }) = shared else { panic!("{shared:?}") };
    assert!(reason.contains("process 1") && reason.contains("37 %"), "{reason}");
    let Err(JudgeError::DeviceLost { reason, .. }) = lost else { panic!("{lost:?}") };
    assert!(reason.contains("off the bus"), "{reason}");
    // Nothing is tried on a GPU that is gone.
    let Err(error @ JudgeError::DeviceLost { .. }) = after else { panic!("{after:?}") };
    assert!(error.hint().unwrap().contains("--resume"));
}
