// So that the host can start the kernels of `csrc/*.cu`, which this is put behind: `given` are addresses of what a
// kernel takes, as for the driver.

template <typename T> T as(void *address) { return *static_cast<T *>(address); }

extern "C" void host_add_norm(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  add_norm<<<blocks, threads, shared, 0>>>(as<const float *>(given[0]), as<const bf16 *>(given[1]),
      as<const float *>(given[2]), as<float *>(given[3]), as<float *>(given[4]), as<bf16 *>(given[5]),
      as<int>(given[6]), as<float>(given[7]));
}

extern "C" void host_add_norm_back(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  add_norm_back<<<blocks, threads, shared, 0>>>(as<const float *>(given[0]), as<const float *>(given[1]),
      as<const float *>(given[2]), as<const bf16 *>(given[3]), as<const float *>(given[4]), as<float *>(given[5]),
      as<bf16 *>(given[6]), as<float *>(given[7]), as<int>(given[8]), as<int>(given[9]));
}

extern "C" void host_turn(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  turn<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const float *>(given[1]),
      as<const float *>(given[2]), as<const float *>(given[3]), as<const float *>(given[4]),
      as<const long long *>(given[5]), as<bf16 *>(given[6]), as<bf16 *>(given[7]), as<bf16 *>(given[8]),
      as<int>(given[9]), as<int>(given[10]), as<int>(given[11]), as<int>(given[12]), as<int>(given[13]),
      as<float>(given[14]));
}

extern "C" void host_turn_back(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  turn_back<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const float *>(given[1]),
      as<const float *>(given[2]), as<const float *>(given[3]), as<const float *>(given[4]),
      as<const long long *>(given[5]), as<const bf16 *>(given[6]), as<const bf16 *>(given[7]),
      as<const bf16 *>(given[8]), as<bf16 *>(given[9]), as<float *>(given[10]), as<int>(given[11]), as<int>(given[12]),
      as<int>(given[13]), as<int>(given[14]), as<float>(given[15]));
}

extern "C" void host_attend(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  attend<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const bf16 *>(given[1]),
      as<const bf16 *>(given[2]), as<const long long *>(given[3]), as<bf16 *>(given[4]), as<int>(given[5]),
      as<int>(given[6]), as<int>(given[7]), as<int>(given[8]), as<float>(given[9]));
}

extern "C" void host_gate(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  gate<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<bf16 *>(given[1]), as<int>(given[2]));
}

extern "C" void host_gate_back(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  gate_back<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const bf16 *>(given[1]),
      as<bf16 *>(given[2]), as<int>(given[3]));
}

extern "C" void host_likelihood(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  likelihood<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const long long *>(given[1]),
      as<float *>(given[2]), as<float *>(given[3]), as<float *>(given[4]), as<int>(given[5]));
}

extern "C" void host_likelihood_back(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  likelihood_back<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const long long *>(given[1]),
      as<const float *>(given[2]), as<const float *>(given[3]), as<bf16 *>(given[4]), as<int>(given[5]));
}

extern "C" void host_choose(unsigned blocks, unsigned threads, unsigned shared, void **given) {
  choose<<<blocks, threads, shared, 0>>>(as<const bf16 *>(given[0]), as<const double *>(given[1]),
      as<double *>(given[2]), as<int>(given[3]), as<int>(given[4]), as<float>(given[5]), as<float>(given[6]));
}
