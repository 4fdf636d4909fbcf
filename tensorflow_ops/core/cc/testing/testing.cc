#include "tensorflow_ops/core/cc/testing/testing.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo::testing {
namespace {

struct Test {
  const char* name;
  Kind kind;
  void (*run)();
  bool failed;
  unsigned variants;  // bits 1 << level
};

std::vector<Test>& Tests() {
  static auto* tests = new std::vector<Test>;
  return *tests;
}

bool is_timing = false;
bool times_cpu = true;
int failures = 0;          // of the test that runs
constexpr int kShown = 3;  // of them

bool Selects(const Selection& selection, const Test& test) {
  if (selection.only_gpu && test.kind == Kind::kEveryLevel) return false;
  const char* const filter = selection.filter;
  return *filter == '=' ? std::strcmp(test.name, filter + 1) == 0
                        : std::strstr(test.name, filter) != nullptr;
}

}  // namespace

Case* Case::innermost_ = nullptr;

std::string Case::Lines() {
  std::string lines;
  for (const Case* one = innermost_; one != nullptr; one = one->outer_) {
    std::ostringstream line;
    line << "  " << one->caller_.file << ":" << one->caller_.line << ": "
         << one->text_ << "\n";
    lines = line.str() + lines;
  }
  return lines;
}

Registration::Registration(const char* name, Kind kind, void (*run)()) {
  Tests().push_back({name, kind, run, false, 0});
}

void Fail(const char* file, int line, const std::string& message) {
  if (++failures > kShown) return;
  std::printf("%s%s  %s:%d: %s\n", failures == 1 ? "FAILED\n" : "",
              Case::Lines().c_str(), file, line, message.c_str());
  std::fflush(stdout);
}

Cpu ThreadedCpu(int num_threads) {
  Cpu cpu;
  cpu.num_threads = num_threads;
  // There is no pool: the pointer holds the thread count.
  cpu.pool = reinterpret_cast<void*>(static_cast<intptr_t>(num_threads));
  cpu.run = [](void* pool, int64_t total, double, const Cpu::Body& body) {
    const int64_t count = reinterpret_cast<intptr_t>(pool);
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = total * i / count, end = total * (i + 1) / count;
      if (begin < end)
        threads.emplace_back([&body, begin, end] { body(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  };
  return cpu;
}

bool IsTiming() { return is_timing; }

int64_t BenchmarkSize(int64_t n) {
  return is_timing ? n : std::min<int64_t>(n, 8);
}

void PrintTime(const std::string& name, const char* device,
               std::vector<double> ms, int64_t num_bytes) {
  std::sort(ms.begin(), ms.end());
  std::printf(
      "{\"name\": \"%s\", \"device\": \"%s\", \"ms\": %.4g, \"bytes\": %lld}\n",
      name.c_str(), device, ms[ms.size() / 2],
      static_cast<long long>(num_bytes));
  std::fflush(stdout);
}

void TimeOnCpu(const std::string& name, int64_t num_bytes,
               const std::function<Error(const Cpu&)>& run) {
  if (!times_cpu) return;
  constexpr int kWarmUps = 2, kRuns = 11;
  std::vector<double> ms;
  for (int i = 0; i < (IsTiming() ? kWarmUps + kRuns : 1); ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (const Error error = run(Cpu())) Fail(__FILE__, __LINE__, error);
    const auto end = std::chrono::steady_clock::now();
    if (i >= kWarmUps) {
      ms.push_back(
          std::chrono::duration<double, std::milli>(end - start).count());
    }
  }
  if (IsTiming()) PrintTime(name, "cpu", ms, num_bytes);
}

int RunBenchmarks(const Selection& selection) {
  is_timing = true;
  times_cpu = !selection.only_gpu;
  bool all_ok = true;
  for (const auto& test : Tests()) {
    if (test.kind != Kind::kBenchmark || test.run == nullptr) continue;
    if (!Selects(selection, test)) continue;
    failures = 0;
    test.run();
    if (failures == 0) continue;
    std::printf("%s failed\n", test.name);
    all_ok = false;
  }
  return all_ok ? 0 : 1;
}

int RunTests(const Selection& selection) {
  times_cpu = !selection.only_gpu;
  if (selection.list) {
    for (const Test& test : Tests()) {
      if (Selects(selection, test)) std::printf("%s\n", test.name);
    }
    return 0;
  }
  const CpuLevel widest = ActiveCpuLevel();
  int run = 0;
  bool all_ok = true;
  for (CpuLevel level : kCpuLevels) {
    if (level > widest) break;
    SetActiveCpuLevelForTesting(level);
    for (auto& test : Tests()) {
      if (test.failed) continue;  // another instruction set says the same
      if (test.kind != Kind::kEveryLevel && level != widest) continue;
      if (!Selects(selection, test)) continue;
      ++run;
      if (test.run == nullptr) {
        std::printf("%s needs CUDA or its emulation\n", test.name);
        continue;
      }
      // Only those that have the variant differ from avx512.
      if (level > CpuLevel::kAvx512 && test.kind == Kind::kEveryLevel &&
          (test.variants >> static_cast<int>(level) & 1) == 0) {
        continue;
      }
      // Prints the name first, because the test may crash.
      std::printf("%s [%s] ", test.name, CpuLevelName(level));
      std::fflush(stdout);
      failures = 0;
      AskedVariantsForTesting();
      test.run();
      test.variants |= AskedVariantsForTesting();
      test.failed = failures > 0;
      all_ok &= !test.failed;
      const int hidden = failures - kShown;
      if (failures == 0) std::printf("ok\n");
      if (hidden > 0) std::printf("  and %d more\n", hidden);
    }
  }
  if (run == 0) {
    const char* const filter = selection.filter;
    if (selection.only_gpu && *filter == '\0') return 0;  // none has kernels
    std::fprintf(stderr, "no tests%s%s\n", *filter ? " match " : "", filter);
    return 1;
  }
  return all_ok ? 0 : 1;
}

}  // namespace tfo::testing

// Usage: TEST [--gpu] [--list] [PART_OF_A_NAME | =NAME]
//        TEST [--gpu] --benchmark[=PART_OF_A_NAME]
//
//   --gpu   only what runs on a GPU; without one for it, exits with status 3
//   --list  prints names instead
//
// Bazel sets the variable for --test_filter.
int main(int argc, char** argv) {
  using namespace tfo;
  if (const char* error = CpuLevelError()) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  constexpr const char kBenchmark[] = "--benchmark";
  constexpr size_t kLength = sizeof(kBenchmark) - 1;
  testing::Selection selection;
  if (const char* filter = std::getenv("TESTBRIDGE_TEST_ONLY")) {
    selection.filter = filter;
  }
  bool benchmark = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--gpu") {
      selection.only_gpu = true;
    } else if (argument == "--list") {
      selection.list = true;
    } else if (argument.compare(0, kLength, kBenchmark) == 0) {
      benchmark = true;
      const char* const rest = argv[i] + kLength;
      selection.filter = rest + (*rest == '=');
    } else {
      selection.filter = argv[i];
    }
  }
  // Otherwise each test would say so, after it computed what it expects.
  if (selection.only_gpu && !selection.list && testing::GpuError) {
    if (const Error error = testing::GpuError()) {
      std::fprintf(stderr, "This program needs a GPU: %s\n", error);
      return 3;
    }
  }
  return benchmark ? testing::RunBenchmarks(selection)
                   : testing::RunTests(selection);
}
