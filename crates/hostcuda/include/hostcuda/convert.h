// Conversions as a GPU makes them: a float that does not fit becomes the nearest integer that there
// is; not-a-number becomes 0, and from 64 bits or to 64 bits the highest bit alone. Narrow integers are
// cut from 32 bits, except those made of a half. And sums of indices.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

namespace hostcuda {
// Without branches, so that it vectorises: what does not fit is replaced before it is converted.
template <class I, class F>
__attribute__((always_inline)) inline constexpr I saturated(F x) {
  constexpr F above = (F)(std::numeric_limits<I>::max() / 2 + 1) * 2, least = (F)std::numeric_limits<I>::min();
  const F low = x > least ? x : least;
  const bool big = x >= above;
  const I r = (I)(big ? (F)0 : low);
  constexpr bool wide = sizeof(F) == 8 || sizeof(I) == 8;
  constexpr I nan = wide ? (I)(1ull << (8 * sizeof(I) - 1)) : (I)0;
  return x != x ? nan : big ? std::numeric_limits<I>::max() : r;
}
template <class V>
constexpr bool kFloating = std::is_floating_point<V>::value;
template <class T>
constexpr bool kInteger = std::is_integral<T>::value && !std::is_same<std::remove_cv_t<T>, bool>::value;
// Half and the like: a class that is a number. See half.h.
template <class V>
struct IsHalf : std::false_type {};

// What `(T)v` is.
template <class T, class V>
__attribute__((always_inline)) inline constexpr T to(V v) {
  if constexpr (kInteger<T> && IsHalf<V>::value) {
    if constexpr (sizeof(T) < 4) {
      const int x = saturated<int>((float)v), low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
      return (T)(x < low ? low : x > high ? high : x);
    } else {
      return to<T>((float)v);
    }
  } else if constexpr (kInteger<T> && kFloating<V>) {
    using Wide = std::conditional_t<std::is_signed<T>::value, int, unsigned>;
    if constexpr (sizeof(T) < 4)
      return (T)saturated<Wide>(v);
    else
      return saturated<T>(v);
  } else {
    return (T)v;
  }
}
template <class T>
constexpr T to() { return T(); }

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// An unsigned index as a signed one, where it is known to fit.
template <class T>
__attribute__((always_inline)) inline constexpr auto as_signed(T v) {
  if constexpr (std::is_same<T, unsigned>::value)
    return (int)v;
  else
    return v;
}
// `whole` as a T: it is `base`, the value of thread 0, and what a thread adds to it.
template <class T, class W, class B>
__attribute__((always_inline)) inline constexpr T plus(W whole, B base, int more) {
  if constexpr (!std::is_integral<B>::value)
    return to<T>(whole);
  else if constexpr (sizeof(T) == 4)
    return (T)base + more;
  else
    return (T)base + (T)more;
}
// The same for an unsigned variable v of 32 bits, signed.
template <class V, class B>
__attribute__((always_inline)) inline constexpr auto shadow(V v, B base, int more) {
  if constexpr (sizeof(V) != 4 || !std::is_integral<B>::value)
    return v;
  else
    return (int)base + more;
}
// The variable of a grid-stride loop after some turns.
template <class T, class S, class D>
__attribute__((always_inline)) inline constexpr T at_turn(S start, int turn, D step) {
  if constexpr (std::is_integral<T>::value && sizeof(T) == 4 && std::is_integral<D>::value)
    return (T)start + (T)((unsigned)turn * (unsigned)step);
  else
    return (T)((T)start + (T)turn * (T)step);
}
}  // namespace hostcuda
