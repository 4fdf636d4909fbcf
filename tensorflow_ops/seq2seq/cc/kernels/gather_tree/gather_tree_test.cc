// Compares gather_tree with a walk from each leaf to the root.
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

#include <array>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ThreadedCpu;

template <typename Id>
struct Tree {
  int64_t time, batch, beams;
  GpuVector<Id> tokens, parents;
  GpuVector<int32_t> lengths;

  Tree(int64_t t, int64_t b, int64_t k) : time(t), batch(b), beams(k) {
    std::mt19937 engine(3);
    for (int64_t i = 0; i < t * b * k; ++i) {
      tokens.push_back(engine() % 1000);
      parents.push_back(engine() % k);
    }
    for (int64_t i = 0; i < b * k; ++i) lengths.push_back(engine() % (t + 1));
  }

  GatherTreeArgs<Id> Args(GpuVector<Id>& output) const {
    return {time,           batch,          beams, tokens.data(),
            parents.data(), lengths.data(), -9,    output.data()};
  }

  // Walks back from beam k of entry b; a bad parent starts padding.
  std::vector<Id> Sequence(int64_t b, int64_t k) const {
    std::vector<Id> sequence(time, -9);
    const int32_t length = lengths[b * beams + k];
    if (length < 0 || length > time) return sequence;
    int64_t at = k;
    for (int64_t t = length - 1; t >= 0 && at >= 0 && at < beams; --t) {
      sequence[t] = tokens[(t * batch + b) * beams + at];
      at = parents[(t * batch + b) * beams + at];
    }
    return sequence;
  }

  // Compares with walks. Returns what the CPU reports.
  template <typename Device>
  BadBeam Check(const Device& device) const {
    GpuVector<Id> output(time * batch * beams, 123456);
    BadBeam bad{3, 3, 3, 3};
    if constexpr (std::is_same_v<Device, Gpu>) {
      TFO_EXPECT_RUNS(GatherTree(device, Args(output)));
    } else {
      TFO_EXPECT_RUNS(GatherTree(device, Args(output), &bad));
    }
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < beams; ++k) {
        const auto expected = Sequence(b, k);
        for (int64_t t = 0; t < time; ++t) {
          TFO_EXPECT_EQ(output[(t * batch + b) * beams + k], expected[t]);
        }
      }
    }
    return bad;
  }
};

template <typename Id, typename Device>
void CheckShapes(const Device& device, const testing::Caller& caller = {}) {
  for (const auto [t, b, k] : {std::array<int64_t, 3>{1, 1, 1},
                               {5, 1, 3},
                               {17, 7, 4},
                               {3, 40, 1},
                               {9, 90, 7},
                               {0, 2, 3},
                               {4, 0, 3}}) {
    const testing::Case of_test(caller, "int", 8 * sizeof(Id), ", time ", t,
                                ", batch ", b, ", beams ", k);
    Tree<Id> tree(t, b, k);
    const BadBeam none = tree.Check(device);
    if (std::is_same_v<Device, Cpu>) TFO_EXPECT_EQ(none.beam, -1);
    for (size_t i = 0; i < tree.parents.size(); i += 21) {
      tree.parents[i] = i % 2 ? -1 : Id(k);
    }
    for (size_t i = 0; i < tree.lengths.size(); i += 8) {
      tree.lengths[i] = static_cast<int32_t>(i % 3 ? -1 : t + 1);
    }
    tree.Check(device);
  }
}

TFO_TEST(GatherTree, FollowsParents) {
  for (const int threads : {1, 3}) {
    CheckShapes<int32_t>(ThreadedCpu(threads));
    CheckShapes<int64_t>(ThreadedCpu(threads));
  }
}
TFO_CUDA_TEST(GatherTree, CudaFollowsParents) {
  CheckShapes<int32_t>(Gpu());
  CheckShapes<int64_t>(Gpu());
}

TFO_TEST(GatherTree, ParentsOfTheFirstTokensAreNotRead) {
  Tree<int32_t> tree(4, 2, 3);
  for (int i = 0; i < 6; ++i) tree.parents[i] = 99;
  TFO_EXPECT_EQ(tree.Check(ThreadedCpu(1)).beam, -1);
}

template <typename Id>
void ExpectReports(const Tree<Id>& tree, const BadBeam& expected,
                   const testing::Caller& caller = {}) {
  for (const int threads : {1, 3, 12, 20}) {
    const testing::Case of_test(caller, threads, " threads");
    const BadBeam bad = tree.Check(ThreadedCpu(threads));
    TFO_EXPECT_EQ(bad.batch, expected.batch);
    TFO_EXPECT_EQ(bad.beam, expected.beam);
    TFO_EXPECT_EQ(bad.time, expected.time);
    TFO_EXPECT_EQ(bad.value, expected.value);
  }
}

TFO_TEST(GatherTree, BadParentsPadAndTheFirstIsReported) {
  for (const int64_t parent : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    for (const int time : {3, 5}) {
      Tree<int64_t> tree(6, 5, 4);
      for (auto& length : tree.lengths) length = 6;
      for (int k = 0; k < 4; ++k) {
        tree.parents[(time * 5 + 2) * 4 + k] = parent;
        tree.parents[(2 * 5 + 4) * 4 + k] = parent;
      }
      ExpectReports(tree, {/*batch=*/2, /*beam=*/0, time, parent});
    }
  }
}

TFO_TEST(GatherTree, BadLengthsPadAndTheFirstIsReported) {
  for (const int length : {-1, 7}) {
    Tree<int32_t> tree(6, 3, 4);
    tree.lengths[6] = length;
    tree.lengths[9] = length;
    ExpectReports(tree, {/*batch=*/1, /*beam=*/2, /*time=*/-1, length});
  }
}

template <typename Id>
void TimeTree(int64_t time, int64_t batch, int64_t beams) {
  time = testing::BenchmarkSize(time);
  batch = testing::BenchmarkSize(batch);
  Tree<Id> tree(time, batch, beams);
  tree.lengths.assign(batch * beams, time);
  GpuVector<Id> output(time * batch * beams);
  const auto args = tree.Args(output);
  testing::TimeOnGpu(testing::Text("int", 8 * sizeof(Id), " gather_tree [",
                                   time, ", ", batch, ", ", beams, "]"),
                     3 * output.size() * sizeof(Id), 0,
                     [&](const Gpu& gpu) { return GatherTree(gpu, args); });
}
TFO_BENCHMARK(GatherTree, Searches) {
  TimeTree<int32_t>(256, 64, 5);
  TimeTree<int64_t>(1024, 4096, 4);
}

}  // namespace
}  // namespace tfo
