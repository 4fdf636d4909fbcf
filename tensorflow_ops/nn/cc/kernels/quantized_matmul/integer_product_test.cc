// Products of packs, of which a processor uses one kind, against loops.
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product.h"

#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

// The number of W [depth, columns] at k, n.
int NumberAt(const QuantizedWeights<float>& w, int64_t k, int64_t n) {
  const int64_t row = w.transposed ? n : k, at = w.transposed ? k : n;
  const StoredBytes bytes = BytesOf(w);
  const bool across = bytes.pairs == StoredPairs::kAcross;
  const bool along = bytes.pairs == StoredPairs::kAlong;
  const uint8_t byte =
      w.kernel[(across ? row / 2 : row) * bytes.stride + (along ? at / 2 : at)];
  if (bytes.pairs == StoredPairs::kNone) {
    return w.is_signed ? static_cast<int8_t>(byte) : byte;
  }
  const int number = (across ? row : at) % 2 == 1 ? byte >> 4 : byte & 15;
  return w.is_signed && number >= 8 ? number - 16 : number;
}

template <IntegerLoop kLoop, typename Scope>
void Check(NibblePairs pairs, bool transposed, bool is_signed, int64_t rows,
           int64_t depth, int64_t columns, const testing::Caller& caller = {}) {
  const testing::Case of_test(
      caller, "loop ", static_cast<int>(kLoop), ", pairs ",
      static_cast<int>(pairs), transposed ? ", transposed" : "",
      is_signed ? ", signed, " : ", ", rows, " rows, depth ", depth, ", ",
      columns, " columns");
  std::mt19937 random(5);
  std::vector<int8_t> x(rows * depth);
  for (int8_t& value : x) value = static_cast<int8_t>(random() % 255) - 127;
  const std::vector<float> scale(columns, 1);
  QuantizedWeights<float> w{depth,      columns,   1,       pairs,
                            transposed, is_signed, nullptr, scale.data(),
                            nullptr,    nullptr,   nullptr, depth};
  // No byte more, so that sanitizers see reads beyond.
  const StoredBytes bytes = BytesOf(w);
  std::vector<uint8_t> kernel(bytes.end - bytes.data);
  for (uint8_t& byte : kernel) byte = static_cast<uint8_t>(random());
  // The greatest sums.
  std::fill_n(kernel.begin(), std::min<int64_t>(depth, kernel.size()),
              !is_signed                    ? 0xFF
              : pairs == NibblePairs::kNone ? 0x80
                                            : 0x77);
  std::fill_n(x.begin(), depth, 127);
  w.kernel = kernel.data();
  const std::vector<DepthBlock> runs = DepthBlocks(w, depth);
  std::vector<float> product(rows * columns);
  MultiplyPacks<kLoop, Scope>(
      testing::ThreadedCpu(2), IntegerProduct<float>{w, runs, rows, x.data()},
      [&](int64_t m, int64_t n, int64_t count, const float* sums) {
        std::copy_n(sums, count, product.data() + m * columns + n);
      });
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += NumberAt(w, k, n) * x[m * depth + k];
      }
      TFO_EXPECT_EQ(product[m * columns + n], static_cast<float>(sum));
    }
  }
}

template <IntegerLoop kLoop, typename Scope = NoScope>
void CheckSizes() {
  constexpr NibblePairs kFour[] = {NibblePairs::kDepth, NibblePairs::kColumns};
  constexpr bool kNibbles = kLoop == IntegerLoop::kNibbles;
  for (int i = 0; i < (kNibbles ? 8 : 4); ++i) {
    const bool transposed = i & 1, is_signed = i & 2;
    const NibblePairs pairs = kNibbles ? kFour[i / 4] : NibblePairs::kNone;
    // Few rows of x need pairs of the depth.
    const bool many = transposed && pairs == NibblePairs::kColumns;
    const auto check = [&](int64_t rows, int64_t depth, int64_t columns) {
      if (many) rows += kFewTransposedRows;
      Check<kLoop, Scope>(pairs, transposed, is_signed, rows, depth, columns);
    };
    for (const int64_t rows : {1, 2, 3, 7, 9, 17, 70}) check(rows, 67, 83);
    for (int64_t n = 1; n < 40; n += 3) check(n % 19 + 1, n, 40 - n);
    check(20, 2100, 150);
    check(5, 4200, 150);
  }
}

TFO_TEST(IntegerProduct, PairsMatch) { CheckSizes<IntegerLoop::kPairs>(); }

TFO_TEST(IntegerProduct, FoursMatch) {
#ifdef __aarch64__
  if (HasByteProducts()) CheckSizes<IntegerLoop::kBytes>();
#else
  // Narrower levels have no instruction for them, and emulate it.
  if (HasByteProducts() || ActiveCpuLevel() < CpuLevel::kAvx512) {
    CheckSizes<IntegerLoop::kBytes>();
  }
#endif
}

TFO_TEST(IntegerProduct, NibblesMatch) { CheckSizes<IntegerLoop::kNibbles>(); }

TFO_TEST(IntegerProduct, TilesMatch) {
  if (HasTileProducts()) CheckSizes<IntegerLoop::kBytes, AmxScope>();
}

}  // namespace
}  // namespace tfo
