#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#else
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tfo {
namespace {

constexpr char kVariable[] = "TENSORFLOW_OPS_CPU";

// VDPBF16PS does the work of two FMAs of float32, which take a cycle: it takes
// one on AMD, and two on Intel.
bool BFloat16ProductsPay() {
#ifdef __aarch64__
  return false;
#else
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel");
#endif
}

#ifndef __aarch64__
// Has the processor AMX's tiles of bfloat16 and bytes? Requests them of the
// system unless TENSORFLOW_OPS_CPU names another level.
bool HasTiles() {
#ifdef TFO_EMULATE_AMX
  return true;
#else
  unsigned eax, ebx, ecx, edx;
  // Tiles, and products of bfloat16 and of bytes.
  constexpr unsigned kAll = 1 << 24 | 1 << 22 | 1 << 25;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ||
      (edx & kAll) != kAll) {
    return false;
  }
  // Does the system save the tiles? XGETBV exists where AVX does.
  constexpr unsigned kSaved = 3 << 17;
  asm("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  if ((eax & kSaved) != kSaved) return false;
  const char* const wanted = std::getenv(kVariable);
  if (wanted != nullptr && *wanted != '\0' && wanted != std::string("amx")) {
    return true;
  }
  // ARCH_REQ_XCOMP_PERM of XTILEDATA, for all threads; asking again is
  // harmless.
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#endif
}
#endif

const CpuLevelChoice& Chosen() {
  static const CpuLevelChoice choice = [] {
    const CpuLevel processor = ProcessorCpuLevel();
    return ChooseCpuLevel(processor, BFloat16ProductsPay(),
                          std::getenv(kVariable));
  }();
  return choice;
}

std::atomic<CpuLevel>& Active() {
  static std::atomic<CpuLevel> level(Chosen().level);
  return level;
}

std::atomic<unsigned> asked_variants{0};

// The active level, if `variant` or later ones differ from the others.
CpuLevel LevelFor(CpuLevel variant) {
  asked_variants.fetch_or(1u << static_cast<int>(variant),
                          std::memory_order_relaxed);
  return ActiveCpuLevel();
}

// Returns a copy of `text`, one for all calls with this text.
const char* Kept(const std::string& text) {
  static auto* texts = new std::set<std::string>;
  return texts->insert(text).first->c_str();
}

}  // namespace

CpuLevelChoice ChooseCpuLevel(CpuLevel processor, bool bfloat16_products_pay,
                              const char* wanted) {
  std::string supported, built;
  CpuLevel fastest = kCpuLevels[0];
  for (CpuLevel level : kCpuLevels) {
    const std::string name = CpuLevelName(level);
    built += (built.empty() ? "" : ", ") + name;
    if (level > processor) continue;
    supported += (supported.empty() ? "" : ", ") + name;
    if (level != CpuLevel::kAvx512Bf16 || bfloat16_products_pay) {
      fastest = level;
    }
  }
  if (supported.empty()) {
    return {
        fastest,
        Kept("This build of tensorflow_ops has kernels for " + built +
             " only, and this processor has " + CpuLevelName(processor) +
             ". Build a wheel for all processors: bash tools/build_wheel.sh")};
  }
  if (wanted == nullptr || *wanted == '\0') return {fastest, nullptr};
  for (CpuLevel level : kCpuLevels) {
    if (level <= processor && wanted == std::string(CpuLevelName(level))) {
      return {level, nullptr};
    }
  }
  return {fastest,
          Kept("TENSORFLOW_OPS_CPU is '" + std::string(wanted) +
               "', expected one of what this processor and this build of "
               "tensorflow_ops support: " +
               supported)};
}

const char* CpuLevelName(CpuLevel level) {
  switch (level) {
    case CpuLevel::kAmx:
      return "amx";
    case CpuLevel::kAvx512Bf16:
      return "avx512_bf16";
    case CpuLevel::kAvx512Vnni:
      return "avx512_vnni";
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

const char* BuiltCpuLevels() {
  static const std::string* names = [] {
    auto* all = new std::string;
    for (CpuLevel level : kCpuLevels) {
      if (!all->empty()) *all += ' ';
      *all += CpuLevelName(level);
    }
    return all;
  }();
  return names->c_str();
}

CpuLevel ProcessorCpuLevel() {
#ifdef __aarch64__
  return CpuLevel::kBaseline;  // NEON
#else
  __builtin_cpu_init();  // also checks that the system saves the registers
  // __builtin_cpu_supports of clang 16 has no "f16c".
  unsigned eax, ebx, ecx, edx;
  const bool f16c =
      __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  return bf16 && HasTiles() ? CpuLevel::kAmx
         : bf16             ? CpuLevel::kAvx512Bf16
         : vnni             ? CpuLevel::kAvx512Vnni
         : avx512           ? CpuLevel::kAvx512
         : avx2             ? CpuLevel::kAvx2
                            : CpuLevel::kBaseline;
#endif
}

CpuLevel ActiveCpuLevel() { return Active().load(std::memory_order_relaxed); }

bool HasByteProducts() {
#ifdef __aarch64__
  static const bool has = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return has;
#else
  return LevelFor(CpuLevel::kAvx512Vnni) >= CpuLevel::kAvx512Vnni;
#endif
}
bool HasBFloat16Products() {
  return LevelFor(CpuLevel::kAvx512Bf16) == CpuLevel::kAvx512Bf16;
}
bool HasTileProducts() { return LevelFor(CpuLevel::kAmx) == CpuLevel::kAmx; }

unsigned AskedVariantsForTesting() { return asked_variants.exchange(0); }

const char* CpuLevelError() { return Chosen().error; }

void SetActiveCpuLevelForTesting(CpuLevel level) { Active().store(level); }

}  // namespace tfo
