// How the CPU level is chosen, as a function that tests call for any processor.
// Apart from cpu_dispatch.h, which files for wider processors include: they may
// hold no inline code of std::string.
#ifndef TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_
#define TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_

#include <string>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

struct CpuLevelChoice {
  CpuLevel level;
  std::string error;  // CpuLevelError's text; empty: none
};

// The level for `processor` where TENSORFLOW_OPS_CPU is `wanted`; null: unset.
CpuLevelChoice ChooseCpuLevel(CpuLevel processor, const char* wanted);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CPU_CHOICE_H_
