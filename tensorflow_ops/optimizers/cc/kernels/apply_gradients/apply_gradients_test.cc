// The values of the formulas on the CPU are tested in Python, beside Keras.
// Here: any number of threads, CUDA, rows beside sums of them, and memory that
// others read.
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/apply_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ThreadedCpu;

std::vector<Optimizer> All() {
  std::vector<Optimizer> all;
  for (int i = 0; i < kNumOptimizers; ++i) {
    all.push_back(static_cast<Optimizer>(i));
  }
  return all;
}

// A variable, its slots and its gradient.
template <typename T>
struct Variable {
  Variable(int64_t rows, int64_t width, std::vector<int64_t> with_gradient,
           bool of_rows, bool in_place, uint32_t seed) {
    for (int k = 0; k <= kMaxSlots; ++k) {
      before[k] =
          testing::ToGpu(testing::RandomValues<T>(rows * width, seed + k));
      // A variance is above 0, and above a mean's square.
      for (T& value : before[k]) {
        const double x = std::abs(double{Widen(value)});
        if (k == 0) break;
        value = Narrow<T>(static_cast<Accumulator<T>>(k == 1 ? x + 4 : x / 4));
      }
      after[k] = before[k];
      if (!in_place) {
        std::fill(after[k].begin(), after[k].end(),
                  Narrow<T>(Accumulator<T>(77)));
      }
    }
    ids = testing::ToGpu(with_gradient);
    const int64_t given = of_rows ? ids.size() : rows;
    gradient =
        testing::ToGpu(testing::RandomValues<T>(given * width, seed + 9));
    step.size = rows * width;
    step.decays = seed % 2 == 0;
    step.gradient = gradient.data();
    step.is_of_rows = of_rows;
    step.ids = ids.data();
    step.num_ids = ids.size();
    step.width = width;
    for (int k = 0; k <= kMaxSlots; ++k) {
      step.after[k] = after[k].data();
      step.before[k] = in_place ? after[k].data() : before[k].data();
    }
  }
  // The steps have addresses.
  Variable(const Variable&) = delete;

  GpuVector<T> before[1 + kMaxSlots], after[1 + kMaxSlots], gradient;
  GpuVector<int64_t> ids;
  VariableStep<T> step{};
};

// Runs one step of an optimizer for all variables. Returns what they then are,
// with their slots.
template <typename Device, typename T>
std::vector<double> Run(const Device& device, Optimizer optimizer, bool lazy,
                        const std::deque<Variable<T>>& variables) {
  using A = Accumulator<T>;
  std::vector<VariableStep<T>> steps;
  for (const auto& variable : variables) steps.push_back(variable.step);
  GpuVector<A> scalars;
  // The correction of the step is above 0; the rate and decay are large, so
  // that 16 bits show them.
  for (int i = 0; i < kMaxScalars; ++i) scalars.push_back(A(.5 - i / 30.));
  const ApplyGradientsArgs<T> args{optimizer, lazy,
                                   static_cast<int64_t>(steps.size()),
                                   steps.data(), scalars.data()};
  testing::WithScratch(
      device,
      [&]() -> int64_t {
        if constexpr (std::is_same_v<Device, Gpu>) {
          return ApplyGradientsScratch(args);
        }
        return 0;
      },
      [&](const Device& on) { TFO_EXPECT_RUNS(ApplyGradients(on, args)); });
  std::vector<double> results;
  for (const auto& variable : variables) {
    for (int k = 0; k <= NumSlots(optimizer); ++k) {
      for (const T value : variable.after[k]) results.push_back(Widen(value));
    }
  }
  return results;
}

// Variables of all kinds: dense ones more than a kernel takes at once, one of
// more than a block's numbers; rows without, with and with equal ids.
template <typename T>
void FillVariables(bool in_place, std::deque<Variable<T>>* variables) {
  const std::vector<int64_t> none, some = {3, 3, 7, 0, 39, 3, 0}, last = {39};
  std::vector<int64_t> all(40), equal(100);
  for (int i = 0; i < 40; ++i) all[i] = i * 7 % 40;
  for (int i = 0; i < 100; ++i) equal[i] = i % 4 == 0 ? i % 40 : 5;
  variables->clear();
  uint32_t seed = 0;
  for (const auto& ids : {some, none, last, all, equal}) {
    variables->emplace_back(40, 5, ids, true, in_place, ++seed);
    variables->emplace_back(40, 70, ids, true, in_place, ++seed);
  }
  variables->emplace_back(3, 0, none, true, in_place, ++seed);
  for (const int64_t size : {1, 0, 9000, 17}) {
    variables->emplace_back(size, 1, none, false, in_place, ++seed);
  }
  for (int i = 0; i < 40; ++i) {
    variables->emplace_back(i, 1, none, false, in_place, ++seed);
  }
}

void ExpectClose(const std::vector<double>& a, const std::vector<double>& b,
                 double relative) {
  TFO_EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    TFO_EXPECT(std::abs(a[i] - b[i]) <= relative * (1 + std::abs(b[i])));
  }
}

template <typename T, typename Device>
void CheckAgainstOneThread(const std::vector<Device>& devices,
                           double relative) {
  for (const Optimizer optimizer : All()) {
    for (const bool lazy : {false, true}) {
      std::deque<Variable<T>> variables;
      FillVariables(true, &variables);
      const auto expected = Run(ThreadedCpu(1), optimizer, lazy, variables);
      for (const bool in_place : {true, false}) {
        const testing::Case of_test(
            {}, "optimizer ", static_cast<int>(optimizer), lazy ? ", lazy" : "",
            in_place ? ", in place" : "");
        for (const Device& device : devices) {
          FillVariables(in_place, &variables);
          ExpectClose(Run(device, optimizer, lazy, variables), expected,
                      relative);
        }
      }
    }
  }
}

TFO_TEST(ApplyGradients, BitsDependOnNoThreads) {
  const std::vector<Cpu> cpus = {ThreadedCpu(1), ThreadedCpu(2),
                                 ThreadedCpu(7)};
  CheckAgainstOneThread<float>(cpus, 0);
  CheckAgainstOneThread<double>(cpus, 0);
  CheckAgainstOneThread<Half>(cpus, 0);
  CheckAgainstOneThread<BFloat16>(cpus, 0);
}

TFO_CUDA_TEST(ApplyGradients, CudaAgreesWithCpu) {
  const std::vector<Gpu> gpus = {Gpu()};
  CheckAgainstOneThread<float>(gpus, 2e-6);
  CheckAgainstOneThread<double>(gpus, 1e-14);
  CheckAgainstOneThread<Half>(gpus, 2e-3);
  CheckAgainstOneThread<BFloat16>(gpus, 2e-2);
}

// A gradient of rows is a dense one that has their sums; of a lazy step, other
// rows stay.
TFO_TEST(ApplyGradients, RowsAreSums) {
  const std::vector<int64_t> ids = {3, 3, 7, 0, 39, 3};
  const int64_t rows = 40, width = 600;
  for (const Optimizer optimizer : All()) {
    for (const bool lazy : {false, true}) {
      std::deque<Variable<double>> of_rows, dense;
      of_rows.emplace_back(rows, width, ids, true, true, 4);
      dense.emplace_back(rows, width, ids, false, true, 4);
      const std::vector<double> old(of_rows[0].after[0].begin(),
                                    of_rows[0].after[0].end());
      auto& sums = dense[0].gradient;
      std::fill(sums.begin(), sums.end(), 0);
      for (size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < width; ++k) {
          sums[ids[i] * width + k] += of_rows[0].gradient[i * width + k];
        }
      }
      const auto found = Run(ThreadedCpu(2), optimizer, lazy, of_rows);
      const auto expected = Run(ThreadedCpu(2), optimizer, false, dense);
      for (size_t i = 0; i < found.size(); ++i) {
        const int64_t row = i / width % rows;
        if (!lazy || std::count(ids.begin(), ids.end(), row) > 0) {
          TFO_EXPECT_EQ(found[i], expected[i]);
        } else if (i < old.size()) {
          TFO_EXPECT_EQ(found[i], old[i]);
        }
      }
    }
  }
}

// Ids outside of the variable change nothing on a GPU, where no error can tell.
TFO_CUDA_TEST(ApplyGradients, CudaIgnoresRowsOutside) {
  for (const bool lazy : {false, true}) {
    std::deque<Variable<float>> variables, without;
    variables.emplace_back(4, 5, std::vector<int64_t>{-1, 4, 1 << 30}, true,
                           true, 1);
    without.emplace_back(4, 5, std::vector<int64_t>(), true, true, 1);
    TFO_EXPECT(Run(Gpu(), Optimizer::kAdam, lazy, variables) ==
               Run(Gpu(), Optimizer::kAdam, lazy, without));
  }
}

TFO_TEST(ApplyGradients, KeepsNan) {
  for (const Optimizer optimizer : All()) {
    for (int from = 0; from <= NumSlots(optimizer); ++from) {
      std::deque<Variable<float>> variables;
      variables.emplace_back(100, 1, std::vector<int64_t>(), false, true, 1);
      auto& source =
          from == 0 ? variables[0].gradient : variables[0].after[from];
      source[50] = NAN;
      const auto found = Run(ThreadedCpu(1), optimizer, false, variables);
      for (int i = 0; i < 100; ++i) {
        TFO_EXPECT_EQ(std::isnan(found[i]), i == 50);
      }
    }
  }
}

TFO_BENCHMARK(ApplyGradients, Adam) {
  const int64_t width = 64, rows = testing::BenchmarkSize(24 << 14);
  const int64_t size = rows * width;
  std::deque<Variable<float>> variables;
  variables.emplace_back(size, 1, std::vector<int64_t>(), false, true, 1);
  const float scalars[] = {.001f, .01f, 1, .001f, .1f, .001f, 1e-7f};
  GpuVector<float> on_gpu(scalars, scalars + 7);
  const auto time = [&](const std::string& name, bool lazy, int64_t bytes) {
    const ApplyGradientsArgs<float> args{Optimizer::kAdam, lazy, 1,
                                         &variables[0].step, on_gpu.data()};
    testing::TimeOnGpu(
        name, bytes, ApplyGradientsScratch(args),
        [&](const Gpu& gpu) { return ApplyGradients(gpu, args); });
  };
  time("adam, 24 Mi numbers", false, 7 * 4 * size);
  std::vector<int64_t> ids(4096);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i * 7919 % rows;
  variables.clear();
  variables.emplace_back(rows, width, ids, true, true, 1);
  time("adam, 4096 rows of 64, exact", false, 6 * 4 * size);
  time("adam, 4096 rows of 64, lazy", true, 7 * 4 * width * 4096);
}

}  // namespace
}  // namespace tfo
