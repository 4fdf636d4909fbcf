// The gradients of correlation_cost for windows of one pixel, from the tensors
// as they are.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_STEPS_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_STEPS_SIMD_H_

#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// A row of pixels that contributes to a row of a gradient: pixel x adds
// weights[weight + x * weight_pixel + k * weight_step] times the channels from
// source[source + x * channels + k * source_step] on, for steps k in
// [begin[x], end[x]).
struct StepRow {
  int64_t weight, source;
};
struct StepLayout {
  int64_t width, channels;
  int64_t weight_pixel, weight_step, source_step;
  const int64_t *begin, *end;
};

// Pixels at a time: with four vectors of channels each, their sums fit the
// registers.
constexpr int kPixels = kManyRegisters ? 6 : 3;

// Stores scaled sums of pixels that are `pixel_step` apart; with `some` > 0,
// the first values of one vector.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void StoreSums(const Vector<V> (&sums)[kPixels][kVectors], V scale,
                          int64_t some, int64_t pixel_step, V* to) {
#pragma GCC unroll 6
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector<V> values = scale * sums[p][v];
      if (some > 0) {
        StoreFirst(values, to + p * pixel_step, some);
      } else {
        Store(values, to + p * pixel_step + v * Lanes<V>::kCount);
      }
    }
  }
}

// kPixels pixels from x on, with common steps, and kVectors vectors of channels
// from c on; with `some` > 0, the first values of one vector.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void SumTile(const StepRow* rows, int64_t count,
                        const StepLayout& layout, const V* weights,
                        const V* source, V scale, int64_t x, int64_t c,
                        int64_t some, V* gradient) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t channels = layout.channels, begin = layout.begin[x];
  const auto load = [&](const V* at) {
    return some > 0 ? LoadFirst(at, some) : Load(at);
  };
  Vector<V> sums[kPixels][kVectors] = {};
  for (int64_t r = 0; r < count; ++r) {
    int64_t weight =
        rows[r].weight + x * layout.weight_pixel + begin * layout.weight_step;
    int64_t from =
        rows[r].source + x * channels + begin * layout.source_step + c;
    for (int64_t k = begin; k < layout.end[x]; ++k) {
#pragma GCC unroll 6
      for (int p = 0; p < kPixels; ++p) {
        const Vector<V> factor =
            Broadcast<Vector<V>>(weights[weight + p * layout.weight_pixel]);
        const V* const at = source + from + p * channels;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[p][v] = MulAdd(factor, load(at + v * kLanes), sums[p][v]);
        }
      }
      weight += layout.weight_step;
      from += layout.source_step;
    }
  }
  StoreSums<kPixels, kVectors>(sums, scale, some, channels,
                               gradient + x * channels + c);
}

// Calls visit(Constant<n>) for n in [kBegin, kEnd).
template <int kBegin, int kEnd, typename Visit>
TFO_INLINE void ForConstants(const Visit& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>{});
    ForConstants<kBegin + 1, kEnd>(visit);
  }
}

// As SumTile, for at least kPixels - 1 steps, each to a neighboring pixel of
// the source: loads a vector of the source once for all pixels. Needs a
// register for each vector of the source, too. Pixel j is the j-th in the
// direction of the steps, so that at step k it reads pixel j + k.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void SumNeighbors(const StepRow* rows, int64_t count,
                             const StepLayout& layout, const V* weights,
                             const V* source, V scale, int64_t x, int64_t c,
                             int64_t some, V* gradient) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t begin = layout.begin[x], steps = layout.end[x] - begin;
  const int64_t weight_step = layout.weight_step, step = layout.source_step;
  const int64_t first = step < 0 ? x + kPixels - 1 : x;
  const int64_t weight_pixel =
      (step < 0 ? -layout.weight_pixel : layout.weight_pixel) - weight_step;
  Vector<V> sums[kPixels][kVectors] = {};
  for (int64_t r = 0; r < count; ++r) {
    const V* weight = weights + rows[r].weight + first * layout.weight_pixel +
                      begin * weight_step;
    const V* from =
        source + rows[r].source + first * layout.channels + begin * step + c;
    // Adds the next pixel to the sums of pixels [low, high).
    const auto add = [&](auto low, auto high) __attribute__((always_inline)) {
      Vector<V> values[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        values[v] = some > 0 ? LoadFirst(from, some) : Load(from + v * kLanes);
      }
#pragma GCC unroll 6
      for (int j = decltype(low)::kValue; j < decltype(high)::kValue; ++j) {
        const Vector<V> factor = Broadcast<Vector<V>>(weight[j * weight_pixel]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[j][v] = MulAdd(factor, values[v], sums[j][v]);
        }
      }
      weight += weight_step;
      from += step;
    };
    constexpr Constant<kPixels> kAll;
    ForConstants<1, kPixels>([&](auto n) { add(Constant<0>{}, n); });
    for (int64_t s = kPixels - 1; s < steps; ++s) add(Constant<0>{}, kAll);
    ForConstants<1, kPixels>([&](auto n) { add(n, kAll); });
  }
  StoreSums<kPixels, kVectors>(sums, scale, some, step,
                               gradient + first * layout.channels + c);
}

// Writes `scale` times the sums of rows to gradient [width, channels].
template <typename V>
void SumSteps(const StepRow* rows, int64_t count, const StepLayout& layout,
              const V* weights, const V* source, V scale, V* gradient) {
  const bool to_neighbors = layout.source_step == layout.channels ||
                            layout.source_step == -layout.channels;
  const auto sum = [&](auto pixels, int64_t x) {
    constexpr int kSome = decltype(pixels)::kValue;
    // Inline, for the constant n.
    const auto tile = [&](auto vectors, int64_t c,
                          int64_t n) __attribute__((always_inline)) {
      constexpr int kVectors = decltype(vectors)::kValue;
      if constexpr (kManyRegisters && kSome > 1) {
        if (to_neighbors && layout.end[x] - layout.begin[x] >= kSome - 1) {
          return SumNeighbors<kSome, kVectors, V>(
              rows, count, layout, weights, source, scale, x, c, n, gradient);
        }
      }
      SumTile<kSome, kVectors, V>(rows, count, layout, weights, source, scale,
                                  x, c, n, gradient);
    };
    ForVectorGroups<4, Lanes<V>::kCount>(
        layout.channels, 0,
        [&](auto vectors, int64_t c) { tile(vectors, c, 0); },
        [&](int64_t c, int64_t n) { tile(Constant<1>{}, c, n); });
  };
  for (int64_t x = 0; x < layout.width;) {
    int64_t n = 1;
    while (n < kPixels && x + n < layout.width &&
           layout.begin[x + n] == layout.begin[x] &&
           layout.end[x + n] == layout.end[x]) {
      ++n;
    }
    if (n == kPixels) {
      sum(Constant<kPixels>{}, x);
      x += kPixels;
    } else {
      sum(Constant<1>{}, x++);
    }
  }
}

// Whether SumSteps computes the gradients, from the tensors as they are.
inline bool HasSteps(const CorrelationSpec& args) {
  return args.kernel_size == 1 && args.stride_1 == 1;
}

// The gradient to one of the maps for HasSteps. Row y of the gradient sums up
// the other map's rows at all displacements, in order.
template <typename V>
class StepGradient {
 public:
  StepGradient(const CorrelationSpec& args, bool to_b)
      : args_(args),
        to_b_(to_b),
        shift_(args.padding - args.max_displacement),
        begin_(args.width),
        end_(args.width) {
    const int64_t side = args.Side(), costs = args.Displacements();
    layout_ = {args.width,
               args.channels,
               costs,
               1 - (to_b ? args.stride_2 * costs : 0),
               (to_b ? -args.stride_2 : args.stride_2) * args.channels,
               begin_.data(),
               end_.data()};
    for (int64_t x = 0; x < args.width; ++x) {
      const auto counts = [&](int64_t k) {
        const int64_t from = Partner(x, k);
        const int64_t cost = (to_b ? from : x) + shift_;
        return from >= 0 && from < args.width && cost >= 0 &&
               cost < args.OutputWidth();
      };
      int64_t k = 0;
      while (k < side && !counts(k)) ++k;
      begin_[x] = k;
      while (k < side && counts(k)) ++k;
      end_[x] = k;
    }
  }

  // Row y of the gradient to an image. `rows` is scratch memory.
  void Run(const V* d_costs, const V* other, int64_t y,
           std::vector<StepRow>* rows, V* gradient) const {
    rows->clear();
    const int64_t side = args_.Side(), costs = args_.Displacements();
    for (int64_t k = 0; k < side; ++k) {
      const int64_t from = Partner(y, k);
      const int64_t row = (to_b_ ? from : y) + shift_;
      if (from < 0 || from >= args_.height || row < 0 ||
          row >= args_.OutputHeight()) {
        continue;
      }
      const int64_t first_cost =
          shift_ + (to_b_ ? args_.Radius() * args_.stride_2 : 0);
      rows->push_back(
          {(row * args_.OutputWidth() + first_cost) * costs + k * side,
           (from * args_.width + Partner(0, 0)) * args_.channels});
    }
    SumSteps<V>(rows->data(), static_cast<int64_t>(rows->size()), layout_,
                d_costs, other, V(1) / static_cast<V>(args_.Terms()),
                gradient + y * args_.width * args_.channels);
  }

 private:
  // The other map's row or column at step k of a displacement.
  int64_t Partner(int64_t at, int64_t k) const {
    const int64_t d = (k - args_.Radius()) * args_.stride_2;
    return to_b_ ? at - d : at + d;
  }

  const CorrelationSpec& args_;
  const bool to_b_;
  const int64_t shift_;  // from pixels to costs
  std::vector<int64_t> begin_, end_;
  StepLayout layout_;
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_STEPS_SIMD_H_
