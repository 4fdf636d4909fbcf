// Compares gather_tree with a walk from each leaf to the root.
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

#include <array>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

using testing::ThreadedCpu;

template <typename Id>
struct Tree {
  int64_t time, batch, beams;
  std::vector<Id> tokens, parents;
  std::vector<int32_t> lengths;

  Tree(int64_t t, int64_t b, int64_t k) : time(t), batch(b), beams(k) {
    std::mt19937 engine(3);
    for (int64_t i = 0; i < t * b * k; ++i) {
      tokens.push_back(engine() % 1000);
      parents.push_back(engine() % k);
    }
    for (int64_t i = 0; i < b * k; ++i) lengths.push_back(engine() % (t + 1));
  }

  std::vector<Id> Gather(const Cpu& cpu, BadBeam* bad) const {
    std::vector<Id> output(time * batch * beams, 123456);
    GatherTree(
        cpu,
        GatherTreeArgs<Id>{time, batch, beams, tokens.data(), parents.data(),
                           lengths.data(), Id{-9}, output.data()},
        bad);
    return output;
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

  void Check(const std::vector<Id>& output) const {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < beams; ++k) {
        const auto expected = Sequence(b, k);
        for (int64_t t = 0; t < time; ++t) {
          TFO_EXPECT_EQ(output[(t * batch + b) * beams + k], expected[t]);
        }
      }
    }
  }
};

template <typename Id>
void CheckShapes(const testing::Caller& caller = {}) {
  for (const auto [t, b, k] : {std::array<int64_t, 3>{1, 1, 1},
                               {5, 1, 3},
                               {17, 7, 4},
                               {3, 40, 1},
                               {0, 2, 3},
                               {4, 0, 3},
                               {4, 2, 0}}) {
    if (k == 0) continue;
    const testing::Case of_test(caller, "int", 8 * sizeof(Id), ", time ", t,
                                ", batch ", b, ", beams ", k);
    const Tree<Id> tree(t, b, k);
    for (const int threads : {1, 3}) {
      BadBeam bad{3, 3, 3, 3};
      tree.Check(tree.Gather(ThreadedCpu(threads), &bad));
      TFO_EXPECT_EQ(bad.beam, -1);
    }
  }
}

TFO_TEST(GatherTree, FollowsParents) {
  CheckShapes<int32_t>();
  CheckShapes<int64_t>();
}

TFO_TEST(GatherTree, ParentsOfTheFirstTokensAreNotRead) {
  Tree<int32_t> tree(4, 2, 3);
  for (int i = 0; i < 6; ++i) tree.parents[i] = 99;
  BadBeam bad;
  tree.Check(tree.Gather(ThreadedCpu(1), &bad));
  TFO_EXPECT_EQ(bad.beam, -1);
}

TFO_TEST(GatherTree, BadParentsPadAndTheFirstIsReported) {
  for (const int64_t parent : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    Tree<int64_t> tree(6, 5, 4);
    for (auto& length : tree.lengths) length = 6;
    for (int k = 0; k < 4; ++k) tree.parents[(3 * 5 + 2) * 4 + k] = parent;
    for (int k = 0; k < 4; ++k) tree.parents[(2 * 5 + 4) * 4 + k] = parent;
    for (const int threads : {1, 3, 20}) {
      BadBeam bad;
      tree.Check(tree.Gather(ThreadedCpu(threads), &bad));
      TFO_EXPECT_EQ(bad.batch, 2);
      TFO_EXPECT_EQ(bad.beam, 0);
      TFO_EXPECT_EQ(bad.time, 3);
      TFO_EXPECT_EQ(bad.value, parent);
    }
  }
}

TFO_TEST(GatherTree, BadLengthsPadAndTheFirstIsReported) {
  for (const int length : {-1, 7}) {
    Tree<int32_t> tree(6, 3, 4);
    tree.lengths[6] = length;
    tree.lengths[9] = length;
    for (const int threads : {1, 3, 12}) {
      BadBeam bad;
      tree.Check(tree.Gather(ThreadedCpu(threads), &bad));
      TFO_EXPECT_EQ(bad.batch, 1);
      TFO_EXPECT_EQ(bad.beam, 2);
      TFO_EXPECT_EQ(bad.time, -1);
      TFO_EXPECT_EQ(bad.value, length);
    }
  }
}

}  // namespace
}  // namespace tfo
