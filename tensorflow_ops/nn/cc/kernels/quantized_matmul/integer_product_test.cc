// Products of packs, of which a processor uses one kind, against loops.
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product.h"

#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {
namespace {

template <int kNumbers, typename Scope>
void Check(bool transposed, bool is_signed, int64_t rows, int64_t depth,
           int64_t columns, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, kNumbers, " numbers, ",
                              transposed ? "transposed " : "",
                              is_signed ? "signed " : "", rows, " rows, depth ",
                              depth, ", ", columns, " columns");
  std::mt19937 random(5);
  std::vector<uint8_t> kernel(depth * columns);
  for (uint8_t& byte : kernel) byte = static_cast<uint8_t>(random());
  std::vector<int8_t> x(rows * depth);
  for (int8_t& value : x) value = static_cast<int8_t>(random() % 255) - 127;
  // The greatest sums.
  std::fill_n(kernel.begin(), depth, is_signed ? 0x80 : 0xFF);
  std::fill_n(x.begin(), depth, 127);
  const std::vector<float> scale(columns, 1);
  const QuantizedWeights<float> w{depth,
                                  columns,
                                  1,
                                  NibblePairs::kNone,
                                  transposed,
                                  is_signed,
                                  kernel.data(),
                                  scale.data(),
                                  nullptr,
                                  nullptr,
                                  depth};
  const std::vector<DepthBlock> runs = DepthBlocks(w, depth);
  std::vector<float> product(rows * columns);
  MultiplyPacks<kNumbers, Scope>(
      testing::ThreadedCpu(2), IntegerProduct<float>{w, runs, rows, x.data()},
      [&](int64_t m, int64_t n, int64_t count, const float* sums) {
        std::copy_n(sums, count, product.data() + m * columns + n);
      });
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const uint8_t byte =
            kernel[transposed ? n * depth + k : k * columns + n];
        sum +=
            (is_signed ? static_cast<int8_t>(byte) : byte) * x[m * depth + k];
      }
      TFO_EXPECT_EQ(product[m * columns + n], static_cast<float>(sum));
    }
  }
}

template <int kNumbers, typename Scope = NoScope>
void CheckSizes() {
  for (int i = 0; i < 4; ++i) {
    const bool transposed = i & 1, is_signed = i & 2;
    for (const int64_t rows : {1, 2, 3, 7, 9, 17, 70}) {
      Check<kNumbers, Scope>(transposed, is_signed, rows, 67, 83);
    }
    for (int64_t n = 1; n < 40; n += 3) {
      Check<kNumbers, Scope>(transposed, is_signed, n % 19 + 1, n, 40 - n);
    }
    Check<kNumbers, Scope>(transposed, is_signed, 20, 2100, 150);
    Check<kNumbers, Scope>(transposed, is_signed, 5, 4200, 150);
  }
}

TFO_TEST(IntegerProduct, PairsMatch) { CheckSizes<2>(); }

TFO_TEST(IntegerProduct, FoursMatch) {
#ifdef __aarch64__
  if (HasByteProducts()) CheckSizes<4>();
#else
  // Narrower levels have no instruction for them, and emulate it.
  if (HasByteProducts() || ActiveCpuLevel() < CpuLevel::kAvx512) {
    CheckSizes<4>();
  }
#endif
}

TFO_TEST(IntegerProduct, TilesMatch) {
  if (HasTileProducts()) CheckSizes<4, AmxScope>();
}

}  // namespace
}  // namespace tfo
