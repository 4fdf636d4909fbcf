// Compares average precision with sums over each position of the curves, and by
// hand.
#include "tensorflow_ops/metrics/cc/kernels/average_precision/average_precision.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/match_detections.h"

namespace tfo {
namespace {

using testing::ThreadedCpu;

struct Set {
  int64_t detections, classes, areas, thresholds;
  std::vector<double> scores;
  std::vector<int32_t> class_indices, ranks;
  std::vector<uint8_t> outcomes;
  std::vector<int64_t> object_counts;
  std::vector<int32_t> max_detections{1, 3, 100};
  std::vector<double> recall_thresholds;
  std::vector<double> precision, recall;

  Set(int64_t d, int64_t c, int64_t a = 2, int64_t t = 3)
      : detections(d), classes(c), areas(a), thresholds(t) {
    std::mt19937 engine(d + 7 * c);
    for (int64_t i = 0; i < d; ++i) {
      scores.push_back(engine() % 64 / 64.);
      class_indices.push_back(engine() % (c + 2) - int64_t{1});
      ranks.push_back(engine() % 6);
    }
    for (int64_t i = 0; i < d * a * t; ++i) outcomes.push_back(engine() % 3);
    // At least as many objects as right detections, or none.
    for (int64_t i = 0; i < c * a; ++i) {
      object_counts.push_back(engine() % 4 ? d + engine() % 10 : 0);
    }
    for (int r = 0; r <= 10; ++r) recall_thresholds.push_back(r / 10.);
  }

  void Run(const Cpu& cpu) {
    precision.assign(classes * areas * thresholds, 77);
    recall.assign(precision.size() * max_detections.size(), 77);
    TFO_EXPECT_EQ(
        AveragePrecision(
            cpu, {detections, classes, areas, thresholds,
                  static_cast<int64_t>(max_detections.size()),
                  static_cast<int64_t>(recall_thresholds.size()), scores.data(),
                  class_indices.data(), ranks.data(), outcomes.data(),
                  object_counts.data(), max_detections.data(),
                  recall_thresholds.data(), precision.data(), recall.data()}),
        nullptr);
  }

  // Outcomes of a class by falling score, of ranks below a limit.
  std::vector<uint8_t> Sorted(int64_t c, int64_t a, int64_t t,
                              int32_t limit) const {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < detections; ++i) {
      if (class_indices[i] == c && ranks[i] < limit) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return scores[i] > scores[j];
    });
    std::vector<uint8_t> sorted;
    for (const int64_t i : order) {
      sorted.push_back(outcomes[(i * areas + a) * thresholds + t]);
    }
    return sorted;
  }

  double Recall(int64_t c, int64_t a, int64_t t, int32_t limit) const {
    const double objects = object_counts[c * areas + a];
    if (objects == 0) return -1;
    const auto sorted = Sorted(c, a, t, limit);
    return std::count(sorted.begin(), sorted.end(), kRight) / objects;
  }

  double Precision(int64_t c, int64_t a, int64_t t) const {
    const double objects = object_counts[c * areas + a];
    if (objects == 0) return -1;
    const auto sorted = Sorted(c, a, t, 1 << 30);
    double sum = 0;
    for (const double least : recall_thresholds) {
      double best = 0, right = 0, wrong = 0;
      for (const uint8_t outcome : sorted) {
        right += outcome == kRight;
        wrong += outcome == kWrong;
        if (right > 0 && right / objects >= least) {
          best = std::max(best, right / (right + wrong));
        }
      }
      sum += best;
    }
    return sum / recall_thresholds.size();
  }

  void Check(const Cpu& cpu, const testing::Caller& caller = {}) {
    const testing::Case of_test(caller, detections, " detections, ", classes,
                                " classes");
    Run(cpu);
    for (int64_t c = 0; c < classes; ++c) {
      for (int64_t a = 0; a < areas; ++a) {
        for (int64_t t = 0; t < thresholds; ++t) {
          const int64_t i = (c * areas + a) * thresholds + t;
          TFO_EXPECT(std::abs(precision[i] - Precision(c, a, t)) < 1e-14);
          for (size_t m = 0; m < max_detections.size(); ++m) {
            const int64_t row = (c * areas + a) * max_detections.size() + m;
            TFO_EXPECT_EQ(recall[row * thresholds + t],
                          Recall(c, a, t, max_detections[m]));
          }
        }
      }
    }
  }
};

TFO_TEST(AveragePrecision, EqualsTheDefinition) {
  for (const int threads : {1, 3}) {
    for (const int64_t detections : {0, 1, 2, 30, 300}) {
      for (const int64_t classes : {0, 1, 5}) {
        Set(detections, classes).Check(ThreadedCpu(threads));
      }
    }
  }
}

TFO_TEST(AveragePrecision, WithoutThresholdsRangesOrLimits) {
  Set(20, 2, 0, 3).Check(ThreadedCpu(2));
  Set(20, 2, 2, 0).Check(ThreadedCpu(2));
  Set many(0, 1, 0);
  many.classes = int64_t{1} << 50;
  many.Run(ThreadedCpu(1));
  Set set(20, 2);
  set.max_detections.clear();
  set.Check(ThreadedCpu(2));
}

// Detections of one class with scores that do not rise.
double Precision(const std::vector<uint8_t>& outcomes, int64_t objects,
                 std::vector<double> scores = {}) {
  Set set(outcomes.size(), 1, 1, 1);
  set.outcomes = outcomes;
  set.class_indices.assign(outcomes.size(), 0);
  set.object_counts = {objects};
  set.recall_thresholds.clear();
  for (int i = 0; i <= 100; ++i) set.recall_thresholds.push_back(i / 100.);
  scores.resize(outcomes.size());
  set.scores = scores;
  set.Run(ThreadedCpu(1));
  return set.precision[0];
}

TFO_TEST(AveragePrecision, ByHand) {
  TFO_EXPECT_EQ(Precision({kRight}, 1), 1);
  TFO_EXPECT_EQ(Precision({}, 3), 0);
  TFO_EXPECT_EQ(Precision({kWrong, kIgnored}, 1), 0);
  TFO_EXPECT_EQ(Precision({kRight}, 0), -1);
  TFO_EXPECT_EQ(Precision({kIgnored, kRight}, 1), 1);
  TFO_EXPECT_EQ(Precision({kWrong, kRight}, 1), 0.5);
  // Recalls 0, 0.01, ..., 0.25.
  TFO_EXPECT(std::abs(Precision({kRight}, 4) - 26. / 101) < 1e-15);
  // Precision 1/2 at recall 1/2 is replaced by 2/3 at recall 1.
  TFO_EXPECT(std::abs(Precision({kWrong, kRight, kRight}, 2) - 2. / 3) < 1e-15);
}

TFO_TEST(AveragePrecision, NanScoresAreLast) {
  TFO_EXPECT_EQ(Precision({kWrong, kRight}, 1, {NAN, -INFINITY}), 1);
}

}  // namespace
}  // namespace tfo
