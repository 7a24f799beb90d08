//! Torch's headers are precompiled on their second use.

use std::path::PathBuf;

use fs_err as fs;

use crate::bench::{Bench, bench_with_nvcc, built, candidate, failed, sm_90a};

/// A unique binding, because objects are cached as well.
fn binding(value: u32) -> String {
    format!(
        r#"// Adds a constant.
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include "../binding_registry.h"

static torch::Tensor add(torch::Tensor x) {{
    TORCH_CHECK(x.is_contiguous(), "contiguous");
    return torch::empty_like(x, x.options(), torch::MemoryFormat({value}));
}}

static void bind_add(pybind11::module& m) {{ m.def("add", &add); }}
REGISTER_BINDING(add, bind_add);
"#
    )
}

fn build(bench: &Bench, text: &str) -> warpwright_build::Outcome {
    let candidate = candidate(&[("kernels/add_binding.cpp", text)]);
    bench.builder.build(&candidate, &sm_90a()).unwrap()
}

/// Files of the precompiled headers in the cache.
fn precompiled(bench: &Bench) -> Vec<PathBuf> {
    let folders = |path: PathBuf| {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let entries = folders(bench.builder.cache_dir().join("headers")).into_iter().flat_map(folders);
    let files = entries.flat_map(folders);
    files.filter(|path| path.extension().is_some_and(|e| e == "gch" || e == "pch")).collect()
}

#[test]
fn long_second_build_precompiles_torch_headers() {
    let Some(bench) = bench_with_nvcc() else { return };
    built(build(&bench, &binding(0)));
    assert!(precompiled(&bench).is_empty(), "one use is not worth it");
    built(build(&bench, &binding(1)));
    let [header] = &precompiled(&bench)[..] else { panic!("{:?}", precompiled(&bench)) };

    // Messages name the candidate's own file and line.
    let why = failed(build(&bench, &binding(1).replace("is_contiguous()", "is_contigous()")));
    let first = &why.diagnostics[0];
    let place = (first.file.as_deref(), first.line);
    assert_eq!(place, (Some("kernels/add_binding.cpp"), Some(7)), "{:?}", why.diagnostics);
    assert!(first.message.contains("is_contigous"), "{}", first.message);

    // One that does not fit what is installed is done without, as if it were not there.
    let bytes = fs::metadata(header).unwrap().len();
    fs::write(header, vec![0x5a; bytes as usize]).unwrap();
    built(build(&bench, &binding(2)));
}
