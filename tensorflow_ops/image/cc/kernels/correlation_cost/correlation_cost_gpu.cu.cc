// CUDA kernels of correlation_cost. A thread sums results of its own: no
// atomics, and the same bits on each run.
#include <algorithm>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

__device__ bool IsPixel(const CorrelationSpec& args, int64_t y, int64_t x) {
  return y >= 0 && y < args.height && x >= 0 && x < args.width;
}

// What takes a division to compute: kernels get it.
struct Sizes {
  int64_t height, width;  // of the costs
  int radius, side;

  explicit Sizes(const CorrelationSpec& args)
      : height(args.OutputHeight()),
        width(args.OutputWidth()),
        radius(static_cast<int>(args.Radius())),
        side(static_cast<int>(args.Side())) {}

  __device__ ImageSteps Steps() const {
    const int64_t pixel = static_cast<int64_t>(side) * side;
    return {height * width * pixel, width * pixel, pixel};
  }
};

// Columns of the costs that a block has: times Sizes::side, they fit 32 bits.
constexpr int kColumns = 1 << 10;

// The costs of the columns [begin, end) of a row, with one vertical
// displacement, and where they begin.
struct Unit {
  int64_t image, y_out, begin, end;
  int64_t dy, first_cost;

  __device__ Unit(const CorrelationSpec& args, const Sizes& sizes,
                  int64_t unit) {
    const int64_t tiles = DivideUp(sizes.width, kColumns);
    const int64_t row = unit / sizes.side / tiles;
    const int dy_index = static_cast<int>(unit % sizes.side);
    const ImageSteps costs = sizes.Steps();
    image = row / sizes.height;
    y_out = row % sizes.height;
    begin = unit / sizes.side % tiles * kColumns;
    end = begin + kColumns < sizes.width ? begin + kColumns : sizes.width;
    dy = (dy_index - sizes.radius) * args.stride_2;
    first_cost = image * costs.image + y_out * costs.row +
                 static_cast<int64_t>(dy_index) * sizes.side;
  }
};

// A block has a unit: a row of each map. kPack neighboring channels are read at
// once.
template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    Costs(const __grid_constant__ CorrelationCostArgs<T> args, Sizes sizes,
          int64_t units) {
  using Sum = Accumulator<T>;
  const ImageSteps steps = FeatureSteps(args), costs = sizes.Steps();
  const int64_t kernel = args.KernelRadius();
  const int64_t start = args.Border() - args.padding;
  const int side = sizes.side;
  const Sum scale = Sum(1) / static_cast<Sum>(args.Terms());
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const auto [image, y_out, x0, end, dy, first_cost] =
        Unit(args, sizes, unit);
    const uint32_t count = static_cast<uint32_t>(end - x0) * side;
    T* const to = args.costs + first_cost;
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      const int64_t x_out = x0 + i / side;
      const int dx_index = static_cast<int>(i % side);
      const int64_t dx = (dx_index - sizes.radius) * args.stride_2;
      Sum sum = 0;
      for (int64_t j = -kernel; j <= kernel; ++j) {
        const int64_t y = y_out * args.stride_1 + start + j;
        for (int64_t k = -kernel; k <= kernel; ++k) {
          const int64_t x = x_out * args.stride_1 + start + k;
          if (!IsPixel(args, y, x) || !IsPixel(args, y + dy, x + dx)) continue;
          const T* const from_a =
              args.a + image * steps.image + y * steps.row + x * steps.pixel;
          const T* const from_b = args.b + image * steps.image +
                                  (y + dy) * steps.row + (x + dx) * steps.pixel;
          for (int64_t c = 0; c < args.channels; c += kPack) {
            const auto pack_a = LoadPack<kPack>(from_a + c);
            const auto pack_b = LoadPack<kPack>(from_b + c);
#pragma unroll
            for (int n = 0; n < kPack; ++n) {
              sum += Widen(pack_a.values[n]) * Widen(pack_b.values[n]);
            }
          }
        }
      }
      to[x_out * costs.pixel + dx_index] = Narrow<T>(sum * scale);
    }
  }
}

// A group of pixels are kPixels of a row, at steps of stride_2: they take the
// same pixels of the other map, which a thread reads once for all of them.
constexpr int kPixels = 4;

// The groups of a block's columns, and those of the pixels of `b` that each
// takes.
struct TileSizes : Sizes {
  uint32_t phase_groups, groups, others;

  explicit TileSizes(const CorrelationSpec& args) : Sizes(args) {
    const int64_t columns = std::min<int64_t>(width, kColumns);
    const int64_t phases = std::min(columns, args.stride_2);
    phase_groups = static_cast<uint32_t>(
        DivideUp(DivideUp(columns, args.stride_2), kPixels));
    groups = static_cast<uint32_t>(phases * phase_groups);
    others = static_cast<uint32_t>(DivideUp(side + kPixels - 1, kPixels));
  }
};

// The same for windows of one pixel, at each pixel. A thread has the costs of a
// group with one of its groups of `b`.
template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    TileCosts(const __grid_constant__ CorrelationCostArgs<T> args,
              TileSizes sizes, int64_t units) {
  using Sum = Accumulator<T>;
  const ImageSteps steps = FeatureSteps(args), costs = sizes.Steps();
  const int64_t start = args.Border() - args.padding;
  const int side = sizes.side;
  const Sum scale = Sum(1) / static_cast<Sum>(args.Terms());
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const auto [image, y_out, x0, end, dy, first_cost] =
        Unit(args, sizes, unit);
    const int64_t y_a = y_out + start, y_b = y_a + dy;
    const bool has_rows = IsPixel(args, y_a, 0) && IsPixel(args, y_b, 0);
    const T* const row_a = args.a + image * steps.image + y_a * steps.row;
    const T* const row_b = args.b + image * steps.image + y_b * steps.row;
    T* const to = args.costs + first_cost;
    for (uint32_t i = threadIdx.x; i < sizes.groups * sizes.others;
         i += kThreads) {
      const uint32_t group = i / sizes.others;
      const int first = static_cast<int>(i % sizes.others) * kPixels;
      const int64_t x_out =
          x0 + group / sizes.phase_groups +
          group % sizes.phase_groups * kPixels * args.stride_2;
      bool exists_a[kPixels], exists_b[kPixels];
      const T *from_a[kPixels],
          *from_b[kPixels];  // any where it does not exist
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int64_t x_a = x_out + start + p * args.stride_2;
        const int64_t x_b =
            x_out + start + (first + p - sizes.radius) * args.stride_2;
        exists_a[p] = has_rows && IsPixel(args, y_a, x_a);
        exists_b[p] = has_rows && IsPixel(args, y_b, x_b);
        from_a[p] = exists_a[p] ? row_a + x_a * steps.pixel : args.a;
        from_b[p] = exists_b[p] ? row_b + x_b * steps.pixel : args.b;
      }
      Sum sums[kPixels][kPixels] = {};
      for (int64_t c = 0; has_rows && c < args.channels; c += kPack) {
        Pack<T, kPack> of_a[kPixels], of_b[kPixels];
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          of_a[p] = LoadPack<kPack>(from_a[p] + c);
          of_b[p] = LoadPack<kPack>(from_b[p] + c);
        }
#pragma unroll
        for (int n = 0; n < kPack; ++n) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) {
#pragma unroll
            for (int q = 0; q < kPixels; ++q) {
              sums[p][q] += Widen(of_a[p].values[n]) * Widen(of_b[q].values[n]);
            }
          }
        }
      }
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int64_t x = x_out + p * args.stride_2;
        if (x >= end) break;
#pragma unroll
        for (int q = 0; q < kPixels; ++q) {
          const int dx_index = first + q - p;
          if (dx_index < 0 || dx_index >= side) continue;
          const bool exists = exists_a[p] && exists_b[q];
          to[x * costs.pixel + dx_index] =
              Narrow<T>(exists ? sums[p][q] * scale : Sum(0));
        }
      }
    }
  }
}

// The gradient. A block has some groups and, of each, as many threads as there
// are packs of channels (at most kThreads, a power of two).

// Pixels of the other map, of all groups, whose weights are in shared memory.
constexpr int kSlots = 512;
constexpr int kMinLanes = 4;

struct Group {
  // Of the first pixel; image is -1 if there is none. The last ones may be
  // beyond the row.
  int64_t image, y, x;
  // The first steps of stride_2 to a pixel of the other map.
  int step_y, step_x;
};

// The same for the gradient. Some pixels of the other map have weights in a
// group: at most rows x columns.
struct GradientSizes : Sizes {
  int64_t phase_groups, row_groups;
  int64_t rows, columns;
  int lanes;

  GradientSizes(const CorrelationSpec& args, int64_t packs)
      : Sizes(args),
        phase_groups(DivideUp(DivideUp(args.width, args.stride_2), kPixels)),
        row_groups(std::min(args.width, args.stride_2) * phase_groups),
        rows(std::min<int64_t>(side, DivideUp(args.height, args.stride_2))),
        columns(std::min<int64_t>(side + kPixels - 1,
                                  DivideUp(args.width, args.stride_2))),
        lanes(kMinLanes) {
    while (lanes < packs && lanes < kThreads) lanes *= 2;
  }
};

__device__ Group GroupAt(const CorrelationSpec& args,
                         const GradientSizes& sizes, int64_t index) {
  const int64_t row = index / sizes.row_groups;
  if (row >= args.batch * args.height) return {-1, 0, 0, 0, 0};
  const int64_t in_row = index % sizes.row_groups;
  const int64_t step = in_row % sizes.phase_groups * kPixels;
  Group group;
  group.image = row / args.height;
  group.y = row % args.height;
  group.x = in_row / sizes.phase_groups + step * args.stride_2;
  const int64_t above = group.y / args.stride_2;
  const int radius = sizes.radius;
  group.step_y = above < radius ? -static_cast<int>(above) : -radius;
  group.step_x = step < radius ? -static_cast<int>(step) : -radius;
  return group;
}

// The outputs [begin, end) of an axis whose windows have this pixel.
struct Windows {
  int64_t begin, end;
};
__device__ Windows WindowsAt(const CorrelationSpec& args, int64_t pixel,
                             int64_t outputs) {
  const int64_t centre = pixel + args.padding - args.Border();
  const int64_t low = centre - args.KernelRadius();
  const int64_t high = centre + args.KernelRadius();
  const int64_t stride = args.stride_1;
  Windows windows = {low <= 0      ? 0
                     : stride == 1 ? low
                                   : DivideUp(low, stride),
                     high < 0      ? 0
                     : stride == 1 ? high + 1
                                   : high / stride + 1};
  if (windows.end > outputs) windows.end = outputs;
  return windows;
}

// Pixels of the other map, and their weights in the pixels of a group.
template <typename Sum>
struct Slots {
  struct alignas(16) Place {
    int64_t offset;   // of the pixel in its image
    uint32_t counts;  // a bit for each pixel of the group that it counts for
  };
  Place places[kSlots];
  Sum weights[kSlots][kPixels];
  Group groups[kThreads / kMinLanes];
};

// Fills the slot of the pixel `row`, `column` of those around a group.
template <typename T, typename Sum>
__device__ void FillSlot(const CorrelationCostGradArgs<T>& args,
                         const GradientSizes& sizes, const Group& group,
                         int row, int column, typename Slots<Sum>::Place* place,
                         Sum* weights) {
  const int radius = sizes.radius;
  const int step_y = group.step_y + row, step_x = group.step_x + column;
  const int64_t y2 = group.y + step_y * args.stride_2;
  const int64_t x2 = group.x + step_x * args.stride_2;
  *place = {0, 0};
  if (group.image < 0 || step_y > radius || !IsPixel(args, y2, x2)) return;
  place->offset = (y2 * args.width + x2) * args.channels;
  uint32_t counts = 0;
  for (int i = 0; i < kPixels; ++i) {
    const int dx = step_x - i;
    if (dx >= -radius && dx <= radius) counts |= 1u << i;
  }
  place->counts = counts;
  // The costs of the first pixel's displacement. The next pixel's is one less.
  const ImageSteps up = sizes.Steps();
  const int sign = args.to_b ? -1 : 1;
  const T* const from =
      args.d_costs + group.image * up.image +
      static_cast<int64_t>(sizes.radius + sign * step_y) * sizes.side +
      sizes.radius + sign * step_x;
  const int64_t y_a = args.to_b ? y2 : group.y;
  const int64_t x_a = args.to_b ? x2 : group.x;
  const int64_t next_x = args.to_b ? 0 : args.stride_2;
  if (args.kernel_size == 1 && args.stride_1 == 1) {
    // Most often, a pixel is in one window only: reads all at once.
    const int64_t shift = args.padding - args.Border();
    const int64_t v = y_a + shift;
    const bool has_row = v >= 0 && v < sizes.height;
    Sum values[kPixels];
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int64_t u = x_a + shift + i * next_x;
      values[i] = 0;
      if (has_row && u >= 0 && u < sizes.width && (counts >> i & 1) != 0) {
        values[i] = Widen(from[v * up.row + u * up.pixel - sign * i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kPixels; ++i) weights[i] = values[i];
    return;
  }
  const Windows windows_y = WindowsAt(args, y_a, sizes.height);
#pragma unroll 1  // few registers
  for (int i = 0; i < kPixels; ++i) {
    Sum sum = 0;
    if ((counts >> i & 1) != 0) {
      const Windows windows_x = WindowsAt(args, x_a + i * next_x, sizes.width);
      for (int64_t v = windows_y.begin; v < windows_y.end; ++v) {
        for (int64_t u = windows_x.begin; u < windows_x.end; ++u) {
          sum += Widen(from[v * up.row + u * up.pixel - sign * i]);
        }
      }
    }
    weights[i] = sum;
  }
}

template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads, 4)
    Gradient(const __grid_constant__ CorrelationCostGradArgs<T> args,
             const __grid_constant__ GradientSizes sizes, int64_t units) {
  using Sum = Accumulator<T>;
  constexpr int kAtOnce = 4;  // loads in flight
  constexpr uint32_t kAll = (1u << kPixels) - 1;
  __shared__ Slots<Sum> slots;
  const int lanes = sizes.lanes;
  const int groups = kThreads / lanes, of_group = kSlots / groups;
  const int thread = threadIdx.x, own = thread / lanes;
  const int64_t channel_blocks = DivideUp(args.channels, lanes * kPack);
  const Sum scale = Sum(1) / static_cast<Sum>(args.Terms());
  const int64_t columns = sizes.columns, around = sizes.rows * columns;

  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t c = (unit % channel_blocks * lanes + thread % lanes) * kPack;
    __syncthreads();  // the groups before are no longer read
    if (thread < groups) {
      slots.groups[thread] =
          GroupAt(args, sizes, unit / channel_blocks * groups + thread);
    }
    __syncthreads();
    const Group group = slots.groups[own];
    Sum sums[kPixels][kPack] = {};
    for (int64_t first = 0; first < around; first += of_group) {
      const int64_t rest = around - first;
      const int count = rest < of_group ? static_cast<int>(rest) : of_group;
      const int first_row = static_cast<int>(first / columns);
      const uint32_t first_column =
          static_cast<uint32_t>(first - first_row * columns);
      for (int i = thread; i < kSlots; i += kThreads) {
        const uint32_t in_group = i % of_group;
        const uint32_t column = first_column + in_group;
        const uint32_t down = column / static_cast<uint32_t>(columns);
        FillSlot<T, Sum>(args, sizes, slots.groups[i / of_group],
                         first_row + down, column - down * columns,
                         &slots.places[i], slots.weights[i]);
      }
      __syncthreads();
      if (group.image >= 0 && c < args.channels) {
        const T* const other =
            args.other + group.image * FeatureSteps(args).image + c;
        for (int k = 0; k < count; k += kAtOnce) {
          const int slot = own * of_group + k;
          Pack<T, kPack> pixels[kAtOnce];
          uint32_t counts[kAtOnce];
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const auto place = slots.places[slot + j];
            counts[j] = k + j < count ? place.counts : 0;
            if (counts[j] != 0) {
              pixels[j] = LoadPack<kPack>(other + place.offset);
            }
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            if (counts[j] == 0) continue;
            const auto weights = LoadPack<kPixels>(slots.weights[slot + j]);
#pragma unroll
            for (int i = 0; i < kPixels; ++i) {
              // Of the others, infinity times zero would be NaN.
              if (counts[j] != kAll && (counts[j] >> i & 1) == 0) continue;
#pragma unroll
              for (int n = 0; n < kPack; ++n) {
                sums[i][n] += weights.values[i] * Widen(pixels[j].values[n]);
              }
            }
          }
        }
      }
      __syncthreads();
    }
    if (group.image < 0 || c >= args.channels) continue;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int64_t x = group.x + i * args.stride_2;
      if (x >= args.width) break;
      Pack<T, kPack> result;
#pragma unroll
      for (int n = 0; n < kPack; ++n) {
        result.values[n] = Narrow<T>(sums[i][n] * scale);
      }
      const int64_t pixel =
          (group.image * args.height + group.y) * args.width + x;
      StorePack(result, args.gradient + pixel * args.channels + c);
    }
  }
}

}  // namespace

template <typename T>
Error CorrelationCost(const Gpu& gpu, const CorrelationCostArgs<T>& args) {
  const Sizes sizes(args);
  const int64_t units =
      args.batch * sizes.height * sizes.side * DivideUp(sizes.width, kColumns);
  const bool in_tiles = args.kernel_size == 1 && args.stride_1 == 1;
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int kPack = decltype(n)::value;
        return kPack == 1 || FitsPacks<kPack>(args.channels, args.a, args.b);
      },
      [&](auto n) {
        return in_tiles
                   ? Launch(gpu, GridSize(units), kThreads,
                            TileCosts<T, decltype(n)::value>, args,
                            TileSizes(args), units)
                   : Launch(gpu, GridSize(units), kThreads,
                            Costs<T, decltype(n)::value>, args, sizes, units);
      });
}

template <typename T>
Error CorrelationCostGrad(const Gpu& gpu,
                          const CorrelationCostGradArgs<T>& args) {
  const int64_t size = args.batch * args.height * args.width * args.channels;
  if (args.OutputHeight() == 0 || args.OutputWidth() == 0) {
    return EnqueueZeros(gpu, args.gradient, size * sizeof(T));
  }
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, args.other,
                                             args.gradient);
      },
      [&](auto n) {
        const int64_t packs = args.channels / n;
        const GradientSizes sizes(args, packs);
        const int64_t units =
            DivideUp(args.batch * args.height * sizes.row_groups,
                     kThreads / sizes.lanes) *
            DivideUp(packs, sizes.lanes);
        return Launch(gpu, GridSize(units), kThreads,
                      Gradient<T, decltype(n)::value>, args, sizes, units);
      });
}

TFO_INSTANTIATE_ALGORITHM(CorrelationCost, Gpu, CorrelationCostArgs);
TFO_INSTANTIATE_ALGORITHM(CorrelationCostGrad, Gpu, CorrelationCostGradArgs);

}  // namespace tfo
