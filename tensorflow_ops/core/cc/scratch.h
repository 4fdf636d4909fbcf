// Scratch memory of algorithms: on the CPU, and its layout on a GPU. Plain C++.
#ifndef TENSORFLOW_OPS_CORE_CC_SCRATCH_H_
#define TENSORFLOW_OPS_CORE_CC_SCRATCH_H_

#include <cstdint>
#include <memory>

#include "tensorflow_ops/core/cc/int_math.h"

namespace tfo {

// Memory of `count` values, aligned to a cache line. Not initialized.
template <typename C>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : memory_(new char[count * sizeof(C) + 2 * kLine]),
        data_(reinterpret_cast<C*>(
            (reinterpret_cast<uintptr_t>(memory_.get()) + kLine) / kLine *
            kLine)) {}
  C* data() const { return data_; }

 private:
  static constexpr int64_t kLine = 64;
  std::unique_ptr<char[]> memory_;
  C* data_;
};

// Reserves arrays one after another from `base`, which is gpu.scratch, on. With
// a null base, only counts their bytes, so that the same calls say how much
// memory an algorithm needs and give it out.
class ScratchLayout {
 public:
  explicit ScratchLayout(void* base)
      : base_(reinterpret_cast<uintptr_t>(base)) {}

  // Sets *to to an array, aligned to 16 bytes; null if it is empty.
  template <typename T>
  void Reserve(T** to, int64_t count) {
    *to = count == 0 ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += RoundUp(count * int64_t{sizeof(T)}, 16);
  }
  int64_t bytes() const { return bytes_; }

 private:
  const uintptr_t base_;
  int64_t bytes_ = 0;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SCRATCH_H_
