#include "ramp/cc/ramp.h"

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace ramp {
namespace {

template <typename Device>
void ExpectRamp(const Device& device) {
  for (int64_t n : {0, 1, 255, 1000}) {
    const auto x =
        tfo::testing::ToGpu(tfo::testing::RandomValues<double>(n, 1));
    tfo::testing::GpuVector<double> y(n, 77);
    const RampArgs args = {n, /*limit=*/0.5};
    TFO_EXPECT_RUNS(Ramp(device, args, x.data(), y.data()));
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
