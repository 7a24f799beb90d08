//! The order of the halves of a step: forward, then the gradients of what it returned.

use std::collections::BTreeSet;

use crate::plan::{Address, LaunchPlan, Node, Role};

impl LaunchPlan {
    /// The first node that names memory of one of the results `outputs` after a node has named one of the inputs
    /// `gradients`. What forward returns is final before anybody knows its gradients: such a node computes it too late.
    pub fn late_output(&self, outputs: &[u32], gradients: &[u32]) -> Option<usize> {
        let is_gradient = |block: u32| {
            let block = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
            let role = block.map(|block| block.role);
            matches!(role, Some(Role::Input(position)) if gradients.contains(&position))
        };
        let of_output = |index: &u32| {
            let index = usize::try_from(*index).ok()?;
            Some(self.outputs.tensors.get(index)?.at.block)
        };
        let results: BTreeSet<u32> = outputs.iter().filter_map(of_output).collect();
        let known = self.forward.iter().position(|node| self.names(node, is_gradient))?;
        let late = |(index, node): &(usize, &Node)| {
            *index >= known && self.names(node, |block| results.contains(&block))
        };
        self.forward.iter().enumerate().find(late).map(|(index, _)| index)
    }

    /// Whether a node names memory of a block for which `is` holds.
    fn names(&self, node: &Node, is: impl Fn(u32) -> bool) -> bool {
        let mut op = node.op.clone();
        let maps = op.tensor_maps().filter_map(|map| {
            let map = usize::try_from(*map).ok().and_then(|map| self.tensor_maps.get(map));
            map.map(|map| map.address)
        });
        let mut all: Vec<Address> = maps.collect();
        all.extend(node.op.addresses());
        all.iter().any(|address| is(address.block))
    }
}
