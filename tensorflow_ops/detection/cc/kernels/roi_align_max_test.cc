// roi_align's maximum on the CPU against its definition, at every level and for
// several thread counts.
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensorflow_ops/detection/cc/kernels/roi_average_reference.h"

namespace tfo {
namespace {

using testing::AverageProblem;
using testing::WorstError;

template <typename T>
RoiAlignMaxArgs MaxArgs(const AverageProblem<T>& problem) {
  const RoiAverageArgs& args = problem.args;
  return {{args.Features(0), args.levels[0].spatial_scale, args.grid},
          args.sampling};
}

template <typename T>
std::vector<T> Forward(const AverageProblem<T>& problem, int threads) {
  std::vector<T> output(problem.OutputSize(), Narrow<T>(77));
  TFO_EXPECT(RoiAlignMax(testing::ThreadedCpu(threads), MaxArgs(problem),
                         problem.AllBoxes(), problem.maps[0].data(),
                         output.data()) == nullptr);
  return output;
}

// The gradient's gradient: the values at the features' largest samples.
template <typename T>
std::vector<T> ValuesAtMax(const AverageProblem<T>& problem,
                           const std::vector<T>& values, int threads) {
  std::vector<T> output(problem.OutputSize(), Narrow<T>(77));
  TFO_EXPECT(RoiAlignMaxGradGrad(testing::ThreadedCpu(threads),
                                 MaxArgs(problem), problem.AllBoxes(),
                                 values.data(), problem.maps[0].data(),
                                 output.data()) == nullptr);
  return output;
}

template <typename T>
std::vector<T> Gradient(const AverageProblem<T>& problem, int threads) {
  std::vector<T> d_map(problem.maps[0].size(), Narrow<T>(77));
  TFO_EXPECT(RoiAlignMaxGrad(testing::ThreadedCpu(threads), MaxArgs(problem),
                             problem.AllBoxes(), problem.d_output.data(),
                             problem.maps[0].data(), d_map.data()) == nullptr);
  return d_map;
}

template <typename T>
std::vector<Coordinate<T>> BoxesGradient(const AverageProblem<T>& problem,
                                         const std::vector<T>& values,
                                         int threads) {
  std::vector<Coordinate<T>> d_boxes(problem.boxes.size(), 77);
  TFO_EXPECT(RoiAlignMaxBoxesGrad(testing::ThreadedCpu(threads),
                                  MaxArgs(problem), problem.AllBoxes(),
                                  problem.d_output.data(),
                                  problem.maps[0].data(), values.data(),
                                  d_boxes.data()) == nullptr);
  return d_boxes;
}

template <typename V>
bool SameBits(const std::vector<V>& a, const std::vector<V>& b) {
  return memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

template <typename T>
void Check(const AverageProblem<T>& problem) {
  const double tolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;
  const auto values =
      testing::RandomValues<T>(problem.maps[0].size(), /*seed=*/21);
  const auto expected = testing::ReferenceMax(problem, values);
  const auto output = Forward(problem, 1);
  const auto d_map = Gradient(problem, 1);
  TFO_EXPECT(WorstError<T>(output, expected.output) < tolerance);
  TFO_EXPECT(WorstError<T>(d_map, expected.d_maps[0]) < tolerance);
  const auto d_boxes = BoxesGradient(problem, values, 1);
  // Sums over all bins and channels.
  TFO_EXPECT(WorstError<Coordinate<T>>(d_boxes, expected.d_boxes) <
             tolerance * (problem.args.channels + 10.0));
  // The gradient's gradient is its transpose: <g, F v> = <F' g, v>.
  const auto read = ValuesAtMax(problem, values, 1);
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
    TFO_EXPECT(SameBits(Forward(problem, threads), output));
    TFO_EXPECT(SameBits(ValuesAtMax(problem, values, threads), read));
    TFO_EXPECT(SameBits(Gradient(problem, threads), d_map));
    TFO_EXPECT(SameBits(BoxesGradient(problem, values, threads), d_boxes));
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

// Boxes anywhere in and around the images; some of no image.
template <typename T>
AverageProblem<T> RandomProblem(const RoiAlignMaxArgs& max, int64_t num_boxes) {
  const FeatureShape& features = max.features;
  AverageProblem<T> problem;
  problem.args = {};
  problem.args.batch = features.batch;
  problem.args.channels = features.channels;
  problem.args.channels_first = features.channels_first;
  problem.args.grid = max.grid;
  problem.args.sampling = max.sampling;
  problem.args.num_levels = 1;
  problem.args.levels[0] = {features.height, features.width, max.spatial_scale,
                            0};
  const int64_t pixels = features.batch * features.height * features.width;
  const int64_t bins = num_boxes * max.grid.height * max.grid.width;
  problem.maps = {testing::RandomValues<T>(pixels * features.channels, 1)};
  problem.d_output = testing::RandomValues<T>(bins * features.channels, 2);
  const auto corners = testing::RandomValues<double>(4 * num_boxes, 3);
  for (int64_t k = 0; k < num_boxes; ++k) {
    problem.box_indices.push_back(k % (features.batch + 1) - (k % 7 == 6));
    for (int a = 0; a < 2; ++a) {
      const double size =
          (a == 0 ? features.width : features.height) / max.spatial_scale;
      const double at[2] = {corners[4 * k + a], corners[4 * k + 2 + a]};
      const double low = std::min(at[0], at[1]), high = std::max(at[0], at[1]);
      problem.boxes.resize(4 * (k + 1));
      problem.boxes[4 * k + a] = size * (0.5 + 0.4 * low);
      problem.boxes[4 * k + 2 + a] = size * (0.5 + 0.4 * high);
    }
  }
  return problem;
}

// Gradients of 16 bits are summed in windows that go down the image, some
// channels at a time.
TFO_TEST(RoiAlignMax, TallMapsAndManyChannels) {
  for (bool first : {false, true}) {
    Check(RandomProblem<BFloat16>(
        {{{2, 90, 31, 70, first}, 0.5f, {7, 3}}, {2, true}}, 40));
    Check(RandomProblem<Half>(
        {{{1, 90, 31, 40, first}, 0.5f, {2, 3}}, {0, true}}, 20));
    Check(RandomProblem<BFloat16>(
        {{{1, 9, 12, 1100, first}, 1.0f, {3, 2}}, {2, true}}, 9));
    Check(RandomProblem<float>(
        {{{3, 40, 30, 530, first}, 1.0f, {3, 2}}, {2, false}}, 9));
  }
}

// Channels of a map of one pixel lie together in every layout; its bins' need
// not.
TFO_TEST(RoiAlignMax, OnePixel) {
  for (bool first : {false, true}) {
    for (int bins : {1, 2}) {
      const RoiArgs roi = {{1, 1, 1, 40, first}, 1.0f, {bins, bins}};
      Check(RandomProblem<float>({roi, {2, true}}, 3));
      Check(RandomProblem<double>({roi, {2, false}}, 3));
      Check(RandomProblem<BFloat16>({roi, {0, true}}, 3));
    }
  }
}

// One bin's NaN goes to the pixels of its own sample, in its own channel.
TFO_TEST(RoiAlignMax, NanUpstream) {
  for (bool first : {false, true}) {
    auto problem = RandomProblem<float>(
        {{{1, 9, 12, 37, first}, 1.0f, {2, 2}}, {2, true}}, 2);
    const auto clean = Gradient(problem, 2);
    const int64_t channel = 20, bin = 3;
    problem.d_output[first ? channel * 4 + bin : bin * 37 + channel] = NAN;
    const auto d_map = Gradient(problem, 2);
    int64_t nans = 0;
    for (size_t i = 0; i < d_map.size(); ++i) {
      const int64_t c = first ? i / (9 * 12) : i % 37;
      if (std::isnan(d_map[i])) {
        TFO_EXPECT_EQ(c, channel);
        ++nans;
      } else {
        TFO_EXPECT_EQ(d_map[i], clean[i]);
      }
    }
    TFO_EXPECT(nans >= 1 && nans <= 4);
  }
}

// Pixels that no sample of their channel lies between are not looked at, those
// in the same place of another channel are.
TFO_TEST(RoiAlignMax, NanWhereNoSampleIsDoesNotReachBoxes) {
  for (const RoiSampling sampling : {RoiSampling{2, true}, {0, true}}) {
    for (bool first : {false, true}) {
      auto problem = RandomProblem<float>(
          {{{2, 20, 23, 37, first}, 1.0f, {2, 2}}, sampling}, 6);
      std::vector<float> ones(problem.d_output.size(), 1.0f);
      std::swap(problem.d_output, ones);
      const auto weights = Gradient(problem, 2);
      std::swap(problem.d_output, ones);
      auto values = testing::RandomValues<float>(weights.size(), 4);
      const auto clean = BoxesGradient(problem, values, 2);
      int64_t nans = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        if (weights[i] != 0) continue;
        values[i] = NAN;
        ++nans;
      }
      TFO_EXPECT(nans > 1000 && nans < static_cast<int64_t>(values.size()));
      TFO_EXPECT(SameBits(BoxesGradient(problem, values, 2), clean));
      values.assign(values.size(), NAN);
      for (float v : clean) TFO_EXPECT(std::isfinite(v));
      const auto of_nan = BoxesGradient(problem, values, 2);
      TFO_EXPECT(std::isnan(of_nan[0]));
    }
  }
}

// Whatever comes in, a sample that does not move passes nothing on: held at an
// edge, or outside of the map.
TFO_TEST(RoiAlignMax, HeldSamplesDoNotMoveBoxes) {
  for (bool first : {false, true}) {
    auto problem = RandomProblem<float>(
        {{{1, 4, 4, 19, first}, 1.0f, {1, 1}}, {2, true}}, 4);
    problem.boxes = {-0.4f, -0.3f, 0.4f, 0.45f,  // at the first pixel
                     3.6f,  3.7f,  4.3f, 4.4f,   // at the last
                     -9,    -9,    -3,   -3,     // outside
                     -0.4f, 1.2f,  0.4f, 2.7f};  // held in x only
    problem.box_indices.assign(4, 0);
    problem.d_output.assign(problem.d_output.size(), INFINITY);
    const auto d_boxes = BoxesGradient(problem, problem.maps[0], 1);
    for (int i = 0; i < 12; ++i) TFO_EXPECT_EQ(d_boxes[i], 0.0f);
    TFO_EXPECT(d_boxes[12] == 0 && d_boxes[14] == 0);
    TFO_EXPECT(!std::isfinite(d_boxes[13]) && !std::isfinite(d_boxes[15]));
  }
}

TFO_TEST(RoiAlignMax, NothingToDoForBoxes) {
  for (const int none : {0, 1, 2}) {
    auto problem = RandomProblem<float>(
        {{{1, 4, 4, 3, false}, 1.0f, {2, 2}}, {2, true}}, none == 0 ? 0 : 2);
    if (none == 1) problem.args.channels = 0;
    if (none == 2) problem.args.levels[0].height = 0;
    problem.box_indices.assign(problem.NumBoxes(), 0);
    for (float v : BoxesGradient(problem, problem.maps[0], 1)) {
      TFO_EXPECT_EQ(v, 0.0f);
    }
  }
}

// NaN before all, of equals the first, and what lies outside last.
TFO_TEST(RoiAlignMax, WhichSample) {
  auto problem =
      RandomProblem<float>({{{1, 4, 4, 1, false}, 1.0f, {1, 1}}, {2, true}}, 1);
  problem.maps = {std::vector<float>(16, 3.0f)};
  problem.box_indices = {0};
  problem.d_output = {1};
  problem.boxes = {0, 0, 2, 2};  // on pixels 0 and 1 of both axes
  auto d_map = Gradient(problem, 1);
  TFO_EXPECT_EQ(d_map[0], 1.0f);
  problem.maps[0][5] = NAN;
  auto output = Forward(problem, 1);
  TFO_EXPECT(std::isnan(output[0]));
  d_map = Gradient(problem, 1);
  TFO_EXPECT_EQ(d_map[5], 1.0f);
  problem.boxes = {-4, 0, 2, 2};  // half outside
  problem.maps = {std::vector<float>(16, -3.0f)};
  output = Forward(problem, 1);
  TFO_EXPECT_EQ(output[0], 0.0f);
  for (float v : Gradient(problem, 1)) TFO_EXPECT_EQ(v, 0.0f);
  problem.maps = {std::vector<float>(16, 0.0f)};  // as much as outside
  float sum = 0;
  for (float v : Gradient(problem, 1)) sum += v;
  TFO_EXPECT_EQ(sum, 1.0f);
}

}  // namespace
}  // namespace tfo
