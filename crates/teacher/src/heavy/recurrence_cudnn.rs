//! Recurrent layers by cuDNN, in full precision or, where the profile allows it, in TF32.
//!
//! cuDNN needs all weights in one block of memory with a layout of its own. They are copied there
//! at every call by about a hundred small device copies, so that changed weights take effect.

use super::cudnn;
use super::recurrence::{Cell, Recurrence, Weights};
use crate::dtype::DType;

/// Names of the launcher's parameters.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    /// Its parameters, without the stream.
    pub(super) signature: &'a str,
    pub(super) out: &'a str,
    pub(super) x: &'a str,
    pub(super) states: &'a [String],
    pub(super) weights: &'a [Weights],
    pub(super) dtype: DType,
    /// Whether float32 may be rounded to TF32.
    pub(super) tf32: bool,
}

/// The file's text after its includes.
pub(super) fn write(op: &Recurrence, call: &Call<'_>) -> Vec<String> {
    let double = call.dtype == DType::F64;
    let kind = if double { "CUDNN_DATA_DOUBLE" } else { "CUDNN_DATA_FLOAT" };
    let math = if double || call.tf32 { "CUDNN_DEFAULT_MATH" } else { "CUDNN_FMA_MATH" };
    let cell = match op.cell {
        Cell::Lstm => "CUDNN_LSTM",
        Cell::Gru => "CUDNN_GRU",
        Cell::Tanh => "CUDNN_RNN_TANH",
        Cell::Relu => "CUDNN_RNN_RELU",
    };
    let bias = if op.has_bias { "CUDNN_RNN_DOUBLE_BIAS" } else { "CUDNN_RNN_NO_BIAS" };
    let direction = if op.directions == 2 { "CUDNN_BIDIRECTIONAL" } else { "CUDNN_UNIDIRECTIONAL" };
    let layout = if op.batch_first {
        "CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED"
    } else {
        "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED"
    };
    let (gates, hidden, batch) = (op.cell.gates(), op.hidden, op.batch);
    let pseudo = op.layers * op.directions;
    let t = call.dtype.storage();
    let mut body = vec![cudnn::HANDLE.to_owned()];
    body.push(format!(
        "namespace {{
constexpr int kSteps = {steps}, kBatch = {batch}, kInput = {input}, kHidden = {hidden}, kLayers = {layers};
constexpr int kDirections = {directions}, kParts = kLayers * kDirections, kGates = {gates};

// Descriptors and the memory of the weights, made at the first call.
struct Plan {{
  bool made = false;
  cudnnRNNDescriptor_t rnn;
  cudnnDropoutDescriptor_t dropout;
  cudnnRNNDataDescriptor_t x, y;
  cudnnTensorDescriptor_t state;
  size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;
  void* weights = nullptr;
  // Of each layer and direction, by gate: of the input first, then of the state.
  void* matrix[kParts][2 * kGates];
  void* bias[kParts][2 * kGates];
}};
Plan plan;

int make_plan(cudnnHandle_t handle) {{
  // Sequences of the same length, all of them.
  static int lengths[kBatch];
  for (int i = 0; i < kBatch; ++i) lengths[i] = kSteps;
  const int state_dims[] = {{kParts, kBatch, kHidden}}, state_strides[] = {{kBatch * kHidden, kHidden, 1}};
  cudnnStatus_t status;",
        steps = op.steps,
        input = op.input,
        layers = op.layers,
        directions = op.directions,
    ));
    let mut step = |call: &str| {
        body.push(format!(
            "  if ((status = {call}) != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;"
        ));
    };
    step("cudnnCreateDropoutDescriptor(&plan.dropout)");
    step("cudnnSetDropoutDescriptor(plan.dropout, handle, 0.0f, nullptr, 0, 0)");
    step("cudnnCreateRNNDescriptor(&plan.rnn)");
    step(&format!(
        "cudnnSetRNNDescriptor_v8(plan.rnn, CUDNN_RNN_ALGO_STANDARD, {cell}, {bias}, {direction},
                                         CUDNN_LINEAR_INPUT, {kind}, {kind}, {math}, kInput, kHidden, kHidden,
                                         kLayers, plan.dropout, CUDNN_RNN_PADDED_IO_ENABLED)"
    ));
    for (d, features) in [("x", "kInput"), ("y", "kDirections * kHidden")] {
        step(&format!("cudnnCreateRNNDataDescriptor(&plan.{d})"));
        step(&format!(
            "cudnnSetRNNDataDescriptor(plan.{d}, {kind}, {layout}, kSteps, kBatch, {features},
                                          lengths, nullptr)"
        ));
    }
    step("cudnnCreateTensorDescriptor(&plan.state)");
    step(&format!("cudnnSetTensorNdDescriptor(plan.state, {kind}, 3, state_dims, state_strides)"));
    step("cudnnGetRNNWeightSpaceSize(handle, plan.rnn, &plan.weight_bytes)");
    step("cudnnGetRNNTempSpaceSizes(handle, plan.rnn, CUDNN_FWD_MODE_INFERENCE, plan.x, &plan.work_bytes,
                                          &plan.reserve_bytes)");
    body.push(
        "  if (cudaError_t error = cudaMalloc(&plan.weights, plan.weight_bytes)) return (int)error;
  cudnnTensorDescriptor_t matrix, bias;
  if ((status = cudnnCreateTensorDescriptor(&matrix)) != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;
  if ((status = cudnnCreateTensorDescriptor(&bias)) != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;
  for (int part = 0; part < kParts; ++part) {
    for (int gate = 0; gate < 2 * kGates; ++gate) {
      status = cudnnGetRNNWeightParams(handle, plan.rnn, part, plan.weight_bytes, plan.weights, gate, matrix,
                                       &plan.matrix[part][gate], bias, &plan.bias[part][gate]);
      if (status != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;
    }
  }
  cudnnDestroyTensorDescriptor(matrix);
  cudnnDestroyTensorDescriptor(bias);
  plan.made = true;
  return 0;
}
}  // namespace
"
        .to_owned(),
    );
    body.push(cudnn::launcher(
        call.name,
        call.signature,
        "  if (status != CUDNN_STATUS_SUCCESS) return 2000 + (int)status;
  if (!plan.made) {
    if (int error = make_plan(handle)) return error;
  }",
        "work_bytes",
    ));
    let list = |of: &dyn Fn(&Weights) -> &str| {
        let names: Vec<&str> = call.weights.iter().map(of).collect();
        names.join(", ")
    };
    body.push(format!(
        "  const {t}* const matrices[2][{pseudo}] = {{{{{}}}, {{{}}}}};",
        list(&|w| &w.input),
        list(&|w| &w.hidden)
    ));
    if op.has_bias {
        body.push(format!(
            "  const {t}* const biases[2][{pseudo}] = {{{{{}}}, {{{}}}}};",
            list(&|w| w.biases.as_ref().map_or("", |b| &b.0)),
            list(&|w| w.biases.as_ref().map_or("", |b| &b.1))
        ));
    }
    let copy_bias = if op.has_bias {
        format!(
            "
      error = cudaMemcpyAsync(plan.bias[part][gate], biases[side][part] + (size_t)(gate % kGates) * kHidden,
                              kHidden * sizeof({t}), cudaMemcpyDeviceToDevice, stream);
      if (error != cudaSuccess) return (int)error;"
        )
    } else {
        String::new()
    };
    body.push(format!(
        "  for (int part = 0; part < kParts; ++part) {{
    const int features = part < kDirections ? kInput : kDirections * kHidden;
    for (int gate = 0; gate < 2 * kGates; ++gate) {{
      const int side = gate / kGates;
      const size_t count = (size_t)kHidden * (side == 0 ? features : kHidden);
      cudaError_t error = cudaMemcpyAsync(plan.matrix[part][gate], matrices[side][part] + (gate % kGates) * count,
                                          count * sizeof({t}), cudaMemcpyDeviceToDevice, stream);
      if (error != cudaSuccess) return (int)error;{copy_bias}
    }}
  }}"
    ));
    let state = |i: usize| call.states.get(i).cloned().unwrap_or_else(|| "nullptr".to_owned());
    let (first, first_cell) = (state(0), state(1));
    let last = format!("{} + {}", call.out, op.outputs());
    let last_cell = if op.cell == Cell::Lstm {
        format!("{} + {}", call.out, op.outputs() + op.state())
    } else {
        "nullptr".to_owned()
    };
    body.push(format!(
        "  status = cudnnRNNForward(handle, plan.rnn, CUDNN_FWD_MODE_INFERENCE, nullptr, plan.x, {}, plan.y, {},
                           plan.state, {first}, {last}, plan.state, {first_cell}, {last_cell}, plan.weight_bytes,
                           plan.weights, plan.work_bytes, workspace, 0, nullptr);
  return status == CUDNN_STATUS_SUCCESS ? 0 : 2000 + (int)status;
}}",
        call.x, call.out
    ));
    body
}
