// Runs loops on all threads of a pool at once: they must end, and cover every
// index once.
#include "tensorflow_ops/core/cc/claimed_loop.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

class Notification {
 public:
  void Notify() {
    std::lock_guard<std::mutex> lock(mutex_);
    notified_ = true;
    condition_.notify_one();
  }
  void WaitForNotification() {
    std::unique_lock<std::mutex> lock(mutex_);
    condition_.wait(lock, [this] { return notified_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool notified_ = false;
};

// Threads that run tasks in order and end with the pool, after the last task.
class Pool {
 public:
  explicit Pool(int num_threads) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    condition_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  int NumThreads() const { return threads_.size(); }
  void Schedule(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    condition_.notify_one();
  }

 private:
  void Work() {
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      condition_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

void Run(Pool* pool, int64_t total, double cycles_per_unit,
         const Cpu::Body& body) {
  ClaimedLoop<Notification>::Run(
      pool->NumThreads(), total, cycles_per_unit, body,
      [pool](std::function<void()> task) { pool->Schedule(std::move(task)); });
}

// Calls that outnumber the threads, each of which runs a loop.
TFO_TEST(ClaimedLoop, EndsOnThePoolsOwnThreads) {
  for (int threads : {1, 2, 5}) {
    Pool pool(threads);
    constexpr int kCalls = 200;
    std::vector<std::vector<int>> counts(kCalls);
    std::atomic<int> calls{kCalls};
    Notification done;
    for (int call = 0; call < kCalls; ++call) {
      counts[call].resize(1 + 37 * call);
      pool.Schedule([&, call] {
        Run(&pool, counts[call].size(), call % 2 == 0 ? 1 : 1e5,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) ++counts[call][i];
            });
        if (--calls == 0) done.Notify();
      });
    }
    done.WaitForNotification();
    for (const auto& call : counts) {
      for (int count : call) TFO_EXPECT_EQ(count, 1);
    }
  }
}

TFO_TEST(ClaimedLoop, RunsOnAThreadOutsideThePool) {
  Pool pool(3);
  std::vector<int> counts(1000);
  Run(&pool, counts.size(), 1e4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++counts[i];
  });
  for (int count : counts) TFO_EXPECT_EQ(count, 1);
}

TFO_TEST(ClaimedLoop, ThrowsWhatItsBodyThrows) {
  Pool pool(3);
  std::atomic<int64_t> covered{0};
  bool caught = false;
  try {
    Run(&pool, 100, 1e6, [&](int64_t begin, int64_t end) {
      covered += end - begin;
      if (begin <= 50 && 50 < end) throw std::bad_alloc();
    });
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  TFO_EXPECT(caught);
  TFO_EXPECT_EQ(covered.load(), 100);
}

}  // namespace
}  // namespace tfo
