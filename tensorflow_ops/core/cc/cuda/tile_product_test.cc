#include "tensorflow_ops/core/cc/cuda/tile_product_testing_gpu.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

// All layouts and ways to fill operands, of random matrices.
template <typename T>
void CheckProducts(bool tensor_cores, const testing::Caller& caller = {}) {
  constexpr int kLines = sizeof(T) == sizeof(double) ? 64 : 128, kDepth = 48;
  const auto a = testing::ToGpu(testing::RandomValues<T>(kLines * kDepth, 1));
  const auto b = testing::ToGpu(testing::RandomValues<T>(kLines * kDepth, 2));
  for (bool a_along_depth : {false, true}) {
    for (bool b_along_depth : {false, true}) {
      const testing::Case of_test(caller, testing::NameOf<T>(), a_along_depth,
                                  b_along_depth, tensor_cores);
      const auto value = [&](const auto& of, bool along_depth, int line,
                             int k) -> double {
        return Widen(of[along_depth ? line * kDepth + k : k * kLines + line]);
      };
      std::vector<double> expected(kLines * kLines, 0);
      for (int row = 0; row < kLines; ++row) {
        for (int column = 0; column < kLines; ++column) {
          for (int k = 0; k < kDepth; ++k) {
            expected[row * kLines + column] +=
                value(a, a_along_depth, row, k) *
                value(b, b_along_depth, column, k);
          }
        }
      }
      for (Filling filling :
           {Filling::kStore, Filling::kCopyAsync, Filling::kSet}) {
        testing::GpuVector<Accumulator<T>> c(kLines * kLines);
        TFO_EXPECT_RUNS(MultiplyTiles(Gpu{}, a_along_depth, b_along_depth,
                                      tensor_cores, filling, kDepth, a.data(),
                                      b.data(), c.data()));
        testing::ExpectClose("c", c, expected);
      }
    }
  }
}

TFO_CUDA_TEST(TileProduct, EqualsDoubleLoops) {
  CheckProducts<float>(false);
  CheckProducts<double>(false);
  for (bool tensor_cores : {false, true}) {
    CheckProducts<Half>(tensor_cores);
    CheckProducts<BFloat16>(tensor_cores);
  }
}

}  // namespace
}  // namespace tfo
