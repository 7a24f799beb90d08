// Kernels on logits: log-probabilities of tokens, forward and backward, and sampling.

// From logits[rows, words] the log-probability of chosen[rows] and the entropy; totals[rows] are
// the log-sum-exps. Words are a multiple of four. A block per row.
extern "C" __global__ void likelihood(const bf16 *logits, const long long *chosen, float *logprobs, float *entropies,
                                      float *totals, int words) {
  __shared__ float shared[32];
  const bf16 *x = logits + (long long)blockIdx.x * words;
  float most = -__int_as_float(0x7f800000);
  for (int i = 4 * threadIdx.x; i < words; i += 4 * blockDim.x) {
    float4 odds = four(x + i);
    most = fmaxf(most, fmaxf(fmaxf(odds.x, odds.y), fmaxf(odds.z, odds.w)));
  }
  most = block_max(most, shared);
  float sum = 0.0f;
  float weighed = 0.0f;
  for (int i = 4 * threadIdx.x; i < words; i += 4 * blockDim.x) {
    float4 below = plus(four(x + i), all(-most));
    float4 odds = make_float4(expf(below.x), expf(below.y), expf(below.z), expf(below.w));
    sum += dot(odds, all(1.0f));
    weighed += dot(odds, below);
  }
  sum = block_sum(sum, shared);
  weighed = block_sum(weighed, shared);
  if (threadIdx.x == 0) {
    float log_sum = logf(sum);
    logprobs[blockIdx.x] = wide(x[chosen[blockIdx.x]]) - most - log_sum;
    entropies[blockIdx.x] = log_sum - weighed / sum;
    totals[blockIdx.x] = most + log_sum;
  }
}

// Backward pass from the log-probabilities' gradients d[rows]: d times (1 where chosen, else 0,
// minus the probability).
extern "C" __global__ void likelihood_back(const bf16 *logits, const long long *chosen, const float *totals,
                                           const float *d, bf16 *d_logits, int words) {
  long long first = (long long)blockIdx.x * words;
  long long picked = chosen[blockIdx.x];
  float total = totals[blockIdx.x];
  float own = d[blockIdx.x];
  for (int i = 4 * threadIdx.x; i < words; i += 4 * blockDim.x) {
    float4 x = plus(four(logits + first + i), all(-total));
    float4 back = make_float4((i == picked) - expf(x.x), (i + 1 == picked) - expf(x.y), (i + 2 == picked) - expf(x.z),
                              (i + 3 == picked) - expf(x.w));
    put(d_logits + first + i, times(back, all(own)));
  }
}

// Maps the bits of floats to integers of the same order.
__device__ __forceinline__ int ordered(bf16 bits) { return bits & 0x8000 ? 0xffff - bits : bits + 0x8000; }

// Samples a token of each row of logits[rows, words], given chances[rows] in [0, 1): the first at
// which the cumulative probability of the nucleus exceeds it. With top_p below 1 the nucleus has
// the tokens for which the probabilities of all more probable ones sum to less than top_p; tokens
// of equal probability are all in or all out. drawn[2, rows]: ids, and the log-probabilities of the
// distribution sampled from. A block per row.
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
  // The smallest logit in the nucleus: the more probable tokens below it sum to top_p or more.
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
  // In double: the cumulative sum over a vocabulary of 150,000 would round in float32 by as much as
  // a rare token's probability.
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
    // The last thread with a token, if rounding selects none.
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
