// What honest launchers use of CUDA's runtime, cuBLAS and the C++ library.
#include <cooperative_groups.h>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#define CHECK(call) do { cudaError_t error_ = (call); if (error_ != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_)); exit(EXIT_FAILURE); } } while (0)

__constant__ float table[4];
__device__ int counter;

__global__ void k(float* x) { x[threadIdx.x] += table[0]; counter++; }
__global__ void __cluster_dims__(2, 1, 1) tensor_cores(float* x) {
  asm volatile("wgmma.fence.sync.aligned;\n");
  x[threadIdx.x] += table[0];
}

struct Shape { int rows, columns; std::string name; };

extern "C" int go(float* x, int n, cudaStream_t s) {
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  static std::map<int, std::unique_ptr<std::vector<Shape>>> shapes;
  auto& known = shapes[n];
  if (!known) known = std::make_unique<std::vector<Shape>>(3, Shape{n, 1, "shape " + std::to_string(n)});
  std::sort(known->begin(), known->end(), [](auto& a, auto& b) { return a.rows < b.rows; });
  std::ostringstream told;
  told << known->front().name << std::sqrt((double)n) << std::pow(2.0f, (float)n);
  float h[4] = {1, 2, 3, 4};
  CHECK(cudaMemcpyToSymbolAsync(table, h, sizeof h, 0, cudaMemcpyHostToDevice, s));
  CHECK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
  CHECK(cudaFuncSetAttribute(tensor_cores, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  void* a[] = {&x};
  CHECK(cudaLaunchCooperativeKernel((void*)k, dim3(1), dim3(32), a, 0, s));
  CHECK(cudaLaunchKernel((void*)k, dim3(1), dim3(32), a, 0, s));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2); config.blockDim = dim3(32); config.stream = s;
  cudaLaunchAttribute attributes[1];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes; config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, tensor_cores, x));
  k<<<1, 32, 0, s>>>(x);
  int blocks, grid, block, value;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k, 32, 0));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, k, 0, 0));
  cudaDeviceProp properties;
  CHECK(cudaGetDevice(&value));
  CHECK(cudaGetDeviceProperties(&properties, value));
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  cudaEvent_t e; cudaStream_t t;
  CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  CHECK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  CHECK(cudaEventRecord(e, s)); CHECK(cudaStreamWaitEvent(t, e, 0)); CHECK(cudaStreamSynchronize(t));
  CHECK(cudaEventDestroy(e)); CHECK(cudaStreamDestroy(t));
  void* q;
  CHECK(cudaMallocAsync(&q, 100, s)); CHECK(cudaMemsetAsync(q, 0, 100, s));
  CHECK(cudaMemcpyAsync(q, x, 4, cudaMemcpyDeviceToDevice, s)); CHECK(cudaFreeAsync(q, s));
  CHECK(cudaMalloc(&q, 10)); CHECK(cudaFree(q));
  CHECK(cudaGetSymbolAddress(&q, counter));
  cublasHandle_t handle; float one = 1, zero = 0;
  if (cublasCreate(&handle) || cublasSetStream(handle, s) || cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH)) return 1;
  if (cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, x, n, x, n, &zero, x, n)) return 2;
  cublasLtHandle_t light; cublasLtMatmulDesc_t description;
  if (cublasLtCreate(&light) || cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F)) return 3;
  if (cublasLtMatmul(light, description, &one, x, 0, x, 0, &zero, x, 0, x, 0, 0, 0, 0, s)) return 4;
  return (int)cudaGetLastError();
}
