// Finds races in emulated CUDA kernels (cuda_emulation.h): two threads access
// the same byte of global or shared memory, no barrier orders them, one of them
// writes, and not both are atomic. It finds each, in whichever order threads
// run.
//
// With --define=emulated_as=races, g++ calls the functions below at each access
// to memory (-fsanitize=thread). The thread sanitizer's own run time, which
// programs do not link then, knows neither blocks nor shared memory, and keeps
// four accesses to a word.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_GPU_RACES_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_GPU_RACES_H_

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "tensorflow_ops/core/cc/cuda/cuda_emulation.h"
#include "tensorflow_ops/core/cc/cuda/gpu_mirror.h"

// Where the linker puts the program's variables.
extern "C" char __data_start, _end;

namespace tfo::cuda_emulation {

// The accesses of one kind to a byte that no barrier orders with all later
// ones: of one launch (to shared memory: of one block) or none; of one block or
// kMany; in that block after the last barrier; of one warp or kMany; ...
struct Accesses {
  static constexpr uint32_t kMany = ~0u;
  uint32_t launch, block, barrier, warp, warp_barrier, thread;
  uint32_t code;  // of the last one

  // Whether no barrier orders one of these with `a`, an access now.
  [[gnu::no_sanitize_thread]] bool AreUnordered(const Accesses& a) const {
    if (launch != a.launch) return false;
    if (block != a.block) return true;
    if (barrier != a.barrier) return false;
    if (warp != a.warp) return true;
    return warp_barrier == a.warp_barrier && thread != a.thread;
  }
  [[gnu::no_sanitize_thread]] void Add(const Accesses& a) {
    code = a.code;
    if (launch != a.launch) {
      *this = a;
    } else if (block != a.block) {
      block = kMany;
    } else if (barrier != a.barrier) {
      *this = a;
    } else if (warp != a.warp) {
      warp = kMany;
    } else if (warp_barrier != a.warp_barrier) {
      *this = a;
    } else if (thread != a.thread) {
      thread = kMany;
    }
  }
};

struct Page {
  static constexpr uintptr_t kBytes = 256;
  uintptr_t number;
  Page* next;         // of the same hash
  int bits;           // units of 2^bits bytes were always accessed as a whole
  Accesses (*of)[4];  // each unit, by kind of access

  [[gnu::no_sanitize_thread]] void SetBits(int fewer) {
    const uintptr_t count = kBytes >> fewer;
    auto* const units =
        static_cast<Accesses(*)[4]>(std::calloc(count, sizeof(of[0])));
    for (uintptr_t i = 0; of != nullptr && i < count; ++i) {
      for (int kind = 0; kind < 4; ++kind) {
        units[i][kind] = of[i >> (bits - fewer)][kind];
      }
    }
    std::free(of);
    of = units;
    bits = fewer;
  }
};

[[gnu::no_sanitize_thread]] inline Page& PageOf(uintptr_t address) {
  constexpr uintptr_t kHashes = 1 << 20;
  static auto** const pages =
      static_cast<Page**>(std::calloc(kHashes, sizeof(Page*)));
  const uintptr_t number = address / Page::kBytes;
  Page*& first = pages[number % kHashes];
  for (Page* page = first; page != nullptr; page = page->next) {
    if (page->number == number) return *page;
  }
  Page* const page = static_cast<Page*>(std::calloc(1, sizeof(Page)));
  page->SetBits(4);
  page->number = number;
  page->next = first;
  return *(first = page);
}

struct Range {
  const char *begin, *end;
  [[gnu::no_sanitize_thread]] bool Has(const char* at) const {
    return at >= begin && at < end;
  }
};

// The number of the block or launch whose threads share the memory; 0 if it is
// a thread's own.
[[gnu::no_sanitize_thread]] inline uint32_t SharedIn(const char* at) {
  static uint32_t block;  // to which the following belongs
  static Range stacks, dynamic, global, *mirrors;
  static size_t num_mirrors;
  if (block != now.block) {
    block = now.block;
    stacks.end = (stacks.begin = Stacks(0)) + kStackBytes * block_size.x;
    dynamic.begin = static_cast<const char*>(DynamicShared());
    dynamic.end = dynamic.begin + dynamic_shared.size() * sizeof(SharedWord);
    const auto& blocks = gpu_mirror::Blocks();
    mirrors = static_cast<Range*>(
        std::realloc(mirrors, (blocks.size() + 1) * sizeof(Range)));
    num_mirrors = 0;
    global = {nullptr, nullptr};
    for (const auto& [host, memory] : blocks) {
      const char* const begin = memory.mirror;
      if (begin == nullptr) continue;
      const char* const end = begin + memory.bytes;
      mirrors[num_mirrors++] = {begin, end};
      if (global.begin == nullptr || begin < global.begin) global.begin = begin;
      if (end > global.end) global.end = end;
    }
  }
  if (stacks.Has(at)) return 0;
  if (dynamic.Has(at)) return now.block;
  if (at >= &__data_start && at < &_end) return now.block;
  if (!global.Has(at)) return 0;
  for (size_t i = 0; i < num_mirrors; ++i) {
    if (mirrors[i].Has(at)) return now.launch;
  }
  return 0;
}

inline void PrintRace(Access access, const Accesses& mine, Access other,
                      const Accesses& before) {
  static auto& printed = *new std::set<std::pair<uint32_t, uint32_t>>;
  if (!printed.insert({mine.code, before.code}).second) return;
  static constexpr const char* kNames[] = {
      "reads", "writes", "updates (atomic)", "reads (volatile)"};
  char command[200];
  std::snprintf(command, sizeof(command),
                "addr2line -Cfipe /proc/%d/exe %#x %#x >&2", getpid(),
                mine.code, before.code);
  std::fprintf(stderr,
               "a race in %s memory: thread %u of block %u %s what another "
               "thread %s, and no barrier is between:\n",
               mine.launch == now.launch ? "global" : "shared", mine.thread,
               block_index.x, kNames[access], kNames[other]);
  if (std::system(command) != 0) std::fprintf(stderr, "%s\n", command);
}

// Of the thread that runs.
[[gnu::no_sanitize_thread]] inline void Check(const void* memory, size_t bytes,
                                              Access access, void* code) {
  Fiber* const running = fiber;
  fiber = nullptr;  // what this calls may access memory
  const auto at = reinterpret_cast<uintptr_t>(memory);
  if (const uint32_t launch = SharedIn(static_cast<const char*>(memory))) {
    const Accesses mine = {
        launch,
        now.block,
        now.barrier,
        thread_index.x / kWarpSize,
        now.warp_barrier,
        thread_index.x,
        static_cast<uint32_t>(static_cast<char*>(code) - &__executable_start)};
    // For each kind of access, the bits of those that may not race with it.
    static constexpr int kConflicts[] = {
        1 << kWrite | 1 << kAtomic,
        1 << kRead | 1 << kWrite | 1 << kAtomic | 1 << kVolatileRead,
        1 << kRead | 1 << kWrite, 1 << kWrite};
    for (uintptr_t byte = at; byte < at + bytes;) {
      Page& page = PageOf(byte);
      while (((byte | (at + bytes)) & ((1 << page.bits) - 1)) != 0)
        page.SetBits(page.bits - 1);
      Accesses(&before)[4] = page.of[byte % Page::kBytes >> page.bits];
      byte += 1 << page.bits;
      for (int other = 0; other < 4; ++other) {
        if ((kConflicts[access] >> other & 1) == 0) continue;
        if (!before[other].AreUnordered(mine)) continue;
        ++num_races;
        PrintRace(access, mine, static_cast<Access>(other), before[other]);
      }
      before[access].Add(mine);
    }
  }
  fiber = running;
}

[[gnu::no_sanitize_thread]] void ReportAccess(const void* at, size_t bytes,
                                              Access access, void* code) {
  if (fiber == nullptr) return;
  Check(at, bytes, access,
        code != nullptr ? code : __builtin_return_address(0));
}

}  // namespace tfo::cuda_emulation

#define TFO_REPORTS(NAME, BYTES, ACCESS)                               \
  [[gnu::no_sanitize_thread]] void __tsan_##NAME(void* at) {           \
    ::tfo::cuda_emulation::ReportAccess(at, BYTES,                     \
                                        ::tfo::cuda_emulation::ACCESS, \
                                        __builtin_return_address(0));  \
  }
#define TFO_REPORTS_OF(BYTES)                             \
  TFO_REPORTS(read##BYTES, BYTES, kRead)                  \
  TFO_REPORTS(write##BYTES, BYTES, kWrite)                \
  TFO_REPORTS(volatile_read##BYTES, BYTES, kVolatileRead) \
  TFO_REPORTS(volatile_write##BYTES, BYTES, kAtomic)
#define TFO_REPORTS_RANGE(NAME, ACCESS)                                        \
  [[gnu::no_sanitize_thread]] void __tsan_##NAME##_range(void* at,             \
                                                         long size) {          \
    ::tfo::cuda_emulation::ReportAccess(                                       \
        at, size, ::tfo::cuda_emulation::ACCESS, __builtin_return_address(0)); \
  }

extern "C" {
TFO_REPORTS_OF(1)
TFO_REPORTS_OF(2)
TFO_REPORTS_OF(4)
TFO_REPORTS_OF(8)
TFO_REPORTS_OF(16)
TFO_REPORTS_RANGE(read, kRead)
TFO_REPORTS_RANGE(write, kWrite)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
// Of static variables' guards.
[[gnu::no_sanitize_thread]] char __tsan_atomic8_load(const volatile char* at,
                                                     int) {
  return *at;
}
}

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_GPU_RACES_H_
