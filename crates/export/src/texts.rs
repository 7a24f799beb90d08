//! The texts of a package that are not generated from a plan.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

/// Python and headers that are the same in every package.
pub(crate) const RUNTIME: &[(&str, &str)] = &[
    ("_package.py", include_str!("../runtime/_package.py")),
    ("_native.py", include_str!("../runtime/_native.py")),
    ("_trees.py", include_str!("../runtime/_trees.py")),
    ("_launch.py", include_str!("../runtime/_launch.py")),
    ("_steps.py", include_str!("../runtime/_steps.py")),
    ("_operators.py", include_str!("../runtime/_operators.py")),
    ("_modules.py", include_str!("../runtime/_modules.py")),
    ("check.py", include_str!("../runtime/check.py")),
    ("layers.py", include_str!("../runtime/layers.py")),
    ("launch_common.h", include_str!("../runtime/launch_common.h")),
    ("launch_cuda.h", include_str!("../runtime/launch_cuda.h")),
    ("launch_host.h", include_str!("../runtime/launch_host.h")),
];

/// Licence of the code that is the same in every package.
pub(crate) const LICENSE: &str = include_str!("../../../LICENSE");

/// Builds the launch code ahead where there is a compiler.
pub(crate) const SETUP: &str = include_str!("../runtime/setup.py");

/// What a package is.
pub(crate) struct About<'a> {
    pub(crate) name: &'a str,
    pub(crate) digest: &'a str,
    pub(crate) on_gpu: bool,
}

impl About<'_> {
    /// The beginning of its digest.
    fn short(&self) -> &str {
        self.digest.get(..8).unwrap_or(self.digest)
    }
}

/// `__init__.py`; `tasks` are names and classes.
pub(crate) fn init<'a>(tasks: impl Iterator<Item = (&'a str, &'a String)>) -> String {
    let tasks: Vec<_> = tasks.collect();
    let mut text = include_str!("../runtime/__init__.py").to_owned();
    for (name, class) in &tasks {
        let _ = writeln!(text, "{class} = package.module(\"{name}\")");
    }
    let classes: Vec<String> = tasks.iter().map(|(_, class)| format!("\"{class}\"")).collect();
    let classes = classes.join(", ");
    let _ = writeln!(text, "\n__all__ = [{classes}, \"invalidate\", \"layers\", \"stats\"]");
    text
}

pub(crate) fn pyproject(about: &About<'_>) -> String {
    let About { name, .. } = about;
    let short = about.short();
    format!(
        "[build-system]\nrequires = [\"setuptools>=70.1\"]\nbuild-backend = \"setuptools.build_meta\"\n\n\
         [project]\nname = \"{name}\"\nversion = \"0.1.0+{short}\"\n\
         description = \"Verified kernels, exported by warpwright\"\nreadme = \"README.md\"\n\
         requires-python = \">=3.10\"\n\n\
         [tool.setuptools]\npackages = [\"{name}\"]\ninclude-package-data = false\n\n\
         [tool.setuptools.package-dir]\n\"\" = \"torch-ext\"\n\n\
         [tool.setuptools.package-data]\n{name} = [\"**/*\"]\n"
    )
}

/// Folder of the build that `kernels` loads. Kernels of the cpu device also run where torch knows a GPU.
pub(crate) fn variant(about: &About<'_>) -> &'static str {
    if about.on_gpu { "torch-cuda" } else { "torch-universal" }
}

pub(crate) fn build(about: &About<'_>) -> String {
    let backend = if about.on_gpu { "cuda" } else { "cpu" };
    let name = about.name.replace('_', "-");
    format!(
        "[general]\nname = \"{name}\"\nversion = 1\nbackends = [\"{backend}\"]\n\n\
         [torch-noarch]\n"
    )
}

pub(crate) fn metadata(about: &About<'_>) -> Json {
    let (backend, short) = (if about.on_gpu { "cuda" } else { "cpu" }, about.short());
    json!({
        "id": format!("_{}_{backend}_{short}", about.name),
        "name": about.name.replace('_', "-"),
        "version": 1,
        "python-depends": [],
        "backend": {"type": backend},
    })
}

pub(crate) fn readme(about: &About<'_>, tasks: &[&str], classes: &[String]) -> String {
    let About { name, digest, on_gpu } = about;
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || " _.-/".contains(*c)).collect()
    };
    let rows = tasks.iter().zip(classes);
    let rows = rows.map(|(task, class)| format!("| {} | `{name}.{class}` |\n", plain(task)));
    let rows: Vec<String> = rows.collect();
    let class = classes.first().map_or("", String::as_str);
    let device = if *on_gpu {
        "The device code is what the judge compiled and verified. It runs on GPUs of the named architecture."
    } else {
        "The kernels are machine code of the cpu device, for the processor that judged them. Times of the cpu \
         device promise nothing about a GPU."
    };
    include_str!("../runtime/README.md")
        .replace("{name}", name)
        .replace("{digest}", digest)
        .replace("{rows}", &rows.concat())
        .replace("{class}", class)
        .replace("{device}", device)
}
