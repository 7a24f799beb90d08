//! Convolutions on the GPU: cuDNN in full precision, or in TF32 where the profile allows it.
//!
//! Bias, residual and ReLU use cuDNN's fused call if the epilogue consists of just these; any other
//! epilogue is one elementwise kernel after it. Large batches are processed in parts, so that the
//! tensor-core algorithms, which use another layout, have room for their copies of the operands.

use super::convolution::Convolution;
use super::cublas::Signature;
use super::epilogue::{self, as_many};
use super::operand::Place;
use crate::dtype::DType;
use crate::emit::{HeavyContext, KernelFile};
use crate::index::{numel, strides_of};
use crate::ir::{Fun, NodeId, Op, axes};
use crate::plan::Products;

/// The epilogue of cuDNN's fused call: `relu(y + residual + bias)`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fused {
    /// One value per channel, contiguous.
    bias: NodeId,
    residual: Option<NodeId>,
}

/// The operands of a sum, flattened; at most four.
fn addends(context: &HeavyContext<'_>, node: NodeId, out: &mut Vec<NodeId>) {
    match &context.graph.node(node).op {
        Op::Map { f: Fun::Add, args } if !context.buffers.contains_key(&node) && out.len() < 4 => {
            for a in args {
                addends(context, *a, out);
            }
        }
        _ => out.push(node),
    }
}

/// Recognises a single store that is `relu(conv + bias)` or `relu(conv + bias + residual)`.
fn fused(context: &HeavyContext<'_>) -> Option<Fused> {
    let graph = context.graph;
    let [store] = context.stores[..] else { return None };
    let Op::Map { f: Fun::Relu, args } = &graph.node(store).op else { return None };
    if graph.shape(store) != graph.shape(context.node)
        || graph.dtype(store) != graph.dtype(context.node)
    {
        return None;
    }
    let mut parts = Vec::new();
    addends(context, args[0], &mut parts);
    let at = parts.iter().position(|p| *p == context.node)?;
    parts.remove(at);
    let channels = graph.shape(context.node)[1];
    let axis = axes(graph.shape(context.node))[1].clone();
    let dtype = graph.dtype(context.node);
    let vector = |p: NodeId| {
        let Op::View { src, map } = &graph.node(p).op else { return None };
        let buffer = context.buffers.get(src)?;
        let plain =
            graph.shape(*src) == [channels] && *map == [axis.clone()] && buffer.strides == [1];
        (plain && graph.dtype(*src) == dtype).then_some(*src)
    };
    let whole = |p: NodeId| {
        let buffer = context.buffers.get(&p)?;
        let same = graph.shape(p) == graph.shape(context.node) && as_many(context, p, context.node);
        (same && buffer.strides == strides_of(graph.shape(p)) && graph.dtype(p) == dtype)
            .then_some(p)
    };
    match parts[..] {
        [one] => Some(Fused { bias: vector(one)?, residual: None }),
        [a, b] => match (vector(a), vector(b)) {
            (Some(bias), None) => Some(Fused { bias, residual: Some(whole(b)?) }),
            (None, Some(bias)) => Some(Fused { bias, residual: Some(whole(a)?) }),
            _ => None,
        },
        _ => None,
    }
}

fn list(values: &[i64]) -> String {
    let text: Vec<String> = values.iter().map(i64::to_string).collect();
    format!("{{{}}}", text.join(", "))
}

/// Spatial dims padded to at least two, which cuDNN requires.
fn spatial(values: &[i64], fill: i64) -> Vec<i64> {
    if values.len() == 1 { vec![fill, values[0]] } else { values.to_vec() }
}

pub(super) const HANDLE: &str = "// The handle that all files of this library share.
inline cudnnHandle_t shared_cudnn() {
  static cudnnHandle_t handle = [] {
    cudnnHandle_t made = nullptr;
    return cudnnCreate(&made) == CUDNN_STATUS_SUCCESS ? made : (cudnnHandle_t) nullptr;
  }();
  return handle;
}

// One workspace for all files, too: calls on one stream follow each other.
inline cudaError_t shared_workspace(size_t bytes, void** out) {
  static void* memory = nullptr;
  static size_t size = 0;
  if (bytes > size) {
    // What was enqueued before may still use the smaller one.
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess && memory) error = cudaFree(memory);
    memory = nullptr;
    size = 0;
    if (error == cudaSuccess) error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) return error;
    size = bytes;
  }
  *out = memory;
  return cudaSuccess;
}
";

/// Begins a launcher: the handle on the stream, the plan, the workspace. `plan` are the statements
/// that create the plan at the first call; `bytes` is its field with the workspace size.
pub(super) fn launcher(name: &str, signature: &str, plan: &str, bytes: &str) -> String {
    format!(
        "extern \"C\" int {name}_launcher({signature}, cudaStream_t stream) {{
  cudnnHandle_t handle = shared_cudnn();
  if (!handle) return 2001;
  cudnnStatus_t status = cudnnSetStream(handle, stream);
{plan}
  void* workspace = nullptr;
  if (cudaError_t error = shared_workspace(plan.{bytes}, &workspace)) return (int)error;"
    )
}

/// cuDNN takes tensors of fewer elements than this.
const MOST_ELEMENTS: i64 = 1 << 31;

/// Maximum workspace of an algorithm in bytes.
const WORKSPACE: i64 = 1 << 30;

/// Number of calls into which a batch is divided, so that cuDNN takes each call's tensors and, if
/// possible, two copies of the operands fit the workspace.
fn parts(op: &Convolution, bytes: i64) -> Result<i64, String> {
    let (x, y) = (numel(&op.shape_of(0)), numel(&op.shape_of(2)));
    let taken = |p: &i64| op.batch % p == 0 && x.max(y) / p < MOST_ELEMENTS;
    let roomy = |p: &i64| 2 * (x + y) / p * bytes <= WORKSPACE;
    let mut possible = (1..=op.batch).filter(taken);
    let least = possible.next();
    let found = least.filter(roomy).or_else(|| possible.find(roomy)).or(least);
    found.ok_or_else(|| "a convolution with images of 2^31 elements or more".to_owned())
}

/// Writes the file of a convolution of input and weights.
pub(crate) fn emit(
    op: &Convolution,
    context: &HeavyContext<'_>,
    places: &[Place; 2],
) -> Result<KernelFile, String> {
    let graph = context.graph;
    let dtype = graph.dtype(context.node);
    let tf32 = context.target.products == Products::Tf32;
    let (kind, compute, math, scale) = match dtype {
        // The default math is TF32 where the device has it.
        DType::F32 if tf32 => {
            ("CUDNN_DATA_FLOAT", "CUDNN_DATA_FLOAT", "CUDNN_DEFAULT_MATH", "float")
        }
        DType::F32 => ("CUDNN_DATA_FLOAT", "CUDNN_DATA_FLOAT", "CUDNN_FMA_MATH", "float"),
        DType::F16 => ("CUDNN_DATA_HALF", "CUDNN_DATA_FLOAT", "CUDNN_TENSOR_OP_MATH", "float"),
        DType::BF16 => ("CUDNN_DATA_BFLOAT16", "CUDNN_DATA_FLOAT", "CUDNN_TENSOR_OP_MATH", "float"),
        DType::F64 => ("CUDNN_DATA_DOUBLE", "CUDNN_DATA_DOUBLE", "CUDNN_DEFAULT_MATH", "double"),
        other => return Err(format!("a convolution of {}", other.torch())),
    };
    let follow = epilogue::write(context, false)?;
    let parts = parts(op, dtype.size())?;
    let fused = if op.transposed { None } else { fused(context) };
    let mut e = context.emitter();
    let buffers = places.map(|place| place.buffer);
    let signature = Signature::new(context, &mut e, &buffers, &follow);
    let dims = |position: usize| {
        let shape = op.shape_of(position);
        let mut out = shape[..2].to_vec();
        if position != 1 {
            out[0] /= parts;
        }
        out.extend(spatial(&shape[2..], 1));
        out
    };
    let (x, w, y) = (dims(0), dims(1), dims(2));
    let rank = x.len();
    let place = |k: usize| {
        let mut out = places[k].address(signature.name_of(places[k].buffer));
        if k == 0 && parts > 1 {
            out.push_str(&format!(" + part * {}LL", numel(&x)));
        }
        out
    };
    let of_part = |name: &str| match parts {
        1 => name.to_owned(),
        _ => format!("{name} + part * {}LL", numel(&y)),
    };
    let raw = of_part(&signature.raw);
    let (get, algorithm, perf, default) = if op.transposed {
        (
            "cudnnGetConvolutionBackwardDataAlgorithm_v7",
            "cudnnConvolutionBwdDataAlgo_t",
            "cudnnConvolutionBwdDataAlgoPerf_t",
            "CUDNN_CONVOLUTION_BWD_DATA_ALGO_1",
        )
    } else {
        (
            "cudnnGetConvolutionForwardAlgorithm_v7",
            "cudnnConvolutionFwdAlgo_t",
            "cudnnConvolutionFwdAlgoPerf_t",
            "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM",
        )
    };
    // Transposed: the gradient of the convolution that goes the other way.
    let descriptors = if op.transposed {
        "plan.w, plan.x, plan.conv, plan.y"
    } else {
        "plan.x, plan.w, plan.conv, plan.y"
    };
    let (size_of, run) = if op.transposed {
        (
            "cudnnGetConvolutionBackwardDataWorkspaceSize",
            format!(
                "cudnnConvolutionBackwardData(handle, &alpha, plan.w, {}, plan.x, {}, plan.conv, plan.algorithm, workspace, plan.bytes, &beta, plan.y, {})",
                place(1),
                place(0),
                raw
            ),
        )
    } else {
        (
            "cudnnGetConvolutionForwardWorkspaceSize",
            format!(
                "cudnnConvolutionForward(handle, &alpha, plan.x, {}, plan.w, {}, plan.conv, plan.algorithm, workspace, plan.bytes, &beta, plan.y, {})",
                place(0),
                place(1),
                raw
            ),
        )
    };
    let variant = context.variant % 2;
    let mut body = vec![HANDLE.to_owned()];
    body.push(format!(
        "namespace {{
// Descriptors and the algorithm, made at the first call.
struct Plan {{
  bool made = false;
  bool fused = {};
  cudnnTensorDescriptor_t x, y, bias;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  cudnnActivationDescriptor_t relu;
  {algorithm} algorithm = {default};
  size_t bytes = 0;
}};
Plan plan;

cudnnStatus_t make_plan(cudnnHandle_t handle) {{
  const int x_dims[] = {}, x_strides[] = {};
  const int y_dims[] = {}, y_strides[] = {};
  const int bias_dims[] = {}, bias_strides[] = {};
  const int w_dims[] = {};
  const int padding[] = {}, stride[] = {}, dilation[] = {};
  cudnnStatus_t status;",
        fused.is_some() && variant == 0,
        list(&x),
        list(&strides_of(&x)),
        list(&y),
        list(&strides_of(&y)),
        list(&bias_shape(&y)),
        list(&strides_of(&bias_shape(&y))),
        list(&w),
        list(&spatial(&op.padding, 0)),
        list(&spatial(&op.stride, 1)),
        list(&spatial(&op.dilation, 1)),
    ));
    let mut step = |call: String| {
        body.push(format!("  if ((status = {call}) != CUDNN_STATUS_SUCCESS) return status;"));
    };
    for d in ["x", "y", "bias"] {
        step(format!("cudnnCreateTensorDescriptor(&plan.{d})"));
        step(format!(
            "cudnnSetTensorNdDescriptor(plan.{d}, {kind}, {rank}, {d}_dims, {d}_strides)"
        ));
    }
    step("cudnnCreateFilterDescriptor(&plan.w)".to_owned());
    step(format!("cudnnSetFilterNdDescriptor(plan.w, {kind}, CUDNN_TENSOR_NCHW, {rank}, w_dims)"));
    step("cudnnCreateConvolutionDescriptor(&plan.conv)".to_owned());
    step(format!(
        "cudnnSetConvolutionNdDescriptor(plan.conv, {}, padding, stride, dilation, CUDNN_CROSS_CORRELATION, {compute})",
        rank - 2
    ));
    step(format!("cudnnSetConvolutionGroupCount(plan.conv, {})", op.groups));
    step(format!("cudnnSetConvolutionMathType(plan.conv, {math})"));
    step("cudnnCreateActivationDescriptor(&plan.relu)".to_owned());
    step(
        "cudnnSetActivationDescriptor(plan.relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0)"
            .to_owned(),
    );
    body.push(format!(
        "  // The algorithm that cuDNN expects to be fastest, in this precision and with bounded memory.
  {perf} found[12];
  int count = 0;
  status = {get}(handle, {descriptors}, 12, &count, found);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  for (int i = 0; i < count; ++i) {{
    const bool right = found[i].status == CUDNN_STATUS_SUCCESS && found[i].memory <= (size_t){WORKSPACE} &&
                       found[i].determinism == CUDNN_DETERMINISTIC{};
    if (right) {{
      plan.algorithm = found[i].algo;{}
      break;
    }}
  }}
  status = {size_of}(handle, {descriptors}, plan.algorithm, &plan.bytes);
  plan.made = status == CUDNN_STATUS_SUCCESS;
  return status;
}}
}}  // namespace
",
        if dtype == DType::F32 { " &&\n                       found[i].mathType != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION" } else { "" },
        // In full precision it stays as it was set.
        if math == "CUDNN_FMA_MATH" { "" } else { "\n      cudnnSetConvolutionMathType(plan.conv, found[i].mathType);" },
    ));
    body.push(launcher(
        &context.name,
        &signature.text,
        "  if (status == CUDNN_STATUS_SUCCESS && !plan.made) status = make_plan(handle);
  if (status != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;",
        "bytes",
    ));
    body.push(format!("  const {scale} alpha = 1, beta = 0;"));
    let fused = fused.filter(|_| variant == 0).map(|fused| {
        let (z, strength) = match fused.residual {
            Some(z) => (of_part(signature.name_of(z)), "&alpha"),
            None => (raw.clone(), "&beta"),
        };
        format!(
            "cudnnConvolutionBiasActivationForward(handle, &alpha, plan.x, {}, plan.w, {}, plan.conv, plan.algorithm,
                                                   workspace, plan.bytes, {strength}, plan.y, {z}, plan.bias, {},
                                                   plan.relu, plan.y, {raw})",
            place(0), place(1), signature.name_of(fused.bias)
        )
    });
    body.push(calls(parts, fused.as_deref(), &run));
    body.push("  if (status != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;".to_owned());
    body.extend(signature.follow(context, &follow).into_iter().map(|l| format!("  {l}")));
    body.push("}".to_owned());
    let what = if op.transposed { "Transposed convolution" } else { "Convolution" };
    let purpose = format!(
        "{what} by cuDNN: {} -> {} channels, kernel {kernel:?}, {} group(s).",
        op.channels_in,
        op.channels_out,
        op.groups,
        kernel = op.kernel
    );
    Ok(signature.file(context, &purpose, "cudnn.h", &follow, &body))
}

/// The calls of a launcher, one per part of the batch: the fused call if it exists and the
/// algorithm supports it, else the plain call.
fn calls(parts: i64, fused: Option<&str>, plain: &str) -> String {
    match (parts, fused) {
        (1, None) => format!("  status = {plain};"),
        (1, Some(fused)) => format!(
            "  if (plan.fused) {{
    status = {fused};
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    plan.fused = false;  // not for this algorithm: the two steps below
  }}
  status = {plain};"
        ),
        (_, None) => format!(
            "  // A large batch goes in parts.
  for (int part = 0; part < {parts} && status == CUDNN_STATUS_SUCCESS; ++part)
    status = {plain};"
        ),
        (_, Some(fused)) => format!(
            "  // A large batch goes in parts.
  for (int part = 0; part < {parts} && status == CUDNN_STATUS_SUCCESS; ++part) {{
    if (plan.fused) {{
      status = {fused};
      if (status == CUDNN_STATUS_SUCCESS || part > 0) continue;
      plan.fused = false;  // not for this algorithm: the two steps below
    }}
    status = {plain};
  }}
  if (plan.fused && status == CUDNN_STATUS_SUCCESS) return 0;"
        ),
    }
}

fn bias_shape(y: &[i64]) -> Vec<i64> {
    y.iter().enumerate().map(|(d, e)| if d == 1 { *e } else { 1 }).collect()
}
