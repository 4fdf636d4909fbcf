// Compares the CUDA kernel of gather_tree with the CPU algorithm.
#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

namespace tfo {
namespace {

template <typename Id>
void Check(int64_t time, int64_t batch, int64_t beams,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, "time ", time, ", batch ", batch,
                              ", beams ", beams);
  const int64_t all = batch * beams;
  std::mt19937 random(time + batch + beams);
  testing::GpuVector<Id> tokens(time * all), parents(time * all);
  testing::GpuVector<int32_t> lengths(all);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = random() % 1000;
    // One parent in 20 is out of range.
    parents[i] = random() % 20 == 0 ? (random() % 2 ? -1 : Id(beams))
                                    : Id(random() % beams);
  }
  for (int64_t i = 0; i < all; ++i) {
    lengths[i] = static_cast<int32_t>(random() % (time + 3)) - 1;
  }
  testing::GpuVector<Id> expected(time * all, -5), actual(time * all, -7);
  BadBeam bad;
  GatherTreeArgs<Id> args{
      time,           batch,          beams, tokens.data(),
      parents.data(), lengths.data(), -1,    expected.data()};
  GatherTree(testing::ThreadedCpu(2), args, &bad);
  args.output = actual.data();
  TFO_EXPECT_RUNS(GatherTree(Gpu{}, args));
  TFO_EXPECT(actual == expected);
}

TFO_CUDA_TEST(GatherTreeGpu, EqualsTheCpu) {
  for (const int64_t time : {0, 1, 2, 9}) {
    for (const int64_t batch : {0, 1, 3, 90}) {
      for (const int64_t beams : {1, 2, 7}) {
        Check<int32_t>(time, batch, beams);
        Check<int64_t>(time, batch, beams);
      }
    }
  }
}

template <typename Id>
void TimeTree(int64_t time, int64_t batch, int64_t beams) {
  time = testing::BenchmarkSize(time);
  batch = testing::BenchmarkSize(batch);
  const int64_t n = time * batch * beams;
  testing::GpuVector<Id> tokens(n, 7), parents(n), output(n);
  for (int64_t i = 0; i < n; ++i) parents[i] = i * 7 % beams;
  const testing::GpuVector<int32_t> lengths(batch * beams, time);
  const GatherTreeArgs<Id> args{
      time,           batch,          beams, tokens.data(),
      parents.data(), lengths.data(), -1,    output.data()};
  testing::TimeOnGpu(testing::Text("int", 8 * sizeof(Id), " gather_tree [",
                                   time, ", ", batch, ", ", beams, "]"),
                     3 * n * sizeof(Id), 0,
                     [&](const Gpu& gpu) { return GatherTree(gpu, args); });
}
TFO_BENCHMARK(GatherTreeGpu, Searches) {
  TimeTree<int32_t>(256, 64, 5);
  TimeTree<int64_t>(1024, 4096, 4);
}

}  // namespace
}  // namespace tfo
