// The fused kernels as torch operations, with their backward passes for autograd. Each function
// returns 0, or 1 with a message in warpwright_error(). A tensor is tch's `torch::Tensor*`. Shapes
// are those of `csrc/*.cu`.
#include "kernels.h"
#include <algorithm>
#include <cmath>
#include <optional>
#include <torch/csrc/autograd/custom_function.h>

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using warpwright::Kernel;
using warpwright::lies;
using warpwright::start;
using warpwright::whole;

namespace {

using Half = uint16_t;
constexpr auto HALF = at::kBFloat16;
constexpr unsigned THREADS = 128;
constexpr unsigned DRAWING = 256;
// Limit on the blocks that share rows in a backward pass; their partial sums of weight gradients
// are added up.
constexpr int64_t SHARING = 2048;

int64_t blocks_of(int64_t count, int64_t each) { return (count + each - 1) / each; }

const Half *halves(const Tensor &tensor, at::IntArrayRef sizes) { return lies<const Half>(tensor, HALF, sizes); }
const float *floats(const Tensor &tensor, at::IntArrayRef sizes) { return lies<const float>(tensor, at::kFloat, sizes); }
const int64_t *wholes(const Tensor &tensor, at::IntArrayRef sizes) {
  return lies<const int64_t>(tensor, at::kLong, sizes);
}

struct AddNorm : Function<AddNorm> {
  static variable_list forward(AutogradContext *ctx, const Tensor &stream, const std::optional<Tensor> &added,
                               const Tensor &weight, double epsilon) {
    auto rows = stream.size(0), width = stream.size(1);
    TORCH_CHECK(width % 4 == 0, "the width ", width, " is not a multiple of 4");
    bool adds = added.has_value();
    Tensor sum = adds ? at::empty_like(stream) : Tensor();
    Tensor scales = at::empty({rows}, stream.options());
    Tensor out = at::empty({rows, width}, stream.options().dtype(HALF));
    start(Kernel::add_norm, out, rows, THREADS, 0, floats(stream, {rows, width}),
          adds ? halves(*added, {rows, width}) : nullptr, floats(weight, {width}),
          adds ? sum.mutable_data_ptr<float>() : nullptr, scales.mutable_data_ptr<float>(),
          lies<Half>(out, HALF, {rows, width}), whole(width), static_cast<float>(epsilon));
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({adds ? sum : stream, scales, weight});
    ctx->saved_data["adds"] = adds;
    if (adds)
      return {out, sum};
    return {out};
  }

  static variable_list backward(AutogradContext *ctx, variable_list given) {
    auto saved = ctx->get_saved_variables();
    auto &sum = saved[0], &scales = saved[1], &weight = saved[2];
    auto rows = sum.size(0), width = sum.size(1);
    bool adds = ctx->saved_data["adds"].toBool();
    Tensor d_out = given[0].defined() ? given[0].contiguous() : at::zeros({rows, width}, sum.options().dtype(HALF));
    Tensor d_sum = adds && given[1].defined() ? given[1].contiguous() : Tensor();
    Tensor d_stream = at::empty_like(sum);
    Tensor d_added = adds ? at::empty_like(d_out) : Tensor();
    // Partial sums take 4 MiB at most, unless a row is longer.
    auto blocks = std::min({rows, SHARING, std::max<int64_t>((1 << 20) / width, 1)});
    // An undefined tensor needs no gradient.
    bool moves = ctx->needs_input_grad(adds ? 2 : 1);
    Tensor d_weights = moves ? at::empty({blocks, width}, sum.options()) : Tensor();
    start(Kernel::add_norm_back, d_stream, blocks, THREADS, whole(width) * sizeof(float), floats(sum, {rows, width}),
          floats(scales, {rows}), floats(weight, {width}), halves(d_out, {rows, width}),
          d_sum.defined() ? floats(d_sum, {rows, width}) : nullptr, d_stream.mutable_data_ptr<float>(),
          adds ? lies<Half>(d_added, HALF, {rows, width}) : nullptr,
          moves ? d_weights.mutable_data_ptr<float>() : nullptr, whole(rows), whole(width));
    return {d_stream, d_added, moves ? d_weights.sum(0) : Tensor(), Tensor()};
  }
};

struct Heads {
  int64_t rows, heads, groups, width;

  int64_t total() const { return heads + 2 * groups; }
  // Kernel indices exceed these by at most the number of concurrent threads.
  int64_t count() const {
    TORCH_CHECK(rows * total() < INT32_MAX / 2, rows, " rows are too many for one call");
    return rows * total();
  }
};

void check_width(int64_t width) {
  TORCH_CHECK(width >= 8 && width <= 256 && (width & (width - 1)) == 0, "the head width is ", width,
              ", and must be a power of two from 8 to 256");
}

// The cache that keys and values are written to, with room for this many positions per row, or 0.
Tensor turned(const Heads &of, const Tensor &every, const Tensor &q_norm, const Tensor &k_norm, const Tensor &cosines,
              const Tensor &sines, const Tensor &positions, const Tensor &keys, const Tensor &values, int64_t room,
              double epsilon) {
  auto [rows, heads, groups, width] = of;
  check_width(width);
  TORCH_CHECK(keys.sizes() == values.sizes(), "keys and values must have the same shape");
  auto known = cosines.size(0);
  Tensor queries = at::empty({rows, heads, width}, every.options());
  start(Kernel::turn, queries, blocks_of(of.count(), 8 * THREADS / width), THREADS, 0,
        halves(every, {rows, of.total() * width}), floats(q_norm, {width}), floats(k_norm, {width}),
        floats(cosines, {known, width}), floats(sines, {known, width}), wholes(positions, {rows}),
        lies<Half>(queries, HALF, {rows, heads, width}), lies<Half>(keys, HALF, keys.sizes()),
        lies<Half>(values, HALF, keys.sizes()), whole(of.count()), whole(heads), whole(groups),
        whole(width), whole(room), static_cast<float>(epsilon));
  return queries;
}

struct Turn : Function<Turn> {
  static variable_list forward(AutogradContext *ctx, const Tensor &every, const Tensor &q_norm, const Tensor &k_norm,
                               const Tensor &cosines, const Tensor &sines, const Tensor &positions, int64_t heads,
                               double epsilon) {
    auto width = q_norm.size(0), rows = every.size(0);
    Heads of{rows, heads, (every.size(1) / width - heads) / 2, width};
    TORCH_CHECK(of.groups > 0, "heads are missing");
    Tensor keys = at::empty({rows, of.groups, width}, every.options()), values = at::empty_like(keys);
    Tensor queries = turned(of, every, q_norm, k_norm, cosines, sines, positions, keys, values, 0, epsilon);
    ctx->save_for_backward({every, q_norm, k_norm, cosines, sines, positions});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["epsilon"] = epsilon;
    return {queries, keys, values};
  }

  static variable_list backward(AutogradContext *ctx, variable_list given) {
    auto saved = ctx->get_saved_variables();
    auto &every = saved[0], &q_norm = saved[1], &k_norm = saved[2];
    auto &cosines = saved[3], &sines = saved[4], &positions = saved[5];
    auto width = q_norm.size(0), heads = ctx->saved_data["heads"].toInt();
    Heads of{every.size(0), heads, (every.size(1) / width - heads) / 2, width};
    auto [rows, _, groups, __] = of;
    Tensor d_queries = given[0].contiguous(), d_keys = given[1].contiguous(), d_values = given[2].contiguous();
    Tensor d_every = at::empty_like(every);
    auto blocks = std::min(SHARING, blocks_of(of.count(), 8 * THREADS / width));
    bool moves = ctx->needs_input_grad(1) || ctx->needs_input_grad(2);
    Tensor d_norms = moves ? at::empty({blocks, 2, width}, q_norm.options()) : Tensor();
    auto known = cosines.size(0);
    start(Kernel::turn_back, d_every, blocks, THREADS, 0, halves(every, {rows, of.total() * width}),
          floats(q_norm, {width}), floats(k_norm, {width}), floats(cosines, {known, width}),
          floats(sines, {known, width}), wholes(positions, {rows}), halves(d_queries, {rows, heads, width}),
          halves(d_keys, {rows, groups, width}), halves(d_values, {rows, groups, width}),
          lies<Half>(d_every, HALF, {rows, of.total() * width}), moves ? d_norms.mutable_data_ptr<float>() : nullptr,
          whole(of.count()), whole(heads), whole(groups), whole(width),
          static_cast<float>(ctx->saved_data["epsilon"].toDouble()));
    Tensor summed = moves ? d_norms.sum(0) : Tensor();
    return {d_every,  moves ? summed[0] : Tensor(), moves ? summed[1] : Tensor(), Tensor(), Tensor(), Tensor(),
            Tensor(), Tensor()};
  }
};

struct Gate : Function<Gate> {
  static Tensor forward(AutogradContext *ctx, const Tensor &both) {
    auto rows = both.size(0), inner = both.size(1) / 2;
    TORCH_CHECK(inner % 4 == 0, "the width ", inner, " is not a multiple of 4");
    Tensor out = at::empty({rows, inner}, both.options());
    start(Kernel::gate, out, rows, THREADS, 0, halves(both, {rows, 2 * inner}), lies<Half>(out, HALF, {rows, inner}),
          whole(inner));
    ctx->save_for_backward({both});
    return out;
  }

  static variable_list backward(AutogradContext *ctx, variable_list given) {
    Tensor both = ctx->get_saved_variables()[0], d_out = given[0].contiguous();
    auto rows = both.size(0), inner = both.size(1) / 2;
    Tensor d_both = at::empty_like(both);
    start(Kernel::gate_back, d_both, rows, THREADS, 0, halves(both, {rows, 2 * inner}), halves(d_out, {rows, inner}),
          lies<Half>(d_both, HALF, {rows, 2 * inner}), whole(inner));
    return {d_both};
  }
};

struct Likelihood : Function<Likelihood> {
  static variable_list forward(AutogradContext *ctx, const Tensor &logits, const Tensor &chosen) {
    auto rows = logits.size(0), words = logits.size(1);
    TORCH_CHECK(words % 4 == 0, words, " words are not a multiple of 4");
    auto options = logits.options().dtype(at::kFloat);
    Tensor logprobs = at::empty({rows}, options), entropies = at::empty({rows}, options);
    Tensor totals = at::empty({rows}, options);
    start(Kernel::likelihood, logprobs, rows, THREADS, 0, halves(logits, {rows, words}), wholes(chosen, {rows}),
          logprobs.mutable_data_ptr<float>(), entropies.mutable_data_ptr<float>(), totals.mutable_data_ptr<float>(),
          whole(words));
    ctx->save_for_backward({logits, chosen, totals});
    ctx->mark_non_differentiable({entropies});
    return {logprobs, entropies};
  }

  static variable_list backward(AutogradContext *ctx, variable_list given) {
    auto saved = ctx->get_saved_variables();
    auto &logits = saved[0], &chosen = saved[1], &totals = saved[2];
    auto rows = logits.size(0), words = logits.size(1);
    Tensor d_logits = at::empty_like(logits), d = given[0].contiguous();
    start(Kernel::likelihood_back, d_logits, rows, THREADS, 0, halves(logits, {rows, words}), wholes(chosen, {rows}),
          floats(totals, {rows}), floats(d, {rows}), lies<Half>(d_logits, HALF, {rows, words}), whole(words));
    return {d_logits, Tensor()};
  }
};

} // namespace

extern "C" {

// stream: float32 [rows, width], to which `added`, bfloat16, is added unless null; `weight`:
// [width]. Returns the sum, or the stream, and the norm, bfloat16.
int warpwright_add_norm(const Tensor *stream, const Tensor *added, const Tensor *weight, double epsilon, Tensor *sum,
                        Tensor *out) {
  return warpwright_guarded([&] {
    auto plus = added ? std::make_optional(*added) : std::nullopt;
    auto made = AddNorm::apply(*stream, plus, weight->to(at::kFloat), epsilon);
    *out = made[0];
    *sum = added ? made[1] : *stream;
  });
}

// every: bfloat16 [rows, (heads + 2 groups) width]. Arguments of the rotary embedding: norms of
// queries and of keys, [width]; cosines and sines, float32 [all positions, width]; positions, int64
// [rows]. Returns queries, keys and values: bfloat16 [rows, heads or groups, width].
int warpwright_turn(const Tensor *every, const Tensor *const *by, int64_t heads, double epsilon, Tensor *queries,
                    Tensor *keys, Tensor *values) {
  return warpwright_guarded([&] {
    auto q_norm = by[0]->to(at::kFloat), k_norm = by[1]->to(at::kFloat);
    auto made = Turn::apply(*every, q_norm, k_norm, *by[2], *by[3], *by[4], heads, epsilon);
    *queries = made[0];
    *keys = made[1];
    *values = made[2];
  });
}

// The same, but keys and values are written to the cache, bfloat16 [rows, room, groups, width]. No
// backward pass.
int warpwright_turn_keep(const Tensor *every, const Tensor *const *by, const Tensor *keys, const Tensor *values,
                         double epsilon, Tensor *queries) {
  return warpwright_guarded([&] {
    TORCH_CHECK(keys->dim() == 4 && keys->size(0) == every->size(0), "keys must have four dimensions");
    auto room = keys->size(1), groups = keys->size(2), width = keys->size(3);
    Heads of{every->size(0), every->size(1) / width - 2 * groups, groups, width};
    TORCH_CHECK(of.heads > 0 && room > 0, "heads are missing, or room");
    auto q_norm = by[0]->to(at::kFloat), k_norm = by[1]->to(at::kFloat);
    *queries = turned(of, *every, q_norm, k_norm, *by[2], *by[3], *by[4], *keys, *values, room, epsilon);
  });
}

// queries: bfloat16 [rows, heads, width]; keys, values: bfloat16 [rows, room, groups, width];
// positions: int64 [rows]. Returns the attention over the cache up to each position, in the
// queries' layout. No backward pass.
int warpwright_attend(const Tensor *queries, const Tensor *keys, const Tensor *values, const Tensor *positions,
                      Tensor *out) {
  return warpwright_guarded([&] {
    TORCH_CHECK(queries->dim() == 3 && keys->dim() == 4, "queries must have three dimensions and keys four");
    auto rows = queries->size(0), heads = queries->size(1), width = queries->size(2);
    auto room = keys->size(1), groups = keys->size(2);
    TORCH_CHECK(groups > 0 && heads % groups == 0, heads, " heads cannot share ", groups, " groups");
    check_width(width);
    Tensor made = at::empty_like(*queries);
    start(Kernel::attend, made, rows * heads, THREADS, 0, halves(*queries, {rows, heads, width}),
          halves(*keys, {rows, room, groups, width}), halves(*values, {rows, room, groups, width}),
          wholes(*positions, {rows}), lies<Half>(made, HALF, {rows, heads, width}), whole(heads), whole(groups),
          whole(width), whole(room), 1.0f / std::sqrt(static_cast<float>(width)));
    *out = made;
  });
}

// both: bfloat16 [rows, 2 inner]. Returns silu of the first half times the second.
int warpwright_gate(const Tensor *both, Tensor *out) {
  return warpwright_guarded([&] { *out = Gate::apply(*both); });
}

// logits: bfloat16 [rows, words]; chosen: int64 [rows]. Returns log-probabilities, and entropies,
// which have no backward pass: float32 [rows].
int warpwright_likelihood(const Tensor *logits, const Tensor *chosen, Tensor *logprobs, Tensor *entropies) {
  return warpwright_guarded([&] {
    auto made = Likelihood::apply(*logits, *chosen);
    *logprobs = made[0];
    *entropies = made[1];
  });
}

// logits: bfloat16 [rows, words]; chances: float64 [rows]. Returns ids and log-probabilities:
// float64 [2, rows].
int warpwright_choose(const Tensor *logits, const Tensor *chances, double temperature, double top_p, Tensor *out) {
  return warpwright_guarded([&] {
    auto rows = logits->size(0), words = logits->size(1);
    Tensor drawn = at::empty({2, rows}, chances->options());
    start(Kernel::choose, drawn, rows, DRAWING, 0, halves(*logits, {rows, words}),
          lies<const double>(*chances, at::kDouble, {rows}), lies<double>(drawn, at::kDouble, {2, rows}), whole(rows),
          whole(words), static_cast<float>(temperature), static_cast<float>(top_p));
    *out = drawn;
  });
}
}
