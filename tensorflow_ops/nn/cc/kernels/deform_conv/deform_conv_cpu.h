// Shared by the forward and the backward pass of deform_conv.h on the CPU:
// taps, tiles of outputs, blocks of columns, products by packs P: numbers, or
// those of AMX.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/amx_gemm_simd.h"
#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

namespace tfo {
namespace deform_conv {

// Multiply-adds of a vector take about a cycle.
template <typename T>
double CyclesPerOutput(const DeformConvShape& args) {
  return 1.0 * DepthOf(args) * args.out_channels / (64 / sizeof(T));
}

// Finds all taps of `count` outputs of an image from `first` on, [count][tap]
// [offset group].
template <TapUse kUse, typename T, typename C = Accumulator<T>>
void FindTaps(const DeformConvInputs<T>& args, int64_t image, int64_t first,
              int64_t count, DeformTap<C>* taps) {
  const int64_t output = image * OutputsOf(args) + first;
  const int64_t per_output = TapsOf(args) * args.offset_groups;
  const T* const mask =
      args.mask == nullptr ? nullptr : args.mask + output * per_output;
  TFO_DISPATCH(FindTaps<kUse, T>)
  (args, args.offsets + 2 * output * per_output, mask, first, count, taps);
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

// Samples the columns [begin, end) of a group for `count` outputs of an image
// into rows of kGemmStride. Requires their taps.
template <typename T, typename C = Accumulator<T>>
void SampleBlock(const DeformConvShape& args, const T* image, int64_t group,
                 int64_t begin, int64_t end, const DeformTap<C>* taps,
                 int64_t count, const T* zeros, C* columns) {
  const auto sample = TFO_DISPATCH(SampleColumns<T>);
  ForColumns(
      args, group, begin, end,
      [&](int64_t tap, const Segment& segment, int64_t column) {
        sample({taps + tap * args.offset_groups + segment.offset_group,
                TapsOf(args) * args.offset_groups, count},
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
    TFO_DISPATCH(PackTile<T>)(a, stride, rows, depth, packs);
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
    TFO_DISPATCH(MultiplyTile<P>)
    (a, rows, depth, panels, columns, add, c, c_stride);
  }
}

// The greatest magnitude of n numbers, or infinity or NaN if one is.
template <typename T>
double GreatestOf(const Cpu& cpu, const T* numbers, int64_t n) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<float> greatest(DivideUp(n, kBlock));
  cpu.ParallelFor(greatest.size(), kBlock / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      greatest[i] = TFO_DISPATCH(GreatestMagnitude<T>)(
          numbers + i * kBlock, 0, 1, std::min(kBlock, n - i * kBlock));
    }
  });
  return TFO_DISPATCH(GreatestMagnitude<float>)(greatest.data(), 0, 1,
                                                greatest.size());
}

// Whether to multiply by tiles; d_output for gradients. Three terms require
// finite numbers of moderate size, and a depth of 16: below, tiles are slower.
template <typename T>
bool FitTiles(const Cpu& cpu, const DeformConvInputs<T>& args,
              const T* d_output) {
  if (std::is_same_v<T, BFloat16>) return true;
  const int64_t of_group = args.out_channels / args.groups;
  const int64_t depth =
      d_output == nullptr ? DepthOf(args) : std::min(DepthOf(args), of_group);
  if (depth < 16) return false;
  const auto fits = [](double x) {
    return x == 0 || (0x1p-40 <= x && x <= 0x1p40);
  };
  const int64_t outputs = args.batch * OutputsOf(args);
  const int64_t taps = outputs * TapsOf(args) * args.offset_groups;
  const double mask =
      args.mask == nullptr ? 1 : GreatestOf(cpu, args.mask, taps);
  return fits(mask * GreatestOf(cpu, args.features,
                                args.batch * PixelsOf(args) * args.channels)) &&
         fits(GreatestOf(cpu, args.filters,
                         DepthOf(args) * args.out_channels)) &&
         (d_output == nullptr ||
          fits(GreatestOf(cpu, d_output, outputs * args.out_channels)));
}

// Calls run(P()) for the packs of all products on this processor.
template <typename T, typename Run>
void WithPacks([[maybe_unused]] const Cpu& cpu,
               [[maybe_unused]] const DeformConvInputs<T>& args,
               [[maybe_unused]] const T* d_output, const Run& run) {
  if constexpr (!std::is_same_v<T, double>) {
    TFO_IF_CPU_AVX512(if (HasTileProducts() && FitTiles(cpu, args, d_output)) {
      return run(AmxPackOf<T>());
    })
  }
  run(Accumulator<T>());
}

}  // namespace deform_conv
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_
