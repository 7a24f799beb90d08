//! Kernels and launches: what the driver would refuse, and arguments of the right sizes.

use super::{Checker, Rule, at, ensure};
use crate::image::KernelInfo;
use crate::limits::{MAX_LOCAL_BYTES, MAX_NAME};
use crate::plan::{Argument, Kernel, Launch};
use crate::recording::RecordedTensorMap;

const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_THREADS: u64 = 1024;
/// Shared memory of a block that needs no attribute, static and dynamic.
const SHARED: u64 = 48 << 10;
/// With the attribute; no device has more.
const MAX_SHARED: u64 = 228 << 10;
/// Blocks per cluster: portably, and at all.
const MAX_CLUSTER: [u64; 2] = [8, 16];
/// Alignment of a tensor map in its argument.
const MAP_ALIGN: u32 = 64;

impl Checker<'_> {
    pub(super) fn kernel(&self, kernel: &Kernel) -> Rule {
        let info = self.info(kernel)?;
        ensure(kernel.params == info.param_bytes(), "its parameters are not the image's")?;
        ensure(info.local <= MAX_LOCAL_BYTES, "it takes too much local memory")?;
        let dynamic = u64::from(kernel.max_dynamic_shared.unwrap_or(0));
        let shared = dynamic.checked_add(info.static_shared);
        ensure(
            shared.is_some_and(|shared| shared <= MAX_SHARED),
            "it allows too much shared memory",
        )?;
        let carveout = kernel.shared_carveout.is_none_or(|percent| (-1..=100).contains(&percent));
        ensure(carveout, "its carveout is no percentage")
    }

    pub(super) fn launch(&self, launch: &Launch) -> Rule {
        let kernel = at(&self.plan.kernels, launch.kernel).ok_or("a kernel does not exist")?;
        let info = self.info(kernel)?;
        let threads = sizes(launch.block, MAX_BLOCK)
            .ok_or("its block has a size that CUDA does not allow")?;
        let most = info.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS);
        ensure(threads <= most, "its block has more threads than the kernel allows")?;
        let required = info.required_block.is_none_or(|block| block == launch.block);
        ensure(required, "its block is not the one that the kernel requires")?;
        sizes(launch.grid, MAX_GRID).ok_or("its grid has a size that CUDA does not allow")?;
        cluster(launch, kernel, info)?;
        let free = SHARED.saturating_sub(info.static_shared);
        let most = kernel.max_dynamic_shared.map_or(free, u64::from);
        ensure(
            u64::from(launch.shared) <= most,
            "it needs more dynamic shared memory than the kernel's attribute allows",
        )?;
        ensure(launch.args.len() == kernel.params.len(), "it has another number of arguments")?;
        let mut arguments = launch.args.iter().zip(&kernel.params);
        arguments.try_for_each(|(argument, bytes)| self.argument(argument, *bytes))
    }

    fn argument(&self, argument: &Argument, bytes: u32) -> Rule {
        ensure(argument.bytes.len() as u64 == u64::from(bytes), "an argument has another size")?;
        let mut maps = Vec::with_capacity(argument.tensor_maps.len());
        for (offset, map) in &argument.tensor_maps {
            at(&self.plan.tensor_maps, *map).ok_or("its tensor map does not exist")?;
            ensure(offset.is_multiple_of(MAP_ALIGN), "a tensor map is not aligned")?;
            let start = u64::from(*offset);
            maps.push((start, start + RecordedTensorMap::BYTES as u64));
        }
        self.relocations(argument.bytes.len(), &argument.relocations, &maps)
    }

    fn info(&self, kernel: &Kernel) -> Result<&KernelInfo, &'static str> {
        ensure(kernel.name.len() <= MAX_NAME, "its name is too long")?;
        let image = at(self.images, kernel.module).ok_or("its module does not exist")?;
        image.kernel(&kernel.name).ok_or("it is not in its image")
    }
}

fn cluster(launch: &Launch, kernel: &Kernel, info: &KernelInfo) -> Rule {
    // `__block_size__` alone gives a cluster of one block.
    let compiled = info.cluster.filter(|cluster| *cluster != [1, 1, 1]);
    let agree = launch.cluster.is_none() || compiled.is_none() || launch.cluster == compiled;
    ensure(agree, "its cluster is not the one that the kernel requires")?;
    let Some(cluster) = launch.cluster.or(compiled) else { return Ok(()) };
    let [portable, any] = MAX_CLUSTER;
    let most = if kernel.nonportable_cluster { any } else { portable };
    let blocks = sizes(cluster, [16; 3]);
    ensure(blocks.is_some_and(|blocks| blocks <= most), "its cluster is too large or empty")?;
    let divides =
        launch.grid.iter().zip(&cluster).all(|(grid, blocks)| grid.is_multiple_of(*blocks));
    ensure(divides, "its grid is no multiple of its cluster")
}

/// The product of three sizes that are at least 1 and at most `most`.
fn sizes(sizes: [u32; 3], most: [u32; 3]) -> Option<u64> {
    let fit = sizes.iter().zip(&most).all(|(size, most)| (1..=*most).contains(size));
    let [x, y, z] = sizes.map(u64::from);
    if fit { x.checked_mul(y)?.checked_mul(z) } else { None }
}
