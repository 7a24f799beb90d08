//! The order of the halves of a step: forward, then the gradients of what it returned.

use std::collections::BTreeSet;

use crate::plan::{Address, LaunchPlan, Node, Op, Role};

impl LaunchPlan {
    /// The first node that names memory of one of the results `outputs` and is no copy, or comes after a node that names
    /// one of the inputs `gradients`. What forward returns is copied before anybody knows its gradients: such a node
    /// computes it too late.
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
        let known = self.forward.iter().position(|node| self.names(node, is_gradient));
        let late = |(index, node): &(usize, &Node)| {
            let early = known.is_none_or(|known| *index < known);
            let is_copy = matches!(node.op, Op::Copy(_)) && early;
            !is_copy && self.names(node, |block| results.contains(&block))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{Block, Copy2d, Fill, Memory, Output, Outputs, Producer};

    const X: u32 = 0;
    const GRADIENT: u32 = 1;
    const OUT: u32 = 2;
    const SCRATCH: u32 = 3;

    /// Copies between these blocks, in order. What is in `OUT` is returned.
    fn plan(copies: &[(u32, u32)]) -> LaunchPlan {
        let call = Role::Call { born: 0, freed: None };
        let roles = [Role::Input(0), Role::Input(1), call, call];
        let memory = |block| Memory::Block(Address { block, offset: 0 });
        let node = |&(from, to): &(u32, u32)| Node {
            stream: 0,
            after: Vec::new(),
            op: Op::Copy(Copy2d {
                to: memory(to),
                from: memory(from),
                width: 4,
                height: 1,
                to_pitch: 0,
                from_pitch: 0,
            }),
        };
        let at = Address { block: OUT, offset: 0 };
        let output = Output { at, shape: vec![1], strides: vec![1], dtype: "float32".to_owned() };
        LaunchPlan {
            version: 1,
            producer: Producer { kind: String::new(), compiler: String::new() },
            modules: Vec::new(),
            kernels: Vec::new(),
            tensor_maps: Vec::new(),
            constants: Vec::new(),
            blocks: roles.map(|role| Block { bytes: 512, role }).to_vec(),
            prepare: Vec::new(),
            forward: copies.iter().map(node).collect(),
            outputs: Outputs { tree: json!({"tensor": 0}), tensors: vec![output] },
        }
    }

    #[test]
    fn output_written_after_its_gradient_is_late() {
        let late = |copies| plan(copies).late_output(&[0], &[1]);
        assert_eq!(late(&[(X, OUT), (X, SCRATCH), (GRADIENT, SCRATCH)]), None);
        assert_eq!(late(&[(X, SCRATCH), (GRADIENT, SCRATCH), (SCRATCH, OUT)]), Some(2));
        assert_eq!(late(&[(GRADIENT, OUT)]), Some(0), "both at once");
        assert_eq!(late(&[(X, OUT)]), None, "nobody reads the gradients");
        let plan = plan(&[(X, SCRATCH), (GRADIENT, SCRATCH), (SCRATCH, OUT)]);
        assert_eq!(plan.late_output(&[0], &[]), None, "positive control: no task with gradients");
        assert_eq!(plan.late_output(&[7], &[1]), None);
        // A kernel or a fill that writes it is no copy of what forward returned.
        let mut filled = self::plan(&[(X, OUT), (GRADIENT, SCRATCH)]);
        let to = Memory::Block(Address { block: OUT, offset: 0 });
        filled.forward[0].op =
            Op::Fill(Fill { to, value: 0, element: 4, width: 1, height: 1, pitch: 0 });
        assert_eq!(filled.late_output(&[0], &[1]), Some(0));
    }
}
