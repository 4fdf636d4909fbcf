// One wheel for every x86-64 processor that TensorFlow runs on: files with
// vectors are compiled once per level (tfo_algorithm_library's simd_srcs), and
// the widest level of the machine is chosen at run time, once.
//
// NAME_simd.cc defines an algorithm in namespace tfo::TFO_CPU_NAMESPACE, and
// ends with
//   TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(Name, NameArgs);
// Where only loops are compiled per level, a *_simd.h declares them:
//   TFO_PER_CPU_LEVEL(template <typename T> void Add(const T* x, T* y);)
// Other *_simd.cc files call Add<T>(x, y), and files without a level
//   TFO_DISPATCH(Add<T>)(x, y);
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_H_

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

// A build that leaves out levels (TFO_CPU_LEVELS in docs/building.md) defines
// TFO_WITHOUT_CPU_<LEVEL>, so that nothing refers to missing code.
#ifdef TFO_WITHOUT_CPU_BASELINE
#define TFO_IF_CPU_BASELINE(...)
#else
#define TFO_IF_CPU_BASELINE(...) __VA_ARGS__
#endif
#ifdef TFO_WITHOUT_CPU_AVX2
#define TFO_IF_CPU_AVX2(...)
#else
#define TFO_IF_CPU_AVX2(...) __VA_ARGS__
#endif
#ifdef TFO_WITHOUT_CPU_AVX512
#define TFO_IF_CPU_AVX512(...)
#else
#define TFO_IF_CPU_AVX512(...) __VA_ARGS__
#endif

// The fallback: the build's narrowest level.
#ifndef TFO_WITHOUT_CPU_BASELINE
#define TFO_NARROWEST_CPU_NAMESPACE cpu_baseline
#elif !defined(TFO_WITHOUT_CPU_AVX2)
#define TFO_NARROWEST_CPU_NAMESPACE cpu_avx2
#else
#define TFO_NARROWEST_CPU_NAMESPACE cpu_avx512
#endif

#define TFO_DISPATCH(...)                                                \
  (TFO_IF_CPU_AVX512(::tfo::ActiveCpuLevel() >= ::tfo::CpuLevel::kAvx512 \
                         ? cpu_avx512::__VA_ARGS__                       \
                         :)                                              \
       TFO_IF_CPU_AVX2(::tfo::ActiveCpuLevel() == ::tfo::CpuLevel::kAvx2 \
                           ? cpu_avx2::__VA_ARGS__                       \
                           :) TFO_NARROWEST_CPU_NAMESPACE::__VA_ARGS__)

// As TFO_INSTANTIATE_ALGORITHM (device.h), of a Function in namespace
// tfo::TFO_CPU_NAMESPACE. Also defines tfo::Function, which calls the active
// level's. Stands in namespace tfo.
#define TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(Function, Args) \
  TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(Function, Args); \
  TFO_INSTANTIATE_FOR_LEVEL(Function, Args, Half)           \
  TFO_INSTANTIATE_FOR_LEVEL(Function, Args, BFloat16) static_assert(true)
#define TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(Function, Args)     \
  TFO_PER_CPU_LEVEL(template <typename T>                            \
                    Error Function(const Cpu& cpu, const Args<T>&);) \
  TFO_INSTANTIATE_FOR_LEVEL(Function, Args, float)                   \
  TFO_INSTANTIATE_FOR_LEVEL(Function, Args, double) static_assert(true)
#define TFO_INSTANTIATE_FOR_LEVEL(Function, Args, T)                      \
  template Error TFO_CPU_NAMESPACE::Function(const Cpu&, const Args<T>&); \
  TFO_IF_NARROWEST_CPU_LEVEL(template <> __attribute__((visibility(       \
      "default"))) Error Function(const Cpu& cpu, const Args<T>& args) {  \
    return TFO_DISPATCH(Function(cpu, args));                             \
  })
#ifdef TFO_NARROWEST_CPU_LEVEL
#define TFO_IF_NARROWEST_CPU_LEVEL(...) __VA_ARGS__
#else
#define TFO_IF_NARROWEST_CPU_LEVEL(...)
#endif

namespace tfo {

// Levels after kAvx512 run its loops, except for products: kAvx512Vnni and
// later ones multiply bytes, kAvx512Bf16 multiplies bfloat16 in vectors, kAmx
// in tiles.
enum class CpuLevel {
  kBaseline,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAmx
};

// The levels of this build, narrowest first. OpKernels are compiled once for
// all builds and call BuiltCpuLevels instead.
inline constexpr CpuLevel kCpuLevels[] = {
    TFO_IF_CPU_BASELINE(CpuLevel::kBaseline, )  //
    TFO_IF_CPU_AVX2(CpuLevel::kAvx2, )          //
    TFO_IF_CPU_AVX512(CpuLevel::kAvx512, CpuLevel::kAvx512Vnni,
                      CpuLevel::kAvx512Bf16, CpuLevel::kAmx)};

// "baseline", "avx2", "avx512", "avx512_vnni", "avx512_bf16" or "amx".
const char* CpuLevelName(CpuLevel level);

// Their names, separated by spaces.
const char* BuiltCpuLevels();

// The widest level that this processor and its operating system support. Also
// requests AMX's tiles, which Linux grants on request, unless
// TENSORFLOW_OPS_CPU names another level.
CpuLevel ProcessorCpuLevel();

// The level in use: the one that the environment variable TENSORFLOW_OPS_CPU
// names, or the build's widest that the processor supports, without kAvx512Bf16
// on Intel's processors. Read once, at the first call.
CpuLevel ActiveCpuLevel();

// Whether that level multiplies packs of bytes (integer_product_simd.h) or
// bfloat16 (gemm_simd.h), or tiles (amx_gemm_simd.h).
bool HasByteProducts();
bool HasBFloat16Products();
bool HasTileProducts();

// Null, or why no kernel can run: TENSORFLOW_OPS_CPU does not name a level of
// this build and processor, or all levels of the build are wider than the
// processor.
const char* CpuLevelError();

// The level for `processor` if TENSORFLOW_OPS_CPU is `wanted` (null if unset).
// kAvx512Bf16 has to be wanted unless its products pay.
// A function, so that tests can call it for any processor.
struct CpuLevelChoice {
  CpuLevel level;
  // Null, or CpuLevelError's text, which is never freed.
  const char* error;
};
CpuLevelChoice ChooseCpuLevel(CpuLevel processor, bool bfloat16_products_pay,
                              const char* wanted);

// For tests, which run every level of the machine in one process. Must not be
// called while an algorithm runs.
void SetActiveCpuLevelForTesting(CpuLevel level);

// Returns the levels whose Has...Products was called since the last call, as
// bits 1 << level.
unsigned AskedVariantsForTesting();

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_CPU_DISPATCH_H_
