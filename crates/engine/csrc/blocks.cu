// The operations between two matrix products of a decoder block, forward and backward, one kernel
// each. Numbers are read four at a time: widths are multiples of four.

// sum[rows, width] = stream + added; out = RMSNorm(sum) (Zhang and Sennrich, arXiv 1910.07467);
// scales[rows] are the factors of the rows. If `added` is null, the sum is the stream. A block per
// row.
extern "C" __global__ void add_norm(const float *stream, const bf16 *added, const float *weight, float *sum,
                                    float *scales, bf16 *out, int width, float epsilon) {
  __shared__ float shared[32];
  long long first = (long long)blockIdx.x * width;
  float squares = 0.0f;
  for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
    float4 x = four(stream + first + i);
    if (added != 0) {
      x = plus(x, four(added + first + i));
      put(sum + first + i, x);
    }
    squares += dot(x, x);
  }
  float scale = rsqrtf(block_sum(squares, shared) / width + epsilon);
  if (threadIdx.x == 0)
    scales[blockIdx.x] = scale;
  const float *summed = added != 0 ? sum : stream;
  for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x)
    put(out + first + i, times(times(four(summed + first + i), all(scale)), four(weight + i)));
}

// Backward pass: from d_out, the gradient of the norm, and d_sum, that of the sum unless null, to
// d_stream and, unless null, d_added, the same in bfloat16. d_weights[blocks, width], unless null,
// are partial sums of the weight's gradient, one per block. Blocks share the rows; dynamic shared
// memory has room for a row.
extern "C" __global__ void add_norm_back(const float *sum, const float *scales, const float *weight, const bf16 *d_out,
                                         const float *d_sum, float *d_stream, bf16 *d_added, float *d_weights, int rows,
                                         int width) {
  __shared__ float shared[32];
  extern __shared__ __align__(16) float gathered[];
  for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x)
    put(gathered + i, all(0.0f));
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    long long first = (long long)row * width;
    float scale = scales[row];
    float along = 0.0f;
    for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x)
      along += dot(times(four(d_out + first + i), four(weight + i)), four(sum + first + i));
    along = block_sum(along, shared) * scale * scale / width;
    for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
      float4 x = four(sum + first + i);
      float4 d = four(d_out + first + i);
      put(gathered + i, plus(four(gathered + i), times(times(d, x), all(scale))));
      float4 through = times(d, four(weight + i));
      through = times(plus(through, times(x, all(-along))), all(scale));
      if (d_sum != 0)
        through = plus(through, four(d_sum + first + i));
      put(d_stream + first + i, through);
      if (d_added != 0)
        put(d_added + first + i, through);
    }
  }
  if (d_weights != 0)
    for (int i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x)
      put(d_weights + (long long)blockIdx.x * width + i, four(gathered + i));
}

// A head has width / 8 threads. Each has four numbers of its first half, from i on, and the four
// that are rotated with them, from j on. A width is a power of two, 8 to 256.

// Queries and keys of every[rows, heads + 2 groups, width] pass their norms, q_norm[width] and
// k_norm[width], and the rotary embedding of their row's position (RoFormer, arXiv 2104.09864; the
// tables are [positions, width], sines negative in the first half). Queries are written to
// queries[rows, heads, width]; keys and values to keys and values[rows, groups, width] or, with
// room above 0, into the cache at that position, [rows, room, groups, width]. count: rows * (heads
// + 2 groups).
extern "C" __global__ void turn(const bf16 *every, const float *q_norm, const float *k_norm, const float *cosines,
                                const float *sines, const long long *positions, bf16 *queries, bf16 *keys, bf16 *values,
                                int count, int heads, int groups, int width, int room, float epsilon) {
  int lanes = width / 8;
  int i = 4 * (threadIdx.x % lanes);
  int j = i + width / 2;
  int index = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  const bf16 *x = every + (long long)index * width;
  float4 a = all(0.0f);
  float4 b = all(0.0f);
  if (index < count) {
    a = four(x + i);
    b = four(x + j);
  }
  float scale = rsqrtf(lanes_sum(dot(a, a) + dot(b, b), lanes) / width + epsilon);
  if (index >= count)
    return;
  int total = heads + 2 * groups;
  long long row = index / total;
  int head = index % total;
  long long at = positions[row];
  long long kept = (room > 0 ? row * room + at : row) * groups;
  if (head >= heads + groups) {
    bf16 *to = values + (kept + head - heads - groups) * width;
    put(to + i, a);
    put(to + j, b);
    return;
  }
  const float *norm = head < heads ? q_norm : k_norm;
  const float *cosine = cosines + at * width;
  const float *sine = sines + at * width;
  a = rounded(times(times(a, all(scale)), rounded(four(norm + i))));
  b = rounded(times(times(b, all(scale)), rounded(four(norm + j))));
  bf16 *to = head < heads ? queries + (row * heads + head) * width : keys + (kept + head - heads) * width;
  put(to + i, plus(rounded(times(a, rounded(four(cosine + i)))), times(b, rounded(four(sine + i)))));
  put(to + j, plus(rounded(times(b, rounded(four(cosine + j)))), times(a, rounded(four(sine + j)))));
}

// Backward pass from the gradients of queries, keys and values. d_norms[blocks, 2, width], unless
// null, are partial sums of the norms' gradients, queries' first, one per block. Blocks of 128
// threads share the heads.
extern "C" __global__ void turn_back(const bf16 *every, const float *q_norm, const float *k_norm, const float *cosines,
                                     const float *sines, const long long *positions, const bf16 *d_queries,
                                     const bf16 *d_keys, const bf16 *d_values, bf16 *d_every, float *d_norms,
                                     int count, int heads, int groups, int width, float epsilon) {
  // The norms' partial sums of each head processed at once, 1,024 / width of them.
  __shared__ __align__(16) float gathered[2048];
  int lanes = width / 8;
  int i = 4 * (threadIdx.x % lanes);
  int j = i + width / 2;
  int own = threadIdx.x / lanes;
  int at_once = blockDim.x / lanes;
  int total = heads + 2 * groups;
  float4 q_first = all(0.0f);
  float4 q_second = all(0.0f);
  float4 k_first = all(0.0f);
  float4 k_second = all(0.0f);
  // Indices beyond the end are masked and do not overflow: `fused.cpp` checks that.
  for (int base = blockIdx.x * at_once; base < count; base += gridDim.x * at_once) {
    int index = base + own;
    bool is_one = index < count;
    long long row = is_one ? index / total : 0;
    int head = is_one ? index % total : 0;
    long long at = (long long)index * width;
    const bf16 *given = head < heads            ? d_queries + (row * heads + head) * width
                        : head < heads + groups ? d_keys + (row * groups + head - heads) * width
                                                : d_values + (row * groups + head - heads - groups) * width;
    float4 a = all(0.0f);
    float4 b = all(0.0f);
    float4 d_a = all(0.0f);
    float4 d_b = all(0.0f);
    if (is_one) {
      a = four(every + at + i);
      b = four(every + at + j);
      d_a = four(given + i);
      d_b = four(given + j);
    }
    float scale = rsqrtf(lanes_sum(dot(a, a) + dot(b, b), lanes) / width + epsilon);
    bool turns = head < heads + groups;
    if (turns) {
      const float *cosine = cosines + positions[row] * width;
      const float *sine = sines + positions[row] * width;
      float4 turned = plus(times(d_a, rounded(four(cosine + i))), times(d_b, rounded(four(sine + j))));
      d_b = plus(times(d_b, rounded(four(cosine + j))), times(d_a, rounded(four(sine + i))));
      d_a = turned;
    }
    float4 own_a = times(times(d_a, a), all(scale));
    float4 own_b = times(times(d_b, b), all(scale));
    if (head < heads) {
      q_first = plus(q_first, own_a);
      q_second = plus(q_second, own_b);
    } else if (turns) {
      k_first = plus(k_first, own_a);
      k_second = plus(k_second, own_b);
    }
    const float *norm = head < heads ? q_norm : k_norm;
    float4 through_a = times(d_a, rounded(four(norm + i)));
    float4 through_b = times(d_b, rounded(four(norm + j)));
    float along = lanes_sum(dot(through_a, a) + dot(through_b, b), lanes) * scale * scale / width;
    if (turns) {
      d_a = times(plus(through_a, times(a, all(-along))), all(scale));
      d_b = times(plus(through_b, times(b, all(-along))), all(scale));
    }
    if (is_one) {
      put(d_every + at + i, d_a);
      put(d_every + at + j, d_b);
    }
  }
  if (d_norms == 0)
    return;
  float *of_own = gathered + own * 2 * width;
  put(of_own + i, q_first);
  put(of_own + j, q_second);
  put(of_own + width + i, k_first);
  put(of_own + width + j, k_second);
  __syncthreads();
  for (int column = threadIdx.x; column < 2 * width; column += blockDim.x) {
    float sum = 0.0f;
    for (int each = 0; each < at_once; each++)
      sum += gathered[each * 2 * width + column];
    d_norms[(long long)blockIdx.x * 2 * width + column] = sum;
  }
}

__device__ __forceinline__ float silu(float x) { return rounded(x / (1.0f + expf(-x))); }

// out[rows, inner] = silu(both[rows, :inner]) * both[rows, inner:] (SwiGLU, arXiv 2002.05202). A
// block per row.
extern "C" __global__ void gate(const bf16 *both, bf16 *out, int inner) {
  const bf16 *first = both + (long long)blockIdx.x * 2 * inner;
  bf16 *to = out + (long long)blockIdx.x * inner;
  for (int i = 4 * threadIdx.x; i < inner; i += 4 * blockDim.x) {
    float4 x = four(first + i);
    put(to + i, times(make_float4(silu(x.x), silu(x.y), silu(x.z), silu(x.w)), four(first + inner + i)));
  }
}

// x: argument of silu; up: the other factor; d: gradient of the product. Returns the gradients of
// both.
__device__ __forceinline__ void through_gate(float &x, float &up, float d) {
  float sigmoid = 1.0f / (1.0f + expf(-x));
  float opened = rounded(x * sigmoid);
  x = rounded(d * up) * sigmoid * (1.0f + x * (1.0f - sigmoid));
  up = d * opened;
}

// Backward pass: from d_out[rows, inner] to d_both.
extern "C" __global__ void gate_back(const bf16 *both, const bf16 *d_out, bf16 *d_both, int inner) {
  long long first = (long long)blockIdx.x * 2 * inner;
  const bf16 *given = d_out + (long long)blockIdx.x * inner;
  for (int i = 4 * threadIdx.x; i < inner; i += 4 * blockDim.x) {
    float4 x = four(both + first + i);
    float4 up = four(both + first + inner + i);
    float4 d = four(given + i);
    through_gate(x.x, up.x, d.x);
    through_gate(x.y, up.y, d.y);
    through_gate(x.z, up.z, d.z);
    through_gate(x.w, up.w, d.w);
    put(d_both + first + i, x);
    put(d_both + first + inner + i, up);
  }
}
