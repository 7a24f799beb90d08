// Launches of the cpu device: kernels are machine code of this host, which libraries hold.
#pragma once
#include "launch_common.h"

// hostcuda::Geometry
struct WwGeometry {
  uint32_t grid[3], block[3];
  uint64_t shared;
};
using WwRun = int (*)(const WwGeometry*, const void* const*);

struct WwKernel {
  uint32_t module;
  uint64_t offset;  // of its entry in the image
};
struct WwPlan {
  uint32_t modules;
  const WwKernel* kernels;
  uint32_t kernel_count;
};

struct WwState {
  char** images;
  WwRun* kernels;
};

static int ww_open_plan(const WwPlan& plan, const WwImage* images, WwState** made) {
  WwState* state = new WwState{new char*[plan.modules + 1]{}, new WwRun[plan.kernel_count + 1]{}};
  for (uint32_t index = 0; index < plan.modules; ++index) {
    // It stays loaded: threads of its OpenMP runtime may be in it.
    void* handle = dlopen(images[index].path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      snprintf(ww_text, sizeof ww_text, "failed to load a library: %s", dlerror());
      return -1;
    }
    // The first field of glibc's `link_map`.
    memcpy(&state->images[index], handle, sizeof(char*));
  }
  for (uint32_t index = 0; index < plan.kernel_count; ++index) {
    const WwKernel& kernel = plan.kernels[index];
    // Mark, function, number of arguments.
    memcpy(&state->kernels[index], state->images[kernel.module] + kernel.offset + 8, sizeof(WwRun));
  }
  *made = state;
  return 0;
}

static void ww_close_plan(WwState* state) {
  delete[] state->images;
  delete[] state->kernels;
  delete state;
}

static inline int ww_launch(const WwState& state, uint32_t kernel, const WwGeometry& geometry, const void* const* args) {
  const int code = state.kernels[kernel](&geometry, args);
  return code ? ww_fail("failed to launch a kernel", code) : 0;
}

static inline int ww_fill(char* to, uint32_t value, uint32_t element, uint64_t width, uint64_t height, uint64_t pitch) {
  for (uint64_t row = 0; row < height; ++row)
    for (uint64_t column = 0; column < width; ++column) memcpy(to + row * pitch + column * element, &value, element);
  return 0;
}

static inline int ww_copy(char* to, const char* from, uint64_t width, uint64_t height, uint64_t to_pitch,
                          uint64_t from_pitch) {
  for (uint64_t row = 0; row < height; ++row) memmove(to + row * to_pitch, from + row * from_pitch, width);
  return 0;
}
