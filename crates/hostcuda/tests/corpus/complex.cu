// cuComplex.h: pairs of floats and of doubles.
#include <cuComplex.h>
#include <cuda_runtime.h>

__global__ void filter_kernel(const cuFloatComplex* x, const cuFloatComplex* f, cuFloatComplex* y, float* size, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const cuFloatComplex v = cuCdivf(cuCfmaf(x[i], f[i], cuConjf(x[i])), cuCsubf(f[i], make_cuComplex(3.f, 0.25f)));
    y[i] = v;
    size[i] = cuCabsf(v);
}

__global__ void product_kernel(const double2* x, const cuDoubleComplex* f, cuDoubleComplex* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const cuFloatComplex half = make_cuFloatComplex(0.5f, 0.f);
    y[i] = cuCadd(cuCmul(x[i], f[i]), cuComplexFloatToDouble(half));
}

extern "C" void complex_filter(const float* x, const float* f, float* y, float* size, int n, cudaStream_t stream) {
    filter_kernel<<<(n + 63) / 64, 64, 0, stream>>>(reinterpret_cast<const cuFloatComplex*>(x),
                                                    reinterpret_cast<const cuFloatComplex*>(f),
                                                    reinterpret_cast<cuFloatComplex*>(y), size, n);
}
extern "C" void complex_product(const double* x, const double* f, double* y, int n, cudaStream_t stream) {
    product_kernel<<<(n + 63) / 64, 64, 0, stream>>>((const double2*)x, (const double2*)f, (double2*)y, n);
}
