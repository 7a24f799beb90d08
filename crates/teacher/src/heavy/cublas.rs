//! Products on the GPU: cuBLAS in full precision, and what follows in one elementwise kernel.

use super::epilogue::{self, Raw};
use super::operand::Stack;
use super::product::Product;
use crate::dtype::DType;
use crate::emit::{Emitter, HeavyContext, KernelFile};
use crate::index::numel;
use crate::ir::NodeId;

/// One handle for all files of the library: each handle has its own workspace.
const HANDLE: &str = "// The handle that all files of this library share.
inline cublasHandle_t shared_cublas() {
  static cublasHandle_t handle = [] {
    cublasHandle_t made = nullptr;
    if (cublasCreate(&made) != CUBLAS_STATUS_SUCCESS) return (cublasHandle_t) nullptr;
    // Full precision: no TF32.
    cublasSetMathMode(made, CUBLAS_DEFAULT_MATH);
    return made;
  }();
  return handle;
}
";

/// The parameters of a launcher that calls a library.
pub(super) struct Signature {
    /// Every buffer, in order: what is read, then what is written.
    pub(super) nodes: Vec<NodeId>,
    /// `const float* x, float* out`.
    pub(super) text: String,
    names: Vec<(NodeId, String)>,
    /// Name of the memory that the library writes to.
    pub(super) raw: String,
    pub(super) scratch: Vec<(Vec<i64>, DType)>,
}

impl Signature {
    pub(super) fn new(
        context: &HeavyContext<'_>,
        e: &mut Emitter<'_>,
        operands: &[NodeId],
        follow: &epilogue::Epilogue,
    ) -> Self {
        let graph = context.graph;
        for taken in ["handle", "status", "stream", "alpha", "beta", "outer", "plan", "error"] {
            e.declare(taken);
        }
        let extra =
            follow.args.iter().filter(|n| !context.stores.contains(n) && **n != context.node);
        for n in operands.iter().chain(extra) {
            e.param(*n);
        }
        let mut names: Vec<(NodeId, String)> =
            e.reads.iter().map(|n| (*n, e.param_of(*n).to_owned())).collect();
        let reads = names.len();
        for s in &context.stores {
            names.push((*s, e.output_param(*s)));
        }
        let mut parts: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(i, (n, name))| {
                let constant = if i < reads { "const " } else { "" };
                format!("{constant}{}* {name}", graph.dtype(*n).storage())
            })
            .collect();
        let mut scratch = Vec::new();
        let name_of = |node: NodeId| {
            names
                .iter()
                .rev()
                .find(|(n, _)| *n == node)
                .map_or_else(String::new, |(_, s)| s.clone())
        };
        let raw = match follow.raw {
            Raw::Store(node) => name_of(node),
            Raw::Scratch => {
                let dtype = graph.dtype(context.node);
                parts.push(format!("{}* scratch", dtype.storage()));
                scratch.push((graph.shape(context.node).to_vec(), dtype));
                "scratch".to_owned()
            }
        };
        let nodes = names.iter().map(|(n, _)| *n).collect();
        Self { nodes, text: parts.join(", "), names, raw, scratch }
    }

    /// The launcher's name for a buffer.
    pub(super) fn name_of(&self, node: NodeId) -> &str {
        self.names.iter().rev().find(|(n, _)| *n == node).map_or("", |(_, s)| s)
    }

    /// Statements that call the epilogue; none if nothing follows.
    pub(super) fn follow(
        &self,
        context: &HeavyContext<'_>,
        follow: &epilogue::Epilogue,
    ) -> Vec<String> {
        if follow.text.is_empty() {
            return vec!["return 0;".to_owned()];
        }
        let args: Vec<&str> = follow
            .args
            .iter()
            .map(|n| if *n == context.node { &*self.raw } else { self.name_of(*n) })
            .collect();
        vec![format!("return {}_epilogue_launcher({}, stream);", context.name, args.join(", "))]
    }

    /// The file.
    pub(super) fn file(
        self,
        context: &HeavyContext<'_>,
        purpose: &str,
        include: &str,
        follow: &epilogue::Epilogue,
        body: &[String],
    ) -> KernelFile {
        let mut text = String::new();
        for l in epilogue::comment(context, purpose).lines() {
            text.push_str(&format!("// {l}\n"));
        }
        text.push_str(&format!("#include <{include}>\n"));
        if follow.text.is_empty() {
            text.push_str("#include <cuda_runtime.h>\n");
            if self.text.contains("__half") {
                text.push_str("#include <cuda_fp16.h>\n");
            }
            if self.text.contains("bfloat16") {
                text.push_str("#include <cuda_bf16.h>\n");
            }
            text.push_str("#include <cstdint>\n\n");
        }
        text.push_str(&follow.text);
        text.push('\n');
        for l in body {
            text.push_str(l);
            text.push('\n');
        }
        KernelFile { name: context.name.clone(), text, args: self.nodes, scratch: self.scratch }
    }
}

/// `CUDA_R_32F` and so on, with the type that sums are kept in.
fn types(dtype: DType) -> Result<(&'static str, &'static str, &'static str), String> {
    Ok(match dtype {
        DType::F32 => ("CUDA_R_32F", "CUBLAS_COMPUTE_32F", "float"),
        DType::F16 => ("CUDA_R_16F", "CUBLAS_COMPUTE_32F", "float"),
        DType::BF16 => ("CUDA_R_16BF", "CUBLAS_COMPUTE_32F", "float"),
        DType::F64 => ("CUDA_R_64F", "CUBLAS_COMPUTE_64F", "double"),
        other => return Err(format!("a matrix product of {}", other.torch())),
    })
}

/// `x` or `x + 64`, with a variable part.
fn place(name: &str, base: i64, outer: i64, two_level: bool) -> String {
    let mut out = name.to_owned();
    if base > 0 {
        out.push_str(&format!(" + {base}"));
    }
    if two_level && outer > 0 {
        out.push_str(&format!(" + outer * {outer}LL"));
    }
    out
}

/// Writes the file of a product; `stacks` are the operands' memory.
pub(crate) fn emit(
    op: &Product,
    context: &HeavyContext<'_>,
    stacks: &[(NodeId, Stack)],
) -> Result<KernelFile, String> {
    let graph = context.graph;
    let (kind, compute, scale) = types(graph.dtype(context.node))?;
    let follow = epilogue::write(context)?;
    let mut e = context.emitter();
    let buffers: Vec<NodeId> = stacks.iter().map(|s| s.0).collect();
    let signature = Signature::new(context, &mut e, &buffers, &follow);
    let (a, b) = (&stacks[0].1, &stacks[1].1);
    let (turned_a, lead_a) =
        a.blas(op.m, op.k).ok_or("the first operand is not laid out for BLAS")?;
    let (turned_b, lead_b) =
        b.blas(op.k, op.n).ok_or("the second operand is not laid out for BLAS")?;
    let two_level = op.split.0 > 1;
    // BLAS counts columns first, so it is asked for the transpose: (A B)' = B' A'.
    let letter = |turned: bool| if turned { "CUBLAS_OP_T" } else { "CUBLAS_OP_N" };
    let outer_out = op.split.1 * op.m * op.n;
    let mut body = vec![HANDLE.to_owned()];
    body.push(format!(
        "extern \"C\" int {}_launcher({}, cudaStream_t stream) {{",
        context.name, signature.text
    ));
    body.push("  cublasHandle_t handle = shared_cublas();".to_owned());
    body.push("  if (!handle) return 1001;".to_owned());
    body.push("  cublasStatus_t status = cublasSetStream(handle, stream);".to_owned());
    body.push(format!("  const {scale} alpha = 1, beta = 0;"));
    let indent = if two_level {
        body.push(format!(
            "  for (int outer = 0; outer < {} && status == CUBLAS_STATUS_SUCCESS; ++outer) {{",
            op.split.0
        ));
        "    "
    } else {
        "  "
    };
    let guard = if two_level { "" } else { "if (status == CUBLAS_STATUS_SUCCESS) " };
    let x = place(signature.name_of(stacks[0].0), a.base, a.outer, two_level);
    let w = place(signature.name_of(stacks[1].0), b.base, b.outer, two_level);
    let out = place(&signature.raw, 0, outer_out, two_level);
    let (m, n, k) = (op.m, op.n, op.k);
    let (ta, tb) = (letter(turned_a), letter(turned_b));
    let many = op.split.1 > 1;
    let single = kind == "CUDA_R_32F";
    let call = match (single, many) {
        (true, false) => format!(
            "cublasSgemm(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {lead_b}, {x}, {lead_a}, &beta, {out}, {n});"
        ),
        (true, true) => format!(
            "cublasSgemmStridedBatched(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {lead_b}, {}LL, {x}, {lead_a}, {}LL, &beta, {out}, {n}, {}LL, {});",
            b.inner,
            a.inner,
            m * n,
            op.split.1
        ),
        (false, _) => format!(
            "cublasGemmStridedBatchedEx(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {kind}, {lead_b}, {}LL, {x}, {kind}, {lead_a}, {}LL, &beta, {out}, {kind}, {n}, {}LL, {}, {compute}, CUBLAS_GEMM_DEFAULT);",
            b.inner,
            a.inner,
            m * n,
            op.split.1
        ),
    };
    body.push(format!("{indent}{guard}status = {call}"));
    if two_level {
        body.push("  }".to_owned());
    }
    body.push("  if (status != CUBLAS_STATUS_SUCCESS) return 1000 + (int)status;".to_owned());
    body.extend(signature.follow(context, &follow).into_iter().map(|l| format!("  {l}")));
    body.push("}".to_owned());
    if numel(graph.shape(context.node)) == 0 {
        return Err("an empty product".to_owned());
    }
    let purpose =
        format!("Matrix product by cuBLAS: {} x [{m}, {k}] times [{k}, {n}].", op.batch());
    Ok(signature.file(context, &purpose, "cublas_v2.h", &follow, &body))
}
