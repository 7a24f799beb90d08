//! Detects Triton kernels, which candidates write out of habit. They are refused early and by name,
//! instead of with the error of a launch without a driver or a compiler. An unused import is
//! harmless.

/// Line of the first function that Triton compiles; 1-based.
pub(crate) fn kernel(text: &str) -> Option<u32> {
    // What the module, and its function `jit`, are called here.
    let (mut modules, mut functions): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(named) = line.strip_prefix("import ") {
            for import in named.split(',').map(str::trim) {
                let (name, alias) = import.split_once(" as ").unwrap_or((import, import));
                if name.trim() == "triton" {
                    modules.push(alias.trim());
                }
            }
        } else if let Some(named) = line.strip_prefix("from triton import ") {
            for import in named.trim_matches(['(', ')']).split(',').map(str::trim) {
                let (name, alias) = import.split_once(" as ").unwrap_or((import, import));
                if name.trim() == "jit" {
                    functions.push(alias.trim());
                }
            }
        }
    }
    let jit = |line: &str| {
        let line = line.trim_start();
        let call = line.strip_prefix('@').unwrap_or(line);
        let named = call.split(['(', ' ', '#']).next().unwrap_or_default();
        let decorated = line.starts_with('@')
            && (functions.contains(&named)
                || modules.iter().any(|m| named.strip_prefix(m) == Some(".jit")));
        decorated || modules.iter().any(|m| line.contains(&format!("= {m}.jit(")))
    };
    text.lines().zip(1..).find(|(line, _)| jit(line)).map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::kernel;

    #[test]
    fn triton_kernels_are_found_under_any_import_name() {
        for (text, line) in [
            ("import triton\n\n@triton.jit\ndef k(): pass\n", Some(3)),
            ("import torch, triton as tr\n@tr.jit(debug=True)\ndef k(): pass\n", Some(2)),
            ("from triton import jit as compiled\n@compiled\ndef k(): pass\n", Some(2)),
            ("import triton\nk = triton.jit(f)\n", Some(2)),
            ("import triton\nimport triton.language as tl\n", None),
            ("import torch\n@torch.jit.script\ndef f(): pass\n", None),
            ("import triton\n# @triton.jit\n", None),
            ("@triton.jit\n", None),
        ] {
            assert_eq!(kernel(text), line, "{text}");
        }
    }
}
