// What the files of the C interface share. Through it Python calls the
// algorithm files by ctypes on a machine without TensorFlow. One function per
// algorithm, all alike: place, dtype, sizes, then pointers in the algorithm's
// order. It returns null, or what is wrong. bindings.py declares the structs of
// sizes again, and compares their sizes with what tfo_size_of_NAME() returns.
#ifndef TOOLS_GPU_C_API_H_
#define TOOLS_GPU_C_API_H_

#include <type_traits>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

#define TFO_C_API extern "C" __attribute__((visibility("default")))

namespace tfo {

// Where to run: on one thread of the processor, or on a stream of the GPU.
struct Place {
  int32_t on_gpu;
  void* stream;
};

// Calls run(device, T{}): the overload of the place, the type of the code.
template <typename T, typename Run>
Error OnPlace(const Place& place, const Run& run) {
  return place.on_gpu ? run(Gpu{place.stream}, T{}) : run(Cpu{}, T{});
}
template <typename Run>
Error Dispatch(const Place& place, int32_t dtype, const Run& run) {
  switch (dtype) {
    case 0:
      return OnPlace<float>(place, run);
    case 1:
      return OnPlace<double>(place, run);
    case 2:
      return OnPlace<Half>(place, run);
    case 3:
      return OnPlace<BFloat16>(place, run);
    default:
      return "no kernel for this dtype";
  }
}

// A void pointer that becomes the pointer a parameter asks for.
struct Pointer {
  void* address;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};

inline Cpu WithScratch(const Cpu& cpu, const Pointer&) { return cpu; }
inline Gpu WithScratch(Gpu gpu, const Pointer& scratch) {
  gpu.scratch = scratch.address;
  return gpu;
}

// Calls run(bool_constant).
template <typename Run>
Error OnBool(bool value, const Run& run) {
  return value ? run(std::true_type()) : run(std::false_type());
}

}  // namespace tfo

#endif  // TOOLS_GPU_C_API_H_
