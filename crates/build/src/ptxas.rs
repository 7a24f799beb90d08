//! Registers, spills and shared memory per kernel, from `ptxas -v`.

use warpwright_record::verdict::KernelResources;

use crate::demangle::kernel_name;

/// Kernels that `output` reports, sorted by name. Device functions that were not inlined have
/// properties of their own there, which belong to no kernel and are skipped.
///
/// The lines look like this; the second and third repeat per function:
///
/// ```text
/// ptxas info    : Compiling entry function '_Z4axpyPf' for 'sm_90'
/// ptxas info    : Function properties for _Z4axpyPf
///     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem
/// ```
pub(crate) fn parse(output: &str) -> Vec<KernelResources> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    let mut entry = String::new();
    let mut current: Option<KernelResources> = None;
    let mut in_entry = false;
    for line in output.lines() {
        if let Some(rest) = after(line, "Compiling entry function '") {
            let mut parts = rest.split('\'');
            entry = String::from(parts.next().unwrap_or_default());
            let arch = parts.nth(1).unwrap_or_default().to_owned();
            let name = kernel_name(&entry);
            kernels.extend(current.take());
            current = Some(KernelResources {
                name,
                arch,
                registers: 0,
                spill_store_bytes: 0,
                spill_load_bytes: 0,
                shared_bytes: 0,
                stack_bytes: 0,
            });
        } else if let Some(function) = after(line, "Function properties for ") {
            in_entry = function.trim() == entry;
        } else if let Some(kernel) = current.as_mut() {
            if in_entry && line.contains("bytes stack frame") {
                kernel.stack_bytes = before(line, " bytes stack frame");
                kernel.spill_store_bytes = before(line, " bytes spill stores");
                kernel.spill_load_bytes = before(line, " bytes spill loads");
            } else if let Some(used) = after(line, ": Used ") {
                kernel.registers = before(used, " registers");
                kernel.shared_bytes = before(used, " bytes smem");
            }
        }
    }
    kernels.extend(current);
    kernels.sort_by(|a, b| (&a.name, &a.arch).cmp(&(&b.name, &b.arch)));
    kernels
}

/// `output` without the lines that [`parse`] reads, for readers.
pub(crate) fn without_reports(output: &str) -> String {
    let report = |line: &str| {
        line.starts_with("ptxas info") || line.trim_start().contains("bytes stack frame")
    };
    output.lines().filter(|l| !report(l)).fold(String::new(), |text, line| text + line + "\n")
}

fn after<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.find(marker).map(|at| &line[at + marker.len()..])
}

/// The number right before `marker`, or 0.
fn before(line: &str, marker: &str) -> u32 {
    let Some(at) = line.find(marker) else { return 0 };
    let digits = line[..at].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
    line[digits..at].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN2ns5axpbyIfLi256EEEvPKT_PS1_i' for 'sm_90'
ptxas info    : Function properties for _ZN2ns5axpbyIfLi256EEEvPKT_PS1_i
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem, 380 bytes cmem[0]
ptxas info    : Function properties for _Z6helperf
    96 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compile time = 8.721 ms
ptxas info    : Compiling entry function '_Z5plainPf' for 'sm_90'
ptxas info    : Function properties for _Z5plainPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
a.cu(3): warning #177-D: variable \"x\" was declared but never referenced
";

    #[test]
    fn resources_are_read_for_kernels_only() {
        let kernels = parse(OUTPUT);
        let names: Vec<_> = kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, ["ns::axpby<float, 256>", "plain"]);
        let first = &kernels[0];
        assert_eq!((first.registers, first.shared_bytes, first.stack_bytes), (10, 1024, 16));
        assert_eq!((first.spill_store_bytes, first.spill_load_bytes), (8, 12));
        assert_eq!(kernels[1].registers, 255);
        assert_eq!(kernels[1].arch, "sm_90");
    }

    #[test]
    fn other_compiler_messages_are_kept() {
        assert_eq!(without_reports(OUTPUT).lines().count(), 1);
    }
}
