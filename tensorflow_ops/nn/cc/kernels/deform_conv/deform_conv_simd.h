// Shared by the forward and the backward pass of deform_conv.h on the CPU:
// taps, blocks of columns, products by packs P: numbers, or those of AMX.
// Columns are the sampled features, a row of them for each output, ordered as
// the filters' rows.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/amx_gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace deform_conv {

// The use of taps. kOutput: a tap with a NaN offset has a NaN weight; for other
// uses, nothing is read there. kSlopes: corners of weight 0 count, too.
enum class TapUse { kOutput, kSlopes, kFilters };

// Where a tap of an output reads. Corner i of its cell is (i / 2, i % 2).
template <typename C>
struct DeformTap {
  int32_t pixels[4];  // -1: outside, or of weight 0 where slopes do not matter
  C weights[4];
  C y_fraction, x_fraction, mask;
};

// The taps that one call reads: of `rows` outputs, `stride` apart.
template <typename C>
struct TapRows {
  const DeformTap<C>* taps;
  int64_t stride, rows;
};

// `count` channels of an image, from the first of them on.
template <typename T>
struct ChannelsView {
  const T* data;
  int64_t pixel_stride, count;
  const T* zeros;  // [count]: read in place of pixels outside
};

// Multiply-adds of a vector take about a cycle.
template <typename T>
double CyclesPerOutput(const DeformConvShape& args) {
  return 1.0 * args.Depth() * args.out_channels / (64 / sizeof(T));
}

// A tap whose four pixels are in the image: without conditions.
template <TapUse kUse, typename C>
TFO_INLINE void FindInside(C y, C x, int32_t width, DeformTap<C>* tap) {
  const auto low_y = static_cast<int32_t>(y), low_x = static_cast<int32_t>(x);
  tap->y_fraction = y - static_cast<C>(low_y);
  tap->x_fraction = x - static_cast<C>(low_x);
  const C up = 1 - tap->y_fraction, left = 1 - tap->x_fraction;
  const int32_t pixel = low_y * width + low_x;
  const C weights[] = {up * left, up * tap->x_fraction, tap->y_fraction * left,
                       tap->y_fraction * tap->x_fraction};
  const int32_t pixels[] = {pixel, pixel + 1, pixel + width, pixel + width + 1};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const bool counts = kUse == TapUse::kSlopes || weights[i] != 0;
    tap->pixels[i] = counts ? pixels[i] : -1;
    tap->weights[i] = weights[i];
  }
}

template <TapUse kUse, typename C>
TFO_INLINE void FindTap(C y, C x, const DeformConvShape& shape,
                        DeformTap<C>* tap) {
  if (y >= 0 && y < static_cast<C>(shape.height - 1) && x >= 0 &&
      x < static_cast<C>(shape.width - 1)) {
    return FindInside<kUse>(y, x, static_cast<int32_t>(shape.width), tap);
  }
  *tap = {{-1, -1, -1, -1}, {0, 0, 0, 0}, 0, 0, tap->mask};
  BilinearCell<C> cell;
  if (!FindCell(y, x, shape.height, shape.width, &cell)) {
    if (kUse == TapUse::kOutput && (y != y || x != x)) tap->weights[0] = y + x;
    return;
  }
  tap->y_fraction = cell.y_fraction;
  tap->x_fraction = cell.x_fraction;
  for (int i = 0; i < 4; ++i) {
    const C weight = CornerWeight(cell, i);
    if (!HasCorner(cell, i, shape.height, shape.width)) continue;
    if (kUse != TapUse::kSlopes && weight == 0) continue;
    tap->pixels[i] = static_cast<int32_t>(CornerPixel(cell, i, shape.width));
    tap->weights[i] = weight;
  }
}

// Finds all taps of `count` outputs of an image from `first` on, [count][tap]
// [offset group].
template <TapUse kUse, typename T, typename C = Accumulator<T>>
void FindTaps(const DeformConvInputs<T>& args, int64_t image, int64_t first,
              int64_t count, DeformTap<C>* taps) {
  const int64_t all = args.Taps(), groups = args.offset_groups;
  const int64_t output = image * args.Outputs() + first;
  const C* offsets = args.offsets + 2 * output * all * groups;
  const T* mask =
      args.mask == nullptr ? nullptr : args.mask + output * all * groups;
  int64_t p = first / args.out_width, q = first % args.out_width;
  for (int64_t m = 0; m < count; ++m) {
    const int64_t top = p * args.stride_y - args.top;
    const int64_t left = q * args.stride_x - args.left;
    int64_t t = 0;
    for (int64_t i = 0; i < args.kernel_height; ++i) {
      const C base_y = static_cast<C>(top + i * args.dilation_y);
      for (int64_t j = 0; j < args.kernel_width; ++j, ++t) {
        const C base_x = static_cast<C>(left + j * args.dilation_x);
        for (int64_t channel = t; channel < all * groups; channel += all) {
          DeformTap<C>* const tap = taps++;
          tap->mask = mask == nullptr ? C(1) : C(LoadOne(mask + channel));
          FindTap<kUse>(base_y + offsets[2 * channel],
                        base_x + offsets[2 * channel + 1], args, tap);
        }
      }
    }
    offsets += 2 * all * groups;
    if (mask != nullptr) mask += all * groups;
    if (++q == args.out_width) {
      q = 0;
      ++p;
    }
  }
}

// Channels that follow each other within a group and an offset group.
struct Segment {
  int64_t channel, count;
  int64_t group, offset_group;
};
inline std::vector<Segment> SegmentsOf(const DeformConvShape& args,
                                       int64_t begin, int64_t end) {
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  std::vector<Segment> segments;
  for (int64_t c = begin; c < end;) {
    const int64_t group = c / of_group, offset_group = c / of_offsets;
    const int64_t stop = std::min(
        {end, (group + 1) * of_group, (offset_group + 1) * of_offsets});
    segments.push_back({c, stop - c, group, offset_group});
    c = stop;
  }
  return segments;
}

// Calls run(tap, segment, column) for the columns [begin, end) of a group; the
// segment starts at `column`.
template <typename Run>
void ForColumns(const DeformConvShape& args, int64_t group, int64_t begin,
                int64_t end, const Run& run) {
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  for (int64_t column = begin; column < end;) {
    const int64_t tap = column / of_group;
    const int64_t channel = group * of_group + column % of_group;
    const int64_t offset_group = channel / of_offsets;
    const int64_t count = std::min({end - column, (tap + 1) * of_group - column,
                                    (offset_group + 1) * of_offsets - channel});
    run(tap, Segment{channel, count, group, offset_group}, column);
    column += count;
  }
}

template <typename T, typename C>
TFO_INLINE const T* CornerOf(const DeformTap<C>& tap, int i,
                             const ChannelsView<T>& features) {
  return tap.pixels[i] < 0
             ? features.zeros
             : features.data + tap.pixels[i] * features.pixel_stride;
}

// Writes the samples times the mask to columns, a row of kGemmStride each.
template <typename T, typename C = Accumulator<T>>
void SampleColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                   C* columns) {
  using Vector = typename Lanes<C>::Vector;
  for (int64_t m = 0; m < taps.rows; ++m, columns += kGemmStride) {
    const DeformTap<C>& tap = taps.taps[m * taps.stride];
    const T* corners[4];
    Vector weights[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      corners[i] = CornerOf(tap, i, features);
      weights[i] = Broadcast<Vector>(tap.mask * tap.weights[i]);
    }
    if (tap.pixels[1] < 0 && tap.pixels[2] < 0 && tap.pixels[3] < 0) {
      // A whole pixel, or nothing: as training starts, all taps.
      ForVectors<T>(features.count, [&](auto part, int64_t c) {
        Store(weights[0] * part.Load(corners[0] + c, 0), columns + c);
      });
      continue;
    }
    ForVectors<T>(features.count, [&](auto part, int64_t c) {
      Vector sum = weights[0] * part.Load(corners[0] + c, 0);
#pragma GCC unroll 4
      for (int i = 1; i < 4; ++i) {
        sum = MulAdd(weights[i], part.Load(corners[i] + c, 0), sum);
      }
      Store(sum, columns + c);
    });
  }
}

// Samples the columns [begin, end) of a group for `count` outputs of an image
// into rows of kGemmStride. Requires their taps.
template <typename T, typename C = Accumulator<T>>
void SampleBlock(const DeformConvShape& args, const T* image, int64_t group,
                 int64_t begin, int64_t end, const DeformTap<C>* taps,
                 int64_t count, const T* zeros, C* columns) {
  ForColumns(
      args, group, begin, end,
      [&](int64_t tap, const Segment& segment, int64_t column) {
        SampleColumns<T>(
            {taps + tap * args.offset_groups + segment.offset_group,
             args.Taps() * args.offset_groups, count},
            {image + segment.channel, args.channels, segment.count, zeros},
            columns + column - begin);
      });
}

// Packs of a row of a product's operand a, which has kGemmDepth numbers.
template <typename P>
inline constexpr int64_t kRowPacks =
    kIsAmxPack<P> ? kGemmDepth / kPackNumbers<P> : kGemmStride;

// Packs a row for each of `rows`, `stride` apart.
template <typename T, typename P>
void PackOperand(const T* a, int64_t stride, int64_t rows, int64_t depth,
                 P* packs) {
  if constexpr (kIsAmxPack<P>) {
    cpu_avx512::PackAmxRows(a, stride, 1, rows, depth, kRowPacks<P>, packs);
  } else {
    PackTile<T>(a, stride, rows, depth, packs);
  }
}

// c = a * b, or c += with `add`. Of AMX, c has whole tiles of rows.
template <typename P, typename C>
void Multiply(const P* a, int64_t rows, int64_t depth, const P* panels,
              int64_t columns, bool add, C* c, int64_t c_stride) {
  if constexpr (kIsAmxPack<P>) {
    cpu_avx512::MultiplyAmx(a, kRowPacks<P>, rows, PackCount<P>(depth), panels,
                            columns, add, c, c_stride);
  } else {
    MultiplyTile<P>(a, rows, depth, panels, columns, add, c, c_stride);
  }
}

// The greatest magnitude of n numbers, or infinity or NaN if one is.
template <typename T>
double GreatestOf(const Cpu& cpu, const T* numbers, int64_t n) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<float> greatest(DivideUp(n, kBlock));
  cpu.ParallelFor(greatest.size(), kBlock / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      greatest[i] = GreatestMagnitude<T>(numbers + i * kBlock, 0, 1,
                                         std::min(kBlock, n - i * kBlock));
    }
  });
  return GreatestMagnitude<float>(greatest.data(), 0, 1, greatest.size());
}

// Whether to multiply by tiles; d_output for gradients. Three terms require
// finite numbers of moderate size, and a depth of 16: below, tiles are slower.
template <typename T>
bool FitTiles(const Cpu& cpu, const DeformConvInputs<T>& args,
              const T* d_output) {
  if (std::is_same_v<T, BFloat16>) return true;
  const int64_t of_group = args.out_channels / args.groups;
  const int64_t depth =
      d_output == nullptr ? args.Depth() : std::min(args.Depth(), of_group);
  if (depth < 16) return false;
  const auto fits = [](double x) {
    return x == 0 || (0x1p-40 <= x && x <= 0x1p40);
  };
  const int64_t outputs = args.batch * args.Outputs();
  const int64_t taps = outputs * args.Taps() * args.offset_groups;
  const double mask =
      args.mask == nullptr ? 1 : GreatestOf(cpu, args.mask, taps);
  return fits(mask * GreatestOf(cpu, args.features,
                                args.batch * args.Pixels() * args.channels)) &&
         fits(
             GreatestOf(cpu, args.filters, args.Depth() * args.out_channels)) &&
         (d_output == nullptr ||
          fits(GreatestOf(cpu, d_output, outputs * args.out_channels)));
}

// Calls run(P()) for the packs of all products on this processor.
template <typename T, typename Run>
void WithPacks([[maybe_unused]] const Cpu& cpu,
               [[maybe_unused]] const DeformConvInputs<T>& args,
               [[maybe_unused]] const T* d_output, const Run& run) {
  // Tiles are of the level avx512.
  if constexpr (kVectorBytes == 64 && !std::is_same_v<T, double>) {
    if (HasTileProducts() && FitTiles(cpu, args, d_output)) {
      return run(AmxPackOf<T>());
    }
  }
  run(Accumulator<T>());
}

}  // namespace deform_conv
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_
