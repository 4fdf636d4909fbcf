// The tiles of gemm_simd.h against double loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/simd/amx_gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

using testing::RandomValues;

struct Sizes {
  int64_t rows, depth, columns;
};

// Does the level have products of packs P?
template <typename P>
bool HasProducts() {
  return kPackNumbers<P> == 1 || ActiveCpuLevel() < CpuLevel::kAvx512 ||
         HasBFloat16Products();
}

// The number `i` of `packs`.
template <typename P>
double NumberOf(const P* packs, int64_t i) {
  if constexpr (kPackNumbers<P> == 2) {
    return Widen(packs[i / 2].numbers[i % 2]);
  } else {
    return packs[i];
  }
}

template <typename P>
std::vector<P> RandomPacks(int64_t n, uint32_t seed) {
  if constexpr (kPackNumbers<P> == 2) {
    const auto numbers = RandomValues<BFloat16>(2 * n, seed);
    std::vector<P> packs(n);
    for (int64_t i = 0; i < n; ++i) {
      packs[i] = {numbers[2 * i], numbers[2 * i + 1]};
    }
    return packs;
  } else {
    return RandomValues<P>(n, seed);
  }
}

// Compares c + a * b, or the same with a transposed, with a sum in double.
template <typename T, typename P = Accumulator<T>>
void Check(const Sizes& sizes, bool transposed_a, bool transposed_b, bool add,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), sizes.rows, " x ",
                              sizes.depth, " x ", sizes.columns,
                              ", transposed ", transposed_a, transposed_b,
                              ", add ", add);
  using C = Accumulator<T>;
  if (!HasProducts<P>()) return;
  const auto [rows, depth, columns] = sizes;
  const int64_t packs = PackCount<P>(depth);
  const int64_t panel = TFO_DISPATCH(PanelColumns<C>)();
  const int64_t padded = (columns + panel - 1) / panel * panel;
  const int64_t c_stride = padded + 3;
  const int64_t a_rows = transposed_a ? packs : rows;
  const std::vector<P> a = RandomPacks<P>(a_rows * kGemmStride + 1, 1);
  const std::vector<T> b = RandomValues<T>(depth * columns + 1, 2);
  const std::vector<C> before = RandomValues<C>(rows * c_stride + 1, 3);
  std::vector<C> c(before.begin(), before.end());
  const int64_t b_row = transposed_b ? 1 : columns;
  const int64_t b_column = transposed_b ? depth : 1;

  std::vector<P> panels = RandomPacks<P>(padded * packs + 1, 4);
  const double beyond = NumberOf(&panels.back(), 0);
  TFO_DISPATCH(PackPanels<T, P>)
  (b.data(), b_row, b_column, depth, columns, panels.data());
  TFO_EXPECT_EQ(NumberOf(&panels.back(), 0), beyond);
  if (transposed_a) {
    TFO_DISPATCH(MultiplyTransposedTile<P>)
    (a.data(), rows, packs, panels.data(), padded, add, c.data(), c_stride);
  } else {
    TFO_DISPATCH(MultiplyTile<P>)
    (a.data(), rows, packs, panels.data(), padded, add, c.data(), c_stride);
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
        constexpr int64_t kNumbers = kPackNumbers<P>;
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
        Sizes{97, 40, 31}, Sizes{3, 0, 40}, Sizes{0, 4, 5}, Sizes{1, 21, 300},
        Sizes{8, 5, 40}, Sizes{16, 5, 40}}) {
    for (int options = 0; options < 8; ++options) {
      const bool a = options & 1, b = options & 2, add = options & 4;
      Check<float>(sizes, a, b, add);
      Check<double>(sizes, a, b, add);
      Check<Half>(sizes, a, b, add);
      Check<BFloat16>(sizes, a, b, add);
      Check<BFloat16, BFloat16Pack>(sizes, a, b, add);
    }
  }
}

template <typename T, typename P = Accumulator<T>>
void CheckPackTile(int64_t depth, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), kPackNumbers<P>,
                              " numbers, depth ", depth);
  const int64_t rows = 3, stride = depth + 5;
  const std::vector<T> a = RandomValues<T>((rows - 1) * stride + depth, 6);
  std::vector<P> tile = RandomPacks<P>((rows + 1) * kGemmStride, 7);
  const double beyond = NumberOf(&tile[rows * kGemmStride], 0);
  TFO_DISPATCH(PackTile<T, P>)(a.data(), stride, rows, depth, tile.data());
  TFO_EXPECT_EQ(NumberOf(&tile[rows * kGemmStride], 0), beyond);
  for (int64_t m = 0; m < rows; ++m) {
    const P* const row = &tile[m * kGemmStride];
    for (int64_t k = 0; k < depth; ++k) {
      TFO_EXPECT_EQ(NumberOf(row, k), double{Widen(a[m * stride + k])});
    }
    for (int64_t k = depth; k % kPackNumbers<P> != 0; ++k) {
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
    CheckPackTile<BFloat16, BFloat16Pack>(depth);
    CheckPackTile<BFloat16, BFloat16Pack>(2 * depth - depth % 2);
  }
}

TFO_TEST(Gemm, PacksAreRounded) {
  if (!HasProducts<BFloat16Pack>()) return;
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
  std::vector<BFloat16Pack> packs(rows * kGemmStride);
  TFO_DISPATCH(PackColumns)(numbers.data(), rows, packs.data());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      expect(packs[i * kGemmStride + j / 2].numbers[j % 2],
             numbers[i * kGemmStride + j]);
    }
  }
  const auto expect_rows = [&](const BFloat16Pack* actual) {
    for (int64_t i = 0; i < rows + 1; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        expect(actual[i / 2 * kGemmStride + j].numbers[i % 2],
               i < rows ? numbers[i * kGemmStride + j] : 0);
      }
    }
  };
  TFO_DISPATCH(PackRows)(numbers.data(), rows, packs.data());
  expect_rows(packs.data());
  std::vector<float> in_place = numbers;
  auto* const same = reinterpret_cast<BFloat16Pack*>(in_place.data());
  TFO_DISPATCH(PackRows)(in_place.data(), rows, same);
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

#ifndef TFO_WITHOUT_CPU_AVX512
// Compares c + a * b by tiles, of numbers T that packs of kTerms hold, with a
// sum in double. Rows of c and packs of a lie in larger arrays; `transposed`: a
// and b are packed from their transposes.
template <typename T, int kTerms>
void CheckAmx(const Sizes& sizes, bool add, bool transposed,
              const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), kTerms, " terms, ",
                              sizes.rows, " x ", sizes.depth, " x ",
                              sizes.columns, ", add ", add, ", transposed ",
                              transposed);
  using P = AmxPack<kTerms>;
  const auto [rows, depth, columns] = sizes;
  const int64_t packs = PackCount<P>(depth), row_packs = packs + 2;
  const int64_t padded = (rows + kAmxRows - 1) / kAmxRows * kAmxRows;
  const int64_t padded_columns =
      (columns + kAmxColumns - 1) / kAmxColumns * kAmxColumns;
  const int64_t stride = padded_columns + 8;
  const int64_t a_stride = (transposed ? rows : depth) + 3;
  const int64_t b_stride = (transposed ? depth : columns) + 2;
  const std::vector<T> a =
      RandomValues<T>((transposed ? depth : rows) * a_stride + 1, 1);
  const std::vector<T> b =
      RandomValues<T>((transposed ? columns : depth) * b_stride + 1, 2);
  const std::vector<float> before = RandomValues<float>(padded * stride, 3);
  std::vector<float> c = before;
  std::vector<P> a_packs(padded * row_packs);
  std::vector<P> panels(packs * padded_columns + 1);
  cpu_avx512::PackAmxRows(a.data(), transposed ? 1 : a_stride,
                          transposed ? a_stride : 1, rows, depth, row_packs,
                          a_packs.data());
  panels.back().numbers[0] = Narrow<BFloat16>(7.0f);
  cpu_avx512::PackAmxPanels(b.data(), transposed ? 1 : b_stride,
                            transposed ? b_stride : 1, depth, columns,
                            panels.data());
  TFO_EXPECT_EQ(Widen(panels.back().numbers[0]), 7.0f);
  {
    const AmxScope scope;
    cpu_avx512::MultiplyAmx(a_packs.data(), row_packs, rows, packs,
                            panels.data(), padded_columns, add, c.data(),
                            stride);
  }
  const auto number = [](T x) {
    const float wide = Widen(x);
    return double{kTerms == 1 ? Widen(Narrow<BFloat16>(wide)) : wide};
  };
  double worst = 0;
  for (int64_t i = 0; i < padded; ++i) {
    for (int64_t j = 0; j < stride; ++j) {
      if (j >= padded_columns) {
        TFO_EXPECT_EQ(c[i * stride + j], before[i * stride + j]);
        continue;
      }
      double sum = add ? before[i * stride + j] : 0, size = std::abs(sum);
      for (int64_t k = 0; k < depth && i < rows && j < columns; ++k) {
        const double term =
            number(a[transposed ? k * a_stride + i : i * a_stride + k]) *
            number(b[transposed ? j * b_stride + k : k * b_stride + j]);
        sum += term;
        size += std::abs(term);
      }
      if (size == 0) {
        TFO_EXPECT_EQ(c[i * stride + j], 0.0f);
      } else {
        worst = std::max(worst, std::abs(sum - c[i * stride + j]) / size);
      }
    }
  }
  TFO_EXPECT(worst < 4e-7);
}

TFO_TEST(Gemm, AmxEqualsDoubleLoops) {
  if (!HasTileProducts()) return;
  for (const Sizes& sizes :
       {Sizes{1, 1, 1}, Sizes{16, 32, 32}, Sizes{33, 64, 17}, Sizes{48, 65, 32},
        Sizes{64, 257, 31}, Sizes{17, 40, 70}, Sizes{3, 0, 4},
        Sizes{0, 4, 5}}) {
    for (const bool add : {false, true}) {
      for (const bool transposed : {false, true}) {
        CheckAmx<float, 1>(sizes, add, transposed);
        CheckAmx<float, 3>(sizes, add, transposed);
        CheckAmx<Half, 3>(sizes, add, transposed);
        CheckAmx<BFloat16, 1>(sizes, add, transposed);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace tfo
