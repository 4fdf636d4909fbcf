#include <cmath>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"

namespace tfo {
namespace {

constexpr int kLanes = 16;     // neighboring columns of a block
constexpr int kSegments = 32;  // parts of each column

// Distances in columns without zero pixels are not below this.
constexpr int32_t kNone = kMaxImageSide;

// Distances in columns: element i of the images has distances[i * step]. They
// share memory with the output if its elements are large enough.
struct Columns {
  int32_t* distances;
  int64_t step;
};

// Indices of bits that are 1; there is one.
__device__ int FirstBit(uint32_t bits) { return __ffs(bits) - 1; }
__device__ int LastBit(uint32_t bits) { return 31 - __clz(bits); }

// A thread has a segment of a column. The segments exchange their first and
// last zero pixels.
template <typename Bits>
__global__ void __launch_bounds__(kLanes* kSegments)
    FindColumnDistances(Planes planes, const Bits* images, Bits magnitude,
                        Columns columns) {
  constexpr int kRows = 32;  // bits of a word: is a row's pixel zero?
  __shared__ int32_t firsts[kLanes * kSegments], lasts[kLanes * kSegments];
  const int thread = threadIdx.x;
  const int lane = thread % kLanes, segment = thread / kLanes;
  const int64_t elements = planes.width * planes.channels;
  const int64_t groups = DivideUp(elements, kLanes);
  const auto height = static_cast<int32_t>(planes.height);
  const int32_t rows = (height + kSegments - 1) / kSegments;
  const int32_t begin = segment * rows < height ? segment * rows : height;
  for (int64_t group = blockIdx.x; group < planes.images * groups;
       group += gridDim.x) {
    const int64_t x = group % groups * kLanes + lane;
    const int64_t top = group / groups * planes.height * elements + x;
    const int32_t end = x >= elements           ? begin
                        : begin + rows < height ? begin + rows
                                                : height;
    const auto zeros_from = [&](int32_t y) {
      uint32_t zeros = 0;
#pragma unroll 8
      for (int r = 0; r < kRows; ++r) {
        if (y + r < end && (images[top + (y + r) * elements] & magnitude) == 0)
          zeros |= 1u << r;
      }
      return zeros;
    };
    int32_t first = kNone, last = -kNone;
    for (int32_t y = begin; y < end; y += kRows) {
      const uint32_t zeros = zeros_from(y);
      if (zeros == 0) continue;
      if (first == kNone) first = y + FirstBit(zeros);
      last = y + LastBit(zeros);
    }
    firsts[thread] = first;
    lasts[thread] = last;
    __syncthreads();
    // The last zero pixel before the rows below, and the first one after the
    // segment.
    int32_t above = -kNone, after = 2 * (kNone - 1) + 1;
    for (int s = 0; s < segment; ++s) {
      if (lasts[s * kLanes + lane] >= 0) above = lasts[s * kLanes + lane];
    }
    for (int s = kSegments - 1; s > segment; --s) {
      if (firsts[s * kLanes + lane] != kNone) after = firsts[s * kLanes + lane];
    }
    __syncthreads();
    int32_t below = begin;  // the first zero pixel after 32 rows
    for (int32_t y = begin; y < end; y += kRows) {
      const uint32_t zeros = zeros_from(y);
      if (below < y + kRows) {
        below = after;
        for (int32_t later = y + kRows; later < end; later += kRows) {
          const uint32_t other = zeros_from(later);
          if (other == 0) continue;
          below = later + FirstBit(other);
          break;
        }
      }
#pragma unroll 8
      for (int r = 0; r < kRows; ++r) {
        if (y + r >= end) break;
        const uint32_t up = zeros & ((2u << r) - 1), down = zeros >> r;
        const int32_t of_above = up != 0 ? r - LastBit(up) : y + r - above;
        const int32_t of_below = down != 0 ? FirstBit(down) : below - (y + r);
        columns.distances[(top + (y + r) * elements) * columns.step] =
            of_above < of_below ? of_above : of_below;
      }
      if (zeros != 0) above = y + LastBit(zeros);
    }
  }
}

template <typename T>
__device__ T RoundRoot(double root) {
  if constexpr (sizeof(T) == 8) {
    return root;
  } else if constexpr (sizeof(T) == 4) {
    return static_cast<float>(root);
  } else {
    // Sets float32's last bit if others are dropped: rounds once.
    constexpr uint64_t kLast = uint64_t{1} << 29;
    uint64_t bits;
    memcpy(&bits, &root, sizeof(bits));
    const uint64_t dropped = bits & (kLast - 1);
    bits = (bits & ~(kLast - 1)) | (dropped != 0 ? kLast : 0);
    memcpy(&root, &bits, sizeof(bits));
    return Narrow<T>(static_cast<float>(root));
  }
}

// The parabola of a zero pixel that is the nearest one of its column.
struct Parabola {
  int32_t column, distance;
};

// In a warp's memory, which holds a parabola and an owner per column.
struct RowMemory {
  __device__ RowMemory(void* memory, int width)
      : parabolas(static_cast<int32_t*>(memory)),
        owners(parabolas + 2 * int64_t{width}) {}

  __device__ Parabola operator[](int i) const {
    const Pack<int32_t, 2> pack = LoadPack<2>(parabolas + 2 * int64_t{i});
    return {pack.values[0], pack.values[1]};
  }
  __device__ void Set(int i, const Parabola& p) const {
    cuda_launch_internal::CheckAligned(parabolas, sizeof(uint2));
    reinterpret_cast<uint2*>(parabolas)[i] = {
        static_cast<unsigned>(p.column), static_cast<unsigned>(p.distance)};
  }

  int32_t* parabolas;  // aligned to 8 bytes
  // At the column where a parabola becomes the lowest one, its index.
  int32_t* owners;
};

// Heights of parabolas in a unit of squared columns. V is int64_t, for equal
// spacings and sides up to kMaxExactSide, or double.
constexpr int64_t kMaxExactSide = int64_t{1} << 20;
template <typename V>
struct Heights {
  V scale;  // a squared row; 1 for int64_t

  __device__ V operator()(const Parabola& p) const {
    const V distance = p.distance;
    if constexpr (std::is_same_v<V, double>) return scale * distance * distance;
    return distance * distance;
  }
  // Returns whether b, between a and c, is nowhere the only lowest one.
  // Compares products: exact for integers, and for all with a unit of 1 whose
  // squares double holds.
  __device__ bool AreCovering(const Parabola& a, const Parabola& c,
                              const Parabola& b) const {
    const V of_a = (*this)(a), of_b = (*this)(b), of_c = (*this)(c);
    const V left = b.column - a.column, right = c.column - b.column;
    return (of_b - of_a) * right + (of_b - of_c) * left >=
           left * right * (left + right);
  }
  // Where b becomes lower than a, which is before it.
  __device__ double Crossing(const Parabola& a, const Parabola& b) const {
    const auto apart = static_cast<double>(b.column - a.column);
    const auto sum =
        static_cast<double>(static_cast<int64_t>(a.column) + b.column);
    const auto higher = static_cast<double>((*this)(b) - (*this)(a));
    return (higher + apart * sum) / (2 * apart);
  }
};

// How many of the numbers 0, 1, ... below `count` come before the first for
// which holds(number) is false. Takes steps of 1, 2, 4, ..., then halves them.
template <typename Predicate>
__device__ int CountLeading(int count, const Predicate& holds) {
  int found = 0, step = 1;
  for (; found + step <= count && holds(found + step - 1); step *= 2) {
    found += step;
  }
  while (step > 1) {
    step /= 2;
    if (found + step <= count && holds(found + step - 1)) found += step;
  }
  return found;
}

// All lanes of a warp. Given the parabolas of all columns, leaves those of the
// lower envelope, by column, and returns their number. Each lane finds the
// envelope of a segment; then neighbors join.
template <typename V>
__device__ int FindEnvelope(const Heights<V>& heights, const RowMemory& row,
                            int width) {
  const int lane = threadIdx.x % kWarp;
  // Odd, so that lanes access different banks of shared memory.
  const int segment = (width + kWarp - 1) / kWarp | 1;
  const auto begin_of = [&](int of_lane) {
    return of_lane * segment < width ? of_lane * segment : width;
  };
  const int begin = begin_of(lane), end = begin_of(lane + 1);
  int count = 0;            // of those that begin in this lane's segment
  Parabola a = {}, b = {};  // the last two
  for (int x = begin; x < end; ++x) {
    const Parabola c = row[x];
    if (c.distance >= kNone) continue;
    while (count > 1 && heights.AreCovering(a, c, b)) {
      --count;
      b = a;
      if (count > 1) a = row[begin + count - 2];
    }
    row.Set(begin + count++, c);
    a = b;
    b = c;
  }
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    __syncwarp(kAllLanes);
    const int leader = lane / (2 * lanes) * (2 * lanes);
    const int left = begin_of(leader), right = begin_of(leader + lanes);
    const int of_right = __shfl_sync(kAllLanes, count, leader + lanes);
    int dropped = 0;  // of the right ones; `count` is that of the left ones
    if (lane == leader && count > 0 && of_right > 0) {
      for (;;) {
        const Parabola last = row[left + count - 1];
        dropped += CountLeading(of_right - 1 - dropped, [&](int i) {
          const int at = right + dropped + i;
          return heights.AreCovering(last, row[at + 1], row[at]);
        });
        const Parabola next = row[right + dropped];
        const int covered = CountLeading(count - 1, [&](int i) {
          const int at = left + count - 1 - i;
          return heights.AreCovering(row[at - 1], next, row[at]);
        });
        if (covered == 0) break;
        count -= covered;
      }
    }
    dropped = __shfl_sync(kAllLanes, dropped, leader);
    const int from = right + dropped;
    const int to = left + __shfl_sync(kAllLanes, count, leader);
    const int moved = of_right - dropped;
    for (int i = lane - leader; __any_sync(kAllLanes, i < moved && from != to);
         i += 2 * lanes) {
      Parabola p;
      if (i < moved) p = row[from + i];
      __syncwarp(kAllLanes);
      if (i < moved) row.Set(to + i, p);
      __syncwarp(kAllLanes);
    }
    count = to + moved - left;
  }
  return count;
}

// A warp has a row of one channel.
template <typename V, typename T>
__global__ void __launch_bounds__(kWarp)
    FindDistances(const __grid_constant__ DistanceTransformArgs<T> args,
                  Columns columns, Heights<V> heights, char* scratch) {
  const int lane = threadIdx.x;
  const auto width = static_cast<int>(args.planes.width);
  const int64_t channels = args.planes.channels;
  const int64_t rows = args.planes.images * args.planes.height * channels;
  const auto find = [&](int64_t index, const RowMemory& row) {
    const int64_t first =
        index / channels * width * channels + index % channels;
    for (int x = lane; x < width; x += kWarp) {
      row.Set(x, {x, columns.distances[(first + x * channels) * columns.step]});
      row.owners[x] = -1;
    }
    __syncwarp(kAllLanes);
    const int count = FindEnvelope(heights, row, width);
    __syncwarp(kAllLanes);
    for (int i = lane; i < count; i += kWarp) {
      // Before column 0, the first one is the lowest.
      const double start = i == 0 ? 0 : heights.Crossing(row[i - 1], row[i]);
      if (!(start <= width - 1)) continue;
      atomicMax(&row.owners[start > 0 ? static_cast<int>(ceil(start)) : 0], i);
    }
    __syncwarp(kAllLanes);
    int before = 0;  // the owner of the column before
    for (int x = lane; x - lane < width; x += kWarp) {
      int owner = x < width ? row.owners[x] : -1;
      const unsigned starts =
          __ballot_sync(kAllLanes, owner >= 0) & ((2u << lane) - 1);
      owner =
          __shfl_sync(kAllLanes, owner, starts != 0 ? LastBit(starts) : lane);
      if (starts == 0) owner = before;
      before = __shfl_sync(kAllLanes, owner, kWarp - 1);
      if (x >= width) continue;
      double root = INFINITY;
      if (count > 0) {
        const Parabola p = row[owner];
        const double across = args.column_spacing * (x - p.column);
        const double down = args.row_spacing * p.distance;
        root = sqrt(across * across + down * down);
      }
      args.distances[first + x * channels] = RoundRoot<T>(root);
    }
    __syncwarp(kAllLanes);
  };
  for (int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    // Apart from each other, since shared memory has its own instructions.
    if (scratch == nullptr) {
      find(index, RowMemory(DynamicShared(), width));
    } else {
      find(index,
           RowMemory(scratch + blockIdx.x * DistanceScratch::RowBytes(width),
                     width));
    }
  }
}

}  // namespace

template <typename T>
Error DistanceTransform(const Gpu& gpu, const DistanceTransformArgs<T>& args) {
  const Planes& planes = args.planes;
  if (planes.Elements() == 0) return nullptr;
  const DistanceScratch scratch(planes, sizeof(T), gpu.scratch);
  Columns columns = {reinterpret_cast<int32_t*>(args.distances),
                     sizeof(T) / sizeof(int32_t)};
  if (scratch.columns != nullptr) columns = {scratch.columns, 1};
  const int64_t groups = planes.images * DivideUp(planes.RowElements(), kLanes);
  const Error error =
      WithPixelBits(args.type, [&](auto bits, auto magnitude) -> Error {
        using Bits = decltype(bits);
        return Launch(gpu, GridSize(groups), kLanes * kSegments,
                      FindColumnDistances<Bits>, planes,
                      static_cast<const Bits*>(args.images), magnitude,
                      columns);
      });
  if (error != nullptr) return error;
  const bool in_shared = scratch.rows == nullptr;
  const int shared =
      in_shared ? static_cast<int>(DistanceScratch::RowBytes(planes.width)) : 0;
  const auto find = [&](const auto& heights, const auto& kernel) {
    return LaunchWithShared(gpu, GridSize(scratch.blocks), kWarp, shared,
                            kernel, args, columns, heights, scratch.rows);
  };
  const double ratio = args.row_spacing / args.column_spacing;
  if (ratio == 1 && planes.height <= kMaxExactSide &&
      planes.width <= kMaxExactSide) {
    return find(Heights<int64_t>{1}, FindDistances<int64_t, T>);
  }
  return find(Heights<double>{ratio * ratio}, FindDistances<double, T>);
}

TFO_INSTANTIATE_ALGORITHM(DistanceTransform, Gpu, DistanceTransformArgs);

}  // namespace tfo
