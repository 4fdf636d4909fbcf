#include "tensorflow_ops/core/cc/cpu_dispatch.h"

#include <cstring>
#include <string>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

TFO_TEST(CpuDispatch, LevelsHaveDistinctNames) {
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kBaseline)), "baseline");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx2)), "avx2");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx512)), "avx512");
}

namespace cpu_baseline {
const char* Here() { return "baseline"; }
}  // namespace cpu_baseline
namespace cpu_avx2 {
const char* Here() { return "avx2"; }
}  // namespace cpu_avx2
namespace cpu_avx512 {
const char* Here() { return "avx512"; }
}  // namespace cpu_avx512

// main() runs every test once at each level of the machine.
TFO_TEST(CpuDispatch, CallsTheActiveLevel) {
  TFO_EXPECT_EQ(std::string(TFO_DISPATCH(Here)()),
                CpuLevelName(ActiveCpuLevel()));
}

TFO_TEST(CpuDispatch, WidestIsNoWiderThanTheProcessor) {
  TFO_EXPECT(WidestCpuLevel() != CpuLevel::kAvx512 ||
             __builtin_cpu_supports("avx512vl"));
  TFO_EXPECT(WidestCpuLevel() == CpuLevel::kBaseline ||
             __builtin_cpu_supports("fma"));
}

}  // namespace
}  // namespace tfo
