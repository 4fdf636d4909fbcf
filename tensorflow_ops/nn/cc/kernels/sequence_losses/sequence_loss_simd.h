// The losses of all examples, and their gradients. Only *_simd.cc files include
// this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_SIMD_H_

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/row_sums_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

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

// ctc_loss_simd.cc and rnnt_loss_simd.cc define for their Loss:

// Computes the loss with mantissas of type Value. `sums` computes the sums of
// frames [begin, end). Returns false if exponents may overflow.
template <typename Value, typename Loss, typename T, typename Sums>
bool ComputeLoss(const SequenceLossArgs<Loss, T>& args, int64_t index,
                 const Sums& sums, LatticeMemory* memory, double* loss);
// Computes an example's gradient.
template <typename Loss, typename T>
class ExampleGrad;

// Estimates the cycles of an example's pass.
template <typename Loss>
double CyclesPerExample(const LabelSequences& s, int64_t example) {
  const double labels = s.label_lengths[example];
  const double width = Loss::kHasNodes ? (labels + 1) * (s.classes * 2.0 + 30)
                                       : s.classes * 2.0 + 20 * labels;
  return s.logit_lengths[example] * width + 1000;
}

template <typename Loss>
double MeanCycles(const LabelSequences& s) {
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += CyclesPerExample<Loss>(s, i);
  return s.batch > 0 ? total / s.batch : 0;
}

// All examples, by descending cost.
template <typename Loss>
std::vector<int64_t> LongestFirst(const LabelSequences& s) {
  std::vector<int64_t> order(s.batch);
  for (int64_t i = 0; i < s.batch; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return CyclesPerExample<Loss>(s, a) > CyclesPerExample<Loss>(s, b);
  });
  return order;
}

// Calls body(example, memory) for all examples; threads begin with the long
// ones.
template <typename Loss, typename Body>
void ForExamples(const Cpu& cpu, const LabelSequences& s, double cost,
                 const Body& body) {
  const std::vector<int64_t> order = LongestFirst<Loss>(s);
  cpu.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
    LatticeMemory memory;
    for (int64_t i = begin; i < end; ++i) body(order[i], &memory);
  });
}

// Frames that a thread takes at once: 16 rows or more.
template <typename Loss>
int64_t FramesAtOnce(const LabelSequences& s) {
  return (15 + s.RowsPerFrame<Loss>()) / s.RowsPerFrame<Loss>();
}

// Computes the sums of frames [begin, end), all of which are within the length.
template <typename Loss, typename T>
void SumFrames(const SequenceLossArgs<Loss, T>& args, int64_t example,
               int64_t begin, int64_t end) {
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.RowsPerFrame<Loss>();
  const int64_t rows = Loss::kHasNodes ? s.label_lengths[example] + 1 : 1;
  const RowSumsArgs<T> sums{s.Rows<Loss>(), s.classes, args.logits,
                            args.largest, args.rest};
  const int64_t first = (example * s.frames + begin) * per_frame;
  const int64_t last = (example * s.frames + end) * per_frame;
  if (rows == per_frame) return SumRows(sums, first, last);
  for (int64_t row = first; row < last; row += per_frame) {
    SumRows(sums, row, row + rows);
    for (Accumulator<T>* const of_rows : {args.largest, args.rest}) {
      std::fill(of_rows + row + rows, of_rows + row + per_frame, 0);
    }
  }
}

template <typename Loss, typename T>
Error ComputeLosses(const Cpu& cpu, const SequenceLossArgs<Loss, T>& args) {
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.RowsPerFrame<Loss>();
  // Fewer examples than threads: frames are split first.
  const bool splits = s.batch < cpu.num_threads;
  const int64_t at_once = FramesAtOnce<Loss>(s);
  for (int64_t i = 0; splits && i < s.batch; ++i) {
    const int64_t frames = s.logit_lengths[i];
    cpu.ParallelFor((frames + at_once - 1) / at_once,
                    1.5 * at_once * per_frame * s.classes + 50,
                    [&](int64_t begin, int64_t end) {
                      SumFrames(args, i, begin * at_once,
                                std::min(end * at_once, frames));
                    });
  }
  ForExamples<Loss>(
      cpu, s, MeanCycles<Loss>(s), [&](int64_t i, LatticeMemory* memory) {
        const auto sum = [&](int64_t begin, int64_t end) {
          if (!splits) SumFrames(args, i, begin, end);
        };
        double loss;
        if (!ComputeLoss<Accumulator<T>>(args, i, sum, memory, &loss)) {
          const auto computed = [](int64_t, int64_t) {};
          ComputeLoss<double>(args, i, computed, memory, &loss);
        }
        args.loss[i] = args.zero_infinity && std::isinf(loss) ? 0 : loss;
        for (Accumulator<T>* const of_rows : {args.largest, args.rest}) {
          std::fill(of_rows + (i * s.frames + s.logit_lengths[i]) * per_frame,
                    of_rows + (i + 1) * s.frames * per_frame, 0);
        }
      });
  return nullptr;
}

template <typename Loss, typename T>
Error ComputeGradients(const Cpu& cpu,
                       const SequenceLossGradArgs<Loss, T>& args) {
  using Grad = ExampleGrad<Loss, T>;
  const LabelSequences& s = args.sequences;
  const std::unique_ptr<Accumulator<T>[]> scale(
      new Accumulator<T>[s.Rows<Loss>()]);
  const double cost = 3 * MeanCycles<Loss>(s);
  if (s.batch >= cpu.num_threads) {
    ForExamples<Loss>(cpu, s, cost, [&](int64_t i, LatticeMemory* memory) {
      Grad grad(args, i, scale.get(), /*shared=*/false, memory);
      grad.Prepare();
      grad.WriteFrames(0, s.frames);
    });
    return nullptr;
  }
  std::vector<LatticeMemory> memories(s.batch);
  std::vector<std::unique_ptr<Grad>> grads(s.batch);
  for (int64_t i = 0; i < s.batch; ++i) {
    grads[i].reset(
        new Grad(args, i, scale.get(), /*shared=*/true, &memories[i]));
  }
  Grad::PrepareAll(cpu, cost, grads);
  const int64_t at_once = FramesAtOnce<Loss>(s);
  const int64_t groups = (s.frames + at_once - 1) / at_once;  // of an example
  cpu.ParallelFor(s.batch * groups,
                  2.0 * at_once * s.RowsPerFrame<Loss>() * s.classes + 100,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t at = begin; at < end;) {
                      const int64_t first = at % groups;
                      const int64_t last = std::min(groups, first + end - at);
                      grads[at / groups]->WriteFrames(
                          first * at_once, std::min(last * at_once, s.frames));
                      at += last - first;
                    }
                  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_SIMD_H_
