//! The driver's functions that a candidate looks up by name.
//!
//! NVIDIA's guide and CUTLASS get `cuTensorMapEncodeTiled` from `cudaGetDriverEntryPointByVersion`, which would give
//! any other function of the driver, too. An object of our own defines that function in the candidate's library: it
//! knows the functions that may be imported by name, and no other.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::allowed;
use crate::artifact::Target;
use crate::bench::Bench;
use crate::elf::Linkage;
use crate::error::BuildError;

const BY_VERSION: &str = "cudaGetDriverEntryPointByVersion";
const PLAIN: &str = "cudaGetDriverEntryPoint";

/// Whether these objects look up functions of the driver.
pub(crate) fn asked(symbols: &[Linkage]) -> bool {
    [PLAIN, BY_VERSION].iter().any(|name| symbols.iter().any(|s| s.undefined.contains(*name)))
}

impl Bench<'_> {
    /// The object that answers; `None` if nothing asks.
    pub(crate) fn entry_points(&self, symbols: &[Linkage]) -> Result<Option<PathBuf>, BuildError> {
        if *self.target == Target::Cpu || !asked(symbols) {
            return Ok(None);
        }
        self.ours(&source(), &["-c"], "entry_points.o").map(Some)
    }
}

fn source() -> String {
    let mut text = String::from("#include <cstring>\n");
    for name in allowed::DRIVER {
        let _ = writeln!(text, "extern \"C\" int {name}();");
    }
    text += "static int find(const char* name, void** function, int* status) {\n  void* found = nullptr;\n";
    for name in allowed::DRIVER {
        let _ = writeln!(text, "  if (!strcmp(name, \"{name}\")) found = (void*){name};");
    }
    // `cudaDriverEntryPointSymbolNotFound`, and `cudaErrorSymbolNotFound` for who does not ask for the status.
    text += "  *function = found;
  if (status) *status = found ? 0 : 1;
  return found || status ? 0 : 500;
}
";
    let hidden = "extern \"C\" __attribute__((visibility(\"hidden\"))) int";
    let _ = writeln!(
        text,
        "{hidden} {PLAIN}(const char* n, void** f, unsigned long long, int* s) {{ return find(n, f, s); }}"
    );
    let _ = writeln!(
        text,
        "{hidden} {BY_VERSION}(const char* n, void** f, unsigned, unsigned long long, int* s) \
         {{ return find(n, f, s); }}"
    );
    text
}
