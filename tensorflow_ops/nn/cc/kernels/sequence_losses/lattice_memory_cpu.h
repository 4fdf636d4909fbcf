// An example of a sequence loss, and the memory of its lattice, for
// sequence_loss_cpu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LATTICE_MEMORY_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LATTICE_MEMORY_CPU_H_

#include <sys/mman.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo::sequence_internal {

// The labels of an example.
struct Example {
  Example(const LabelSequences& s, int64_t index)
      : index(index),
        frames(s.logit_lengths[index]),
        labels(s.label_lengths[index]),
        label(labels) {
    for (int64_t u = 0; u < labels; ++u) label[u] = s.Label(index, u);
  }
  int64_t index, frames, labels;
  std::vector<int64_t> label;
};

// Computes an example's gradient; ctc_loss_cpu.h and rnnt_loss_cpu.h define it.
template <typename Loss, typename T>
class ExampleGrad;

// Memory that lattices use one after another: if each example allocated its
// own, the operating system would take it back and clear it each time. Clearing
// page by page takes longer than the recursions, so large blocks use huge
// pages.
class LatticeMemory {
 public:
  // Sets each rows to `count` numbers, uninitialized, which replace those of
  // the previous call.
  template <typename Value>
  void Place(
      std::initializer_list<std::pair<ScaledRows<Value>*, int64_t>> arrays) {
    using Exponent = typename ScaledLimits<Value>::Exponent;
    int64_t total = 0;
    for (const auto& [rows, count] : arrays) total += count;
    auto* mantissas = reinterpret_cast<Value*>(
        Get(total * (sizeof(Value) + sizeof(Exponent))));
    auto* exponents = reinterpret_cast<Exponent*>(mantissas + total);
    for (const auto& [rows, count] : arrays) {
      *rows = {mantissas, exponents};
      mantissas += count;
      exponents += count;
    }
  }

 private:
  // Aligned to 16 bytes.
  char* Get(int64_t bytes) {
    if (bytes <= bytes_) return begin_;
    memory_.reset();
    const int64_t page = bytes < 4 * kHugePage ? 1 : kHugePage;
    memory_.reset(new char[bytes + page - 1]);
    bytes_ = bytes;
    begin_ = memory_.get();
    if (page == 1) return begin_;
    begin_ += -reinterpret_cast<uintptr_t>(begin_) % page;
    // Only for speed.
    static_cast<void>(madvise(begin_, bytes, MADV_HUGEPAGE));
    return begin_;
  }

  static constexpr int64_t kHugePage = int64_t{1} << 21;
  std::unique_ptr<char[]> memory_;
  char* begin_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_LATTICE_MEMORY_CPU_H_
