// A parallel loop that any thread may run, even one of the pool itself.
//
// TensorFlow's ThreadPool::ParallelFor waits for work in the pool's queue. XLA
// calls kernels on the pool's own threads: if all of them waited, none would be
// left to do the work. Here, the caller claims blocks as the pool's threads do,
// and waits only for blocks that others have begun.
#ifndef TENSORFLOW_OPS_CORE_CC_CLAIMED_LOOP_H_
#define TENSORFLOW_OPS_CORE_CC_CLAIMED_LOOP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// Notification has Notify() and WaitForNotification(), as absl::Notification
// has: std::condition_variable would require glibc 2.35.
template <typename Notification>
class ClaimedLoop {
 public:
  // Calls body on ranges that cover [0, total) and returns after the last.
  // `schedule` queues a task on the pool, which may run it at any time, even
  // after the loop. Throws std::bad_alloc if a call of body does.
  static void Run(int num_threads, int64_t total, double cycles_per_unit,
                  const Cpu::Body& body,
                  const std::function<void(std::function<void()>)>& schedule) {
    // Several blocks per thread, because threads may begin late, but none so
    // small that claiming it costs more.
    constexpr double kBlockCycles = 40000;
    const int64_t threads = std::min<int64_t>(num_threads, total);
    const double cycles = cycles_per_unit * total;
    const int64_t blocks = std::clamp<int64_t>(
        std::min(cycles / kBlockCycles, 1e9), threads, 4 * threads);
    auto* const loop = new ClaimedLoop(total, blocks, body);
    for (int64_t i = 1; i < threads; ++i) {
      loop->owners_.fetch_add(1, std::memory_order_relaxed);
      schedule([loop] {
        loop->RunBlocks();
        loop->Release();
      });
    }
    loop->RunBlocks();
    loop->done_.WaitForNotification();
    const bool no_memory = loop->no_memory_;
    loop->Release();
    if (no_memory) throw std::bad_alloc();
  }

 private:
  ClaimedLoop(int64_t total, int64_t blocks, const Cpu::Body& body)
      : total_(total),
        size_((total + blocks - 1) / blocks),
        count_((total + size_ - 1) / size_),
        body_(&body),
        left_(count_) {}

  void RunBlocks() {
    for (int64_t i; (i = next_.fetch_add(1)) < count_;) {
      try {
        (*body_)(i* size_, std::min((i + 1) * size_, total_));
      } catch (const std::bad_alloc&) {
        no_memory_ = true;
      }
      if (left_.fetch_sub(1) == 1) done_.Notify();
    }
  }

  // Counted by hand, because std::shared_ptr would require glibc 2.32.
  void Release() {
    if (owners_.fetch_sub(1) == 1) delete this;
  }

  const int64_t total_, size_, count_;
  const Cpu::Body* const body_;  // valid while blocks are left
  std::atomic<int64_t> next_{0}, left_, owners_{1};
  std::atomic<bool> no_memory_{false};
  Notification done_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CLAIMED_LOOP_H_
