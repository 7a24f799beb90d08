// A step of drawing is a hundred and eighty short kernels where torch's own are taken one by one, and takes a
// GPU as long as it takes to start them. These do at once what lies between two products. Each rounds where torch's
// do, so that a token is as likely here as the trainer finds it: bfloat16 as bits, computed in float32.
//
// Compiled for the GPU at hand by NVRTC (`fused.cpp`); no header is needed.

typedef unsigned short bf16;

__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((unsigned)x << 16); }

// To the nearest, ties to even.
__device__ __forceinline__ bf16 narrow(float x) {
  unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (bf16)0x7fc0;
  return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ float rounded(float x) { return wide(narrow(x)); }

__device__ __forceinline__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Of all threads of a block, for all of them. `shared` has room for a number of each warp.
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

// stream[rows, width] += added[rows, width], unless there is nothing to add; out = RMSNorm of it (Zhang and
// Sennrich, arXiv 1910.07467). A block for each row.
extern "C" __global__ void add_norm(float *stream, const bf16 *added, const float *weight, bf16 *out, int width,
                                    float epsilon) {
  __shared__ float shared[32];
  long long first = (long long)blockIdx.x * width;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float x = stream[first + i];
    if (added != 0) {
      x += wide(added[first + i]);
      stream[first + i] = x;
    }
    squares += x * x;
  }
  float scale = rsqrtf(block_sum(squares, shared) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[first + i] = narrow(stream[first + i] * scale * weight[i]);
}

// Of all[rows, heads + 2 groups, width] queries and keys pass their norms, norms[heads + groups, width], and turn by
// their row's position (RoFormer, arXiv 2104.09864; the tables are [positions, width], sines negative in the first
// half). Queries go to queries[rows, heads, width], keys and values to where they are kept at that position,
// [rows, room, groups, width]. A warp for each head.
extern "C" __global__ void turn_keep(const bf16 *all, const float *norms, const float *cosines, const float *sines,
                                     const double *positions, bf16 *queries, bf16 *keys, bf16 *values, int rows,
                                     int heads, int groups, int width, int room, float epsilon) {
  int lane = threadIdx.x % 32;
  int index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  int total = heads + 2 * groups;
  if (index >= rows * total)
    return;
  int row = index / total;
  int head = index % total;
  long long at = (long long)positions[row];
  const bf16 *x = all + (long long)index * width;
  long long kept = ((long long)row * room + at) * groups;
  if (head >= heads + groups) {
    bf16 *to = values + (kept + head - heads - groups) * width;
    for (int i = lane; i < width; i += 32)
      to[i] = x[i];
    return;
  }
  float squares = 0.0f;
  for (int i = lane; i < width; i += 32)
    squares += wide(x[i]) * wide(x[i]);
  float scale = rsqrtf(warp_sum(squares) / width + epsilon);
  const float *norm = norms + (long long)head * width;
  const float *cosine = cosines + at * width;
  const float *sine = sines + at * width;
  bf16 *to = head < heads ? queries + ((long long)row * heads + head) * width
                          : keys + (kept + head - heads) * width;
  int half = width / 2;
  for (int i = lane; i < half; i += 32) {
    int j = i + half;
    float a = rounded(wide(x[i]) * scale * norm[i]);
    float b = rounded(wide(x[j]) * scale * norm[j]);
    to[i] = narrow(rounded(a * rounded(cosine[i])) + b * rounded(sine[i]));
    to[j] = narrow(rounded(b * rounded(cosine[j])) + a * rounded(sine[j]));
  }
}

// out[rows, inner] = silu(both[rows, :inner]) * both[rows, inner:] (SwiGLU, arXiv 2002.05202).
extern "C" __global__ void gate(const bf16 *both, bf16 *out, long long count, int inner) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  long long row = i / inner;
  long long at = row * inner + i;
  float x = wide(both[at]);
  out[i] = narrow(rounded(x / (1.0f + expf(-x))) * wide(both[at + inner]));
}

// Numbers in the order of the floats that they are the bits of.
__device__ __forceinline__ int ordered(bf16 bits) { return bits & 0x8000 ? 0xffff - bits : bits + 0x8000; }

// Draws a token of each row of logits[rows, words], given chances[rows] between 0 and 1: the first up to which the
// probabilities of what may be drawn add up to more. With top_p below 1 those may be drawn of which all that are
// likelier add up to less; equally likely ones alike. drawn[2, rows]: ids, and the logarithms of the probabilities
// that they were drawn with. A block for each row.
extern "C" __global__ void choose(const bf16 *logits, const double *chances, double *drawn, int rows, int words,
                                  float temperature, float top_p) {
  __shared__ float shared[32];
  __shared__ double sums[256];
  __shared__ int owner;
  __shared__ double before;
  const bf16 *x = logits + (long long)blockIdx.x * words;
  float most = -__int_as_float(0x7f800000);
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    most = fmaxf(most, wide(x[i]) / temperature);
  most = block_max(most, shared);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    sum += expf(wide(x[i]) / temperature - most);
  float all = most + logf(block_sum(sum, shared));
  // The least that may be drawn: the likelier ones of what lies below it add up to top_p or more.
  int least = 0;
  if (top_p < 1.0f) {
    int above = 0x10000;
    while (least < above) {
      int middle = (least + above) / 2;
      float likelier = 0.0f;
      for (int i = threadIdx.x; i < words; i += blockDim.x)
        if (ordered(x[i]) > middle)
          likelier += expf(wide(x[i]) / temperature - all);
      if (block_sum(likelier, shared) < top_p)
        above = middle;
      else
        least = middle + 1;
    }
    float kept = 0.0f;
    for (int i = threadIdx.x; i < words; i += blockDim.x)
      if (ordered(x[i]) >= least)
        kept += expf(wide(x[i]) / temperature - all);
    all += logf(block_sum(kept, shared));
  }
  // In double: a vocabulary of 150,000 adds up to 1 within what float32 rounds a rare token to.
  int chunk = (words + blockDim.x - 1) / blockDim.x;
  int first = threadIdx.x * chunk;
  int last = first + chunk < words ? first + chunk : words;
  double own = 0.0;
  for (int i = first; i < last; i++)
    if (ordered(x[i]) >= least)
      own += exp((double)(wide(x[i]) / temperature - all));
  sums[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int i = 0; i < (int)blockDim.x; i++)
      total += sums[i];
    double wanted = chances[blockIdx.x] * total;
    double reached = 0.0;
    // Whoever is the last that has any, if rounding leaves none.
    owner = 0;
    before = 0.0;
    for (int i = 0; i < (int)blockDim.x; i++) {
      if (sums[i] > 0.0) {
        owner = i;
        before = wanted - reached;
        if (reached + sums[i] > wanted)
          break;
      }
      reached += sums[i];
    }
  }
  __syncthreads();
  if (threadIdx.x == owner) {
    int picked = first < words ? first : words - 1;
    double reached = 0.0;
    for (int i = first; i < last; i++)
      if (ordered(x[i]) >= least) {
        picked = i;
        reached += exp((double)(wide(x[i]) / temperature - all));
        if (reached > before)
          break;
      }
    drawn[blockIdx.x] = picked;
    drawn[rows + blockIdx.x] = (double)(wide(x[picked]) / temperature - all);
  }
}
