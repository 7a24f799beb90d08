// What the launch code of every device has in common. `launch.cpp` was generated from a judged launch plan; it knows
// nothing of torch, so one build serves every version of it. Python calls it with addresses.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr int kWwAbi = 1;

// Memory of one call. The caller has checked that all of it has the sizes of the plan.
struct WwCall {
  void* const* inputs;
  void* const* weights;
  void* const* outputs;
  char* lasting;    // stays from call to call
  char* workspace;  // of this call alone
  char* library;    // workspaces of the libraries that are called, one after the other
  void* stream;
};

// An image of device code, and where it lies as a file, if it does.
struct WwImage {
  const void* bytes;
  uint64_t size;
  const char* path;
};

static thread_local char ww_text[512];

static inline int ww_fail(const char* what, int code) {
  snprintf(ww_text, sizeof ww_text, "%s (%d)", what, code);
  return code ? code : -1;
}

static inline void ww_put(unsigned char* at, const void* address) {
  const uint64_t word = reinterpret_cast<uintptr_t>(address);
  memcpy(at, &word, sizeof word);
}

extern "C" int ww_abi() { return kWwAbi; }
extern "C" const char* ww_error() { return ww_text; }
