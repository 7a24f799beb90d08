//! Compiles `csrc/*.cpp` against the libtorch that `torch-sys` links, and passes its run-time
//! location to the linker.

use std::env;
use std::path::PathBuf;

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=csrc");
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys (links = "tch") passes its folder to dependent crates.
    let lib = env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from);
    let lib = lib.ok_or("torch-sys did not report libtorch's folder")?;
    let torch = lib.parent().ok_or("libtorch's folder has no parent")?;
    let include = torch.join("include");
    let has_cuda = lib.join("libtorch_cuda.so").exists();
    let mut shim = cc::Build::new();
    shim.cpp(true)
        .std("c++17")
        .warnings(false)
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .files(["csrc/shim.cpp", "csrc/kernels.cpp", "csrc/fused.cpp"]);
    // Where pip installs CUDA's headers, next to torch.
    let cuda = torch.join("../nvidia/cu13/include");
    if has_cuda && cuda.join("cuda_runtime_api.h").exists() {
        shim.define("WARPWRIGHT_CUDA", None).include(cuda);
    }
    shim.compile("warpwright_engine_shim");
    // Next to the program, then where make installs torch, then where it was built.
    for folder in ["$ORIGIN/../../.venv/torch/lib", &lib.to_string_lossy()] {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    if has_cuda {
        // Nothing refers to it by name: its operators register themselves when it is loaded.
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo:rustc-link-arg=-L{}", lib.display());
        println!("cargo:rustc-link-arg=-ltorch_cuda");
        println!("cargo:rustc-link-arg=-lc10_cuda");
        println!("cargo:rustc-link-arg=-Wl,--as-needed");
    }
    Ok(())
}
