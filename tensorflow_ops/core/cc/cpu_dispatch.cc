#include "tensorflow_ops/core/cc/cpu_dispatch.h"

#include <atomic>
#include <cstdlib>
#include <string>

namespace tfo {
namespace {

struct Choice {
  CpuLevel level;
  std::string error;
};

Choice Choose() {
  const CpuLevel widest = WidestCpuLevel();
  const char* wanted = std::getenv("TENSORFLOW_OPS_CPU");
  if (wanted == nullptr || *wanted == '\0') return {widest, ""};
  std::string supported;
  for (CpuLevel level : kCpuLevels) {
    if (level > widest) break;
    if (wanted == std::string(CpuLevelName(level))) return {level, ""};
    if (!supported.empty()) supported += ", ";
    supported += CpuLevelName(level);
  }
  return {widest,
          "TENSORFLOW_OPS_CPU is '" + std::string(wanted) +
              "', expected one of what this processor supports: " + supported};
}

const Choice& Chosen() {
  static const Choice* choice = new Choice(Choose());
  return *choice;
}

std::atomic<CpuLevel>& Active() {
  static std::atomic<CpuLevel> level(Chosen().level);
  return level;
}

}  // namespace

const char* CpuLevelName(CpuLevel level) {
  switch (level) {
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

CpuLevel WidestCpuLevel() {
  __builtin_cpu_init();  // also asks whether the system saves the registers
  const bool avx2 = __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return avx512 ? CpuLevel::kAvx512
         : avx2 ? CpuLevel::kAvx2
                : CpuLevel::kBaseline;
}

CpuLevel ActiveCpuLevel() { return Active().load(std::memory_order_relaxed); }

const char* CpuLevelError() {
  const Choice& choice = Chosen();
  return choice.error.empty() ? nullptr : choice.error.c_str();
}

void SetActiveCpuLevelForTesting(CpuLevel level) { Active().store(level); }

}  // namespace tfo
