#include "tensorflow_ops/core/cc/shared_loop.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

TFO_TEST(SharedLoop, CoversEachUnitOnce) {
  for (int64_t total : {1, 2, 7, 1000}) {
    for (int64_t blocks : {1, 2, 3, 7, 16}) {
      if (blocks > total) continue;
      for (int helpers : {0, 1, 3}) {
        std::vector<std::thread> threads;
        // No atomics: a unit that two threads do is a race.
        std::vector<int> times(total);
        RunSharedLoop(
            total, blocks, helpers,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) ++times[i];
            },
            [&](std::function<void()> work) {
              threads.emplace_back(std::move(work));
            });
        for (int64_t i = 0; i < total; ++i) TFO_EXPECT_EQ(times[i], 1);
        for (std::thread& thread : threads) thread.join();
      }
    }
  }
}

TFO_TEST(SharedLoop, DoesNotWaitForHelpersThatHaveNotBegun) {
  std::vector<std::function<void()>> late;
  int calls = 0;
  {
    const Cpu::Body body = [&](int64_t, int64_t) { ++calls; };
    RunSharedLoop(100, 8, 3, body, [&](std::function<void()> work) {
      late.push_back(std::move(work));
    });
  }
  TFO_EXPECT_EQ(calls, 8);
  for (const auto& work : late) work();  // the body is gone
  TFO_EXPECT_EQ(calls, 8);
}

TFO_TEST(SharedLoop, WaitsForBlocksThatHelpersClaimed) {
  std::thread helper;
  std::atomic<bool> begun{false}, helped{false};
  const auto caller = std::this_thread::get_id();
  RunSharedLoop(
      2, 2, 1,
      [&](int64_t, int64_t) {
        if (std::this_thread::get_id() == caller) {
          while (!begun) std::this_thread::yield();
        } else {
          begun = true;
          // Longer than a caller yields.
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          helped = true;
        }
      },
      [&](std::function<void()> work) { helper = std::thread(work); });
  TFO_EXPECT_EQ(helped.load(), true);
  helper.join();
}

TFO_TEST(SharedLoop, CutsHugeTotals) {
  int64_t covered = 0;
  RunSharedLoop(
      INT64_MAX, 3, 0,
      [&](int64_t begin, int64_t end) { covered += end - begin; },
      [](std::function<void()>) {});
  TFO_EXPECT_EQ(covered, INT64_MAX);
}

}  // namespace
}  // namespace tfo
