// Chooses the CPU level; a function, so that tests can call it for any
// processor. Not part of cpu_dispatch.h: *_simd.cc files include that one, and
// must not contain inline code of std::string.
#ifndef TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_
#define TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_

#include <string>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

struct CpuLevelChoice {
  CpuLevel level;
  std::string error;  // CpuLevelError's text; empty if there is no error
};

// Returns the level for `processor` if TENSORFLOW_OPS_CPU is `wanted` (null if
// unset).
CpuLevelChoice ChooseCpuLevel(CpuLevel processor, const char* wanted);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_
