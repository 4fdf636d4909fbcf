#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_gpu.h"

namespace tfo {
namespace {

using namespace deform_conv;  // NOLINT: the kernels' own header

// A block has a tile of outputs and output channels of a group, and a part of
// the depth.
template <typename T>
struct Plan : Sizes {
  int64_t columns, parts, tiles;  // tiles of output channels; of all

  explicit Plan(const DeformConvShape& args)
      : Sizes(args),
        columns(DivideUp(out_of_group, TileSize<T>::kLines)),
        tiles(DivideUp(rows, TileSize<T>::kLines) * columns * args.groups) {
    constexpr int kMinSteps = 8;  // of a part
    parts = tiles == 0 ? 1
                       : Clamp(kMinBlocks / tiles,
                               depth / (kMinSteps * TileSize<T>::kDepth));
  }
  int64_t PartialSums() const { return parts == 1 ? 0 : parts * rows; }
};

template <typename T, bool kPacked, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, 2)
    Convolve(const __grid_constant__ DeformConvArgs<T> args,
             const __grid_constant__ Plan<T> plan, C* partial) {
  constexpr int kLines = TileSize<T>::kLines, kDepth = TileSize<T>::kDepth;
  constexpr int kPack = kPackSize<T>;
  __shared__ SharedTaps<C> taps;
  __shared__ Operand<T, Along::kDepth> samples[2];
  __shared__ Operand<T, Along::kLines> filters[2];
  // The thread's pack of the samples, and of the filters.
  const int row = threadIdx.x / (kDepth / kPack);
  const int column = threadIdx.x % (kDepth / kPack) * kPack;
  const int filter_row = threadIdx.x / (kLines / kPack);
  const int filter_column = threadIdx.x % (kLines / kPack) * kPack;
  AsyncCopies copies;
  const int64_t blocks = plan.tiles * plan.parts;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t part = block % plan.parts, tile = block / plan.parts;
    const int first_column = static_cast<int>(tile % plan.columns) * kLines;
    const int group = static_cast<int>(tile / plan.columns % args.groups);
    const int64_t first_row = tile / plan.columns / args.groups * kLines;
    const int64_t steps = (plan.depth + kDepth - 1) / kDepth;
    const int begin = static_cast<int>(steps * part / plan.parts) * kDepth;
    const int end = static_cast<int>(steps * (part + 1) / plan.parts) * kDepth;

    const bool has_row = first_row + row < plan.rows;
    const OutputPlace place = PlaceOf(args, has_row ? first_row + row : 0);
    const int out_channel =
        group * plan.out_of_group + first_column + filter_column;
    Segment segment;
    Word<T, kPack> corners[4];
    // Starts filling a buffer, and loads the pixels of samples for it.
    const auto load = [&](int depth, int buffer) {
      const int k = depth + filter_row;
      Fill<kPacked>(&copies, &filters[buffer], filter_column, filter_row,
                    args.filters + int64_t{k} * plan.out_channels + out_channel,
                    k < plan.depth
                        ? plan.out_of_group - first_column - filter_column
                        : 0);
      copies.Commit();
      if constexpr (kPacked) {
        if (depth + column >= segment.end) {
          segment = SegmentOf(plan, group, depth + column);
          if (has_row && depth + column < plan.depth) {
            taps.template Set<true>(
                args, threadIdx.x, place.image,
                FindTap(args, plan, place, segment.tap, segment.offset_group));
          } else {
            taps.SetEmpty(threadIdx.x);
          }
        }
        taps.template Load<kPack>(args, plan, threadIdx.x,
                                  depth + column + segment.shift, corners);
      }
    };
    const auto store = [&](int depth, int buffer) {
      Pack<T, kPack> sampled = {};
      if constexpr (kPacked) {
        sampled = taps.template Sample<kPack, T>(threadIdx.x, corners);
      } else if (has_row) {
        sampled =
            SampleEach<true>(args, plan, place, group, depth + column, &taps);
      }
      samples[buffer].Store(row, column, sampled);
      copies.template Wait<0>();
    };

    TileProduct<T> product;
    product.Clear();
    __syncthreads();  // the last tile's buffers are read
    load(begin, 0);
    store(begin, 0);
    __syncthreads();
    int buffer = 0;
    for (int depth = begin + kDepth; depth < end; depth += kDepth) {
      load(depth, buffer ^ 1);
      product.Add(samples[buffer], filters[buffer]);
      buffer ^= 1;
      store(depth, buffer);
      __syncthreads();
    }
    product.Add(samples[buffer], filters[buffer]);

    product.ForEachPack([&](int i, int j, const auto& sums) {
      constexpr int kColumns = TileProduct<T>::kColumns;
      const int count = plan.out_of_group - first_column - j;
      const int64_t m = first_row + i;
      if (m >= plan.rows || count <= 0) return;
      const int channel = group * plan.out_of_group + first_column + j;
      if (partial != nullptr) {
        Pack<C, kColumns> pack;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) pack.values[n] = sums[n];
        StoreSome<kPacked>(
            pack, count,
            partial + (part * plan.rows + m) * plan.out_channels + channel);
        return;
      }
      Pack<T, kColumns> pack;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        C sum = sums[n];
        if (args.bias != nullptr && n < count) {
          sum += Widen(args.bias[channel + n]);
        }
        pack.values[n] = Narrow<T>(sum);
      }
      StoreSome<kPacked>(pack, count,
                         args.output + m * plan.out_channels + channel);
    });
  }
}

}  // namespace

template <typename T>
int64_t DeformConvScratchBytes(const DeformConvShape& args) {
  if (!FitsInts(args)) return 0;
  return Plan<T>(args).PartialSums() * args.out_channels *
         int64_t{sizeof(Accumulator<T>)};
}

template <typename T>
Error DeformConv(const Gpu& gpu, const DeformConvArgs<T>& args) {
  using C = Accumulator<T>;
  if (!FitsInts(args)) return kTooLarge;
  const Plan<T> plan(args);
  C* const partial = plan.parts == 1 ? nullptr : static_cast<C*>(gpu.scratch);
  const Error error = WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<n>(plan.segment, args.features) &&
               FitsPacks<n>(plan.out_of_group, args.filters, args.output);
      },
      [&](auto n) {
        return Launch(gpu, GridSize(plan.tiles * plan.parts), kThreads,
                      Convolve<T, (n > 1)>, args, plan, partial);
      });
  if (error != nullptr || partial == nullptr) return error;
  return EnqueueSumParts(gpu, plan.rows * args.out_channels, plan.parts,
                         static_cast<const C*>(partial), args.output, args.bias,
                         args.out_channels);
}

#define TFO_INSTANTIATE(T) \
  template int64_t DeformConvScratchBytes<T>(const DeformConvShape&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(DeformConv, Gpu, DeformConvArgs);

}  // namespace tfo
