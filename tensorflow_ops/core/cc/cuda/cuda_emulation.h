// CUDA for g++ and clang, as far as this package's kernels use it: runs them on
// the CPU with a fiber per CUDA thread, one block after another. For tests
// only.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_H_

#include <errno.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

// The first byte of the program, where the linker puts it.
extern "C" char __executable_start;

#define __global__ static
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__
// Blocks run one after another, so one copy is enough.
#define __shared__ static

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

namespace tfo::cuda_emulation {

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};

inline Dim3 thread_index, block_index, block_size, grid_size;

// Where a thread is between barriers, by numbers that only grow: its launch,
// its block, since which barrier of the block, and since which __syncwarp.
struct Moment {
  uint32_t last, launch, block, barrier, warp_barrier;
};
inline Moment now;

// For gpu_races.h, which counts races: an access that the compiler does not
// report, because it is atomic or a library's.
enum Access { kRead, kWrite, kAtomic, kVolatileRead };
#ifdef TFO_EMULATED_RACES
void ReportAccess(const void* at, size_t bytes, Access access,
                  void* code = nullptr);
#else
inline void ReportAccess(const void*, size_t, Access, void* = nullptr) {}
#endif
inline int num_races;

// A stack, where it continues, and why it stopped.
struct Fiber {
  enum State {
    kRuns,
    kAtWarpOperation,
    kAtWarpBarrier,
    kAtBlockBarrier,
    kDone
  };
  ucontext_t context;
  void* at[5];  // of __builtin_setjmp
  bool started = false;
  State state = kRuns;
};
inline Fiber scheduler;
inline Fiber* fiber;  // the one that runs, or null: the scheduler runs

// Without a system call. The address sanitizer would take the jump for the end
// of the frames above it.
[[gnu::noinline, gnu::no_sanitize_address, gnu::no_sanitize_thread]]
inline void Switch(Fiber& from, Fiber& to) {
  if (__builtin_setjmp(from.at) != 0) return;
  if (to.started) __builtin_longjmp(to.at, 1);
  to.started = true;
  setcontext(&to.context);
  std::abort();  // so clang makes no tail call, which would free this frame
}

// Yields to the scheduler, which resumes this fiber after all others of its
// block or warp have stopped in the same state.
inline void Stop(Fiber::State state) {
  fiber->state = state;
  Switch(*fiber, scheduler);
}
inline void Barrier() { Stop(Fiber::kAtBlockBarrier); }

inline std::vector<char> votes;
inline bool BarrierOr(bool vote) {
  votes[thread_index.x] = vote;
  Barrier();
  bool any = false;
  for (bool other : votes) any |= other;
  Barrier();
  return any;
}

constexpr unsigned kWarpSize = 32;
// Of operations of a whole warp. Kernels have no others.
constexpr unsigned kAllLanes = 0xFFFFFFFF;
inline void StopWarp(unsigned mask, Fiber::State state) {
  if (mask != kAllLanes) {
    std::fprintf(stderr, "a warp operation is for lanes %x only\n", mask);
    std::abort();
  }
  Stop(state);
}
// Other operations do not order accesses to memory.
inline void WarpBarrier(unsigned mask = kAllLanes) {
  StopWarp(mask, Fiber::kAtWarpBarrier);
}

// A value of each thread of a block, for the others of its warp. Operations
// alternate between two buffers, so that one barrier is enough.
struct Exchanged {
  alignas(16) char values[2][64];
  bool turn;
};
inline std::vector<Exchanged> exchanged;

// The values that the threads of a warp give to an operation.
template <typename T>
class OfWarp {
 public:
  OfWarp(unsigned mask, const T& value) {
    static_assert(sizeof(T) <= sizeof(exchanged[0].values[0]));
    Exchanged& mine = exchanged[thread_index.x];
    turn_ = mine.turn = !mine.turn;
    std::memcpy(mine.values[turn_], &value, sizeof(value));
    StopWarp(mask, Fiber::kAtWarpOperation);
  }
  // That of a lane, or zero where the block has no such thread.
  T operator[](unsigned lane) const {
    T value{};
    const unsigned thread = thread_index.x / kWarpSize * kWarpSize + lane;
    if (thread < block_size.x) {
      std::memcpy(&value, exchanged[thread].values[turn_], sizeof(value));
    }
    return value;
  }

 private:
  bool turn_;
};

inline unsigned Ballot(unsigned mask, bool vote) {
  const OfWarp<bool> votes(mask, vote);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    ballot |= unsigned{votes[lane]} << lane;
  }
  return ballot;
}

// The value of lane source(own lane), or its own if there is none.
template <typename T, typename Source>
T Shuffle(unsigned mask, T value, const Source& source) {
  const unsigned lane = thread_index.x % kWarpSize, from = source(lane);
  const OfWarp<T> values(mask, value);
  return values[from < kWarpSize ? from : lane];
}
template <typename T>
T ShuffleFrom(unsigned mask, T value, unsigned lane) {
  return Shuffle(mask, value, [&](unsigned) { return lane % kWarpSize; });
}
template <typename T>
T ShuffleXor(unsigned mask, T value, unsigned lanes) {
  return Shuffle(mask, value, [&](unsigned lane) { return lane ^ lanes; });
}

// For accesses that a GPU refuses where they are not aligned.
inline void CheckAligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  std::fprintf(stderr, "an address is not aligned to %zu bytes\n", bytes);
  std::abort();
}

struct alignas(16) SharedWord {
  char bytes[16];
};
inline std::vector<SharedWord> dynamic_shared;
inline void* DynamicShared() { return dynamic_shared.data(); }

// For __stwb, which stores to global memory only.
template <typename T>
void Store(T* to, T value) {
  const auto* const place = reinterpret_cast<const char*>(to);
  const auto* const shared = static_cast<const char*>(DynamicShared());
  if (place >= shared &&
      place < shared + dynamic_shared.size() * sizeof(SharedWord)) {
    std::fprintf(stderr, "__stwb() to shared memory\n");
    std::abort();
  }
  *to = value;
}

// Fibers switch at barriers only, so this is atomic.
template <typename T>
[[gnu::no_sanitize_thread]] T AtomicAdd(T* at, T value) {
  ReportAccess(at, sizeof(*at), kAtomic, __builtin_return_address(0));
  const T before = *at;
  *at += value;
  return before;
}
[[gnu::no_sanitize_thread]] inline void AtomicAdd(float4* at, float4 value) {
  CheckAligned(at, sizeof(*at));
  ReportAccess(at, sizeof(*at), kAtomic, __builtin_return_address(0));
  *at = {at->x + value.x, at->y + value.y, at->z + value.z, at->w + value.w};
}
template <typename T>
[[gnu::no_sanitize_thread]] T AtomicMin(T* at, T value) {
  ReportAccess(at, sizeof(*at), kAtomic, __builtin_return_address(0));
  const T before = *at;
  if (value < before) *at = value;
  return before;
}
template <typename T>
[[gnu::no_sanitize_thread]] T AtomicMax(T* at, T value) {
  ReportAccess(at, sizeof(*at), kAtomic, __builtin_return_address(0));
  const T before = *at;
  if (before < value) *at = value;
  return before;
}

constexpr size_t kStackBytes = 256 << 10;
// Stacks of `count` fibers. Not cleared: most of a stack is never touched.
inline char* Stacks(unsigned fibers) {
  static std::unique_ptr<char[]> stacks;
  static unsigned most = 0;
  if (fibers > most) {
    stacks.reset(new char[kStackBytes * fibers]);
    most = fibers;
  }
  return stacks.get();
}

// Calls run(i) for i < n, upwards or downwards as it comes, so that results
// which depend on the order of threads differ.
template <typename F>
void InAnyOrder(unsigned n, const F& run) {
  static uint32_t random = 1;
  random = random * 1664525 + 1013904223;
  const bool down = random >> 31;
  for (unsigned i = 0; i < n; ++i) run(down ? n - 1 - i : i);
}

// Runs a thread until it stops.
[[gnu::no_sanitize_thread]] inline void Resume(Fiber& of_thread,
                                               unsigned thread) {
  thread_index.x = thread;
  of_thread.state = Fiber::kRuns;
  fiber = &of_thread;
  Switch(scheduler, of_thread);
  fiber = nullptr;
}

// Runs fibers, which have consecutive threads, until they are all done or all
// at the block's barrier; their warp operations on the way.
inline Fiber::State RunWarp(Fiber* fibers, unsigned first, unsigned size) {
  now.warp_barrier = ++now.last;
  for (;;) {
    InAnyOrder(size, [&](unsigned lane) {
      Resume(fibers[first + lane], first + lane);
    });
    const Fiber::State state = fibers[first].state;
    for (unsigned lane = 1; lane < size; ++lane) {
      if (fibers[first + lane].state == state) continue;
      std::fprintf(stderr,
                   "a barrier or warp operation was not reached by all threads "
                   "of a warp\n");
      std::abort();
    }
    if (state == Fiber::kAtWarpBarrier) {
      now.warp_barrier = ++now.last;
    } else if (state != Fiber::kAtWarpOperation) {
      return state;
    }
  }
}

// Apart from the fiber's own frame, which never ends: sanitizers forget a frame
// at its end, and other fibers use the stack later.
template <typename Kernel>
[[gnu::noinline]] void Call(const Kernel& kernel) {
  kernel();
}

// Writes each kind of launch once to a file in the folder $TFO_LAUNCHES, for
// tools/gpu/check_launches.py: the kernel's place in the program, a block's
// threads and bytes of dynamic shared memory.
inline void RecordLaunch(const void* kernel, unsigned block, int shared_bytes) {
  static const char* const folder = std::getenv("TFO_LAUNCHES");
  static std::set<std::tuple<const void*, unsigned, int>> recorded;
  if (folder == nullptr) return;
  if (!recorded.insert({kernel, block, shared_bytes}).second) return;
  static std::FILE* const file = [] {
    const auto name = std::string(folder) + "/" + program_invocation_short_name;
    std::FILE* const opened = std::fopen(name.c_str(), "w");
    if (opened == nullptr) std::abort();
    char* const program = realpath("/proc/self/exe", nullptr);
    std::fprintf(opened, "%s\n", program);
    std::free(program);
    return opened;
  }();
  std::fprintf(file, "%tx %u %d\n",
               static_cast<const char*>(kernel) - &__executable_start, block,
               shared_bytes);
}

template <typename Kernel>
void Run(unsigned grid, unsigned block, int shared_bytes, int max_shared_bytes,
         const Kernel& kernel) {
  if (block > 1024 || grid > 0x7FFFFFFF) {
    std::fprintf(stderr, "%u blocks of %u threads are too many\n", grid, block);
    std::abort();
  }
  static const Kernel* running;
  running = &kernel;
  char* const stacks = Stacks(block);
  std::vector<Fiber> fibers(block);
  scheduler.started = true;
  votes.assign(block, 0);
  exchanged.assign(block, {});
  if (shared_bytes > max_shared_bytes) {
    std::fprintf(stderr, "a block has %d bytes of shared memory, not %d\n",
                 max_shared_bytes, shared_bytes);
    std::abort();
  }
  block_size.x = block;
  grid_size.x = grid;
  const unsigned warps = (block + kWarpSize - 1) / kWarpSize;
  now.launch = ++now.last;
  for (block_index.x = 0; block_index.x < grid; ++block_index.x) {
    now.block = ++now.last;
    // Exactly the block's size, so that a sanitizer detects accesses beyond it,
    // and without data of the previous block.
    dynamic_shared.assign((shared_bytes + 15) / 16, SharedWord());
    dynamic_shared.shrink_to_fit();
    if (shared_bytes > 0) std::memset(DynamicShared(), 0xFF, shared_bytes);
    for (unsigned t = 0; t < block; ++t) {
      ucontext_t& context = fibers[t].context;
      getcontext(&context);
      context.uc_stack.ss_sp = &stacks[kStackBytes * t];
      context.uc_stack.ss_size = kStackBytes;
      fibers[t].started = false;
      makecontext(
          &context,
          +[] {
            Call(*running);
            Stop(Fiber::kDone);
          },
          0);
    }
    for (unsigned finished = 0; finished < warps;) {
      finished = 0;
      now.barrier = ++now.last;
      InAnyOrder(warps, [&](unsigned warp) {
        const unsigned first = warp * kWarpSize, left = block - first;
        finished +=
            RunWarp(fibers.data(), first,
                    left < kWarpSize ? left : kWarpSize) == Fiber::kDone;
      });
      if (finished != 0 && finished != warps) {
        std::fprintf(
            stderr,
            "__syncthreads() was not reached by all threads of a block\n");
        std::abort();
      }
    }
  }
}

}  // namespace tfo::cuda_emulation

#define threadIdx (::tfo::cuda_emulation::thread_index)
#define blockIdx (::tfo::cuda_emulation::block_index)
#define blockDim (::tfo::cuda_emulation::block_size)
#define gridDim (::tfo::cuda_emulation::grid_size)
#define __syncthreads ::tfo::cuda_emulation::Barrier
#define __syncthreads_or ::tfo::cuda_emulation::BarrierOr
#define __syncwarp ::tfo::cuda_emulation::WarpBarrier
#define __ballot_sync ::tfo::cuda_emulation::Ballot
#define __any_sync(mask, vote) (__ballot_sync(mask, vote) != 0)
#define __shfl_sync ::tfo::cuda_emulation::ShuffleFrom
#define __shfl_xor_sync ::tfo::cuda_emulation::ShuffleXor
#define __popc __builtin_popcount
#define __clz(bits) ((bits) == 0 ? 32 : __builtin_clz(bits))
#define __ffs(bits) __builtin_ffs(bits)
#define __stwb ::tfo::cuda_emulation::Store
#define atomicAdd ::tfo::cuda_emulation::AtomicAdd
#define atomicMin ::tfo::cuda_emulation::AtomicMin
#define atomicMax ::tfo::cuda_emulation::AtomicMax

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_H_
