//! How much longer a candidate with one changed launcher-only `.cu` takes to build than a bare
//! `nvcc -shared` of that file: the two in turn, the same flags, a file never seen before each time.
//! Then what a candidate takes whose `.cu` and binding with torch's headers changed: the first build
//! reads the headers, the second precompiles them, the others use that.
//!
//! `changed_file [--json FILE]`; `WARPWRIGHT_PYTHON` names the interpreter whose wheels may hold nvcc.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use warpwright_build::{Builder, Outcome, Settings, Target, Toolchain};
use warpwright_jail::{Jail, Requirement};
use warpwright_record::candidate::Candidate;

const ROUNDS: u32 = 9;

fn kernel(salt: u128) -> String {
    format!(
        "#include <cuda_runtime.h>\n\
         // {salt}\n\
         __global__ void scale(const float* x, float* out, int n, float by) {{\n\
         \x20   int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
         \x20   if (i < n) out[i] = x[i] * by + {}.f;\n\
         }}\n\
         extern \"C\" void scale_launcher(const float* x, float* out, int n, float by, cudaStream_t s) {{\n\
         \x20   scale<<<(n + 255) / 256, 256, 0, s>>>(x, out, n, by);\n\
         }}\n",
        salt % 1000
    )
}

#[expect(clippy::disallowed_types, reason = "the bare compiler is what is compared with")]
fn bare(nvcc: &Path, folder: &Path, text: &str) -> Result<f64, Box<dyn Error>> {
    let source = folder.join("bare.cu");
    fs_err::write(&source, text)?;
    let bin = nvcc.parent().unwrap_or(Path::new("/"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
    let root = bin.parent().unwrap_or(Path::new("/"));
    let start = Instant::now();
    let done = std::process::Command::new(nvcc)
        .env("PATH", path)
        .args([
            "-O3",
            "-std=c++17",
            "-arch=sm_90",
            "-Xcompiler",
            "-fPIC",
            "-shared",
            "-cudart",
            "shared",
        ])
        .args([format!("-L{}", root.join("lib").display()), "-o".to_owned()])
        .arg(folder.join("bare.so"))
        .arg(&source)
        .args(if root.join("lib64").exists() { vec![] } else { vec!["-cudart=none"] })
        .output()?;
    let seconds = start.elapsed().as_secs_f64();
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
    }
    Ok(seconds)
}

fn ours(builder: &Builder, kernel: &str, binding: Option<&str>) -> Result<f64, Box<dyn Error>> {
    let mut files = BTreeMap::from([
        ("model_new.py".to_owned(), b"class ModelNew: pass\n".to_vec()),
        ("kernels/scale.cu".to_owned(), kernel.as_bytes().to_vec()),
    ]);
    if let Some(text) = binding {
        files.insert("kernels/scale_binding.cpp".to_owned(), text.as_bytes().to_vec());
    }
    let target = Target::Cuda { arch: "sm_90".to_owned() };
    let start = Instant::now();
    match builder.build(&Candidate::from_files(files), &target)? {
        Outcome::Built(built) if !built.cached => Ok(start.elapsed().as_secs_f64()),
        Outcome::Built(_) => Err("the cache knew a file that was new".into()),
        Outcome::Failed(failed) => Err(failed.message.into()),
    }
}

fn binding(salt: u128) -> String {
    format!(
        "#include <torch/types.h>\n\
         #include <torch/csrc/utils/pybind.h>\n\
         #include <c10/cuda/CUDAStream.h>\n\
         #include \"../binding_registry.h\"\n\
         // {salt}\n\
         extern \"C\" void scale_launcher(const float*, float*, int, float, cudaStream_t);\n\
         static torch::Tensor scale(torch::Tensor x, double by) {{\n\
         \x20   TORCH_CHECK(x.is_cuda() && x.is_contiguous(), \"x must be contiguous, on the GPU\");\n\
         \x20   auto out = torch::empty_like(x);\n\
         \x20   scale_launcher(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), by,\n\
         \x20                  c10::cuda::getCurrentCUDAStream());\n\
         \x20   return out;\n\
         }}\n\
         static void bind_scale(pybind11::module& m) {{ m.def(\"scale\", &scale); }}\n\
         REGISTER_BINDING(scale, bind_scale);\n"
    )
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().position(|a| a == "--json").and_then(|i| arguments.get(i + 1));
    let python = std::env::var_os("WARPWRIGHT_PYTHON").map_or("python3".into(), PathBuf::from);
    let jail = Arc::new(Jail::detect(Requirement::Any)?);
    let toolchain = Toolchain::detect(&jail, &python)?;
    let Some(nvcc) = toolchain.nvcc.as_ref().map(|c| c.nvcc.clone()) else {
        return Err("there is no nvcc here".into());
    };
    let described = toolchain.describe();
    let folder = tempfile::tempdir()?;
    let builder = Builder::new(jail, toolchain, Settings::default(), &folder.path().join("cache"))?;
    let (mut theirs, mut mine, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let salt = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    for round in 0..=ROUNDS {
        let text = kernel(salt + u128::from(round));
        let (a, b) = (bare(&nvcc, folder.path(), &text)?, ours(&builder, &text, None)?);
        // The first round warms the page cache for both.
        if round > 0 {
            theirs.push(a);
            mine.push(b);
            ratios.push(b / a);
        }
    }
    let mut with_binding = Vec::new();
    for round in 0..2 + ROUNDS {
        let salt = salt + u128::from(ROUNDS + 1 + round);
        with_binding.push(ours(&builder, &kernel(salt), Some(&binding(salt)))?);
    }
    let precompiled = median(with_binding[2..].to_vec());
    let report = serde_json::json!({
        "benchmark": "changed_file",
        "tools": described,
        "rounds": ROUNDS,
        "nvcc_seconds": theirs,
        "build_seconds": mine,
        "median_ratio": median(ratios.clone()),
        "with_binding_seconds": with_binding,
        "with_binding_median_seconds": precompiled,
    });
    println!(
        "bare nvcc {:.3} s, build {:.3} s, ratio {:.3} (medians of {ROUNDS})",
        median(theirs),
        median(mine),
        median(ratios)
    );
    println!(
        "with a binding: first {:.2} s, with precompiling {:.2} s, then {precompiled:.2} s (median)",
        with_binding[0], with_binding[1]
    );
    if let Some(path) = json {
        fs_err::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}
