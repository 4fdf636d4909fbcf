#include "tensorflow_ops/core/cc/shared_loop.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace tfo {
namespace {

class SharedLoop {
 public:
  SharedLoop(int64_t total, int64_t blocks, const Cpu::Body& body)
      : total_(total), blocks_(blocks), body_(body) {}

  // Does blocks until all are claimed. The body lives as long as one is not
  // done, so who has claimed none does not touch it.
  void Work() {
    for (;;) {
      const int64_t block = claimed_.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks_) return;
      body_(Begin(block), Begin(block + 1));
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == blocks_) {
        std::lock_guard<std::mutex> lock(mutex_);
        all_done_.notify_one();
      }
    }
  }

  // Until those that others claimed are done.
  void Wait() {
    // They are about to be: being woken would take longer.
    constexpr int kYields = 200;
    for (int i = 0; i < kYields && !AllDone(); ++i) std::this_thread::yield();
    if (AllDone()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    all_done_.wait(lock, [this] { return AllDone(); });
  }

 private:
  int64_t Begin(int64_t block) const {
    // Without total * block, which may overflow.
    return total_ / blocks_ * block + std::min(block, total_ % blocks_);
  }
  bool AllDone() const {
    return done_.load(std::memory_order_acquire) == blocks_;
  }

  const int64_t total_, blocks_;
  const Cpu::Body& body_;
  std::atomic<int64_t> claimed_{0}, done_{0};
  std::mutex mutex_;
  std::condition_variable all_done_;
};

}  // namespace

void RunSharedLoop(int64_t total, int64_t blocks, int helpers,
                   const Cpu::Body& body, const Schedule& schedule) {
  // Helpers that begin after the loop's end still look whether a block is left.
  const auto loop = std::make_shared<SharedLoop>(total, blocks, body);
  for (int i = 0; i < helpers; ++i) schedule([loop] { loop->Work(); });
  loop->Work();
  loop->Wait();
}

}  // namespace tfo
