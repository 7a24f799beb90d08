//! The NVIDIA GPUs that the driver lists, read from its files. No library is loaded and no context
//! is created. The judge finds out whether a GPU works when it opens it.

use fs_err as fs;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its ordinal for CUDA.
    pub number: u32,
    /// Its model, as the driver names it.
    pub name: String,
}

/// All GPUs whose device node exists, in the driver's order.
pub fn all() -> Vec<Gpu> {
    let nodes = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = nodes
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let names = names();
    // Ordinals of CUDA count what is visible; the node's number need not start at 0 in a container.
    (0..)
        .zip(numbers)
        .map(|(number, minor)| {
            let name = names.iter().find(|(known, _)| *known == minor);
            let name = name.map_or_else(|| "NVIDIA GPU".to_owned(), |(_, name)| name.clone());
            Gpu { number, name }
        })
        .collect()
}

/// Version of the driver; empty when it is not loaded.
pub fn driver() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let words = first.split_whitespace();
    words
        .into_iter()
        .find(|w| w.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or_default()
        .to_owned()
}

/// Device minor and model of every GPU the driver knows.
fn names() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("information")).ok()?;
            let field = |key: &str| {
                let line = text.lines().find(|line| line.starts_with(key))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            };
            Some((field("Device Minor")?.parse().ok()?, field("Model")?))
        })
        .collect()
}
