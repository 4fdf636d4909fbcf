// Code that levels must not share, for cpu_dispatch_test.cc.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_TEST_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_TEST_SIMD_H_

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {

// Outside of the levels' namespaces, as functions of the standard library are.
__attribute__((noinline)) inline const char* InstructionSet() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#else
  return "baseline";
#endif
}

TFO_PER_CPU_LEVEL(const char* CompiledFor();
                  // Throws, where a destructor has to run before.
                  void Throw(bool* is_destroyed);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_TEST_SIMD_H_
