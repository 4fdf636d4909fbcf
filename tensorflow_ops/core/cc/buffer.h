// Scratch memory of algorithms on the CPU.
#ifndef TENSORFLOW_OPS_CORE_CC_BUFFER_H_
#define TENSORFLOW_OPS_CORE_CC_BUFFER_H_

#include <cstdint>
#include <memory>

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

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_BUFFER_H_
