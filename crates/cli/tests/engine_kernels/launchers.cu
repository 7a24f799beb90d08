// So that the cpu device can start the kernels of `crates/engine/csrc/kernels.cu`, which this is put behind.

extern "C" cudaError_t add_norm_launcher(float *stream_, const unsigned short *added, const float *weight,
                                         unsigned short *out, int rows, int width, float epsilon,
                                         cudaStream_t stream) {
  add_norm<<<rows, 128, 0, stream>>>(stream_, added, weight, out, width, epsilon);
  return cudaGetLastError();
}

extern "C" cudaError_t turn_keep_launcher(const unsigned short *all, const float *norms, const float *cosines,
                                          const float *sines, const double *positions, unsigned short *queries,
                                          unsigned short *keys, unsigned short *values, int rows, int heads,
                                          int groups, int width, int room, float epsilon, cudaStream_t stream) {
  int warps = rows * (heads + 2 * groups);
  turn_keep<<<(warps + 3) / 4, 128, 0, stream>>>(all, norms, cosines, sines, positions, queries, keys, values, rows,
                                                 heads, groups, width, room, epsilon);
  return cudaGetLastError();
}

extern "C" cudaError_t gate_launcher(const unsigned short *both, unsigned short *out, long long count, int inner,
                                     cudaStream_t stream) {
  gate<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(both, out, count, inner);
  return cudaGetLastError();
}

extern "C" cudaError_t choose_launcher(const unsigned short *logits, const double *chances, double *drawn, int rows,
                                       int words, float temperature, float top_p, cudaStream_t stream) {
  choose<<<rows, 256, 0, stream>>>(logits, chances, drawn, rows, words, temperature, top_p);
  return cudaGetLastError();
}
