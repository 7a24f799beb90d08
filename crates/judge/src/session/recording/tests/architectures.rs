//! Images of every architecture can be recorded, and so can what newer ones offer.

use warpwright_plan::image::{Image, fatbins};

use warpwright_record::libraries::Library;
use warpwright_test_support::{Need, missing};

use super::*;

/// Static shared memory, which the driver's own share must not change.
const SHARED: &str = r#"
#include <cuda_runtime.h>
__global__ void add(const float* x, const float* w, const float* t, float* y, int n) {
  __shared__ float tile[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < 4 * n ? x[i] : 0;
  __syncthreads();
  if (i < 4 * n) y[i] = tile[threadIdx.x ^ 1] + w[i % n] + t[i % n * 2];
}
extern "C" void add_rows(const float* x, const float* w, const float* t, float* y, int n, cudaStream_t s) {
  add<<<(4 * n + 255) / 256, 256, 0, s>>>(x, w, t, y, n);
}
"#;

#[test]
fn images_of_every_architecture_are_read() {
    let files = [("model_new.py", MODEL), ("kernels/k.cu", SHARED)];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let candidate = Candidate::from_files(files.into());
    let builder = &shared_judge().processes.builder;
    for arch in ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"] {
        let target = Target::Cuda { arch: arch.to_owned() };
        let Outcome::Built(artifact) = builder.build(&candidate, &target).unwrap() else {
            panic!("{arch} is not built")
        };
        let library = fs_err::read(artifact.dir.join("libkernels.so")).unwrap();
        let [(_, range)] = &fatbins(&library).unwrap()[..] else { panic!("{arch}: many images") };
        let image = Image::read(&library[range.clone()]).unwrap();
        let number = arch.trim_start_matches("sm_").trim_end_matches('a');
        assert_eq!(image.compute_capability.to_string(), number);
        let [kernel] = &image.kernels.values().collect::<Vec<_>>()[..] else { panic!("{arch}") };
        assert_eq!((kernel.static_shared, kernel.params.len()), (1024, 5), "{arch}");
        assert!(kernel.registers > 0, "{arch}");
        let libraries = Libraries::of(&artifact, Code::Gpu);
        assert!(libraries.is_ok(), "{arch}: {:?}", libraries.err());
    }
}

/// A file of the corpus that says so: descriptors of tensors, clusters, dynamic shared memory.
#[test]
fn long_honest_candidates_are_recorded_as_expected() {
    let all = record_corpus("honest", Code::Gpu, |text| text.contains("\nRecorded: "));
    assert!(all.len() > 2, "some do not build");
    assert_as_expected(&all);
}

/// Builds and records a candidate of `tests/fixtures/libraries`, which may use a library: a kernel and a model.
fn recorded_with(
    library: Library,
    (kernel, model): (&str, &str),
    task: &str,
) -> Result<PlanOf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: String| fs_err::read_to_string(folder.join(path)).unwrap();
    let source = read(format!("../../tests/integrity/tasks/{task}.py"));
    let model = read(format!("tests/fixtures/libraries/{model}.py"));
    let kernel = read(format!("tests/fixtures/libraries/{kernel}.cu"));
    let files = [("model_new.py", &model), ("kernels/k.cu", &kernel)];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let libraries = [library].iter().collect();
    let request = Request { libraries, ..Request::default() };
    let target = Target::Cuda { arch: "sm_90a".to_owned() };
    let builder = &shared_judge().processes.builder;
    let built = builder.build_with(&Candidate::from_files(files.into()), &target, &request);
    let artifact = match built.unwrap() {
        Outcome::Built(artifact) => artifact,
        Outcome::Failed(failed) => panic!("{failed:#?}"),
    };
    assert_eq!(artifact.libraries, [library]);
    let task = warpwright_task::Task::from_source(task, &source);
    record_of_task(&host(Code::Gpu), &task, &artifact, &model)
}

#[test]
fn long_reductions_of_cub_are_recorded() {
    let candidate = ("cub_row_squares", "cub_row_squares");
    let PlanOf { plan, .. } = recorded_with(Library::Cccl, candidate, "row_squares").unwrap();
    assert_eq!(plan.forward.len(), 1, "{:?}", plan.forward);
}

fn has_cutlass() -> bool {
    let found = shared_judge().toolchain().cutlass.is_some();
    if !found {
        missing(Need::Cutlass);
    }
    found
}

#[test]
fn long_products_of_cutlass_are_recorded() {
    if has_cutlass() {
        let candidate = ("cutlass_linear", "cutlass_linear");
        let plan = recorded_with(Library::Cutlass, candidate, "linear_half").unwrap().plan;
        let [node] = plan.forward.as_slice() else { panic!("{:?}", plan.forward) };
        assert!(matches!(node.op, Op::Launch(_)), "{node:?}");
    }
}

/// The parameters of CUTLASS's collectives have gaps that it never sets: such a candidate is judged in the host tier.
#[test]
fn long_collectives_of_cutlass_are_named() {
    if has_cutlass() {
        let candidate = ("cutlass_collectives", "cutlass_linear");
        let told = recorded_with(Library::Cutlass, candidate, "linear_half");
        let told = told.map(|_| ()).unwrap_err();
        assert!(told.contains("structures that have no padding"), "{told}");
    }
}
