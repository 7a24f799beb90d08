//! The interface to `hostcuda`: CUDA C++ to host C++, with the candidate's own headers.

use std::path::Path;

use warpwright_hostcuda::{Launcher, Refusal, Translated};

use crate::files::Texts;

/// The host translation of the `.cu` file `name`; its local headers are looked up in `files`.
pub(crate) fn translate(text: &str, name: &str, files: &Texts) -> Result<Translated, Vec<Refusal>> {
    let resolve = |header: &str, from: &str| resolve(header, from, files);
    warpwright_hostcuda::translate_with(text, name, &resolve)
}

/// The host part of the `.cu` file `name` for a GPU, if one with the same meaning exists.
pub(crate) fn part(text: &str, name: &str, files: &Texts) -> Option<String> {
    let resolve = |header: &str, from: &str| resolve(header, from, files);
    warpwright_hostcuda::host_part(text, name, &resolve)
}

/// The launchers that the `.cu` file `name` defines, with its local headers.
pub(crate) fn launchers(
    text: &str,
    name: &str,
    files: &Texts,
) -> Result<Vec<Launcher>, Vec<Refusal>> {
    let resolve = |header: &str, from: &str| resolve(header, from, files);
    warpwright_hostcuda::launchers_with(text, name, &resolve)
}

/// Resolves `#include "header"` as compilers do: in the file's folder, at the root, in `kernels`.
fn resolve(header: &str, from: &str, files: &Texts) -> Option<(String, String)> {
    let beside = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    [beside, "", "kernels"].into_iter().find_map(|folder| {
        let name = joined(folder, header)?;
        files.get(&name).map(|text| (name.clone(), text.clone()))
    })
}

/// `kernels/a` and `../b.h` make `kernels/b.h`; `None` for paths that leave the tree.
fn joined(folder: &str, header: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in header.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

pub(crate) fn write_headers(folder: &Path) -> std::io::Result<()> {
    warpwright_hostcuda::write_headers(folder)
}

pub(crate) fn compile_flags() -> Vec<String> {
    warpwright_hostcuda::compile_flags()
}

/// The processor, which determines the code that `-march=native` generates.
pub(crate) fn processor() -> String {
    let text = fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |key: &str| {
        text.lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split_once(':'))
            .map(|(_, v)| v.trim())
    };
    let family: Vec<&str> =
        ["cpu family", "model\t", "flags", "Features"].into_iter().filter_map(line).collect();
    family.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_resolved_as_a_compiler_does() {
        let files = ["kernels/a.cuh", "kernels/tools/b.cuh", "binding_registry.h"];
        let files: Texts = files.iter().map(|f| ((*f).to_owned(), format!("// {f}"))).collect();
        let found = |header: &str, from: &str| resolve(header, from, &files).map(|f| f.0);
        assert_eq!(found("a.cuh", "kernels/k.cu").as_deref(), Some("kernels/a.cuh"));
        assert_eq!(found("../a.cuh", "kernels/tools/b.cuh").as_deref(), Some("kernels/a.cuh"));
        assert_eq!(found("a.cuh", "kernels/tools/b.cuh").as_deref(), Some("kernels/a.cuh"));
        assert_eq!(
            found("../binding_registry.h", "kernels/k.cu").as_deref(),
            Some("binding_registry.h")
        );
        assert_eq!(found("../../etc/passwd", "kernels/k.cu"), None);
        assert_eq!(found("cuda_runtime.h", "kernels/k.cu"), None);
    }
}
