//! Candidates built for a GPU are recorded in the jail, on a machine without one. Those of the cpu device are
//! recorded beside it.

mod architectures;
mod exported;
mod on_host;

use warpwright_build::{Outcome, Request, Target};
use warpwright_plan::{Code, LaunchPlan, LibraryCall, Module, Op, Role};
use warpwright_record::blob::BlobHash;
use warpwright_record::verdict::Profile;
use warpwright_task::Mode;

use super::*;
use crate::device::arena::HostArena;
use crate::process::plan_file::{Head, PlanFileError, StoredPlan, StoredTask, StoredWeights};
use crate::process::wire::{Place, State};
use crate::process::{embedded, recorder_library};
use crate::session::stored::with_images;
use crate::testing::shared_judge;

/// `forward` adds the weight to each row; a second weight is transposed on the host.
const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void add(const float* x, const float* w, const float* t, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 4 * n) y[i] = x[i] + w[i % n] + t[i % n * 2];
}
extern "C" void add_rows(const float* x, const float* w, const float* t, float* y, int n, cudaStream_t s) {
  add<<<(4 * n + 255) / 256, 256, 0, s>>>(x, w, t, y, n);
}
"#;

const MODEL: &str = r"
import torch
import cuda_extension

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(8))
        self.m = torch.nn.Parameter(torch.zeros(2, 8))

    def prepare(self):
        self.t = self.m.t().contiguous()

    def forward(self, x):
        y = torch.empty_like(x)
        cuda_extension.add_rows(x, self.w, self.t, y, 8)
        return y
";

fn place(offset: Option<u64>, shape: &[u64]) -> Place {
    let strides = match shape {
        [_] => vec![1],
        [_, columns] => vec![*columns as i64, 1],
        _ => Vec::new(),
    };
    let bytes = 4 * shape.iter().product::<u64>();
    Place { offset, shape: shape.to_vec(), strides, dtype: "float32".to_owned(), bytes }
}

/// Two weights that hold numbers, on the host.
fn weights() -> GivenWeights {
    let memory = HostArena::create(4096).unwrap();
    let floats = |from: u16, count: u16| -> Vec<u8> {
        (from..from + count).flat_map(|n| f32::from(n).to_le_bytes()).collect()
    };
    memory.write(0, &floats(1, 8)).unwrap();
    memory.write(512, &floats(100, 16)).unwrap();
    let tensors = vec![place(Some(0), &[8]), place(Some(512), &[2, 8])];
    let state = State { names: vec!["w".to_owned(), "m".to_owned()], tensors };
    let init = Value { tree: json!({"list": []}), tensors: Vec::new() };
    GivenWeights::seal(init, state, memory).unwrap()
}

/// What the device tier needs: that of an H200, or of the cpu device.
fn tools(code: Code) -> PlanTools {
    let judge = shared_judge();
    let cache = &judge.machine.config.cache;
    let embedded = embedded::write(cache).unwrap();
    let jail = &judge.processes.host.jail;
    let make = match code {
        Code::Gpu => recorder_library::library,
        Code::Host => recorder_library::of_host,
    };
    let recorder = make(jail, judge.toolchain(), &embedded, cache).unwrap();
    let answers = include_str!("../../../tests/fixtures/h200.json");
    let answers = serde_json::from_str(answers).unwrap();
    PlanTools { code, recorder, replayer: "none".into(), cublas: None, cudnn: None, answers }
}

/// A host whose recorders are those of this code.
fn host(code: Code) -> Host {
    let ours = &shared_judge().processes.host;
    ours.with_plans(tools(code))
}

/// Builds a candidate; the compilers' words if it does not build.
fn built(candidate: &Candidate, reference: Option<String>, code: Code) -> Result<Artifact, String> {
    let target = match code {
        Code::Gpu => Target::Cuda { arch: "sm_90a".to_owned() },
        Code::Host => Target::Cpu,
    };
    let request = Request { reference, ..Request::default() };
    let builder = &shared_judge().processes.builder;
    match builder.build_with(candidate, &target, &request).unwrap() {
        Outcome::Built(artifact) => Ok(artifact),
        Outcome::Failed(failed) => Err(failed.message),
    }
}

/// Builds and records a candidate for a GPU whose input has four rows of eight.
fn recorded(kernel: &str, model: &str) -> Result<PlanOf, NoPlan> {
    recorded_for(Code::Gpu, kernel, model)
}

fn recorded_for(code: Code, kernel: &str, model: &str) -> Result<PlanOf, NoPlan> {
    built_and_recorded(code, kernel, model).map(|(plan, _)| plan)
}

/// The same with what it was built into.
fn built_and_recorded(code: Code, kernel: &str, model: &str) -> Result<(PlanOf, Artifact), NoPlan> {
    let files = [("model_new.py", model), ("kernels/k.cu", kernel)];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let artifact = built(&Candidate::from_files(files.into()), None, code).unwrap();
    let x = Value { tree: json!({"list": [{"tensor": 0}]}), tensors: vec![place(None, &[4, 8])] };
    let plan = record_in(&host(code), &artifact, model, (&weights(), &[x.clone(), x]))?;
    Ok((plan, artifact))
}

fn record_in(
    host: &Host,
    artifact: &Artifact,
    source: &str,
    (weights, inputs): (&GivenWeights, &[Value; 2]),
) -> Result<PlanOf, NoPlan> {
    let libraries = Libraries::of(artifact, host.plans.as_ref().unwrap().code);
    let libraries = libraries.map_err(NoPlan::new)?;
    let subject = Subject {
        source,
        artifact: &artifact.dir,
        settings: ("strict", "eval"),
        weights,
        inputs,
        libraries: &libraries,
        tools: host.plans.as_ref().unwrap(),
        compiler: "nvcc",
        patience: Duration::from_mins(1),
        seed: 1,
    };
    let done = subject.record(host, &shared_judge().machine.arbiter).unwrap();
    done.map(|(plan, _)| plan)
}

fn roles(plan: &LaunchPlan) -> Vec<Role> {
    plan.blocks.iter().map(|block| block.role).collect()
}

#[test]
fn a_candidate_becomes_a_plan_without_a_gpu() {
    let PlanOf { plan, constants, needs } = recorded(KERNEL, MODEL).unwrap();
    assert!(needs.is_empty() && plan.prepare.is_empty(), "{plan:?}");
    let [node] = plan.forward.as_slice() else { panic!("{:?}", plan.forward) };
    let Op::Launch(launch) = &node.op else { panic!("{node:?}") };
    assert_eq!((launch.grid, launch.block), ([1, 1, 1], [256, 1, 1]));
    let pointed = |argument: usize| {
        let relocation = launch.args[argument].relocations[0];
        plan.blocks[relocation.to.block as usize].role
    };
    assert_eq!(pointed(0), Role::Input(0));
    assert_eq!(pointed(1), Role::Weight(0));
    assert_eq!(pointed(2), Role::Constant(0));
    assert!(matches!(pointed(3), Role::Call { .. }));
    assert_eq!(launch.args[4].bytes, 8u32.to_le_bytes());
    // Columns of a matrix of two rows of eight: 100 and 108, 101 and 109, ...
    let table: Vec<f32> = constants[0].chunks_exact(4).take(4).map(float).collect();
    assert_eq!(table, [100.0, 108.0, 101.0, 109.0]);
    assert_eq!(roles(&plan).len(), 4, "{:?}", plan.blocks);
}

#[test]
fn recorded_plan_survives_its_file() {
    let (of, artifact) = built_and_recorded(Code::Gpu, KERNEL, MODEL).unwrap();
    let (plan, images) = with_images(&of.plan, &artifact.dir).unwrap();
    let constants = of.plan.constants.clone();
    let weights = StoredWeights { name: "init".to_owned(), hash: weights().hash(), constants };
    let head = Head {
        task: StoredTask { name: "rows".into(), source: String::new(), mode: Mode::Eval },
        candidate: "ab".repeat(32),
        profile: Profile::Strict,
        seed: 0,
        target: "cuda-sm_90a".to_owned(),
        plan,
        weights: vec![weights],
        trees: [json!({"list": []}), json!({"list": []})],
        prepare_ms: 0.0,
        library_calls: Vec::new(),
        libraries: Vec::new(),
        forms: None,
    };
    let stored = StoredPlan { head, images, constants: vec![of.constants.clone()] };
    let read = |stored: &StoredPlan| {
        let file = stored.write().unwrap();
        StoredPlan::read(&file, BlobHash::of(&file))
    };
    let back = read(&stored).unwrap();
    assert_eq!(back, stored);
    let plans = back.plans().unwrap();
    let [(_, again)] = &plans[..] else { panic!("{}", plans.len()) };
    assert_eq!((&again.constants, &again.needs), (&of.constants, &of.needs));
    assert_eq!(again.plan.forward, of.plan.forward);
    // The check against the images sees what a hash cannot.
    let mut other = stored.clone();
    other.head.plan.kernels[0].params[0] = 4;
    assert!(matches!(read(&other), Err(PlanFileError::Invalid(_))), "{:?}", read(&other));
    let mut other = stored.clone();
    other.images[0].truncate(100);
    let hash = blake3::hash(&other.images[0]).to_hex().to_string();
    other.head.plan.modules[0] = Module { file: hash.clone(), hash, offset: 0, bytes: 100 };
    assert!(matches!(read(&other), Err(PlanFileError::Image(_))), "{:?}", read(&other));
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().unwrap())
}

/// A convolution of cuDNN: the input's rows with both rows of the second weight.
const CONVOLUTION: &str = r#"
#include <cuda_runtime.h>
#include <cudnn.h>
extern "C" int convolve(const float* x, const float* w, float* y, cudaStream_t s) {
  static cudnnHandle_t handle = nullptr;
  if (!handle && cudnnCreate(&handle)) return 1;
  cudnnSetStream(handle, s);
  cudnnTensorDescriptor_t from, to;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t conv;
  cudnnCreateTensorDescriptor(&from);
  cudnnCreateTensorDescriptor(&to);
  cudnnCreateFilterDescriptor(&filter);
  cudnnCreateConvolutionDescriptor(&conv);
  cudnnSetTensor4dDescriptor(from, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 4, 8);
  cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 2, 8);
  cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  cudnnSetTensor4dDescriptor(to, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 3, 1);
  const float one = 1, zero = 0;
  return cudnnConvolutionForward(handle, &one, from, x, filter, w, conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                 nullptr, 0, &zero, to, y);
}
"#;

#[test]
fn a_convolution_of_cudnn_becomes_a_node() {
    let model = MODEL
        .replace("torch.empty_like(x)", "torch.empty(3, device=x.device)")
        .replace("add_rows(x, self.w, self.t, y, 8)", "convolve(x, self.m, y)");
    let PlanOf { plan, .. } = recorded(CONVOLUTION, &model).unwrap();
    let [node] = plan.forward.as_slice() else { panic!("{:?}", plan.forward) };
    let Op::Convolution(convolution) = &node.op else { panic!("{node:?}") };
    assert_eq!(convolution.algorithm, Some(0));
    let roles: Vec<Role> =
        convolution.places().iter().map(|at| plan.blocks[at.block as usize].role).collect();
    assert_eq!(roles, [Role::Input(0), Role::Weight(1), Role::Call { born: 0, freed: None }]);
    // The control: with a filter that is wider than the input, it is no plan.
    let wide = CONVOLUTION.replace("1, 1, 2, 8)", "1, 1, 2, 9)");
    let told = recorded(&wide, &model).map(|_| ()).unwrap_err().reason;
    assert!(told.contains("its filter is larger than what it reads"), "{told}");
}

#[test]
fn work_of_the_first_call_alone_is_prepared() {
    let lazy = MODEL.replace(
        "        return y",
        "        if not hasattr(self, 'sum'):
            self.sum = torch.empty_like(x)
            cuda_extension.add_rows(x, self.w, self.t, self.sum, 8)
        return y",
    );
    let PlanOf { plan, .. } = recorded(KERNEL, &lazy).unwrap();
    // Its input is zeros, which are filled first.
    let ops: Vec<&Op> = plan.prepare.iter().map(|node| &node.op).collect();
    assert!(matches!(ops[..], [Op::Fill(_), Op::Launch(_), Op::Launch(_)]), "{ops:?}");
    assert_eq!(plan.forward.len(), 1);
    let always = lazy.replace("not hasattr(self, 'sum')", "True");
    let PlanOf { plan, .. } = recorded(KERNEL, &always).unwrap();
    assert_eq!((plan.prepare.len(), plan.forward.len()), (0, 2));
}

#[test]
fn what_cannot_be_recorded_is_named() {
    let asks = MODEL.replace("        return y", "        return y if x.sum() > 0 else x");
    let told = recorded(KERNEL, &asks).map(|_| ()).unwrap_err().reason;
    assert!(told.contains("sum"), "{told}");
    let random = MODEL.replace("y, 8)", "y, 8 + int(torch.randint(1 << 20, (1,)).item()))");
    let random = random
        .replace("torch.randint(", "torch.randint(high=")
        .replace("(1,)", "size=(1,), device='cpu'");
    let told = recorded(KERNEL, &random).map(|_| ()).unwrap_err().reason;
    assert!(told.contains("second call") || told.contains("add"), "{told}");
    let dies = MODEL
        .replace("        y = torch", "        import os\n        os._exit(3)\n        y = torch");
    let told = recorded(KERNEL, &dies).map(|_| ()).unwrap_err().reason;
    assert!(told.contains("ended"), "{told}");
}

/// Host code can put bytes of its own where fat binaries lie, in front of the compiler's or behind it.
#[test]
fn device_code_that_no_compiler_made_is_refused() {
    let with = |handmade: &str, first: bool| {
        let section = format!(".section .nv_fatbin,\\\"a\\\"\\n.balign 8\\n{handmade}\\n.previous");
        let section = format!("\n#ifndef __CUDA_ARCH__\nasm(\"{section}\");\n#endif\n");
        let source =
            if first { format!("{section}{KERNEL}") } else { format!("{KERNEL}{section}") };
        recorded(&source, MODEL).map(|_| ()).map_err(|why| why.reason)
    };
    assert_eq!(with(".zero 8", false), Ok(()), "positive control: bytes that are no device code");
    let empty = ".quad 0x00100001ba55ed50, 0";
    for first in [true, false] {
        let told = with(empty, first).unwrap_err();
        assert!(told.contains("libkernels.so holds device code"), "{told}");
    }
    // One that claims what follows it.
    let told = with(".quad 0x00100001ba55ed50, 64", true).unwrap_err();
    assert!(told.contains("device"), "{told}");
}

/// A file of the corpus: its task, and the candidate.
fn entry(text: &str) -> (String, Candidate) {
    let task = text.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap();
    let files = text.split("\n## ").skip(1).map(|part| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (_, code) = rest.split("```").nth(1).unwrap().split_once('\n').unwrap();
        (name.trim().to_owned(), code.as_bytes().to_vec())
    });
    (task.trim().to_owned(), Candidate::from_files(files.collect()))
}

/// What came of recording a file of the corpus.
struct Played {
    name: String,
    /// What its line `Recorded:` expects, if it has one.
    expected: Option<String>,
    /// The reason if it was not recorded.
    recorded: Result<(), String>,
}

/// Records a kind of the corpus: those that build and that are wanted.
fn record_corpus(kind: &str, code: Code, wanted: impl Fn(&str) -> bool) -> Vec<Played> {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/integrity"));
    let mut files: Vec<_> =
        fs_err::read_dir(corpus.join(kind)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let host = host(code);
    let device = match code {
        Code::Gpu => "cuda",
        Code::Host => "cpu",
    };
    let only = std::env::var("WARPWRIGHT_INTEGRITY_ONLY").unwrap_or_default();
    let mut all = Vec::new();
    for path in files {
        let text = fs_err::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let for_device =
            text.lines().any(|line| line.starts_with("Devices:") && line.contains(device));
        if !for_device || !name.contains(&only) || !wanted(&text) {
            continue;
        }
        let (task, candidate) = entry(&text);
        let source = corpus.join("tasks").join(&task).with_extension("py");
        let source = fs_err::read_to_string(source).unwrap();
        let artifact = match built(&candidate, Some(source.clone()), code) {
            Ok(artifact) => artifact,
            Err(why) => {
                println!("{name}: does not build: {why}");
                continue;
            }
        };
        let model = String::from_utf8_lossy(&candidate.files()["model_new.py"]).into_owned();
        let task = warpwright_task::Task::from_source(&task, &source);
        let recorded = record_of_task(&host, &task, &artifact, &model).map(|_| ());
        println!("{name}: {}", recorded.as_ref().err().map_or("recorded", String::as_str));
        let expected = text.lines().find_map(|line| line.strip_prefix("Recorded: "));
        all.push(Played { name, expected: expected.map(str::to_owned), recorded });
    }
    all
}

/// Records a candidate of a task. The reason if that fails.
fn record_of_task(
    host: &Host,
    task: &warpwright_task::Task,
    artifact: &Artifact,
    model: &str,
) -> Result<PlanOf, String> {
    let mut session = shared_judge().task(task).unwrap();
    let weights = session.weights_to_record(session.oracle.played).unwrap();
    let inputs = session.inputs_to_record().unwrap();
    record_in(host, artifact, model, (&weights, &inputs)).map_err(|why| why.reason)
}

fn count_recorded(all: &[Played]) -> usize {
    all.iter().filter(|played| played.recorded.is_ok()).count()
}

#[test]
fn long_most_honest_candidates_are_recorded() {
    let all = record_corpus("honest", Code::Gpu, |_| true);
    let (recorded, all) = (count_recorded(&all), all.len());
    println!("{recorded} of {all} honest candidates were recorded");
    assert!(recorded * 10 >= all * 9, "{recorded} of {all}");
}

/// What is recorded of an attack is a plan like any other: it is judged by what its kernels do.
#[test]
fn long_attacks_are_recorded_or_named() {
    let all = record_corpus("attacks", Code::Gpu, |_| true);
    // Many of them are in the kernels.
    let recorded = count_recorded(&all);
    println!("{recorded} of {} attacks were recorded", all.len());
    assert!(recorded * 2 >= all.len(), "{recorded} of {}", all.len());
    assert_as_expected(&all);
}

/// A smaller share of the above: the attacks that the device tier has to do with.
#[test]
fn long_attacks_on_plans_are_recorded_as_expected() {
    let all = record_corpus("attacks", Code::Gpu, |text| text.contains("\nRecorded: "));
    assert!(!all.is_empty());
    assert_as_expected(&all);
}

/// Compares what came of each with its line `Recorded: yes` or `Recorded: no, REASON`.
fn assert_as_expected(all: &[Played]) {
    let mistakes: Vec<String> = all
        .iter()
        .filter_map(|Played { name, expected, recorded }| {
            let expected = expected.as_deref()?;
            let agrees = match (expected, recorded) {
                ("yes", recorded) => recorded.is_ok(),
                (_, Ok(())) => false,
                (_, Err(why)) => why.contains(expected.strip_prefix("no, ").unwrap_or(expected)),
            };
            (!agrees).then(|| format!("{name}: expected {expected}, {recorded:?}"))
        })
        .collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn wrong_results_beside_varying_numbers_are_in_doubt() {
    let value = |number: u32| json!({"list": [{"tensor": 0}, {"value": number}]});
    let plans = |trees| Plans { of: Vec::new(), trees, prepare_ms: 0.0, candidate: String::new() };
    let text = "1 of 8 elements are outside the tolerance";
    let class = warpwright_record::verdict::FailureClass::Mismatch;
    let failure = Some(crate::process::failure::failure(class, text));
    let wrong = Findings { failure, ..Findings::default() };
    let vary = plans([value(1), value(2)]);
    let told = vary.in_doubt(&wrong).unwrap().reason;
    assert!(told.contains("number among the inputs"), "{told}");
    assert!(vary.in_doubt(&Findings::default()).is_none(), "nothing is wrong");
    assert!(plans([value(1), value(1)]).in_doubt(&wrong).is_none(), "no number varies");
}

#[test]
fn halves_of_a_step_are_told_apart() {
    let [inputs, gradients] = halves(&json!({"list": [
        {"list": [{"tensor": 0}, {"value": 1}, {"dict": [["a", {"tensor": 1}]]}]},
        {"list": [{"tensor": 2}]},
    ]}))
    .unwrap();
    assert_eq!((inputs, gradients), (vec![0, 1], vec![2]));
    let [outputs, gradients] =
        halves(&json!({"tuple": [{"tensor": 0}, {"tuple": [{"tensor": 1}, {"tensor": 2}]}]}))
            .unwrap();
    assert_eq!((outputs, gradients), (vec![0], vec![1, 2]));
    for other in [json!({"tensor": 0}), json!([]), json!({"tuple": [1]}), json!(null)] {
        assert_eq!(halves(&other), None, "{other}");
    }
}
