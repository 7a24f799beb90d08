// Atomic operations, by compare and exchange.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hostcuda/vector_types.h"

namespace hostcuda {
template <class T>
struct Same {
  using type = T;
};
template <class T, class F>
inline T atomic_update(T* p, F f) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "atomics have 2, 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  Bits expected, desired;
  __atomic_load((Bits*)p, &expected, __ATOMIC_RELAXED);
  T old;
  do {
    memcpy(&old, &expected, sizeof(T));
    T fresh = f(old);
    memcpy(&desired, &fresh, sizeof(T));
  } while (!__atomic_compare_exchange((Bits*)p, &expected, &desired, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  return old;
}
}  // namespace hostcuda

#define HOSTCUDA_ATOMIC(name, expression)                                                          \
  template <class T>                                                                               \
  inline T name(T* p, typename hostcuda::Same<T>::type v) {                                        \
    return hostcuda::atomic_update(p, [=](T o) -> T { return (T)(expression); });                  \
  }                                                                                                \
  template <class T>                                                                               \
  inline T name##_block(T* p, typename hostcuda::Same<T>::type v) { return name(p, v); }           \
  template <class T>                                                                               \
  inline T name##_system(T* p, typename hostcuda::Same<T>::type v) { return name(p, v); }
HOSTCUDA_ATOMIC(atomicAdd, o + v)
HOSTCUDA_ATOMIC(atomicSub, o - v)
HOSTCUDA_ATOMIC(atomicMax, o > v ? o : v)
HOSTCUDA_ATOMIC(atomicMin, o < v ? o : v)
HOSTCUDA_ATOMIC(atomicExch, ((void)o, v))
HOSTCUDA_ATOMIC(atomicAnd, o & v)
HOSTCUDA_ATOMIC(atomicOr, o | v)
HOSTCUDA_ATOMIC(atomicXor, o ^ v)
HOSTCUDA_ATOMIC(atomicInc, o >= v ? 0 : o + 1)
HOSTCUDA_ATOMIC(atomicDec, o == 0 || o > v ? v : o - 1)
#undef HOSTCUDA_ATOMIC
template <class T>
inline T atomicCAS(T* p, typename hostcuda::Same<T>::type expected, typename hostcuda::Same<T>::type v) {
  return hostcuda::atomic_update(p, [=](T o) -> T { return memcmp(&o, &expected, sizeof(T)) == 0 ? v : o; });
}
template <class T>
inline T atomicCAS_block(T* p, typename hostcuda::Same<T>::type expected, typename hostcuda::Same<T>::type v) {
  return atomicCAS(p, expected, v);
}
template <class T>
inline T atomicCAS_system(T* p, typename hostcuda::Same<T>::type expected, typename hostcuda::Same<T>::type v) {
  return atomicCAS(p, expected, v);
}
// Each number of a vector is added by itself, as on a GPU.
inline float2 atomicAdd(float2* p, float2 v) { return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)}; }
inline float4 atomicAdd(float4* p, float4 v) {
  return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z), atomicAdd(&p->w, v.w)};
}
