//! A plan of a GPU, as `warpwright export` gets it. With `UPDATE_FIXTURES` set, the test writes the file that the tests
//! of the command read.

use std::path::Path;

use super::*;
use crate::process::plan_file::{TensorForm, TensorForms};

const REFERENCE: &str = r"
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(8))
        self.m = torch.nn.Parameter(torch.randn(2, 8))

    def forward(self, x):
        return torch.relu(x @ self.m.t() + self.w[:2])


def get_inputs():
    return [torch.randn(4, 8)]
";

/// A product of cuBLAS, and a kernel that adds what `prepare()` has copied.
const KERNELS: &str = r#"
#include <cublas_v2.h>
#include <cuda_runtime.h>
__device__ float factor = 1.0f;
__global__ void add(const float* bias, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(y[i] + factor * bias[i % 2], 0.0f);
}
__global__ void copy(const float* from, float* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
extern "C" int keep(const float* from, float* to, int n, cudaStream_t s) {
  copy<<<1, 32, 0, s>>>(from, to, n);
  return (int)cudaGetLastError();
}
extern "C" int product(const float* x, const float* m, const float* bias, float* y, cudaStream_t s) {
  static cublasHandle_t handle = nullptr;
  if (!handle && cublasCreate(&handle)) return 1;
  cublasSetStream(handle, s);
  const float one = 1.0f, zero = 0.0f;
  if (cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, 2, 4, 8, &one, m, 8, x, 8, &zero, y, 2)) return 1;
  add<<<1, 32, 0, s>>>(bias, y, 8);
  return (int)cudaGetLastError();
}
"#;

const MODEL_NEW: &str = r"
import torch
import cuda_extension


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(8))
        self.m = torch.nn.Parameter(torch.zeros(2, 8))

    def prepare(self):
        self.bias = torch.empty(2, device=self.w.device)
        cuda_extension.keep(self.w, self.bias, 2)

    def forward(self, x):
        y = torch.empty(4, 2, device=x.device)
        cuda_extension.product(x, self.m, self.bias, y)
        return y
";

#[test]
fn plan_of_a_gpu_is_stored_with_its_forms() {
    let (of, artifact) = built_and_recorded(Code::Gpu, KERNELS, MODEL_NEW).unwrap();
    let (plan, images) = with_images(&of.plan, &artifact.dir).unwrap();
    assert!(plan.constants.is_empty(), "{:?}", plan.constants);
    let form = |shape: &[u64]| {
        let Place { shape, strides, dtype, .. } = place(None, shape);
        TensorForm { shape, strides, dtype }
    };
    let forms = TensorForms {
        inputs: vec![form(&[4, 8])],
        state: vec![form(&[8]), form(&[2, 8])],
        changed: Vec::new(),
    };
    let weights = |name: &str| StoredWeights {
        name: name.to_owned(),
        hash: weights().hash(),
        constants: Vec::new(),
    };
    let task = StoredTask { name: "rows".into(), source: REFERENCE.into(), mode: Mode::Eval };
    let tree = json!({"list": [{"tensor": 0}]});
    let head = Head {
        task,
        candidate: "ab".repeat(32),
        profile: Profile::Strict,
        seed: 0,
        target: "cuda-sm_90a".to_owned(),
        plan,
        weights: vec![weights("init"), weights("other")],
        trees: [tree.clone(), tree],
        prepare_ms: 0.0,
        library_calls: vec!["cublasSgemm_v2".to_owned()],
        libraries: Vec::new(),
        forms: Some(forms),
    };
    let stored = StoredPlan { head, images, constants: vec![Vec::new(), Vec::new()] };
    let file = stored.write().unwrap();
    let read = StoredPlan::read(&file, BlobHash::of(&file)).unwrap();
    assert_eq!((read.forms(), read.is_host_code()), (stored.forms(), false));
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/exported/gpu.plan");
        fs_err::write(fixture, file).unwrap();
    }
}
