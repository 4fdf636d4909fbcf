#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <thread>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch_test_simd.h"
#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

TFO_TEST(CpuDispatch, LevelsHaveDistinctNames) {
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kBaseline)), "baseline");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx2)), "avx2");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx512)), "avx512");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx512Vnni)),
                "avx512_vnni");
  TFO_EXPECT_EQ(std::string(CpuLevelName(CpuLevel::kAvx512Bf16)),
                "avx512_bf16");
}

TFO_TEST(CpuDispatch, NamesTheBuildsLevels) {
  std::string names;
  for (CpuLevel level : kCpuLevels) {
    names += (names.empty() ? "" : " ") + std::string(CpuLevelName(level));
  }
  TFO_EXPECT_EQ(std::string(BuiltCpuLevels()), names);
}

// main() runs every test once per level that the build and the machine support.
TFO_TEST(CpuDispatch, CallsTheActiveLevelWithItsOwnInlineCode) {
  const std::string name = CpuLevelName(ActiveCpuLevel());
  const bool is_variant = ActiveCpuLevel() > CpuLevel::kAvx512;
  for (int thread = 0; thread < 2; ++thread) {
    std::thread([&] {
      TFO_EXPECT_EQ(std::string(TFO_DISPATCH(CompiledFor)()),
                    is_variant ? "avx512" : name);
    }).join();
  }
#ifndef __aarch64__
  TFO_EXPECT_EQ(HasByteProducts(), is_variant);
#endif
  TFO_EXPECT_EQ(HasBFloat16Products(), name == "avx512_bf16");
  TFO_EXPECT_EQ(HasTileProducts(), name == "amx");
}

TFO_TEST(CpuDispatch, ErrorsLeaveALevel) {
  bool is_destroyed = false, is_caught = false;
  try {
    TFO_DISPATCH(Throw)(&is_destroyed);
  } catch (const std::bad_alloc&) {
    is_caught = true;
  }
  TFO_EXPECT(is_destroyed && is_caught);
}

TFO_TEST(CpuDispatch, ActiveLevelIsSupportedByTheProcessor) {
  TFO_EXPECT(ActiveCpuLevel() <= ProcessorCpuLevel());
#ifdef __x86_64__
  TFO_EXPECT(ProcessorCpuLevel() < CpuLevel::kAvx512 ||
             __builtin_cpu_supports("avx512vl"));
  TFO_EXPECT_EQ(ProcessorCpuLevel() >= CpuLevel::kAvx512Vnni,
                __builtin_cpu_supports("avx512vnni") != 0);
  TFO_EXPECT_EQ(ProcessorCpuLevel() >= CpuLevel::kAvx512Bf16,
                __builtin_cpu_supports("avx512bf16") != 0);
#ifdef TFO_EMULATE_AMX
  TFO_EXPECT_EQ(ProcessorCpuLevel() == CpuLevel::kAmx,
                __builtin_cpu_supports("avx512bf16") != 0);
#endif
  TFO_EXPECT(ProcessorCpuLevel() == CpuLevel::kBaseline ||
             __builtin_cpu_supports("fma"));
#endif
}

TFO_TEST(CpuDispatch, SelectsEachLevelOfTheBuild) {
  const CpuLevel widest = kCpuLevels[std::size(kCpuLevels) - 1];
  for (CpuLevel level : kCpuLevels) {
    const CpuLevelChoice choice =
        ChooseCpuLevel(widest, false, CpuLevelName(level));
    TFO_EXPECT(choice.level == level);
    TFO_EXPECT(choice.error == nullptr);
    TFO_EXPECT(ChooseCpuLevel(level, true, nullptr).level == level);
  }
  for (const char* unset : {"", static_cast<const char*>(nullptr)}) {
    TFO_EXPECT(ChooseCpuLevel(widest, true, unset).level == widest);
    TFO_EXPECT(ChooseCpuLevel(widest, true, unset).error == nullptr);
  }
}

TFO_TEST(CpuDispatch, LeavesBFloat16ProductsThatDoNotPay) {
  for (CpuLevel level : kCpuLevels) {
    TFO_EXPECT(
        ChooseCpuLevel(level, false, nullptr).level ==
        (level == CpuLevel::kAvx512Bf16 ? CpuLevel::kAvx512Vnni : level));
  }
}

TFO_TEST(CpuDispatch, RejectsLevelsThatTheProcessorLacks) {
  const CpuLevel narrowest = kCpuLevels[0];
  for (const std::string wanted : {"sse", "baseline", "avx2", "avx512",
                                   "avx512_vnni", "avx512_bf16", "amx"}) {
    if (wanted == CpuLevelName(narrowest)) continue;
    const CpuLevelChoice choice =
        ChooseCpuLevel(narrowest, true, wanted.c_str());
    TFO_EXPECT(choice.level == narrowest);
    TFO_EXPECT_EQ(std::string(choice.error),
                  "TENSORFLOW_OPS_CPU is '" + wanted +
                      "', expected one of what this processor and this build "
                      "of tensorflow_ops support: " +
                      CpuLevelName(narrowest));
  }
}

#ifdef TFO_WITHOUT_CPU_BASELINE
TFO_TEST(CpuDispatch, RejectsABuildForWiderProcessors) {
  const std::string error =
      ChooseCpuLevel(CpuLevel::kBaseline, true, nullptr).error;
  TFO_EXPECT(error.find("this processor has baseline") != std::string::npos);
  TFO_EXPECT(error.find(CpuLevelName(kCpuLevels[0])) != std::string::npos);
}
#endif

}  // namespace
}  // namespace tfo
