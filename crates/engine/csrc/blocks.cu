// What lies between two products of a decoder's block, there and back, each at once. Numbers are read four at a time:
// widths are multiples of four.

// sum[rows, width] = stream + added; out = RMSNorm of it (Zhang and Sennrich, arXiv 1910.07467), scales[rows] what its
// rows were multiplied by. Where nothing is added the stream is the sum. A block for each row.
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

// The way back: of d_out, the gradient of the norm, and d_sum, that of the sum unless it is null, to d_stream and,
// unless it is null, d_added, the same in bfloat16. d_weights[blocks, width], unless it is null, is the weight's, a
// part for each block: they are to be added up. Blocks share the rows; dynamic shared memory has room for a row.
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

// Of a head's width an eighth of so many threads has four numbers of its first half and the four that turn with them:
// the sum over these threads, for each of them. A width is a power of two, 8 to 256.
__device__ __forceinline__ float head_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Of all[rows, heads + 2 groups, width] queries and keys pass their norms, q_norm[width] and k_norm[width], and turn
// by their row's position (RoFormer, arXiv 2104.09864; the tables are [positions, width], sines negative in the first
// half). Queries go to queries[rows, heads, width], keys and values to keys and values[rows, groups, width] or, with
// room above 0, to where they are kept at that position, [rows, room, groups, width]. count: rows * (heads + 2 groups).
extern "C" __global__ void turn(const bf16 *every, const float *q_norm, const float *k_norm, const float *cosines,
                                const float *sines, const long long *positions, bf16 *queries, bf16 *keys, bf16 *values,
                                long long count, int heads, int groups, int width, int room, float epsilon) {
  int lanes = width / 8;
  int i = 4 * (threadIdx.x % lanes);
  int j = i + width / 2;
  long long index = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
  float4 a = all(0.0f);
  float4 b = all(0.0f);
  if (index < count) {
    a = four(every + index * width + i);
    b = four(every + index * width + j);
  }
  float scale = rsqrtf(head_sum(dot(a, a) + dot(b, b), lanes) / width + epsilon);
  if (index >= count)
    return;
  int total = heads + 2 * groups;
  long long row = index / total;
  int head = (int)(index % total);
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

// The way back, of what queries, keys and values were given. d_norms[blocks, 2, width], unless it is null, are the
// norms', queries' first, a part for each block: they are to be added up. Blocks of 128 threads share the heads.
extern "C" __global__ void turn_back(const bf16 *every, const float *q_norm, const float *k_norm, const float *cosines,
                                     const float *sines, const long long *positions, const bf16 *d_queries,
                                     const bf16 *d_keys, const bf16 *d_values, bf16 *d_every, float *d_norms,
                                     long long count, int heads, int groups, int width, float epsilon) {
  // Of each of the heads that are at work at once, 1,024 / width, both norms'.
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
  for (long long base = (long long)blockIdx.x * at_once; base < count; base += (long long)gridDim.x * at_once) {
    long long index = base + own;
    bool is_one = index < count;
    long long row = is_one ? index / total : 0;
    int head = is_one ? (int)(index % total) : 0;
    const bf16 *given = head < heads            ? d_queries + (row * heads + head) * width
                        : head < heads + groups ? d_keys + (row * groups + head - heads) * width
                                                : d_values + (row * groups + head - heads - groups) * width;
    float4 a = all(0.0f);
    float4 b = all(0.0f);
    float4 d_a = all(0.0f);
    float4 d_b = all(0.0f);
    if (is_one) {
      a = four(every + index * width + i);
      b = four(every + index * width + j);
      d_a = four(given + i);
      d_b = four(given + j);
    }
    float scale = rsqrtf(head_sum(dot(a, a) + dot(b, b), lanes) / width + epsilon);
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
    float along = head_sum(dot(through_a, a) + dot(through_b, b), lanes) * scale * scale / width;
    if (turns) {
      d_a = times(plus(through_a, times(a, all(-along))), all(scale));
      d_b = times(plus(through_b, times(b, all(-along))), all(scale));
    }
    if (is_one) {
      put(d_every + index * width + i, d_a);
      put(d_every + index * width + j, d_b);
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

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float silu(float x) { return rounded(x / (1.0f + expf(-x))); }

// What a gate of silu is given, of what silu gave is.
__device__ __forceinline__ float silu_back(float x, float d) {
  float s = sigmoid(x);
  return rounded(d) * s * (1.0f + x * (1.0f - s));
}

// out[rows, inner] = silu(both[rows, :inner]) * both[rows, inner:] (SwiGLU, arXiv 2002.05202). A thread for each four;
// count: rows * inner / 4.
extern "C" __global__ void gate(const bf16 *both, bf16 *out, long long count, int inner) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  i *= 4;
  long long at = i / inner * inner + i;
  float4 x = four(both + at);
  put(out + i, times(make_float4(silu(x.x), silu(x.y), silu(x.z), silu(x.w)), four(both + at + inner)));
}

// The way back: of d_out[rows, inner] to d_both.
extern "C" __global__ void gate_back(const bf16 *both, const bf16 *d_out, bf16 *d_both, long long count, int inner) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  i *= 4;
  long long at = i / inner * inner + i;
  float4 x = four(both + at);
  float4 d = four(d_out + i);
  float4 up = times(d, four(both + at + inner));
  put(d_both + at, make_float4(silu_back(x.x, up.x), silu_back(x.y, up.y), silu_back(x.z, up.z), silu_back(x.w, up.w)));
  put(d_both + at + inner, times(d, make_float4(silu(x.x), silu(x.y), silu(x.z), silu(x.w))));
}
