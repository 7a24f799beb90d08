//! The files of a package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fs_err as fs;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::error::ExportError;
use crate::names;
use crate::source::Source;
use crate::spec;
use crate::texts;

/// Folder of the Python package, in both layouts.
const SOURCES: &str = "torch-ext";

/// Which tools the folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layouts {
    /// `pip`.
    Wheel,
    /// Hugging Face `kernels`.
    Kernels,
    /// Both, from one source.
    Both,
}

/// A package: its files, by their path below its folder.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name of the Python package.
    pub name: String,
    /// Operators that it registers, `namespace::name`.
    pub operators: Vec<String>,
    /// Classes that replace the references.
    pub classes: Vec<String>,
    /// SHA-256 of the manifest: names the content.
    pub digest: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Package {
    /// Makes a package of what was judged.
    pub fn of(source: &Source<'_>, layouts: Layouts) -> Result<Self, ExportError> {
        names::package(source.package)?;
        let name = source.package;
        let namespace = format!("warpwright_{name}");
        let (mut inner, mut tasks, mut taken) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        for of in &source.tasks {
            let task = spec::task(of, unused(&names::identifier(of.name), &mut taken))?;
            let verdict = pretty(&of.verdict);
            inner.insert(format!("verdicts/{}.json", task.name), verdict);
            for ((index, of), made) in of.workloads.iter().enumerate().zip(&task.workloads) {
                let folder = format!("workloads/{}-{index}", task.name);
                let mut put = |path: &str, bytes: Vec<u8>| {
                    inner.insert(format!("{folder}/{path}"), bytes);
                };
                let plan = serde_json::to_value(of.plan).unwrap_or_default();
                put("plan.json", pretty(&plan));
                put("launch.cpp", made.code.clone().into_bytes());
                put("reference.py", of.reference.as_bytes().to_vec());
                for (index, image) in of.images.iter().enumerate() {
                    put(&format!("images/{index}.bin"), image.clone());
                }
                for (index, table) in of.constants.iter().flatten().enumerate() {
                    if index < of.plan.constants.len() {
                        put(&format!("tables/{index}.bin"), table.clone());
                    }
                }
            }
            tasks.push(task);
        }
        if tasks.is_empty() {
            return Err(ExportError::NoWorkload);
        }
        let classes: Vec<String> = tasks.iter().map(|task| names::class(&task.name)).collect();
        inner.insert("package.json".into(), pretty(&spec::package(name, &namespace, &tasks)));
        let pairs = tasks.iter().map(|task| task.name.as_str()).zip(&classes);
        inner.insert("__init__.py".into(), texts::init(pairs).into_bytes());
        for (path, text) in texts::RUNTIME {
            inner.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        inner.insert("LICENSE".into(), texts::LICENSE.as_bytes().to_vec());
        let manifest = pretty(&manifest(&inner));
        let digest = hash(&manifest);
        inner.insert("manifest.json".into(), manifest);
        let operators: Vec<String> =
            tasks.iter().map(|task| format!("{namespace}::{}", task.name)).collect();
        let on_gpu = source.tasks.iter().any(|task| task.target.starts_with("cuda-"));
        let about = texts::About { name, digest: &digest, on_gpu };
        let files = laid_out(&inner, &about, layouts, &source.tasks, &classes);
        Ok(Self { name: name.to_owned(), operators, classes, digest, files })
    }

    /// The package that a task has by default.
    pub fn default_name(task: &str) -> String {
        names::usual(task)
    }

    /// The files, by their path below the package's folder.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Writes the files below a folder.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        for (path, bytes) in &self.files {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, bytes)?;
        }
        Ok(())
    }
}

/// A name that no earlier task has, with a class that none has: `conv1` and `conv_1` have the same.
fn unused(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut number = 2;
    let mut made = name.to_owned();
    while !taken.insert(names::class(&made)) {
        made = format!("{name}_{number}");
        number += 1;
    }
    made
}

fn laid_out(
    inner: &BTreeMap<String, Vec<u8>>,
    about: &texts::About<'_>,
    layouts: Layouts,
    tasks: &[crate::source::TaskSource<'_>],
    classes: &[String],
) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut put = |path: String, bytes: Vec<u8>| {
        files.insert(path, bytes);
    };
    for (path, bytes) in inner {
        put(format!("{SOURCES}/{}/{path}", about.name), bytes.clone());
    }
    let names: Vec<&str> = tasks.iter().map(|task| task.name).collect();
    put("README.md".into(), texts::readme(about, &names, classes).into_bytes());
    put("LICENSE".into(), texts::LICENSE.as_bytes().to_vec());
    if layouts != Layouts::Kernels {
        put("pyproject.toml".into(), texts::pyproject(about).into_bytes());
        put("setup.py".into(), texts::SETUP.as_bytes().to_vec());
    }
    if layouts != Layouts::Wheel {
        put("build.toml".into(), texts::build(about).into_bytes());
        let variant = texts::variant(about);
        for (path, bytes) in inner {
            put(format!("build/{variant}/{path}"), bytes.clone());
        }
        put(format!("build/{variant}/metadata.json"), pretty(&texts::metadata(about)));
    }
    files
}

fn manifest(inner: &BTreeMap<String, Vec<u8>>) -> Json {
    let files: BTreeMap<&str, String> =
        inner.iter().map(|(path, bytes)| (path.as_str(), hash(bytes))).collect();
    json!({"format": 1, "sha256": files})
}

fn hash(bytes: &[u8]) -> String {
    let each: Vec<String> =
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    each.concat()
}

fn pretty(json: &Json) -> Vec<u8> {
    let mut text = format!("{json:#}").into_bytes();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_with_the_same_class_are_told_apart() {
        let mut taken = BTreeSet::new();
        let made = ["conv1", "conv_1", "conv12", "conv1"].map(|name| unused(name, &mut taken));
        assert_eq!(made, ["conv1", "conv_1_2", "conv12_2", "conv1_3"]);
        assert_eq!(taken.len(), 4);
    }
}
