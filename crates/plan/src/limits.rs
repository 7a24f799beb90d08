//! How much a recording and a plan may hold. Honest candidates stay far below; the limits bound the time and the
//! memory that a hostile one can take from the judge and from the replayer.

/// Operations of one call, and of `prepare`. A call of 4096 launches lasts 10 ms by its launches alone.
pub const MAX_NODES: usize = 4096;
/// Allocations of one recording, freed or not, of two calls and of all that came before.
pub const MAX_ALLOCATIONS: usize = 65_536;
/// Blocks of one plan: the allocations that it uses. The largest models have 2000 weights.
pub const MAX_BLOCKS: usize = 4096;
/// Bytes of all constants together: they are stored beside the plan and sent to the device.
pub const MAX_CONSTANT_BYTES: u64 = 64 << 20;
/// Bytes of a block of zeros that is stored as a constant: plans of two sets of weights are then alike where a
/// small table is zero with one of them. Longer zeros are cheaper to write than to store.
pub const MAX_ZERO_BYTES: u64 = 1 << 20;
/// Bytes of all arguments and uploads together: they are part of the plan's text.
pub const MAX_ARGUMENT_BYTES: usize = 8 << 20;
/// Streams. The device has few queues for them.
pub const MAX_STREAMS: u32 = 16;
/// Edges into one node: one for each other stream suffices, and several events are common.
pub const MAX_EDGES: usize = 64;
/// Modules, kernels and tensor maps, of each.
pub const MAX_ENTRIES: usize = 256;
/// Bytes of all modules together, which the judge hashes and the replayer reads. It refuses more than 256 MiB,
/// and kernels of a whole library take some MiB.
pub const MAX_MODULE_BYTES: u64 = 128 << 20;
/// Bytes of code and variables that the driver keeps on the device for all modules together. The replayer holds
/// a copy of the variables.
pub const MAX_LOADED_BYTES: u64 = 256 << 20;
/// Bytes of local memory of one thread. The driver reserves them for every thread that fits the device at once
/// and keeps them: 64 KiB make 16.5 GiB on a device of 132 multiprocessors.
pub const MAX_LOCAL_BYTES: u32 = 64 << 10;
/// Tensors of inputs, weights, constructor arguments and results, of each.
pub const MAX_TENSORS: usize = 4096;
/// Values in the tree of a result.
pub const MAX_TREE: usize = 65_536;
/// Bytes of one block. Devices have less.
pub const MAX_BLOCK_BYTES: u64 = 1 << 40;
/// Bytes of a name. C++ names can be long.
pub const MAX_NAME: usize = 4096;
/// Bytes of a serialised recording: its arguments in hexadecimal, and as much again for everything else.
pub const MAX_RECORDING_BYTES: usize = 4 * MAX_ARGUMENT_BYTES;
/// How far beyond its block a kernel's argument may point: to the end of a tensor, or to a tile that is
/// masked out.
pub const BEYOND: u64 = 4096;
