// Runs a test that fails, in a process of its own.
#include "tensorflow_ops/core/cc/testing/testing.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {
namespace {

bool fails = false;

template <typename T>
void CheckEven(int n, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), n, " values");
  TFO_EXPECT_EQ(n % 2, 0);
}

constexpr int kLine = __LINE__ + 4;  // of the failing call
TFO_TEST(Planted, Sizes) {
  if (!fails) return;
  CheckEven<float>(2);
  for (int i = 0; i < 5; ++i) CheckEven<Half>(2 * i + 1);
}

// Returns what `run` prints and its status, of a process of its own.
std::pair<std::string, int> Run(int (*run)()) {
  int ends[2];
  TFO_EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    fails = true;
    ::dup2(ends[1], STDOUT_FILENO);
    const int code = run();
    std::fflush(stdout);
    ::_exit(code);
  }
  ::close(ends[1]);
  std::string output;
  char part[1000];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof(part))) > 0;) {
    output.append(part, n);
  }
  ::close(ends[0]);
  int status;
  ::waitpid(child, &status, 0);
  return {output, WEXITSTATUS(status)};
}

TFO_TEST(Testing, AFailureNamesItsCaseOnce) {
  const auto [output, status] =
      Run([] { return testing::RunTests({"Planted"}); });
  std::ostringstream expected;
  expected << "Planted.Sizes [" << CpuLevelName(kCpuLevels[0]) << "] FAILED\n";
  for (const int n : {1, 3, 5}) {
    expected << "  " << __FILE__ << ":" << kLine << ": float16 " << n
             << " values\n  " << __FILE__ << ":" << kLine - 7
             << ": n % 2 is 1, expected 0\n";
  }
  expected << "  and 2 more\n";
  TFO_EXPECT_EQ(output, expected.str());
  TFO_EXPECT_EQ(status, 1);
}

TFO_BENCHMARK(Timed, Benchmark) {
  const int64_t n = testing::BenchmarkSize(100);
  TFO_EXPECT_EQ(n, testing::IsTiming() ? 100 : 8);
  testing::TimeOnCpu("nothing", n,
                     [](const Cpu&) { return fails ? "no" : nullptr; });
}

TFO_TEST(Testing, BenchmarksAreTimed) {
  const auto [output, status] = Run([] {
    fails = false;
    return testing::RunBenchmarks({"Timed"});
  });
  TFO_EXPECT_EQ(status, 0);
  TFO_EXPECT_EQ(output.find("{\"name\": \"nothing\", \"device\": \"cpu\""), 0u);
  TFO_EXPECT_EQ(output.substr(output.size() - 16), ", \"bytes\": 100}\n");
  TFO_EXPECT_EQ(Run([] { return testing::RunBenchmarks({"Timed"}); }).second,
                1);
}

TFO_TEST(Selected, Everywhere) {}
TFO_CUDA_TEST(Selected, OnGpu) {}
TFO_CUDA_TEST(Selected, OnGpuToo) {}

TFO_TEST(Testing, SelectsWhatRunsOnAGpuAndWholeNames) {
  const auto gpu =
      Run([] { return testing::RunTests({"Selected.", true, true}); });
  TFO_EXPECT_EQ(gpu.first, "Selected.OnGpu\nSelected.OnGpuToo\n");
  TFO_EXPECT_EQ(gpu.second, 0);
  const auto one =
      Run([] { return testing::RunTests({"=Selected.OnGpu", false, true}); });
  TFO_EXPECT_EQ(one.first, "Selected.OnGpu\n");
  // "nothing" fails there, but runs on the CPU.
  const auto timed =
      Run([] { return testing::RunBenchmarks({"Timed", true}); });
  TFO_EXPECT_EQ(timed.first + std::to_string(timed.second), "0");
}

TFO_TEST(Levels, avx512_vnni) { HasByteProducts(); }
TFO_TEST(Levels, avx512_bf16) { HasBFloat16Products(); }
TFO_TEST(Levels, amx) { HasTileProducts(); }

TFO_TEST(Testing, RepeatsOnlyTestsOfAVariantAtItsLevel) {
  const auto [output, status] = Run([] {
    SetActiveCpuLevelForTesting(
        std::min(ProcessorCpuLevel(), std::end(kCpuLevels)[-1]));
    return testing::RunTests({"Levels."});
  });
  TFO_EXPECT_EQ(status, 0);
  for (const std::string test : {"avx512_vnni", "avx512_bf16", "amx"}) {
    for (CpuLevel level : kCpuLevels) {
      if (level > ProcessorCpuLevel()) continue;
      const std::string name = CpuLevelName(level);
      const bool runs = level <= CpuLevel::kAvx512 || name == test;
      const std::string line = "Levels." + test + " [" + name + "] ok";
      TFO_EXPECT_EQ(output.find(line) != output.npos, runs);
    }
  }
}

}  // namespace
}  // namespace tfo
