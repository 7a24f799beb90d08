//! `--dtype`: reference, candidate and inputs in half precision.

use serde_json::{Value, json};
use warpwright_record::reader::RunReader;

use crate::judging::recorded;
use crate::program::{KERNEL, Program, TASK};

const SCALED: &str = "\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.register_buffer('steps', torch.arange(3))

    def forward(self, x: torch.Tensor, shift: dict[str, torch.Tensor]) -> torch.Tensor:
        return x * self.weight + shift['by']


def get_inputs():
    return [torch.randn(64, 128), {'by': torch.randn(128)}]


def get_init_inputs():
    return [128]
";

/// It names no dtype: its parameter would be float32.
const MODEL_NEW: &str = "\
import torch
from torch import nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))
        self.register_buffer('steps', torch.empty(3, dtype=torch.int64))

    def forward(self, x, shift):
        y = torch.empty_like(x)
        cuda_extension.scale(x, self.weight, shift['by'], y, x.numel(), x.shape[1])
        return y
";

const SCALE: &str = "\
#include <cuda_bf16.h>

__global__ void scale_kernel(const __nv_bfloat16* x, const __nv_bfloat16* w, const __nv_bfloat16* s,
                             __nv_bfloat16* y, long long n, long long f) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = __bfloat162float(__float2bfloat16(__bfloat162float(x[i]) * __bfloat162float(w[i % f])));
    y[i] = __float2bfloat16(v + __bfloat162float(s[i % f]));
}

extern \"C\" int scale(const __nv_bfloat16* x, const __nv_bfloat16* w, const __nv_bfloat16* s,
                     __nv_bfloat16* y, long long n, long long f, cudaStream_t stream) {
    scale_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, w, s, y, n, f);
    return (int)cudaGetLastError();
}
";

#[test]
fn candidate_is_cast_with_its_reference() {
    let program = Program::new();
    program.write("scaled.py", SCALED);
    program.write("candidate/model_new.py", MODEL_NEW);
    program.write("candidate/kernels/scale.cu", SCALE);
    let judge = |more: &[&str]| {
        let fixed = ["judge", "scaled.py", "--candidate", "candidate", "--device", "cpu"];
        let rest = ["--stage", "verified", "--json"];
        program.run(&[&fixed[..], &rest[..], more].concat())
    };
    let cast = judge(&["--dtype", "bf16", "--out", "run"]);
    assert_eq!(cast.code, Some(0), "{}", cast.show());
    assert_eq!(cast.object()["verdict"]["dtype"], "bf16");
    // The same in the device tier, where a recorder casts the candidate.
    let device = judge(&["--dtype", "bf16", "--require-tier", "device"]);
    assert_eq!(device.code, Some(0), "{}", device.show());
    // Without the cast its float32 parameter fits no pointer to bfloat16.
    let plain = judge(&[]);
    assert_eq!(plain.code, Some(3), "{}", plain.show());
    assert_eq!(plain.object()["verdict"].get("dtype"), None);
    // The dtype belongs to the record's source: judged again, it is cast again.
    let again = program.run(&["rejudge", "run", "--device", "cpu", "--json"]);
    assert_eq!(again.code, Some(0), "{}", again.show());
    let row = &again.object()["runs"][0]["verdicts"]["rows"][0];
    assert_eq!(row["new"]["result"], "verified", "{}", again.show());
}

#[test]
fn reference_that_fails_under_the_cast_is_refused() {
    let program = Program::new();
    program.write("suite/task.py", TASK);
    let inverse = TASK
        .replace("torch.relu(x + 1.0) * 0.5", "torch.linalg.inv(x)")
        .replace("torch.randn(512, 256)", "torch.eye(64) + 0.01 * torch.randn(64, 64)");
    program.write("suite/inverse.py", &inverse);
    // It does not build: nothing is timed.
    recorded(&program, "task", &KERNEL.replace("0.5f;", "0.5f"));
    let arguments = ["eval", "--suite", "suite", "--policy", "replay:recorded", "--device", "cpu"];
    let ran =
        program.run(&[&arguments[..], &["--dtype", "fp16", "--out", "run", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let told = ran.object();
    assert_eq!(told["tables"][0]["dtype"], "fp16", "{}", ran.show());
    let rows: Vec<(&Value, &Value, &Value)> = told["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["task"], &row["state"], &row["dtype"]))
        .collect();
    let (fp16, judged, refused) = (json!("fp16"), json!("judged"), json!("refused"));
    let (inverse, task) = (json!("inverse"), json!("task"));
    assert_eq!(rows, [(&inverse, &refused, &fp16), (&task, &judged, &fp16)], "{}", ran.show());
    let config = RunReader::open(&program.path("run")).unwrap().header().config.clone();
    assert_eq!(config["dtype"], "fp16");
    let model = fs_err::read_to_string(program.path("run/workspaces/task/model.py")).unwrap();
    assert!(model.starts_with(TASK.trim_end()), "{model}");
    assert!(model.ends_with("_warpwright_cast(\"float16\")\n"), "{model}");
    // A source that is cast already keeps its dtype, and takes no other.
    let model = "run/workspaces/task/model.py";
    let other = program.run(&["judge", model, "--candidate", "suite", "--dtype", "bf16"]);
    assert_eq!(other.code, Some(2), "{}", other.show());
    assert!(other.stderr.contains("is cast to fp16 already"), "{}", other.show());
}
