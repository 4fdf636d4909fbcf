// One wheel for every x86-64 processor that TensorFlow runs on: inner loops are
// compiled once per level (tfo_algorithm_library's simd_srcs), and the widest
// level of the machine is chosen at run time, once.
//
// A family's *_simd.h declares its loops for all levels:
//   TFO_PER_CPU_LEVEL(template <typename T> void Add(const T* x, T* y);)
// *_simd.cc defines them in namespace tfo::TFO_CPU_NAMESPACE, and the algorithm
// calls them as
//   TFO_DISPATCH(Add<T>)(x, y);
#ifndef TENSORFLOW_OPS_CORE_CC_CPU_DISPATCH_H_
#define TENSORFLOW_OPS_CORE_CC_CPU_DISPATCH_H_

#define TFO_PER_CPU_LEVEL(...) \
  namespace cpu_baseline {     \
  __VA_ARGS__                  \
  }                            \
  namespace cpu_avx2 {         \
  __VA_ARGS__                  \
  }                            \
  namespace cpu_avx512 {       \
  __VA_ARGS__                  \
  }

#define TFO_DISPATCH(...)                              \
  (::tfo::ActiveCpuLevel() == ::tfo::CpuLevel::kAvx512 \
       ? cpu_avx512::__VA_ARGS__                       \
   : ::tfo::ActiveCpuLevel() == ::tfo::CpuLevel::kAvx2 \
       ? cpu_avx2::__VA_ARGS__                         \
       : cpu_baseline::__VA_ARGS__)

namespace tfo {

enum class CpuLevel { kBaseline, kAvx2, kAvx512 };

inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kBaseline, CpuLevel::kAvx2,
                                          CpuLevel::kAvx512};

// "baseline", "avx2" or "avx512".
const char* CpuLevelName(CpuLevel level);

// The widest level that this processor and its operating system support.
CpuLevel WidestCpuLevel();

// The level in use: the widest, or the lower one that the environment variable
// TENSORFLOW_OPS_CPU names. Read once, at the first call.
CpuLevel ActiveCpuLevel();

// Null, or what is wrong with TENSORFLOW_OPS_CPU; the widest level is then
// used.
const char* CpuLevelError();

// For tests, which run every level of the machine in one process; not while an
// algorithm runs.
void SetActiveCpuLevelForTesting(CpuLevel level);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CPU_DISPATCH_H_
