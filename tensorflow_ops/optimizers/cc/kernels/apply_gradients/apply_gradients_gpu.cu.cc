#include <algorithm>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/sort_gpu.h"
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/optimizer_formulas.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kTile = 16 * kThreads;  // elements of a variable, for a block
constexpr int kMaxBatch = 30;             // variables of a launch

template <Optimizer kOptimizer, typename T>
__device__ void UpdateElement(const VariableStep<T>& a,
                              const Accumulator<T>* scalars, int64_t i,
                              Accumulator<T> g) {
  using A = Accumulator<T>;
  constexpr int kSlots = kSlotsOf<kOptimizer>;
  A p[kMaxScalars], s[kMaxSlots];
  for (int k = 0; k < kScalarsOf<kOptimizer>; ++k) p[k] = scalars[k];
  A w = Widen(a.before[0][i]);
  for (int k = 0; k < kSlots; ++k) s[k] = Widen(a.before[1 + k][i]);
  scalar::DecayAndStep<kOptimizer>(p, a.decays, g, w, s);
  a.after[0][i] = Narrow<T>(w);
  for (int k = 0; k < kSlots; ++k) a.after[1 + k][i] = Narrow<T>(s[k]);
}

template <typename T>
struct Batch {
  int count;
  const Accumulator<T>* scalars;
  int64_t end[kMaxBatch];  // the first tile after each variable's
  VariableStep<T> variables[kMaxBatch];
};
static_assert(sizeof(Batch<float>) <= 4096);  // of a kernel's parameters

template <Optimizer kOptimizer, typename T>
__global__ void __launch_bounds__(kThreads)
    UpdateBatch(const __grid_constant__ Batch<T> all) {
  for (int64_t tile = blockIdx.x; tile < all.end[all.count - 1];
       tile += gridDim.x) {
    int v = 0;
    while (tile >= all.end[v]) ++v;
    const VariableStep<T>& a = all.variables[v];
    const int64_t begin = (tile - (v > 0 ? all.end[v - 1] : 0)) * kTile;
    const int64_t end = begin + kTile < a.size ? begin + kTile : a.size;
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      UpdateElement<kOptimizer>(a, all.scalars, i,
                                Widen(a.gradient[i]) * all.scalars[2]);
    }
  }
}

struct Item {
  int64_t row, position;
};
struct Before {
  __device__ bool operator()(const Item& a, const Item& b) const {
    return a.row != b.row ? a.row < b.row : a.position < b.position;
  }
};

template <typename T>
struct Scratch {
  explicit Scratch(const VariableStep<T>& a, void* memory) : layout(memory) {
    num_items = PaddedForSort(a.num_ids);
    rows = a.width > 0 ? a.size / a.width : 0;
    layout.Reserve(&items, num_items);
    layout.Reserve(&has_gradient, rows);
  }
  ScratchLayout layout;
  int64_t num_items, rows;
  Item* items;
  char* has_gradient;  // of each row
};

// Rows outside of the variable come last, as does padding.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    MakeItems(const __grid_constant__ VariableStep<T> a, Item* items,
              int64_t num_items, int64_t rows) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < num_items;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i < a.num_ids ? a.ids[i] : rows;
    items[i] = {row >= 0 && row < rows ? row : rows, i};
  }
}

// A warp sums the gradients of 32 columns of a row in order, and updates them.
// A row may have most of the ids, such as that of padding.
template <Optimizer kOptimizer, typename T>
__global__ void __launch_bounds__(kThreads)
    UpdateRows(const __grid_constant__ VariableStep<T> a,
               const Accumulator<T>* scalars,
               const __grid_constant__ Scratch<T> scratch) {
  const int lane = threadIdx.x % kWarp;
  const int64_t parts = DivideUp(a.width, kWarp);
  const Item* const items = scratch.items;
  for (int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
       unit < a.num_ids * parts; unit += int64_t{gridDim.x} * kWarps) {
    const int64_t first = unit / parts, column = unit % parts * kWarp + lane;
    const int64_t row = items[first].row;
    if (row == scratch.rows || (first > 0 && items[first - 1].row == row)) {
      continue;
    }
    const bool has_column = column < a.width;
    Accumulator<T> sum = 0;
    int count = kWarp;  // of the row, among the lanes' items
    for (int64_t i = first + lane; count == kWarp; i += kWarp) {
      const Item item = i < a.num_ids ? items[i] : Item{scratch.rows, 0};
      count = __popc(__ballot_sync(kAllLanes, item.row == row));
#pragma unroll 8
      for (int k = 0; k < count; ++k) {
        const int64_t from = __shfl_sync(kAllLanes, item.position, k) * a.width;
        if (has_column) sum += Widen(a.gradient[from + column]);
      }
    }
    if (!has_column) continue;
    if (column == 0) scratch.has_gradient[row] = 1;
    UpdateElement<kOptimizer>(a, scalars, row * a.width + column,
                              sum * scalars[2]);
  }
}

// Updates rows without gradients; `keeps`: copies them instead.
template <Optimizer kOptimizer, typename T>
__global__ void __launch_bounds__(kThreads)
    UpdateOtherRows(const __grid_constant__ VariableStep<T> a,
                    const Accumulator<T>* scalars,
                    const __grid_constant__ Scratch<T> scratch, bool keeps) {
  constexpr int kSlots = kSlotsOf<kOptimizer>;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.size;
       i += int64_t{gridDim.x} * kThreads) {
    if (scratch.has_gradient[i / a.width]) continue;
    if (!keeps) {
      UpdateElement<kOptimizer>(a, scalars, i, Accumulator<T>(0));
      continue;
    }
    for (int k = 0; k <= kSlots; ++k) a.after[k][i] = a.before[k][i];
  }
}

template <Optimizer kOptimizer, typename T>
Error EnqueueRows(const Gpu& gpu, const ApplyGradientsArgs<T>& args,
                  const VariableStep<T>& a) {
  const Scratch<T> scratch(a, gpu.scratch);
  Error error = EnqueueZeros(gpu, scratch.has_gradient, scratch.rows);
  if (error != nullptr) return error;
  if (a.num_ids > 0) {
    error =
        Launch(gpu, GridSize(DivideUp(scratch.num_items, kThreads)), kThreads,
               MakeItems<T>, a, scratch.items, scratch.num_items, scratch.rows);
    if (error != nullptr) return error;
    error = SortOnGpu<Before>(gpu, scratch.items, scratch.num_items);
    if (error != nullptr) return error;
    const int64_t units = a.num_ids * DivideUp(a.width, kWarp);
    error = Launch(gpu, GridSize(DivideUp(units, kWarps)), kThreads,
                   UpdateRows<kOptimizer, T>, a, args.scalars, scratch);
    if (error != nullptr) return error;
  }
  const bool keeps = args.KeepsOtherRows(a);
  if (keeps && a.IsInPlace(NumSlots(kOptimizer))) return nullptr;
  return Launch(gpu, GridSize(DivideUp(a.size, kThreads)), kThreads,
                UpdateOtherRows<kOptimizer, T>, a, args.scalars, scratch,
                keeps);
}

template <Optimizer kOptimizer, typename T>
Error Enqueue(const Gpu& gpu, const ApplyGradientsArgs<T>& args) {
  Batch<T> all{};
  all.scalars = args.scalars;
  int64_t tiles = 0;
  const auto flush = [&]() -> Error {
    if (all.count == 0) return nullptr;
    const Error error =
        Launch(gpu, GridSize(tiles), kThreads, UpdateBatch<kOptimizer, T>, all);
    all.count = 0;
    tiles = 0;
    return error;
  };
  for (int64_t v = 0; v < args.num_variables; ++v) {
    const VariableStep<T>& a = args.variables[v];
    if (a.size == 0) continue;
    Error error = nullptr;
    if (a.is_of_rows) {
      error = EnqueueRows<kOptimizer>(gpu, args, a);
    } else {
      tiles += DivideUp(a.size, kTile);
      all.variables[all.count] = a;
      all.end[all.count++] = tiles;
      if (all.count == kMaxBatch) error = flush();
    }
    if (error != nullptr) return error;
  }
  return flush();
}

}  // namespace

template <typename T>
Error ApplyGradients(const Gpu& gpu, const ApplyGradientsArgs<T>& args) {
  return WithOptimizer(args.optimizer, [&](auto k) {
    return Enqueue<decltype(k)::value>(gpu, args);
  });
}

template <typename T>
int64_t ApplyGradientsScratch(const ApplyGradientsArgs<T>& args) {
  int64_t most = 0;
  for (int64_t v = 0; v < args.num_variables; ++v) {
    const VariableStep<T>& a = args.variables[v];
    if (!a.is_of_rows) continue;
    most = std::max(most, Scratch<T>(a, nullptr).layout.bytes());
  }
  return most;
}

TFO_INSTANTIATE_ALGORITHM(ApplyGradients, Gpu, ApplyGradientsArgs);
#define TFO_INSTANTIATE_SCRATCH(T) \
  template int64_t ApplyGradientsScratch(const ApplyGradientsArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE_SCRATCH);
#undef TFO_INSTANTIATE_SCRATCH

}  // namespace tfo
