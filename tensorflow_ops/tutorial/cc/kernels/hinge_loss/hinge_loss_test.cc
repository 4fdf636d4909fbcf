#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_math.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::Tensors;

// Compares with plain loops in double, of the formulas in hinge_loss_math.h.
template <typename T, typename Device>
void ExpectDefinition(const Device& device, int64_t rows, int64_t classes,
                      const testing::Caller& caller = {}) {
  Tensors tensors({{"rows", rows}, {"classes", classes}, {"ignore_index", 3}});
  const testing::Case of_test(caller, testing::NameOf<T>(),
                              tensors.SizesText());
  // Some are ignored, and some are no class.
  testing::GpuVector<int64_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = i * i % (classes + 2) - 1;
  tensors.Set("labels", labels);
  const auto results =
      testing::ComputeOn(device, tensors, [](const auto& on, Tensors* to) {
        TFO_EXPECT_RUNS(HingeLoss(on, Bound<HingeLossArgs<T>>(to)));
        TFO_EXPECT_RUNS(HingeLossGrad(on, Bound<HingeLossGradArgs<T>>(to)));
      });
  Tensors expected = results[0].InDouble();
  const auto a = Bound<HingeLossArgs<double>>(&expected);
  const auto grad = Bound<HingeLossGradArgs<double>>(&expected);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = labels[i];
    if (label < 0 || label >= classes || label == a.ignore_index) continue;
    const double* const logits = a.logits + i * classes;
    double* const d_logits = grad.d_logits + i * classes;
    for (int64_t c = 0; c < classes; ++c) {
      if (c == label) continue;
      const double x = logits[c] - logits[label];
      const double d_x = grad.d_loss[i] * scalar::HingeLossSlope(x);
      a.loss[i] += scalar::HingeLossTerm(x);
      a.rank[i] += x > 0;
      d_logits[c] += d_x;
      d_logits[label] -= d_x;
    }
  }
  for (const Tensors& found : results) {
    found.ExpectCloseTo(expected);
    TFO_EXPECT(found.HasBitsOf(results[0]));
  }
}

// Sizes around those of vectors, warps and blocks.
template <typename Device>
void ExpectDefinitionInAllDtypes(const Device& device) {
  for (const auto& [rows, classes] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3}, {3, 0}, {5, 1}, {9, 17}, {40, 33}, {7, 300}}) {
    ExpectDefinition<float>(device, rows, classes);
    ExpectDefinition<double>(device, rows, classes);
    ExpectDefinition<Half>(device, rows, classes);
    ExpectDefinition<BFloat16>(device, rows, classes);
  }
}

TFO_TEST(HingeLoss, CpuEqualsTheDefinition) {
  ExpectDefinitionInAllDtypes(Cpu());
}

TFO_CUDA_TEST(HingeLoss, CudaKernelEqualsTheDefinition) {
  ExpectDefinitionInAllDtypes(Gpu{});
}

}  // namespace
}  // namespace tfo
