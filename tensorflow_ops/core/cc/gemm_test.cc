// The tiles of gemm_simd.h against double loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

using testing::RandomValues;

struct Sizes {
  int64_t rows, depth, columns;
};

// Does the level have products of elements E?
template <typename E>
bool HasProducts() {
  return kNumbersOf<E> == 1 || ActiveCpuLevel() < CpuLevel::kAvx512 ||
         HasBFloat16Products();
}

// The number `i` of `elements`, and how many elements have n numbers.
template <typename E>
double NumberOf(const E* elements, int64_t i) {
  if constexpr (kNumbersOf<E> == 2) {
    return Widen(elements[i / 2].numbers[i % 2]);
  } else {
    return elements[i];
  }
}
template <typename E>
int64_t ElementsOf(int64_t n) {
  return (n + kNumbersOf<E> - 1) / kNumbersOf<E>;
}

template <typename E>
std::vector<E> RandomElements(int64_t n, uint32_t seed) {
  if constexpr (kNumbersOf<E> == 2) {
    const auto numbers = RandomValues<BFloat16>(2 * n, seed);
    std::vector<E> elements(n);
    for (int64_t i = 0; i < n; ++i) {
      elements[i] = {numbers[2 * i], numbers[2 * i + 1]};
    }
    return elements;
  } else {
    return RandomValues<E>(n, seed);
  }
}

// Compares c + a * b, or the same with a transposed, with a sum in double.
template <typename T, typename E = Accumulator<T>>
void Check(const Sizes& sizes, bool transposed_a, bool transposed_b, bool add,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), sizes.rows, " x ",
                              sizes.depth, " x ", sizes.columns,
                              ", transposed ", transposed_a, transposed_b,
                              ", add ", add);
  using C = Accumulator<T>;
  if (!HasProducts<E>()) return;
  const auto [rows, depth, columns] = sizes;
  const int64_t elements = ElementsOf<E>(depth);
  const int64_t panel = TFO_DISPATCH(PanelColumns<C>)();
  const int64_t padded = (columns + panel - 1) / panel * panel;
  const int64_t c_stride = padded + 3;
  const int64_t a_rows = transposed_a ? elements : rows;
  const std::vector<E> a = RandomElements<E>(a_rows * kGemmStride + 1, 1);
  const std::vector<T> b = RandomValues<T>(depth * columns + 1, 2);
  const std::vector<C> before = RandomValues<C>(rows * c_stride + 1, 3);
  std::vector<C> c(before.begin(), before.end());
  const int64_t b_row = transposed_b ? 1 : columns;
  const int64_t b_column = transposed_b ? depth : 1;

  std::vector<E> panels = RandomElements<E>(padded * elements + 1, 4);
  const double beyond = NumberOf(&panels.back(), 0);
  TFO_DISPATCH(PackPanels<T, E>)
  (b.data(), b_row, b_column, depth, columns, panels.data());
  TFO_EXPECT_EQ(NumberOf(&panels.back(), 0), beyond);
  if (transposed_a) {
    TFO_DISPATCH(MultiplyTransposedTile<E>)
    (a.data(), rows, elements, panels.data(), padded, add, c.data(), c_stride);
  } else {
    TFO_DISPATCH(MultiplyTile<E>)
    (a.data(), rows, elements, panels.data(), padded, add, c.data(), c_stride);
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
        constexpr int64_t kNumbers = kNumbersOf<E>;
        const double of_a =
            transposed_a
                ? NumberOf(&a[k / kNumbers * kGemmStride + i], k % kNumbers)
                : NumberOf(&a[i * kGemmStride], k);
        const double term = of_a * double{Widen(b[k * b_row + j * b_column])};
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
      Check<BFloat16, BFloat16Pair>(sizes, a, b, add);
    }
  }
}

template <typename T, typename E = Accumulator<T>>
void CheckPackTile(int64_t depth, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), kNumbersOf<E>,
                              " numbers, depth ", depth);
  const int64_t rows = 3, stride = depth + 5;
  const std::vector<T> a = RandomValues<T>((rows - 1) * stride + depth, 6);
  std::vector<E> tile = RandomElements<E>((rows + 1) * kGemmStride, 7);
  const double beyond = NumberOf(&tile[rows * kGemmStride], 0);
  TFO_DISPATCH(PackTile<T, E>)(a.data(), stride, rows, depth, tile.data());
  TFO_EXPECT_EQ(NumberOf(&tile[rows * kGemmStride], 0), beyond);
  for (int64_t m = 0; m < rows; ++m) {
    const E* const row = &tile[m * kGemmStride];
    for (int64_t k = 0; k < depth; ++k) {
      TFO_EXPECT_EQ(NumberOf(row, k), double{Widen(a[m * stride + k])});
    }
    for (int64_t k = depth; k % kNumbersOf<E> != 0; ++k) {
      TFO_EXPECT_EQ(NumberOf(row, k), 0.0);
    }
  }
}

TFO_TEST(Gemm, PackTileKeepsNumbers) {
  for (const int64_t depth : {0, 1, 2, 7, 8, 15, 17, 31, 32, 33, 65, 256}) {
    CheckPackTile<float>(depth);
    CheckPackTile<double>(depth);
    CheckPackTile<Half>(depth);
    CheckPackTile<BFloat16>(depth);
    CheckPackTile<BFloat16, BFloat16Pair>(depth);
    CheckPackTile<BFloat16, BFloat16Pair>(2 * depth - depth % 2);
  }
}

TFO_TEST(Gemm, PairsAreRounded) {
  if (!HasProducts<BFloat16Pair>()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t rows = 5, columns = TFO_DISPATCH(PanelColumns<float>)();
  std::vector<float> numbers = RandomValues<float>(rows * kGemmStride, 8);
  // Halves between two numbers, the greatest ones, and those without size.
  const float special[] = {0x1.01p0f,   0x1.03p0f,   -0x1.01p0f, 0x1.010002p0f,
                           0x1.fep127f, 0x1.ffp127f, kInfinity,  -kInfinity,
                           NAN,         -0.0f,       0};
  for (int i = 0; i < 11; ++i) numbers[i % 4 * kGemmStride + i] = special[i];
  const auto expect = [&](const BFloat16& actual, float number) {
    const BFloat16 expected = Narrow<BFloat16>(number);
    if (std::isnan(number)) {
      TFO_EXPECT(std::isnan(Widen(actual)));
    } else {
      TFO_EXPECT_EQ(actual.bits, expected.bits);
    }
  };
  std::vector<BFloat16Pair> pairs(rows * kGemmStride);
  TFO_DISPATCH(PairColumns)(numbers.data(), rows, pairs.data());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      expect(pairs[i * kGemmStride + j / 2].numbers[j % 2],
             numbers[i * kGemmStride + j]);
    }
  }
  const auto expect_rows = [&](const BFloat16Pair* actual) {
    for (int64_t i = 0; i < rows + 1; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        expect(actual[i / 2 * kGemmStride + j].numbers[i % 2],
               i < rows ? numbers[i * kGemmStride + j] : 0);
      }
    }
  };
  TFO_DISPATCH(PairRows)(numbers.data(), rows, pairs.data());
  expect_rows(pairs.data());
  std::vector<float> in_place = numbers;
  auto* const same = reinterpret_cast<BFloat16Pair*>(in_place.data());
  TFO_DISPATCH(PairRows)(in_place.data(), rows, same);
  expect_rows(same);
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
