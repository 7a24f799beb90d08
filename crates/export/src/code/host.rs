//! The cpu device: kernels are entries of libraries, which are called one after the other.

use warpwright_plan::{Address, Memory, Node, Op};

use super::{Code, address, array};
use crate::error::ExportError;
use crate::names::comment;

pub(super) fn begin(code: &mut Code<'_>) -> Result<(), ExportError> {
    code.line("#include \"launch_host.h\"\n\nnamespace {");
    code.line("const WwKernel kKernels[] = {");
    for kernel in &code.plan.kernels {
        let offset = kernel.name.rsplit_once('@').map_or(kernel.name.as_str(), |(_, at)| at);
        let offset = offset.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let what = "a kernel has no place in its library";
        let offset = offset.ok_or(ExportError::Contradiction { what })?;
        let name = comment(&kernel.name);
        code.line(&format!("    {{{}, {offset}u}},  // {name}", kernel.module));
    }
    let (modules, kernels) = (code.plan.modules.len(), code.plan.kernels.len());
    code.line("    {0, 0},\n};");
    code.line(&format!("const WwPlan kPlan = {{{modules}, kKernels, {kernels}}};"));
    Ok(())
}

pub(super) fn node(
    code: &mut Code<'_>,
    phase: &str,
    index: usize,
    node: &Node,
) -> Result<(), ExportError> {
    code.line(&format!("inline int {phase}_{index}(const WwState& s, const Blocks& b) {{"));
    code.line("  (void)s;\n  (void)b;");
    match &node.op {
        Op::Launch(launch) => {
            for (number, argument) in launch.args.iter().enumerate() {
                code.argument(&format!("a{number}"), argument);
            }
            let args: Vec<String> = (0..launch.args.len()).map(|n| format!("a{n}")).collect();
            let args = if args.is_empty() { "nullptr".to_owned() } else { args.join(", ") };
            let (grid, block) = (array(&launch.grid), array(&launch.block));
            let shared = launch.shared;
            code.line(&format!("  const void* args[] = {{{args}}};"));
            code.line(&format!("  const WwGeometry geometry = {{{grid}, {block}, {shared}}};"));
            code.line(&format!("  return ww_launch(s, {}, geometry, args);", launch.kernel));
        }
        Op::Fill(fill) => {
            let (value, element) = (fill.value, fill.element);
            let rows = format!("{}u, {}u, {}u", fill.width, fill.height, fill.pitch);
            let to = memory(&fill.to);
            code.line(&format!("  return ww_fill({to}, {value}u, {element}, {rows});"));
        }
        Op::Copy(copy) => {
            let (to, from) = (memory(&copy.to), memory(&copy.from));
            let rows = format!("{}u, {}u", copy.width, copy.height);
            let pitches = format!("{}u, {}u", copy.to_pitch, copy.from_pitch);
            code.line(&format!("  return ww_copy({to}, {from}, {rows}, {pitches});"));
        }
        Op::Upload(upload) => {
            code.bytes("bytes", &upload.bytes, &upload.relocations);
            let (to, length) = (memory(&upload.to), upload.bytes.len());
            code.line(&format!(
                "  return ww_copy({to}, reinterpret_cast<const char*>(bytes), {length}u, 1, 0, 0);"
            ));
        }
        Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_) | Op::Convolution(_) => {
            return Err(ExportError::Unsupported { what: "calls a library on the cpu device" });
        }
    }
    code.line("}");
    Ok(())
}

pub(super) fn phase(code: &mut Code<'_>, phase: &str, nodes: &[Node]) {
    code.line(&format!("int {phase}(const WwState& s, const WwCall& c) {{"));
    code.line("  const Blocks b = blocks(c);\n  (void)s;\n  (void)b;");
    for index in 0..nodes.len() {
        code.line(&format!("  if (const int code = {phase}_{index}(s, b)) return code;"));
    }
    code.line("  return 0;\n}");
}

/// A library's only variable is its image.
fn memory(memory: &Memory) -> String {
    match memory {
        Memory::Block(Address { block, offset }) => {
            address(Address { block: *block, offset: *offset })
        }
        Memory::Symbol { module, offset, .. } => format!("s.images[{module}] + {offset}u"),
    }
}
