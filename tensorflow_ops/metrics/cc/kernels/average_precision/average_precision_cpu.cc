#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/buckets.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/average_precision.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/falling_scores.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/match_detections.h"

namespace tfo {
namespace {

// A curve from its wrong detections before each right one: these positions are
// all that its best precisions depend on. Replaces wrong_before by precisions.
double MeanPrecision(std::vector<double>* wrong_before, double objects,
                     const AveragePrecisionArgs& args) {
  std::vector<double>& best = *wrong_before;
  const int64_t right = best.size();
  double best_from_here = 0;
  for (int64_t i = right - 1; i >= 0; --i) {
    best_from_here = std::max(best_from_here, (i + 1) / (best[i] + (i + 1)));
    best[i] = best_from_here;
  }
  double sum = 0;
  for (int64_t r = 0; r < args.recalls; ++r) {
    const double threshold = args.recall_thresholds[r];
    int64_t first = 0, end = right;
    while (first < end) {
      const int64_t middle = first + (end - first) / 2;
      if ((middle + 1) / objects < threshold) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    if (first < right) sum += best[first];
  }
  return args.recalls > 0 ? sum / args.recalls : 0;
}

// The results of one class from its detections by falling score.
void OfClass(const AveragePrecisionArgs& args, int64_t label,
             const std::vector<int64_t>& sorted) {
  const int64_t settings = args.areas * args.thresholds;
  std::vector<std::vector<double>> wrong_before(settings);
  std::vector<double> wrong(settings);
  std::vector<int64_t> right(args.limits * settings);
  for (const int64_t detection : sorted) {
    const uint8_t* const outcomes = args.outcomes + detection * settings;
    for (int64_t s = 0; s < settings; ++s) {
      if (outcomes[s] == kWrong) ++wrong[s];
      if (outcomes[s] != kRight) continue;
      wrong_before[s].push_back(wrong[s]);
      for (int64_t m = 0; m < args.limits; ++m) {
        right[m * settings + s] +=
            args.ranks[detection] < args.max_detections[m];
      }
    }
  }
  for (int64_t a = 0; a < args.areas; ++a) {
    const int64_t objects = args.object_counts[label * args.areas + a];
    for (int64_t t = 0; t < args.thresholds; ++t) {
      const int64_t s = a * args.thresholds + t;
      args.precision[label * settings + s] =
          objects > 0 ? MeanPrecision(&wrong_before[s], objects, args) : -1;
      for (int64_t m = 0; m < args.limits; ++m) {
        const int64_t row = (label * args.areas + a) * args.limits + m;
        args.recall[row * args.thresholds + t] =
            objects > 0 ? static_cast<double>(right[m * settings + s]) / objects
                        : -1;
      }
    }
  }
}

}  // namespace

Error AveragePrecision(const Cpu& cpu, const AveragePrecisionArgs& args) {
  // Without results, no memory limits the number of classes.
  if (args.areas == 0 || args.thresholds == 0) return nullptr;
  const Buckets by_class(args.classes, [&](const auto& add) {
    for (int64_t i = 0; i < args.detections; ++i) {
      const int32_t label = args.class_indices[i];
      if (label >= 0 && label < args.classes) add(label, i);
    }
  });
  const double of_class = args.classes ? 1. / args.classes : 0;
  const double cycles = args.areas * args.thresholds *
                        (2. * args.detections * of_class + 10 * args.recalls);
  cpu.ParallelFor(args.classes, cycles, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> sorted;
    for (int64_t label = begin; label < end; ++label) {
      sorted.assign(by_class.begin(label), by_class.end(label));
      std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) {
        return IsBefore(args.scores[a], args.scores[b]);
      });
      OfClass(args, label, sorted);
    }
  });
  return nullptr;
}

}  // namespace tfo
