// The tiles of gemm_simd.h against double loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

using testing::RandomValues;

struct Sizes {
  int64_t rows, depth, columns;
};

// Compares c + a * b, or the same with a transposed, with a sum in double.
template <typename T>
void Check(const Sizes& sizes, bool transposed_a, bool transposed_b, bool add,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), sizes.rows, " x ",
                              sizes.depth, " x ", sizes.columns,
                              ", transposed ", transposed_a, transposed_b,
                              ", add ", add);
  using C = Accumulator<T>;
  const auto [rows, depth, columns] = sizes;
  const int64_t panel = TFO_DISPATCH(PanelColumns<C>)();
  const int64_t padded = (columns + panel - 1) / panel * panel;
  const int64_t c_stride = padded + 3;
  const int64_t a_rows = transposed_a ? depth : rows;
  const std::vector<C> a = RandomValues<C>(a_rows * kGemmStride + 1, 1);
  const std::vector<T> b = RandomValues<T>(depth * columns + 1, 2);
  const std::vector<C> before = RandomValues<C>(rows * c_stride + 1, 3);
  std::vector<C> c(before.begin(), before.end());
  const int64_t b_row = transposed_b ? 1 : columns;
  const int64_t b_column = transposed_b ? depth : 1;

  std::vector<C> panels(padded * depth + 1, C(-7));
  TFO_DISPATCH(PackPanels<T>)
  (b.data(), b_row, b_column, depth, columns, panels.data());
  TFO_EXPECT_EQ(panels.back(), C(-7));
  if (transposed_a) {
    TFO_DISPATCH(MultiplyTransposedTile<C>)
    (a.data(), rows, depth, panels.data(), padded, add, c.data(), c_stride);
  } else {
    TFO_DISPATCH(MultiplyTile<C>)
    (a.data(), rows, depth, panels.data(), padded, add, c.data(), c_stride);
  }

  double worst = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < c_stride; ++j) {
      if (j >= padded) {
        TFO_EXPECT_EQ(c[i * c_stride + j], before[i * c_stride + j]);
        continue;
      }
      double sum = add ? before[i * c_stride + j] : 0, size = 1;
      for (int64_t k = 0; k < depth && j < columns; ++k) {
        const double term = double(transposed_a ? a[k * kGemmStride + i]
                                                : a[i * kGemmStride + k]) *
                            double(Widen(b[k * b_row + j * b_column]));
        sum += term;
        size += std::abs(term);
      }
      worst = std::max(worst, std::abs(sum - c[i * c_stride + j]) / size);
    }
  }
  TFO_EXPECT_EQ(c.back(), before.back());
  TFO_EXPECT(worst < (sizeof(C) == 8 ? 1e-14 : 2e-6));
}

TFO_TEST(Gemm, TilesEqualDoubleLoops) {
  for (const Sizes& sizes :
       {Sizes{1, 1, 1}, Sizes{14, 3, 32}, Sizes{6, 5, 16}, Sizes{33, 256, 65},
        Sizes{97, 40, 31}, Sizes{3, 0, 40}, Sizes{0, 4, 5}}) {
    for (int options = 0; options < 8; ++options) {
      const bool a = options & 1, b = options & 2, add = options & 4;
      Check<float>(sizes, a, b, add);
      Check<double>(sizes, a, b, add);
      Check<Half>(sizes, a, b, add);
      Check<BFloat16>(sizes, a, b, add);
    }
  }
}

TFO_TEST(Gemm, SumsDoNotDependOnThePartition) {
  const int64_t rows = 40, depth = 100,
                panel = TFO_DISPATCH(PanelColumns<float>)();
  const std::vector<float> a = RandomValues<float>(rows * kGemmStride, 4);
  const std::vector<float> b = RandomValues<float>(depth * panel, 5);
  std::vector<float> whole(rows * panel), parts(rows * panel);
  const auto multiply = TFO_DISPATCH(MultiplyTile<float>);
  multiply(a.data(), rows, depth, b.data(), panel, false, whole.data(), panel);
  for (int64_t at = 0; at < rows; at += 3) {
    multiply(&a[at * kGemmStride], std::min<int64_t>(3, rows - at), depth,
             b.data(), panel, false, &parts[at * panel], panel);
  }
  TFO_EXPECT(whole == parts);
}

}  // namespace
}  // namespace tfo
