#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_math.h"

namespace tfo {
namespace {

template <typename T>
using Vector = testing::GpuVector<T>;

// Rows with ignored labels, and with some that are no class.
template <typename T>
struct Problem {
  int64_t rows, classes, ignore_index = 2;
  Vector<T> logits, d_loss;
  Vector<int64_t> labels;

  Problem(int64_t r, int64_t c) : rows(r), classes(c), labels(r) {
    const std::vector<T> x = testing::RandomValues<T>(r * c, 1);
    const std::vector<T> d = testing::RandomValues<T>(r, 2);
    logits.assign(x.begin(), x.end());
    d_loss.assign(d.begin(), d.end());
    for (int64_t i = 0; i < r; ++i) labels[i] = i * i % (c + 2) - 1;
  }
};

template <typename T>
struct Results {
  Vector<T> loss, d_logits;
  Vector<int32_t> rank;
};

template <typename T, typename Device>
Results<T> Run(const Device& device, const Problem<T>& p) {
  const T unset = Narrow<T>(77);
  Results<T> r = {Vector<T>(p.rows, unset),
                  Vector<T>(p.rows * p.classes, unset),
                  Vector<int32_t>(p.rows, 77)};
  const HingeLossArgs<T> args = {
      p.rows,          p.classes,     p.ignore_index, p.logits.data(),
      p.labels.data(), r.loss.data(), r.rank.data()};
  TFO_EXPECT_RUNS(HingeLoss(device, args));
  const HingeLossGradArgs<T> grad_args = {
      p.rows,          p.classes,       p.ignore_index,   p.d_loss.data(),
      p.logits.data(), p.labels.data(), r.d_logits.data()};
  TFO_EXPECT_RUNS(HingeLossGrad(device, grad_args));
  return r;
}

// Compares with plain loops in double, of the formulas in hinge_loss_math.h.
// The bits must be the same on another device of the same kind.
template <typename T, typename Device>
void ExpectDefinition(const Device& device, const Device& other, int64_t rows,
                      int64_t classes, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), rows, " rows of ",
                              classes);
  const Problem<T> p(rows, classes);
  std::vector<double> loss(rows), d_logits(rows * classes);
  std::vector<int32_t> rank(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = p.labels[i];
    if (label < 0 || label >= classes || label == p.ignore_index) continue;
    for (int64_t c = 0; c < classes; ++c) {
      if (c == label) continue;
      const double x = static_cast<double>(Widen(p.logits[i * classes + c])) -
                       Widen(p.logits[i * classes + label]);
      const double d_x = Widen(p.d_loss[i]) * scalar::HingeLossSlope(x);
      loss[i] += scalar::HingeLossTerm(x);
      rank[i] += x > 0;
      d_logits[i * classes + c] += d_x;
      d_logits[i * classes + label] -= d_x;
    }
  }
  const Results<T> found = Run(device, p), again = Run(other, p);
  testing::ExpectClose("loss", found.loss, loss);
  testing::ExpectClose("d_logits", found.d_logits, d_logits);
  TFO_EXPECT(std::equal(rank.begin(), rank.end(), found.rank.begin()));
  TFO_EXPECT(testing::HaveSameBits(found.loss, again.loss));
  TFO_EXPECT(testing::HaveSameBits(found.d_logits, again.d_logits));
  TFO_EXPECT(testing::HaveSameBits(found.rank, again.rank));
}

// Sizes around those of vectors, warps and blocks.
template <typename Device>
void ExpectDefinitionInAllDtypes(const Device& device, const Device& other) {
  for (const auto& [rows, classes] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3}, {3, 0}, {5, 1}, {9, 17}, {40, 33}, {7, 300}}) {
    ExpectDefinition<float>(device, other, rows, classes);
    ExpectDefinition<double>(device, other, rows, classes);
    ExpectDefinition<Half>(device, other, rows, classes);
    ExpectDefinition<BFloat16>(device, other, rows, classes);
  }
}

TFO_TEST(HingeLoss, CpuEqualsTheDefinition) {
  ExpectDefinitionInAllDtypes(testing::ThreadedCpu(1), testing::ThreadedCpu(3));
}

TFO_CUDA_TEST(HingeLoss, CudaKernelEqualsTheDefinition) {
  ExpectDefinitionInAllDtypes(Gpu{}, Gpu{});
}

}  // namespace
}  // namespace tfo
