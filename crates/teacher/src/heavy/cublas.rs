//! Matrix products on the GPU: cuBLAS, then one elementwise kernel for the epilogue.

use super::epilogue::{self, Raw};
use super::operand::Stack;
use super::product::Product;
use crate::dtype::DType;
use crate::emit::{Emitter, HeavyContext, KernelFile};
use crate::index::numel;
use crate::ir::NodeId;

/// One handle for all files of the library, because each handle has its own workspace.
const HANDLE: &str = "// The handle that all files of this library share.
inline cublasHandle_t shared_cublas() {
  static cublasHandle_t handle = [] {
    cublasHandle_t made = nullptr;
    if (cublasCreate(&made) != CUBLAS_STATUS_SUCCESS) return (cublasHandle_t) nullptr;
    // Calls say themselves where they want TF32.
    cublasSetMathMode(made, CUBLAS_DEFAULT_MATH);
    return made;
  }();
  return handle;
}
";

/// The parameters of a launcher that calls a library.
pub(super) struct Signature {
    /// Every buffer, in order: inputs, then outputs.
    pub(super) nodes: Vec<NodeId>,
    /// `const float* x, float* out`.
    pub(super) text: String,
    names: Vec<(NodeId, String)>,
    /// Name of the memory that the library writes to.
    pub(super) raw: String,
    pub(super) scratch: Vec<(Vec<i64>, DType)>,
    sizes: Vec<i64>,
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
        let sizes = vec![];
        Self { nodes, text: parts.join(", "), names, raw, scratch, sizes }
    }

    /// Adds numbers that the launcher takes.
    fn take(&mut self, sizes: &[(&str, i64)]) {
        for (name, value) in sizes {
            self.text.push_str(&format!(", int64_t {name}"));
            self.sizes.push(*value);
        }
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
        let count = if follow.count.is_some() { ", count" } else { "" };
        let args = args.join(", ");
        vec![format!("return {}_epilogue_launcher({args}{count}, stream);", context.name)]
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
        KernelFile {
            name: context.name.clone(),
            text,
            args: self.nodes,
            scratch: self.scratch,
            sizes: self.sizes,
        }
    }
}

/// `CUDA_R_32F` and so on, with the accumulation type.
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

/// Precision of float32 products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Full float32.
    Full,
    /// Rounded to TF32, on tensor cores.
    Tf32,
}

/// Parameters of a launcher that takes the sizes of a product.
const SIZES: [&str; 9] = ["m", "n", "k", "lda", "ldb", "batch", "stride_a", "stride_b", "count"];

/// The product of two matrix stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Positions among the stacks.
    pub(crate) a: usize,
    pub(crate) b: usize,
    /// Number of terms that one library call sums; `None` for all.
    pub(crate) depth: Option<i64>,
    /// Whether the result is added to the output. A product of several calls needs this.
    pub(crate) adds: bool,
}

/// Writes the file of a product; `stacks` are the memory of the operands or of their parts. `how`
/// is added to the file's first line.
pub(crate) fn emit(
    op: &Product,
    context: &HeavyContext<'_>,
    stacks: &[(NodeId, Stack)],
    calls: &[Call],
    (precision, how): (Precision, &str),
) -> Result<KernelFile, String> {
    let graph = context.graph;
    let (kind, mut compute, scale) = types(graph.dtype(context.node))?;
    if kind == "CUDA_R_32F" && precision == Precision::Tf32 {
        compute = "CUBLAS_COMPUTE_32F_FAST_TF32";
    }
    let two_level = op.split.0 > 1;
    let plain = |call: &Call| call.depth.is_none_or(|depth| depth >= op.k) && !call.adds;
    let at_run_time = context.sizes && !two_level && matches!(calls, [only] if plain(only));
    let follow = epilogue::write(context, at_run_time)?;
    let mut e = context.emitter();
    if at_run_time {
        for name in SIZES {
            e.declare(name);
        }
    }
    let buffers: Vec<NodeId> = stacks.iter().map(|s| s.0).collect();
    let mut signature = Signature::new(context, &mut e, &buffers, &follow);
    if let ([Call { a, b, .. }], true) = (calls, at_run_time) {
        let ((_, a), (_, b)) = (stacks[*a], stacks[*b]);
        let lead = |blas| letter(blas).map_or(0, |(_, lead)| lead);
        let (lda, ldb) = (lead(a.blas(op.m, op.k)), lead(b.blas(op.k, op.n)));
        signature.take(&[("m", op.m), ("n", op.n), ("k", op.k), ("lda", lda), ("ldb", ldb)]);
        if op.split.1 > 1 {
            let batch = ("batch", op.split.1);
            signature.take(&[batch, ("stride_a", a.inner), ("stride_b", b.inner)]);
        }
        signature.take(&follow.count.map(|count| ("count", count)).into_iter().collect::<Vec<_>>());
    }
    let outer_out = op.split.1 * op.m * op.n;
    let mut body = vec![HANDLE.to_owned()];
    body.push(format!(
        "extern \"C\" int {}_launcher({}, cudaStream_t stream) {{",
        context.name, signature.text
    ));
    body.push("  cublasHandle_t handle = shared_cublas();".to_owned());
    body.push("  if (!handle) return 1001;".to_owned());
    body.push("  cublasStatus_t status = cublasSetStream(handle, stream);".to_owned());
    let one = if calls.iter().any(|c| c.adds) { ", one = 1" } else { "" };
    body.push(format!("  const {scale} alpha = 1, beta = 0{one};"));
    let indent = if two_level {
        body.push(format!(
            "  for (int outer = 0; outer < {} && status == CUBLAS_STATUS_SUCCESS; ++outer) {{",
            op.split.0
        ));
        "    "
    } else {
        "  "
    };
    let out = place(&signature.raw, 0, outer_out, two_level);
    let (m, n, many) = (op.m, op.n, op.split.1);
    for (i, call) in calls.iter().enumerate() {
        let ((a_node, a), (b_node, b)) = (stacks[call.a], stacks[call.b]);
        let depth = call.depth.filter(|depth| *depth < op.k);
        // BLAS counts columns first, so it is asked for the transpose: (A B)' = B' A'.
        let (ta, lead_a) = letter(a.blas(op.m, op.k)).ok_or("the first operand is not for BLAS")?;
        let (tb, lead_b) =
            letter(b.blas(op.k, op.n)).ok_or("the second operand is not for BLAS")?;
        let from = |node, stack: &Stack, step: i64| {
            let at = place(signature.name_of(node), stack.base, stack.outer, two_level);
            let steps = if step == 1 { String::new() } else { format!(" * {step}LL") };
            if depth.is_some() { format!("{at} + first{steps}") } else { at }
        };
        let (x, w) = (from(a_node, &a, a.col), from(b_node, &b, b.row));
        let all = op.k;
        let k = match depth {
            None => all.to_string(),
            Some(depth) if all % depth == 0 => depth.to_string(),
            Some(depth) => format!("{all} - first < {depth} ? {all} - first : {depth}"),
        };
        let strides = (b.inner, a.inner, m * n);
        // A number, or the name of the parameter that has it.
        let named = |name: &str, value: i64| {
            if at_run_time { format!("(int){name}") } else { value.to_string() }
        };
        let long = |name: &str, value: i64| {
            if at_run_time { name.to_owned() } else { format!("{value}LL") }
        };
        let k = if at_run_time { "(int)k".to_owned() } else { k };
        let (m, n, many_text) = (named("m", m), named("n", n), named("batch", many));
        let many_text = if many > 1 { many_text } else { "1".to_owned() };
        let (lead_a, lead_b) = (named("lda", lead_a), named("ldb", lead_b));
        let (stride_a, stride_b) = if many > 1 {
            (long("stride_a", strides.1), long("stride_b", strides.0))
        } else {
            ("0LL".to_owned(), "0LL".to_owned())
        };
        let stride_out = if at_run_time { "m * n".to_owned() } else { format!("{}LL", strides.2) };
        let beta = if call.adds { "&one" } else { "&beta" };
        let single = kind == "CUDA_R_32F" && precision == Precision::Full;
        let text = match (single, many > 1) {
            (true, false) => format!(
                "cublasSgemm(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {lead_b}, {x}, {lead_a}, {beta}, {out}, {n});"
            ),
            (true, true) => format!(
                "cublasSgemmStridedBatched(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {lead_b}, {stride_b}, {x}, {lead_a}, {stride_a}, {beta}, {out}, {n}, {stride_out}, {many_text});",
            ),
            (false, _) => format!(
                "cublasGemmStridedBatchedEx(handle, {tb}, {ta}, {n}, {m}, {k}, &alpha, {w}, {kind}, {lead_b}, {stride_b}, {x}, {kind}, {lead_a}, {stride_a}, {beta}, {out}, {kind}, {n}, {stride_out}, {many_text}, {compute}, CUBLAS_GEMM_DEFAULT);",
            ),
        };
        if let Some(depth) = depth {
            body.push(format!(
                "{indent}for (int first = 0; first < {all} && status == CUBLAS_STATUS_SUCCESS; first += {depth}) {{"
            ));
            body.push(format!("{indent}  status = {text}"));
            body.push(format!("{indent}}}"));
            continue;
        }
        // The loop over a two-level batch looks at the status of the call before.
        let looked = two_level && i == 0;
        let guard = if looked { "" } else { "if (status == CUBLAS_STATUS_SUCCESS) " };
        body.push(format!("{indent}{guard}status = {text}"));
    }
    if two_level {
        body.push("  }".to_owned());
    }
    body.push("  if (status != CUBLAS_STATUS_SUCCESS) return 1000 + (int)status;".to_owned());
    body.extend(signature.follow(context, &follow).into_iter().map(|l| format!("  {l}")));
    body.push("}".to_owned());
    if numel(graph.shape(context.node)) == 0 {
        return Err("an empty product".to_owned());
    }
    let (batch, k) = (op.batch(), op.k);
    let purpose = if at_run_time {
        format!("Matrix product by cuBLAS{how}: [m, k] times [k, n].")
    } else {
        format!("Matrix product by cuBLAS{how}: {batch} x [{m}, {k}] times [{k}, {n}].")
    };
    Ok(signature.file(context, &purpose, "cublas_v2.h", &follow, &body))
}

/// cuBLAS's operation for a transposed or plain matrix, and its leading dimension.
fn letter(blas: Option<(bool, i64)>) -> Option<(&'static str, i64)> {
    blas.map(|(turned, lead)| (if turned { "CUBLAS_OP_T" } else { "CUBLAS_OP_N" }, lead))
}
