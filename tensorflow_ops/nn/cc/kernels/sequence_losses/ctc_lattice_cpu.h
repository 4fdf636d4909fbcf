// The memory of one example of ctc_loss.h, for ctc_loss_cpu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_CPU_H_

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/label_sequences.h"

namespace tfo::ctc_internal {

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

// Memory that lattices use one after another: if each example allocated its
// own, the operating system would take it back and clear it each time. Clearing
// page by page takes longer than the recursions, so large blocks use huge
// pages.
class LatticeMemory {
 public:
  // Uninitialized, aligned to 16 bytes.
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

 private:
  static constexpr int64_t kHugePage = int64_t{1} << 21;
  std::unique_ptr<char[]> memory_;
  char* begin_ = nullptr;
  int64_t bytes_ = 0;
};

// A lattice in such memory.
template <typename Value>
class Lattice {
 public:
  using Exponent = typename ScaledLimits<Value>::Exponent;

  Lattice(const Example& example, int64_t max_frames, bool keep_all_frames,
          LatticeMemory* memory, bool keep_beta = false) {
    lattice_.frames = example.frames;
    lattice_.labels = example.labels;
    lattice_.stride = StatesStride(example.labels + 1);
    lattice_.first_row = example.index * max_frames;
    lattice_.label = example.label.data();
    lattice_.keep_all_frames = keep_all_frames;
    const int64_t stride = lattice_.stride;
    const int64_t rows = keep_all_frames ? example.frames + 1 : 2;
    const int64_t sizes[] = {example.frames * stride,
                             example.frames,
                             rows * stride,
                             rows * stride,
                             keep_all_frames ? 4 * stride + kStateGuard : 0,
                             keep_beta ? example.frames * 2 * stride : 0};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    auto* const mantissas = reinterpret_cast<Value*>(
        memory->Get(total * (sizeof(Value) + sizeof(Exponent))));
    auto* const exponents = reinterpret_cast<Exponent*>(mantissas + total);
    ScaledRows<Value>* const places[] = {
        &lattice_.emissions,   &lattice_.blanks,  &lattice_.alpha_blank,
        &lattice_.alpha_label, &lattice_.scratch, &lattice_.beta};
    int64_t at = 0;
    for (int i = 0; i < 6; ++i) {
      *places[i] = {mantissas + at, exponents + at};
      at += sizes[i];
    }
    skips_.assign(stride + kStateGuard, 0);
    for (int64_t u = 1; u < example.labels; ++u) {
      skips_[u] = example.label[u] == example.label[u - 1] ? 0 : -1;
    }
    lattice_.skips = skips_.data();
  }
  const CtcLattice<Value>& get() const { return lattice_; }

  // Returns whether the exponents of a path's probability can overflow.
  static bool MayOverflow(int64_t frames, int64_t lowest) {
    return lowest < ScaledLimits<Value>::kLowest / (frames + 1);
  }

 private:
  CtcLattice<Value> lattice_;
  std::vector<Exponent> skips_;
};

}  // namespace tfo::ctc_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_CPU_H_
