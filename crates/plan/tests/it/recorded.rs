//! Pieces of recordings.

use warpwright_plan::{
    Address, LibraryCall, Memory, Op, RecordedMemory, RecordedOp, RecordedTensorMap,
};

/// An operation as a recorder writes it.
pub(crate) fn recorded_op(op: &Op, at: &dyn Fn(Address) -> u64, first_map: u32) -> RecordedOp {
    let memory = |memory: &Memory| match memory {
        Memory::Block(address) => RecordedMemory::Address(at(*address)),
        Memory::Symbol { module, name, offset } => {
            RecordedMemory::Symbol { module: *module, name: name.clone(), offset: *offset }
        }
    };
    match op {
        Op::Launch(launch) => RecordedOp::Launch {
            kernel: launch.kernel,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            cluster: launch.cluster,
            cooperative: launch.cooperative,
            programmatic: launch.programmatic,
            args: launch
                .args
                .iter()
                .map(|arg| {
                    let mut bytes = arg.bytes.clone();
                    for relocation in &arg.relocations {
                        let start = relocation.at as usize;
                        bytes[start..start + 8].copy_from_slice(&at(relocation.to).to_le_bytes());
                    }
                    for (start, map) in &arg.tensor_maps {
                        let start = *start as usize;
                        bytes[start..start + 8].copy_from_slice(&RecordedTensorMap::MARK);
                        let map = u64::from(first_map + map);
                        bytes[start + 8..start + 16].copy_from_slice(&map.to_le_bytes());
                    }
                    hex(&bytes)
                })
                .collect(),
        },
        Op::Fill(fill) => RecordedOp::Fill {
            to: memory(&fill.to),
            value: fill.value,
            element: fill.element,
            width: fill.width,
            height: fill.height,
            pitch: fill.pitch,
        },
        Op::Copy(copy) => RecordedOp::Copy {
            to: memory(&copy.to),
            from: memory(&copy.from),
            width: copy.width,
            height: copy.height,
            to_pitch: copy.to_pitch,
            from_pitch: copy.from_pitch,
        },
        Op::Upload(upload) => {
            let mut bytes = upload.bytes.clone();
            for relocation in &upload.relocations {
                let start = relocation.at as usize;
                bytes[start..start + 8].copy_from_slice(&at(relocation.to).to_le_bytes());
            }
            RecordedOp::Upload { to: memory(&upload.to), bytes }
        }
        Op::Gemm(gemm) => RecordedOp::Gemm {
            transpose: gemm.transpose,
            sizes: gemm.sizes,
            operands: gemm.operands.map(at),
            types: gemm.types,
            leading: gemm.leading,
            strides: gemm.strides,
            batch: gemm.batch,
            alpha: gemm.alpha,
            beta: gemm.beta,
            compute: gemm.compute,
            math: gemm.math,
            algorithm: gemm.algorithm,
            pointers: gemm.pointers,
        },
        Op::Gemv(gemv) => {
            let Ok(recorded) =
                gemv.try_map::<u64, std::convert::Infallible>(&mut |place| Ok(at(*place)));
            RecordedOp::Gemv(Box::new(recorded))
        }
        Op::Matmul(matmul) => {
            let Ok(recorded) =
                matmul.try_map::<u64, std::convert::Infallible>(&mut |place| Ok(at(*place)));
            RecordedOp::Matmul(Box::new(recorded))
        }
        Op::Convolution(convolution) => {
            let Ok(recorded) =
                convolution.try_map::<u64, std::convert::Infallible>(&mut |place| Ok(at(*place)));
            RecordedOp::Convolution(Box::new(recorded))
        }
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Numbers that look random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
