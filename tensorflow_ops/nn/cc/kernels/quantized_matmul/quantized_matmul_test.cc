// Products with quantized weights and their gradient against loops in double.
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::ExpectNear;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::RandomValues;
using testing::ThreadedCpu;
using testing::ToGpu;

enum class Groups { kNone, kBlocks, kUnevenBlocks, kScattered, kOddBlocks };

enum class Zeros { kNone, kBytes, kFloats };

struct Format {
  int bits;
  NibblePairs pairs;
  bool transposed, is_signed;
  Zeros zeros;
  Groups groups;
};

template <typename T>
struct Problem {
  using C = Accumulator<T>;
  Format format;
  int64_t rows;
  QuantizedWeights<C> weights;
  std::vector<int> q;     // [depth, columns]
  std::vector<double> z;  // [groups, columns]
  GpuVector<uint8_t> kernel, zero;
  GpuVector<C> scale, float_zero;
  GpuVector<int32_t> group_of;
  GpuVector<T> inputs;

  int64_t Group(int64_t k) const { return group_of.empty() ? 0 : group_of[k]; }
  int64_t InScale(int64_t g, int64_t n) const {
    return format.transposed ? n * weights.groups + g : g * weights.columns + n;
  }
  double Weight(int64_t k, int64_t n) const {
    const int64_t g = Group(k);
    return (q[k * weights.columns + n] - z[g * weights.columns + n]) *
           scale[InScale(g, n)];
  }
};

template <typename T>
Problem<T> MakeProblem(const Format& f, int64_t rows, int64_t depth,
                       int64_t columns) {
  using C = Accumulator<T>;
  Problem<T> p;
  p.format = f;
  p.rows = rows;
  std::mt19937 random(7);
  int64_t groups = 1;
  if (f.groups != Groups::kNone) {
    const int64_t block = f.groups == Groups::kUnevenBlocks ? 48
                          : f.groups == Groups::kOddBlocks  ? 27
                                                            : 32;
    const bool needs_index =
        f.groups == Groups::kUnevenBlocks || f.groups == Groups::kScattered;
    groups = (depth + block - 1) / block + (needs_index ? 1 : 0);
    for (int64_t k = 0; k < depth; ++k) p.group_of.push_back(k / block);
    if (f.groups == Groups::kScattered) {
      std::shuffle(p.group_of.begin(), p.group_of.end(), random);
    }
  }
  const int low = f.is_signed ? -(1 << (f.bits - 1)) : 0;
  const auto draw = [&] {
    return low + static_cast<int>(random() % (1u << f.bits));
  };
  p.q.resize(depth * columns);
  for (int& q : p.q) q = draw();
  p.z.resize(groups * columns);
  p.scale.resize(groups * columns);
  for (size_t i = 0; i < p.scale.size(); ++i) {
    // Results stay around 1.
    p.scale[i] = static_cast<C>((1 + random() % 8) /
                                (8 * std::sqrt(depth + 1.0) * (1 << f.bits)));
  }
  if (f.zeros == Zeros::kBytes) p.zero.resize(groups * columns);
  if (f.zeros == Zeros::kFloats) p.float_zero.resize(groups * columns);
  for (int64_t g = 0; f.zeros != Zeros::kNone && g < groups; ++g) {
    for (int64_t n = 0; n < columns; ++n) {
      double& z = p.z[g * columns + n];
      const int64_t at = f.transposed ? n * groups + g : g * columns + n;
      z = draw();
      if (f.zeros == Zeros::kBytes) {
        p.zero[at] = static_cast<uint8_t>(static_cast<int>(z));
      } else {
        // Fractions, and numbers that bytes do not have.
        z = p.float_zero[at] = static_cast<C>(1.25 * z - 3.3);
      }
    }
  }
  const int64_t d = f.pairs == NibblePairs::kDepth ? (depth + 1) / 2 : depth;
  const int64_t c =
      f.pairs == NibblePairs::kColumns ? (columns + 1) / 2 : columns;
  p.kernel.resize(d * c);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t n = 0; n < columns; ++n) {
      const int64_t kb = f.pairs == NibblePairs::kDepth ? k / 2 : k;
      const int64_t nb = f.pairs == NibblePairs::kColumns ? n / 2 : n;
      const int64_t half = f.pairs == NibblePairs::kDepth     ? k % 2
                           : f.pairs == NibblePairs::kColumns ? n % 2
                                                              : 0;
      const int mask = f.pairs == NibblePairs::kNone ? 255 : 15;
      p.kernel[f.transposed ? nb * d + kb : kb * c + nb] |=
          static_cast<uint8_t>((p.q[k * columns + n] & mask) << (4 * half));
    }
  }
  p.inputs = ToGpu(RandomValues<T>(rows * depth, 3));
  p.weights = {
      depth,
      columns,
      groups,
      f.pairs,
      f.transposed,
      f.is_signed,
      p.kernel.data(),
      p.scale.data(),
      p.zero.empty() ? nullptr : p.zero.data(),
      p.float_zero.empty() ? nullptr : p.float_zero.data(),
      f.groups == Groups::kUnevenBlocks || f.groups == Groups::kScattered
          ? p.group_of.data()
          : nullptr,
      f.groups == Groups::kBlocks      ? 32
      : f.groups == Groups::kOddBlocks ? 27
                                       : std::max<int64_t>(depth, 1)};
  return p;
}

template <typename T>
double Tolerance() {
  return std::is_same_v<T, double>  ? 1e-12
         : std::is_same_v<T, float> ? 1e-5
         : std::is_same_v<T, Half>  ? 1e-3
                                    : 8e-3;
}

// Rounds through T, as the definition does.
template <typename T>
Accumulator<T> Round(Accumulator<T> x) {
  return Widen(Narrow<T>(x));
}

template <typename T, typename Device>
GpuVector<T> Run(const Device& device, const Problem<T>& p, bool quantize) {
  GpuVector<T> outputs(p.rows * p.weights.columns);
  const QuantizedMatmulArgs<T> args{p.rows, quantize, p.weights,
                                    p.inputs.data(), outputs.data()};
  testing::WithScratch(
      device, [&] { return QuantizedMatmulScratchBytes(args); },
      [&](const Device& d) { TFO_EXPECT_RUNS(QuantizedMatmul(d, args)); });
  return outputs;
}

template <typename T, typename Device>
void CheckOutputs(const Device& device, const Problem<T>& p, bool quantize) {
  using C = Accumulator<T>;
  const int64_t depth = p.weights.depth, columns = p.weights.columns;
  std::vector<double> expected;
  for (int64_t m = 0; m < p.rows; ++m) {
    std::vector<double> x(depth);
    double factor = 1;
    C most = 0;
    for (int64_t k = 0; k < depth; ++k) {
      x[k] = Widen(p.inputs[m * depth + k]);
      most = std::max(most, static_cast<C>(std::abs(x[k])));
    }
    if (quantize) {
      const C s = Round<T>(127 / Round<T>(most + Round<T>(C(1e-7))));
      for (double& value : x) {
        value = std::nearbyint(Round<T>(static_cast<C>(value) * s));
      }
      factor = 1.0 / s;
    }
    for (int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += x[k] * p.Weight(k, n);
      expected.push_back(sum * factor);
    }
  }
  const GpuVector<T> outputs = Run(device, p, quantize);
  ExpectNear(quantize ? "outputs of integers" : "outputs", outputs.data(),
             expected, Tolerance<T>());
  if constexpr (std::is_same_v<Device, Cpu>) {
    TFO_EXPECT(HaveSameBits(Run(ThreadedCpu(3), p, quantize), outputs));
  }
}

template <typename T, typename Device>
void CheckGradient(const Device& device, const Problem<T>& p) {
  const int64_t depth = p.weights.depth, columns = p.weights.columns;
  const GpuVector<T> d_outputs = ToGpu(RandomValues<T>(p.rows * columns, 9));
  std::vector<double> expected;
  for (int64_t m = 0; m < p.rows; ++m) {
    for (int64_t k = 0; k < depth; ++k) {
      double sum = 0;
      for (int64_t n = 0; n < columns; ++n) {
        sum += Widen(d_outputs[m * columns + n]) * p.Weight(k, n);
      }
      expected.push_back(sum);
    }
  }
  const auto run = [&](const auto& on) {
    GpuVector<T> d_inputs(p.rows * depth);
    const QuantizedMatmulGradArgs<T> args{p.rows, p.weights, d_outputs.data(),
                                          d_inputs.data()};
    testing::WithScratch(
        on, [&] { return QuantizedMatmulGradScratchBytes(args); },
        [&](const auto& d) { TFO_EXPECT_RUNS(QuantizedMatmulGrad(d, args)); });
    return d_inputs;
  };
  const GpuVector<T> d_inputs = run(device);
  ExpectNear("d_inputs", d_inputs.data(), expected, Tolerance<T>());
  if constexpr (std::is_same_v<Device, Cpu>) {
    TFO_EXPECT(HaveSameBits(run(ThreadedCpu(3)), d_inputs));
  }
}

template <typename T, typename Device = Cpu>
void Check(const Format& f, int64_t rows, int64_t depth, int64_t columns,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), f.bits, " bits, pairs ",
      static_cast<int>(f.pairs), f.transposed ? " transposed" : "",
      f.is_signed ? " signed" : "", ", zeros ", static_cast<int>(f.zeros),
      ", groups ", static_cast<int>(f.groups), ", ", rows, " rows, depth ",
      depth, ", ", columns, " columns");
  const Problem<T> p = MakeProblem<T>(f, rows, depth, columns);
  CheckOutputs(Device(), p, false);
  CheckOutputs(Device(), p, true);
  CheckGradient(Device(), p);
}

template <typename Body>
void ForFormats(const Body& body) {
  for (const NibblePairs pairs :
       {NibblePairs::kNone, NibblePairs::kColumns, NibblePairs::kDepth}) {
    for (int i = 0; i < 48; ++i) {
      body(Format{pairs == NibblePairs::kNone ? 8 : 4, pairs, (i & 1) != 0,
                  (i & 2) != 0, static_cast<Zeros>(i / 4 % 3),
                  static_cast<Groups>(i / 12)});
    }
  }
}

TFO_TEST(QuantizedMatmul, FormatsMatchTheirDefinition) {
  ForFormats([](const Format& f) {
    // The direct loops, with and without a rest of each loop, and panels.
    for (const int64_t rows : {1, 2, 3, 7, 9}) {
      Check<float>(f, rows, 75, 83);
    }
    Check<float>(f, 1, 300, 200);
    Check<float>(f, 70, 300, 150);
    testing::ForTypes([&](auto type) {
      Check<decltype(type)>(f, 2, 67, 35);
      Check<decltype(type)>(f, 10, 67, 35);
    });
  });
}

TFO_TEST(QuantizedMatmul, EverySmallSizeMatches) {
  ForFormats([](const Format& f) {
    for (int64_t columns = 1; columns <= 18; ++columns) {
      Check<float>(f, 1 + columns % 5, 1 + columns * 5 % 19, columns);
    }
  });
}

TFO_TEST(QuantizedMatmul, EmptySizesGiveZeros) {
  ForFormats([](const Format& f) {
    Check<float>(f, 0, 5, 3);
    Check<float>(f, 2, 5, 0);
    Check<float>(f, 2, 0, 3);
    Check<double>(f, 2, 0, 3);
  });
}

TFO_CUDA_TEST(QuantizedMatmul, CudaMatchesTheDefinition) {
  int i = 0;
  ForFormats([&](const Format& f) {
    // Each dtype for each combination of two options; weights of whole packs
    // or not.
    const int turn = (i + i / 4 + i / 12) % 4;
    const bool has_packs = (i / 4 + i / 12) % 2 != 0;
    int type_index = 0;
    testing::ForTypes([&](auto type) {
      using T = decltype(type);
      const int64_t depth = has_packs ? 80 : 67, columns = has_packs ? 48 : 35;
      const int distance = (type_index++ + turn) % 4;
      if (distance == 0) Check<T, Gpu>(f, i % 3 == 0 ? 1 : 5, depth, columns);
      if (distance == 1) Check<T, Gpu>(f, 9, depth, columns);
    });
    if (f.groups == Groups::kBlocks) {
      Format odd = f;
      odd.groups = Groups::kOddBlocks;
      Check<float, Gpu>(odd, 2, 67, 35);
      Check<Half, Gpu>(odd, 9, 80, 35);
    }
    Check<float, Gpu>(f, 0, 5, 3);
    // Empty sums of all lines that a warp has.
    Check<float, Gpu>(f, 2 + i % 2 * 8, 0, 16);
    Check<float, Gpu>(f, 1 + i % 2, 16, 0);
    ++i;
  });
}

// Formats of GPTQ, and of int4 and int8 layers.
template <typename Body>
void ForFormatsOfKeras(const Body& body) {
  body(Format{4, NibblePairs::kColumns, true, false, Zeros::kBytes,
              Groups::kUnevenBlocks});
  body(Format{4, NibblePairs::kColumns, false, true, Zeros::kBytes,
              Groups::kBlocks});
  body(Format{4, NibblePairs::kDepth, true, true, Zeros::kNone, Groups::kNone});
  body(Format{8, NibblePairs::kNone, false, true, Zeros::kNone, Groups::kNone});
}

TFO_CUDA_TEST(QuantizedMatmul, CudaEdgesOfTiles) {
  ForFormatsOfKeras([](const Format& f) {
    // Of a block's lines, or of the parts of a sum.
    for (const int64_t depth : {31, 257}) {
      Check<float, Gpu>(f, 4, depth, 288 - depth);
    }
    Check<Half, Gpu>(f, 8, 256, 32);
    Check<Half, Gpu>(f, 128, 32, 130);
    Check<Half, Gpu>(f, 129, 130, 32);
    Check<BFloat16, Gpu>(f, 12, 600, 128);
    Check<float, Gpu>(f, 12, 128, 600);
    Check<double, Gpu>(f, 65, 64, 66);
  });
}

// Parts of sums that shared memory does not hold at once.
TFO_CUDA_TEST(QuantizedMatmul, CudaSumsInChunks) {
  ForFormatsOfKeras([](const Format& f) {
    if (f.groups == Groups::kNone) return;
    CheckOutputs(Gpu(), MakeProblem<float>(f, 1, 410000, 2), false);
  });
}

// Of values from a place that no pack begins at.
template <typename Values>
Values Shifted(const Values& values) {
  Values shifted(values.size() + 1);
  std::copy(values.begin(), values.end(), shifted.begin() + 1);
  return shifted;
}

TFO_CUDA_TEST(QuantizedMatmul, CudaTakesAnyAddressInAnyOrderOfThreads) {
  ForFormatsOfKeras([](const Format& f) {
    for (const int64_t rows : {3, 20}) {
      Problem<Half> p = MakeProblem<Half>(f, rows, 512, 64);
      const GpuVector<Half> d_outputs = ToGpu(RandomValues<Half>(rows * 64, 9));
      const GpuVector<Half> d_shifted = Shifted(d_outputs);
      const auto kernel = Shifted(p.kernel);
      const auto inputs = Shifted(p.inputs);
      GpuVector<Half> results[2];
      for (const bool quantize : {false, true}) {
        results[0] = Run(Gpu(), p, quantize);
        Problem<Half> other = p;
        other.weights.kernel = kernel.data() + 1;
        GpuVector<Half> outputs(rows * 64 + 1);
        const QuantizedMatmulArgs<Half> args{rows, quantize, other.weights,
                                             inputs.data() + 1,
                                             outputs.data() + 1};
        testing::WithScratch(
            Gpu(), [&] { return QuantizedMatmulScratchBytes(args); },
            [&](const Gpu& gpu) {
              TFO_EXPECT_RUNS(QuantizedMatmul(gpu, args));
            });
        TFO_EXPECT(HaveSameBits(Shifted(results[0]), outputs));
      }
      for (const bool shift : {false, true}) {
        results[shift].resize(rows * 512);
        QuantizedMatmulGradArgs<Half> args{
            rows, p.weights, shift ? d_shifted.data() + 1 : d_outputs.data(),
            results[shift].data()};
        if (shift) args.weights.kernel = kernel.data() + 1;
        testing::WithScratch(
            Gpu(), [&] { return QuantizedMatmulGradScratchBytes(args); },
            [&](const Gpu& gpu) {
              TFO_EXPECT_RUNS(QuantizedMatmulGrad(gpu, args));
            });
      }
      TFO_EXPECT(HaveSameBits(results[0], results[1]));
    }
  });
}

// The greatest integers, whose sums need more than the 24 bits of a float, and
// wrap around in 2^32.
template <typename T, typename Device = Cpu>
void CheckIntegers(const Format& f, int64_t rows, int64_t depth,
                   const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), f.bits, " bits ",
                              rows, " rows, depth ", depth);
  using C = Accumulator<T>;
  Problem<T> p = MakeProblem<T>(f, rows, depth, 9);
  std::fill(p.kernel.begin(), p.kernel.end(), f.is_signed ? 0x80 : 0xFF);
  for (int64_t n = 0; n < 9; n += 2) p.kernel[n] ^= 0x12;
  std::fill(p.scale.begin(), p.scale.end(), C{1});
  std::fill(p.inputs.begin(), p.inputs.end(), Narrow<T>(C{1}));
  // An odd number of halves, which round to even.
  for (size_t i = 0; i < p.inputs.size(); i += 3) {
    p.inputs[i] = Narrow<T>(C{-0.5f});
  }
  const GpuVector<T> outputs = Run(Device(), p, true);
  const C s = Round<T>(127 / Round<T>(1 + Round<T>(C(1e-7))));
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < 9; ++n) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t at = f.transposed ? n * depth + k : k * 9 + n;
        const int32_t q =
            f.is_signed ? static_cast<int8_t>(p.kernel[at]) : p.kernel[at];
        const auto x = static_cast<int32_t>(
            std::nearbyint(Round<T>(Widen(p.inputs[m * depth + k]) * s)));
        sum += static_cast<uint32_t>(q * x);
      }
      const C value = static_cast<C>(static_cast<int32_t>(sum)) * (1 / s);
      TFO_EXPECT_EQ(Widen(outputs[m * 9 + n]), Widen(Narrow<T>(value)));
    }
  }
}

// Sums of a group that 32 bits do not hold.
TFO_TEST(QuantizedMatmul, DeepGroupsMayHaveFloatZeros) {
  for (const bool transposed : {false, true}) {
    for (const int64_t rows : {1, 9}) {
      Problem<float> p =
          MakeProblem<float>({8, NibblePairs::kNone, transposed, false,
                              Zeros::kFloats, Groups::kNone},
                             rows, 70000, 2);
      std::fill(p.kernel.begin(), p.kernel.end(), 0xFF);
      std::fill(p.inputs.begin(), p.inputs.end(), 1.0f);
      std::fill(p.scale.begin(), p.scale.end(), 1.0f);
      p.float_zero[0] = 0.5f;
      p.float_zero[1] = 254.5f;
      const GpuVector<float> outputs = Run(Cpu(), p, true);
      std::vector<double> expected;
      for (int64_t m = 0; m < rows; ++m) {
        expected.insert(expected.end(), {70000 * 254.5, 70000 * 0.5});
      }
      ExpectNear("outputs", outputs.data(), expected, Tolerance<float>());
    }
  }
}

TFO_TEST(QuantizedMatmul, SumsOfIntegersAreExact) {
  for (const bool transposed : {false, true}) {
    for (const bool is_signed : {false, true}) {
      const Format f{8,         NibblePairs::kNone, transposed,
                     is_signed, Zeros::kNone,       Groups::kNone};
      for (const int64_t rows : {1, 9}) {
        CheckIntegers<float>(f, rows, 1000);
        CheckIntegers<float>(f, rows, 200000);
        CheckIntegers<double>(f, rows, 200000);
        CheckIntegers<BFloat16>(f, rows, 1000);
      }
    }
  }
}
TFO_CUDA_TEST(QuantizedMatmul, CudaSumsOfIntegersAreExact) {
  for (const bool transposed : {false, true}) {
    for (const bool is_signed : {false, true}) {
      const Format f{8,         NibblePairs::kNone, transposed,
                     is_signed, Zeros::kNone,       Groups::kNone};
      CheckIntegers<double, Gpu>(f, 1, 700);
      CheckIntegers<float, Gpu>(f, 9, 300);
    }
  }
  // Sums beyond 2^31; mma_test has those of tensor cores.
  CheckIntegers<float, Gpu>(
      {8, NibblePairs::kNone, true, false, Zeros::kNone, Groups::kNone}, 1,
      200000);
}

template <typename Device>
void CheckNotFinite(const Device& device) {
  for (const int64_t rows : {3, 12}) {
    for (const bool transposed : {false, true}) {
      Problem<float> p =
          MakeProblem<float>({4, NibblePairs::kColumns, transposed, true,
                              Zeros::kNone, Groups::kBlocks},
                             rows, 40, 20);
      std::fill_n(p.inputs.begin(), 40, 0.0f);
      p.inputs[40 + 3] = std::numeric_limits<float>::infinity();
      p.inputs[80 + 5] = std::numeric_limits<float>::quiet_NaN();
      const GpuVector<float> outputs = Run(device, p, true);
      for (int64_t n = 0; n < 20; ++n) {
        TFO_EXPECT_EQ(outputs[n], 0.0f);
        TFO_EXPECT(std::isnan(outputs[20 + n]));
        TFO_EXPECT(std::isnan(outputs[40 + n]));
      }
    }
  }
}
TFO_TEST(QuantizedMatmul, RowsThatAreNotFiniteAreNaN) { CheckNotFinite(Cpu()); }
TFO_CUDA_TEST(QuantizedMatmul, CudaRowsThatAreNotFiniteAreNaN) {
  CheckNotFinite(Gpu());
}

TFO_CUDA_TEST(QuantizedMatmul, CudaWeightsOfNoGroupAreZero) {
  for (const Groups groups : {Groups::kScattered, Groups::kNone}) {
    for (const int64_t rows : {3, 9}) {
      for (const bool transposed : {false, true}) {
        Problem<float> p =
            MakeProblem<float>({4, NibblePairs::kColumns, transposed, false,
                                Zeros::kBytes, groups},
                               rows, 40, 20);
        p.group_of.resize(40);
        p.weights.group_of = p.group_of.data();
        // One in a pack, and a whole pack.
        const int without_group[] = {7, 16, 17, 18, 19, 20, 21, 22, 23};
        const auto set = [&](GpuVector<float>* values, float to) {
          for (int64_t m = 0; m < rows; ++m) {
            for (const int k : without_group) (*values)[m * 40 + k] = to;
          }
        };
        set(&p.inputs, 0.5f);
        Problem<float> zeros = p;
        set(&zeros.inputs, 0);
        const GpuVector<float> d_outputs =
            ToGpu(RandomValues<float>(rows * 20, 9));
        const auto gradient = [&] {
          GpuVector<float> d_inputs(rows * 40);
          const QuantizedMatmulGradArgs<float> args{
              rows, p.weights, d_outputs.data(), d_inputs.data()};
          testing::WithScratch(
              Gpu(), [&] { return QuantizedMatmulGradScratchBytes(args); },
              [&](const Gpu& gpu) {
                TFO_EXPECT_RUNS(QuantizedMatmulGrad(gpu, args));
              });
          return d_inputs;
        };
        GpuVector<float> expected = gradient();
        set(&expected, 0);
        for (const int32_t bad : {-1, 3, 2147483647, -2147483647 - 1}) {
          for (const int k : without_group) p.group_of[k] = bad;
          for (const bool quantize : {false, true}) {
            TFO_EXPECT(HaveSameBits(Run(Gpu(), p, quantize),
                                    Run(Gpu(), zeros, quantize)));
          }
          TFO_EXPECT(gradient() == expected);
        }
      }
    }
  }
}

// Weights behind the depth, which are multiplied by zeros, must not overflow
// float16 where others do not.
TFO_CUDA_TEST(QuantizedMatmul, CudaEndsOfRowsDoNotOverflow) {
  for (const Groups groups : {Groups::kNone, Groups::kUnevenBlocks}) {
    Problem<Half> p = MakeProblem<Half>(
        {8, NibblePairs::kNone, true, false, Zeros::kBytes, groups}, 9, 9, 3);
    std::fill(p.kernel.begin(), p.kernel.end(), 250);
    std::fill(p.zero.begin(), p.zero.end(), 255);
    std::fill(p.scale.begin(), p.scale.end(), 300.0f);
    std::fill(p.inputs.begin(), p.inputs.end(), Narrow<Half>(1.0f / 1024));
    const GpuVector<Half> outputs = Run(Gpu(), p, false);
    ExpectNear("outputs", outputs.data(),
               std::vector<double>(outputs.size(), -9 * 1500.0 / 1024),
               Tolerance<Half>());
  }
}

// Of 4 bits in groups of 128, or of 8 bits; the first three numbers of a name
// are for peers.py.
template <typename T>
void TimeProducts(const Format& f, int64_t rows, int64_t depth,
                  int64_t columns) {
  const bool is_grouped = f.groups != Groups::kNone;
  const std::string of = testing::Text(
      "[", rows, ", ", depth, ", ", columns, "] int", f.bits,
      f.transposed ? " transposed" : "", is_grouped ? " groups" : " rounded");
  Problem<T> p = MakeProblem<T>(
      f, testing::IsTiming() ? rows : std::min<int64_t>(rows, 9),
      testing::BenchmarkSize(depth), testing::BenchmarkSize(columns));
  if (is_grouped) {
    p.weights.block_size = 128;
    p.weights.groups = (p.weights.depth + 127) / 128;
  }
  GpuVector<T> outputs(p.rows * p.weights.columns);
  const QuantizedMatmulArgs<T> args{p.rows, !is_grouped, p.weights,
                                    p.inputs.data(), outputs.data()};
  const int64_t num_bytes =
      p.kernel.size() + (p.inputs.size() + outputs.size()) * sizeof(T);
  testing::TimeOnGpu(
      testing::NameOf<T>() + ("quantized_matmul " + of), num_bytes,
      QuantizedMatmulScratchBytes(args),
      [&](const Gpu& gpu) { return QuantizedMatmul(gpu, args); });
  if (!is_grouped) return;
  GpuVector<T> d_inputs(p.inputs.size());
  const QuantizedMatmulGradArgs<T> grad{p.rows, p.weights, outputs.data(),
                                        d_inputs.data()};
  testing::TimeOnGpu(
      testing::NameOf<T>() + ("quantized_matmul_grad " + of), num_bytes,
      QuantizedMatmulGradScratchBytes(grad),
      [&](const Gpu& gpu) { return QuantizedMatmulGrad(gpu, grad); });
}

TFO_BENCHMARK(QuantizedMatmul, LayersOfModels) {
  for (const int64_t rows : {1, 8, 512}) {
    for (const bool transposed : {false, true}) {
      TimeProducts<Half>({4, NibblePairs::kColumns, transposed, false,
                          Zeros::kBytes, Groups::kBlocks},
                         rows, 4096, 16384);
    }
    TimeProducts<Half>(
        {8, NibblePairs::kNone, false, true, Zeros::kNone, Groups::kNone}, rows,
        4096, 16384);
  }
  TimeProducts<float>(
      {4, NibblePairs::kColumns, false, true, Zeros::kBytes, Groups::kBlocks},
      512, 4096, 16384);
}

}  // namespace
}  // namespace tfo
