#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/image/cc/kernels/connected_components/connected_components.h"

// Union-find over pixels: parents with smaller indices, joined by atomicMin
// without a loop over the image (Playne and Hawick, doi.org/10.1109/TPDS.2018.
// 2799216). The root of a component is its first pixel, in whatever order
// threads run. Then roots are numbered by a prefix sum over chunks of pixels.
namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = ConnectedComponentsScratch::kChunk;
constexpr int32_t kZero = -1;  // the parent of a zero pixel

template <typename Bits>
struct Images {
  Planes planes;
  bool diagonal;
  int64_t chunks;  // of a plane
  const Bits* images;
  int32_t* parents;  // [planes, pixels]
  int32_t* roots;    // [planes, chunks], the number of them
  int32_t *labels, *counts;
};

// A plane, whose pixels have indices below 2^31.
template <typename Bits>
struct Plane {
  __device__ Plane(const Images<Bits>& all, int64_t plane)
      : width(static_cast<int32_t>(all.planes.width)),
        pixels(static_cast<int32_t>(all.planes.height * all.planes.width)),
        channels(all.planes.channels),
        parents(all.parents + plane * pixels) {
    const int64_t first =
        plane / channels * pixels * channels + plane % channels;
    values = all.images + first;
    labels = all.labels + first;
  }

  __device__ Bits Value(int32_t i) const { return values[i * channels]; }
  __device__ int32_t& Label(int32_t i) const { return labels[i * channels]; }

  int32_t width, pixels;
  int64_t channels;
  int32_t* parents;
  const Bits* values;
  int32_t* labels;
};

// Calls body(plane, number, first) in all threads of a block, for each chunk of
// planes.
template <typename Bits, typename Body>
__device__ void ForChunks(const Images<Bits>& all, const Body& body) {
  const int64_t count = all.planes.images * all.planes.channels * all.chunks;
  for (int64_t chunk = blockIdx.x; chunk < count; chunk += gridDim.x) {
    body(Plane<Bits>(all, chunk / all.chunks), chunk,
         chunk % all.chunks * kChunk);
  }
}

// Calls body(plane, i) for each pixel.
template <typename Bits, typename Body>
__device__ void ForPixels(const Images<Bits>& all, const Body& body) {
  ForChunks(all, [&](const Plane<Bits>& plane, int64_t, int64_t first) {
    for (int t = threadIdx.x; t < kChunk; t += kThreads) {
      if (first + t < plane.pixels) {
        body(plane, static_cast<int32_t>(first + t));
      }
    }
  });
}

// Other threads may read and write parents meanwhile.
__device__ int32_t Parent(const int32_t* parents, int32_t i) {
  return *static_cast<const volatile int32_t*>(parents + i);
}
__device__ void SetParent(int32_t* parents, int32_t i, int32_t parent) {
  *static_cast<volatile int32_t*>(parents + i) = parent;
}

__device__ int32_t FindRoot(const int32_t* parents, int32_t i) {
  for (int32_t parent = Parent(parents, i); parent != i;
       parent = Parent(parents, i)) {
    i = parent;
  }
  return i;
}

__device__ void Unite(int32_t* parents, int32_t a, int32_t b) {
  a = FindRoot(parents, a);
  b = FindRoot(parents, b);
  while (a != b) {
    if (a < b) {
      const int32_t swapped = a;
      a = b;
      b = swapped;
    }
    const int32_t before = atomicMin(parents + a, b);
    if (before == a) return;
    // Another thread has joined a to `before` meanwhile.
    a = FindRoot(parents, before);
    b = FindRoot(parents, b);
  }
}

// Links each pixel to the first one of its run, within a warp's pixels.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    LinkRuns(const __grid_constant__ Images<Bits> all) {
  ForChunks(all, [&](const Plane<Bits>& plane, int64_t, int64_t first) {
    for (int t = threadIdx.x; t < kChunk; t += kThreads) {
      const int lane = threadIdx.x % kWarp;
      const bool is_inside = first + t < plane.pixels;
      const auto i = static_cast<int32_t>(first + t);
      const Bits value = is_inside ? plane.Value(i) : Bits{0};
      const bool continues = value != 0 && lane > 0 && i % plane.width != 0 &&
                             plane.Value(i - 1) == value;
      unsigned starts =
          __ballot_sync(kAllLanes, !continues) & ((2u << lane) - 1);
      // The last start is the highest bit: fill all bits below it.
      for (int shift = 1; shift < kWarp; shift *= 2) starts |= starts >> shift;
      if (!is_inside) continue;
      plane.parents[i] = value == 0 ? kZero : i - lane + __popc(starts) - 1;
    }
  });
}

// Joins neighbors, unless others join them, too.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    JoinNeighbors(const __grid_constant__ Images<Bits> all) {
  ForPixels(all, [&](const Plane<Bits>& plane, int32_t i) {
    const Bits value = plane.Value(i);
    if (value == 0) return;
    const int32_t x = i % plane.width, above = i - plane.width;
    const bool left = x > 0 && plane.Value(i - 1) == value;
    if (left && i % kWarp == 0) Unite(plane.parents, i, i - 1);
    if (above < 0) return;
    const bool above_left = x > 0 && plane.Value(above - 1) == value;
    if (plane.Value(above) == value) {
      if (!(left && above_left)) Unite(plane.parents, i, above);
    } else if (all.diagonal) {
      if (above_left && !left) Unite(plane.parents, i, above - 1);
      if (x + 1 < plane.width && plane.Value(above + 1) == value &&
          plane.Value(i + 1) != value) {
        Unite(plane.parents, i, above + 1);
      }
    }
  });
}

// Links each pixel to its root, and counts the roots of each chunk.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    CountRoots(const __grid_constant__ Images<Bits> all) {
  __shared__ int32_t roots;
  ForChunks(all, [&](const Plane<Bits>& plane, int64_t chunk, int64_t first) {
    if (threadIdx.x == 0) roots = 0;
    __syncthreads();
    int32_t found = 0;
    for (int t = threadIdx.x; t < kChunk; t += kThreads) {
      const auto i = static_cast<int32_t>(first + t);
      if (first + t >= plane.pixels || plane.parents[i] == kZero) continue;
      const int32_t root = FindRoot(plane.parents, i);
      SetParent(plane.parents, i, root);
      found += root == i;
    }
    if (found > 0) atomicAdd(&roots, found);
    __syncthreads();
    if (threadIdx.x == 0) all.roots[chunk] = roots;
    __syncthreads();
  });
}

// A block has a plane: replaces the chunks' numbers of roots by their sums over
// previous chunks.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    SumRoots(const __grid_constant__ Images<Bits> all) {
  __shared__ int32_t sums[kThreads];
  const int t = threadIdx.x;
  for (int64_t plane = blockIdx.x;
       plane < all.planes.images * all.planes.channels; plane += gridDim.x) {
    int32_t* const roots = all.roots + plane * all.chunks;
    int32_t before = 0;
    for (int64_t first = 0; first < all.chunks; first += kThreads) {
      const bool is_inside = first + t < all.chunks;
      const int32_t own = is_inside ? roots[first + t] : 0;
      sums[t] = own;
      __syncthreads();
      for (int step = 1; step < kThreads; step *= 2) {
        const int32_t left = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += left;
        __syncthreads();
      }
      if (is_inside) roots[first + t] = before + sums[t] - own;
      before += sums[kThreads - 1];
      __syncthreads();
    }
    if (t == 0) all.counts[plane] = before;
  }
}

// Writes the labels of roots.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    NumberRoots(const __grid_constant__ Images<Bits> all) {
  __shared__ int32_t of_warps[kThreads / kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  ForChunks(all, [&](const Plane<Bits>& plane, int64_t chunk, int64_t first) {
    int32_t before = all.roots[chunk];
    for (int t = threadIdx.x; t < kChunk; t += kThreads) {
      const auto i = static_cast<int32_t>(first + t);
      const bool is_root = first + t < plane.pixels && plane.parents[i] == i;
      const unsigned roots = __ballot_sync(kAllLanes, is_root);
      if (lane == 0) of_warps[warp] = __popc(roots);
      __syncthreads();
      int32_t label = before + __popc(roots & ((2u << lane) - 1));
      for (int w = 0; w < kThreads / kWarp; ++w) {
        if (w < warp) label += of_warps[w];
        before += of_warps[w];
      }
      if (is_root) plane.Label(i) = label;
      __syncthreads();
    }
  });
}

// Writes the labels of all other pixels.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    CopyLabels(const __grid_constant__ Images<Bits> all) {
  ForPixels(all, [&](const Plane<Bits>& plane, int32_t i) {
    const int32_t root = plane.parents[i];
    if (root == kZero) {
      plane.Label(i) = 0;
    } else if (root != i) {
      plane.Label(i) = plane.Label(root);
    }
  });
}

}  // namespace

Error ConnectedComponents(const Gpu& gpu, const ConnectedComponentsArgs& args) {
  const Planes& planes = args.planes;
  if (planes.Elements() == 0) {
    return EnqueueZeros(gpu, args.counts, planes.Count() * sizeof(int32_t));
  }
  const ConnectedComponentsScratch scratch(planes, gpu.scratch);
  const unsigned grid = GridSize(planes.Count() * scratch.chunks);
  return WithPixelBits(
      {args.pixel_bytes, false}, [&](auto bits, auto) -> Error {
        using Bits = decltype(bits);
        const Images<Bits> all = {
            planes,          args.diagonal,
            scratch.chunks,  static_cast<const Bits*>(args.images),
            scratch.parents, scratch.counts,
            args.labels,     args.counts};
        Error error = nullptr;
        const auto launch = [&](unsigned blocks, auto kernel) {
          if (error == nullptr)
            error = Launch(gpu, blocks, kThreads, kernel, all);
        };
        launch(grid, LinkRuns<Bits>);
        launch(grid, JoinNeighbors<Bits>);
        launch(grid, CountRoots<Bits>);
        launch(GridSize(planes.Count()), SumRoots<Bits>);
        launch(grid, NumberRoots<Bits>);
        launch(grid, CopyLabels<Bits>);
        return error;
      });
}

}  // namespace tfo
