// The averaging ops on the CPU against their definition, at every level and for
// several thread counts. Python's tests compare with NumPy and other libraries'
// definitions.
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"

#include <cstring>

#include "tensorflow_ops/detection/cc/kernels/roi_average_reference.h"

namespace tfo {
namespace {

using testing::AverageProblem;
using testing::WorstError;

// Sums are in float, of some hundred terms.
template <typename T>
constexpr double kTolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;

template <typename T>
struct Result {
  std::vector<T> output;
  std::vector<std::vector<T>> d_maps;
  std::vector<Coordinate<T>> d_boxes;
};

template <typename T>
Result<T> Run(const AverageProblem<T>& problem, int threads) {
  const Cpu cpu = testing::ThreadedCpu(threads);
  Result<T> result;
  const T garbage = Narrow<T>(77);
  result.output.assign(problem.OutputSize(), garbage);
  std::vector<T*> d_maps;
  for (const auto& map : problem.maps) {
    result.d_maps.emplace_back(map.size(), garbage);
  }
  for (auto& d_map : result.d_maps) d_maps.push_back(d_map.data());
  const auto maps = problem.Maps();
  const auto boxes = problem.AllBoxes();
  TFO_EXPECT(RoiAverage(cpu, problem.args, boxes, maps.data(),
                        result.output.data()) == nullptr);
  TFO_EXPECT(RoiAverageGrad(cpu, problem.args, boxes, problem.d_output.data(),
                            d_maps.data()) == nullptr);
  if (problem.args.bins == RoiBins::kSamples) {
    result.d_boxes.assign(problem.boxes.size(), 77);
    TFO_EXPECT(RoiAverageBoxesGrad(cpu, problem.args, boxes,
                                   problem.d_output.data(), maps.data(),
                                   result.d_boxes.data()) == nullptr);
  }
  return result;
}

template <typename V>
bool SameBits(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() &&
         (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

template <typename T>
void Check(const AverageProblem<T>& problem) {
  const auto expected = testing::ReferenceAverage(problem);
  const Result<T> actual = Run(problem, 1);
  TFO_EXPECT(WorstError<T>(actual.output, expected.output) < kTolerance<T>);
  for (size_t l = 0; l < problem.maps.size(); ++l) {
    TFO_EXPECT(WorstError<T>(actual.d_maps[l], expected.d_maps[l]) <
               kTolerance<T>);
  }
  if (!actual.d_boxes.empty()) {
    // Sums over all bins and channels.
    const double terms = problem.args.channels + 10.0;
    TFO_EXPECT(WorstError<Coordinate<T>>(actual.d_boxes, expected.d_boxes) <
               kTolerance<T> * terms);
  }
  for (int threads : {2, 3, 7}) {
    const Result<T> other = Run(problem, threads);
    TFO_EXPECT(SameBits(actual.output, other.output));
    for (size_t l = 0; l < problem.maps.size(); ++l) {
      TFO_EXPECT(SameBits(actual.d_maps[l], other.d_maps[l]));
    }
    TFO_EXPECT(SameBits(actual.d_boxes, other.d_boxes));
  }
}

template <typename T>
void CheckAll(RoiBins bins, RoiSampling sampling, RoiChannels order,
              int64_t channels, int levels = 1) {
  for (bool channels_first : {false, true}) {
    Check(testing::MakeAverageProblem<T>(bins, sampling, order, channels,
                                         channels_first, levels));
  }
}

TFO_TEST(RoiAverage, SamplesAsDefined) {
  for (const RoiSampling sampling :
       {RoiSampling{2, true}, {0, true}, {3, false}, {0, false}}) {
    CheckAll<float>(RoiBins::kSamples, sampling, RoiChannels::kAll, 37);
    CheckAll<double>(RoiBins::kSamples, sampling, RoiChannels::kAll, 5);
    CheckAll<Half>(RoiBins::kSamples, sampling, RoiChannels::kAll, 19);
    CheckAll<BFloat16>(RoiBins::kSamples, sampling, RoiChannels::kAll, 3);
  }
}

TFO_TEST(RoiAverage, ManyChannels) {  // several blocks of them
  const RoiSampling sampling = {2, true};
  CheckAll<float>(RoiBins::kSamples, sampling, RoiChannels::kAll, 300);
  CheckAll<double>(RoiBins::kSamples, sampling, RoiChannels::kAll, 139);
  CheckAll<BFloat16>(RoiBins::kSamples, sampling, RoiChannels::kAll, 530);
}

TFO_TEST(RoiAverage, PositionSensitive) {
  for (RoiChannels order :
       {RoiChannels::kChannelMajor, RoiChannels::kBinMajor}) {
    for (RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
      CheckAll<float>(bins, {0, true}, order, 21);
      CheckAll<double>(bins, {2, true}, order, 10);
      CheckAll<Half>(bins, {2, true}, order, 16);
      CheckAll<BFloat16>(bins, {0, true}, order, 3);
    }
  }
}

TFO_TEST(RoiAverage, Pyramid) {
  CheckAll<float>(RoiBins::kSamples, {2, true}, RoiChannels::kAll, 18, 3);
  CheckAll<BFloat16>(RoiBins::kSamples, {0, false}, RoiChannels::kAll, 18, 2);
}

TFO_TEST(RoiAverage, NothingToDo) {
  for (const int64_t none : {0, 1, 2, 3}) {
    auto problem = testing::MakeAverageProblem<float>(
        RoiBins::kSamples, {2, true}, RoiChannels::kAll, 4, none % 2 == 1);
    if (none < 2) {
      problem.boxes.clear();
      problem.box_indices.clear();
    } else {  // a map of no rows but wide beyond any memory
      problem.args.levels[0].height = 0;
      problem.args.levels[0].width = (int64_t{1} << 31) - 1;
      problem.maps[0].clear();
    }
    const auto result = Run(problem, 2);
    for (float v : result.output) TFO_EXPECT_EQ(v, 0.0f);
    for (float v : result.d_maps[0]) TFO_EXPECT_EQ(v, 0.0f);
  }
}

// NaN in a pixel of no weight does not count; in one of weight it does.
TFO_TEST(RoiAverage, NanWhereItCounts) {
  for (bool channels_first : {false, true}) {
    AverageProblem<float> problem;
    problem.args = {};
    problem.args.batch = problem.args.channels = 1;
    problem.args.channels_first = channels_first;
    problem.args.grid = {1, 1};
    problem.args.sampling = {1, true};
    problem.args.num_levels = 1;
    problem.args.levels[0] = {4, 4, 1.0f, 0};
    problem.maps = {std::vector<float>(16, 2.0f)};
    problem.boxes = {1, 1, 2, 2};  // one sample, on pixel (1, 1)
    problem.box_indices = {0};
    problem.d_output = {1};
    problem.maps[0][2] = problem.maps[0][6] = problem.maps[0][9] = NAN;
    const auto without = Run(problem, 1);
    TFO_EXPECT_EQ(without.output[0], 2.0f);
    problem.maps[0][5] = NAN;
    TFO_EXPECT(std::isnan(Run(problem, 1).output[0]));
  }
}

}  // namespace
}  // namespace tfo
