// Compares multiclass_nms with plain loops: on the CPU at every level and for
// several thread counts, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"

#include "tensorflow_ops/detection/cc/kernels/nms/nms_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

template <typename T>
using Problem = testing::NmsProblem<MulticlassNmsArgs, T>;

template <typename T>
Problem<T> MakeProblem(int64_t images, int64_t num_boxes, int64_t classes,
                       BoxFormat format, bool boxes_per_class) {
  Problem<T> p;
  p.args = {images,      num_boxes, classes, format,  boxes_per_class,
            nullptr,     nullptr,   T(0.4),  T(0.1),  10,
            int64_t{-1}, nullptr,   nullptr, nullptr, nullptr};
  p.boxes = testing::MakeBoxes<T>(
      images * num_boxes * (boxes_per_class ? classes : 1), format, 30, 5);
  p.scores = testing::MakeScores<T>(images * num_boxes * classes, 6);
  return p;
}

struct Outputs {
  GpuVector<int32_t> indices, class_ids, positions, counts;

  explicit Outputs(int64_t images, int64_t max_outputs, int32_t value)
      : indices(images * max_outputs, value),
        class_ids(images * max_outputs, value),
        positions(images * max_outputs, value),
        counts(images, value) {}
  // Makes the args write here.
  template <typename T>
  void Receive(MulticlassNmsArgs<T>* args) {
    args->indices = indices.data();
    args->class_ids = class_ids.data();
    args->positions = positions.data();
    args->counts = counts.data();
  }
};

struct Found {
  double score;
  int32_t k, c;
};

template <typename T>
std::vector<Found> ReferenceOf(const MulticlassNmsArgs<T>& args,
                               int64_t image) {
  std::vector<Found> all;
  const T* const scores = args.scores + image * args.num_boxes * args.classes;
  const T* const boxes = args.BoxesOf(image);
  const auto better = [](const Found& a, const Found& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.k != b.k ? a.k < b.k : a.c < b.c;
  };
  for (int32_t c = 0; c < args.classes; ++c) {
    std::vector<Found> candidates, kept;
    for (int32_t k = 0; k < args.num_boxes; ++k) {
      const T score = scores[k * args.classes + c];
      if (score > args.score_threshold) candidates.push_back({score, k, c});
    }
    std::sort(candidates.begin(), candidates.end(), better);
    const auto box_of = [&](const Found& f) {
      return args.boxes_per_class ? f.k * args.classes + c : f.k;
    };
    for (const Found& f : candidates) {
      if (static_cast<int64_t>(kept.size()) == args.max_outputs_per_class) {
        break;
      }
      bool suppressed = false;
      for (const Found& other : kept) {
        suppressed |= testing::PlainOverlap(boxes, box_of(other), box_of(f),
                                            args.format, args.iou_threshold);
      }
      if (!suppressed) kept.push_back(f);
    }
    all.insert(all.end(), kept.begin(), kept.end());
  }
  std::sort(all.begin(), all.end(), better);
  all.resize(std::min<int64_t>(all.size(), args.max_outputs));
  return all;
}

template <typename T, typename Device>
void ExpectReference(const Device& device, const Problem<T>& p) {
  MulticlassNmsArgs<T> args = p.WithInputs();
  Outputs actual(args.images, args.max_outputs, -9);
  Outputs expected(args.images, args.max_outputs, 0);
  expected.indices.assign(expected.indices.size(), -1);
  for (int64_t n = 0; n < args.images; ++n) {
    const std::vector<Found> found = ReferenceOf(args, n);
    expected.counts[n] = found.size();
    for (size_t m = 0; m < found.size(); ++m) {
      const int64_t at = n * args.max_outputs + m;
      expected.indices[at] = found[m].k;
      expected.class_ids[at] = found[m].c;
      expected.positions[at] = found[m].k * args.classes + found[m].c;
    }
  }
  actual.Receive(&args);
  testing::WithScratch(
      device, [&] { return MulticlassNmsScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(MulticlassNms(on, args)); });
  TFO_EXPECT(actual.counts == expected.counts);
  TFO_EXPECT(actual.indices == expected.indices);
  TFO_EXPECT(actual.class_ids == expected.class_ids);
  TFO_EXPECT(actual.positions == expected.positions);
}

// p: with the options that MakeProblem sets.
template <typename T, typename Device>
void ExpectOptionsWork(const Device& device, Problem<T> p) {
  ExpectReference(device, p);
  p.args.max_outputs = 3 * p.args.num_boxes * p.args.classes / 2;
  ExpectReference(device, p);
  p.args.max_outputs_per_class = 2;
  ExpectReference(device, p);
  p.args.max_outputs = 7;
  p.args.score_threshold = T(-5);
  ExpectReference(device, p);
  p.args.max_outputs_per_class = 0;
  ExpectReference(device, p);
  p.args.max_outputs_per_class = 100;
  p.args.iou_threshold = T(1e-3);
  p.args.score_threshold = T(0.9);
  ExpectReference(device, p);
}

template <typename T>
void ExpectCpuOptionsWork(int threads, int64_t num_boxes, int64_t classes) {
  for (BoxFormat format : testing::kBoxFormats) {
    for (bool per_class : {false, true}) {
      ExpectOptionsWork(
          testing::ThreadedCpu(threads),
          MakeProblem<T>(3, num_boxes, classes, format, per_class));
    }
  }
}

template <typename Device>
void ExpectEmptySizesWork(const Device& device) {
  for (int64_t most : {0, 3}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{0, 4, 2}, {2, 0, 3}, {2, 3, 0}, {2, 3, 1}}) {
      Problem<float> p = MakeProblem<float>(sizes[0], sizes[1], sizes[2],
                                            BoxFormat::kXyxy, false);
      p.args.max_outputs = most;
      ExpectReference(device, p);
    }
  }
}

TFO_TEST(MulticlassNms, CpuOptions) {
  for (int threads : {1, 3}) {
    ExpectCpuOptionsWork<float>(threads, 60, 5);
    ExpectCpuOptionsWork<double>(threads, 60, 5);
    ExpectCpuOptionsWork<float>(threads, 250, 1);
  }
}
// Several portions of the scores.
TFO_TEST(MulticlassNms, CpuManyScores) {
  Problem<float> p = MakeProblem<float>(2, 400, 30, BoxFormat::kXyxy, false);
  ExpectReference(testing::ThreadedCpu(2), p);
  p.args.iou_threshold = 1e-3f;
  p.args.max_outputs = 100;
  ExpectReference(testing::ThreadedCpu(2), p);
  p.args.iou_threshold = 0.05f;
  p.args.max_outputs = 400;
  ExpectReference(testing::ThreadedCpu(2), p);
  for (float& score : p.scores) score = score > 0.5f ? 0.7f : 0.2f;
  ExpectReference(testing::ThreadedCpu(2), p);
}
#ifdef __x86_64__
// As on TensorFlow's threads.
TFO_TEST(MulticlassNms, CpuSubnormalScoresWhereTheyAreFlushed) {
  Problem<float> p = MakeProblem<float>(1, 300, 1, BoxFormat::kXyxy, false);
  for (float& score : p.scores) score = 1e-40f;
  p.args.score_threshold = 0;
  p.args.iou_threshold = 1;
  p.args.max_outputs = 100;
  Outputs outputs(1, 100, -7);
  MulticlassNmsArgs<float> args = p.WithInputs();
  outputs.Receive(&args);
  const unsigned mode = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(mode | 0x8040);  // results and operands
  const char* error = MulticlassNms(testing::ThreadedCpu(1), args);
  __builtin_ia32_ldmxcsr(mode);
  TFO_EXPECT(error == nullptr);
  TFO_EXPECT_EQ(outputs.counts[0], 100);
}
#endif
TFO_TEST(MulticlassNms, CpuEmptySizes) {
  ExpectEmptySizesWork(testing::ThreadedCpu(2));
}

// Emulated kernels are slow: each format once.
TFO_CUDA_TEST(MulticlassNms, CudaOptions) {
  ExpectOptionsWork(Gpu{},
                    MakeProblem<float>(2, 40, 3, BoxFormat::kXyxy, false));
  ExpectOptionsWork(Gpu{},
                    MakeProblem<float>(2, 20, 2, BoxFormat::kYxyx, true));
  ExpectOptionsWork(Gpu{},
                    MakeProblem<double>(2, 20, 2, BoxFormat::kRotated, false));
  ExpectReference(Gpu{},
                  MakeProblem<float>(2, 20, 2, BoxFormat::kRotated, true));
}
// More classes than blocks and than threads of a block.
TFO_CUDA_TEST(MulticlassNms, CudaManyClasses) {
  ExpectReference(Gpu{}, MakeProblem<float>(1, 9, 300, BoxFormat::kXyxy, true));
}
// Sizes around a word of boxes and a tile of the sort, and more.
TFO_CUDA_TEST(MulticlassNms, CudaManyBoxes) {
  for (int64_t n : {31, 32, 33, 1023, 1024, 1025, 2300}) {
    Problem<float> p = MakeProblem<float>(1, n, 1, BoxFormat::kXyxy, false);
    for (float& score : p.scores) {
      if (!(score > -1)) score = 0.25f;  // all take part
    }
    p.args.score_threshold = -1;
    p.args.max_outputs = n;
    ExpectReference(Gpu{}, p);
    p.args.max_outputs_per_class = n % 2 == 0 ? 32 : 33;
    ExpectReference(Gpu{}, p);
  }
}
TFO_CUDA_TEST(MulticlassNms, CudaEmptySizes) { ExpectEmptySizesWork(Gpu{}); }

TFO_BENCHMARK(MulticlassNms, Detector) {
  const int64_t images = testing::BenchmarkSize(8);
  const int64_t n = testing::BenchmarkSize(1000);
  const int64_t classes = testing::BenchmarkSize(80);
  const auto boxes = testing::BenchmarkBoxes(images * n);
  const auto scores = testing::BenchmarkScores(images * n * classes);
  MulticlassNmsArgs<float> args = {};
  args.images = images;
  args.num_boxes = n;
  args.classes = classes;
  args.boxes = boxes.data();
  args.scores = scores.data();
  args.iou_threshold = 0.5f;
  args.score_threshold = 0.61f;
  args.max_outputs = 100;
  args.max_outputs_per_class = -1;
  Outputs outputs(images, 100, 0);
  outputs.Receive(&args);
  testing::TimeOnGpu(testing::Text("float32 multiclass_nms [", images, ", ", n,
                                   ", ", classes, "]"),
                     4 * (boxes.size() + scores.size()),
                     MulticlassNmsScratchBytes(args),
                     [&](const Gpu& gpu) { return MulticlassNms(gpu, args); });
}

}  // namespace
}  // namespace tfo
