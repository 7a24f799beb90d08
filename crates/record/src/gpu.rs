//! Limits and instructions of NVIDIA's architectures. The profiler computes occupancy from them, and the skill tells
//! agents about them.
//!
//! The figures are those of the table "Technical Specifications per Compute Capability" of the CUDA C++ Programming
//! Guide, and of the target notes of the PTX ISA, both of CUDA 13.0. L2 sizes are those of NVIDIA's white papers.

/// One architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuArchitecture {
    /// Compute capability, times ten: 90.
    pub capability: u32,
    /// Cards that have it.
    pub cards: &'static str,
    /// Threads that reside on one multiprocessor.
    pub threads: u32,
    /// Blocks that reside on one multiprocessor.
    pub blocks: u32,
    /// Shared memory of one multiprocessor, KiB.
    pub shared_kib: u32,
    /// Last-level cache of these cards.
    pub l2: &'static str,
    /// Tensor-core instructions and their dtypes.
    pub tensor_cores: &'static str,
    /// Ways from global to shared memory, and clusters.
    pub copies: &'static str,
}

const HALF: &str = "`mma.sync`: f16, int8, int4";
const AMPERE: &str = "`mma.sync`: f16, bf16, tf32, int8, int4";
const COPIES: &str = "registers only";
const ASYNC: &str = "`cp.async` of 4 to 16 bytes; no TMA, no clusters";
const BULK: &str = "`cp.async`; TMA (`cp.async.bulk.tensor`) with multicast; clusters of 8 blocks, 16 by opting in";
const TENSOR_MEMORY: &str = "`tcgen05.mma` into tensor memory (256 KiB per multiprocessor): f16, bf16, tf32, fp8, fp6, \
                             fp4, block-scaled; `mma.sync`; no `wgmma`";
const BLOCK_SCALED: &str = "`mma.sync`: f16, bf16, tf32, int8, fp8, fp6, fp4, block-scaled (`kind::mxf8f6f4`, \
                            `kind::mxf4nvf4`); no `wgmma`, no `tcgen05`";
const BULK_ALONE: &str = "`cp.async`; TMA without multicast; clusters of 8 blocks";

/// Every architecture, by compute capability. nvcc 13 compiles for all but the first.
pub const ARCHITECTURES: [GpuArchitecture; 11] = [
    row(70, "V100", (2048, 32, 96), "6 MiB", "`mma.sync`: f16", COPIES),
    row(75, "T4, RTX 20", (1024, 16, 64), "4 to 6 MiB", HALF, COPIES),
    row(
        80,
        "A100",
        (2048, 32, 164),
        "40 MiB",
        "`mma.sync`: f16, bf16, tf32, f64, int8, int4",
        ASYNC,
    ),
    row(86, "A10, A40, RTX 30", (1536, 16, 100), "up to 6 MiB", AMPERE, ASYNC),
    row(87, "Jetson Orin", (1536, 16, 164), "4 MiB", AMPERE, ASYNC),
    row(
        89,
        "L4, L40S, RTX 40",
        (1536, 24, 100),
        "32 to 96 MiB",
        "`mma.sync`: f16, bf16, tf32, int8, int4, fp8 (e4m3, e5m2)",
        ASYNC,
    ),
    row(
        90,
        "H100, H200",
        (2048, 32, 228),
        "50 MiB",
        "`wgmma` from shared memory: f16, bf16, tf32, int8, fp8 (e4m3, e5m2); `mma.sync`: also f64",
        BULK,
    ),
    row(100, "B200", (2048, 32, 228), "126 MiB", TENSOR_MEMORY, BULK),
    row(103, "B300", (2048, 32, 228), "126 MiB", TENSOR_MEMORY, BULK),
    row(110, "Jetson Thor", (1536, 24, 228), "32 MiB", TENSOR_MEMORY, BULK),
    row(
        120,
        "RTX 50, RTX PRO Blackwell",
        (1536, 24, 100),
        "24 to 128 MiB",
        BLOCK_SCALED,
        BULK_ALONE,
    ),
];

const fn row(
    capability: u32,
    cards: &'static str,
    (threads, blocks, shared_kib): (u32, u32, u32),
    l2: &'static str,
    tensor_cores: &'static str,
    copies: &'static str,
) -> GpuArchitecture {
    GpuArchitecture { capability, cards, threads, blocks, shared_kib, l2, tensor_cores, copies }
}

impl GpuArchitecture {
    /// That of a name such as `sm_90a`; `None` for one that is not in the table. `sm_121` (DGX Spark) is as `sm_120`.
    pub fn of(name: &str) -> Option<&'static Self> {
        let digits = name.strip_prefix("sm_")?.trim_end_matches(['a', 'f']);
        let capability = if digits == "121" { 120 } else { digits.parse().ok()? };
        ARCHITECTURES.iter().find(|known| known.capability == capability)
    }

    /// Shared memory that the driver takes of each block, bytes.
    pub fn reserved_bytes(&self) -> u32 {
        if self.capability < 80 { 0 } else { 1 << 10 }
    }

    /// Most shared memory of one block, by opting in, KiB.
    pub fn shared_kib_per_block(&self) -> u32 {
        self.shared_kib - self.reserved_bytes() / 1024
    }

    /// Its name for nvcc: `sm_90a`.
    pub fn name(&self) -> String {
        architecture_name(self.capability / 10, self.capability % 10)
    }
}

/// As nvcc calls what a GPU of this compute capability runs: since 9.0 with the letter for the instructions that it
/// alone has (`wgmma`, `tcgen05`, block-scaled `mma`).
pub fn architecture_name(major: u32, minor: u32) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_capabilities_have_the_compilers_names() {
        let named = [
            ((7, 5), "sm_75"),
            ((8, 0), "sm_80"),
            ((8, 6), "sm_86"),
            ((8, 9), "sm_89"),
            ((9, 0), "sm_90a"),
            ((10, 0), "sm_100a"),
            ((10, 3), "sm_103a"),
            ((11, 0), "sm_110a"),
            ((12, 0), "sm_120a"),
            ((12, 1), "sm_121a"),
        ];
        for ((major, minor), name) in named {
            assert_eq!(architecture_name(major, minor), name);
            assert!(GpuArchitecture::of(name).is_some(), "{name}");
        }
        for known in &ARCHITECTURES {
            assert_eq!(GpuArchitecture::of(&known.name()), Some(known));
        }
        for other in ["sm_52", "sm_", "cpu", "sm_900000000000", "sm_130a"] {
            assert_eq!(GpuArchitecture::of(other), None, "{other}");
        }
    }
}
