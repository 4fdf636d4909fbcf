// Gradients of deformable convolution. All sums but those to features have one
// order; those use atomics, or with gpu.deterministic columns in scratch
// memory, which owners of pixels read in order.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_gpu.h"

namespace tfo {
namespace {

using namespace deform_conv;  // NOLINT: the kernels' own header

// How the work is split, and scratch memory. Depends on shapes only.
template <typename T>
struct Plan {
  using C = Accumulator<T>;
  static constexpr bool kInPlace = sizeof(T) == sizeof(C);

  int64_t parts;         // of outputs, in the gradient to filters
  int64_t wave;          // outputs whose columns are in memory at once
  int64_t column_count;  // columns of an output, of all groups
  int64_t feature_sums, columns, filter_sums;  // sizes

  Plan(const DeformConvShape& args, bool deterministic)
      : column_count(TapsOf(args) * args.channels) {
    constexpr int64_t kMaxValues = 16 << 20;
    const int64_t rows = args.batch * OutputsOf(args);
    const int64_t filters = DepthOf(args) * args.out_channels;
    parts = Clamp(rows / 512, kMaxValues / Max(filters, 1), 32);
    wave = deterministic ? Clamp(rows, kMaxValues / Max(column_count, 1), rows)
                         : Max(rows, 1);
    feature_sums = kInPlace ? 0 : args.batch * PixelsOf(args) * args.channels;
    columns = deterministic ? wave * column_count : 0;
    filter_sums = parts * filters;
  }
  int64_t Bytes() const {
    return (feature_sums + columns + filter_sums) * int64_t{sizeof(C)};
  }

 private:
  static int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }
  static int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
  // The least of all, at least 1.
  static int64_t Clamp(int64_t a, int64_t b, int64_t c) {
    return Max(Min(Min(a, b), c), 1);
  }
};

// The sum over threads whose index differs in the lowest bits.
template <int kCount, typename C>
__device__ C SumOverLanes(C value) {
#pragma unroll
  for (int lanes = kCount / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, lanes);
  }
  return value;
}

// A corner of weight 0 may be NaN.
template <typename C>
__device__ C ScaledCorner(C weight, C corner) {
  return weight == 0 ? C(0) : weight * corner;
}

// Loads a tile of upstream gradients and of filters, of a tap: a[o][row],
// b[o][channel].
template <typename T, typename C = Accumulator<T>>
__device__ void LoadForColumns(const DeformConvGradArgs<T>& args,
                               int64_t first_row, int64_t end_row,
                               int64_t group, int64_t column, int64_t channels,
                               int64_t first_o, C (*a)[kTile], C (*b)[kTile]) {
  const int64_t of_group = args.out_channels / args.groups;
  const int row = threadIdx.x / (kDepth / kEach);
  const int o = threadIdx.x % (kDepth / kEach) * kEach;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool has_o = first_o + o + i < of_group;
    const int64_t channel = group * of_group + first_o + o + i;
    a[o + i][row] =
        has_o && first_row + row < end_row
            ? C(Widen(args.d_output[(first_row + row) * args.out_channels +
                                    channel]))
            : C(0);
    b[o + i][row] =
        has_o && row < channels
            ? C(Widen(
                  args.filters[(column + row) * args.out_channels + channel]))
            : C(0);
  }
}

// A block has kTile outputs, a tap and an offset group. It finds the gradient
// to their columns, kTile channels at a time, then sums the gradients to offset
// and mask, and adds to `sums` of the features, or stores the columns.
constexpr int kLanes = 16, kRowsAtOnce = kThreads / kLanes;
constexpr int kRowsOfThread = kTile / kRowsAtOnce;

template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    GradToColumns(const __grid_constant__ DeformConvGradArgs<T> args,
                  int64_t begin, int64_t end, int64_t blocks, C* sums,
                  C* columns) {
  __shared__ C a[kDepth][kTile], b[kDepth][kTile];
  __shared__ C d_columns[kTile][kTile];
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  const int lane = threadIdx.x % kLanes;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t offset_group = block % args.offset_groups;
    const int64_t tap_index = block / args.offset_groups % TapsOf(args);
    const int64_t first_row =
        begin + block / args.offset_groups / TapsOf(args) * kTile;
    C dots[kRowsOfThread][4] = {};
    const int64_t end_channel = (offset_group + 1) * of_offsets;
    for (int64_t c = offset_group * of_offsets; c < end_channel;) {
      const int64_t group = c / of_group;
      int64_t count = (group + 1) * of_group - c;
      if (count > end_channel - c) count = end_channel - c;
      if (count > kTile) count = kTile;
      Products<C> products;
      Clear(&products);
      const int64_t depth = args.out_channels / args.groups;
      for (int64_t o = 0; o < depth; o += kDepth) {
        __syncthreads();
        LoadForColumns(args, first_row, end, group,
                       tap_index * of_group + c % of_group, count, o, a, b);
        __syncthreads();
        MultiplyAdd(a, b, &products);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          d_columns[threadIdx.x / kAcross * kEach + i]
                   [threadIdx.x % kAcross * kEach + j] = products.sums[i][j];
        }
      }
      __syncthreads();
      for (int r = 0; r < kRowsOfThread; ++r) {
        const int row = r * kRowsAtOnce + threadIdx.x / kLanes;
        if (first_row + row >= end) continue;
        const OutputPlace place = PlaceOf(args, first_row + row);
        const Tap<C> tap = FindTap(args, place, tap_index, offset_group);
        const int64_t image = place.image * PixelsOf(args);
        for (int64_t i = lane; i < count; i += kLanes) {
          const C d = d_columns[row][i];
          if (columns != nullptr) {
            columns[((first_row + row - begin) * TapsOf(args) + tap_index) *
                        args.channels +
                    c + i] = d;
          }
          for (int corner = 0; tap.reads && corner < 4; ++corner) {
            if (!HasCorner(tap.cell, corner, args.height, args.width)) continue;
            const int64_t at =
                (image + CornerPixel(tap.cell, corner, args.width)) *
                    args.channels +
                c + i;
            dots[r][corner] += d * Widen(args.features[at]);
            const C weight = CornerWeight(tap.cell, corner);
            if (columns == nullptr && weight != 0) {
              atomicAdd(sums + at, tap.mask * weight * d);
            }
          }
        }
      }
      c += count;
    }
    for (int r = 0; r < kRowsOfThread; ++r) {
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        dots[r][corner] = SumOverLanes<kLanes>(dots[r][corner]);
      }
      const int64_t index = first_row + r * kRowsAtOnce + threadIdx.x / kLanes;
      if (lane != 0 || index >= end) continue;
      const Tap<C> tap =
          FindTap(args, PlaceOf(args, index), tap_index, offset_group);
      C d_y = 0, d_x = 0, d_mask = 0;
      for (int corner = 0; tap.reads && corner < 4; ++corner) {
        const C dot = dots[r][corner];
        d_y += ScaledCorner(CornerSlopeY(tap.cell, corner), dot);
        d_x += ScaledCorner(CornerSlopeX(tap.cell, corner), dot);
        d_mask += ScaledCorner(CornerWeight(tap.cell, corner), dot);
      }
      const int64_t at =
          (index * args.offset_groups + offset_group) * TapsOf(args) +
          tap_index;
      args.d_offsets[2 * at] = tap.reads ? tap.mask * d_y : C(0);
      args.d_offsets[2 * at + 1] = tap.reads ? tap.mask * d_x : C(0);
      if (args.d_mask != nullptr) args.d_mask[at] = Narrow<T>(d_mask);
    }
  }
}

// Deterministic sums: a block owns some pixels and channels, and reads the taps
// of the outputs [begin, end) that its image has, kThreads at a time.
constexpr int kTilePixels = 64, kTileChannels = 32;
constexpr int kOwners = kThreads / kTileChannels;

template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    SumColumns(const __grid_constant__ DeformConvGradArgs<T> args,
               int64_t begin, int64_t end, int64_t blocks, const C* columns,
               C* d_features) {
  __shared__ C sums[kTilePixels][kTileChannels];
  __shared__ int16_t tile_pixel[kThreads][4];  // -1: not in this tile
  __shared__ C scale[kThreads][4];
  const int64_t of_offsets = args.channels / args.offset_groups;
  const int64_t chunks = (of_offsets + kTileChannels - 1) / kTileChannels;
  const int64_t tiles = (PixelsOf(args) + kTilePixels - 1) / kTilePixels;
  const int64_t taps = TapsOf(args);
  // Threads of one channel own the pixels that are equal modulo kOwners.
  const int owner = threadIdx.x / kTileChannels;
  const int channel = threadIdx.x % kTileChannels;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t in_offsets = block % chunks * kTileChannels + channel;
    const int64_t offset_group = block / chunks % args.offset_groups;
    const int64_t c = offset_group * of_offsets + in_offsets;
    const bool has_channel = in_offsets < of_offsets;
    const int64_t first =
        block / chunks / args.offset_groups % tiles * kTilePixels;
    const int64_t image = block / chunks / args.offset_groups / tiles;
    for (int i = owner; i < kTilePixels; i += kOwners) sums[i][channel] = 0;
    int64_t item = image * OutputsOf(args), last = item + OutputsOf(args);
    item = (item > begin ? item : begin) * taps;
    last = (last < end ? last : end) * taps;
    for (; item < last; item += kThreads) {
      bool hits = false;
      for (int i = 0; i < 4; ++i) tile_pixel[threadIdx.x][i] = -1;
      if (item + threadIdx.x < last) {
        const int64_t mine = item + threadIdx.x;
        const Tap<C> tap = FindTap(args, PlaceOf(args, mine / taps),
                                   mine % taps, offset_group);
        for (int i = 0; tap.reads && i < 4; ++i) {
          const C weight = CornerWeight(tap.cell, i);
          if (weight == 0 || !HasCorner(tap.cell, i, args.height, args.width)) {
            continue;
          }
          const int64_t pixel = CornerPixel(tap.cell, i, args.width) - first;
          if (pixel < 0 || pixel >= kTilePixels) continue;
          tile_pixel[threadIdx.x][i] = static_cast<int16_t>(pixel);
          scale[threadIdx.x][i] = tap.mask * weight;
          hits = true;
        }
      }
      if (__syncthreads_or(hits) && has_channel) {
        const int64_t n = last - item < kThreads ? last - item : kThreads;
        for (int64_t i = 0; i < n; ++i) {
          for (int corner = 0; corner < 4; ++corner) {
            const int pixel = tile_pixel[i][corner];
            if (pixel < 0 || pixel % kOwners != owner) continue;
            sums[pixel][channel] +=
                scale[i][corner] *
                columns[(item + i - begin * taps) * args.channels + c];
          }
        }
      }
      __syncthreads();
    }
    for (int i = owner; has_channel && i < kTilePixels; i += kOwners) {
      if (first + i >= PixelsOf(args)) break;
      d_features[(image * PixelsOf(args) + first + i) * args.channels + c] +=
          sums[i][channel];
    }
  }
}

// A block has kTile columns, kTile output channels and a part of the outputs;
// writes sums [parts, depth, out_channels].
template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    GradToFilters(const __grid_constant__ DeformConvGradArgs<T> args,
                  int64_t parts, int64_t blocks, C* sums) {
  __shared__ C a[kDepth][kTile], b[kDepth][kTile];
  const int64_t of_group = args.out_channels / args.groups;
  const int64_t depth = DepthOf(args), outputs = args.batch * OutputsOf(args);
  const int64_t across = (of_group + kTile - 1) / kTile;
  const int64_t down = (depth + kTile - 1) / kTile;
  const int row = threadIdx.x / kAcross;
  const int column = threadIdx.x % kAcross * kEach;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t first_o = block % across * kTile;
    const int64_t first_k = block / across % down * kTile;
    const int64_t group = block / across / down % args.groups;
    const int64_t part = block / across / down / args.groups;
    const int64_t end = outputs * (part + 1) / parts;
    Products<C> products;
    Clear(&products);
    for (int64_t m = outputs * part / parts; m < end; m += kDepth) {
      C samples[kEach] = {};
      if (m + row < end) {
        SampleColumns<false>(args, PlaceOf(args, m + row), group,
                             first_k + column, samples);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        a[row][column + i] = samples[i];
        const int64_t o = first_o + column + i;
        b[row][column + i] =
            m + row < end && o < of_group
                ? C(Widen(args.d_output[(m + row) * args.out_channels +
                                        group * of_group + o]))
                : C(0);
      }
      __syncthreads();
      MultiplyAdd(a, b, &products);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t k = first_k + threadIdx.x / kAcross * kEach + i;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t o = first_o + threadIdx.x % kAcross * kEach + j;
        if (k >= depth || o >= of_group) continue;
        sums[(part * depth + k) * args.out_channels + group * of_group + o] =
            products.sums[i][j];
      }
    }
  }
}

// to[i] = the sum of `parts` arrays, in order.
template <typename T, typename C = Accumulator<T>>
__global__ void SumParts(int64_t count, int64_t parts, const C* from, T* to) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    C sum = from[i];
    for (int64_t part = 1; part < parts; ++part) sum += from[part * count + i];
    to[i] = Narrow<T>(sum);
  }
}

// A block has kTileChannels channels, and kOwners threads share the rows.
template <typename T, typename C = Accumulator<T>>
__global__ void GradToBias(int64_t rows, int64_t channels, const T* d_output,
                           T* d_bias) {
  __shared__ C partial[kOwners][kTileChannels];
  const int share = threadIdx.x / kTileChannels;
  const int column = threadIdx.x % kTileChannels;
  for (int64_t first = int64_t{blockIdx.x} * kTileChannels; first < channels;
       first += int64_t{gridDim.x} * kTileChannels) {
    const int64_t c = first + column;
    C sum = 0;
    for (int64_t m = share; c < channels && m < rows; m += kOwners) {
      sum += Widen(d_output[m * channels + c]);
    }
    partial[share][column] = sum;
    __syncthreads();
    if (share == 0 && c < channels) {
      for (int i = 1; i < kOwners; ++i) sum += partial[i][column];
      d_bias[c] = Narrow<T>(sum);
    }
    __syncthreads();
  }
}

template <typename T, typename C = Accumulator<T>>
Error ToFeatures(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                 const Plan<T>& plan) {
  const int64_t size = args.batch * PixelsOf(args) * args.channels;
  C* const scratch = static_cast<C*>(gpu.scratch);
  C* const sums =
      Plan<T>::kInPlace ? reinterpret_cast<C*>(args.d_features) : scratch;
  C* const columns = plan.columns == 0 ? nullptr : scratch + plan.feature_sums;
  Error error = EnqueueZeros(gpu, sums, size * sizeof(C));
  const int64_t rows = args.batch * OutputsOf(args);
  for (int64_t begin = 0; error == nullptr && begin < rows;
       begin += plan.wave) {
    const int64_t end = begin + plan.wave < rows ? begin + plan.wave : rows;
    const int64_t blocks =
        DivideUp(end - begin, kTile) * TapsOf(args) * args.offset_groups;
    error = Launch(gpu, GridSize(blocks), kThreads, GradToColumns<T>, args,
                   begin, end, blocks, sums, columns);
    if (error != nullptr || columns == nullptr) continue;
    const int64_t owners =
        args.batch * DivideUp(PixelsOf(args), kTilePixels) *
        args.offset_groups *
        DivideUp(args.channels / args.offset_groups, kTileChannels);
    error = Launch(gpu, GridSize(owners), kThreads, SumColumns<T>, args, begin,
                   end, owners, static_cast<const C*>(columns), sums);
  }
  if (error != nullptr || Plan<T>::kInPlace) return error;
  return Launch(gpu, GridSize(DivideUp(size, kThreads)), kThreads, SumParts<T>,
                size, int64_t{1}, static_cast<const C*>(sums), args.d_features);
}

}  // namespace

template <typename T>
int64_t DeformConvGradScratchBytes(const DeformConvShape& args,
                                   bool deterministic) {
  return Plan<T>(args, deterministic).Bytes();
}

template <typename T>
Error DeformConvGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args) {
  using C = Accumulator<T>;
  const Plan<T> plan(args, gpu.deterministic);
  Error error = ToFeatures(gpu, args, plan);
  if (error != nullptr) return error;
  C* const sums =
      static_cast<C*>(gpu.scratch) + plan.feature_sums + plan.columns;
  const int64_t blocks = DivideUp(args.out_channels / args.groups, kTile) *
                         DivideUp(DepthOf(args), kTile) * args.groups *
                         plan.parts;
  error = Launch(gpu, GridSize(blocks), kThreads, GradToFilters<T>, args,
                 plan.parts, blocks, sums);
  if (error != nullptr) return error;
  const int64_t filters = DepthOf(args) * args.out_channels;
  error =
      Launch(gpu, GridSize(DivideUp(filters, kThreads)), kThreads, SumParts<T>,
             filters, plan.parts, static_cast<const C*>(sums), args.d_filters);
  if (error != nullptr || args.d_bias == nullptr) return error;
  return Launch(gpu, GridSize(DivideUp(args.out_channels, kTileChannels)),
                kThreads, GradToBias<T>, args.batch * OutputsOf(args),
                args.out_channels, args.d_output, args.d_bias);
}

#define TFO_INSTANTIATE(T) \
  template int64_t DeformConvGradScratchBytes<T>(const DeformConvShape&, bool)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(DeformConvGrad, Gpu, DeformConvGradArgs);

}  // namespace tfo
