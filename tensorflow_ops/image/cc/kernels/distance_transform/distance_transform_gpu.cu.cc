#include <cmath>

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"

namespace tfo {
namespace {

constexpr int kLanes = 32;     // neighboring columns of a block
constexpr int kSegments = 16;  // parts of each column
constexpr int kRowThreads = 64;

// A distance in a column without zero pixels.
constexpr int32_t kNone = -1;

// Distances in columns: element i of the images has distances[i * step]. They
// share memory with the output if its elements are large enough.
struct Columns {
  int32_t* distances;
  int64_t step;
};

// A thread has a segment of a column. The segments exchange their first and
// last zero pixels.
template <typename Bits>
__global__ void __launch_bounds__(kLanes* kSegments)
    FindColumnDistances(Planes planes, const Bits* images, Bits magnitude,
                        Columns columns) {
  __shared__ int32_t firsts[kLanes * kSegments], lasts[kLanes * kSegments];
  const int thread = threadIdx.x;
  const int lane = thread % kLanes, segment = thread / kLanes;
  const int64_t elements = planes.width * planes.channels;
  const int64_t groups = (elements + kLanes - 1) / kLanes;
  const auto height = static_cast<int32_t>(planes.height);
  const int32_t rows = (height + kSegments - 1) / kSegments;
  const int32_t begin = segment * rows < height ? segment * rows : height;
  const int32_t end = begin + rows < height ? begin + rows : height;
  for (int64_t group = blockIdx.x; group < planes.images * groups;
       group += gridDim.x) {
    const int64_t x = group % groups * kLanes + lane;
    const int64_t top = group / groups * planes.height * elements + x;
    const auto is_zero = [&](int32_t y) {
      return (images[top + y * elements] & magnitude) == 0;
    };
    int32_t first = kNone, last = kNone;
    if (x < elements) {
      for (int32_t y = begin; y < end; ++y) {
        if (!is_zero(y)) continue;
        if (first == kNone) first = y;
        last = y;
      }
    }
    firsts[thread] = first;
    lasts[thread] = last;
    __syncthreads();
    int32_t above = kNone, below = kNone;
    for (int s = 0; s < segment; ++s) {
      if (lasts[s * kLanes + lane] != kNone) above = lasts[s * kLanes + lane];
    }
    for (int s = kSegments - 1; s > segment; --s) {
      if (firsts[s * kLanes + lane] != kNone) below = firsts[s * kLanes + lane];
    }
    __syncthreads();
    if (x >= elements) continue;
    for (int32_t y = end - 1; y >= begin; --y) {
      if (is_zero(y)) below = y;
      columns.distances[(top + y * elements) * columns.step] =
          below == kNone ? kNone : below - y;
    }
    for (int32_t y = begin; y < end; ++y) {
      if (is_zero(y)) above = y;
      if (above == kNone) continue;
      int32_t& distance =
          columns.distances[(top + y * elements) * columns.step];
      if (distance == kNone || y - above < distance) distance = y - above;
    }
  }
}

// The lower envelope of a row's parabolas, in a block's memory.
struct Envelope {
  __device__ Envelope(void* memory, int64_t width)
      : starts(static_cast<double*>(memory)),
        columns(reinterpret_cast<int32_t*>(starts + width)),
        distances(columns + width) {}

  double* starts;      // where each parabola is the lowest one
  int32_t* columns;    // of the parabolas
  int32_t* distances;  // of all columns
};

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

// One thread. Returns the number of parabolas.
template <typename T>
__device__ int64_t FindEnvelope(const DistanceTransformArgs<T>& args,
                                const Envelope& e) {
  const double ratio = args.row_spacing / args.column_spacing;
  const auto height = [&](int64_t x) {
    const double down = ratio * e.distances[x];
    return down * down + static_cast<double>(x) * x;
  };
  int64_t count = 0;
  for (int64_t x = 0; x < args.planes.width; ++x) {
    if (e.distances[x] == kNone) continue;
    const double here = height(x);
    double start = -1;  // the first one is the lowest from before the row on
    while (count > 0) {
      const int32_t last = e.columns[count - 1];
      start = (here - height(last)) / (2.0 * (x - last));
      if (count == 1 || start > e.starts[count - 1]) break;
      --count;
    }
    e.starts[count] = start;
    e.columns[count] = static_cast<int32_t>(x);
    ++count;
  }
  return count;
}

// A block has a row of one channel: a thread finds the envelope, then all
// evaluate it.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    FindDistances(const __grid_constant__ DistanceTransformArgs<T> args,
                  Columns columns, char* scratch) {
  __shared__ int64_t count;
  const int64_t width = args.planes.width, channels = args.planes.channels;
  const int64_t rows = args.planes.images * args.planes.height * channels;
  void* const memory =
      scratch == nullptr
          ? DynamicShared()
          : scratch + blockIdx.x * width * DistanceScratch::kBytesPerColumn;
  const Envelope e(memory, width);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row / channels * width * channels + row % channels;
    for (int64_t x = threadIdx.x; x < width; x += kRowThreads) {
      e.distances[x] = columns.distances[(first + x * channels) * columns.step];
    }
    __syncthreads();
    if (threadIdx.x == 0) count = FindEnvelope(args, e);
    __syncthreads();
    for (int64_t x = threadIdx.x; x < width; x += kRowThreads) {
      // The last parabola that starts before x, or the first one.
      int64_t low = 0, high = count;
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (e.starts[middle] < x) {
          low = middle;
        } else {
          high = middle;
        }
      }
      double root = INFINITY;
      if (count > 0) {
        const int32_t column = e.columns[low];
        const double across = args.column_spacing * (x - column);
        const double down = args.row_spacing * e.distances[column];
        root = sqrt(across * across + down * down);
      }
      args.distances[first + x * channels] = RoundRoot<T>(root);
    }
    __syncthreads();
  }
}

}  // namespace

template <typename T>
Error DistanceTransform(const Gpu& gpu, const DistanceTransformArgs<T>& args) {
  const Planes& planes = args.planes;
  if (planes.Elements() == 0) return nullptr;
  const DistanceScratch scratch(planes, sizeof(T));
  auto* const memory = static_cast<char*>(gpu.scratch);
  Columns columns = {reinterpret_cast<int32_t*>(args.distances),
                     sizeof(T) / sizeof(int32_t)};
  if (sizeof(T) < sizeof(int32_t)) {
    columns = {reinterpret_cast<int32_t*>(memory), 1};
  }
  const int64_t groups =
      planes.images * ((planes.RowElements() + kLanes - 1) / kLanes);
  const Error error =
      WithPixelBits(args.type, [&](auto bits, auto magnitude) -> Error {
        using Bits = decltype(bits);
        return Launch(gpu, GridSize(groups), kLanes * kSegments,
                      FindColumnDistances<Bits>, planes,
                      static_cast<const Bits*>(args.images), magnitude,
                      columns);
      });
  if (error != nullptr) return error;
  const bool in_shared = scratch.rows_bytes == 0;
  const int shared =
      in_shared
          ? static_cast<int>(planes.width * DistanceScratch::kBytesPerColumn)
          : 0;
  return LaunchWithShared(gpu, GridSize(scratch.blocks), kRowThreads, shared,
                          FindDistances<T>, args, columns,
                          in_shared ? nullptr : memory + scratch.columns_bytes);
}

TFO_INSTANTIATE_ALGORITHM(DistanceTransform, Gpu, DistanceTransformArgs);

}  // namespace tfo
