//! KernelBench's single-file form: sources that `model_new.py` passes to `load_inline`.

use fs_err as fs;
use serde::Deserialize;

use crate::builder::Builder;
use crate::cache;
use crate::diagnostics;
use crate::entry::Kind;
use crate::error::BuildError;
use crate::files::{self, Texts};
use crate::process::{self, Command, Ended};
use crate::stop::Rejected;
use crate::unit::{Language, Unit};

/// The output of `harvest.py`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Harvest {
    format: u32,
    pub modules: Vec<Module>,
    /// The exception that the candidate raised, if any.
    pub problem: String,
}

/// One recorded call.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Module {
    pub key: String,
    pub name: String,
    units: Vec<Source>,
    pub dropped_flags: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Source {
    file: String,
    text: String,
}

const FORMAT: u32 = 1;
const FOUND: &str = "harvest.json";

impl Builder {
    /// Runs `model_new.py` with a recording `cpp_extension`. The script runs candidate code, so its
    /// output is checked like any other candidate input.
    pub(crate) fn harvest(
        &self,
        model: &str,
        files: &Texts,
        reference: Option<&str>,
    ) -> Result<Result<Harvest, Rejected>, BuildError> {
        let (python, torch) = self.toolchain().need_torch()?;
        let mut parts = vec![
            b"harvest 1".as_slice(),
            self.support().hash.as_bytes(),
            python.version.as_bytes(),
            torch.version.as_bytes(),
            model.as_bytes(),
            reference.unwrap_or_default().as_bytes(),
        ];
        for (name, text) in files {
            parts.extend([name.as_bytes(), text.as_bytes()]);
        }
        let key = cache::key(parts);
        if let Some(place) = self.cache().find(Kind::Object, &key)
            && let Ok(found) = files::read_json(&place.join(FOUND))
        {
            return Ok(Ok(found));
        }
        let folder = self.cache().scratch()?;
        let staged = self.cache().scratch()?;
        files::write_tree(folder.path(), files)?;
        let mut command =
            Command::new("the harvest of inline sources", &python.path, folder.path())
                .with_python()
                .args(["-I", "-B"])
                .arg(&self.support().harvest)
                .arg(folder.path())
                .arg(staged.path().join(FOUND))
                .read(&self.support().harvest)
                .write(staged.path());
        for prefix in python.prefixes.iter().chain(&python.site_packages) {
            command = command.read(prefix);
        }
        let given = self.cache().scratch()?;
        if let Some(reference) = reference {
            let path = given.path().join("model.py");
            fs::write(&path, reference)?;
            command = command.arg(&path).read(given.path());
        }
        let ended = process::run(self.jail(), &command, self.settings())?;
        let (output, how) = match ended {
            Ended::Exited { code: 0, output } => (output, String::new()),
            Ended::Exited { code, output } => (output, format!("it ended with {code}")),
            Ended::Stopped { reason, output } => (output, reason),
        };
        let found: Option<Harvest> = files::read_json(&staged.path().join(FOUND)).ok();
        let Some(found) = found.filter(Harvest::acceptable) else {
            let scrub = self.scrub(folder.path());
            let how = if how.is_empty() { "it wrote nothing readable".to_owned() } else { how };
            let message = format!("failed to collect the sources of load_inline: {how}");
            let raw_tail = diagnostics::tail(&output, &scrub);
            let diagnostics = vec![diagnostics::error(Some("model_new.py"), message)];
            return Ok(Err(Rejected { diagnostics, raw_tail }));
        };
        self.cache().publish(Kind::Object, &key, staged.path())?;
        Ok(Ok(found))
    }
}

impl Harvest {
    fn acceptable(&self) -> bool {
        let word = |text: &str| {
            !text.is_empty()
                && text.len() <= 64
                && !text.starts_with(|c: char| c.is_ascii_digit())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        let size = |module: &Module| module.units.iter().map(|u| u.text.len()).sum::<usize>();
        self.format == FORMAT
            && self.modules.len() <= 32
            && self.modules.iter().all(|module| {
                module.key.len() == 64
                    && module.key.bytes().all(|b| b.is_ascii_hexdigit())
                    && word(&module.name)
                    && module.units.len() <= 32
                    && size(module) <= 5 << 20
                    && module.units.iter().all(|unit| {
                        let stem = unit.file.strip_suffix(".cpp").or(unit.file.strip_suffix(".cu"));
                        stem.is_some_and(word)
                    })
            })
    }
}

impl Module {
    /// The module's units; their texts are added to `files`.
    pub(crate) fn units(&self, files: &mut Texts) -> Vec<Unit> {
        self.units
            .iter()
            .map(|source| {
                let name = format!("inline/{}/{}", &self.key[..12], source.file);
                files.insert(name.clone(), source.text.clone());
                let cuda = source.file.strip_suffix(".cu").is_some();
                let language = if cuda { Language::Cuda } else { Language::Cpp };
                Unit { name, language, torch: true, module: Some(self.name.clone()) }
            })
            .collect()
    }
}
