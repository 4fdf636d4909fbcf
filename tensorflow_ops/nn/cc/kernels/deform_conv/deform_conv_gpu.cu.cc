#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_gpu.h"

namespace tfo {
namespace {

using namespace deform_conv;  // NOLINT: the kernels' own header

// A block has kTile outputs and kTile output channels of a group.
struct Tiles {
  int64_t rows, columns, count;  // tiles along each; of all groups

  explicit Tiles(const DeformConvShape& args)
      : rows(DivideUp(args.batch * OutputsOf(args), kTile)),
        columns(DivideUp(args.out_channels / args.groups, kTile)),
        count(rows * columns * args.groups) {}
};

template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    Convolve(const __grid_constant__ DeformConvArgs<T> args, Tiles tiles) {
  __shared__ C a[kDepth][kTile], b[kDepth][kTile];
  const int64_t of_group = args.out_channels / args.groups;
  const int64_t outputs = args.batch * OutputsOf(args), depth = DepthOf(args);
  // Of the samples, a thread takes kEach columns of a row; of the filters,
  // kEach columns, too.
  const int row = threadIdx.x / (kDepth / kEach);
  const int column = threadIdx.x % (kDepth / kEach) * kEach;
  const int filter_row = threadIdx.x / kAcross;
  const int filter_column = threadIdx.x % kAcross * kEach;
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int64_t first_column = tile % tiles.columns * kTile;
    const int64_t group = tile / tiles.columns % args.groups;
    const int64_t first_row = tile / tiles.columns / args.groups * kTile;
    const bool has_row = first_row + row < outputs;
    const OutputPlace place = PlaceOf(args, has_row ? first_row + row : 0);
    Products<C> products;
    Clear(&products);
    for (int64_t k = 0; k < depth; k += kDepth) {
      C samples[kEach] = {};
      if (has_row) {
        SampleColumns<true>(args, place, group, k + column, samples);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        a[column + i][row] = samples[i];
        const int64_t o = first_column + filter_column + i;
        b[filter_row][filter_column + i] =
            k + filter_row < depth && o < of_group
                ? C(Widen(args.filters[(k + filter_row) * args.out_channels +
                                       group * of_group + o]))
                : C(0);
      }
      __syncthreads();
      MultiplyAdd(a, b, &products);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t m = first_row + threadIdx.x / kAcross * kEach + i;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t o = first_column + threadIdx.x % kAcross * kEach + j;
        if (m >= outputs || o >= of_group) continue;
        const int64_t channel = group * of_group + o;
        const C bias =
            args.bias == nullptr ? C(0) : C(Widen(args.bias[channel]));
        args.output[m * args.out_channels + channel] =
            Narrow<T>(bias + products.sums[i][j]);
      }
    }
  }
}

}  // namespace

template <typename T>
Error DeformConv(const Gpu& gpu, const DeformConvArgs<T>& args) {
  const Tiles tiles(args);
  return Launch(gpu, GridSize(tiles.count), kThreads, Convolve<T>, args, tiles);
}

TFO_INSTANTIATE_ALGORITHM(DeformConv, Gpu, DeformConvArgs);

}  // namespace tfo
