//! The benchmark's inputs: small tasks, and distinct correct candidates for them.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;
use warpwright_record::candidate::Candidate;
use warpwright_task::Task;

/// How a candidate's kernel is called from Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// A .cu file and a C++ binding with torch's headers, as in the paper's workspaces.
    Binding,
    /// A .cu file only; its launchers are called directly.
    Launcher,
}

impl Form {
    /// The form as text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Binding => ".cu and binding",
            Self::Launcher => ".cu only",
        }
    }
}

/// A task and the candidates made for it so far.
pub(crate) struct Subject {
    pub(crate) task: Task,
    made: u64,
}

const COLUMNS: usize = 1024;

/// Number of rows of the smallest task. A call takes about 50 microseconds on a GPU and a
/// millisecond on the cpu device; judging costs more than either. Shorter calls of compiled
/// references on a GPU take as long as the host needs to launch them, which varies by a fifth and
/// more.
pub(crate) const fn least_rows(cuda: bool) -> usize {
    if cuda { 16384 } else { 512 }
}

/// Creates `count` tasks with `least_rows` rows or slightly more. They have nearly the same size,
/// so that each device keeps equally many open and their costs are equal.
pub(crate) fn all(count: usize, least_rows: usize) -> Vec<Subject> {
    let of = |i: usize| {
        let rows = least_rows + least_rows / 64 * i;
        let source = format!(
            "import torch\n\
             from torch import nn\n\n\n\
             class Model(nn.Module):\n\
             \x20   def __init__(self, columns: int) -> None:\n\
             \x20       super().__init__()\n\
             \x20       self.bias = nn.Parameter(torch.randn(columns))\n\n\
             \x20   def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n\
             \x20       return torch.relu(x * y + self.bias)\n\n\n\
             def get_init_inputs() -> list[int]:\n\
             \x20   return [{COLUMNS}]\n\n\n\
             def get_inputs() -> list[torch.Tensor]:\n\
             \x20   return [torch.randn({rows}, {COLUMNS}), torch.randn({rows}, {COLUMNS})]\n"
        );
        Subject { task: Task::from_source(&format!("bench_{rows}"), source), made: 0 }
    };
    (0..count).map(of).collect()
}

impl Subject {
    /// A candidate that is in no cache.
    pub(crate) fn candidate(&mut self, form: Form) -> Candidate {
        self.made += 1;
        let mut files = BTreeMap::from([
            ("model_new.py".to_owned(), model(form)),
            ("kernels/fused.cu".to_owned(), kernel(self.made)),
        ]);
        if form == Form::Binding {
            files.insert(
                "kernels/fused_binding.cpp".to_owned(),
                binding(self.made, Stream::Current),
            );
        }
        let files = files.into_iter().map(|(name, text)| (name, text.into_bytes()));
        Candidate::from_files(files.collect())
    }

    /// The source texts of another candidate, for a build without the judge's builder.
    pub(crate) fn texts(&mut self, stream: Stream) -> Texts {
        self.made += 1;
        Texts {
            model: model(Form::Binding),
            kernel: kernel(self.made),
            binding: binding(self.made, stream),
        }
    }
}

/// The source texts of a candidate with a binding.
pub(crate) struct Texts {
    pub(crate) model: String,
    pub(crate) kernel: String,
    pub(crate) binding: String,
}

fn model(form: Form) -> String {
    let forward = match form {
        Form::Binding => "        return cuda_extension.fused(x, y, self.bias)\n",
        Form::Launcher => {
            "        out = torch.empty_like(x)\n\
             \x20       columns = x.shape[-1]\n\
             \x20       cuda_extension.fused_launcher(x, y, self.bias, out, x.numel(), columns)\n\
             \x20       return out\n"
        }
    };
    format!(
        "import torch\n\
         from torch import nn\n\n\
         import cuda_extension\n\n\n\
         class ModelNew(nn.Module):\n\
         \x20   def __init__(self, columns: int) -> None:\n\
         \x20       super().__init__()\n\
         \x20       self.bias = nn.Parameter(torch.randn(columns))\n\n\
         \x20   def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n\
         {forward}"
    )
}

/// The block size depends on the number, so that compiled code differs too.
fn kernel(number: u64) -> String {
    let threads = 128 + 32 * (number % 8);
    format!(
        "#include <cuda_runtime.h>\n\n\
         // Candidate {number}.\n\
         constexpr int kThreads = {threads};\n\n\
         __global__ void fused(const float* x, const float* y, const float* bias, float* out,\n\
         \x20                     long long count, int columns) {{\n\
         \x20   long long i = blockIdx.x * (long long)kThreads + threadIdx.x;\n\
         \x20   if (i < count) out[i] = fmaxf(x[i] * y[i] + bias[i % columns], 0.0f);\n\
         }}\n\n\
         extern \"C\" void fused_launcher(const float* x, const float* y, const float* bias, float* out,\n\
         \x20                              long long count, int columns, cudaStream_t stream) {{\n\
         \x20   const unsigned blocks = (unsigned)((count + kThreads - 1) / kThreads);\n\
         \x20   fused<<<blocks, kThreads, 0, stream>>>(x, y, bias, out, count, columns);\n\
         }}\n"
    )
}

/// The stream on which a binding launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// On torch's current stream.
    Current,
    /// No stream: a host without CUDA.
    None,
}

fn binding(number: u64, stream: Stream) -> String {
    let (include, kind, current) = match stream {
        Stream::Current => (
            "#include <c10/cuda/CUDAStream.h>\n",
            "cudaStream_t",
            "c10::cuda::getCurrentCUDAStream()",
        ),
        Stream::None => ("", "void*", "nullptr"),
    };
    format!(
        "#include <torch/types.h>\n\
         #include <torch/csrc/utils/pybind.h>\n\
         {include}\
         #include \"../binding_registry.h\"\n\n\
         // Candidate {number}.\n\
         extern \"C\" void fused_launcher(const float*, const float*, const float*, float*, long long,\n\
         \x20                              int, {kind});\n\n\
         static torch::Tensor fused(torch::Tensor x, torch::Tensor y, torch::Tensor bias) {{\n\
         \x20   TORCH_CHECK(x.is_contiguous() && y.is_contiguous(), \"inputs must be contiguous\");\n\
         \x20   auto out = torch::empty_like(x);\n\
         \x20   fused_launcher(x.data_ptr<float>(), y.data_ptr<float>(), bias.data_ptr<float>(),\n\
         \x20                  out.data_ptr<float>(), x.numel(), (int)x.size(-1), {current});\n\
         \x20   return out;\n\
         }}\n\n\
         static void bind_fused(pybind11::module& m) {{ m.def(\"fused\", &fused); }}\n\
         REGISTER_BINDING(fused, bind_fused);\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_of_a_subject_are_distinct() {
        let mut subject = all(1, 512).remove(0);
        let mut hashes = std::collections::BTreeSet::new();
        for _ in 0..20 {
            for form in [Form::Binding, Form::Launcher] {
                assert!(hashes.insert(subject.candidate(form).hash().to_owned()));
            }
        }
    }
}
