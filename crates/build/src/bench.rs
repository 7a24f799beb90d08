//! What all compiler runs of one build share, and what comes of a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpwright_jail::Jail;
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Diagnostic, KernelResources, Severity};

use crate::artifact::{Instrument, Target};
use crate::cache::Cache;
use crate::diagnostics::{self, Scrub};
use crate::error::BuildError;
use crate::files::Texts;
use crate::precompiled::Precompiled;
use crate::process::Ended;
use crate::settings::Settings;
use crate::stop::Rejected;
use crate::support::Support;
use crate::toolchain::Toolchain;

/// State shared by all compiler runs of one build.
pub(crate) struct Bench<'a> {
    pub jail: &'a Jail,
    pub tools: &'a Toolchain,
    pub settings: &'a Settings,
    pub cache: &'a Cache,
    pub support: &'a Support,
    pub headers: &'a Precompiled,
    pub target: &'a Target,
    pub instrument: Instrument,
    pub libraries: LibrarySet,
    /// The folder to which `texts` are written.
    pub tree: &'a Path,
    /// The texts that compilers see.
    pub texts: &'a Texts,
    /// The candidate's own texts, for excerpts.
    pub originals: &'a Texts,
    pub scrub: &'a Scrub,
}

/// A compiled unit.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub path: PathBuf,
    pub report: Report,
}

/// The compiler's output for a unit that compiled; stored with the object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub warnings: Vec<Diagnostic>,
    pub kernels: Vec<KernelResources>,
    /// BLAKE3 of the fat binaries that nvcc made, in hexadecimal.
    pub device_images: Vec<String>,
    /// Header libraries that it used, whether they are allowed or not.
    pub libraries: BTreeSet<Library>,
}

impl Bench<'_> {
    /// The output of a successful run; otherwise the failure to report to the candidate.
    pub(crate) fn accepted(
        &self,
        ended: &Ended,
        tool: &str,
        what: &str,
    ) -> Result<Result<String, Rejected>, BuildError> {
        let (output, stopped) = match ended {
            Ended::Exited { code: 0, output } => return Ok(Ok(output.clone())),
            Ended::Exited { output, .. } => (output, None),
            Ended::Stopped { reason, output } => (output, Some(reason)),
        };
        if output.contains("No space left on device") {
            let reason = "no space left on the device".to_owned();
            return Err(BuildError::BrokenTool { tool: tool.to_owned(), reason });
        }
        let mut found = diagnostics::parse(output, self.originals, self.scrub);
        if let Some(reason) = stopped {
            let message = format!("{tool} was stopped at {what}: {reason}");
            found.insert(0, diagnostics::error(Some(what), message));
        } else if !found.iter().any(|d| d.severity == Severity::Error) {
            let last = output.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("no output");
            let message = format!("{tool} failed at {what}: {}", self.scrub.clean(last));
            found.insert(0, diagnostics::error(Some(what), message));
        }
        let raw_tail = diagnostics::tail(output, self.scrub);
        Ok(Err(Rejected { diagnostics: found, raw_tail }))
    }
}
