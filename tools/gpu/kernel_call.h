// Calls of CUDA kernels by name: what bench.py and kernels_test.py load. A
// family's file lists its kernels with TFO_GPU_KERNEL.
#ifndef TOOLS_GPU_KERNEL_CALL_H_
#define TOOLS_GPU_KERNEL_CALL_H_

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo::gpu {

// A buffer's address; a kernel's arguments have the types.
struct Pointer {
  void* address;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};

// One call: options such as "dtype=float32 rows=8", and buffers.
class KernelCall {
 public:
  // Throws std::invalid_argument for text that is not options.
  KernelCall(const std::string& options, void* const* buffers, void* scratch,
             int64_t scratch_bytes, void* stream);

  Pointer operator[](int i) const { return {buffers_[i]}; }
  void* const* Buffers(int first) const { return buffers_ + first; }

  // An option's value; missing numbers are 0, missing text is empty.
  double Number(const std::string& name) const;
  int64_t Int(const std::string& name) const {
    return static_cast<int64_t>(Number(name));
  }
  std::string Text(const std::string& name) const;

  // Throws std::invalid_argument for an option that nobody read.
  void ExpectAllRead() const;

  // Throws std::invalid_argument if the call's scratch memory is smaller.
  tfo::Gpu Gpu(int64_t scratch_bytes = 0) const;

  // Calls run(T()) with the type that option `dtype` names.
  template <typename Run>
  Error WithType(const Run& run) const {
    const std::string dtype = Text("dtype");
    if (dtype == "float32") return run(float());
    if (dtype == "float64") return run(double());
    if (dtype == "float16") return run(Half());
    if (dtype == "bfloat16") return run(BFloat16());
    throw std::invalid_argument("unknown dtype: " + dtype);
  }

 private:
  std::map<std::string, std::string> options_;
  mutable std::set<std::string> read_;
  void* const* buffers_;
  void* scratch_;
  int64_t scratch_bytes_;
  void* stream_;
};

struct Registration {
  Registration(const char* name, Error (*run)(const KernelCall& call));
};

}  // namespace tfo::gpu

// TFO_GPU_KERNEL(name, call) { ... return error; }
#define TFO_GPU_KERNEL(name, call)                                        \
  static ::tfo::Error name##Kernel(const ::tfo::gpu::KernelCall& call);   \
  static const ::tfo::gpu::Registration name##Registration(#name,         \
                                                           name##Kernel); \
  static ::tfo::Error name##Kernel(const ::tfo::gpu::KernelCall& call)

#endif  // TOOLS_GPU_KERNEL_CALL_H_
