// CUDA's words for g++, enough to run this package's kernels on the processor:
// a fiber per CUDA thread, block after block. For tests only.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define __global__ static
#define __device__
#define __host__
#define __launch_bounds__(...)
// Blocks run one after the other, so one copy serves.
#define __shared__ static

namespace tfo::cuda_emulation {

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};

inline Dim3 thread_index, block_index, block_size, grid_size;
inline ucontext_t scheduler;
inline ucontext_t* fiber;  // the one that runs

// __syncthreads: back to the scheduler, which goes on here after every other
// fiber of the block has come to its own barrier.
inline void Barrier() { swapcontext(fiber, &scheduler); }

template <typename Kernel>
void Run(unsigned grid, unsigned block, const Kernel& kernel) {
  static const Kernel* running;
  static std::vector<bool> done;
  running = &kernel;
  constexpr size_t kStackBytes = 256 << 10;
  static std::vector<char> stacks;
  stacks.resize(kStackBytes * block);
  std::vector<ucontext_t> fibers(block);
  block_size.x = block;
  grid_size.x = grid;
  for (block_index.x = 0; block_index.x < grid; ++block_index.x) {
    done.assign(block, false);
    for (unsigned t = 0; t < block; ++t) {
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = &stacks[kStackBytes * t];
      fibers[t].uc_stack.ss_size = kStackBytes;
      fibers[t].uc_link = &scheduler;
      makecontext(
          &fibers[t],
          +[] {
            (*running)();
            done[thread_index.x] = true;
          },
          0);
    }
    for (unsigned finished = 0; finished < block;) {
      for (thread_index.x = 0; thread_index.x < block; ++thread_index.x) {
        fiber = &fibers[thread_index.x];
        swapcontext(&scheduler, fiber);
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

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_EMULATION_H_
