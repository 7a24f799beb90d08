//! Precompiled headers: reading the torch headers of a binding takes ten times as long as compiling
//! the rest.
//!
//! A unit's leading includes of torch and pybind are looked up in [`HEAVY`]. Those found, in the
//! order of that list, are precompiled once per set of flags and prepended to the unit, whose own
//! includes then have no effect. Units that include other torch headers, or include late, are
//! compiled without precompiled headers. So are units for which precompiling fails.
//!
//! Precompiling takes twice as long as compiling a unit, and up to 500 MB: headers are precompiled
//! when a second build needs them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use fs_err as fs;

use crate::bench::Bench;
use crate::cache::{self, Cache};
use crate::entry::Kind;
use crate::error::BuildError;
use crate::precompiled::Known;
use crate::process::{self, Command, Ended};
use crate::toolchain::Family;

/// Headers worth precompiling, each before those that depend on it.
const HEAVY: [&str; 8] = [
    "ATen/ATen.h",
    "torch/types.h",
    "torch/all.h",
    "torch/torch.h",
    "torch/csrc/utils/pybind.h",
    "torch/python.h",
    "torch/extension.h",
    "pybind11/pybind11.h",
];

/// Headers of [`HEAVY`] that precede everything except includes, and belong to torch.
fn heavy(text: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(directive) = line.strip_prefix('#').map(str::trim_start) else {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            break;
        };
        // What the cpu device's preamble consists of, and inline modules begin with.
        let neutral = ["if __has_include", "endif", "line ", "pragma once"];
        if neutral.iter().any(|n| directive.starts_with(n)) {
            continue;
        }
        let Some(named) = directive.strip_prefix("include").map(str::trim_start) else { break };
        let Some(name) = named.strip_prefix('<').and_then(|rest| rest.split('>').next()) else {
            break;
        };
        found.extend(HEAVY.iter().copied().filter(|h| *h == name));
    }
    let in_order: Vec<_> = HEAVY.iter().copied().filter(|h| found.contains(h)).collect();
    if in_order.iter().all(|h| h.starts_with("pybind11")) { Vec::new() } else { in_order }
}

impl Bench<'_> {
    /// `command`, which compiles `text` and names no input yet, with a precompiled header prepended
    /// if possible.
    pub(crate) fn with_precompiled(
        &self,
        command: &Command,
        family: Family,
        text: &str,
    ) -> Option<Command> {
        let headers = heavy(text);
        if headers.is_empty() {
            return None;
        }
        let key = self.header_key(&headers, command);
        let slot = {
            let mut known = self.headers.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(key.clone()).or_default())
        };
        // Whoever comes while it is being made waits: making it twice would take as long.
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*known, Known::NeededBy(tree) if tree == self.tree) {
            return None;
        }
        if !matches!(*known, Known::Made(_)) {
            let found = self.cache.find(Kind::Header, &key);
            if found.is_none() && first_need(self.cache, &key) {
                *known = Known::NeededBy(self.tree.to_owned());
                return None;
            }
            let made = || self.precompile(&key, &headers, command, family).ok().flatten();
            *known = Known::Made(found.or_else(made));
        }
        let Known::Made(Some(place)) = &*known else { return None };
        Cache::used(place);
        let command = command.clone().read(place).read(&prefix_folder(self.cache));
        Some(match family {
            Family::Gnu => command.arg("-include").arg(place.join(HEADER)),
            Family::Clang => command.arg("-include-pch").arg(place.join(PCH)),
        })
    }

    /// Removes the header that `command` would use, because it does not match the installed files.
    pub(crate) fn discard_precompiled(&self, command: &Command, text: &str) {
        let key = self.header_key(&heavy(text), command);
        self.cache.remove(Kind::Header, &key);
        self.headers.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn header_key(&self, headers: &[&str], command: &Command) -> String {
        let tools = self.tools.describe();
        let arguments = command.stable_arguments(self.tree);
        let parts = ["header 1", self.support.hash.as_str()].into_iter();
        let parts = parts.chain(tools.iter().map(String::as_str));
        let parts = parts.chain(arguments.iter().map(String::as_str));
        cache::key(parts.chain(headers.iter().copied()).map(str::as_bytes))
    }

    fn precompile(
        &self,
        key: &str,
        headers: &[&str],
        command: &Command,
        family: Family,
    ) -> Result<Option<PathBuf>, BuildError> {
        let text = headers.iter().fold(String::new(), |text, h| text + "#include <" + h + ">\n");
        let staged = self.cache.scratch()?;
        let (header, made) = match family {
            Family::Gnu => (staged.path().join(HEADER), format!("{HEADER}.gch")),
            // It names the file that it was made from, and looks whether that is still the same.
            Family::Clang => (prefix(self.cache, key, &text)?, PCH.to_owned()),
        };
        if family == Family::Gnu {
            fs::write(&header, &text)?;
        }
        let mut command = command.clone().read(&prefix_folder(self.cache)).write(staged.path());
        if family == Family::Clang {
            command = command.arg("-fpch-instantiate-templates");
        }
        let command =
            command.args(["-x", "c++-header"]).arg(&header).arg("-o").arg(staged.path().join(made));
        Ok(match process::run(self.jail, &command, self.settings)? {
            Ended::Exited { code: 0, .. } => {
                Some(self.cache.publish(Kind::Header, key, staged.path())?)
            }
            _ => None,
        })
    }
}

/// Whether this is the first build that needs the header; records that it does.
fn first_need(cache: &Cache, key: &str) -> bool {
    let note = prefix_folder(cache).join(format!("{key}.needed"));
    // Where nothing can be noted nothing can be published either.
    !note.exists() && (fs::write(&note, "").is_ok() || !note.exists())
}

const HEADER: &str = "prefix.h";
const PCH: &str = "prefix.pch";

/// Folder of the texts from which clang makes its precompiled headers. They must not change.
fn prefix_folder(cache: &Cache) -> PathBuf {
    cache.root().join("prefixes")
}

fn prefix(cache: &Cache, key: &str, text: &str) -> Result<PathBuf, BuildError> {
    let folder = prefix_folder(cache);
    let path = folder.join(format!("{key}.h"));
    if !fs::read_to_string(&path).is_ok_and(|there| there == text) {
        let staged = tempfile::NamedTempFile::new_in(&folder)?;
        fs::write(staged.path(), text)?;
        readable(staged.path())?;
        staged.persist(&path).map_err(|e| e.error)?;
    }
    Ok(path)
}

fn readable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

/// Whether a compiler reports that a precompiled header does not match.
pub(crate) fn complains(output: &str) -> bool {
    ["precompiled header", "PCH file", ".pch"].iter().any(|word| output.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leading_includes_are_precompiled() {
        let torch = "// a binding\n#include <vector>\n#include <torch/types.h>\n\nint x;\n";
        assert_eq!(heavy(torch), ["torch/types.h"]);
        let both = "#include <pybind11/pybind11.h>\n# include <torch/types.h> // first\n";
        assert_eq!(heavy(both), ["torch/types.h", "pybind11/pybind11.h"]);
        for (text, why) in [
            ("#include <pybind11/pybind11.h>\n", "cheap without torch"),
            ("#define NDEBUG\n#include <torch/types.h>\n", "a macro that could change it"),
            ("int x;\n#include <torch/types.h>\n", "late"),
            ("#include \"mine.h\"\n#include <torch/types.h>\n", "after a header of the candidate"),
            ("/* */ #include <torch/types.h>\n", "not understood"),
        ] {
            assert_eq!(heavy(text), [""; 0], "{why}");
        }
        let preamble = "#if __has_include(<torch/all.h>)\n#include <torch/all.h>\n#endif\n\
                        #include <warpwright_cpu_device.h>\n#line 1 \"kernels/a.cu\"\nint x;";
        assert_eq!(heavy(preamble), ["torch/all.h"]);
    }
}
