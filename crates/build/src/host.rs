//! The border to `hostcuda`, until its translator is published.

use std::path::Path;

use warpwright_hostcuda::Refusal;

pub(crate) fn translate(_text: &str, file: &str) -> Result<String, Vec<Refusal>> {
    let reason = "the cpu device is not there yet".to_owned();
    Err(vec![Refusal { file: file.to_owned(), line: 1, column: 1, construct: "CUDA".to_owned(), reason }])
}

pub(crate) fn write_headers(_folder: &Path) -> std::io::Result<()> {
    Ok(())
}

pub(crate) fn compile_flags() -> Vec<String> {
    vec!["-O3".to_owned()]
}

pub(crate) fn link_flags() -> Vec<String> {
    Vec::new()
}
