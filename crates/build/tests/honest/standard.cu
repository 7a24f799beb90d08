// What honest launchers use of the C++ library on the host, in one file.
#include <cuda_runtime.h>
#include <algorithm>
#include <any>
#include <atomic>
#include <bitset>
#include <charconv>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace {

struct Plan {
    int block = 256;
    std::string name;
    virtual ~Plan() = default;
    virtual int grid(int n) const { return (n + block - 1) / block; }
};
struct Wide : Plan {
    int grid(int n) const override { return (n + 2 * block - 1) / (2 * block); }
};
struct alignas(64) Aligned {
    float values[32];
};

std::once_flag once;
std::mutex mutex;
std::shared_mutex shared;
std::recursive_mutex recursive;
thread_local std::vector<int> scratch{1, 2, 3};
thread_local std::string label = "x";
std::unordered_map<std::string, std::shared_ptr<Plan>> plans;
std::map<std::tuple<int, int>, int> tuned;
std::atomic<long> calls{0};

void locked(int n) {
    std::call_once(once, [] { plans["plain"] = std::make_shared<Wide>(); });
    std::lock_guard<std::mutex> guard(mutex);
    { std::shared_lock<std::shared_mutex> reading(shared); }
    { std::unique_lock<std::shared_mutex> writing(shared); }
    std::scoped_lock both(recursive);
    scratch.push_back(n);
    tuned[{n, 1}] = n;
    calls.fetch_add(1);
}

double written(int n, double t) {
    std::ostringstream out;
    out << "n=" << n << std::setprecision(3) << std::fixed << t << std::hex << 255 << true << 'c' << 3L << 4UL << 5LL
        << 6ULL << 1.5f << (const void*)&out << std::endl;
    std::stringstream both;
    both << 1 << ' ' << 2.5;
    int a = 0;
    double b = 0;
    both >> a >> b;
    std::istringstream in("1 abc 3.5");
    long l = 0;
    float f = 0;
    std::string word, line;
    in >> l >> word >> f;
    std::getline(in, line, ',');
    if (n < 0) {
        std::cerr << out.str() << "\n";
        std::cout << label << std::flush;
        std::clog << n;
        std::printf("%d %f %s\n", n, t, label.c_str());
        std::fprintf(stderr, "x");
        std::puts("y");
        std::fflush(stdout);
    }
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%g", t);
    double parsed = std::strtod(buffer, nullptr) + std::atoi("3") + std::strtol("3", nullptr, 10);
    std::from_chars("1.5", "1.5" + 3, parsed);
    std::to_chars(buffer, buffer + sizeof buffer, t);
    label += std::to_string(t) + std::to_string(n);
    std::string_view view = label;
    label.replace(0, 1, "q").insert(0, "z").append(3, 'c').erase(1);
    std::wstring wide = L"a";
    wide += L"b";
    return parsed + a + b + l + f + view.find("x") + wide.size() + label.compare("x") + std::stoi("12") + std::stod("2");
}

double contained(int n) {
    std::vector<int> v{3, 1, 2};
    std::sort(v.begin(), v.end());
    std::stable_sort(v.begin(), v.end(), std::greater<int>());
    std::nth_element(v.begin(), v.begin() + 1, v.end());
    std::set<int> set{1, 2};
    std::list<int> list{1, 2};
    list.sort();
    std::deque<int> deque{1};
    deque.push_front(2);
    std::priority_queue<int> queue;
    queue.push(1);
    std::unordered_set<std::string> words{"a", "b"};
    std::bitset<64> bits(n);
    std::any any = std::string("s");
    std::optional<int> maybe = n > 3 ? std::optional<int>(n) : std::nullopt;
    std::variant<int, std::string> variant = std::string("v");
    std::function<int(int)> add = [=](int k) { return k + n; };
    auto large = std::make_unique<Aligned>();
    std::weak_ptr<Plan> weak = plans["plain"];
    std::shared_ptr<void> erased(new int, [](void* p) { delete static_cast<int*>(p); });
    void* block = std::aligned_alloc(64, 128);
    std::memset(block, 0, 128);
    std::free(block);
    return v.at(1) + set.size() + queue.top() + words.size() + bits.count() + std::any_cast<std::string>(any).size() +
           maybe.value_or(2) + std::get<std::string>(variant).size() + add(1) + large->values[0] * 0 +
           std::gcd(n, 4) + std::hash<std::string>()("x") % 2 + std::type_index(typeid(int)).hash_code() % 2;
}

double thrown(int n) {
    try {
        if (n == -1) throw std::invalid_argument("a");
        if (n == -2) throw std::overflow_error("b");
        if (n == -3) throw std::system_error(std::make_error_code(std::errc::invalid_argument));
        if (n == -4) throw std::bad_alloc();
        std::rethrow_exception(std::make_exception_ptr(std::runtime_error("bad " + std::to_string(n))));
    } catch (const std::invalid_argument&) {
        return 1;
    } catch (const std::exception& error) {
        const Plan* plan = plans["plain"].get();
        const auto* wide = dynamic_cast<const Wide*>(plan);
        return std::strlen(error.what()) + (wide ? wide->grid(n) : 0);
    } catch (...) {
        return std::current_exception() ? 2 : 3;
    }
}

double computed(double t) {
    std::mt19937 engine(7);
    std::uniform_real_distribution<double> uniform;
    std::normal_distribution<float> normal;
    std::complex<float> z(1, 2);
    z = z * z + z / z;
    const auto from = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - from;
    __int128 wide = (long)t;
    wide = wide * wide / 7;
    return uniform(engine) + normal(engine) + z.real() + took.count() + (double)wide + std::erf(t) + std::tgamma(t) +
           std::lgamma(t) + std::fmod(t, 2) + std::hypot(t, t) + std::cbrt(t) + std::llround(t) + std::nextafter(t, 3) +
           (double)std::sqrt((long double)t) + (double)std::chrono::system_clock::to_time_t({}) * 0;
}

}  // namespace

__global__ void fill(float* y, int n, float value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = value;
}

extern "C" int fill_launcher(float* y, int n, float value, cudaStream_t stream) {
    locked(n);
    static const double sum = written(n, 1.5) + contained(n) + thrown(n) + computed(1.5);
    fill<<<plans["plain"]->grid(n) * 2, 256, 0, stream>>>(y, n, sum == sum ? value : 0.0f);
    return (int)cudaGetLastError();
}
