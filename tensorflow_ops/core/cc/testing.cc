#include "tensorflow_ops/core/cc/testing.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo::testing {
namespace {

struct Test {
  const char* name;
  bool every_level;
  void (*run)();
  bool failed;
};

std::vector<Test>& Tests() {
  static auto* tests = new std::vector<Test>;
  return *tests;
}

int failures = 0;          // of the test that runs
constexpr int kShown = 3;  // of them

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

Registration::Registration(const char* name, bool every_level, void (*run)()) {
  Tests().push_back({name, every_level, run, /*failed=*/false});
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

int RunTests(const char* filter) {
  const CpuLevel widest = ActiveCpuLevel();
  int run = 0;
  bool all_ok = true;
  for (CpuLevel level : kCpuLevels) {
    if (level > widest) break;
    SetActiveCpuLevelForTesting(level);
    for (auto& test : Tests()) {
      if (test.failed) continue;  // another instruction set says the same
      if (!test.every_level && level != widest) continue;
      if (std::strstr(test.name, filter) == nullptr) continue;
      ++run;
      // Prints the name first, because the test may crash.
      std::printf("%s [%s] ", test.name, CpuLevelName(level));
      std::fflush(stdout);
      failures = 0;
      test.run();
      test.failed = failures > 0;
      all_ok &= !test.failed;
      const int hidden = failures - kShown;
      if (failures == 0) std::printf("ok\n");
      if (hidden > 0) std::printf("  and %d more\n", hidden);
    }
  }
  if (run == 0) {
    std::fprintf(stderr, "no tests%s%s\n", *filter ? " match " : "", filter);
#ifdef __SANITIZE_THREAD__
    return 0;  // only TFO_CUDA_TESTs
#else
    return 1;
#endif
  }
  return all_ok ? 0 : 1;
}

}  // namespace tfo::testing

// Usage: TEST [PART_OF_A_NAME]
// Bazel sets the variable for --test_filter.
int main(int argc, char** argv) {
  using namespace tfo;
  if (const char* error = CpuLevelError()) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  const char* filter = argc > 1 ? argv[1] : std::getenv("TESTBRIDGE_TEST_ONLY");
  if (filter == nullptr) filter = "";
  return tfo::testing::RunTests(filter);
}
