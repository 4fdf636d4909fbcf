// Compares soft_nms with plain loops: on the CPU at every level, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

#include "tensorflow_ops/detection/cc/kernels/nms/nms_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

template <typename T>
using Problem = testing::NmsProblem<SoftNmsArgs, T>;

// Scores with ties among copies of boxes only, so that roundings of decays
// change no order.
template <typename T>
Problem<T> MakeProblem(int64_t n, BoxFormat format, SoftNmsMethod method,
                       bool of_any_size = true) {
  Problem<T> p;
  p.args = {n,      format,  method,      nullptr, nullptr, T(0.5),
            T(0.3), T(0.01), int64_t{-1}, nullptr, nullptr, nullptr};
  p.boxes = testing::MakeBoxes<T>(n, format, 40, 11, of_any_size);
  p.scores = testing::MakeScores<T>(n, 12);
  return p;
}

struct Taken {
  std::vector<int32_t> indices;
  std::vector<double> scores;
};

// In the algorithm's type: every product rounds as there, so that orders agree.
template <typename T>
Taken Reference(const SoftNmsArgs<T>& args) {
  std::vector<T> scores(args.scores, args.scores + args.num_boxes);
  Taken taken;
  while (static_cast<int64_t>(taken.indices.size()) != args.max_outputs) {
    int64_t best = -1;
    for (int64_t i = 0; i < args.num_boxes; ++i) {
      if (scores[i] > args.score_threshold &&
          (best < 0 || scores[i] > scores[best])) {
        best = i;
      }
    }
    if (best < 0) break;
    taken.indices.push_back(best);
    taken.scores.push_back(scores[best]);
    scores[best] = std::numeric_limits<T>::quiet_NaN();
    for (int64_t i = 0; i < args.num_boxes; ++i) {
      const T iou = testing::PlainIou(args.boxes, best, i, args.format);
      if (!(iou > 0)) continue;
      if (args.method == SoftNmsMethod::kGaussian) {
        scores[i] *= std::exp(-(iou * iou) / args.sigma);
      } else if (iou >= args.iou_threshold) {
        scores[i] *= 1 - iou;
      }
    }
  }
  return taken;
}

template <typename T, typename Device>
void ExpectReference(const Device& device, const Problem<T>& p) {
  SoftNmsArgs<T> args = p.WithInputs();
  const Taken expected = Reference(args);
  GpuVector<int32_t> indices(args.num_boxes, -7), count(1, -7);
  GpuVector<T> scores(args.num_boxes);
  args.indices = indices.data();
  args.taken_scores = scores.data();
  args.count = count.data();
  testing::WithScratch(
      device, [&] { return SoftNmsScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(SoftNms(on, args)); });
  TFO_EXPECT_EQ(count[0], static_cast<int32_t>(expected.indices.size()));
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
  for (int32_t m = 0; m < count[0]; ++m) {
    const double e = expected.scores[m], a = static_cast<double>(scores[m]);
    const bool same =
        indices[m] == expected.indices[m] &&
        (a == e || std::abs(a - e) <= tolerance * std::max(1.0, std::abs(e)));
    TFO_EXPECT(same);
    if (!same) return;
  }
}

template <typename T, typename Device>
void ExpectOptionsWork(const Device& device, int64_t n) {
  for (BoxFormat format : testing::kBoxFormats) {
    for (SoftNmsMethod method :
         {SoftNmsMethod::kGaussian, SoftNmsMethod::kLinear}) {
      ExpectReference(device, MakeProblem<T>(n, format, method, false));
      Problem<T> p = MakeProblem<T>(n, format, method);
      ExpectReference(device, p);
      p.args.max_outputs = n / 3;
      ExpectReference(device, p);
      p.args.score_threshold = T(-0.15);
      p.args.max_outputs = 2 * n;
      ExpectReference(device, p);
      p.args.score_threshold = T(0.3);
      p.args.iou_threshold = T(0);
      p.args.sigma = T(0.05);
      ExpectReference(device, p);
      p.args.max_outputs = 0;
      ExpectReference(device, p);
    }
  }
}

TFO_TEST(SoftNms, CpuOptions) {
  for (int64_t n : {0, 1, 17, 200}) {
    ExpectOptionsWork<float>(testing::ThreadedCpu(1), n);
    ExpectOptionsWork<double>(testing::ThreadedCpu(1), n);
  }
}
TFO_CUDA_TEST(SoftNms, CudaOptions) {
  for (int64_t n : {0, 1, 30}) ExpectOptionsWork<float>(Gpu{}, n);
  ExpectOptionsWork<double>(Gpu{}, 20);
}
// More boxes than threads.
TFO_CUDA_TEST(SoftNms, CudaManyBoxes) {
  Problem<float> p =
      MakeProblem<float>(1100, BoxFormat::kXyxy, SoftNmsMethod::kLinear);
  p.args.max_outputs = 20;
  ExpectReference(Gpu{}, p);
}

TFO_BENCHMARK(SoftNms, Boxes) {
  for (const int64_t count : {1000, 5000}) {
    const int64_t n = testing::BenchmarkSize(count);
    const auto boxes = testing::BenchmarkBoxes(n);
    const auto scores = testing::BenchmarkScores(n);
    GpuVector<int32_t> indices(n), num_taken(1);
    GpuVector<float> decayed(n);
    const SoftNmsArgs<float> args = {n,
                                     BoxFormat::kXyxy,
                                     SoftNmsMethod::kGaussian,
                                     boxes.data(),
                                     scores.data(),
                                     0.5f,
                                     0.5f,
                                     0,
                                     -1,
                                     indices.data(),
                                     decayed.data(),
                                     num_taken.data()};
    testing::TimeOnGpu(testing::Text("float32 soft_nms ", n), 28 * n,
                       SoftNmsScratchBytes(args),
                       [&](const Gpu& gpu) { return SoftNms(gpu, args); });
  }
}

}  // namespace
}  // namespace tfo
