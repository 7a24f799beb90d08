//! The sources of one compiler run, and the text that the compiler sees.
//!
//! For a GPU the compiler sees the candidate's own text. For the host it sees the translation by
//! `hostcuda`, and files that use torch get a preamble: torch's headers first, whole, then the
//! macros of `warpwright_cpu_device.h`, then the candidate's text under its own line numbers.

use std::collections::BTreeSet;
use std::fmt::Write;

use warpwright_hostcuda::Refusal;
use warpwright_record::verdict::{Diagnostic, Severity};

use crate::artifact::Target;
use crate::diagnostics;
use crate::files::Texts;
use crate::host;
use crate::screen::Sources;

/// One source to compile to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Path below the source tree; also its name in diagnostics.
    pub name: String,
    /// CUDA or plain C++.
    pub language: Language,
    /// Whether torch's, pybind's and Python's headers are needed.
    pub torch: bool,
    /// `TORCH_EXTENSION_NAME`, for inline modules.
    pub module: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Cuda,
    Cpp,
}

/// Units of a workspace candidate: every `.cu`, every host file, and the fixed `binding.cpp` if
/// there is anything to bind.
pub(crate) fn workspace_units(sources: &Sources) -> Vec<Unit> {
    let header_uses_torch = sources.headers.iter().any(|h| mentions_torch(&sources.files[h]));
    let mut units = Vec::new();
    for name in &sources.cuda {
        let text = &sources.files[name];
        let own_header = header_uses_torch && text.contains("#include \"");
        let torch = mentions_torch(text) || own_header;
        units.push(Unit { name: name.clone(), language: Language::Cuda, torch, module: None });
    }
    for name in &sources.host {
        let (name, language) = (name.clone(), Language::Cpp);
        units.push(Unit { name, language, torch: true, module: None });
    }
    if units.iter().any(|u| u.torch) {
        let (name, language) = ("binding.cpp".to_owned(), Language::Cpp);
        units.push(Unit { name, language, torch: true, module: None });
    }
    units
}

/// Whether the text includes torch's headers, or our registry, which needs pybind.
fn mentions_torch(text: &str) -> bool {
    included(text).any(|header| {
        ["torch/", "ATen/", "c10/", "pybind11/", "Python.h"].iter().any(|p| header.starts_with(p))
            || header.ends_with("binding_registry.h")
    })
}

/// The names in `#include` lines, quoted or in angle brackets.
pub(crate) fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        let rest = rest.trim_start();
        let close = match rest.chars().next()? {
            '<' => '>',
            '"' => '"',
            _ => return None,
        };
        rest[1..].split(close).next()
    })
}

/// The texts that compilers for `target` see and, for the host, the number of kernels they define;
/// or the refusals of `hostcuda`.
pub(crate) fn texts_for(
    target: &Target,
    files: &Texts,
    units: &[Unit],
) -> Result<(Texts, u32), Vec<Diagnostic>> {
    if *target != Target::Cpu {
        return Ok((files.clone(), 0));
    }
    let torch_headers = torch_headers(files);
    let mut texts = Texts::new();
    let mut refused = Vec::new();
    let mut kernels = 0;
    for (name, text) in files {
        let unit = units.iter().find(|u| u.name == *name);
        let cuda = unit.is_some_and(|u| u.language == Language::Cuda);
        let text = if cuda {
            match host::translate(text, name, files) {
                Ok(translated) => {
                    kernels += translated.kernels.len() as u32;
                    translated.cpp
                }
                Err(refusals) => {
                    refused.extend(refusals.iter().map(|r| diagnostic(r, files)));
                    continue;
                }
            }
        } else {
            text.clone()
        };
        let torch = unit.is_some_and(|u| u.torch && u.name != "binding.cpp");
        let text = if torch { preamble(&torch_headers, name) + &text } else { text };
        texts.insert(name.clone(), text);
    }
    if refused.is_empty() { Ok((texts, kernels)) } else { Err(refused) }
}

/// Torch headers that any file of the candidate includes. CUDA's side of torch is excluded: on the
/// host those names are ours and may be included in their own place.
fn torch_headers(files: &Texts) -> BTreeSet<String> {
    files
        .values()
        .flat_map(|text| included(text))
        .filter(|h| ["torch/", "ATen/", "c10/"].iter().any(|p| h.starts_with(p)))
        .filter(|h| !h.contains("/cuda/") && !h.contains(['"', '\\', '\n']))
        .map(str::to_owned)
        .collect()
}

fn preamble(headers: &BTreeSet<String>, name: &str) -> String {
    let mut text = String::new();
    for header in headers {
        let _ = writeln!(text, "#if __has_include(<{header}>)\n#include <{header}>\n#endif");
    }
    let _ = writeln!(text, "#include <warpwright_cpu_device.h>\n#line 1 \"{name}\"");
    text
}

/// A refusal of `hostcuda` as a diagnostic of the candidate's file, located through `#line` if
/// there is one.
fn diagnostic(refusal: &Refusal, files: &Texts) -> Diagnostic {
    let (file, line) = located(&refusal.file, refusal.line, files);
    let mut made = Diagnostic {
        file: Some(file),
        line: Some(line),
        column: Some(refusal.column),
        severity: Severity::Error,
        message: format!("not on the cpu device: {}: {}", refusal.construct, refusal.reason),
        excerpt: String::new(),
    };
    made.excerpt = diagnostics::excerpt(&made, files);
    made
}

/// Follows `#line N "file"` directives above a line.
fn located(file: &str, line: u32, files: &Texts) -> (String, u32) {
    let Some(text) = files.get(file) else { return (file.to_owned(), line) };
    let mut place = (file.to_owned(), line);
    for (index, directive) in text.lines().take(line as usize - 1).enumerate() {
        let Some(rest) = directive.strip_prefix("#line ") else { continue };
        let Some((number, name)) = rest.split_once(' ') else { continue };
        if let Ok(number) = number.parse::<u32>() {
            let below = line - index as u32 - 2;
            place = (name.trim_matches('"').to_owned(), number + below);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_torch_is_detected_by_includes() {
        assert!(mentions_torch("# include <torch/types.h>\n"));
        assert!(mentions_torch("#include \"../binding_registry.h\"\n"));
        assert!(!mentions_torch("// torch/types.h\n#include <cuda_runtime.h>\n#include <cmath>"));
    }

    #[test]
    fn inline_source_lines_map_to_the_python_file() {
        let text = "#include <a>\n#line 10 \"model_new.py\"\nx\ny\n".to_owned();
        let files = Texts::from([("inline/k/cuda.cu".to_owned(), text)]);
        assert_eq!(located("inline/k/cuda.cu", 4, &files), ("model_new.py".to_owned(), 11));
        assert_eq!(located("inline/k/cuda.cu", 1, &files).1, 1);
        assert_eq!(located("other.cu", 7, &files), ("other.cu".to_owned(), 7));
    }
}
