// Compares nms with plain loops: on the CPU at every level and for several
// thread counts, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tensorflow_ops/detection/cc/kernels/nms/nms_cells.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

template <typename T>
struct Problem {
  BoxFormat format;
  GpuVector<T> boxes, scores;
  GpuVector<int64_t> groups;    // may be empty
  GpuVector<int32_t> groups32;  // may be empty
  T iou_threshold = T(0.4);
  T score_threshold = std::numeric_limits<T>::quiet_NaN();
  int64_t max_outputs = -1;

  NmsArgs<T> Args() const {
    return {static_cast<int64_t>(scores.size()),
            format,
            boxes.data(),
            scores.data(),
            {groups32.empty() ? nullptr : groups32.data(),
             groups.empty() ? nullptr : groups.data()},
            iou_threshold,
            score_threshold,
            max_outputs,
            nullptr,
            nullptr};
  }
};

template <typename T>
Problem<T> MakeProblem(int64_t n, BoxFormat format, double side,
                       bool of_any_size = true) {
  return {format,
          testing::MakeBoxes<T>(n, format, side, 3, of_any_size),
          testing::MakeScores<T>(n, 4),
          {},
          {}};
}

template <typename T>
std::vector<int32_t> Reference(const Problem<T>& p) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < p.scores.size(); ++i) {
    const T s = p.scores[i];
    if (!std::isnan(s) && !(s <= p.score_threshold)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return p.scores[a] > p.scores[b];
  });
  std::vector<int32_t> kept;
  for (int32_t i : order) {
    if (static_cast<int64_t>(kept.size()) == p.max_outputs) break;
    const bool suppressed =
        std::any_of(kept.begin(), kept.end(), [&](int32_t k) {
          if (!p.groups.empty() && p.groups[k] != p.groups[i]) return false;
          if (!p.groups32.empty() && p.groups32[k] != p.groups32[i]) {
            return false;
          }
          return testing::PlainOverlap(p.boxes.data(), k, i, p.format,
                                       p.iou_threshold);
        });
    if (!suppressed) kept.push_back(i);
  }
  return kept;
}

template <typename T, typename Device>
std::vector<int32_t> RunOn(const Device& device, const Problem<T>& p) {
  NmsArgs<T> args = p.Args();
  GpuVector<int32_t> kept(p.scores.size(), -7), count(1, -7);
  args.kept = kept.data();
  args.count = count.data();
  testing::WithScratch(
      device, [&] { return NmsScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(Nms(on, args)); });
  TFO_EXPECT(count[0] >= 0 && count[0] <= args.num_boxes);
  return {kept.begin(), kept.begin() + std::max(count[0], 0)};
}

template <typename T, typename... Device>
void ExpectReference(const Problem<T>& p, const Device&... devices) {
  const std::vector<int32_t> expected = Reference(p);
  for (const std::vector<int32_t>& actual : {RunOn(devices, p)...}) {
    TFO_EXPECT_EQ(actual.size(), expected.size());
    for (size_t m = 0; m < std::min(actual.size(), expected.size()); ++m) {
      if (actual[m] == expected[m]) continue;
      TFO_EXPECT_EQ(actual[m], expected[m]);
      return;
    }
  }
}

template <typename T, typename Device>
void ExpectOptionsWork(const Device& device, int64_t n, double side) {
  for (BoxFormat format : testing::kBoxFormats) {
    Problem<T> p = MakeProblem<T>(n, format, side, /*of_any_size=*/false);
    for (double threshold : {0.0, 0.4, 1.0}) {
      p.iou_threshold = static_cast<T>(threshold);
      ExpectReference(p, device);
    }
    p = MakeProblem<T>(n, format, side);
    // Not 0: T does not hold all IoUs.
    for (double threshold : {1e-3, 0.4, 1.0}) {
      p.iou_threshold = static_cast<T>(threshold);
      ExpectReference(p, device);
    }
    p.iou_threshold = T(0.4);
    for (double threshold : {-0.1, 0.0, 0.5}) {
      p.score_threshold = static_cast<T>(threshold);
      ExpectReference(p, device);
    }
    for (int64_t most : {int64_t{0}, int64_t{1}, n / 5, 2 * n}) {
      p.max_outputs = most;
      ExpectReference(p, device);
    }
  }
}

template <typename T, typename Device>
void ExpectGroupsWork(const Device& device, int64_t n, double side) {
  std::mt19937 engine(9);
  for (BoxFormat format : {BoxFormat::kXyxy, BoxFormat::kRotated}) {
    Problem<T> p = MakeProblem<T>(n, format, side);
    p.groups.resize(n);
    for (int64_t& g : p.groups) g = engine() % 6 - int64_t{2};
    ExpectReference(p, device);
    p.max_outputs = n / 9;
    ExpectReference(p, device);
    p.max_outputs = -1;
    const int64_t kIds[] = {std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max(), -1, 0,
                            int64_t{1} << 32};
    for (int64_t& g : p.groups) g = kIds[engine() % 5];
    ExpectReference(p, device);
    p.groups32.resize(n);
    for (int32_t& g : p.groups32) {
      g = engine() % 2 == 0 ? std::numeric_limits<int32_t>::min() : 7;
    }
    p.groups.clear();
    ExpectReference(p, device);
    for (int64_t i = 0; i < n; ++i) p.groups32[i] = 3 * i - 100;
    ExpectReference(p, device);
  }
}

TFO_TEST(Nms, CpuOptions) {
  for (int threads : {1, 3}) {
    for (int64_t n : {0, 1, 2, 40, 300}) {
      ExpectOptionsWork<float>(testing::ThreadedCpu(threads), n, 30);
      ExpectOptionsWork<double>(testing::ThreadedCpu(threads), n, 30);
    }
  }
}
TFO_TEST(Nms, CpuGroups) {
  for (int threads : {1, 3}) {
    ExpectGroupsWork<float>(testing::ThreadedCpu(threads), 700, 40);
    ExpectGroupsWork<double>(testing::ThreadedCpu(threads), 700, 40);
  }
}

// Chunks that threads share.
TFO_TEST(Nms, CpuChunks) {
  for (BoxFormat format : testing::kBoxFormats) {
    Problem<float> p = MakeProblem<float>(2500, format, 12);
    for (int64_t most : {-1, 700}) {
      p.max_outputs = most;
      ExpectReference(p, testing::ThreadedCpu(1), testing::ThreadedCpu(2),
                      testing::ThreadedCpu(5));
    }
  }
}

// Boxes of sizes from small to all of the image, in bins.
template <typename T>
void ExpectBinsWork() {
  for (BoxFormat format : {BoxFormat::kYxyx, BoxFormat::kRotated}) {
    Problem<T> p = MakeProblem<T>(4600, format, 2);
    // Without those far away, which would leave all others in one bin.
    for (T& c : p.boxes) {
      if (std::abs(c) > 1e3) c = 5;
    }
    std::mt19937 engine(1);
    const int size = BoxSize(format);
    for (size_t i = 0; i < p.scores.size(); ++i) {
      const T longer = static_cast<T>(std::exp2(engine() % 7));
      T* const b = &p.boxes[size * i];
      for (int c : {2, 3}) {
        b[c] = format == BoxFormat::kRotated
                   ? b[c] * longer
                   : b[c - 2] + (b[c] - b[c - 2]) * longer;
      }
    }
    for (double threshold : {0.3, 0.0, 0.7}) {
      p.iou_threshold = static_cast<T>(threshold);
      ExpectReference(p, testing::ThreadedCpu(threshold == 0.3 ? 3 : 1));
      // The plain loops of rotated boxes are slow.
      if (format == BoxFormat::kRotated) break;
    }
  }
}
TFO_TEST(Nms, CpuBinsFloat) { ExpectBinsWork<float>(); }
TFO_TEST(Nms, CpuBinsDouble) { ExpectBinsWork<double>(); }

// Boxes side by side on one axis only.
TFO_TEST(Nms, CpuBinsOnEitherAxis) {
  for (int axis : {0, 1}) {
    Problem<float> p = MakeProblem<float>(5000, BoxFormat::kXyxy, 1, false);
    for (size_t i = 0; i < p.boxes.size(); i += 4) {
      float* const b = &p.boxes[i];
      const float low = std::fmod(7.3f * i, 5000.f);
      b[axis] = low;
      b[axis + 2] = low + 1 + i % 3;
      b[1 - axis] = 0;
      b[3 - axis] = 100;
    }
    ExpectReference(p, testing::ThreadedCpu(1), testing::ThreadedCpu(3));
    // Bins on the other axis would hold all boxes in one.
    const NmsArgs<float> args = p.Args();
    std::vector<int32_t> order(args.num_boxes);
    std::iota(order.begin(), order.end(), 0);
    std::vector<scalar::UprightBox<float>> boxes;
    for (int32_t i : order) {
      boxes.push_back(
          scalar::ReadCompared<float, false>(args.boxes, i, args.format));
    }
    const scalar::NmsCells<float, false> cells(args.groups, args.iou_threshold,
                                               order, boxes);
    std::set<int64_t> used;
    for (int32_t i : order) used.insert(cells.CellOf(i, boxes[i].corners));
    TFO_EXPECT(used.size() > 200);
  }
}

// Tiny areas, whose products are rounded coarsely, and one place for all.
TFO_TEST(Nms, CpuDegenerateBins) {
  Problem<float> p = MakeProblem<float>(5000, BoxFormat::kXyxy, 6);
  ExpectReference(p, testing::ThreadedCpu(1));  // the range overflows
  for (float& c : p.boxes) c *= 1e-21f;
  ExpectReference(p, testing::ThreadedCpu(1));
  for (size_t i = 0; i < p.boxes.size(); ++i) p.boxes[i] = i % 4 < 2 ? 1 : 2;
  p.max_outputs = 2;
  ExpectReference(p, testing::ThreadedCpu(1));
  p.boxes.assign(p.boxes.size(), 4);
  p.max_outputs = 50;
  ExpectReference(p, testing::ThreadedCpu(1));
}

TFO_TEST(Nms, SortByKeyIsStable) {
  for (int64_t n : {0, 1, 50, 95, 96, 5000}) {
    std::mt19937_64 engine(n);
    std::vector<Ranked<uint64_t>> items(n), buffer(n);
    for (int64_t i = 0; i < n; ++i) {
      items[i] = {engine() & 0xFF000000FF000001, static_cast<int32_t>(i)};
    }
    std::vector<Ranked<uint64_t>> expected = items;
    std::stable_sort(
        expected.begin(), expected.end(),
        [](const auto& a, const auto& b) { return a.key < b.key; });
    const auto* const sorted = SortByKey(items.data(), buffer.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      TFO_EXPECT(sorted[i].key == expected[i].key &&
                 sorted[i].index == expected[i].index);
    }
  }
}

// Emulated kernels are slow, so this covers a few sizes only.
TFO_CUDA_TEST(Nms, CudaOptions) {
  for (int64_t n : {0, 1, 300}) {
    ExpectOptionsWork<float>(Gpu{}, n, 30);
  }
  ExpectOptionsWork<double>(Gpu{}, 70, 30);
}
TFO_CUDA_TEST(Nms, CudaGroups) {
  ExpectGroupsWork<float>(Gpu{}, 300, 40);
  ExpectGroupsWork<double>(Gpu{}, 130, 40);
}
// Sizes around a word of boxes, a tile of the sort, which is also a chunk of
// masks, and more.
TFO_CUDA_TEST(Nms, CudaChunks) {
  for (int64_t n : {31, 32, 33, 1023, 1024, 1025, 2300}) {
    Problem<float> p = MakeProblem<float>(n, BoxFormat::kXyxy, 12);
    ExpectReference(p, Gpu{});
    p.max_outputs = 25;  // in the first chunk
    ExpectReference(p, Gpu{});
  }
}
// Each box suppresses the next one.
TFO_CUDA_TEST(Nms, CudaChains) {
  Problem<float> p = MakeProblem<float>(70, BoxFormat::kXyxy, 12);
  for (size_t i = 0; i < p.scores.size(); ++i) {
    const float x = 0.3f * i;
    const float box[] = {x, 0, x + 1, 1};
    std::copy(box, box + 4, &p.boxes[4 * i]);
    p.scores[i] = 1.f / (1 + i);
  }
  ExpectReference(p, Gpu{});
}

void TimeNms(int64_t count, int64_t num_groups) {
  const int64_t n = testing::BenchmarkSize(count);
  const auto boxes = testing::BenchmarkBoxes(n);
  const auto scores = testing::BenchmarkScores(n);
  GpuVector<int64_t> groups(n);
  for (int64_t i = 0; i < n && num_groups > 0; ++i) {
    groups[i] = i * 37 % num_groups;
  }
  GpuVector<int32_t> kept(n), num_kept(1);
  NmsArgs<float> args = {
      n,    BoxFormat::kXyxy, boxes.data(), scores.data(), {},
      0.5f, std::nanf(""),    -1,           kept.data(),   num_kept.data()};
  if (num_groups > 0) args.groups.ids64 = groups.data();
  testing::TimeOnGpu(
      testing::Text("float32 nms ", n, ", ", num_groups, " groups"), 24 * n,
      NmsScratchBytes(args), [&](const Gpu& gpu) { return Nms(gpu, args); });
}
TFO_BENCHMARK(Nms, Boxes) {
  TimeNms(1000, 0);
  TimeNms(5000, 0);
  TimeNms(20000, 0);
  TimeNms(10000, 80);
}

}  // namespace
}  // namespace tfo
