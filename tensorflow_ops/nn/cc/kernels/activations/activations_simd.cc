#include <algorithm>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/activations/activation_formulas.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

constexpr double kCycles = 3;  // for an element
// Short rows are taken together, so that the vectors of at least this many
// elements are full.
constexpr int64_t kLeastWidth = 256;
// Columns of a row whose gradients are summed at a time.
constexpr int64_t kColumns = 1024;

// How a gradient is summed: in bands of rows, whose sums are then added. The
// bands depend on the shape only, so that bits do not depend on threads.
struct Bands {
  Bands(int64_t rows, int64_t channels)
      : repeats(channels < kLeastWidth ? kLeastWidth / channels : 1),
        width(repeats * channels),
        size(rows * channels),
        rows_together(DivideUp(size, width)),
        count(std::clamp<int64_t>(size >> 15, 1, 64)) {}

  int64_t repeats, width;  // of rows that are taken together
  int64_t size, rows_together, count;
};

// The bias for all rows that are taken together; null if there is none.
template <typename T>
const Accumulator<T>* Repeat(const T* bias, const Bands& bands,
                             const Buffer<Accumulator<T>>& memory) {
  if (bias == nullptr) return nullptr;
  const int64_t channels = bands.width / bands.repeats;
  for (int64_t i = 0; i < bands.width; ++i) {
    memory.data()[i] = LoadOne(bias + i % channels);
  }
  return memory.data();
}

// Applies the activation to n values, or its gradient if d is not null, and
// adds to sums unless null, which are whole vectors.
template <Activation kActivation, bool kGrad, bool kSums, typename T>
TFO_INLINE void Run(const T* d, const T* x, const Accumulator<T>* bias,
                    int64_t n, T* to, Accumulator<T>* sums) {
  ForVectors<T>(n, [&](const auto& part, int64_t at) {
    auto v = part.Load(x + at, 0);
    if (bias != nullptr) v += part.Load(bias + at, 0);
    v = Activate<kActivation, kGrad>(v);
    if constexpr (kGrad) v *= part.Load(d + at, 0);
    part.Store(v, to + at);
    if constexpr (kSums) Store(Load(sums + at) + v, sums + at);
  });
}

// Without sums, for elements [begin, end).
template <Activation kActivation, bool kGrad, typename T>
void RunRange(const T* d, const T* x, const Accumulator<T>* bias, int64_t width,
              int64_t begin, int64_t end, T* to) {
  while (begin < end) {
    const int64_t column = bias == nullptr ? 0 : begin % width;
    const int64_t n =
        bias == nullptr ? end - begin : std::min(end - begin, width - column);
    Run<kActivation, kGrad, false>(kGrad ? d + begin : nullptr, x + begin,
                                   bias == nullptr ? nullptr : bias + column, n,
                                   to + begin, nullptr);
    begin += n;
  }
}

// For columns [begin, end) of a band.
template <Activation kActivation, typename T>
void RunBand(const BiasActivationGradArgs<T>& args, const Bands& bands,
             const Accumulator<T>* bias, int64_t band, int64_t begin,
             int64_t end, Accumulator<T>* to) {
  alignas(64) Accumulator<T> sums[kColumns] = {};
  const int64_t last = bands.rows_together * (band + 1) / bands.count;
  for (int64_t row = bands.rows_together * band / bands.count; row < last;
       ++row) {
    const int64_t at = row * bands.width + begin;
    const int64_t n = std::min(end - begin, bands.size - at);
    if (n <= 0) break;
    Run<kActivation, true, true>(args.d_output + at, args.features + at,
                                 bias + begin, n, args.d_features + at, sums);
  }
  std::copy(sums, sums + (end - begin), to);
}

template <Activation kActivation, typename T>
void RunGrad(const Cpu& cpu, const BiasActivationGradArgs<T>& args) {
  using Value = Accumulator<T>;
  const Bands bands(args.rows, args.channels);
  if (args.bias == nullptr) {
    return cpu.ParallelFor(
        bands.size, 2 * kCycles, [&](int64_t begin, int64_t end) {
          RunRange<kActivation, true>(args.d_output, args.features,
                                      static_cast<const Value*>(nullptr), 0,
                                      begin, end, args.d_features);
        });
  }
  const Buffer<Value> memory(bands.width), sums(bands.count * bands.width);
  const Value* const bias = Repeat(args.bias, bands, memory);
  const int64_t parts = DivideUp(bands.width, kColumns);
  cpu.ParallelFor(
      bands.count * parts,
      2 * kCycles * static_cast<double>(bands.size / (bands.count * parts)),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t band = i / parts, column = i % parts * kColumns;
          RunBand<kActivation>(args, bands, bias, band, column,
                               std::min(column + kColumns, bands.width),
                               sums.data() + band * bands.width + column);
        }
      });
  const int64_t count = bands.count * bands.repeats;
  cpu.ParallelFor(args.channels, static_cast<double>(count),
                  [&](int64_t begin, int64_t end) {
                    ForVectors<T>(
                        end - begin, [&](const auto& part, int64_t at) {
                          const Value* from = sums.data() + begin + at;
                          auto sum = part.Load(from, 0);
                          for (int64_t i = 1; i < count; ++i) {
                            sum += part.Load(from += args.channels, 0);
                          }
                          part.Store(sum, args.d_bias + begin + at);
                        });
                  });
}

}  // namespace

template <typename T>
Error BiasActivation(const Cpu& cpu, const BiasActivationArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  return WithActivation(args.activation, [&](auto k) -> Error {
    const Bands bands(args.rows, args.channels);
    const Buffer<Accumulator<T>> memory(bands.width);
    const auto* const bias = Repeat(args.bias, bands, memory);
    cpu.ParallelFor(bands.size, kCycles, [&](int64_t begin, int64_t end) {
      RunRange<decltype(k)::value, false, T>(
          nullptr, args.features, bias, bands.width, begin, end, args.output);
    });
    return nullptr;
  });
}

template <typename T>
Error BiasActivationGrad(const Cpu& cpu,
                         const BiasActivationGradArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  return WithActivation(args.activation, [&](auto k) -> Error {
    RunGrad<decltype(k)::value>(cpu, args);
    return nullptr;
  });
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(BiasActivation, BiasActivationArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(BiasActivationGrad, BiasActivationGradArgs);

}  // namespace tfo
