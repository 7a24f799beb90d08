// What honest bindings use of torch, pybind11 and the C++ library, in one file.
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <array>
#include <chrono>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>
#include "../binding_registry.h"

extern "C" int scale(const float* x, float* y, long long n, float a, cudaStream_t stream);

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

static torch::Tensor scaled(torch::Tensor x, double a) {
    CHECK_INPUT(x);
    const at::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    int code = scale(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), (float)a, stream);
    if (code) throw std::runtime_error("scale failed: " + std::to_string(code));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

static std::vector<torch::Tensor> allocated(const at::Tensor& x, std::optional<torch::Tensor> mask,
                                            c10::optional<at::Tensor> bias) {
    auto opts = torch::TensorOptions().dtype(torch::kFloat32).device(x.device()).requires_grad(false);
    auto a = torch::empty({x.size(0), x.size(-1)}, opts);
    auto b = torch::zeros({x.size(0)}, x.options().dtype(at::kInt));
    auto c = at::empty_strided(x.sizes(), x.strides(), x.options());
    auto d = torch::full({4}, 1.5, opts), e = torch::ones({3}, opts);
    if (mask.has_value())
        TORCH_CHECK(mask->dim() == 2 && mask->scalar_type() == torch::kBool, "mask of ", mask->sizes(), " and ",
                    mask->dtype());
    if (bias) TORCH_CHECK_VALUE(bias->defined() && bias->numel() == x.size(1), "bias");
    TORCH_CHECK(x.dtype() == torch::kFloat32, "expected float32, got ", x.dtype(), " on ", x.device(), " ",
                x.scalar_type());
    return {a, b, c, d, e};
}

static std::tuple<at::Tensor, at::Tensor, int64_t> moved(at::Tensor x) {
    auto y = x.contiguous();
    auto z = y.view({-1}).reshape({x.size(0), -1}).transpose(0, 1).permute({1, 0}).unsqueeze(0).squeeze(0).flatten();
    auto s = z.slice(0, 0, 2).narrow(0, 0, 1).select(0, 0).expand({4});
    auto t = x.to(torch::kFloat16).to(x.device()).t().clone();
    auto u = x.detach().as_strided({1}, {1}).view_as(s.slice(0, 0, 1));
    y.copy_(x);
    y.zero_();
    y.fill_(2.0);
    auto chunks = x.chunk(2, 0), parts = x.split(1, 0), rows = x.unbind(0);
    auto n = x.new_empty({3}), m = x.new_zeros({3});
    int64_t count = x.stride(0) + x.storage_offset() + x.element_size() + x.nbytes() + (int64_t)chunks.size() +
                    (int64_t)parts.size() + (int64_t)rows.size();
    return std::make_tuple(s, t, count);
}

template <typename T>
static void pointers(at::Tensor x) {
    T* p = x.data_ptr<T>();
    const T* q = x.const_data_ptr<T>();
    T* r = x.mutable_data_ptr<T>();
    if (p != q || q != r) throw std::logic_error("pointers");
}

static void dispatched(at::Tensor x) {
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dispatched", [&] { pointers<scalar_t>(x); });
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "dispatched", [&] { pointers<scalar_t>(x); });
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "dispatched",
                                    [&] { pointers<scalar_t>(x); });
    AT_DISPATCH_ALL_TYPES(x.scalar_type(), "dispatched", [&] { pointers<scalar_t>(x); });
    auto a = x.packed_accessor32<float, 2>();
    auto b = x.accessor<float, 2>();
    TORCH_CHECK(a.size(0) == b.size(0));
}

static at::Tensor workspace(at::Tensor x) {
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    static std::unordered_map<int64_t, at::Tensor> cache;
    auto it = cache.find(x.numel());
    if (it == cache.end())
        it = cache.emplace(x.numel(), torch::empty({x.numel()}, x.options().dtype(torch::kByte))).first;
    std::ostringstream told;
    told << "workspace of " << it->second.numel() << " for " << x.sizes();
    if (std::getenv("DEBUG")) std::cerr << told.str() << std::endl;
    auto begun = std::chrono::steady_clock::now();
    auto stream = c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
    (void)cudaMemsetAsync(it->second.data_ptr(), 0, it->second.nbytes(), stream);
    if (std::chrono::steady_clock::now() < begun) printf("%s\n", told.str().c_str());
    TORCH_CHECK(at::cuda::getCurrentDeviceProperties()->multiProcessorCount > 0);
    TORCH_WARN_ONCE("workspace is ", it->second.nbytes(), " bytes");
    return it->second;
}

static py::object counted(py::list xs, py::dict d, py::tuple t, py::args args, const py::kwargs& kw) {
    return py::cast(xs.size() + d.size() + t.size() + args.size() + kw.size());
}

static at::Tensor described(at::ScalarType type, at::IntArrayRef sizes, torch::Device device, double s,
                            c10::optional<double> a) {
    torch::NoGradGuard no_grad;
    TORCH_CHECK(at::Scalar(s).toDouble() + a.value_or(1.0) > 0);
    return torch::empty(sizes, torch::dtype(type).device(device));
}

struct Plan {
    int64_t rows;
    at::Tensor weight;
    explicit Plan(at::Tensor w) : rows(w.size(0)), weight(w) {}
    at::Tensor run(at::Tensor x) { return scaled(x, 2.0); }
};

static void bind(pybind11::module& m) {
    m.def("scaled", &scaled, "scales", py::arg("x"), py::arg("a") = 2.0);
    m.def("allocated", &allocated, py::arg("x"), py::arg("mask") = py::none(), py::arg("bias") = std::nullopt);
    m.def("moved", &moved, py::call_guard<py::gil_scoped_release>());
    m.def("dispatched", &dispatched);
    m.def("workspace", &workspace);
    m.def("counted", &counted);
    m.def("described", &described);
    m.def("named", [](const std::string& s, std::vector<int64_t> v, std::array<int, 2> a, bool b) {
        return s + std::to_string(v.size() + a[0] + b);
    });
    py::class_<Plan>(m, "Plan")
        .def(py::init<at::Tensor>())
        .def("run", &Plan::run)
        .def_readonly("rows", &Plan::rows)
        .def("__repr__", [](const Plan& p) { return "Plan of " + std::to_string(p.rows); });
    m.attr("VERSION") = 3;
}
REGISTER_BINDING(everything, bind);
