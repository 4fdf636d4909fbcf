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
};

std::vector<Test>& Tests() {
  static auto* tests = new std::vector<Test>;
  return *tests;
}

int failures = 0;

}  // namespace

Registration::Registration(const char* name, bool every_level, void (*run)()) {
  Tests().push_back({name, every_level, run});
}

void Fail(const char* file, int line, const std::string& message) {
  ++failures;
  if (failures <= 50) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
  }
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

}  // namespace tfo::testing

// Usage: TEST [PART_OF_A_NAME]
// Bazel sets the variable for --test_filter.
int main(int argc, char** argv) {
  using namespace tfo;
  using tfo::testing::Tests;
  if (const char* error = CpuLevelError()) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  const char* filter = argc > 1 ? argv[1] : std::getenv("TESTBRIDGE_TEST_ONLY");
  if (filter == nullptr) filter = "";
  const CpuLevel widest = ActiveCpuLevel();
  int run = 0;
  for (CpuLevel level : kCpuLevels) {
    if (level > widest) break;
    SetActiveCpuLevelForTesting(level);
    for (const auto& test : Tests()) {
      if (!test.every_level && level != widest) continue;
      if (std::strstr(test.name, filter) == nullptr) continue;
      ++run;
      // Prints the name first, because the test may crash.
      std::printf("%s [%s] ", test.name, CpuLevelName(level));
      std::fflush(stdout);
      const int before = tfo::testing::failures;
      test.run();
      std::printf("%s\n", tfo::testing::failures == before ? "ok" : "FAILED");
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
  return tfo::testing::failures ? 1 : 0;
}
