// Deformable convolution on the CPU: tiles of outputs are sampled, a block of
// columns at a time, and multiplied with the filters. Columns stay in the L2
// cache.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/simd/convert_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using namespace deform_conv;  // NOLINT: the header of these files

// The filters as panels, a group after the other: blocks of kGemmDepth rows.
template <typename T, typename P>
class PackedFilters {
 public:
  using C = Accumulator<T>;
  PackedFilters(const Cpu& cpu, const DeformConvShape& args, const T* filters)
      : depth_(args.Depth()),
        columns_(args.out_channels / args.groups),
        padded_(RoundUp(columns_, PanelColumns<C>())),
        panels_(args.groups * PackCount<P>(depth_) * padded_) {
    const int64_t blocks = DivideUp(depth_, kGemmDepth);
    cpu.ParallelFor(
        args.groups * blocks, 1.0 * kGemmDepth * padded_,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t group = i / blocks, k = i % blocks * kGemmDepth;
            PackPanelsOf(filters + k * args.out_channels + group * columns_,
                         args.out_channels, 1, std::min(kGemmDepth, depth_ - k),
                         columns_, Block(group, k));
          }
        });
  }
  int64_t padded_columns() const { return padded_; }
  P* Block(int64_t group, int64_t k) const {
    return panels_.data() +
           (group * PackCount<P>(depth_) + PackCount<P>(k)) * padded_;
  }

 private:
  const int64_t depth_, columns_, padded_;
  Buffer<P> panels_;
};

// Outputs of a tile: its columns, sums and taps leave the features most of an
// L2 cache of 1 MiB, or half of AMX's 2 MiB, and there are some tiles for each
// thread.
template <typename T, typename P>
int64_t TileRows(const Cpu& cpu, const DeformConvShape& args,
                 int64_t padded_columns) {
  using C = Accumulator<T>;
  // A multiple of the rows that the product has in registers.
  constexpr int64_t kRows = kIsAmxPack<P> ? 32 : 42;
  constexpr int64_t kCacheBytes = (kIsAmxPack<P> ? 1024 : 384) << 10;
  const int64_t bytes = sizeof(C) * (kGemmStride + padded_columns) +
                        (kIsAmxPack<P> ? sizeof(P) * kRowPacks<P> : 0) +
                        sizeof(DeformTap<C>) * args.Taps() * args.offset_groups;
  const int64_t fit = kCacheBytes / bytes;
  const int64_t even =
      args.batch * args.Outputs() / (4 * int64_t{cpu.num_threads});
  return std::max<int64_t>(1, std::min(fit, even) / kRows) * kRows;
}

template <typename T, typename P>
void Convolve(const Cpu& cpu, const DeformConvArgs<T>& args) {
  using C = Accumulator<T>;
  const PackedFilters<T, P> filters(cpu, args, args.filters);
  const int64_t padded = filters.padded_columns(), depth = args.Depth();
  const int64_t of_group = args.out_channels / args.groups;
  const int64_t tile_rows = TileRows<T, P>(cpu, args, padded);
  const int64_t tiles = DivideUp(args.Outputs(), tile_rows);
  const std::vector<T> zeros(args.channels + kGemmStride);
  std::vector<C> bias(args.groups * padded);
  for (int64_t o = 0; args.bias != nullptr && o < args.out_channels; ++o) {
    bias[o / of_group * padded + o % of_group] = Widen(args.bias[o]);
  }
  cpu.ParallelFor(
      args.batch * tiles, tile_rows * CyclesPerOutput<T>(args),
      [&](int64_t begin, int64_t end) {
        [[maybe_unused]] const ScopeOf<P> scope;
        const Buffer<DeformTap<C>> taps(tile_rows * args.Taps() *
                                        args.offset_groups);
        const Buffer<C> columns(tile_rows * kGemmStride);
        const Buffer<P> packs(kIsAmxPack<P> ? tile_rows * kRowPacks<P> : 0);
        const Buffer<C> sums(tile_rows * padded);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / tiles, first = unit % tiles * tile_rows;
          const int64_t rows = std::min(tile_rows, args.Outputs() - first);
          const T* const features =
              args.features + image * args.Pixels() * args.channels;
          FindTaps<TapUse::kOutput>(args, image, first, rows, taps.data());
          for (int64_t group = 0; group < args.groups; ++group) {
            for (int64_t m = 0; m < rows; ++m) {
              std::copy_n(&bias[group * padded], padded,
                          sums.data() + m * padded);
            }
            for (int64_t k = 0; k < depth; k += kGemmDepth) {
              const int64_t block = std::min(kGemmDepth, depth - k);
              SampleBlock(args, features, group, k, k + block, taps.data(),
                          rows, zeros.data(), columns.data());
              const P* a = reinterpret_cast<const P*>(columns.data());
              if constexpr (kIsAmxPack<P>) {
                PackOperand(columns.data(), kGemmStride, rows, block,
                            packs.data());
                a = packs.data();
              }
              Multiply(a, rows, block, filters.Block(group, k), padded, true,
                       sums.data(), padded);
            }
            T* const to = args.output +
                          (image * args.Outputs() + first) * args.out_channels +
                          group * of_group;
            for (int64_t m = 0; m < rows; ++m) {
              NarrowArray<T>(sums.data() + m * padded,
                             to + m * args.out_channels, of_group);
            }
          }
        }
      });
}

}  // namespace

template <typename T>
Error DeformConv(const Cpu& cpu, const DeformConvArgs<T>& args) {
  if (args.batch * args.Outputs() * args.out_channels == 0) return nullptr;
  WithPacks<T>(cpu, args, nullptr,
               [&](auto pack) { Convolve<T, decltype(pack)>(cpu, args); });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DeformConv, DeformConvArgs);

}  // namespace tfo
