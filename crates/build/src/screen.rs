//! Selects the files of a candidate that take part in the build, and refuses forbidden ones.
//!
//! This runs before anything is compiled. A refusal here costs the candidate nothing but a message.

use std::collections::BTreeMap;

use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Diagnostic, FailureClass, Severity};

use crate::template;
use crate::triton;

/// A candidate's sources, sorted by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Every text file by workspace-relative name, with the fixed files.
    pub files: BTreeMap<String, String>,
    /// `kernels/**.cu`.
    pub cuda: Vec<String>,
    /// `kernels/**_binding.cpp` and other `kernels/**.cpp`.
    pub host: Vec<String>,
    /// Headers: every other file a compiler may include.
    pub headers: Vec<String>,
    /// Whether `model_new.py` mentions `load_inline` or `cpp_extension`.
    pub wants_harvest: bool,
}

/// Why a candidate is refused before any compiler sees it.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub class: FailureClass,
    pub diagnostic: Diagnostic,
}

/// Magic numbers of compiled code: ELF, archive, PE, Mach-O, CUDA fat binary, WebAssembly, LLVM
/// bitcode, Python's and zip's containers.
const MAGIC: [(&[u8], &str); 10] = [
    (b"\x7fELF", "an ELF file"),
    (b"!<arch>", "an archive"),
    (b"!<thin>", "an archive"),
    (b"MZ", "a Windows executable"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O file"),
    (b"\x50\xed\x55\xba", "a CUDA fat binary"),
    (b"\0asm", "a WebAssembly module"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "compressed"),
];

/// File extensions of sources. Other files under `kernels/` are refused if they look like code, and
/// ignored otherwise.
const HEADER_ENDINGS: [&str; 13] = [
    ".cuh", ".h", ".hpp", ".hh", ".hxx", ".inc", ".inl", ".def", ".ipp", ".tpp", ".txx", ".icc",
    ".tcc",
];
const CODE_ENDINGS: [&str; 12] =
    [".so", ".o", ".a", ".ptx", ".cubin", ".fatbin", ".bc", ".ll", ".s", ".pyc", ".dll", ".dylib"];

/// Sorts `candidate`'s files.
pub(crate) fn screen(candidate: &Candidate) -> Result<Sources, Box<Refused>> {
    let mut sources = Sources::default();
    for (name, bytes) in candidate.files() {
        check_name(name)?;
        let text = check_bytes(name, bytes)?;
        if name == "model_new.py" {
            if let Some(line) = triton::kernel(text) {
                let mut refused = refuse(
                    FailureClass::ForbiddenImport,
                    Some(name),
                    "Triton kernels are not accepted: write CUDA C++ in kernels/".to_owned(),
                );
                refused.diagnostic.line = Some(line);
                return Err(Box::new(refused));
            }
            sources.wants_harvest = text.contains("cpp_extension") || text.contains("load_inline");
        } else if !name.starts_with("kernels/") {
            continue;
        } else if has_ending(name, &[".cu"]) {
            sources.cuda.push(name.clone());
        } else if has_ending(name, &[".cpp", ".cc", ".cxx"]) {
            sources.host.push(name.clone());
        } else if has_ending(name, &HEADER_ENDINGS) {
            sources.headers.push(name.clone());
        } else {
            continue;
        }
        sources.files.insert(name.clone(), text.to_owned());
    }
    for (name, text) in template::FIXED {
        sources.files.insert(name.to_owned(), text.to_owned());
    }
    Ok(sources)
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|e| name.ends_with(e))
}

/// Checks that a name stays inside its folder and cannot be read as an option.
fn check_name(name: &str) -> Result<(), Box<Refused>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let safe = name.len() <= 200
        && name.split('/').all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && !part.starts_with('-')
                && part.chars().all(plain)
        });
    if safe {
        return Ok(());
    }
    let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
    let message = format!(
        "file name \"{shown}\" is refused: names are relative, without `..`, of letters, digits \
         and . _ - +"
    );
    Err(Box::new(refuse(FailureClass::Build, None, message)))
}

fn check_bytes<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Box<Refused>> {
    let forbid = |what: &str| {
        let message = format!("{name} is {what}: a candidate consists of sources only");
        Box::new(refuse(FailureClass::ForbiddenImport, Some(name), message))
    };
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(forbid(what));
    }
    if has_ending(&name.to_ascii_lowercase(), &CODE_ENDINGS) {
        return Err(forbid("prebuilt code by its name"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(forbid("not UTF-8 text")),
    }
}

fn refuse(class: FailureClass, file: Option<&str>, message: String) -> Refused {
    let file = file.map(str::to_owned);
    let severity = Severity::Error;
    let excerpt = String::new();
    let diagnostic = Diagnostic { file, line: None, column: None, severity, message, excerpt };
    Refused { class, diagnostic }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(files: &[(&str, &[u8])]) -> Candidate {
        let files = files.iter().map(|(n, b)| ((*n).to_owned(), b.to_vec())).collect();
        Candidate::from_files(files)
    }

    #[test]
    fn sources_are_sorted_by_kind() {
        let sources = screen(&candidate(&[
            ("model_new.py", b"import torch\n"),
            ("kernels/a.cu", b"// a"),
            ("kernels/a_binding.cpp", b"// b"),
            ("kernels/tools/tile.cuh", b"// c"),
            ("kernels/notes.md", b"# d"),
            ("binding_registry.h", b"#error overwritten"),
        ]))
        .unwrap();
        assert_eq!(sources.cuda, ["kernels/a.cu"]);
        assert_eq!(sources.host, ["kernels/a_binding.cpp"]);
        assert_eq!(sources.headers, ["kernels/tools/tile.cuh"]);
        assert!(!sources.wants_harvest);
        assert_eq!(sources.files["binding_registry.h"], template::BINDING_REGISTRY_H);
    }

    #[test]
    fn escaping_file_names_are_refused() {
        assert!(screen(&candidate(&[("kernels/a.cu", b"")])).is_ok());
        for name in [
            "../a.cu",
            "kernels/../../a.cu",
            "/etc/a.cu",
            "kernels//a.cu",
            "kernels/-o.cu",
            "kernels/a b.cu",
            "kernels/a\n.cu",
            "kernels/$(x).cu",
            "kernels/./a.cu",
            "",
        ] {
            let refused = screen(&candidate(&[(name, b"")])).unwrap_err();
            assert_eq!(refused.class, FailureClass::Build, "{name}");
            assert!(refused.diagnostic.message.contains("refused"), "{name}");
        }
    }

    #[test]
    fn prebuilt_code_is_refused() {
        for (name, bytes) in [
            ("kernels/a.cu", &b"\x7fELF\x02\x01"[..]),
            ("kernels/a.ptx", b".version 8.0"),
            ("kernels/a.bin", b"\x50\xed\x55\xba\x01\0"),
            ("kernels/A.SO", b"text"),
            ("kernels/a.h", b"int a;\0"),
        ] {
            let refused = screen(&candidate(&[(name, bytes)])).unwrap_err();
            assert_eq!(refused.class, FailureClass::ForbiddenImport, "{name}");
        }
    }
}
