// Functions of libtorch that tch lacks: fused AdamW, gradient clipping without a device
// synchronisation, access to gradients, their release and sum, attention over packed sequences,
// precision of products, CUDA graphs. Each function returns 0, or 1 with a message in
// warpwright_error(). A tensor is tch's `torch::Tensor*`.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/autograd/autograd.h>
#include <vector>
#ifdef WARPWRIGHT_CUDA
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/nccl.h>
#endif

using at::Tensor;

namespace {

thread_local std::string last_error;

template <typename F> int guarded(F work) {
  try {
    work();
    return 0;
  } catch (const std::exception &error) {
    last_error = error.what();
    return 1;
  }
}

std::vector<Tensor> all(Tensor *const *pointers, size_t count) {
  std::vector<Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; i++)
    tensors.push_back(*pointers[i]);
  return tensors;
}

} // namespace

// The same for other files.
int warpwright_guarded(const std::function<void()> &work) { return guarded(work); }

extern "C" {

const char *warpwright_error() { return last_error.c_str(); }

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101), all tensors at once. Moments may
// have a smaller type than parameters; then they are widened for the step. If `norm`, the
// gradients', is not finite, nothing changes; the device decides that, without a synchronisation.
int warpwright_adamw(Tensor *const *parameters, Tensor *const *first, Tensor *const *second,
                     Tensor *const *steps, size_t count, double rate, double beta1, double beta2,
                     double decay, double epsilon,
                     const Tensor *norm) {
  return guarded([&] {
    c10::NoGradGuard no_grad;
    auto p = all(parameters, count), m = all(first, count), v = all(second, count);
    auto s = all(steps, count);
    std::vector<Tensor> gradients, wide_m, wide_v;
    for (size_t i = 0; i < count; i++) {
      gradients.push_back(p[i].grad());
      wide_m.push_back(m[i].to(p[i].scalar_type()));
      wide_v.push_back(v[i].to(p[i].scalar_type()));
    }
    Tensor is_lost = norm->isfinite().logical_not().to(at::kFloat);
    at::_foreach_add_(s, 1);
    at::_fused_adamw_(p, gradients, wide_m, wide_v, {}, s, rate, beta1, beta2, decay, epsilon, false,
                      false, {}, is_lost);
    at::_foreach_sub_(s, std::vector<Tensor>(count, is_lost));
    for (size_t i = 0; i < count; i++) {
      if (!m[i].is_same(wide_m[i])) {
        m[i].copy_(wide_m[i]);
        v[i].copy_(wide_v[i]);
      }
    }
  });
}

// Scales all gradients so that their norm is at most `most`, as torch.nn.utils.clip_grad_norm_
// does, but without a device synchronisation. The norm before that is written to `norm`.
int warpwright_clip(Tensor *const *parameters, size_t count, double most, Tensor *norm) {
  return guarded([&] {
    c10::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < count; i++)
      if (parameters[i]->grad().defined())
        gradients.push_back(parameters[i]->grad());
    TORCH_CHECK(!gradients.empty(), "no parameter has a gradient");
    Tensor total = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
    at::_foreach_mul_(gradients, at::clamp_max(most / (total + 1e-6), 1.0));
    *norm = total;
  });
}

// Backward pass from `out`, given its gradient.
int warpwright_backward(const Tensor *out, const Tensor *gradient) {
  return guarded([&] { torch::autograd::backward({*out}, {*gradient}); });
}

int warpwright_gradient(Tensor *parameter, Tensor *out) {
  return guarded([&] {
    if (!parameter->grad().defined())
      parameter->mutable_grad() = at::zeros_like(*parameter);
    *out = parameter->grad();
  });
}

int warpwright_forget_gradients(Tensor *const *parameters, size_t count) {
  return guarded([&] {
    for (size_t i = 0; i < count; i++)
      parameters[i]->mutable_grad().reset();
  });
}

// Causal attention over packed sequences. q: [tokens, heads, width]; k, v: [tokens, groups, width];
// bounds: offsets of the sequences with the end of the last, int32 on the device.
int warpwright_packed_attention(const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *bounds,
                                int64_t longest, Tensor *out) {
  return guarded([&] {
    auto given = at::_flash_attention_forward(*q, *k, *v, *bounds, *bounds, longest, longest, 0.0, true,
                                              false);
    *out = std::get<0>(given);
  });
}

// Attention of one token of each row to its KV cache. q: [rows, heads, width]; k, v: [rows * room,
// groups, width]; q_bounds: 0, 1, 2, ...; k_bounds: 0, room, 2 room, ...; used: number of cached
// tokens per row; all three int32 on the device.
int warpwright_cached_attention(const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *q_bounds,
                                const Tensor *k_bounds, const Tensor *used, int64_t room, Tensor *out) {
  return guarded([&] {
    auto given = at::_flash_attention_forward(*q, *k, *v, *q_bounds, *k_bounds, 1, room, 0.0, false, false,
                                              std::nullopt, std::nullopt, std::nullopt, *used);
    *out = std::get<0>(given);
  });
}

// "highest", "high" (TF32) or "medium", as torch.set_float32_matmul_precision.
int warpwright_precision(const char *name) {
  return guarded([&] { at::globalContext().setFloat32MatmulPrecision(name); });
}

int warpwright_empty_cache() {
  return guarded([&] { at::getDeviceAllocator(at::kCUDA)->emptyCache(); });
}

// Work between begin and end is recorded, not executed; replay executes it on the same tensors.
// Graphs with the same `beside` share memory: only one of them may run at a time.
#ifdef WARPWRIGHT_CUDA

// Each tensor, on a GPU of its own, becomes the sum of all.
int warpwright_all_reduce(Tensor *const *tensors, size_t count) {
  return guarded([&] {
    c10::NoGradGuard no_grad;
    auto given = all(tensors, count);
    torch::cuda::nccl::all_reduce(given, given);
  });
}

int warpwright_peak_bytes(int64_t gpu, int64_t *out) {
  return guarded([&] {
    auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
    *out = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  });
}

int warpwright_use_gpu(int64_t gpu) {
  return guarded([&] { c10::cuda::set_device(static_cast<c10::DeviceIndex>(gpu)); });
}

struct WarpwrightGraph {
  // During recording the stream is this thread's current one: work on other streams would not be
  // recorded.
  std::unique_ptr<c10::DeviceGuard> on;
  at::cuda::CUDAGraph graph;
  c10::cuda::CUDAStream stream;
  c10::cuda::CUDAStream before;

  WarpwrightGraph(std::unique_ptr<c10::DeviceGuard> on, c10::cuda::CUDAStream stream)
      : on(std::move(on)), stream(stream), before(c10::cuda::getCurrentCUDAStream(stream.device_index())) {}
};

int warpwright_graph_begin(int64_t gpu, const WarpwrightGraph *beside, WarpwrightGraph **out) {
  return guarded([&] {
    auto index = static_cast<c10::DeviceIndex>(gpu);
    auto on = std::make_unique<c10::DeviceGuard>(c10::Device(c10::kCUDA, index));
    // All graphs of a GPU are recorded on one stream, used for nothing else: it has the workspaces
    // of their products.
    static thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
    auto stream = streams.find(index);
    if (stream == streams.end())
      stream = streams.emplace(index, c10::cuda::getStreamFromPool(false, index)).first;
    c10::cuda::device_synchronize();
    auto made = std::make_unique<WarpwrightGraph>(std::move(on), stream->second);
    c10::cuda::setCurrentCUDAStream(made->stream);
    try {
      if (beside)
        made->graph.capture_begin(const_cast<WarpwrightGraph *>(beside)->graph.pool(),
                                  cudaStreamCaptureModeThreadLocal);
      else
        // Threads of other GPUs may allocate memory meanwhile.
        made->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      c10::cuda::setCurrentCUDAStream(made->before);
      throw;
    }
    *out = made.release();
  });
}

// Torch warns if a graph is empty. Its replay would leave the previous outputs unnoticed, so every
// warning is an error here.
struct Refused : c10::WarningHandler {
  std::string words;
  void process(const c10::Warning &warning) override { words += warning.msg(); }
};

int warpwright_graph_end(WarpwrightGraph *graph) {
  return guarded([&] {
    // On success and failure, later work runs on the previous stream.
    struct Back {
      WarpwrightGraph &graph;
      ~Back() {
        c10::cuda::setCurrentCUDAStream(graph.before);
        graph.on.reset();
      }
    } back{*graph};
    Refused refused;
    c10::WarningUtils::WarningHandlerGuard handler(&refused);
    graph->graph.capture_end();
    TORCH_CHECK(refused.words.empty(), refused.words);
  });
}

int warpwright_graph_replay(WarpwrightGraph *graph) {
  return guarded([&] { graph->graph.replay(); });
}

void warpwright_graph_free(WarpwrightGraph *graph) {
  guarded([&] {
    c10::DeviceGuard on(graph->stream.device());
    c10::cuda::device_synchronize();
    delete graph;
  });
}
#else
struct WarpwrightGraph;

static int without_cuda() {
  return guarded([] { TORCH_CHECK(false, "built against a libtorch without CUDA"); });
}

int warpwright_all_reduce(Tensor *const *, size_t) { return without_cuda(); }
int warpwright_use_gpu(int64_t) { return without_cuda(); }
int warpwright_peak_bytes(int64_t, int64_t *) { return without_cuda(); }
int warpwright_graph_begin(int64_t, const WarpwrightGraph *, WarpwrightGraph **) { return without_cuda(); }
int warpwright_graph_end(WarpwrightGraph *) { return without_cuda(); }
int warpwright_graph_replay(WarpwrightGraph *) { return without_cuda(); }
void warpwright_graph_free(WarpwrightGraph *) {}
#endif
}
