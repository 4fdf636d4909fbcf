#include "ramp/cc/ramp.h"

#include "tensorflow_ops/core/cc/testing.h"

namespace ramp {
namespace {

template <typename Device>
void ExpectRamp(const Device& device) {
  for (int64_t n : {0, 1, 255, 1000}) {
    const std::vector<double> x = tfo::testing::RandomValues<double>(n, 1);
    std::vector<double> y(n, 77);
    const tfo::Error error =
        Ramp(device, {n, /*limit=*/0.5}, x.data(), y.data());
    TFO_EXPECT(error == nullptr);
    for (int64_t i = 0; i < n; ++i) {
      TFO_EXPECT_EQ(y[i], x[i] < 0 ? 0 : x[i] > 0.5 ? 0.5 : x[i]);
    }
  }
}

TFO_TEST(Ramp, CpuStaysBetweenZeroAndTheLimit) {
  for (int threads : {1, 3}) ExpectRamp(tfo::testing::ThreadedCpu(threads));
}

TFO_CUDA_TEST(Ramp, CudaKernelStaysBetweenZeroAndTheLimit) {
  ExpectRamp(tfo::Gpu{});
}

}  // namespace
}  // namespace ramp
