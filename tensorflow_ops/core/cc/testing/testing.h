// A small test framework for algorithm files, without dependencies.
//
//   TFO_TEST(ZeroOut, KeepsTheFirst) { TFO_EXPECT_EQ(1 + 1, 2); }
//
// testing.cc has main(), which runs every TFO_TEST once per CPU level of the
// machine until it fails, at variants of avx512 only if it asks for their
// products, and every TFO_CUDA_TEST (gpu_testing.h) once.
//
// A helper that checks many sizes and types names them in its failures, and the
// line that calls it:
//
//   template <typename T>
//   void Check(int64_t rows, const testing::Caller& caller = {}) {
//     const testing::Case of_test(caller, testing::NameOf<T>(), rows, " rows");
//
// A benchmark, which PROGRAM --benchmark[=PART_OF_A_NAME] times. As a test it
// runs once, with small sizes:
//
//   TFO_BENCHMARK(ZeroOut, Large) {
//     const int64_t n = testing::BenchmarkSize(1 << 26);
//     ...
//     testing::TimeOnGpu("zero_out float32", 8 * n, 0,
//                        [&](const Gpu& gpu) { return ZeroOut(gpu, ...); });
//   }
#ifndef TENSORFLOW_OPS_CORE_CC_TESTING_TESTING_H_
#define TENSORFLOW_OPS_CORE_CC_TESTING_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo::testing {

// A device whose ParallelFor runs one range per thread, whatever the cost, so
// that the thread sanitizer finds races.
Cpu ThreadedCpu(int num_threads);

// Where a helper is called: its last argument.
struct Caller {
  const char* file;
  int line;
  Caller(const char* from = __builtin_FILE(), int at = __builtin_LINE())
      : file(from), line(at) {}
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Failures name this case until the end of its scope.
class Case {
 public:
  template <typename... Parts>
  explicit Case(const Caller& caller, const Parts&... parts)
      : caller_(caller), outer_(innermost_), text_(Text(parts...)) {
    innermost_ = this;
  }
  ~Case() { innermost_ = outer_; }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  // "FILE:LINE: TEXT" of the cases around a failure, from the outermost in.
  static std::string Lines();

 private:
  const Caller caller_;
  Case* const outer_;
  std::string text_;
  static Case* innermost_;
};

template <typename T>
const char* NameOf() {
  return std::is_same_v<T, double>  ? "float64 "
         : std::is_same_v<T, float> ? "float32 "
         : std::is_same_v<T, Half>  ? "float16 "
                                    : "bfloat16 ";
}

// Calls body(T()) for every dtype.
template <typename Body>
void ForTypes(const Body& body) {
  body(float());
  body(double());
  body(Half());
  body(BFloat16());
}

// x in a narrower type.
template <typename T>
T Rounded(double x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return Narrow<T>(static_cast<Accumulator<T>>(x));
  }
}

// Prints what differs and where, for the first failures of a test, and makes
// the run fail; the test continues.
void Fail(const char* file, int line, const std::string& message);

// Which tests or benchmarks to run.
struct Selection {
  const char* filter = "";  // a part of the name, or "=" and all of it
  bool only_gpu = false;    // TFO_CUDA_TESTs and benchmarks, with no TimeOnCpu
  bool list = false;        // prints their names instead
};

// Runs tests. Returns 1 if one failed.
int RunTests(const Selection& selection);

// Runs benchmarks. Returns 1 if one failed.
int RunBenchmarks(const Selection& selection);

// Whether benchmarks are timed, rather than run as tests.
bool IsTiming();

// The size `n` of a benchmark's input; at most 8 in tests.
int64_t BenchmarkSize(int64_t n);

// Times `run` on the CPU, on one thread. `num_bytes` must move: each input
// element that is used, once, and each output element. Called by benchmarks;
// gpu_testing.h has TimeOnGpu.
void TimeOnCpu(const std::string& name, int64_t num_bytes,
               const std::function<Error(const Cpu&)>& run);

// Prints {"name": ..., "device": ..., "ms": MEDIAN, "bytes": ...}, a line.
void PrintTime(const std::string& name, const char* device,
               std::vector<double> ms, int64_t num_bytes);

enum class Kind { kEveryLevel, kOnce, kBenchmark };

// `run` is null if the build leaves the test out.
struct Registration {
  Registration(const char* name, Kind kind, void (*run)());
};

template <typename T>
std::vector<T> RandomValues(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(n);
  for (T& value : values) value = Narrow<T>(normal(engine));
  return values;
}

template <typename T, typename A, typename B>
bool HaveSameBits(const std::vector<T, A>& a, const std::vector<T, B>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Waits for all CUDA kernels. Returns null or their first error. A program that
// does not link gpu_testing_gpu.cu.cc has no such function: its address is
// null.
__attribute__((weak)) Error WaitForGpu();

// Returns null, or why this machine does not run the program's kernels. Also in
// gpu_testing_gpu.cu.cc.
__attribute__((weak)) Error GpuError();

}  // namespace tfo::testing

#define TFO_REGISTER_TEST(suite, name, kind)                           \
  static void suite##name##Test();                                     \
  static const ::tfo::testing::Registration suite##name##Registration( \
      #suite "." #name, kind, suite##name##Test);                      \
  static void suite##name##Test()

#define TFO_TEST(suite, name) \
  TFO_REGISTER_TEST(suite, name, ::tfo::testing::Kind::kEveryLevel)

#ifdef TFO_WITHOUT_EMULATION
// Without kernels, there is nothing that these, and most benchmarks, could
// call.
#define TFO_CUDA_TEST(suite, name)                                     \
  static const ::tfo::testing::Registration suite##name##Registration( \
      #suite "." #name, ::tfo::testing::Kind::kOnce, nullptr);         \
  [[maybe_unused]] static void suite##name##Test()
#define TFO_BENCHMARK(suite, name) TFO_CUDA_TEST(suite, name)
#else
#define TFO_BENCHMARK(suite, name) \
  TFO_REGISTER_TEST(suite, name, ::tfo::testing::Kind::kBenchmark)
#define TFO_CUDA_TEST(suite, name) \
  TFO_REGISTER_TEST(suite, name, ::tfo::testing::Kind::kOnce)
#endif

#define TFO_EXPECT(condition)                                         \
  do {                                                                \
    if (!(condition))                                                 \
      ::tfo::testing::Fail(__FILE__, __LINE__, "false: " #condition); \
  } while (false)

// Evaluates `launch`, an Error, and waits for it; expects that neither fails.
#define TFO_EXPECT_RUNS(launch)                                    \
  do {                                                             \
    ::tfo::Error tfo_error = (launch);                             \
    if (tfo_error == nullptr && ::tfo::testing::WaitForGpu)        \
      tfo_error = ::tfo::testing::WaitForGpu();                    \
    if (tfo_error != nullptr)                                      \
      ::tfo::testing::Fail(__FILE__, __LINE__,                     \
                           std::string(tfo_error) + ": " #launch); \
  } while (false)

#define TFO_EXPECT_EQ(actual, expected)                               \
  do {                                                                \
    const auto tfo_actual = (actual);                                 \
    const auto tfo_expected = (expected);                             \
    if (!(tfo_actual == tfo_expected)) {                              \
      std::ostringstream tfo_message;                                 \
      tfo_message << #actual << " is " << tfo_actual << ", expected " \
                  << tfo_expected;                                    \
      ::tfo::testing::Fail(__FILE__, __LINE__, tfo_message.str());    \
    }                                                                 \
  } while (false)

namespace tfo::testing {

// Expects NaN where NaN is expected, else values within `tolerance` of
// `expected`, relative to it or, below 1, absolute.
template <typename T>
void ExpectNear(const char* name, const T* actual,
                const std::vector<double>& expected, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = Widen(actual[i]), e = expected[i];
    if (value == e || (std::isnan(value) && std::isnan(e))) continue;
    const double most = tolerance * std::max(1.0, std::abs(e));
    if (std::isfinite(e) && std::abs(value - e) <= most) continue;
    return Fail(__FILE__, __LINE__,
                Text(name, "[", i, "] of ", expected.size(), " is ", value,
                     ", expected ", e, " in ", 8 * sizeof(T), " bits"));
  }
}

// Expects what an algorithm computes to be near what a plain loop in double
// computes: off by a few roundings of T.
template <typename T, typename A>
void ExpectClose(const char* name, const std::vector<T, A>& actual,
                 const std::vector<double>& expected) {
  TFO_EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size()) return;
  ExpectNear(name, actual.data(), expected,
             std::is_same_v<T, double>  ? 1e-12
             : std::is_same_v<T, float> ? 1e-5
             : std::is_same_v<T, Half>  ? 1e-3
                                        : 8e-3);
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_CORE_CC_TESTING_TESTING_H_
