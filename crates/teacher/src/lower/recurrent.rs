//! Recurrent layers: LSTM, GRU and plain ones, with any number of layers and directions.

use std::sync::Arc;

use serde_json::Value;

use super::operand::settled;
use super::{CallView, Family, Lowering};
use crate::algebra::number;
use crate::dtype::DType;
use crate::heavy::{Cell, Recurrence};
use crate::index::{dot, numel, strides_of};
use crate::ir::{NodeId, Op, axes};

/// See the module.
pub(super) struct Recurrent;

impl Family for Recurrent {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let cell = match call.base() {
            "lstm" => Cell::Lstm,
            "gru" => Cell::Gru,
            "rnn_tanh" => Cell::Tanh,
            "rnn_relu" => Cell::Relu,
            _ => return Ok(None),
        };
        // `(input, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)`
        let list = |position: usize| call.arg(position, "").and_then(Value::as_array).cloned();
        let meta = call.result(0)?;
        let (name, dtype) = (call.name(), meta.dtype);
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(format!("of {}", dtype.torch()));
        }
        let x = to.node(call, 0)?;
        let shape = to.graph.shape(x).to_vec();
        if shape.len() != 3 || call.arg(3, "").and_then(Value::as_bool).is_none() {
            return Err("of packed sequences".to_owned());
        }
        if call.flag(6, "") && call.float(5, "").unwrap_or(0.0) > 0.0 {
            return Err("with dropout".to_owned());
        }
        let batch_first = call.flag(8, "");
        let (batch, steps) = if batch_first { (shape[0], shape[1]) } else { (shape[1], shape[0]) };
        let layers = call.int(4, "").unwrap_or(1);
        let directions = if call.flag(7, "") { 2 } else { 1 };
        let states: Vec<NodeId> = match list(1) {
            Some(states) => states.iter().map(|s| to.operand(Some(s))).collect::<Result<_, _>>()?,
            None => vec![to.node(call, 1)?],
        };
        let weights = list(2).ok_or("no weights")?;
        let weights: Vec<NodeId> =
            weights.iter().map(|w| to.operand(Some(w))).collect::<Result<_, _>>()?;
        let has_state = states.iter().any(|s| number(&to.graph, *s) != Some(0.0));
        let hidden = to.graph.shape(states[0]).last().copied().unwrap_or(0);
        let op = Recurrence {
            cell,
            layers,
            directions,
            has_bias: call.flag(3, ""),
            has_state,
            batch_first,
            batch,
            steps,
            input: shape[2],
            hidden,
        };
        if weights.len() as i64 != layers * directions * if op.has_bias { 4 } else { 2 } {
            return Err("with projections".to_owned());
        }
        let mut args = vec![x];
        if has_state {
            args.extend(&states);
        }
        args.extend(&weights);
        let args = args.into_iter().enumerate();
        let args = args.map(|(k, a)| settled(&mut to.graph, &op, k, a, dtype)).collect();
        let count = op.elements();
        let node = to.graph.push(name, Op::Heavy { op: Arc::new(op), args }, vec![count], dtype);
        // One piece of memory holds all results, one after the other.
        let mut start = 0;
        let mut results = Vec::new();
        for i in 0..=states.len() {
            let shape = match call.call.out.get(i).and_then(Option::as_ref) {
                Some(meta) => meta.shape.clone(),
                None => vec![layers * directions, batch, hidden],
            };
            let at = dot(&axes(&shape), &strides_of(&shape)).add_const(start);
            start += numel(&shape);
            results.push(to.graph.view(node, vec![at], shape));
        }
        Ok(Some(results))
    }
}
