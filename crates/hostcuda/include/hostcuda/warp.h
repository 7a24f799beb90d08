// Barriers, shuffles, votes, warp reductions.
#pragma once
#include <type_traits>

#include "hostcuda/launch.h"

constexpr int warpSize = 32;

namespace hostcuda {
inline unsigned lane_id() { return tls_worker->current->lane; }

inline void complete_nothing(Warp&, unsigned) {}

inline void complete_exchange(Warp& p, unsigned lanes) {
  if (lanes == ~0u) {
    for (unsigned l = 0; l < kWarp; ++l) p.out[l] = p.in[p.source[l]];
    return;
  }
  for (; lanes; lanes &= lanes - 1) {
    unsigned l = (unsigned)__builtin_ctz(lanes);
    p.out[l] = p.in[p.source[l]];
  }
}

inline void complete_vote(Warp& p, unsigned lanes) {
  uint64_t votes = 0;
  for (unsigned l = 0; l < kWarp; ++l) votes |= (uint64_t)(lanes >> l & 1 & (unsigned)p.in[l]) << l;
  for (unsigned l = 0; l < kWarp; ++l)
    if (lanes >> l & 1) p.out[l] = votes | (uint64_t)lanes << 32;
}

// Gives `value` to whoever asks for it and takes that of lane `source`.
template <class T>
inline T exchange(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 16, "a shuffle moves at most 16 bytes");
  static_assert(std::is_trivially_copyable<T>::value, "a shuffle moves plain values");
  Worker& w = *tls_worker;
  if constexpr (sizeof(T) > 8) {
    struct Halves { uint64_t a, b; } h{};
    memcpy(&h, &value, sizeof(T));
    h.a = exchange(mask, h.a, source);
    h.b = exchange(mask, h.b, source);
    memcpy(&value, &h, sizeof(T));
    return value;
  } else {
    Fiber* f = w.current;
    Warp& p = *f->warp;
    unsigned lane = f->lane;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    p.in[lane] = bits;
    p.source[lane] = source < kWarp ? source : lane;
    collective(w, mask, &complete_exchange);
    bits = p.out[lane];
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
}

// Votes in the low half, the lanes that voted in the high half.
inline uint64_t vote(unsigned mask, int predicate) {
  Worker& w = *tls_worker;
  Fiber* f = w.current;
  Warp& p = *f->warp;
  unsigned lane = f->lane;
  p.in[lane] = predicate != 0;
  collective(w, mask, &complete_vote);
  return p.out[lane];
}

// A whole reduction tree in one wait: the last lane to arrive does the arithmetic of all lanes in
// the order of the shuffles, so that the result has the same bits. The rewriter makes these from
// loops over __shfl_xor_sync and __shfl_down_sync.
template <bool kXor, class T, class Op>
struct Tree {
  struct Closure {
    const Op* op;
    unsigned from, width;
  };
  // One step over all lanes with a constant offset: permutations and vector arithmetic.
  template <unsigned kOffset>
  __attribute__((always_inline)) static void step(T* v, const Op& op) {
    T u[kWarp];
    for (unsigned l = 0; l < kWarp; ++l) u[l] = kXor ? v[l ^ kOffset] : v[l + kOffset < kWarp ? l + kOffset : l];
    for (unsigned l = 0; l < kWarp; ++l) v[l] = op(v[l], u[l]);
  }
  static void complete(Warp& p, unsigned lanes) {
    unsigned first = (unsigned)__builtin_ctz(lanes);
    const Closure c = *(const Closure*)(uintptr_t)p.out[first];
    const Op op = *c.op;
    alignas(64) T v[kWarp];
    for (unsigned l = 0; l < kWarp; ++l) memcpy(&v[l], &p.in[l], sizeof(T));
    if (c.from == 16 && c.width == 32) {
      step<16>(v, op);
      step<8>(v, op);
      step<4>(v, op);
      step<2>(v, op);
      step<1>(v, op);
    } else {
      T u[kWarp];
      for (unsigned o = c.from; o; o >>= 1) {
        for (unsigned l = 0; l < kWarp; ++l) {
          const unsigned group = l & ~(c.width - 1), source = kXor ? l ^ o : l + o;
          u[l] = v[source < kWarp && (kXor ? (source & ~(c.width - 1)) <= group : source - group < c.width) ? source : l];
        }
        for (unsigned l = 0; l < kWarp; ++l) v[l] = op(v[l], u[l]);
      }
    }
    if (lanes == ~0u) {
      for (unsigned l = 0; l < kWarp; ++l) memcpy(&p.out[l], &v[l], sizeof(T));
    } else {
      for (; lanes; lanes &= lanes - 1) {
        unsigned l = (unsigned)__builtin_ctz(lanes);
        memcpy(&p.out[l], &v[l], sizeof(T));
      }
    }
  }
};
template <bool kXor, class T, class Op>
inline T tree(unsigned mask, T value, unsigned from, unsigned width, const Op& op) {
  static_assert(sizeof(T) <= 8, "a reduction of at most 8 bytes");
  Worker& w = *tls_worker;
  Fiber* f = w.current;
  Warp& p = *f->warp;
  unsigned lane = f->lane;
  typename Tree<kXor, T, Op>::Closure closure{&op, from, width};
  memcpy(&p.in[lane], &value, sizeof(T));
  p.out[lane] = (uint64_t)(uintptr_t)&closure;
  collective(w, mask, &Tree<kXor, T, Op>::complete);
  memcpy(&value, &p.out[lane], sizeof(T));
  return value;
}
}  // namespace hostcuda

static inline void __syncthreads() { hostcuda::barrier(0, 0); }
static inline int __syncthreads_or(int p) { return hostcuda::barrier(p, 0); }
static inline int __syncthreads_and(int p) { return hostcuda::barrier(p, 1); }
static inline int __syncthreads_count(int p) { return hostcuda::barrier(p, 2); }
static inline void __syncwarp(unsigned mask = ~0u) {
  hostcuda::collective(*hostcuda::tls_worker, mask, &hostcuda::complete_nothing);
}
namespace hostcuda {
// Lanes that are here together: the last to arrive tells all. Those that take another way never come,
// and whoever waits here goes on when nobody else can (see next_fiber). kPlace: where it is asked.
template <int kPlace>
inline void complete_active(Warp& p, unsigned lanes) {
  for (unsigned l = 0; l < kWarp; ++l)
    if (lanes >> l & 1) p.out[l] = (uint64_t)(kPlace + 1) << 32 | lanes;
}
template <int kPlace>
inline unsigned active_mask() {
  Worker& w = *tls_worker;
  Fiber* f = w.current;
  collective(w, ~0u, &complete_active<kPlace>, true);
  return (unsigned)f->warp->out[f->lane];
}
}  // namespace hostcuda
static inline unsigned __activemask() { return hostcuda::active_mask<0>(); }

template <class T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
  unsigned l = hostcuda::lane_id(), w = (unsigned)width;
  return hostcuda::exchange(mask, v, (l & ~(w - 1)) + ((unsigned)source & (w - 1)));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
  unsigned l = hostcuda::lane_id(), s = l ^ (unsigned)lanes, w = (unsigned)width;
  return hostcuda::exchange(mask, v, (s & ~(w - 1)) <= (l & ~(w - 1)) ? s : l);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  unsigned l = hostcuda::lane_id(), w = (unsigned)width;
  return hostcuda::exchange(mask, v, (l & (w - 1)) + delta < w ? l + delta : l);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  unsigned l = hostcuda::lane_id(), w = (unsigned)width;
  return hostcuda::exchange(mask, v, (l & (w - 1)) >= delta ? l - delta : l);
}
static inline unsigned __ballot_sync(unsigned mask, int p) { return (unsigned)hostcuda::vote(mask, p); }
static inline int __any_sync(unsigned mask, int p) { return (unsigned)hostcuda::vote(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) {
  uint64_t v = hostcuda::vote(mask, p);
  return (unsigned)v == (unsigned)(v >> 32);
}
namespace hostcuda {
template <class T>
inline void complete_match(Warp& p, unsigned lanes) {
  for (unsigned l = 0; l < kWarp; ++l) {
    uint64_t same = 0;
    for (unsigned k = 0; k < kWarp; ++k) same |= (uint64_t)(lanes >> k & 1 & (p.in[k] == p.in[l])) << k;
    if (lanes >> l & 1) p.out[l] = same;
  }
}
}  // namespace hostcuda
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  static_assert(sizeof(T) <= 8, "a match compares at most 8 bytes");
  hostcuda::Worker& w = *hostcuda::tls_worker;
  hostcuda::Fiber* f = w.current;
  hostcuda::Warp& p = *f->warp;
  unsigned lane = f->lane;
  p.in[lane] = 0;
  memcpy(&p.in[lane], &value, sizeof(T));
  hostcuda::collective(w, mask, &hostcuda::complete_match<uint64_t>);
  return (unsigned)p.out[lane];
}
namespace hostcuda {
inline void complete_match_all(Warp& p, unsigned lanes) {
  const unsigned first = (unsigned)__builtin_ctz(lanes);
  bool same = true;
  for (unsigned l = 0; l < kWarp; ++l) same &= !(lanes >> l & 1) || p.in[l] == p.in[first];
  for (unsigned l = 0; l < kWarp; ++l)
    if (lanes >> l & 1) p.out[l] = same ? lanes : 0;
}
}  // namespace hostcuda
// The mask if all of its lanes have the same value, else 0.
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* same) {
  static_assert(sizeof(T) <= 8, "a match compares at most 8 bytes");
  hostcuda::Worker& w = *hostcuda::tls_worker;
  hostcuda::Fiber* f = w.current;
  hostcuda::Warp& p = *f->warp;
  unsigned lane = f->lane;
  p.in[lane] = 0;
  memcpy(&p.in[lane], &value, sizeof(T));
  hostcuda::collective(w, mask, &hostcuda::complete_match_all);
  *same = p.out[lane] != 0;
  return (unsigned)p.out[lane];
}
namespace hostcuda {
template <class T, class Op>
inline void complete_reduce(Warp& p, unsigned lanes) {
  bool first = true;
  T r{};
  for (unsigned l = 0; l < kWarp; ++l) {
    if (!(lanes >> l & 1)) continue;
    T v;
    memcpy(&v, &p.in[l], sizeof(T));
    r = first ? v : Op()(r, v);
    first = false;
  }
  for (unsigned l = 0; l < kWarp; ++l)
    if (lanes >> l & 1) memcpy(&p.out[l], &r, sizeof(T));
}
// Folds the values of all lanes, in the order of the lanes.
template <class Op, class T>
inline T reduce_lanes(unsigned mask, T value) {
  static_assert(sizeof(T) <= 8, "a reduction of at most 8 bytes");
  Worker& w = *tls_worker;
  Fiber* f = w.current;
  Warp& p = *f->warp;
  unsigned lane = f->lane;
  memcpy(&p.in[lane], &value, sizeof(T));
  collective(w, mask, &complete_reduce<T, Op>);
  memcpy(&value, &p.out[lane], sizeof(T));
  return value;
}
}  // namespace hostcuda
#define HOSTCUDA_REDUCE(name, T, expression)                                      \
  namespace hostcuda {                                                            \
  struct Reduce_##name##_##T {                                                    \
    T operator()(T v, T u) const { return expression; }                           \
  };                                                                              \
  }                                                                               \
  static inline T __reduce_##name##_sync(unsigned mask, T value) {                \
    return hostcuda::reduce_lanes<hostcuda::Reduce_##name##_##T>(mask, value);    \
  }
HOSTCUDA_REDUCE(add, int, v + u)
HOSTCUDA_REDUCE(add, unsigned, v + u)
HOSTCUDA_REDUCE(max, int, v > u ? v : u)
HOSTCUDA_REDUCE(max, unsigned, v > u ? v : u)
HOSTCUDA_REDUCE(min, int, v < u ? v : u)
HOSTCUDA_REDUCE(min, unsigned, v < u ? v : u)
HOSTCUDA_REDUCE(and, unsigned, v & u)
HOSTCUDA_REDUCE(or, unsigned, v | u)
HOSTCUDA_REDUCE(xor, unsigned, v ^ u)
#undef HOSTCUDA_REDUCE

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
