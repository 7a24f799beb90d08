// A matrix product by CUTLASS's templates of the older kind: no tensor maps, any architecture.
#include <cuda_runtime.h>
#include <cutlass/gemm/device/gemm.h>

using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Gemm = cutlass::gemm::device::Gemm<float, Row, float, Column, float, Row>;

extern "C" int product(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
    Gemm gemm;
    const typename Gemm::Arguments arguments({m, n, k}, {a, k}, {b, k}, {c, n}, {c, n}, {1.f, 0.f});
    return (int)gemm(arguments, nullptr, stream);
}
