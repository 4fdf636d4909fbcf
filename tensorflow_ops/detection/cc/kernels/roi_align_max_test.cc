// roi_align's maximum on the CPU against its definition, at every level and for
// several thread counts.
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"

#include <cstring>

#include "tensorflow_ops/detection/cc/kernels/roi_average_reference.h"

namespace tfo {
namespace {

using testing::AverageProblem;
using testing::WorstError;

template <typename T>
std::vector<T> Forward(const AverageProblem<T>& problem, const T* values,
                       int threads) {
  std::vector<T> output(problem.OutputSize(), Narrow<T>(77));
  TFO_EXPECT(RoiAlignMax(testing::ThreadedCpu(threads), problem.args.roi,
                         problem.args.sampling, problem.maps[0].data(), values,
                         problem.boxes.data(), problem.box_indices.data(),
                         output.data()) == nullptr);
  return output;
}

template <typename T>
std::vector<T> Gradient(const AverageProblem<T>& problem, int threads) {
  std::vector<T> d_map(problem.maps[0].size(), Narrow<T>(77));
  TFO_EXPECT(RoiAlignMaxGrad(testing::ThreadedCpu(threads), problem.args.roi,
                             problem.args.sampling, problem.d_output.data(),
                             problem.maps[0].data(), problem.boxes.data(),
                             problem.box_indices.data(),
                             d_map.data()) == nullptr);
  return d_map;
}

template <typename T>
void Check(const AverageProblem<T>& problem) {
  const double tolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;
  const auto expected = testing::ReferenceMax(problem);
  const auto output = Forward(problem, problem.maps[0].data(), 1);
  const auto d_map = Gradient(problem, 1);
  TFO_EXPECT(WorstError<T>(output, expected.output) < tolerance);
  TFO_EXPECT(WorstError<T>(d_map, expected.d_maps[0]) < tolerance);
  // The gradient's gradient is its transpose: <g, F v> = <F' g, v>.
  const auto values = testing::RandomValues<T>(d_map.size(), 21);
  const auto read = Forward(problem, values.data(), 1);
  double forward = 0, backward = 0, size = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    forward += double(Widen(read[i])) * Widen(problem.d_output[i]);
  }
  for (size_t i = 0; i < d_map.size(); ++i) {
    backward += expected.d_maps[0][i] * Widen(values[i]);
    size += std::abs(expected.d_maps[0][i] * Widen(values[i]));
  }
  TFO_EXPECT(std::abs(forward - backward) <=
             (sizeof(T) == 2 ? 0x1p-8 : 1e-6) * size);
  for (int threads : {2, 5}) {
    const auto again = Forward(problem, problem.maps[0].data(), threads);
    const auto d_again = Gradient(problem, threads);
    TFO_EXPECT(memcmp(again.data(), output.data(), output.size() * sizeof(T)) ==
               0);
    TFO_EXPECT(memcmp(d_again.data(), d_map.data(), d_map.size() * sizeof(T)) ==
               0);
  }
}

TFO_TEST(RoiAlignMax, AsDefined) {
  for (const RoiSampling sampling :
       {RoiSampling{2, true}, {0, true}, {3, false}}) {
    for (bool channels_first : {false, true}) {
      const auto kind = RoiBins::kSamples;
      const auto all = RoiChannels::kAll;
      Check(testing::MakeAverageProblem<float>(kind, sampling, all, 21,
                                               channels_first));
      Check(testing::MakeAverageProblem<float>(kind, sampling, all, 130,
                                               channels_first));
      Check(testing::MakeAverageProblem<double>(kind, sampling, all, 35,
                                                channels_first));
      Check(testing::MakeAverageProblem<Half>(kind, sampling, all, 70,
                                              channels_first));
      Check(testing::MakeAverageProblem<BFloat16>(kind, sampling, all, 3,
                                                  channels_first));
    }
  }
}

// Channels of a map of one pixel lie together in every layout; its bins' do
// not.
TFO_TEST(RoiAlignMax, OnePixel) {
  for (bool channels_first : {false, true}) {
    AverageProblem<float> problem;
    problem.args = {};
    problem.args.roi = {1, 1, 1, 40, 2, 2, 3, 1.0f, channels_first, false};
    problem.args.sampling = {2, true};
    problem.args.num_levels = 1;
    problem.args.levels[0] = {1, 1, 1.0f, 0};
    problem.maps = {testing::RandomValues<float>(40, 1)};
    problem.box_indices = {0, 0};
    problem.d_output = testing::RandomValues<float>(2 * 6 * 40, 2);
    problem.boxes = {0, 0, 1, 1, -1, 0, 1, 2};
    Check(problem);
  }
}

// NaN before all, of equals the first, and what lies outside last.
TFO_TEST(RoiAlignMax, WhichSample) {
  AverageProblem<float> problem;
  problem.args = {};
  problem.args.roi = {1, 4, 4, 1, 1, 1, 1, 1.0f, false, false};
  problem.args.sampling = {2, true};
  problem.args.num_levels = 1;
  problem.args.levels[0] = {4, 4, 1.0f, 0};
  problem.maps = {std::vector<float>(16, 3.0f)};
  problem.box_indices = {0};
  problem.d_output = {1};
  problem.boxes = {0, 0, 2, 2};  // on pixels 0 and 1 of both axes
  auto d_map = Gradient(problem, 1);
  TFO_EXPECT_EQ(d_map[0], 1.0f);
  problem.maps[0][5] = NAN;
  auto output = Forward(problem, problem.maps[0].data(), 1);
  TFO_EXPECT(std::isnan(output[0]));
  d_map = Gradient(problem, 1);
  TFO_EXPECT_EQ(d_map[5], 1.0f);
  problem.boxes = {-4, 0, 2, 2};  // half outside
  problem.maps = {std::vector<float>(16, -3.0f)};
  output = Forward(problem, problem.maps[0].data(), 1);
  TFO_EXPECT_EQ(output[0], 0.0f);
  for (float v : Gradient(problem, 1)) TFO_EXPECT_EQ(v, 0.0f);
  problem.maps = {std::vector<float>(16, 0.0f)};  // as much as outside
  float sum = 0;
  for (float v : Gradient(problem, 1)) sum += v;
  TFO_EXPECT_EQ(sum, 1.0f);
}

}  // namespace
}  // namespace tfo
