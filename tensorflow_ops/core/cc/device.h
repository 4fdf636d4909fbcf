// Where an algorithm runs: the first argument of every algorithm in this
// package. Plain C++, so that algorithm files build and test without
// TensorFlow.
#ifndef TENSORFLOW_OPS_CORE_CC_DEVICE_H_
#define TENSORFLOW_OPS_CORE_CC_DEVICE_H_

#include <cstdint>
#include <functional>

namespace tfo {

// CPU kernels write results of at least this many bytes past the caches: the
// next op would not find them there.
inline constexpr int64_t kStreamBytes = int64_t{16} << 20;

// The CPU, with a thread pool that the caller owns: TensorFlow's intra-op pool
// in an OpKernel (op_util.h), threads of a test (testing.h).
struct Cpu {
  using Body = std::function<void(int64_t begin, int64_t end)>;

  // Calls body on disjoint ranges that cover [0, total), in parallel, and
  // returns after the last. `cycles_per_unit` estimates a unit's cost: small
  // work stays on one thread. The ranges depend on the pool, so results must
  // not depend on them.
  void ParallelFor(int64_t total, double cycles_per_unit,
                   const Body& body) const {
    if (total > 0) run(pool, total, cycles_per_unit, body);
  }

  void* pool = nullptr;
  int num_threads = 1;
  void (*run)(void* pool, int64_t total, double cycles_per_unit,
              const Body& body) = [](void*, int64_t total, double,
                                     const Body& body) { body(0, total); };
};

// A GPU's stream (a cudaStream_t). Algorithms enqueue on it and return: they do
// not synchronize and allocate nothing.
struct Gpu {
  void* stream = nullptr;
  // Scratch memory for algorithms that declare a number of bytes; aligned
  // to 16.
  void* scratch = nullptr;
  // Whether results must have the same bits from run to run, which some
  // algorithms pay for with time.
  bool deterministic = false;
};

// Algorithms return this: null, or the error of a CUDA launch.
using Error = const char*;

// An algorithm is a function Error Function(const Device&, const Args<T>&), and
// Args<T> has its sizes, options and tensors. Instantiates it for each float
// type (float16.h); a wide one for float and double only.
#define TFO_INSTANTIATE_ALGORITHM(Function, Device, Args)    \
  TFO_INSTANTIATE_WIDE_ALGORITHM(Function, Device, Args);    \
  template Error Function(const Device&, const Args<Half>&); \
  template Error Function(const Device&, const Args<BFloat16>&)
#define TFO_INSTANTIATE_WIDE_ALGORITHM(Function, Device, Args) \
  template Error Function(const Device&, const Args<float>&);  \
  template Error Function(const Device&, const Args<double>&)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_DEVICE_H_
