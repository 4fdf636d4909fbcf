// A small test framework for algorithm files, without dependencies.
//
//   TFO_TEST(ZeroOut, KeepsTheFirst) { TFO_EXPECT_EQ(1 + 1, 2); }
//
// testing.cc has main(), which runs every TFO_TEST once per CPU level of the
// machine, and every TFO_CUDA_TEST (gpu_testing.h) once.
#ifndef TENSORFLOW_OPS_CORE_CC_TESTING_H_
#define TENSORFLOW_OPS_CORE_CC_TESTING_H_

#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo::testing {

// A device whose ParallelFor runs one range per thread, whatever the cost, so
// that the thread sanitizer finds races.
Cpu ThreadedCpu(int num_threads);

// Prints what differs and where, and makes the run fail; the test continues.
void Fail(const char* file, int line, const std::string& message);

struct Registration {
  Registration(const char* name, bool every_level, void (*run)());
};

template <typename T>
std::vector<T> RandomValues(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(n);
  for (T& value : values) value = Narrow<T>(normal(engine));
  return values;
}

}  // namespace tfo::testing

#define TFO_REGISTER_TEST(suite, name, every_level)                    \
  static void suite##name##Test();                                     \
  static const ::tfo::testing::Registration suite##name##Registration( \
      #suite "." #name, every_level, suite##name##Test);               \
  static void suite##name##Test()

#define TFO_TEST(suite, name) TFO_REGISTER_TEST(suite, name, true)

#ifdef __SANITIZE_THREAD__  // does not support the emulation's stack switching
#define TFO_CUDA_TEST(suite, name) \
  [[maybe_unused]] static void suite##name##Test()
#else
#define TFO_CUDA_TEST(suite, name) TFO_REGISTER_TEST(suite, name, false)
#endif

#define TFO_EXPECT(condition)                                         \
  do {                                                                \
    if (!(condition))                                                 \
      ::tfo::testing::Fail(__FILE__, __LINE__, "false: " #condition); \
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

#endif  // TENSORFLOW_OPS_CORE_CC_TESTING_H_
