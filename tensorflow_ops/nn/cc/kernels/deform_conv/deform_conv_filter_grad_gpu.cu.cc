// The gradient to the filters of deformable convolution: samples its columns
// again.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_grad_gpu.h"

namespace tfo {
namespace deform_conv {
namespace {

// A block has a tile of columns, one of output channels and a part of the
// outputs; writes sums [parts, depth, out_channels], or the gradient if there
// is one part.
template <typename T, bool kPacked, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, 2)
    GradToFilters(const __grid_constant__ DeformConvGradArgs<T> args,
                  const __grid_constant__ GradPlan<T> plan, C* sums) {
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

}  // namespace

template <typename T>
Error EnqueueFilterGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                        const GradPlan<T>& plan, const GradMemory<T>& memory) {
  using C = Accumulator<T>;
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

#define TFO_INSTANTIATE(T)                                                   \
  template Error EnqueueFilterGrad(const Gpu&, const DeformConvGradArgs<T>&, \
                                   const GradPlan<T>&, const GradMemory<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace deform_conv
}  // namespace tfo
