#include <cmath>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
// Rows that share a read of the weights.
constexpr int kRows = 4;

template <typename C>
__device__ int IntegerAt(const QuantizedWeights<C>& w, const uint8_t* values,
                         int64_t at) {
  return w.is_signed ? static_cast<int8_t>(values[at]) : values[at];
}

template <typename C>
__device__ int NumberAt(const QuantizedWeights<C>& w, int64_t k, int64_t n) {
  const bool of_depth = w.pairs == NibblePairs::kDepth;
  const bool of_columns = w.pairs == NibblePairs::kColumns;
  const int64_t row = of_depth ? k / 2 : k, column = of_columns ? n / 2 : n;
  const int64_t at =
      w.transposed
          ? column * (of_depth ? (w.depth + 1) / 2 : w.depth) + row
          : row * (of_columns ? (w.columns + 1) / 2 : w.columns) + column;
  if (w.pairs == NibblePairs::kNone) return IntegerAt(w, w.kernel, at);
  const int half = w.kernel[at] >> ((of_depth ? k : n) % 2 * 4) & 15;
  return w.is_signed ? (half ^ 8) - 8 : half;
}

// q - zero, times scale unless Weight is an integer.
template <typename Weight, typename C>
__device__ Weight WeightAt(const QuantizedWeights<C>& w, int64_t k, int64_t n) {
  const int64_t group =
      w.group_of != nullptr ? w.group_of[k] : k / w.block_size;
  if (group < 0 || group >= w.groups) return Weight{0};
  const int64_t at =
      w.transposed ? n * w.groups + group : group * w.columns + n;
  int q = NumberAt(w, k, n);
  if (w.zero != nullptr) q -= IntegerAt(w, w.zero, at);
  if constexpr (std::is_same_v<Weight, uint32_t>) {
    return static_cast<uint32_t>(q);
  } else {
    C weight = static_cast<C>(q);
    if (w.float_zero != nullptr) weight -= w.float_zero[at];
    return weight * w.scale[at];
  }
}

// outputs [rows, columns] = a [rows, depth] * W, or its transpose, times the
// rows' factors. Sums of integers are uint32_t.
template <typename T, typename A>
struct GpuProduct {
  int64_t rows, depth, columns;
  const A* a;
  const Accumulator<T>* factors;  // null: 1
  T* outputs;
};

// Whole warps sum an output's products along the weights' memory, or threads
// sum neighbors across it.
template <bool kTransposed, bool kByWarps, typename Sum, typename T, typename A>
__global__ void __launch_bounds__(kThreads)
    Multiply(const __grid_constant__ QuantizedWeights<Accumulator<T>> w,
             const __grid_constant__ GpuProduct<T, A> p) {
  using C = Accumulator<T>;
  constexpr int kSharing = kByWarps ? kWarp : 1;
  const int lane = threadIdx.x % kSharing;
  const int64_t tiles = (p.rows + kRows - 1) / kRows;
  constexpr int kOutputs = kThreads / kSharing;
  for (int64_t i = int64_t{blockIdx.x} * kOutputs + threadIdx.x / kSharing;
       i < tiles * p.columns; i += int64_t{gridDim.x} * kOutputs) {
    const int64_t first = i / p.columns * kRows, n = i % p.columns;
    Sum sums[kRows] = {};
    for (int64_t k = lane; k < p.depth; k += kSharing) {
      const Sum weight =
          kTransposed ? WeightAt<Sum>(w, n, k) : WeightAt<Sum>(w, k, n);
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        if (first + m >= p.rows) break;
        const C x = Widen(p.a[(first + m) * p.depth + k]);
        if constexpr (std::is_same_v<Sum, uint32_t>) {
          sums[m] += weight * static_cast<uint32_t>(static_cast<int32_t>(x));
        } else {
          sums[m] += weight * x;
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      if (first + m >= p.rows) break;
      const Sum sum = kByWarps ? SumOfLanes(sums[m]) : sums[m];
      C value;
      if constexpr (std::is_same_v<Sum, uint32_t>) {
        value = static_cast<C>(static_cast<int32_t>(sum)) * w.scale[n];
      } else {
        value = sum;
      }
      if (p.factors != nullptr) value *= p.factors[first + m];
      if (lane == 0) {
        p.outputs[(first + m) * p.columns + n] = Narrow<T>(value);
      }
    }
  }
}

template <bool kTransposed, typename Sum, typename T, typename A>
Error EnqueueProduct(const Gpu& gpu, const QuantizedWeights<Accumulator<T>>& w,
                     const GpuProduct<T, A>& p) {
  const int64_t outputs = DivideUp(p.rows, kRows) * p.columns;
  if (outputs == 0) return nullptr;
  return w.transposed != kTransposed
             ? Launch(gpu, GridSize(DivideUp(outputs, kThreads / kWarp)),
                      kThreads, Multiply<kTransposed, true, Sum, T, A>, w, p)
             : Launch(gpu, GridSize(DivideUp(outputs, kThreads)), kThreads,
                      Multiply<kTransposed, false, Sum, T, A>, w, p);
}

// A warp rounds a row to integers.
template <typename T>
__global__ void __launch_bounds__(kWarp)
    QuantizeRows(const __grid_constant__ QuantizedMatmulArgs<T> args,
                 Accumulator<T>* integers, Accumulator<T>* factors) {
  using C = Accumulator<T>;
  const int64_t depth = args.weights.depth;
  const auto round = [](C x) { return Widen(Narrow<T>(x)); };
  for (int64_t m = blockIdx.x; m < args.rows; m += gridDim.x) {
    const T* const row = args.inputs + m * depth;
    C* const to = integers + m * depth;
    C greatest = 0;
    int bad = 0;
    for (int64_t k = threadIdx.x; k < depth; k += kWarp) {
      const C x = std::abs(Widen(row[k]));
      if (!(x < static_cast<C>(INFINITY))) bad = 1;
      if (x > greatest) greatest = x;
    }
    greatest = GreatestOfLanes(greatest);
    bad = __any_sync(kAllLanes, bad);
    const C scale =
        round(C{127} / round(greatest + round(static_cast<C>(1e-7))));
    for (int64_t k = threadIdx.x; k < depth; k += kWarp) {
      const C q = std::rint(round(Widen(row[k]) * scale));
      // An infinite scale makes zeros NaN.
      const C most = q > 127 ? C{127} : q < -127 ? C{-127} : q;
      to[k] = bad || !(q == q) ? C{0} : most;
    }
    if (threadIdx.x == 0) {
      factors[m] = bad ? static_cast<C>(NAN) : C{1} / scale;
    }
  }
}

}  // namespace

template <typename T>
Error QuantizedMatmul(const Gpu& gpu, const QuantizedMatmulArgs<T>& args) {
  using C = Accumulator<T>;
  const QuantizedWeights<C>& w = args.weights;
  if (args.rows == 0 || w.columns == 0) return nullptr;
  if (!args.quantize_inputs) {
    return EnqueueProduct<false, C>(
        gpu, w,
        GpuProduct<T, T>{args.rows, w.depth, w.columns, args.inputs, nullptr,
                         args.outputs});
  }
  C* const factors = static_cast<C*>(gpu.scratch);
  C* const integers = factors + args.rows;
  const Error error = Launch(gpu, GridSize(args.rows), kWarp, QuantizeRows<T>,
                             args, integers, factors);
  if (error != nullptr) return error;
  const GpuProduct<T, C> product{args.rows, w.depth, w.columns,
                                 integers,  factors, args.outputs};
  return w.groups == 1 && w.float_zero == nullptr
             ? EnqueueProduct<false, uint32_t>(gpu, w, product)
             : EnqueueProduct<false, C>(gpu, w, product);
}

template <typename T>
Error QuantizedMatmulGrad(const Gpu& gpu,
                          const QuantizedMatmulGradArgs<T>& args) {
  const QuantizedWeights<Accumulator<T>>& w = args.weights;
  return EnqueueProduct<true, Accumulator<T>>(
      gpu, w,
      GpuProduct<T, T>{args.rows, w.columns, w.depth, args.d_outputs, nullptr,
                       args.d_inputs});
}

TFO_INSTANTIATE_ALGORITHM(QuantizedMatmul, Gpu, QuantizedMatmulArgs);
TFO_INSTANTIATE_ALGORITHM(QuantizedMatmulGrad, Gpu, QuantizedMatmulGradArgs);

}  // namespace tfo
