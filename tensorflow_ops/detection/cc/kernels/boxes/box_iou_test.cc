// Compares box_iou and box_iou_loss with the definition in long double, and
// their gradients with differences of it: on the CPU at every level and for
// several thread counts, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensorflow_ops/core/cc/testing/args_testing.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::ComputeOn;
using testing::GpuVector;
using testing::Tensors;

using Real = long double;

Real Positive(Real x) { return x > 0 ? x : 0; }
Real RatioOf(Real n, Real d) { return d == 0 ? 0 : n / d; }

// The definition in box_iou.h. If *alpha is not negative, it is alpha.
Real Reference(BoxMetric metric, const Real* a, const Real* b, Real* alpha) {
  Real side[2][2], hull[2], shared = 1, distance = 0;
  for (int axis = 0; axis < 2; ++axis) {
    side[0][axis] = Positive(a[axis + 2] - a[axis]);
    side[1][axis] = Positive(b[axis + 2] - b[axis]);
    hull[axis] = Positive(std::max(a[axis + 2], b[axis + 2]) -
                          std::min(a[axis], b[axis]));
    shared *= Positive(std::min(a[axis + 2], b[axis + 2]) -
                       std::max(a[axis], b[axis]));
    const Real offset = (b[axis] + b[axis + 2] - a[axis] - a[axis + 2]) / 2;
    distance += offset * offset;
  }
  const Real uni = side[0][0] * side[0][1] + side[1][0] * side[1][1] - shared;
  const Real iou = RatioOf(shared, uni), area = hull[0] * hull[1];
  if (metric == BoxMetric::kIou) return iou;
  if (metric == BoxMetric::kGiou) return iou - RatioOf(area - uni, area);
  const Real diou =
      iou - RatioOf(distance, hull[0] * hull[0] + hull[1] * hull[1]);
  if (metric == BoxMetric::kDiou) return diou;
  const Real angle =
      std::atan2(side[0][0], side[0][1]) - std::atan2(side[1][0], side[1][1]);
  const Real v = 4 / (M_PIl * M_PIl) * angle * angle;
  if (*alpha < 0) *alpha = RatioOf(v, 1 - iou + v);
  return diou - *alpha * v;
}

// A box of a tensor as (x1, y1, x2, y2). Returns whether it is finite.
bool Read(const double* from, bool yxyx, Real* box) {
  bool finite = true;
  for (int i = 0; i < 4; ++i) {
    box[i] = from[yxyx ? i ^ 1 : i];
    finite &= std::isfinite(box[i]);
  }
  return finite;
}

template <typename Spec>
Real ReferenceOf(const Spec& s, const double* a, const double* b) {
  Real box1[4], box2[4], alpha = -1;
  const bool yxyx = s.format == BoxFormat::kYxyx;
  if (!Read(a, yxyx, box1) || !Read(b, yxyx, box2)) return NAN;
  return Reference(s.metric, box1, box2, &alpha);
}

// The gradient to the numbers of a. Returns the size of a or, of a point, of b:
// its inverse is the unit of the gradient's error.
template <typename Spec>
Real ReferenceGrad(const Spec& s, const double* a, const double* b,
                   Real* grad) {
  const bool yxyx = s.format == BoxFormat::kYxyx;
  Real box1[4], box2[4], alpha = -1, size = 0;
  std::fill(grad, grad + 4, 0);
  if (!Read(a, yxyx, box1) || !Read(b, yxyx, box2)) return 1;
  for (const Real* const box : {box1, box2}) {
    if (size > 0) break;
    size = Positive(std::max(box[2] - box[0], box[3] - box[1]));
  }
  if (size == 0) size = 1;
  Reference(s.metric, box1, box2, &alpha);
  for (int i = 0; i < 4; ++i) {
    Real up[4], down[4];
    std::copy(box1, box1 + 4, up);
    std::copy(box1, box1 + 4, down);
    const Real step = size * 1e-9L;
    up[i] += step;
    down[i] -= step;
    grad[yxyx ? i ^ 1 : i] = (Reference(s.metric, up, box2, &alpha) -
                              Reference(s.metric, down, box2, &alpha)) /
                             (2 * step);
  }
  return size;
}

// `parts` name the value.
template <typename C, typename... Parts>
void ExpectValue(Real actual, Real expected, Real unit, const Parts&... parts) {
  const Real tolerance = std::is_same_v<C, float> ? 4e-6L : 1e-8L;
  if (std::isnan(expected) ? std::isnan(actual)
                           : std::abs(actual - expected) <=
                                 tolerance * (unit + std::abs(expected))) {
    return;
  }
  testing::Fail(
      __FILE__, __LINE__,
      testing::Text(parts..., " is ", actual, ", expected ", expected));
}

constexpr double kSpecial[][4] = {{0.5, 0.5, 0.503, 0.503},
                                  {0, 0, 4, 3},
                                  {4, 0, 8, 3},
                                  {0, 2, 4, 2},
                                  {2, 1, 2, 1},
                                  {2, 1, 2, 5},
                                  {5, 0, 1, 3},
                                  {5, 5, 1, 1},
                                  {0, 0, NAN, 1},
                                  {0, 0, INFINITY, 1},
                                  {-INFINITY, 0, 1, 1},
                                  {-3e38, -3e38, 3e38, 3e38},
                                  {0, 0, 3e38, 1e38},
                                  {0, 0, 1e10, 2e10},
                                  {-1e10, 0, 1e10, 2e10},
                                  {0, 0, 1e-30, 2e-30},
                                  {-1e-31, 0, 1e-30, 1e-30},
                                  {0, 0, 3e-37, 5},
                                  {-1e-36, 0, 6e-37, 5},
                                  {0, 0, 1e-200, 2e-200},
                                  {-1e300, 0, 1e300, 1e300},
                                  {0, 0, 4, 3},
                                  {1000, 1000, 1003, 1003}};
constexpr int64_t kNumSpecial = std::size(kSpecial);

// Special boxes, unless they should be regular, then random ones.
template <typename C>
GpuVector<C> MakeBoxes(int64_t count, uint32_t seed, bool regular) {
  GpuVector<C> boxes;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> place(0, 8), length(0.3f, 5);
  for (int64_t i = 0; i < count; ++i) {
    if (!regular && i < kNumSpecial) {
      for (const double v : kSpecial[(i + seed) % kNumSpecial]) {
        boxes.push_back(static_cast<C>(v));
      }
      continue;
    }
    const float x = place(random), y = place(random);
    for (const float v : {x, y, x + length(random), y + length(random)}) {
      boxes.push_back(v);
    }
  }
  return boxes;
}

// Is the metric not continuous, or do differences not resolve its gradient? The
// angle of a point's diagonal jumps, and the others where the hull is 0; steps
// for a large box are larger than a small one, those for a long box wider than
// a thin one.
bool IsRough(BoxMetric metric, const double* a, const double* b) {
  const auto side = [](const double* box) {
    return std::max(box[2] - box[0], box[3] - box[1]);
  };
  const auto is_thin = [](const double* box) {
    const double w = box[2] - box[0], h = box[3] - box[1];
    return w != 0 && h != 0 &&
           (std::abs(w) < 1e-8 * std::abs(h) ||
            std::abs(h) < 1e-8 * std::abs(w));
  };
  if (is_thin(a) || is_thin(b)) return true;
  const double size1 = side(a), size2 = side(b);
  if (size1 > 1e8 * size2 || size2 > 1e8 * size1) return true;
  const bool has_hull = std::max(a[2], b[2]) > std::min(a[0], b[0]) &&
                        std::max(a[3], b[3]) > std::min(a[1], b[1]);
  return (metric != BoxMetric::kIou && !has_hull) ||
         (metric == BoxMetric::kCiou && (size1 <= 0 || size2 <= 0));
}

template <typename C>
Tensors PairTensors(const BoxIouSpec& s, bool regular) {
  Tensors tensors(
      {{"...", s.batch}, {"boxes1", s.rows}, {"boxes2", s.columns}});
  tensors.Set("boxes1", MakeBoxes<C>(s.batch * s.rows, 1, regular));
  tensors.Set("boxes2", MakeBoxes<C>(s.batch * s.columns, 4, regular));
  auto d_iou = testing::RandomOnGpu<C>(s.batch * s.rows * s.columns, 3);
  for (size_t i = 0; i < d_iou.size(); i += 3) d_iou[i] = 0;
  tensors.Set("d_iou", d_iou);
  return tensors;
}

// Compares every step-th value.
template <typename C, typename Device>
void CheckValues(const Device& device, const BoxIouSpec& s, bool regular,
                 int64_t step = 1, const testing::Caller& caller = {}) {
  const Tensors tensors = PairTensors<C>(s, regular);
  const testing::Case of_test(caller, tensors.SizesText());
  Tensors wide = tensors.InDouble();
  const auto a = Bound<BoxIouArgs<double>>(s, &wide);
  for (const Tensors& r :
       ComputeOn(device, tensors, [&](const auto& on, Tensors* t) {
         TFO_EXPECT_RUNS(BoxIou(on, Bound<BoxIouArgs<C>>(s, t)));
       })) {
    const auto& iou = r.Get<C>("iou");
    for (size_t i = 0; i < iou.size(); i += step) {
      const int64_t row = i / s.columns;
      const int64_t column = row / s.rows * s.columns + i % s.columns;
      ExpectValue<C>(iou[i],
                     ReferenceOf(s, a.boxes1 + 4 * row, a.boxes2 + 4 * column),
                     1, "metric of boxes ", row, " and ", column);
    }
  }
}

template <typename C, typename Device>
void CheckGrads(const Device& device, const BoxIouSpec& s,
                const testing::Caller& caller = {}) {
  const Tensors tensors = PairTensors<C>(s, /*regular=*/true);
  const testing::Case of_test(caller, tensors.SizesText());
  Tensors wide = tensors.InDouble();
  const auto a = Bound<BoxIouGradArgs<double>>(s, &wide);
  const auto results =
      ComputeOn(device, tensors, [&](const auto& on, Tensors* t) {
        TFO_EXPECT_RUNS(BoxIouGrad(on, Bound<BoxIouGradArgs<C>>(s, t)));
      });
  for (const bool second : {false, true}) {
    const int64_t mine = second ? s.columns : s.rows;
    const int64_t others = second ? s.rows : s.columns;
    const char* const name = second ? "d_boxes2" : "d_boxes1";
    for (int64_t i = 0; i < s.batch * mine; ++i) {
      Real expected[4] = {}, unit = 1;
      for (int64_t k = i / mine * others; k < (i / mine + 1) * others; ++k) {
        const int64_t row = second ? k : i, column = second ? i : k;
        const double* const box1 = a.boxes1 + 4 * row;
        const double* const box2 = a.boxes2 + 4 * column;
        const Real weight = a.d_iou[row * s.columns + column % s.columns];
        Real grad[4];
        ReferenceGrad(s, second ? box2 : box1, second ? box1 : box2, grad);
        for (int c = 0; c < 4; ++c) {
          expected[c] += weight * grad[c];
          unit += std::abs(weight * grad[c]);
        }
      }
      for (const Tensors& r : results) {
        for (int c = 0; c < 4; ++c) {
          ExpectValue<C>(r.Get<C>(name)[4 * i + c], expected[c], unit, name,
                         "[", i, ", ", c, "]");
        }
      }
    }
  }
}

// Calls body(metric, format) for all that have gradients.
template <typename Body>
void ForOptions(const Body& body) {
  for (const auto& [mode, metric] : kBoxMetrics) {
    for (const auto& [box_format, format] : kCornerFormats) {
      const testing::Case of_options({}, mode, ", ", box_format);
      body(metric, format);
    }
  }
}

template <typename C, typename Device>
void CheckPairs(const Device& device) {
  ForOptions([&](BoxMetric metric, BoxFormat format) {
    CheckValues<C>(device, {metric, format, 2, 19, 37}, /*regular=*/false);
    CheckGrads<C>(device, {metric, format, 2, 11, 70});
  });
  for (const auto& [batch, rows, columns] : std::vector<std::array<int64_t, 3>>{
           {0, 2, 2}, {2, 0, 3}, {2, 3, 0}, {1, 1, 1}, {1, 70, 1}}) {
    const BoxIouSpec s = {BoxMetric::kGiou, BoxFormat::kXyxy, batch, rows,
                          columns};
    CheckValues<C>(device, s, /*regular=*/true);
    CheckGrads<C>(device, s);
  }
}
TFO_DEVICE_TEST(BoxIou, FloatPairs) { CheckPairs<float>(device); }
TFO_DEVICE_TEST(BoxIou, DoublePairs) { CheckPairs<double>(device); }
TFO_TEST(BoxIou, StreamedRowsThatStartAnywhere) {
  CheckValues<float>(Cpu(), {BoxMetric::kCiou, BoxFormat::kXyxy, 1, 2200, 2003},
                     /*regular=*/true, /*step=*/101);
}

// Gradients are half of those of the metric.
template <typename C>
Tensors LossTensors(const GpuVector<C>& boxes1, const GpuVector<C>& boxes2) {
  const int64_t count = boxes1.size() / 4;
  Tensors tensors({{"...", count}});
  tensors.Set("boxes1", boxes1);
  tensors.Set("boxes2", boxes2);
  tensors.Set("d_loss", GpuVector<C>(count, C(-0.5)));
  return tensors;
}
template <typename C, typename Device>
std::vector<Tensors> LossResults(const Device& device, const BoxIouLossSpec& s,
                                 const Tensors& tensors) {
  return ComputeOn(device, tensors, [&](const auto& on, Tensors* t) {
    TFO_EXPECT_RUNS(BoxIouLoss(on, Bound<BoxIouLossArgs<C>>(s, t)));
    TFO_EXPECT_RUNS(BoxIouLossGrad(on, Bound<BoxIouLossGradArgs<C>>(s, t)));
  });
}

// Boxes of every kind.
template <typename C, typename Device>
void CheckLoss(const Device& device) {
  const int64_t count = kNumSpecial * kNumSpecial + 30;
  const auto some = MakeBoxes<C>(kNumSpecial, 0, false);
  auto boxes1 = MakeBoxes<C>(count, 8, true);
  auto boxes2 = MakeBoxes<C>(count, 9, true);
  for (int64_t i = 0; i < kNumSpecial * kNumSpecial; ++i) {
    std::copy_n(&some[i / kNumSpecial * 4], 4, &boxes1[4 * i]);
    std::copy_n(&some[i % kNumSpecial * 4], 4, &boxes2[4 * i]);
  }
  const Tensors tensors = LossTensors(boxes1, boxes2),
                wide = tensors.InDouble();
  ForOptions([&](BoxMetric metric, BoxFormat format) {
    const BoxIouLossSpec s = {metric, format, count};
    for (const Tensors& r : LossResults<C>(device, s, tensors)) {
      for (int64_t i = 0; i < count; ++i) {
        const double* const a = &wide.Get<double>("boxes1")[4 * i];
        const double* const b = &wide.Get<double>("boxes2")[4 * i];
        ExpectValue<C>(1 - r.Get<C>("loss")[i], ReferenceOf(s, a, b), 1,
                       "metric of pair ", i);
        for (const bool second : {false, true}) {
          const char* const name = second ? "d_boxes2" : "d_boxes1";
          Real grad[4];
          const Real size =
              ReferenceGrad(s, second ? b : a, second ? a : b, grad);
          for (int c = 0; c < 4; ++c) {
            const Real d = 2 * r.Get<C>(name)[4 * i + c];
            if (IsRough(metric, a, b)) {
              TFO_EXPECT(std::isfinite(d));
            } else {
              ExpectValue<C>(d, grad[c], 4 / size, "2 ", name, "[", i, ", ", c,
                             "]");
            }
          }
        }
      }
    }
  });
}
TFO_DEVICE_TEST(BoxIou, FloatLoss) { CheckLoss<float>(device); }
TFO_DEVICE_TEST(BoxIou, DoubleLoss) { CheckLoss<double>(device); }

// No epsilon: a perfect box has loss 0 and gradient 0, also one of 3 pixels in
// 1000, and of any size.
template <typename C, typename Device>
void CheckPerfectBoxes(const Device& device) {
  GpuVector<C> boxes = MakeBoxes<C>(100, 5, true);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const C scales[] = {C(1e-3), C(1e-30), C(1e-20), C(1e19), C(1e37)};
    boxes[i] = boxes[i] * scales[i / 4 % 5] + (i / 4 % 5 == 0 ? C(0.1) : C(0));
  }
  const Tensors tensors = LossTensors(boxes, boxes);
  for (const auto& [mode, metric] : kBoxMetrics) {
    const BoxIouLossSpec s = {metric, BoxFormat::kXyxy, 100};
    for (const Tensors& r : LossResults<C>(device, s, tensors)) {
      for (const char* const name : {"loss", "d_boxes1", "d_boxes2"}) {
        for (const C value : r.Get<C>(name)) TFO_EXPECT_EQ(value, C(0));
      }
    }
  }
}
TFO_DEVICE_TEST(BoxIou, PerfectBoxes) {
  CheckPerfectBoxes<float>(device);
  CheckPerfectBoxes<double>(device);
}

GpuVector<float> BenchmarkBoxes(int64_t n, uint32_t seed) {
  auto boxes = testing::RandomOnGpu<float>(4 * n, seed);
  for (int64_t i = 0; i < n; ++i) {
    boxes[4 * i + 2] = boxes[4 * i] + 1;
    boxes[4 * i + 3] = boxes[4 * i + 1] + 1;
  }
  return boxes;
}
TFO_BENCHMARK(BoxIou, Pairs) {
  const int64_t n = testing::BenchmarkSize(2000);
  Tensors tensors({{"...", 1}, {"boxes1", n}, {"boxes2", n}});
  tensors.Set("boxes1", BenchmarkBoxes(n, 1));
  tensors.Set("boxes2", BenchmarkBoxes(n, 2));
  for (const auto& [mode, metric] : kBoxMetrics) {
    const BoxIouSpec s = {metric, BoxFormat::kXyxy, 1, n, n};
    const auto args = Bound<BoxIouArgs<float>>(s, &tensors);
    testing::TimeOnGpu(
        testing::Text("float32 box_iou [", n, ", ", n, "] ", mode),
        4 * (n * n + 8 * n), 0,
        [&](const Gpu& gpu) { return BoxIou(gpu, args); });
  }
}
TFO_BENCHMARK(BoxIou, Loss) {
  const int64_t n = testing::BenchmarkSize(1'000'000);
  Tensors tensors = LossTensors(BenchmarkBoxes(n, 1), BenchmarkBoxes(n, 2));
  for (const auto& [mode, metric] : {kBoxMetrics[1], kBoxMetrics[3]}) {
    const BoxIouLossSpec s = {metric, BoxFormat::kXyxy, n};
    const auto args = Bound<BoxIouLossArgs<float>>(s, &tensors);
    const auto grad = Bound<BoxIouLossGradArgs<float>>(s, &tensors);
    testing::TimeOnGpu(testing::Text("float32 box_iou_loss ", n, " ", mode),
                       36 * n, 0,
                       [&](const Gpu& gpu) { return BoxIouLoss(gpu, args); });
    testing::TimeOnGpu(
        testing::Text("float32 box_iou_loss_grad ", n, " ", mode), 68 * n, 0,
        [&](const Gpu& gpu) { return BoxIouLossGrad(gpu, grad); });
  }
}

}  // namespace
}  // namespace tfo
