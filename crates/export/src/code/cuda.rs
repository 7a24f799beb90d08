//! A GPU: launches by the driver in the caller's stream and in streams of the plan, and products of cuBLAS.

use std::collections::BTreeMap;

use warpwright_plan::{Gemm, GemmScalar, Gemv, Launch, Memory, Node, Op, TensorMap};

use super::{Code, address, array};
use crate::error::ExportError;
use crate::names::{comment, literal};

/// `CUDA_R_64F`.
const DOUBLE: u32 = 1;
/// Bytes of an encoded tensor map.
const MAP_BYTES: usize = 128;

pub(super) fn begin(code: &mut Code<'_>) {
    let plan = code.plan;
    code.line("#include \"launch_cuda.h\"\n\nnamespace {");
    code.line("const WwKernel kKernels[] = {");
    for kernel in &plan.kernels {
        let unset = || "kWwUnset".to_owned();
        let shared = kernel.max_dynamic_shared.map_or_else(unset, |bytes| bytes.to_string());
        let carveout = kernel.shared_carveout.map_or_else(unset, |percent| percent.to_string());
        let (name, cluster) = (literal(&kernel.name), kernel.nonportable_cluster);
        code.line(&format!("    {{{}, {name}, {shared}, {carveout}, {cluster}}},", kernel.module));
    }
    code.line("    {0, \"\", 0, 0, false},\n};\nconst WwSymbol kSymbols[] = {");
    let symbols: Vec<String> = code
        .symbols()
        .iter()
        .map(|(module, name)| format!("    {{{module}, {}}},", literal(name)))
        .collect();
    for symbol in &symbols {
        code.line(symbol);
    }
    let nodes = || plan.prepare.iter().chain(&plan.forward);
    let streams = nodes().map(|node| node.stream + 1).max().unwrap_or(1);
    let events = events(&plan.prepare).len().max(events(&plan.forward).len());
    let products = nodes().any(|node| matches!(node.op, Op::Gemm(_) | Op::Gemv(_)));
    let counts = [plan.modules.len(), plan.kernels.len(), symbols.len()];
    let [modules, kernels, variables] = counts;
    code.line("    {0, \"\"},\n};");
    code.line(&format!(
        "const WwPlan kPlan = {{{modules}, kKernels, {kernels}, kSymbols, {variables}, {streams}, {events}, {products}}};"
    ));
    let maps: Vec<String> = plan.tensor_maps.iter().map(tensor_map).collect();
    for (index, map) in maps.iter().enumerate() {
        code.line(&format!("const WwTensorMap kMap{index} = {map};"));
    }
}

/// Streams whose products of cuBLAS need a workspace: those before this number.
pub(super) fn library_streams(nodes: &[Node]) -> u32 {
    let products = nodes.iter().filter(|node| matches!(node.op, Op::Gemm(_) | Op::Gemv(_)));
    products.map(|node| node.stream + 1).max().unwrap_or(0)
}

pub(super) fn node(
    code: &mut Code<'_>,
    phase: &str,
    index: usize,
    node: &Node,
) -> Result<(), ExportError> {
    let stream = node.stream;
    if let Op::Upload(upload) = &node.op
        && upload.relocations.is_empty()
    {
        let values = super::values(&upload.bytes);
        let length = upload.bytes.len().max(1);
        code.line(&format!("const unsigned char {phase}_bytes_{index}[{length}] = {{{values}}};"));
    }
    code.line(&format!(
        "inline int {phase}_{index}(const WwState& s, const WwCall& c, const Blocks& b) {{"
    ));
    code.line("  (void)c;\n  (void)b;");
    match &node.op {
        Op::Launch(launch) => write_launch(code, stream, launch, is_first(code, phase, index))?,
        Op::Fill(fill) => {
            let (value, element, to) = (fill.value, fill.element, memory(code, &fill.to));
            let rows = format!("{}u, {}u, {}u", fill.width, fill.height, fill.pitch);
            code.line(&format!(
                "  return ww_fill(s, {stream}, {to}, {value}u, {element}, {rows});"
            ));
        }
        Op::Copy(copy) => {
            let (to, from) = (memory(code, &copy.to), memory(code, &copy.from));
            let rows = format!("{}u, {}u", copy.width, copy.height);
            let pitches = format!("{}u, {}u", copy.to_pitch, copy.from_pitch);
            code.line(&format!("  return ww_copy(s, {stream}, {to}, {from}, {rows}, {pitches});"));
        }
        Op::Upload(upload) => {
            let (to, length) = (memory(code, &upload.to), upload.bytes.len());
            let lasting = upload.relocations.is_empty();
            let from = if lasting { format!("{phase}_bytes_{index}") } else { "bytes".to_owned() };
            if !lasting {
                code.bytes("bytes", &upload.bytes, &upload.relocations);
            }
            code.line(&format!(
                "  return ww_upload(s, {stream}, {to}, {from}, {length}u, {lasting});"
            ));
        }
        Op::Gemm(gemm) => write_gemm(code, stream, gemm)?,
        Op::Gemv(gemv) => write_gemv(code, stream, gemv)?,
        Op::Matmul(_) => return Err(ExportError::Unsupported { what: "calls cuBLASLt" }),
        Op::Convolution(_) => return Err(ExportError::Unsupported { what: "calls cuDNN" }),
    }
    code.line("}");
    Ok(())
}

/// Whether a node is the first of its stream: it must not begin before the call before has ended.
fn is_first(code: &Code<'_>, phase: &str, index: usize) -> bool {
    let nodes = if phase == "prepare" { &code.plan.prepare } else { &code.plan.forward };
    let stream = nodes.get(index).map(|node| node.stream);
    !nodes.iter().take(index).any(|node| Some(node.stream) == stream)
}

fn write_launch(
    code: &mut Code<'_>,
    stream: u32,
    launch: &Launch,
    first: bool,
) -> Result<(), ExportError> {
    let name = code.plan.kernels.get(launch.kernel as usize).map_or("", |kernel| &kernel.name);
    let name = comment(name);
    code.line(&format!("  // {name}"));
    for (number, argument) in launch.args.iter().enumerate() {
        let variable = format!("a{number}");
        code.argument(&variable, argument);
        for (at, map) in &argument.tensor_maps {
            let what = "a tensor map lies outside its argument";
            let inside = (*at as usize).checked_add(MAP_BYTES);
            let inside = inside.is_some_and(|end| end <= argument.bytes.len());
            let known = code.plan.tensor_maps.get(*map as usize).filter(|_| inside);
            let to = address(known.ok_or(ExportError::Contradiction { what })?.address);
            code.line(&format!(
                "  if (const int code = ww_encode({variable} + {at}, kMap{map}, {to})) return code;"
            ));
        }
    }
    let args: Vec<String> = (0..launch.args.len()).map(|number| format!("a{number}")).collect();
    let args = if args.is_empty() { "nullptr".to_owned() } else { args.join(", ") };
    code.line(&format!("  void* args[] = {{{args}}};"));
    let mut attributes = Vec::new();
    if let Some([x, y, z]) = launch.cluster {
        attributes.push(format!("{{4, 0, {{{x}, {y}, {z}}}}}"));
    }
    if launch.cooperative {
        attributes.push("{2, 0, {1}}".to_owned());
    }
    let programmatic = launch.programmatic && !first;
    if programmatic {
        attributes.push("{6, 0, {1}}".to_owned());
    }
    let count = attributes.len();
    if count > 0 {
        let attributes = attributes.join(", ");
        code.line(&format!("  const WwAttribute attributes[] = {{{attributes}}};"));
    }
    let (grid, block, shared) = (array(&launch.grid), array(&launch.block), launch.shared);
    let list = if count > 0 { "attributes" } else { "nullptr" };
    code.line(&format!(
        "  const WwConfig config = {{{grid}, {block}, {shared}, nullptr, {list}, {count}}};"
    ));
    let kernel = launch.kernel;
    code.line(&format!("  return ww_launch(s, {stream}, {kernel}, config, {programmatic}, args);"));
    Ok(())
}

fn number(value: impl TryInto<i32>) -> Result<i32, ExportError> {
    let what = "a product is larger than cuBLAS takes";
    value.try_into().map_err(|_| ExportError::Contradiction { what })
}

fn numbers<T: Copy + TryInto<i32>, const N: usize>(
    values: [T; N],
) -> Result<[i32; N], ExportError> {
    let mut made = [0; N];
    for (to, from) in made.iter_mut().zip(values) {
        *to = number(from)?;
    }
    Ok(made)
}

fn write_gemm(code: &mut Code<'_>, stream: u32, gemm: &Gemm) -> Result<(), ExportError> {
    let fields = [
        array(&gemm.transpose),
        array(&numbers(gemm.sizes)?),
        array(&numbers(gemm.types.map(|kind| kind.0))?),
        array(&numbers(gemm.leading)?),
        array(&gemm.strides.map(wide)),
        number(gemm.batch)?.to_string(),
        scalar(gemm.alpha),
        scalar(gemm.beta),
        number(gemm.compute)?.to_string(),
        number(gemm.math)?.to_string(),
        gemm.algorithm.to_string(),
        gemm.pointers.to_string(),
    ];
    let [a, b, c] = gemm.operands.map(address);
    code.line(&format!("  static const WwGemm product = {{{}}};", fields.join(", ")));
    code.line(&format!("  return ww_gemm(s, {stream}, c.library, product, {a}, {b}, {c});"));
    Ok(())
}

fn write_gemv(code: &mut Code<'_>, stream: u32, gemv: &Gemv) -> Result<(), ExportError> {
    let fields = [
        gemv.transpose.to_string(),
        array(&numbers(gemv.sizes)?),
        number(gemv.leading)?.to_string(),
        array(&numbers(gemv.steps)?),
        array(&gemv.strides.map(wide)),
        number(gemv.batch)?.to_string(),
        (gemv.dtype == DOUBLE).to_string(),
        scalar(gemv.alpha),
        scalar(gemv.beta),
        number(gemv.math)?.to_string(),
    ];
    let [matrix, vector, result] = gemv.operands.map(address);
    code.line(&format!("  static const WwGemv product = {{{}}};", fields.join(", ")));
    code.line(&format!(
        "  return ww_gemv(s, {stream}, c.library, product, {matrix}, {vector}, {result});"
    ));
    Ok(())
}

fn wide(value: i64) -> String {
    format!("{value}LL")
}

/// Sixteen bytes, the most that cuBLAS reads for any type; the value comes first.
fn scalar(scalar: GemmScalar) -> String {
    let low = match scalar {
        GemmScalar::F32(bits) => u64::from(bits),
        GemmScalar::F64(bits) => bits,
        GemmScalar::I32(value) => u64::from(value.cast_unsigned()),
        GemmScalar::F16(bits) => u64::from(bits),
    };
    format!("{{{low}u, 0u}}")
}

fn tensor_map(map: &TensorMap) -> String {
    let rank = map.dims.len();
    let fields = [
        format!("{}u", map.dtype),
        rank.to_string(),
        array(&map.dims.iter().map(|extent| format!("{extent}u")).collect::<Vec<_>>()),
        array(&map.strides.iter().map(|bytes| format!("{bytes}u")).collect::<Vec<_>>()),
        array(&map.box_dims),
        array(&map.element_strides),
        format!("{}u", map.interleave),
        format!("{}u", map.swizzle),
        format!("{}u", map.l2_promotion),
        format!("{}u", map.oob_fill),
    ];
    format!("{{{}}}", fields.join(", "))
}

fn memory(code: &Code<'_>, memory: &Memory) -> String {
    match memory {
        Memory::Block(to) => address(*to),
        Memory::Symbol { module, name, offset } => {
            let known = code.symbols();
            let index = known.iter().position(|symbol| *symbol == (*module, name.as_str()));
            format!("s.symbols[{}] + {offset}u", index.unwrap_or_default())
        }
    }
}

/// The event of each node that another waits for.
fn events(nodes: &[Node]) -> BTreeMap<u32, usize> {
    let mut awaited: Vec<u32> = nodes.iter().flat_map(|node| node.after.iter().copied()).collect();
    awaited.sort_unstable();
    awaited.dedup();
    awaited.into_iter().zip(0..).collect()
}

pub(super) fn phase(code: &mut Code<'_>, phase: &str, nodes: &[Node]) {
    code.line(&format!("int {phase}(WwState& s, const WwCall& c) {{"));
    code.line("  const Blocks b = blocks(c);\n  (void)b;");
    code.line("  if (const int code = ww_begin(s, c)) return code;");
    let events = events(nodes);
    for (index, node) in (0u32..).zip(nodes) {
        let stream = node.stream;
        let waits = node.after.iter().filter_map(|after| events.get(after));
        let mut steps: Vec<String> =
            waits.map(|event| format!("ww_wait(s, {stream}, {event})")).collect();
        steps.push(format!("{phase}_{index}(s, c, b)"));
        steps.extend(events.get(&index).map(|event| format!("ww_record(s, {stream}, {event})")));
        for step in steps {
            code.line(&format!("  if (const int code = {step}) return code;"));
        }
    }
    code.line("  return ww_end(s);\n}");
}
