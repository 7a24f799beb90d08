//! Builds for profilers and sanitizers, compared with judged builds.

use warpwright_build::{Artifact, Instrument, Request, Target};

use crate::bench::{Bench, bench, bench_with_nvcc, built, candidate, sm_90a};

const KERNEL: &str = "#include <cuda_runtime.h>\n\
    __global__ void scale(float* x) { x[threadIdx.x] *= 2.f; }\n\
    extern \"C\" void launch(float* x, cudaStream_t s) { scale<<<1, 32, 0, s>>>(x); }\n";

fn build(bench: &Bench, target: &Target, instrument: Instrument) -> Artifact {
    let request = Request { instrument, ..Request::default() };
    let candidate = candidate(&[("kernels/k.cu", KERNEL)]);
    built(bench.builder.build_with(&candidate, target, &request).unwrap())
}

fn speaks_of(artifact: &Artifact, name: &str) -> bool {
    let library = fs_err::read(artifact.dir.join("libkernels.so")).unwrap();
    library.windows(name.len()).any(|part| part == name.as_bytes())
}

#[test]
fn each_instrument_has_its_own_host_binary() {
    let bench = bench();
    let [plain, profiled, sanitized] =
        [Instrument::None, Instrument::Profile, Instrument::Sanitize]
            .map(|instrument| build(&bench, &Target::Cpu, instrument));
    let has = |name| [&plain, &profiled, &sanitized].map(|artifact| speaks_of(artifact, name));
    assert_eq!(has("hostcuda_trace"), [false, true, false]);
    assert_eq!(has("libasan"), [false, false, true]);
    assert_eq!(build(&bench, &Target::Cpu, Instrument::None).dir, plain.dir);
}

#[test]
fn profiling_a_gpu_uses_the_judged_binary() {
    let Some(bench) = bench_with_nvcc() else { return };
    let [plain, profiled, sanitized] =
        [Instrument::None, Instrument::Profile, Instrument::Sanitize]
            .map(|instrument| build(&bench, &sm_90a(), instrument));
    assert_eq!(plain.dir, profiled.dir);
    assert_ne!(plain.dir, sanitized.dir);
}
