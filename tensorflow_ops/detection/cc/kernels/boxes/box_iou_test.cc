// Compares box_iou and box_iou_loss with the definition in long double, and
// their gradients with differences of it: on the CPU at every level and for
// several thread counts, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::kOnCpu;
using testing::kOnGpu;
using testing::Text;
using testing::ToGpu;

using Real = long double;

constexpr BoxMetric kMetrics[] = {BoxMetric::kIou, BoxMetric::kGiou,
                                  BoxMetric::kDiou, BoxMetric::kCiou};
const char* NameOf(BoxMetric metric) {
  constexpr const char* kNames[] = {"iou", "giou", "diou", "ciou"};
  return kNames[static_cast<int>(metric)];
}

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
template <typename C>
bool Read(const C* from, bool yxyx, Real* box) {
  bool finite = true;
  for (int i = 0; i < 4; ++i) {
    box[i] = from[yxyx ? i ^ 1 : i];
    finite &= std::isfinite(box[i]);
  }
  return finite;
}

template <typename C>
Real ReferenceOf(BoxMetric metric, const C* a, const C* b, bool yxyx) {
  Real box1[4], box2[4], alpha = -1;
  if (!Read(a, yxyx, box1) || !Read(b, yxyx, box2)) return NAN;
  return Reference(metric, box1, box2, &alpha);
}

// The gradient to the numbers of a. Returns the size of a or, of a point, of b:
// its inverse is the unit of the gradient's error.
template <typename C>
Real ReferenceGrad(BoxMetric metric, const C* a, const C* b, bool yxyx,
                   Real* grad) {
  Real box1[4], box2[4], alpha = -1, size = 0;
  std::fill(grad, grad + 4, 0);
  if (!Read(a, yxyx, box1) || !Read(b, yxyx, box2)) return 1;
  for (const Real* const box : {box1, box2}) {
    if (size > 0) break;
    size = Positive(std::max(box[2] - box[0], box[3] - box[1]));
  }
  if (size == 0) size = 1;
  Reference(metric, box1, box2, &alpha);
  for (int i = 0; i < 4; ++i) {
    Real up[4], down[4];
    std::copy(box1, box1 + 4, up);
    std::copy(box1, box1 + 4, down);
    const Real step = size * 1e-9L;
    up[i] += step;
    down[i] -= step;
    grad[yxyx ? i ^ 1 : i] = (Reference(metric, up, box2, &alpha) -
                              Reference(metric, down, box2, &alpha)) /
                             (2 * step);
  }
  return size;
}

template <typename C>
bool IsNear(Real actual, Real expected, Real unit) {
  if (std::isnan(expected)) return std::isnan(actual);
  const Real tolerance = std::is_same_v<C, float> ? 4e-6L : 1e-8L;
  return std::abs(actual - expected) <= tolerance * (unit + std::abs(expected));
}

// Boxes of every kind, then random ones.
constexpr int kSpecial = 23;
template <typename C>
GpuVector<C> MakeBoxes(int64_t count, uint32_t seed, bool regular) {
  const std::vector<std::vector<double>> special = {{0.5, 0.5, 0.503, 0.503},
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
  GpuVector<C> boxes;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> place(0, 8), length(0.3f, 5);
  for (int64_t i = 0; i < count; ++i) {
    if (!regular && i < static_cast<int64_t>(special.size())) {
      const auto& box = special[(i + seed) % special.size()];
      for (const double v : box) boxes.push_back(static_cast<C>(v));
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
template <typename C>
bool IsRough(BoxMetric metric, const C* a, const C* b) {
  const auto side = [](const C* box) {
    return std::max(double{box[2]} - box[0], double{box[3]} - box[1]);
  };
  const auto is_thin = [](const C* box) {
    const double w = double{box[2]} - box[0], h = double{box[3]} - box[1];
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
struct Pairs {
  BoxIouSpec args;
  GpuVector<C> boxes1, boxes2, d_iou;

  explicit Pairs(const BoxIouSpec& a, bool regular = false)
      : args(a),
        boxes1(MakeBoxes<C>(a.batch * a.rows, 1, regular)),
        boxes2(MakeBoxes<C>(a.batch * a.columns, 4, regular)),
        d_iou(
            ToGpu(testing::RandomValues<C>(a.batch * a.rows * a.columns, 3))) {
    for (size_t i = 0; i < d_iou.size(); i += 3) d_iou[i] = 0;
  }
  bool IsYxyx() const { return args.format == BoxFormat::kYxyx; }
  template <typename OnDevice>
  void CheckValues(const OnDevice& on_device, int64_t step = 1) const {
    const auto iou = on_device([&](const auto& device) {
      GpuVector<C> to(d_iou.size(), C(-7));
      TFO_EXPECT_RUNS(
          BoxIou<C>(device, {args, boxes1.data(), boxes2.data(), to.data()}));
      return to;
    });
    for (int64_t i = 0; i < static_cast<int64_t>(iou.size()); i += step) {
      const int64_t row = i / args.columns, batch = row / args.rows;
      const int64_t column = batch * args.columns + i % args.columns;
      const Real expected = ReferenceOf(args.metric, &boxes1[4 * row],
                                        &boxes2[4 * column], IsYxyx());
      if (IsNear<C>(iou[i], expected, 1)) continue;
      return testing::Fail(
          __FILE__, __LINE__,
          Text(NameOf(args.metric), " of boxes ", row, " and ", column, " is ",
               iou[i], ", expected ", expected));
    }
  }

  // The gradients to a set of boxes, `other` the other one.
  void CheckGrad(const C* d, bool to_rows) const {
    const int64_t mine = to_rows ? args.rows : args.columns;
    const int64_t others = to_rows ? args.columns : args.rows;
    for (int64_t i = 0; i < args.batch * mine; ++i) {
      Real expected[4] = {}, unit = 1;
      for (int64_t j = 0; j < others; ++j) {
        const int64_t k = i / mine * others + j;
        const int64_t row = to_rows ? i : k;
        const int64_t column = to_rows ? j : i % mine;
        const Real weight = d_iou[row * args.columns + column];
        Real grad[4];
        ReferenceGrad(args.metric, &(to_rows ? boxes1 : boxes2)[4 * i],
                      &(to_rows ? boxes2 : boxes1)[4 * k], IsYxyx(), grad);
        for (int c = 0; c < 4; ++c) {
          expected[c] += weight * grad[c];
          unit += std::abs(weight * grad[c]);
        }
      }
      for (int c = 0; c < 4; ++c) {
        if (IsNear<C>(d[4 * i + c], expected[c], unit)) continue;
        return testing::Fail(
            __FILE__, __LINE__,
            Text("gradient of ", NameOf(args.metric), " to boxes",
                 to_rows ? "1[" : "2[", i, ", ", c, "] is ", d[4 * i + c],
                 ", expected ", expected[c]));
      }
    }
  }
  template <typename OnDevice>
  void CheckGrads(const OnDevice& on_device) const {
    const auto d = on_device([&](const auto& device) {
      GpuVector<C> to(boxes1.size() + boxes2.size(), C(-7));
      TFO_EXPECT_RUNS(BoxIouGrad<C>(
          device, {args, d_iou.data(), boxes1.data(), boxes2.data(), to.data(),
                   to.data() + boxes1.size()}));
      return to;
    });
    CheckGrad(d.data(), true);
    CheckGrad(d.data() + boxes1.size(), false);
  }
};

template <typename C, typename Run>
void CheckPairs(const Run& on_device) {
  for (const BoxMetric metric : kMetrics) {
    for (const BoxFormat format : {BoxFormat::kXyxy, BoxFormat::kYxyx}) {
      const Pairs<C> wild({metric, format, 2, 19, 37});
      wild.CheckValues(on_device);
      const Pairs<C> regular({metric, format, 2, 11, 70}, true);
      regular.CheckGrads(on_device);
    }
  }
  for (const auto& [batch, rows, columns] : std::vector<std::array<int64_t, 3>>{
           {0, 2, 2}, {2, 0, 3}, {2, 3, 0}, {1, 1, 1}, {1, 70, 1}}) {
    const Pairs<C> pairs(
        {BoxMetric::kGiou, BoxFormat::kXyxy, batch, rows, columns}, true);
    pairs.CheckValues(on_device);
    pairs.CheckGrads(on_device);
  }
}

// The loss of boxes of every kind, and its gradient.
template <typename C, typename Run>
void CheckLoss(const Run& on_device) {
  for (const BoxMetric metric : kMetrics) {
    for (const BoxFormat format : {BoxFormat::kXyxy, BoxFormat::kYxyx}) {
      const int64_t count = kSpecial * kSpecial + 30;
      const bool yxyx = format == BoxFormat::kYxyx;
      const auto some = MakeBoxes<C>(kSpecial, 0, false);
      auto boxes1 = MakeBoxes<C>(count, 8, true);
      auto boxes2 = MakeBoxes<C>(count, 9, true);
      for (int64_t i = 0; i < kSpecial * kSpecial; ++i) {
        std::copy_n(&some[i / kSpecial * 4], 4, &boxes1[4 * i]);
        std::copy_n(&some[i % kSpecial * 4], 4, &boxes2[4 * i]);
      }
      const BoxIouLossSpec args = {metric, format, count};
      const GpuVector<C> upstream(count, C(-0.5));
      const auto loss = on_device([&](const auto& device) {
        GpuVector<C> to(count);
        TFO_EXPECT_RUNS(BoxIouLoss<C>(
            device, {args, boxes1.data(), boxes2.data(), to.data()}));
        return to;
      });
      const auto d = on_device([&](const auto& device) {
        GpuVector<C> to(8 * count);
        TFO_EXPECT_RUNS(BoxIouLossGrad<C>(
            device, {args, upstream.data(), boxes1.data(), boxes2.data(),
                     to.data(), to.data() + 4 * count}));
        return to;
      });
      for (int64_t i = 0; i < count; ++i) {
        const C *const a = &boxes1[4 * i], *const b = &boxes2[4 * i];
        const std::string name = Text(NameOf(metric), ", pair ", i);
        if (!IsNear<C>(1 - loss[i], ReferenceOf(metric, a, b, yxyx), 1)) {
          testing::Fail(__FILE__, __LINE__, name);
        }
        for (int side = 0; side < 2; ++side) {
          Real grad[4];
          const Real size =
              ReferenceGrad(metric, side ? b : a, side ? a : b, yxyx, grad);
          const bool is_rough = IsRough(metric, a, b);
          for (int c = 0; c < 4; ++c) {
            const Real value = d[4 * (side * count + i) + c];
            if (is_rough ? std::isfinite(value)
                         : IsNear<C>(2 * value, grad[c], 4 / size)) {
              continue;
            }
            testing::Fail(__FILE__, __LINE__,
                          Text(name, ": gradient ", c, " of ", side, " is ",
                               2 * value, ", expected ", grad[c]));
          }
        }
      }
    }
  }
}

TFO_TEST(BoxIou, FloatPairs) { CheckPairs<float>(kOnCpu); }
TFO_TEST(BoxIou, DoublePairs) { CheckPairs<double>(kOnCpu); }
TFO_TEST(BoxIou, FloatLoss) { CheckLoss<float>(kOnCpu); }
TFO_TEST(BoxIou, DoubleLoss) { CheckLoss<double>(kOnCpu); }
TFO_CUDA_TEST(BoxIou, CudaFloatPairs) { CheckPairs<float>(kOnGpu); }
TFO_CUDA_TEST(BoxIou, CudaDoublePairs) { CheckPairs<double>(kOnGpu); }
TFO_CUDA_TEST(BoxIou, CudaFloatLoss) { CheckLoss<float>(kOnGpu); }
TFO_CUDA_TEST(BoxIou, CudaDoubleLoss) { CheckLoss<double>(kOnGpu); }

TFO_TEST(BoxIou, StreamedRowsThatStartAnywhere) {
  const Pairs<float> pairs({BoxMetric::kCiou, BoxFormat::kXyxy, 1, 2200, 2003},
                           true);
  pairs.CheckValues(kOnCpu, /*step=*/101);
}

// No epsilon: a perfect box has loss 0 and gradient 0, also one of 3 pixels in
// 1000, and of any size.
template <typename C, typename Run>
void CheckPerfectBoxes(const Run& on_device) {
  GpuVector<C> boxes = MakeBoxes<C>(100, 5, true);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const C scales[] = {C(1e-3), C(1e-30), C(1e-20), C(1e19), C(1e37)};
    boxes[i] = boxes[i] * scales[i / 4 % 5] + (i / 4 % 5 == 0 ? C(0.1) : C(0));
  }
  const GpuVector<C> ones(100, C(1));
  for (const BoxMetric metric : kMetrics) {
    const BoxIouLossSpec args = {metric, BoxFormat::kXyxy, 100};
    const auto results = on_device([&](const auto& device) {
      GpuVector<C> to(900, C(-7));
      TFO_EXPECT_RUNS(
          BoxIouLoss<C>(device, {args, boxes.data(), boxes.data(), to.data()}));
      TFO_EXPECT_RUNS(BoxIouLossGrad<C>(
          device, {args, ones.data(), boxes.data(), boxes.data(),
                   to.data() + 100, to.data() + 500}));
      return to;
    });
    for (const C value : results) TFO_EXPECT_EQ(value, C(0));
  }
}
TFO_TEST(BoxIou, PerfectBoxes) {
  CheckPerfectBoxes<float>(kOnCpu);
  CheckPerfectBoxes<double>(kOnCpu);
}
TFO_CUDA_TEST(BoxIou, CudaPerfectBoxes) {
  CheckPerfectBoxes<float>(kOnGpu);
  CheckPerfectBoxes<double>(kOnGpu);
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
  const auto boxes1 = BenchmarkBoxes(n, 1), boxes2 = BenchmarkBoxes(n, 2);
  GpuVector<float> overlaps(n * n);
  for (const BoxMetric metric : kMetrics) {
    testing::TimeOnGpu(
        testing::Text("float32 box_iou [", n, ", ", n, "] ", NameOf(metric)),
        4 * (n * n + 8 * n), 0, [&](const Gpu& gpu) {
          return BoxIou<float>(gpu, {{metric, BoxFormat::kXyxy, 1, n, n},
                                     boxes1.data(),
                                     boxes2.data(),
                                     overlaps.data()});
        });
  }
}
TFO_BENCHMARK(BoxIou, Loss) {
  const int64_t n = testing::BenchmarkSize(1'000'000);
  const auto boxes1 = BenchmarkBoxes(n, 1), boxes2 = BenchmarkBoxes(n, 2);
  const GpuVector<float> d(n, 1);
  GpuVector<float> loss(n), to_boxes1(4 * n), to_boxes2(4 * n);
  for (const BoxMetric metric : {BoxMetric::kGiou, BoxMetric::kCiou}) {
    const BoxIouLossSpec args = {metric, BoxFormat::kXyxy, n};
    testing::TimeOnGpu(
        testing::Text("float32 box_iou_loss ", n, " ", NameOf(metric)), 36 * n,
        0, [&](const Gpu& gpu) {
          return BoxIouLoss<float>(
              gpu, {args, boxes1.data(), boxes2.data(), loss.data()});
        });
    testing::TimeOnGpu(
        testing::Text("float32 box_iou_loss_grad ", n, " ", NameOf(metric)),
        68 * n, 0, [&](const Gpu& gpu) {
          return BoxIouLossGrad<float>(
              gpu, {args, d.data(), boxes1.data(), boxes2.data(),
                    to_boxes1.data(), to_boxes2.data()});
        });
  }
}

}  // namespace
}  // namespace tfo
