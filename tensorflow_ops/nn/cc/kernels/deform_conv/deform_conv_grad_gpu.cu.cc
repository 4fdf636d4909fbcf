// Gradients of deformable convolution, and the kernels of those to features,
// offsets and mask. All sums but those to features have one order; those use
// atomics, or with gpu.deterministic columns in scratch
// memory, which owners of pixels read in order.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_grad_gpu.h"

namespace tfo {
namespace {

using namespace deform_conv;  // NOLINT: the kernels' own header

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
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const C low = (odd ? values[1] : values[0]) +
                __shfl_xor_sync(kAllLanes, odd ? values[0] : values[1], 1);
  const C high = (odd ? values[3] : values[2]) +
                 __shfl_xor_sync(kAllLanes, odd ? values[2] : values[3], 1);
  return SumOfLanes<8, 4>((upper ? high : low) +
                          __shfl_xor_sync(kAllLanes, upper ? low : high, 2));
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
                  const __grid_constant__ GradPlan<T> plan,
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
          column_tap.pixel = place.image * args.Pixels() +
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
               const __grid_constant__ GradPlan<T> plan, int64_t begin,
               int64_t end, int64_t blocks, const C* columns, C* d_features) {
  __shared__ C sums[kTilePixels][kTileChannels];
  __shared__ int16_t tile_pixel[kThreads][4];  // -1: not in this tile
  __shared__ C scale[kThreads][4];
  const int64_t of_offsets = args.channels / args.offset_groups;
  const int64_t chunks = DivideUp(of_offsets, kTileChannels);
  const int64_t tiles = DivideUp(args.Pixels(), kTilePixels);
  const int64_t taps = args.Taps();
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
    int64_t item = image * args.Outputs(), last = item + args.Outputs();
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
      if (first + i >= args.Pixels()) break;
      d_features[(image * args.Pixels() + first + i) * args.channels + c] +=
          sums[i][channel];
    }
  }
}

template <typename T, typename C = Accumulator<T>>
Error ToFeaturesAndPlaces(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                          const GradPlan<T>& plan,
                          const GradMemory<T>& memory) {
  const int64_t size = args.batch * args.Pixels() * args.channels;
  const int64_t places = plan.rows * args.offset_groups * plan.taps;
  ColumnOutputs<C> to = {};
  to.sums = GradPlan<T>::kInPlace ? reinterpret_cast<C*>(args.d_features)
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
        args.batch * DivideUp(args.Pixels(), kTilePixels) * args.offset_groups *
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
  if (error != nullptr || GradPlan<T>::kInPlace) return error;
  return EnqueueSumParts(gpu, size, 1, static_cast<const C*>(to.sums),
                         args.d_features);
}

}  // namespace

template <typename T>
int64_t DeformConvGradScratchBytes(const DeformConvShape& args,
                                   bool deterministic) {
  if (!FitsInts(args)) return 0;
  return GradMemory<T>(GradPlan<T>(args, deterministic), nullptr).bytes;
}

template <typename T>
Error DeformConvGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args) {
  if (!FitsInts(args)) return kTooLarge;
  const GradPlan<T> plan(args, gpu.deterministic);
  const GradMemory<T> memory(plan, gpu.scratch);
  Error error = ToFeaturesAndPlaces(gpu, args, plan, memory);
  if (error == nullptr) error = EnqueueFilterGrad(gpu, args, plan, memory);
  if (error != nullptr || args.d_bias == nullptr) return error;
  return EnqueueBiasGrad(gpu, args, plan, memory);
}

#define TFO_INSTANTIATE(T) \
  template int64_t DeformConvGradScratchBytes<T>(const DeformConvShape&, bool)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(DeformConvGrad, Gpu, DeformConvGradArgs);

}  // namespace tfo
