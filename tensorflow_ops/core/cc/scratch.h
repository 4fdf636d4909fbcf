// Scratch memory of algorithms: on the CPU, and its layout on a GPU. Plain C++.
#ifndef TENSORFLOW_OPS_CORE_CC_SCRATCH_H_
#define TENSORFLOW_OPS_CORE_CC_SCRATCH_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

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

// With --config=asan, a ScratchLayout leaves gaps of at least this many bytes
// behind its arrays, which the emulation of CUDA poisons (gpu_mirror.h).
#ifdef TFO_SCRATCH_GAP
inline constexpr int64_t kScratchGap = TFO_SCRATCH_GAP;
#else
inline constexpr int64_t kScratchGap = 0;
#endif
// Where the gaps of this thread's last layout begin and end. Threads of the CPU
// lay out memory, too.
inline std::vector<std::pair<uintptr_t, uintptr_t>>& ScratchGaps() {
  thread_local std::vector<std::pair<uintptr_t, uintptr_t>> gaps;
  return gaps;
}

// Reserves arrays one after another from `base`, which is gpu.scratch, on. With
// a null base, only counts their bytes, so that the same calls say how much
// memory an algorithm needs and give it out.
class ScratchLayout {
 public:
  explicit ScratchLayout(void* base)
      : base_(reinterpret_cast<uintptr_t>(base)) {
    if (kScratchGap > 0 && base != nullptr) ScratchGaps().clear();
  }

  // Sets *to to an array, aligned to 16 bytes; null if it is empty.
  template <typename T>
  void Reserve(T** to, int64_t count) {
    *to = nullptr;
    if (count == 0) return;
    *to = reinterpret_cast<T*>(base_ + bytes_);
    const int64_t end = bytes_ + count * int64_t{sizeof(T)};
    bytes_ = RoundUp(end + kScratchGap, 16);
    if (kScratchGap > 0 && base_ != 0) {
      ScratchGaps().push_back({base_ + end, base_ + bytes_});
    }
  }
  int64_t bytes() const { return bytes_; }

 private:
  const uintptr_t base_;
  int64_t bytes_ = 0;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SCRATCH_H_
