// Compares the matches with loops over each image, class, range and threshold,
// written from the definition, and by hand.
#include "tensorflow_ops/metrics/cc/kernels/average_precision/match_detections.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

using testing::ThreadedCpu;

struct Results {
  std::vector<uint8_t> outcomes;
  std::vector<int32_t> ranks;
  std::vector<uint8_t> counts;

  bool operator==(const Results& other) const {
    return outcomes == other.outcomes && ranks == other.ranks &&
           counts == other.counts;
  }
};

struct Images {
  int64_t images, detections, objects;
  int64_t max_detections = 100;
  std::vector<double> boxes, scores, true_boxes, true_areas;
  std::vector<int64_t> classes, true_classes;
  std::vector<uint8_t> is_crowd;
  std::vector<double> iou_thresholds{0.5, 0.7};
  std::vector<double> area_ranges{0, 1e10, 0, 20, 20, 1e10};

  // Boxes on a coarse grid, so that overlaps and scores are often equal.
  Images(int64_t n, int64_t d, int64_t g, int64_t num_classes)
      : images(n), detections(d), objects(g) {
    std::mt19937 engine(n + 10 * d + 100 * g);
    const auto add_boxes = [&](int64_t count, std::vector<double>* into) {
      for (int64_t i = 0; i < 2 * count; ++i) {
        into->push_back(engine() % 3);
        into->push_back(engine() % 3);
        into->push_back(1 + engine() % 6);
        into->push_back(1 + engine() % 6);
      }
      into->resize(4 * count);
    };
    add_boxes(n * d, &boxes);
    add_boxes(n * g, &true_boxes);
    for (int64_t i = 0; i < n * d; ++i) {
      scores.push_back(engine() % 8 / 8.);
      classes.push_back(engine() % (num_classes + 1) - int64_t{1});
    }
    for (int64_t i = 0; i < n * g; ++i) {
      true_areas.push_back(engine() % 40);
      true_classes.push_back(engine() % (num_classes + 1) - int64_t{1});
      is_crowd.push_back(engine() % 4 == 0);
    }
  }

  int64_t Areas() const { return area_ranges.size() / 2; }
  int64_t Thresholds() const { return iou_thresholds.size(); }

  Results Run(const Cpu& cpu) const {
    Results results{
        std::vector<uint8_t>(images * detections * Areas() * Thresholds(), 77),
        std::vector<int32_t>(images * detections, 77),
        std::vector<uint8_t>(images * objects * Areas(), 77)};
    TFO_EXPECT_EQ(
        MatchDetections(
            cpu, {images, detections, objects, Areas(), Thresholds(),
                  max_detections, boxes.data(), scores.data(), classes.data(),
                  true_boxes.data(), true_classes.data(), true_areas.data(),
                  reinterpret_cast<const bool*>(is_crowd.data()),
                  iou_thresholds.data(), area_ranges.data(),
                  results.outcomes.data(), results.ranks.data(),
                  reinterpret_cast<bool*>(results.counts.data())}),
        nullptr);
    return results;
  }

  double Overlap(int64_t detection, int64_t object) const {
    const double* const a = &boxes[4 * detection];
    const double* const b = &true_boxes[4 * object];
    const double width =
        std::min(a[0] + a[2], b[0] + b[2]) - std::max(a[0], b[0]);
    const double height =
        std::min(a[1] + a[3], b[1] + b[3]) - std::max(a[1], b[1]);
    if (width <= 0 || height <= 0) return 0;
    const double shared = width * height, area = a[2] * a[3];
    return shared / (is_crowd[object] ? area : area + b[2] * b[3] - shared);
  }

  bool IsOutside(double area, int64_t range) const {
    return area < area_ranges[2 * range] || area > area_ranges[2 * range + 1];
  }

  Results Expected() const {
    Results results{std::vector<uint8_t>(
                        images * detections * Areas() * Thresholds(), kIgnored),
                    std::vector<int32_t>(images * detections, -1),
                    std::vector<uint8_t>(images * objects * Areas())};
    for (int64_t image = 0; image < images; ++image) {
      const int64_t first = image * objects;
      for (int64_t g = first; g < first + objects; ++g) {
        for (int64_t a = 0; a < Areas(); ++a) {
          results.counts[g * Areas() + a] = true_classes[g] >= 0 &&
                                            !is_crowd[g] &&
                                            !IsOutside(true_areas[g], a);
        }
      }
      std::vector<int64_t> order(detections);
      std::iota(order.begin(), order.end(), image * detections);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return scores[a] > scores[b];
      });
      for (const int64_t d : order) {
        if (classes[d] < 0) continue;
        int32_t rank = 0;
        for (const int64_t before : order) {
          if (before == d) break;
          rank += classes[before] == classes[d];
        }
        if (rank < max_detections) results.ranks[d] = rank;
      }
      for (int64_t a = 0; a < Areas(); ++a) {
        for (int64_t t = 0; t < Thresholds(); ++t) {
          std::vector<bool> is_taken(objects);
          for (const int64_t d : order) {
            if (results.ranks[d] < 0) continue;
            // The best object that counts; only without one the best other.
            int64_t match = -1;
            for (const bool counts : {true, false}) {
              double best = iou_thresholds[t];
              if (match >= 0) break;
              for (int64_t g = first; g < first + objects; ++g) {
                if (true_classes[g] != classes[d] ||
                    results.counts[g * Areas() + a] != counts ||
                    (is_taken[g - first] && !is_crowd[g]) ||
                    Overlap(d, g) < best) {
                  continue;
                }
                best = Overlap(d, g);
                match = g;
              }
            }
            uint8_t& outcome =
                results.outcomes[(d * Areas() + a) * Thresholds() + t];
            if (match >= 0) {
              is_taken[match - first] = true;
              outcome = results.counts[match * Areas() + a] ? kRight : kIgnored;
            } else {
              const double area = boxes[4 * d + 2] * boxes[4 * d + 3];
              outcome = IsOutside(area, a) ? kIgnored : kWrong;
            }
          }
        }
      }
    }
    return results;
  }
};

TFO_TEST(MatchDetections, EqualsTheDefinition) {
  for (const int threads : {1, 3}) {
    for (const int64_t images : {0, 1, 5}) {
      for (const int64_t detections : {0, 1, 40}) {
        for (const int64_t objects : {0, 1, 12}) {
          for (const int64_t max_detections : {0, 3, 100}) {
            const testing::Case of_test({}, images, " images, ", detections,
                                        " detections, ", objects, " objects");
            Images all(images, detections, objects, 3);
            all.max_detections = max_detections;
            TFO_EXPECT(all.Run(ThreadedCpu(threads)) == all.Expected());
          }
        }
      }
    }
  }
}

TFO_TEST(MatchDetections, ManyImagesWithoutBoxes) {
  Images all(1, 0, 0, 1);
  all.images = int64_t{1} << 50;
  all.Run(ThreadedCpu(1));
}

TFO_TEST(MatchDetections, WithoutThresholdsOrRanges) {
  Images all(2, 3, 3, 1);
  all.iou_thresholds.clear();
  TFO_EXPECT(all.Run(ThreadedCpu(2)) == all.Expected());
  all.area_ranges.clear();
  TFO_EXPECT(all.Run(ThreadedCpu(2)) == all.Expected());
}

// One image with the object [0, 0, 10, 10] of class 0, in any range.
Images OneObject(const std::vector<double>& boxes,
                 const std::vector<double>& scores) {
  Images one(1, scores.size(), 1, 1);
  one.boxes = boxes;
  one.scores = scores;
  one.classes.assign(scores.size(), 0);
  one.true_boxes = {0, 0, 10, 10};
  one.true_classes = {0};
  one.true_areas = {100};
  one.is_crowd = {false};
  one.iou_thresholds = {0.5};
  one.area_ranges = {0, 1e10};
  return one;
}

TFO_TEST(MatchDetections, ACrowdMatchesAnyNumberOfBoxesInside) {
  Images one = OneObject({0, 0, 2, 2, 5, 5, 2, 2, 9, 9, 4, 4}, {0.9, 0.8, 0.7});
  one.is_crowd = {true};
  const Results results = one.Run(ThreadedCpu(1));
  const std::vector<uint8_t> expected{kIgnored, kIgnored, kWrong};
  TFO_EXPECT(results.outcomes == expected);
  TFO_EXPECT_EQ(int{results.counts[0]}, 0);
}

TFO_TEST(MatchDetections, AThresholdOf1AllowsForRounding) {
  Images one = OneObject({0, 0, 10, 10 - 1e-10}, {0.9});
  one.iou_thresholds = {1};
  TFO_EXPECT_EQ(int{one.Run(ThreadedCpu(1)).outcomes[0]}, int{kRight});
  one.boxes[3] = 10 - 1e-8;
  TFO_EXPECT_EQ(int{one.Run(ThreadedCpu(1)).outcomes[0]}, int{kWrong});
}

TFO_TEST(MatchDetections, NanScoresAreLast) {
  const Images one = OneObject({0, 0, 10, 10, 0, 0, 10, 9, 0, 0, 10, 8},
                               {NAN, -INFINITY, NAN});
  const Results results = one.Run(ThreadedCpu(1));
  const std::vector<int32_t> ranks{1, 0, 2};
  const std::vector<uint8_t> outcomes{kWrong, kRight, kWrong};
  TFO_EXPECT(results.ranks == ranks);
  TFO_EXPECT(results.outcomes == outcomes);
}

TFO_TEST(MatchDetections, MalformedBoxesDoNotOverlap) {
  for (const double bad : {NAN, INFINITY, -INFINITY}) {
    for (int i = 0; i < 4; ++i) {
      Images one = OneObject({0, 0, 10, 10}, {0.5});
      one.boxes[i] = bad;
      one.area_ranges = {-INFINITY, INFINITY};
      TFO_EXPECT_EQ(int{one.Run(ThreadedCpu(1)).outcomes[0]}, int{kWrong});
    }
  }
}

}  // namespace
}  // namespace tfo
