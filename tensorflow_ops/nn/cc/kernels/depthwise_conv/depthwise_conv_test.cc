// Compares depthwise convolutions with plain loops in double precision.
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ThreadedCpu;

struct Expected {
  std::vector<double> output, d_input, d_filter;
};

// The shape with sizes of outputs for padding `before` and `after`.
ConvAxis Axis(int64_t size, int64_t taps, int64_t stride, int64_t dilation,
              int64_t before, int64_t after) {
  const int64_t room = size + before + after - (taps - 1) * dilation - 1;
  return {size,  room < 0 ? 0 : room / stride + 1, taps, stride, dilation,
          before};
}

template <typename T>
Expected Reference(const DepthwiseConvShape& s, const GpuVector<T>& input,
                   const GpuVector<T>& filter, const GpuVector<T>& d_output) {
  Expected e{std::vector<double>(d_output.size()),
             std::vector<double>(input.size()),
             std::vector<double>(filter.size())};
  const ConvAxis &y = s.y, &x = s.x;
  int64_t output = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t i = 0; i < y.outputs; ++i) {
      for (int64_t j = 0; j < x.outputs; ++j) {
        for (int64_t o = 0; o < s.channels; ++o, ++output) {
          for (int64_t t = 0; t < y.taps * x.taps; ++t) {
            const int64_t h = i * y.stride - y.before + t / x.taps * y.dilation;
            const int64_t w = j * x.stride - x.before + t % x.taps * x.dilation;
            if (h < 0 || h >= y.size || w < 0 || w >= x.size) continue;
            const int64_t pixel =
                ((b * y.size + h) * x.size + w) * s.channels + o;
            const int64_t tap = t * s.channels + o;
            const double d = Widen(d_output[output]);
            e.output[output] += 1.0 * Widen(input[pixel]) * Widen(filter[tap]);
            e.d_input[pixel] += d * Widen(filter[tap]);
            e.d_filter[tap] += d * Widen(input[pixel]);
          }
        }
      }
    }
  }
  return e;
}

template <typename T>
struct Results {
  GpuVector<T> output, d_input, d_filter;
  bool HasBitsOf(const Results& other) const {
    return HaveSameBits(output, other.output) &&
           HaveSameBits(d_input, other.d_input) &&
           HaveSameBits(d_filter, other.d_filter);
  }
};

template <typename T, typename Device>
void Check(const Device& device, const DepthwiseConvShape& shape,
           const testing::Caller& caller = {}) {
  const ConvAxis &y = shape.y, &x = shape.x;
  const testing::Case of_test(
      caller, testing::NameOf<T>(), shape.batch, " x ", y.size, " x ", x.size,
      " x ", shape.channels, " by ", y.taps, " x ", x.taps, ", strides ",
      y.stride, ", ", x.stride, ", dilations ", y.dilation, ", ", x.dilation,
      ", padding ", y.before, ", ", x.before);
  const auto input = testing::RandomOnGpu<T>(
      shape.batch * y.size * x.size * shape.channels, 1);
  const auto filter =
      testing::RandomOnGpu<T>(y.taps * x.taps * shape.channels, 2);
  const auto d_output = testing::RandomOnGpu<T>(
      shape.batch * y.outputs * x.outputs * shape.channels, 3);
  const T unset = testing::Rounded<T>(7);
  const auto all = testing::ComputeOn(
      device,
      Results<T>{GpuVector<T>(d_output.size(), unset),
                 GpuVector<T>(input.size(), unset),
                 GpuVector<T>(filter.size(), unset)},
      [&](const Gpu&) {
        return DepthwiseConvGradScratch(DepthwiseConvGradArgs<T>{
            shape, nullptr, nullptr, nullptr, nullptr, nullptr});
      },
      [&](const auto& on, Results<T>* to) {
        TFO_EXPECT_RUNS(DepthwiseConv(
            on, DepthwiseConvArgs<T>{shape, input.data(), filter.data(),
                                     to->output.data()}));
        TFO_EXPECT_RUNS(DepthwiseConvGrad(
            on, DepthwiseConvGradArgs<T>{shape, d_output.data(), input.data(),
                                         filter.data(), to->d_input.data(),
                                         to->d_filter.data()}));
      });
  const Expected e = Reference(shape, input, filter, d_output);
  for (const Results<T>& r : all) {
    testing::ExpectClose("output", r.output, e.output);
    testing::ExpectClose("d_input", r.d_input, e.d_input);
    testing::ExpectClose("d_filter", r.d_filter, e.d_filter);
  }
}

// SAME's padding, and others.
template <typename Device>
void CheckKernels(const Device& device) {
  testing::ForTypes([&](auto t) {
    using T = decltype(t);
    for (const int64_t taps : {1, 2, 3, 5, 7, 11}) {
      const int64_t before = (taps - 1) / 2, after = taps / 2;
      for (const int64_t stride : {1, 2}) {
        const ConvAxis y = Axis(7, taps, stride, 1, before, after);
        Check<T>(device, {2, 19, y, Axis(13, taps, stride, 1, before, after)});
      }
    }
  });
}

template <typename Device>
void CheckOthers(const Device& device) {
  testing::ForTypes([&](auto t) {
    using T = decltype(t);
    const ConvAxis three = Axis(6, 3, 1, 1, 1, 1), one = Axis(1, 1, 1, 1, 0, 0);
    Check<T>(device, {2, 5, three, Axis(9, 5, 2, 1, 2, 2)});
    Check<T>(device, {2, 17, three, Axis(10, 3, 1, 2, 2, 2)});  // dilation
    Check<T>(device, {2, 17, Axis(9, 3, 1, 3, 4, 2), three});
    Check<T>(device, {2, 17, Axis(9, 3, 2, 2, 2, 2), three});  // and stride
    Check<T>(device, {1, 33, Axis(11, 3, 3, 1, 1, 1), three});
    Check<T>(device, {1, 33, Axis(11, 3, 2, 1, 0, 0), three});
    Check<T>(device, {1, 16, Axis(8, 5, 1, 1, 9, 7), three});  // padding
    Check<T>(device, {1, 3, one, Axis(9, 7, 2, 1, 3, 3)});
    Check<T>(device, {3, 16, Axis(1, 5, 2, 1, 2, 2), Axis(2, 7, 1, 1, 3, 3)});
    for (const ConvAxis& none :
         {Axis(2, 3, 1, 1, 0, 0), Axis(0, 3, 1, 1, 2, 2)}) {
      Check<T>(device, {2, 4, none, three});
    }
    Check<T>(device, {2, 24, three, Axis(9, 5, 2, 1, 2, 2)});  // in packs
    Check<T>(device, {0, 4, three, three});
    Check<T>(device, {2, 0, three, three});
  });
}

// Bands of rows, of images with few channels, and many parts.
template <typename Device>
void CheckLarge(const Device& device) {
  for (const int64_t stride : {1, 2}) {
    const ConvAxis y = Axis(50, 3, stride, 1, 1, 1);
    Check<float>(device, {1, 7, y, Axis(15, 5, stride, 1, 2, 2)});
    Check<double>(device, {3, 24, y, y});
  }
  Check<float>(device,
               {1, 4, Axis(1, 33, 1, 1, 32, 32), Axis(3, 3, 1, 1, 1, 1)});
  Check<Half>(device, {70, 40, Axis(3, 3, 1, 1, 1, 1), Axis(3, 3, 1, 1, 1, 1)});
}

TFO_TEST(DepthwiseConv, KernelsAndStrides) { CheckKernels(Cpu()); }
TFO_TEST(DepthwiseConv, OtherShapes) { CheckOthers(Cpu()); }
TFO_TEST(DepthwiseConv, Bands) { CheckLarge(Cpu()); }
TFO_CUDA_TEST(DepthwiseConv, CudaKernelsAndStrides) { CheckKernels(Gpu()); }
TFO_CUDA_TEST(DepthwiseConv, CudaOtherShapes) { CheckOthers(Gpu()); }
TFO_CUDA_TEST(DepthwiseConv, CudaBands) { CheckLarge(Gpu()); }

TFO_CUDA_TEST(DepthwiseConv, CudaTensorsBeginAnywhere) {
  const ConvAxis axis = Axis(5, 3, 1, 1, 1, 1);
  const DepthwiseConvShape shape{1, 8, axis, axis};
  const auto input = testing::RandomOnGpu<float>(25 * 8 + 1, 1);
  const auto filter = testing::RandomOnGpu<float>(9 * 8 + 1, 2);
  for (int tensor = 0; tensor < 3; ++tensor) {
    const bool moved[] = {tensor == 0, tensor == 1, tensor == 2};
    GpuVector<float> output(25 * 8 + 1);
    TFO_EXPECT_RUNS(DepthwiseConv(
        Gpu(), DepthwiseConvArgs<float>{shape, input.data() + moved[0],
                                        filter.data() + moved[1],
                                        output.data() + moved[2]}));
    const auto expected = Reference(
        shape, GpuVector<float>(input.begin() + moved[0], input.end()),
        GpuVector<float>(filter.begin() + moved[1], filter.end()),
        GpuVector<float>(25 * 8));
    testing::ExpectClose("output",
                         GpuVector<float>(output.begin() + moved[2],
                                          output.begin() + moved[2] + 25 * 8),
                         expected.output);
  }
}

// Padding and pixels beside a place do not reach it.
TFO_TEST(DepthwiseConv, NoOtherPixelIsRead) {
  const ConvAxis axis = Axis(9, 3, 1, 1, 0, 0);
  const DepthwiseConvShape shape{1, 20, axis, axis};
  std::vector<float> input(81 * 20, 1), filter(9 * 20, 1), output(49 * 20, 1),
      d_input(input), d_filter(filter);
  for (int i = 0; i < 20; ++i) input[8 * 20 + i] = INFINITY;  // of tap 2 only
  TFO_EXPECT_RUNS(DepthwiseConvGrad(
      Cpu(), DepthwiseConvGradArgs<float>{shape, output.data(), input.data(),
                                          filter.data(), d_input.data(),
                                          d_filter.data()}));
  for (int i = 0; i < 9 * 20; ++i) {
    TFO_EXPECT_EQ(d_filter[i], i / 20 == 2 ? INFINITY : 49);
  }
}

TFO_BENCHMARK(DepthwiseConv, Kernels) {
  const int64_t batch = testing::BenchmarkSize(32);
  for (const int64_t taps : {3, 7}) {
    const ConvAxis axis =
        Axis(testing::BenchmarkSize(56), taps, 1, 1, taps / 2, taps / 2);
    const DepthwiseConvShape shape{batch, 96, axis, axis};
    const auto input =
        testing::RandomOnGpu<float>(batch * axis.size * axis.size * 96, 1);
    const auto filter = testing::RandomOnGpu<float>(taps * taps * 96, 2);
    GpuVector<float> d_input(input), d_filter(filter);
    const auto sizes =
        testing::Text(" [", batch, ", 56, 56, 96], ", taps, " taps");
    testing::TimeOnGpu(
        "depthwise_conv2d" + sizes, 8 * input.size(), 0, [&](const Gpu& gpu) {
          return DepthwiseConv(
              gpu, DepthwiseConvArgs<float>{shape, input.data(), filter.data(),
                                            d_input.data()});
        });
    const DepthwiseConvGradArgs<float> grad{shape,          input.data(),
                                            input.data(),   filter.data(),
                                            d_input.data(), d_filter.data()};
    testing::TimeOnGpu("depthwise_conv2d_grad" + sizes, 12 * input.size(),
                       DepthwiseConvGradScratch(grad), [&](const Gpu& gpu) {
                         return DepthwiseConvGrad(gpu, grad);
                       });
  }
}

}  // namespace
}  // namespace tfo
