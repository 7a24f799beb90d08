//! How much a recording and a plan may hold. Honest candidates stay far below; the limits bound the time and the
//! memory that a hostile one can take from the judge and from the replayer.

/// Operations of one call, and of `prepare`. A call of 4096 launches lasts 10 ms by its launches alone.
pub const MAX_NODES: usize = 4096;
/// Allocations of one recording, of which a plan keeps those that are used.
pub const MAX_BLOCKS: usize = 65_536;
/// Bytes of all constants together: they are stored beside the plan and sent to the device.
pub const MAX_CONSTANT_BYTES: u64 = 64 << 20;
/// Bytes of all arguments and uploads together: they are part of the plan's text.
pub const MAX_ARGUMENT_BYTES: usize = 8 << 20;
/// Streams. The device has few queues for them.
pub const MAX_STREAMS: u32 = 16;
/// Edges into one node: one for each other stream suffices, and several events are common.
pub const MAX_EDGES: usize = 64;
/// Modules, kernels and tensor maps, of each.
pub const MAX_ENTRIES: usize = 256;
/// Tensors of inputs, weights, constructor arguments and results, of each.
pub const MAX_TENSORS: usize = 65_536;
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
