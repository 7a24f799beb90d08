// Common parts of the kernels of training and decoding; the other files are appended to it. NVRTC
// compiles all as one program for the GPU (`kernels.cpp`); no header is needed.
//
// bfloat16 as bits, computed in float32. Values are rounded where torch's operations round, so that
// sampler and trainer compute equal probabilities, with these kernels or with torch's.

typedef unsigned short bf16;

__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((unsigned)x << 16); }

// Rounds to nearest, ties to even.
__device__ __forceinline__ bf16 narrow(float x) {
  unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (bf16)0x7fc0;
  return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ float rounded(float x) { return wide(narrow(x)); }

// Sum over `lanes` neighbouring lanes of a warp, a power of two; every lane gets the result.
__device__ __forceinline__ float lanes_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

__device__ __forceinline__ float warp_sum(float x) { return lanes_sum(x, 32); }

__device__ __forceinline__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Sum over all threads of a block; every thread gets the result. `shared` has room for one
// number per warp.
__device__ __forceinline__ float block_sum(float x, float *shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0)
    shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f;
  x = warp_sum(x);
  __syncthreads();
  return x;
}

__device__ __forceinline__ float block_max(float x, float *shared) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0)
    shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : shared[0];
  x = warp_max(x);
  __syncthreads();
  return x;
}

__device__ __forceinline__ float4 four(const float *from) { return *reinterpret_cast<const float4 *>(from); }

__device__ __forceinline__ float4 four(const bf16 *from) {
  uint2 bits = *reinterpret_cast<const uint2 *>(from);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

__device__ __forceinline__ void put(float *to, float4 x) { *reinterpret_cast<float4 *>(to) = x; }

__device__ __forceinline__ void put(bf16 *to, float4 x) {
  *reinterpret_cast<uint2 *>(to) = make_uint2(narrow(x.x) | (unsigned)narrow(x.y) << 16,
                                              narrow(x.z) | (unsigned)narrow(x.w) << 16);
}

__device__ __forceinline__ float4 all(float x) { return make_float4(x, x, x, x); }

__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float4 times(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ __forceinline__ float4 rounded(float4 x) {
  return make_float4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

__device__ __forceinline__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
