#include <cmath>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_weights_gpu.h"

namespace tfo {
namespace {

using namespace quantized_matmul;  // NOLINT: the kernels' own header

// A block rounds a row to integers, 0 where the weights are.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    QuantizeRows(const __grid_constant__ QuantizedMatmulArgs<T> args,
                 int64_t pitch, int8_t* integers, int32_t* row_sums,
                 Accumulator<T>* factors) {
  using C = Accumulator<T>;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ C greatest_of_warps[kWarps];
  __shared__ int sums_of_warps[kWarps];
  const QuantizedWeights<C>& w = args.weights;
  const int warp = threadIdx.x / kWarp;
  const auto round = [](C x) { return Widen(Narrow<T>(x)); };
  for (int64_t m = blockIdx.x; m < args.rows; m += gridDim.x) {
    const T* const row = args.inputs + m * w.depth;
    C greatest = 0;
    int bad = 0;
#pragma unroll 4
    for (int64_t k = threadIdx.x; k < w.depth; k += kThreads) {
      const C x = std::abs(Widen(row[k]));
      if (!(x < static_cast<C>(INFINITY))) bad = 1;
      if (x > greatest) greatest = x;
    }
    greatest = GreatestOfLanes(greatest);
    if (threadIdx.x % kWarp == 0) greatest_of_warps[warp] = greatest;
    bad = __syncthreads_or(bad);
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      greatest = std::fmax(greatest, greatest_of_warps[i]);
    }
    const C scale =
        round(C{127} / round(greatest + round(static_cast<C>(1e-7))));
    int sum = 0;
#pragma unroll 4
    for (int64_t k = threadIdx.x; k < pitch; k += kThreads) {
      int8_t to = 0;
      if (k < w.depth && (w.group_of == nullptr || GroupAt(w, k) != kNoGroup)) {
        const C q = std::rint(round(Widen(row[k]) * scale));
        // An infinite scale makes zeros NaN.
        if (q == q)
          to = static_cast<int8_t>(q > 127 ? 127 : q < -127 ? -127 : q);
      }
      integers[m * pitch + k] = to;
      sum += to;
    }
    sum = SumOfLanes(sum);
    if (threadIdx.x % kWarp == 0) sums_of_warps[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      sum = 0;
      for (const int of_warp : sums_of_warps) sum += of_warp;
      row_sums[m] = sum;
      factors[m] = bad ? static_cast<C>(NAN) : C{1} / scale;
    }
  }
}

template <typename Sum, typename T>
__global__ void __launch_bounds__(kThreads)
    JoinParts(const __grid_constant__ Stored<Accumulator<T>> w,
              const __grid_constant__ Task<T> p, const Sum* parts) {
  const int64_t outputs = p.rows * p.lines;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < outputs;
       i += int64_t{gridDim.x} * kThreads) {
    Sum sum = 0;
#pragma unroll 8
    for (int64_t part = 0; part < p.parts; ++part) {
      sum += parts[part * outputs + i];
    }
    p.outputs[i] = Finish(w, p, sum, i / p.lines, i % p.lines);
  }
}

// A product, and its scratch memory.
template <typename T>
struct Plan : Task<T> {
  using C = Accumulator<T>;
  bool exact, sums_inner;
  void* sums;  // of parts, or null
  int64_t bytes;

  Plan(const QuantizedMatmulArgs<T>& args, void* scratch)
      : Plan(args.weights, args.rows, false) {
    this->inputs = args.inputs;
    this->outputs = args.outputs;
    exact = args.quantize_inputs && args.weights.groups == 1 &&
            args.weights.float_zero == nullptr;
    Lay(args.quantize_inputs, scratch);
  }
  Plan(const QuantizedMatmulGradArgs<T>& args, void* scratch)
      : Plan(args.weights, args.rows, true) {
    this->inputs = args.d_outputs;
    this->outputs = args.d_inputs;
    Lay(false, scratch);
  }

  Error Enqueue(const Gpu& gpu, const QuantizedWeights<C>& weights) const {
    if (this->rows == 0 || this->lines == 0) return nullptr;
    return exact ? Enqueue<uint32_t>(gpu, weights) : Enqueue<C>(gpu, weights);
  }

 private:
  Plan(const QuantizedWeights<C>& w, int64_t row_count, bool is_gradient)
      : Task<T>{}, exact(false), sums_inner(w.transposed != is_gradient) {
    this->rows = row_count;
    this->sum = is_gradient ? w.columns : w.depth;
    this->lines = is_gradient ? w.depth : w.columns;
  }

  bool HasFewRows() const { return this->rows <= kFewRows; }

  void Lay(bool quantize, void* scratch) {
    this->has_packs = FitsPacks<kPackSize<T>>(this->sum, this->inputs);
    this->pitch = RoundUp(this->sum, 16);
    if (HasFewRows()) {
      SplitFewRows(sums_inner, this);
    } else {
      SplitTiles(exact, this);
    }
    ScratchLayout layout(scratch);
    int8_t* of_rows = nullptr;
    int32_t* of_sums = nullptr;
    C* of_factors = nullptr;
    if (quantize) {
      layout.Reserve(&of_rows, this->rows * this->pitch);
      layout.Reserve(&of_sums, this->rows);
      layout.Reserve(&of_factors, this->rows);
    }
    this->integers = of_rows;
    this->row_sums = of_sums;
    this->factors = of_factors;
    const int64_t partial = HasFewRows() || this->parts > 1
                                ? this->parts * this->rows * this->lines
                                : 0;
    char* of_parts;
    layout.Reserve(&of_parts, partial * (exact ? int64_t{sizeof(uint32_t)}
                                               : int64_t{sizeof(C)}));
    sums = of_parts;
    bytes = layout.bytes();
  }

  template <typename Sum>
  Error Enqueue(const Gpu& gpu, const QuantizedWeights<C>& weights) const {
    const Stored<C> w(weights, exact);
    const Task<T>& p = *this;
    Sum* const partial = static_cast<Sum*>(sums);
    Error error;
    if (HasFewRows()) {
      constexpr InputKind kKind = std::is_same_v<T, Half> ? InputKind::kHalf
                                  : std::is_same_v<T, BFloat16>
                                      ? InputKind::kBFloat16
                                      : InputKind::kWide;
      FewRows few{p.rows,      p.sum,    p.lines, p.parts,
                  p.part_size, p.inputs, p.sum,   kKind};
      if (p.integers != nullptr) {
        few.inputs = p.integers;
        few.pitch = p.pitch;
        few.kind = InputKind::kIntegers;
      }
      error = EnqueueFewRows(gpu, w, few, sums_inner, partial);
    } else {
      error = EnqueueTiles(gpu, w, p, sums_inner, partial);
    }
    if (error != nullptr || partial == nullptr) return error;
    return Launch(gpu, GridSize(DivideUp(p.rows * p.lines, kThreads)), kThreads,
                  JoinParts<Sum, T>, w, p, static_cast<const Sum*>(partial));
  }
};

}  // namespace

template <typename T>
int64_t QuantizedMatmulScratchBytes(const QuantizedMatmulArgs<T>& args) {
  return Plan<T>(args, nullptr).bytes;
}
template <typename T>
int64_t QuantizedMatmulGradScratchBytes(
    const QuantizedMatmulGradArgs<T>& args) {
  return Plan<T>(args, nullptr).bytes;
}

template <typename T>
Error QuantizedMatmul(const Gpu& gpu, const QuantizedMatmulArgs<T>& args) {
  const Plan<T> plan(args, gpu.scratch);
  if (args.quantize_inputs && args.rows > 0) {
    const Error error = Launch(
        gpu, GridSize(args.rows), kThreads, QuantizeRows<T>, args, plan.pitch,
        const_cast<int8_t*>(plan.integers), const_cast<int32_t*>(plan.row_sums),
        const_cast<Accumulator<T>*>(plan.factors));
    if (error != nullptr) return error;
  }
  return plan.Enqueue(gpu, args.weights);
}

template <typename T>
Error QuantizedMatmulGrad(const Gpu& gpu,
                          const QuantizedMatmulGradArgs<T>& args) {
  return Plan<T>(args, gpu.scratch).Enqueue(gpu, args.weights);
}

#define TFO_INSTANTIATE(T)                             \
  template int64_t QuantizedMatmulScratchBytes<T>(     \
      const QuantizedMatmulArgs<T>&);                  \
  template int64_t QuantizedMatmulGradScratchBytes<T>( \
      const QuantizedMatmulGradArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(QuantizedMatmul, Gpu, QuantizedMatmulArgs);
TFO_INSTANTIATE_ALGORITHM(QuantizedMatmulGrad, Gpu, QuantizedMatmulGradArgs);

}  // namespace tfo
