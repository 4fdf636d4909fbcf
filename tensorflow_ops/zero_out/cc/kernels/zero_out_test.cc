#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

// Checks every byte of the result for sizes around those of packs and blocks.
template <typename Device>
void ExpectKeepsOneElement(const Device& device) {
  for (int64_t size : {1, 2, 4, 8, 16}) {
    for (int64_t n : {0, 1, 3, 16, 17, 1000, 5000}) {
      for (int64_t keep : {int64_t{0}, n / 2, n - 1}) {
        if (keep < 0 || keep >= n) continue;
        // 16-byte elements, aligned as TensorFlow allocates them.
        testing::GpuVector<char> input(n * size);
        for (size_t i = 0; i < input.size(); ++i) input[i] = 1 + i % 100;
        testing::GpuVector<char> output(n * size, 77), expected(n * size, 0);
        for (int64_t b = keep * size; b < (keep + 1) * size; ++b) {
          expected[b] = input[b];
        }
        const ZeroOutArgs args = {n, size, keep};
        TFO_EXPECT_RUNS(ZeroOut(device, args, input.data(), output.data()));
        TFO_EXPECT(output == expected);
      }
    }
  }
}

TFO_TEST(ZeroOut, CpuKeepsOneElement) {
  for (int threads : {1, 3})
    ExpectKeepsOneElement(testing::ThreadedCpu(threads));
}

TFO_CUDA_TEST(ZeroOut, CudaKernelKeepsOneElement) {
  ExpectKeepsOneElement(Gpu{});
}

TFO_CUDA_TEST(ZeroOut, CudaRejectsAnUnknownElementSize) {
  char byte = 0;
  TFO_EXPECT(ZeroOut(Gpu{}, {1, 3, 0}, &byte, &byte) != nullptr);
}

TFO_CUDA_TEST(ZeroOut, CudaEmptyTensorIsNotTouched) {
  TFO_EXPECT(ZeroOut(Gpu{}, {0, 4, 0}, nullptr, nullptr) == nullptr);
}

TFO_TEST(ZeroOut, CpuEmptyTensorIsNotTouched) {
  TFO_EXPECT(ZeroOut(Cpu{}, {0, 4, 0}, nullptr, nullptr) == nullptr);
}

TFO_BENCHMARK(ZeroOut, Large) {
  const int64_t n = testing::BenchmarkSize(1 << 26);
  const auto input = testing::RandomOnGpu<float>(n, 0);
  testing::GpuVector<float> output(n);
  const auto run = [&](const auto& device) {
    return ZeroOut(device, {n, sizeof(float), n / 2}, input.data(),
                   output.data());
  };
  testing::TimeOnCpu("zero_out [67108864]", 4 * n, run);
  testing::TimeOnGpu("zero_out [67108864]", 4 * n, 0, run);
}

}  // namespace
}  // namespace tfo
