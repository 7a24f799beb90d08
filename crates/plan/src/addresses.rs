//! Every address of an operation, for those who count, check or renumber blocks.

use crate::library_call::LibraryCall;
use crate::plan::{Address, Memory, Op};

impl Op {
    /// Addresses in this operation, those of its tensor maps excepted.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let mut copy = self.clone();
        let mut found = Vec::new();
        let Ok(()) = copy.try_each_address::<std::convert::Infallible>(&mut |address| {
            found.push(*address);
            Ok(())
        });
        found
    }

    /// Calls `change` with each of them.
    pub(crate) fn try_each_address<E>(
        &mut self,
        change: &mut impl FnMut(&mut Address) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut memory = |memory: &mut Memory| match memory {
            Memory::Block(address) => change(address),
            Memory::Symbol { .. } => Ok(()),
        };
        match self {
            Self::Launch(launch) => {
                let relocations = launch.args.iter_mut().flat_map(|arg| &mut arg.relocations);
                relocations.map(|relocation| &mut relocation.to).try_for_each(change)
            }
            Self::Fill(fill) => memory(&mut fill.to),
            Self::Copy(copy) => {
                memory(&mut copy.to)?;
                memory(&mut copy.from)
            }
            Self::Upload(upload) => {
                memory(&mut upload.to)?;
                let relocations = upload.relocations.iter_mut();
                relocations.map(|relocation| &mut relocation.to).try_for_each(change)
            }
            Self::Gemm(gemm) => gemm.operands.iter_mut().try_for_each(change),
            Self::Gemv(gemv) => change_all(&mut **gemv, change),
            Self::Matmul(matmul) => change_all(&mut **matmul, change),
            Self::Convolution(convolution) => change_all(&mut **convolution, change),
        }
    }

    /// Indices of the tensor maps in this operation.
    pub(crate) fn tensor_maps(&mut self) -> impl Iterator<Item = &mut u32> {
        let args = match self {
            Self::Launch(launch) => launch.args.as_mut_slice(),
            _ => &mut [],
        };
        args.iter_mut().flat_map(|arg| &mut arg.tensor_maps).map(|(_, map)| map)
    }

    /// Memory that this operation reads or writes by itself.
    pub(crate) fn memories(&mut self) -> Vec<&mut Memory> {
        match self {
            Self::Fill(fill) => vec![&mut fill.to],
            Self::Copy(copy) => vec![&mut copy.to, &mut copy.from],
            Self::Upload(upload) => vec![&mut upload.to],
            Self::Launch(_)
            | Self::Gemm(_)
            | Self::Gemv(_)
            | Self::Matmul(_)
            | Self::Convolution(_) => Vec::new(),
        }
    }
}

/// Calls `change` with each address of a library call.
fn change_all<C: LibraryCall<Address, With<Address> = C>, E>(
    call: &mut C,
    change: &mut impl FnMut(&mut Address) -> Result<(), E>,
) -> Result<(), E> {
    *call = call.try_map(&mut |address| {
        let mut address = *address;
        change(&mut address).map(|()| address)
    })?;
    Ok(())
}
