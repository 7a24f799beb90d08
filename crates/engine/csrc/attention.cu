// Attention of one token of each row to the row's KV cache, for decoding.

// queries and out[rows, heads, width]; keys and values[rows, room, groups, width], of which a row
// attends to those up to its position. Keys are processed a few at a time; the running sum is
// rescaled when a larger score arrives (online softmax; Milakov and Gimelshein, arXiv 1805.02867).
// Weights stay float32, which flash attention rounds. A block of 128 threads per head and row;
// width / 8 threads share a key, each with four numbers of either half.
extern "C" __global__ void attend(const bf16 *queries, const bf16 *keys, const bf16 *values, const long long *positions,
                                  bf16 *out, int heads, int groups, int width, int room, float scale) {
  __shared__ float likeliest[128];
  __shared__ float sums[128];
  __shared__ __align__(16) float parts[1024];
  const float nothing = -__int_as_float(0x7f800000);
  int lanes = width / 8;
  int i = 4 * (threadIdx.x % lanes);
  int j = i + width / 2;
  int team = threadIdx.x / lanes;
  int teams = blockDim.x / lanes;
  long long row = blockIdx.x / heads;
  int group = blockIdx.x % heads / (heads / groups);
  int kept = (int)positions[row] + 1;
  long long first = (row * room * groups + group) * width;
  long long own = (long long)blockIdx.x * width;
  float4 query_a = times(four(queries + own + i), all(scale));
  float4 query_b = times(four(queries + own + j), all(scale));
  float most = nothing;
  float sum = 0.0f;
  float4 a = all(0.0f);
  float4 b = all(0.0f);
  for (int base = 0; base < kept; base += 2 * teams) {
    float odds[2];
    float4 value_a[2];
    float4 value_b[2];
    for (int n = 0; n < 2; n++) {
      int at = base + n * teams + team;
      odds[n] = 0.0f;
      if (at < kept) {
        long long from = first + (long long)at * groups * width;
        odds[n] = dot(four(keys + from + i), query_a) + dot(four(keys + from + j), query_b);
        value_a[n] = four(values + from + i);
        value_b[n] = four(values + from + j);
      }
    }
    for (int n = 0; n < 2; n++)
      odds[n] = lanes_sum(odds[n], lanes);
    for (int n = 0; n < 2; n++)
      if (base + n * teams + team < kept) {
        float now = fmaxf(most, odds[n]);
        float before = expf(most - now);
        float weight = expf(odds[n] - now);
        sum = sum * before + weight;
        a = plus(times(a, all(before)), times(value_a[n], all(weight)));
        b = plus(times(b, all(before)), times(value_b[n], all(weight)));
        most = now;
      }
  }
  if (threadIdx.x % lanes == 0) {
    likeliest[team] = most;
    sums[team] = sum;
  }
  put(parts + team * width + i, a);
  put(parts + team * width + j, b);
  __syncthreads();
  most = nothing;
  for (int t = 0; t < teams; t++)
    most = fmaxf(most, likeliest[t]);
  for (int n = threadIdx.x; n < width; n += blockDim.x) {
    float total = 0.0f;
    float gathered = 0.0f;
    for (int t = 0; t < teams; t++) {
      float weight = expf(likeliest[t] - most);
      total += weight * sums[t];
      gathered += weight * parts[t * width + n];
    }
    out[own + n] = narrow(gathered / total);
  }
}
