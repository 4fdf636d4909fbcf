// CUDA for g++, as far as this package's kernels use it: runs them on the CPU
// with a fiber per CUDA thread, one block after another. For tests only.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

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

// A stack, and where it continues.
struct Fiber {
  ucontext_t context;
  void* at[5];  // of __builtin_setjmp
  bool started = false;
};
inline Fiber scheduler;
inline Fiber* fiber;  // the one that runs

[[gnu::noinline]] inline void Switch(Fiber& from, Fiber& to) {
#ifdef __SANITIZE_ADDRESS__  // does not support the other way
  swapcontext(&from.context, &to.context);
#else  // without a system call
  if (__builtin_setjmp(from.at) != 0) return;
  if (to.started) __builtin_longjmp(to.at, 1);
  to.started = true;
  setcontext(&to.context);
#endif
}

// __syncthreads: yields to the scheduler, which resumes this fiber after all
// others of the block have reached their barriers.
inline void Barrier() { Switch(*fiber, scheduler); }

inline std::vector<char> votes;
inline bool BarrierOr(bool vote) {
  votes[thread_index.x] = vote;
  Barrier();
  bool any = false;
  for (bool other : votes) any |= other;
  Barrier();
  return any;
}
// Votes of a warp of 32 threads. Unlike on a GPU, all threads of the block must
// call.
inline unsigned Ballot(bool vote) {
  votes[thread_index.x] = vote;
  Barrier();
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned thread = thread_index.x / 32 * 32 + lane;
    if (thread < block_size.x && votes[thread]) ballot |= 1u << lane;
  }
  Barrier();
  return ballot;
}

// The argument of the thread of the warp whose index differs in the bits of
// `lanes`. Unlike on a GPU, all threads of the block must call. Calls alternate
// between two buffers, so that one barrier is enough.
struct Shuffled {
  uint64_t values[2];
  bool turn;
};
inline std::vector<Shuffled> shuffled;
template <typename T>
T ShuffleXor(T value, unsigned lanes) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Shuffled& mine = shuffled[thread_index.x];
  mine.turn = !mine.turn;
  const bool turn = mine.turn;
  std::memcpy(&mine.values[turn], &value, sizeof(value));
  Barrier();
  std::memcpy(&value, &shuffled[thread_index.x ^ lanes].values[turn],
              sizeof(value));
  return value;
}

// Of a block whose kernel asks for more than the usual. Small, so that tests
// also reach the code for data that does not fit.
constexpr int kSharedBytes = 96 << 10;
constexpr int kSharedBytesUnasked = 48 << 10;
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
T AtomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
inline void AtomicAdd(float4* at, float4 value) {
  *at = {at->x + value.x, at->y + value.y, at->z + value.z, at->w + value.w};
}
template <typename T>
T AtomicMin(T* at, T value) {
  const T before = *at;
  if (value < before) *at = value;
  return before;
}
template <typename T>
T AtomicMax(T* at, T value) {
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

template <typename Kernel>
void Run(unsigned grid, unsigned block, int shared_bytes, int max_shared_bytes,
         const Kernel& kernel) {
  static const Kernel* running;
  static std::vector<bool> done;
  running = &kernel;
  char* const stacks = Stacks(block);
  std::vector<Fiber> fibers(block);
  scheduler.started = true;
  votes.assign(block, 0);
  shuffled.assign(block, {});
  if (shared_bytes > max_shared_bytes) {
    std::fprintf(stderr, "a block has %d bytes of shared memory, not %d\n",
                 max_shared_bytes, shared_bytes);
    std::abort();
  }
  block_size.x = block;
  grid_size.x = grid;
  for (block_index.x = 0; block_index.x < grid; ++block_index.x) {
    done.assign(block, false);
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
            (*running)();
            done[thread_index.x] = true;
            Barrier();
          },
          0);
    }
    for (unsigned finished = 0; finished < block;) {
      for (thread_index.x = 0; thread_index.x < block; ++thread_index.x) {
        fiber = &fibers[thread_index.x];
        Switch(scheduler, *fiber);
      }
      finished = 0;
      for (bool d : done) finished += d;
      if (finished != 0 && finished != block) {
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
#define __syncthreads() ::tfo::cuda_emulation::Barrier()
#define __syncthreads_or(vote) ::tfo::cuda_emulation::BarrierOr(vote)
#define __ballot_sync(mask, vote) ::tfo::cuda_emulation::Ballot(vote)
#define __shfl_xor_sync(mask, value, lanes) \
  ::tfo::cuda_emulation::ShuffleXor(value, lanes)
#define __popc(bits) __builtin_popcount(bits)
#define __stwb ::tfo::cuda_emulation::Store
#define atomicAdd ::tfo::cuda_emulation::AtomicAdd
#define atomicMin ::tfo::cuda_emulation::AtomicMin
#define atomicMax ::tfo::cuda_emulation::AtomicMax

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_
