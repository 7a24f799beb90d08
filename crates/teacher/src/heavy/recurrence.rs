//! Recurrent layers: by cuDNN on the GPU, by one kernel per layer and direction on the cpu device.
//!
//! The node is one block of memory with all results, concatenated: the outputs of the last layer at
//! every step, the last hidden state of every layer and direction, and for an LSTM the last cell
//! states.

use super::cublas::Signature;
use super::operand::{Place, locate, start_of};
use super::{Channels, HeavyOp, epilogue, recurrence_cudnn};
use crate::dtype::DType;
use crate::emit::{HeavyContext, KernelFile};
use crate::index::Expr;
use crate::ir::{Graph, NodeId};
use crate::plan::Products;

/// The state update of a step. Gates are in torch's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Input, forget, candidate, output.
    Lstm,
    /// Reset, update, candidate.
    Gru,
    Tanh,
    Relu,
}

impl Cell {
    pub(super) fn gates(self) -> i64 {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Tanh | Self::Relu => 1,
        }
    }
}

/// Stacked recurrent layers. Arguments: the sequence; the states (hidden, and cell of an LSTM) if
/// `has_state`, else they are zero; then per layer and direction the weights of input and state,
/// and their biases if `has_bias`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recurrence {
    pub(crate) cell: Cell,
    pub(crate) layers: i64,
    /// 1, or 2 for a bidirectional layer.
    pub(crate) directions: i64,
    pub(crate) has_bias: bool,
    pub(crate) has_state: bool,
    /// `[batch, steps, features]` rather than `[steps, batch, features]`.
    pub(crate) batch_first: bool,
    pub(crate) batch: i64,
    pub(crate) steps: i64,
    pub(crate) input: i64,
    pub(crate) hidden: i64,
}

/// Weights of one layer in one direction, by the names of the launcher's parameters.
pub(super) struct Weights {
    pub(super) input: String,
    pub(super) hidden: String,
    pub(super) biases: Option<(String, String)>,
}

impl Recurrence {
    /// Elements of a state of one kind.
    pub(super) fn state(&self) -> i64 {
        self.layers * self.directions * self.batch * self.hidden
    }

    /// Elements of the outputs at every step.
    pub(super) fn outputs(&self) -> i64 {
        self.steps * self.batch * self.directions * self.hidden
    }

    /// Elements of all results together.
    pub(crate) fn elements(&self) -> i64 {
        self.outputs() + self.state() * self.states()
    }

    pub(super) fn states(&self) -> i64 {
        if self.cell == Cell::Lstm { 2 } else { 1 }
    }

    /// Features that a layer reads.
    pub(super) fn features(&self, layer: i64) -> i64 {
        if layer == 0 { self.input } else { self.directions * self.hidden }
    }

    fn shape_of(&self, position: usize) -> Vec<i64> {
        let states = if self.has_state { self.states() as usize } else { 0 };
        if position == 0 {
            return if self.batch_first {
                vec![self.batch, self.steps, self.input]
            } else {
                vec![self.steps, self.batch, self.input]
            };
        }
        if position <= states {
            return vec![self.layers * self.directions, self.batch, self.hidden];
        }
        let each = if self.has_bias { 4 } else { 2 };
        let at = position - 1 - states;
        let layer = at as i64 / each / self.directions;
        let rows = self.cell.gates() * self.hidden;
        match at as i64 % each {
            0 => vec![rows, self.features(layer)],
            1 => vec![rows, self.hidden],
            _ => vec![rows],
        }
    }

    fn purpose(&self, by: &str) -> String {
        let kind = match self.cell {
            Cell::Lstm => "LSTM",
            Cell::Gru => "GRU",
            Cell::Tanh => "Recurrent layers with tanh",
            Cell::Relu => "Recurrent layers with ReLU",
        };
        format!(
            "{kind} by {by}: {} layer(s) in {} direction(s), {} -> {} features, {} steps of {} rows.\n\
             Results: outputs at every step, then the last states.",
            self.layers, self.directions, self.input, self.hidden, self.steps, self.batch
        )
    }
}

impl HeavyOp for Recurrence {
    fn name(&self) -> &'static str {
        match self.cell {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
            Cell::Tanh | Cell::Relu => "rnn",
        }
    }

    fn takes_view(&self, position: usize, offset: &Expr) -> bool {
        start_of(offset, &self.shape_of(position)).is_some()
    }

    fn fuses_epilogue(&self) -> bool {
        false
    }

    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String> {
        let mut places = Vec::new();
        for position in 0..context.args.len() {
            let place = Place::of(&locate(context, position)?, &self.shape_of(position));
            places.push(place.ok_or("an operand of the recurrent layer is not contiguous")?);
        }
        let follow = epilogue::write(context, false)?;
        let mut e = context.emitter();
        let buffers: Vec<NodeId> = places.iter().map(|p| p.buffer).collect();
        let mut signature = Signature::new(context, &mut e, &buffers, &follow);
        let names: Vec<String> =
            places.iter().map(|p| p.address(signature.name_of(p.buffer))).collect();
        let mut rest = names.iter().cloned();
        let x = rest.next().unwrap_or_default();
        let states = if self.has_state { self.states() } else { 0 };
        let states: Vec<String> = rest.by_ref().take(states as usize).collect();
        let mut weights = Vec::new();
        while let (Some(input), Some(hidden)) = (rest.next(), rest.next()) {
            let biases = if self.has_bias { rest.next().zip(rest.next()) } else { None };
            weights.push(Weights { input, hidden, biases });
        }
        if context.target.cpu {
            let body = self.on_host(context, &mut signature, &x, &states, &weights);
            let purpose = self.purpose("one kernel per layer and direction");
            return Ok(signature.file(context, &purpose, "cmath", &follow, &body));
        }
        let dtype = context.graph.dtype(context.node);
        let body = recurrence_cudnn::write(
            self,
            &recurrence_cudnn::Call {
                name: &context.name,
                signature: &signature.text,
                out: &signature.raw,
                x: &x,
                states: &states,
                weights: &weights,
                dtype,
                tf32: context.target.products == Products::Tf32,
            },
        );
        Ok(signature.file(context, &self.purpose("cuDNN"), "cudnn.h", &follow, &body))
    }

    fn channels(&self, _: &Graph, _: &[NodeId]) -> Option<Channels> {
        None
    }
}

impl Recurrence {
    /// The kernel for the cpu device: a thread takes a row of the batch through all steps.
    fn on_host(
        &self,
        context: &HeavyContext<'_>,
        signature: &mut Signature,
        x: &str,
        states: &[String],
        weights: &[Weights],
    ) -> Vec<String> {
        let dtype = context.graph.dtype(context.node);
        let t = dtype.storage();
        let (gates, hidden, batch) = (self.cell.gates(), self.hidden, self.batch);
        let name = &context.name;
        let mut scratch = |name: &str, count: i64| {
            signature.text.push_str(&format!(", {t}* {name}"));
            signature.scratch.push((vec![count], dtype));
        };
        scratch("gates", batch * 2 * gates * hidden);
        // What one layer hands to the next: two pieces of memory in turn.
        for k in 0..(self.layers - 1).min(2) {
            scratch(&format!("between_{k}"), self.outputs());
        }
        let mut body = vec![format!(
            "using T = {t};
constexpr int kSteps = {}, kHidden = {hidden}, kGates = {gates} * kHidden;

// In running sums that the compiler keeps in vector registers.
static __device__ T dot(const T* a, const T* b, int count) {{
  T part[16];
  for (int j = 0; j < 16; ++j) part[j] = 0;
  int k = 0;
  for (; k + 16 <= count; k += 16) {{
    for (int j = 0; j < 16; ++j) part[j] += a[k + j] * b[k + j];
  }}
  T total = 0;
  for (int j = 0; j < 16; ++j) total += part[j];
  for (; k < count; ++k) total += a[k] * b[k];
  return total;
}}

static __device__ T sigmoid(T x) {{ return (T)1 / ((T)1 + {exp}(-x)); }}

// One row of the batch through all steps. The last states are where the running ones are.
__global__ void __launch_bounds__(1) {name}_kernel(
    const T* x, int64_t x_row, int64_t x_step, int features, const T* w, const T* u, const T* b_w, const T* b_u,
    const T* first, const T* first_cell, T* y, int64_t y_row, int64_t y_step, T* last, T* last_cell, T* gates,
    int backward) {{
  const int row = blockIdx.x;
  T* from_input = gates + (int64_t)row * 2 * kGates;
  T* from_state = from_input + kGates;
  T* state = last + (int64_t)row * kHidden;
  T* cell = last_cell ? last_cell + (int64_t)row * kHidden : nullptr;
  for (int j = 0; j < kHidden; ++j) {{
    state[j] = first ? first[(int64_t)row * kHidden + j] : 0;
    if (cell) cell[j] = first_cell ? first_cell[(int64_t)row * kHidden + j] : 0;
  }}
  for (int s = 0; s < kSteps; ++s) {{
    const int t = backward ? kSteps - 1 - s : s;
    const T* at = x + row * x_row + t * x_step;
    for (int g = 0; g < kGates; ++g) {{
      from_input[g] = dot(at, w + (int64_t)g * features, features) + (b_w ? b_w[g] : 0);
      from_state[g] = dot(state, u + (int64_t)g * kHidden, kHidden) + (b_u ? b_u[g] : 0);
    }}
    for (int j = 0; j < kHidden; ++j) {{
{step}
      y[row * y_row + t * y_step + j] = state[j];
    }}
  }}
}}
",
            self.steps,
            exp = if dtype == DType::F64 { "exp" } else { "expf" },
            step = self.step(if dtype == DType::F64 { "tanh" } else { "tanhf" }),
        )];
        body.push(format!(
            "extern \"C\" int {name}_launcher({}, cudaStream_t stream) {{",
            signature.text
        ));
        let strides = |features: i64| {
            if self.batch_first {
                format!("{}, {features}", self.steps * features)
            } else {
                format!("{features}, {}", batch * features)
            }
        };
        let out = &signature.raw;
        let slot = batch * hidden;
        for layer in 0..self.layers {
            let source =
                if layer == 0 { x.to_owned() } else { format!("between_{}", (layer - 1) % 2) };
            let target = if layer + 1 == self.layers {
                out.clone()
            } else {
                format!("between_{}", layer % 2)
            };
            let features = self.features(layer);
            for direction in 0..self.directions {
                let k = layer * self.directions + direction;
                let w = &weights[k as usize];
                let (b_w, b_u) = w
                    .biases
                    .as_ref()
                    .map_or(("nullptr", "nullptr"), |(a, b)| (a.as_str(), b.as_str()));
                let state = |i: usize| {
                    states.get(i).map_or("nullptr".to_owned(), |s| format!("{s} + {}", k * slot))
                };
                let last = format!("{out} + {}", self.outputs() + k * slot);
                let cell = if self.cell == Cell::Lstm {
                    format!("{out} + {}", self.outputs() + self.state() + k * slot)
                } else {
                    "nullptr".to_owned()
                };
                body.push(format!(
                    "  {name}_kernel<<<{batch}, 1, 0, stream>>>({source}, {}, {features}, {}, {}, {b_w}, {b_u}, {}, {}, {target} + {}, {}, {last}, {cell}, gates, {direction});",
                    strides(features),
                    w.input,
                    w.hidden,
                    state(0),
                    state(1),
                    direction * hidden,
                    strides(self.directions * hidden),
                ));
            }
        }
        body.push("  return (int)cudaGetLastError();".to_owned());
        body.push("}".to_owned());
        body
    }

    /// Statements that advance feature `j` of the state by one step.
    fn step(&self, tanh: &str) -> String {
        let gate = |g: i64| format!("from_input[{g} * kHidden + j]");
        let rest = |g: i64| format!("from_state[{g} * kHidden + j]");
        let sum = |g: i64| format!("{} + {}", gate(g), rest(g));
        match self.cell {
            Cell::Lstm => format!(
                "      const T kept = sigmoid({}) * cell[j];
      cell[j] = kept + sigmoid({}) * {tanh}({});
      state[j] = sigmoid({}) * {tanh}(cell[j]);",
                sum(1),
                sum(0),
                sum(2),
                sum(3)
            ),
            Cell::Gru => format!(
                "      const T reset = sigmoid({}), update = sigmoid({});
      const T candidate = {tanh}({} + reset * {});
      state[j] = ((T)1 - update) * candidate + update * state[j];",
                sum(0),
                sum(1),
                gate(2),
                rest(2)
            ),
            Cell::Tanh => format!("      state[j] = {tanh}({});", sum(0)),
            Cell::Relu => {
                format!("      const T sum = {};\n      state[j] = sum < 0 ? 0 : sum;", sum(0))
            }
        }
    }
}
