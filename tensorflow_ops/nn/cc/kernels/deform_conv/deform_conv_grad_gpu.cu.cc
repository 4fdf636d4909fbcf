// Gradients of deformable convolution. All sums but those to features have one
// order; those use atomics, or with gpu.deterministic columns in scratch
// memory, which owners of pixels read in order.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_gpu.h"

namespace tfo {
namespace {

using namespace deform_conv;  // NOLINT: the kernels' own header

// How the work is split, and scratch memory. Depends on shapes only.
template <typename T>
struct Plan : Sizes {
  using C = Accumulator<T>;
  static constexpr bool kInPlace = sizeof(T) == sizeof(C);
  static constexpr int kLines = TileSize<T>::kLines;

  // Gradients to columns. A part has some of the chunks of an offset group's
  // channels: up to kLines, of one group.
  int chunks_of_segment, chunks, channel_parts;
  int64_t wave;  // outputs whose columns are in memory at once
  // The gradient to filters: tiles of columns and of output channels, and parts
  // of the outputs. That to bias: parts of the outputs.
  int64_t down, across, row_parts, bias_parts;
  // Sizes in scratch memory.
  int64_t feature_sums, columns, place_sums, filter_sums, bias_sums;

  Plan(const DeformConvShape& args, bool deterministic) : Sizes(args) {
    constexpr int64_t kMaxValues = 16 << 20;
    const int64_t column_count = TapsOf(args) * args.channels;
    const int64_t filters = DepthOf(args) * args.out_channels;
    chunks_of_segment = static_cast<int>(DivideUp(segment, kLines));
    chunks = of_offsets / segment * chunks_of_segment;
    channel_parts = static_cast<int>(DivideUp(of_offsets, kLines));
    wave = deterministic ? Clamp(kMaxValues / column_count, rows)
                         : Clamp(rows, rows);
    down = DivideUp(depth, kLines);
    across = DivideUp(out_of_group, kLines);
    // More than needed to fill a GPU only for precision.
    const int64_t for_blocks = kMinBlocks / (down * across * args.groups);
    const int64_t for_sums = rows >> 14;
    const int64_t max_parts = Clamp(kMaxValues / filters, rows >> 7);
    row_parts = Clamp(for_blocks > for_sums ? for_blocks : for_sums, max_parts);
    bias_parts = Clamp(rows >> 7, 64);
    feature_sums = kInPlace ? 0 : args.batch * PixelsOf(args) * args.channels;
    columns = deterministic ? wave * column_count : 0;
    place_sums = channel_parts == 1
                     ? 0
                     : channel_parts * rows * args.offset_groups * taps * 3;
    filter_sums = row_parts == 1 ? 0 : row_parts * filters;
    bias_sums = bias_parts * args.out_channels;
  }
};

// Arrays in scratch memory; null if the plan has none.
template <typename T>
struct Memory {
  Accumulator<T>*feature_sums, *columns, *place_sums, *filter_sums, *bias_sums;
  int64_t bytes;

  Memory(const Plan<T>& plan, void* base) {
    ScratchLayout layout(base);
    layout.Reserve(&feature_sums, plan.feature_sums);
    layout.Reserve(&columns, plan.columns);
    layout.Reserve(&place_sums, plan.place_sums);
    layout.Reserve(&filter_sums, plan.filter_sums);
    layout.Reserve(&bias_sums, plan.bias_sums);
    bytes = layout.bytes();
  }
};

// Where a gradient to columns goes: its tap, in shared memory.
template <typename C>
struct alignas(16) ColumnTap {
  C y_fraction, x_fraction, mask;
  int corners;    // a bit for each that its plane has
  int64_t pixel;  // of corner 0, in the batch

  __device__ BilinearCell<C> Cell() const {
    return {0, 0, y_fraction, x_fraction};
  }
};

// The sums over a warp of four values of each lane: lane i has that of
// values[i % 4].
template <typename C>
__device__ C SumFour(const C (&values)[4]) {
  constexpr unsigned kAll = 0xFFFFFFFF;
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const C low = (odd ? values[1] : values[0]) +
                __shfl_xor_sync(kAll, odd ? values[0] : values[1], 1);
  const C high = (odd ? values[3] : values[2]) +
                 __shfl_xor_sync(kAll, odd ? values[2] : values[3], 1);
  C sum = (upper ? high : low) + __shfl_xor_sync(kAll, upper ? low : high, 2);
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) {
    sum += __shfl_xor_sync(kAll, sum, lanes);
  }
  return sum;
}

// A corner of weight 0 may be NaN.
template <typename C>
__device__ C ScaledCorner(C weight, C corner) {
  return weight == 0 ? C(0) : weight * corner;
}

// Where the columns of a wave and the sums to places go.
template <typename C>
struct ColumnOutputs {
  int64_t begin, end;  // outputs of the wave
  C* sums;             // to features
  C* columns;          // or null: adds to `sums`
  C* offsets;          // a part after the other, if there are several
  C* mask;
};

// A block has some outputs, a tap, an offset group and a part of its channels.
// It finds the gradient to their columns, then sums the gradients to offset and
// mask, and adds to the features' or stores the columns.
template <typename T, bool kPacked, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, 2)
    GradToColumns(const __grid_constant__ DeformConvGradArgs<T> args,
                  const __grid_constant__ Plan<T> plan,
                  const __grid_constant__ ColumnOutputs<C> to) {
  constexpr int kLines = TileSize<T>::kLines, kDepth = TileSize<T>::kDepth;
  constexpr int kPack = kPackSize<T>, kColumns = kPackSize<C>;
  static_assert(kColumns * 32 == kLines, "a warp takes a row");
  constexpr int kHalf = kLines / 2;  // rows staged at once
  struct Factors {
    Operand<T, Along::kDepth> a[2], b[2];
  };
  union Shared {
    Factors factors;
    Pack<C, kColumns> staged[kHalf][32];
  };
  __shared__ Shared shared;
  __shared__ ColumnTap<C> taps[kLines];
  __shared__ C dots[kLines][4];
  const int line = threadIdx.x / (kDepth / kPack);
  const int in_step = threadIdx.x % (kDepth / kPack) * kPack;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int offset_groups = static_cast<int>(args.offset_groups);
  AsyncCopies copies;
  const int64_t of_row =
      int64_t{plan.channel_parts} * offset_groups * plan.taps;
  const int64_t blocks = DivideUp(to.end - to.begin, kLines) * of_row;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    int64_t rest = block % of_row;
    const int part = static_cast<int>(rest % plan.channel_parts);
    rest /= plan.channel_parts;
    const int offset_group = static_cast<int>(rest % offset_groups);
    const int tap_index = static_cast<int>(rest / offset_groups);
    const int64_t first_row = to.begin + block / of_row * kLines;
    __syncthreads();  // the last block's taps are read
    if (threadIdx.x < kLines) {
      ColumnTap<C> column_tap = {};
      if (first_row + threadIdx.x < to.end) {
        const OutputPlace place = PlaceOf(args, first_row + threadIdx.x);
        const Tap<C> tap = FindTap(args, plan, place, tap_index, offset_group);
        if (tap.reads) {
          column_tap.y_fraction = tap.cell.y_fraction;
          column_tap.x_fraction = tap.cell.x_fraction;
          column_tap.mask = tap.mask;
          column_tap.pixel = place.image * PixelsOf(args) +
                             CornerPixel(tap.cell, 0, args.width);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            column_tap.corners |=
                HasCorner(tap.cell, i, args.height, args.width) << i;
          }
        }
      }
      taps[threadIdx.x] = column_tap;
#pragma unroll
      for (int i = 0; i < 4; ++i) dots[threadIdx.x][i] = 0;
    }
    const int begin =
        static_cast<int>(int64_t{plan.chunks} * part / plan.channel_parts);
    const int end = static_cast<int>(int64_t{plan.chunks} * (part + 1) /
                                     plan.channel_parts);
    for (int chunk = begin; chunk < end; ++chunk) {
      const int in_segment = chunk % plan.chunks_of_segment * kLines;
      const int c = offset_group * plan.of_offsets +
                    chunk / plan.chunks_of_segment * plan.segment + in_segment;
      const int left = plan.segment - in_segment;
      const int count = left < kLines ? left : kLines;
      const int group = c / plan.of_group;
      const int64_t first_column =
          int64_t{tap_index} * plan.of_group + c - group * plan.of_group;
      const T* const d_outputs = args.d_output +
                                 (first_row + line) * plan.out_channels +
                                 group * plan.out_of_group;
      const T* const filters = args.filters +
                               (first_column + line) * plan.out_channels +
                               group * plan.out_of_group;
      const bool has_row = first_row + line < to.end, has_column = line < count;
      const auto load = [&](int depth, int buffer) {
        const int o = depth + in_step, some = plan.out_of_group - o;
        Fill<kPacked>(&copies, &shared.factors.a[buffer], line, in_step,
                      d_outputs + o, has_row ? some : 0);
        Fill<kPacked>(&copies, &shared.factors.b[buffer], line, in_step,
                      filters + o, has_column ? some : 0);
        copies.Commit();
      };
      TileProduct<T> product;
      product.Clear();
      __syncthreads();  // the last chunk is read, the taps are there
      load(0, 0);
      int buffer = 0;
      for (int depth = kDepth; depth < plan.out_of_group + kDepth;
           depth += kDepth) {
        copies.template Wait<0>();
        __syncthreads();
        if (depth < plan.out_of_group) load(depth, buffer ^ 1);
        product.Add(shared.factors.a[buffer], shared.factors.b[buffer]);
        buffer ^= 1;
      }

      for (int first = 0; first < kLines; first += kHalf) {
        __syncthreads();
        product.ForEachPack([&](int i, int j, const auto& sums) {
          if (i / kHalf * kHalf != first) return;
          C* const staged = shared.staged[i % kHalf][0].values + j;
#pragma unroll
          for (int n = 0; n < TileProduct<T>::kColumns; ++n) {
            staged[n] = sums[n];
          }
        });
        __syncthreads();
        for (int i = warp; i < kHalf && first_row + first + i < to.end;
             i += kThreads / 32) {
          const ColumnTap<C> tap = taps[first + i];
          const Pack<C, kColumns> d = shared.staged[i][lane];
          const int some = count - lane * kColumns;
          if (to.columns != nullptr) {
            StoreSome<kPacked>(
                d, some,
                to.columns +
                    ((first_row + first + i - to.begin) * plan.taps +
                     tap_index) *
                        plan.channels +
                    c + lane * kColumns);
          }
          C of_lane[4] = {};
#pragma unroll
          for (int corner = 0; corner < 4; ++corner) {
            if ((tap.corners >> corner & 1) == 0 || some <= 0) continue;
            const int64_t at =
                (tap.pixel + corner / 2 * args.width + corner % 2) *
                    plan.channels +
                c + lane * kColumns;
            const C weight = CornerWeight(tap.Cell(), corner);
            Pack<T, kColumns> features;
            if constexpr (kPacked) {
              features = LoadPack<kColumns>(args.features + at);
            }
            C scaled[kColumns];
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
              if (!kPacked && n >= some) break;
              if constexpr (!kPacked)
                features.values[n] = args.features[at + n];
              of_lane[corner] += d.values[n] * Widen(features.values[n]);
              scaled[n] = tap.mask * weight * d.values[n];
              if (!kPacked && to.columns == nullptr && weight != 0) {
                atomicAdd(to.sums + at + n, scaled[n]);
              }
            }
            if constexpr (kPacked) {
              if (to.columns == nullptr && weight != 0) {
                AddAtomically(scaled, to.sums + at);
              }
            }
          }
          const C sum = SumFour(of_lane);
          if (lane < 4) dots[first + i][lane] += sum;
        }
      }
    }
    __syncthreads();
    if (threadIdx.x < kLines && first_row + threadIdx.x < to.end) {
      const ColumnTap<C> tap = taps[threadIdx.x];
      C d_y = 0, d_x = 0, d_mask = 0;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        if ((tap.corners >> corner & 1) == 0) continue;
        const C dot = dots[threadIdx.x][corner];
        d_y += ScaledCorner(CornerSlopeY(tap.Cell(), corner), dot);
        d_x += ScaledCorner(CornerSlopeX(tap.Cell(), corner), dot);
        d_mask += ScaledCorner(CornerWeight(tap.Cell(), corner), dot);
      }
      const bool reads = tap.corners != 0;
      const int64_t of_part = plan.rows * offset_groups * plan.taps;
      const int64_t at =
          ((first_row + threadIdx.x) * offset_groups + offset_group) *
              plan.taps +
          tap_index;
      to.offsets[2 * (part * of_part + at)] = reads ? tap.mask * d_y : C(0);
      to.offsets[2 * (part * of_part + at) + 1] = reads ? tap.mask * d_x : C(0);
      if (to.mask != nullptr) {
        to.mask[part * of_part + at] = d_mask;
      } else if (args.d_mask != nullptr) {
        args.d_mask[at] = Narrow<T>(d_mask);
      }
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
               const __grid_constant__ Plan<T> plan, int64_t begin, int64_t end,
               int64_t blocks, const C* columns, C* d_features) {
  __shared__ C sums[kTilePixels][kTileChannels];
  __shared__ int16_t tile_pixel[kThreads][4];  // -1: not in this tile
  __shared__ C scale[kThreads][4];
  const int64_t of_offsets = args.channels / args.offset_groups;
  const int64_t chunks = DivideUp(of_offsets, kTileChannels);
  const int64_t tiles = DivideUp(PixelsOf(args), kTilePixels);
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
        const Tap<C> tap = FindTap(args, plan, PlaceOf(args, mine / taps),
                                   static_cast<int>(mine % taps),
                                   static_cast<int>(offset_group));
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

// A block has a tile of columns, one of output channels and a part of the
// outputs; writes sums [parts, depth, out_channels], or the gradient if there
// is one part.
template <typename T, bool kPacked, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, 2)
    GradToFilters(const __grid_constant__ DeformConvGradArgs<T> args,
                  const __grid_constant__ Plan<T> plan, C* sums) {
  constexpr int kLines = TileSize<T>::kLines, kDepth = TileSize<T>::kDepth;
  constexpr int kPack = kPackSize<T>;
  __shared__ SharedTaps<C> taps;
  __shared__ Operand<T, Along::kLines> a[2], b[2];
  // The thread's pack of both factors.
  const int row = threadIdx.x / (kLines / kPack);
  const int column = threadIdx.x % (kLines / kPack) * kPack;
  AsyncCopies copies;
  const int64_t tiles = plan.down * plan.across * args.groups;
  const int64_t blocks = tiles * plan.row_parts;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int first_o = static_cast<int>(block % plan.across) * kLines;
    const int first_k =
        static_cast<int>(block / plan.across % plan.down) * kLines;
    const int group =
        static_cast<int>(block / plan.across / plan.down % args.groups);
    const int64_t part = block / tiles;
    const int64_t begin = plan.rows * part / plan.row_parts;
    const int64_t end = plan.rows * (part + 1) / plan.row_parts;

    // The taps of several steps' outputs are found at once: those of an output
    // are its segments in this tile.
    const int last_k =
        first_k + kLines < plan.depth ? first_k + kLines : plan.depth;
    const int segments =
        (last_k - 1) / plan.segment - first_k / plan.segment + 1;
    const int rows_at_once =
        kPacked ? kLines / kPack / segments * kDepth : kDepth;
    const bool has_columns = first_k + column < plan.depth;
    const Segment segment = SegmentOf(plan, group, first_k + column);
    const int slot = segment.end / plan.segment - 1 - first_k / plan.segment;
    const T* const d_outputs =
        args.d_output + group * plan.out_of_group + first_o + column;
    Word<T, kPack> corners[4];
    int64_t first = begin - rows_at_once;  // whose taps are there
    int slot_of_step = 0;
    // Starts filling a buffer, and loads the pixels of samples for it.
    const auto load = [&](int64_t m, int buffer) {
      Fill<kPacked>(&copies, &b[buffer], column, row,
                    d_outputs + (m + row) * plan.out_channels,
                    m + row < end ? plan.out_of_group - first_o - column : 0);
      copies.Commit();
      if constexpr (kPacked) {
        if (m - first >= rows_at_once) {
          first = m;
          const int my_row = threadIdx.x / segments;
          if (my_row < rows_at_once) {
            taps.SetEmpty(threadIdx.x);
            if (m + my_row < end) {
              const OutputPlace place = PlaceOf(args, m + my_row);
              const Segment found =
                  SegmentOf(plan, group,
                            (first_k / plan.segment + threadIdx.x % segments) *
                                plan.segment);
              taps.template Set<false>(
                  args, threadIdx.x, place.image,
                  FindTap(args, plan, place, found.tap, found.offset_group));
            }
          }
          __syncthreads();
        }
        if (has_columns) {
          slot_of_step = static_cast<int>(m - first + row) * segments + slot;
          taps.template Load<kPack>(args, plan, slot_of_step,
                                    first_k + column + segment.shift, corners);
        }
      }
    };
    const auto store = [&](int64_t m, int buffer) {
      Pack<T, kPack> sampled = {};
      if constexpr (kPacked) {
        if (has_columns) {
          sampled = taps.template Sample<kPack, T>(slot_of_step, corners);
        }
      } else if (m + row < end) {
        sampled = SampleEach<false>(args, plan, PlaceOf(args, m + row), group,
                                    first_k + column, &taps);
      }
      a[buffer].Store(column, row, sampled);
      copies.template Wait<0>();
    };

    TileProduct<T> product;
    product.Clear();
    __syncthreads();  // the last block's buffers and taps are read
    load(begin, 0);
    store(begin, 0);
    __syncthreads();
    int buffer = 0;
    for (int64_t m = begin + kDepth; m < end; m += kDepth) {
      load(m, buffer ^ 1);
      product.Add(a[buffer], b[buffer]);
      buffer ^= 1;
      store(m, buffer);
      __syncthreads();
    }
    product.Add(a[buffer], b[buffer]);

    product.ForEachPack([&](int i, int j, const auto& values) {
      constexpr int kColumns = TileProduct<T>::kColumns;
      const int count = plan.out_of_group - first_o - j;
      const int k = first_k + i;
      if (k >= plan.depth || count <= 0) return;
      const int channel = group * plan.out_of_group + first_o + j;
      if (sums != nullptr) {
        Pack<C, kColumns> pack;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) pack.values[n] = values[n];
        StoreSome<kPacked>(
            pack, count,
            sums + (part * plan.depth + k) * plan.out_channels + channel);
        return;
      }
      Pack<T, kColumns> pack;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) pack.values[n] = Narrow<T>(values[n]);
      StoreSome<kPacked>(
          pack, count,
          args.d_filters + int64_t{k} * plan.out_channels + channel);
    });
  }
}

// A block has kTileChannels channels and a part of the rows, which kOwners
// threads share.
template <typename T, typename C = Accumulator<T>>
__global__ void GradToBias(int64_t rows, int64_t channels, int64_t parts,
                           const T* d_output, C* sums) {
  __shared__ C partial[kOwners][kTileChannels];
  const int share = threadIdx.x / kTileChannels;
  const int column = threadIdx.x % kTileChannels;
  const int64_t across = DivideUp(channels, kTileChannels);
  for (int64_t block = blockIdx.x; block < across * parts; block += gridDim.x) {
    const int64_t c = block % across * kTileChannels + column;
    const int64_t part = block / across;
    const int64_t end = rows * (part + 1) / parts;
    C sum = 0;
    for (int64_t m = rows * part / parts + share; c < channels && m < end;
         m += kOwners) {
      sum += Widen(d_output[m * channels + c]);
    }
    partial[share][column] = sum;
    __syncthreads();
    if (share == 0 && c < channels) {
      for (int i = 1; i < kOwners; ++i) sum += partial[i][column];
      sums[part * channels + c] = sum;
    }
    __syncthreads();
  }
}

// Launches a kernel for packs, or for single values if they do not fit.
template <typename T, typename Run>
Error WithPacks(const DeformConvGradArgs<T>& args, const Sizes& sizes,
                const Run& run) {
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<n>(sizes.segment, args.features, args.d_features) &&
               FitsPacks<n>(sizes.out_of_group, args.filters, args.d_output,
                            args.d_filters);
      },
      [&](auto n) { return run(std::bool_constant<(n > 1)>()); });
}

template <typename T, typename C = Accumulator<T>>
Error ToFeaturesAndPlaces(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                          const Plan<T>& plan, const Memory<T>& memory) {
  const int64_t size = args.batch * PixelsOf(args) * args.channels;
  const int64_t places = plan.rows * args.offset_groups * plan.taps;
  ColumnOutputs<C> to = {};
  to.sums = Plan<T>::kInPlace ? reinterpret_cast<C*>(args.d_features)
                              : memory.feature_sums;
  to.columns = memory.columns;
  C* const parts = memory.place_sums;
  to.offsets = parts == nullptr ? args.d_offsets : parts;
  if (parts != nullptr && args.d_mask != nullptr) {
    to.mask = parts + plan.channel_parts * places * 2;
  }
  Error error = EnqueueZeros(gpu, to.sums, size * sizeof(C));
  for (to.begin = 0; error == nullptr && to.begin < plan.rows;
       to.begin = to.end) {
    to.end =
        to.begin + plan.wave < plan.rows ? to.begin + plan.wave : plan.rows;
    const int64_t blocks = DivideUp(to.end - to.begin, plan.kLines) *
                           plan.taps * args.offset_groups * plan.channel_parts;
    error = WithPacks(args, plan, [&](auto packed) {
      return Launch(gpu, GridSize(blocks), kThreads, GradToColumns<T, packed>,
                    args, plan, to);
    });
    if (error != nullptr || to.columns == nullptr) continue;
    const int64_t owners =
        args.batch * DivideUp(PixelsOf(args), kTilePixels) *
        args.offset_groups *
        DivideUp(args.channels / args.offset_groups, kTileChannels);
    error = Launch(gpu, GridSize(owners), kThreads, SumColumns<T>, args, plan,
                   to.begin, to.end, owners, static_cast<const C*>(to.columns),
                   to.sums);
  }
  if (error == nullptr && parts != nullptr) {
    error = EnqueueSumParts(gpu, 2 * places, int64_t{plan.channel_parts},
                            static_cast<const C*>(parts), args.d_offsets);
  }
  if (error == nullptr && to.mask != nullptr) {
    error = EnqueueSumParts(gpu, places, int64_t{plan.channel_parts},
                            static_cast<const C*>(to.mask), args.d_mask);
  }
  if (error != nullptr || Plan<T>::kInPlace) return error;
  return EnqueueSumParts(gpu, size, 1, static_cast<const C*>(to.sums),
                         args.d_features);
}

template <typename T, typename C = Accumulator<T>>
Error ToFilters(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                const Plan<T>& plan, const Memory<T>& memory) {
  const int64_t filters = plan.depth * args.out_channels;
  if (plan.rows == 0) {
    return EnqueueZeros(gpu, args.d_filters, filters * sizeof(T));
  }
  C* const sums = memory.filter_sums;
  const int64_t blocks = plan.down * plan.across * args.groups * plan.row_parts;
  const Error error = WithPacks(args, plan, [&](auto packed) {
    return Launch(gpu, GridSize(blocks), kThreads, GradToFilters<T, packed>,
                  args, plan, sums);
  });
  if (error != nullptr || sums == nullptr) return error;
  return EnqueueSumParts(gpu, filters, plan.row_parts,
                         static_cast<const C*>(sums), args.d_filters);
}

template <typename T, typename C = Accumulator<T>>
Error ToBias(const Gpu& gpu, const DeformConvGradArgs<T>& args,
             const Plan<T>& plan, const Memory<T>& memory) {
  C* const sums = memory.bias_sums;
  const int64_t blocks =
      DivideUp(args.out_channels, kTileChannels) * plan.bias_parts;
  const Error error =
      Launch(gpu, GridSize(blocks), kThreads, GradToBias<T>, plan.rows,
             args.out_channels, plan.bias_parts, args.d_output, sums);
  if (error != nullptr) return error;
  return EnqueueSumParts(gpu, args.out_channels, plan.bias_parts,
                         static_cast<const C*>(sums), args.d_bias);
}

}  // namespace

template <typename T>
int64_t DeformConvGradScratchBytes(const DeformConvShape& args,
                                   bool deterministic) {
  if (!FitsInts(args)) return 0;
  return Memory<T>(Plan<T>(args, deterministic), nullptr).bytes;
}

template <typename T>
Error DeformConvGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args) {
  if (!FitsInts(args)) return kTooLarge;
  const Plan<T> plan(args, gpu.deterministic);
  const Memory<T> memory(plan, gpu.scratch);
  Error error = ToFeaturesAndPlaces(gpu, args, plan, memory);
  if (error == nullptr) error = ToFilters(gpu, args, plan, memory);
  if (error != nullptr || args.d_bias == nullptr) return error;
  return ToBias(gpu, args, plan, memory);
}

#define TFO_INSTANTIATE(T) \
  template int64_t DeformConvGradScratchBytes<T>(const DeformConvShape&, bool)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(DeformConvGrad, Gpu, DeformConvGradArgs);

}  // namespace tfo
