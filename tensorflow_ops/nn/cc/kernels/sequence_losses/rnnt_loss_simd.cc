// RNN-T on the CPU. Nodes are stored by diagonals: row d has node (d - u, u) in
// column u, so the nodes in a vector do not depend on each other.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename Value>
struct RnntLattice {
  int64_t frames, labels;
  int64_t stride;        // of rows of nodes
  const int64_t* label;  // [labels]

  // [frames + labels, stride]: of a node's two edges, 0 where there is no node.
  ScaledRows<Value> blanks, emissions;
  // Row d has the forward sums (alpha) of its nodes; without keep_all_rows,
  // these are two alternating rows.
  bool keep_all_rows;
  ScaledRows<Value> alpha;
  ScaledRows<Value> scratch;  // 2 rows and a guard

  int64_t Diagonals() const { return frames + labels; }
  int64_t RowOf(int64_t d) const {
    return (keep_all_rows ? d : d & 1) * stride + kStateGuard;
  }
  // Index of a node in rows of diagonals.
  int64_t At(int64_t t, int64_t u) const {
    return (t + u) * stride + kStateGuard + u;
  }
};

// The inputs of probabilities.
template <typename T>
struct RnntNodes {
  int64_t first_row;  // of the example in `logits`, `largest` and `rest`
  int64_t rows_per_frame;
  int64_t classes, blank;
  const T* logits;
  const Accumulator<T>*largest, *rest;
};

// One vector of nodes (t, u ...), `count` of them.
template <typename T, typename Value>
static TFO_INLINE bool EmitVector(const RnntNodes<T>& nodes,
                                  const RnntLattice<Value>& lattice, int64_t t,
                                  int64_t u, int64_t count,
                                  typename ScaledVector<Value>::I& least) {
  using S = ScaledVector<Value>;
  using Exponent = typename S::Exponent;
  constexpr int kCount = S::kCount;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  const int64_t row = nodes.first_row + t * nodes.rows_per_frame + u;
  typename S::V blank = {}, label = {}, largest = {}, rest = {};
  bool finite = true;
  for (int i = 0; i < kCount; ++i) {
    blank[i] = label[i] = kNone;
    if (i >= count) continue;
    const T* const logits = nodes.logits + (row + i) * nodes.classes;
    largest[i] = nodes.largest[row + i];
    rest[i] = nodes.rest[row + i];
    finite &= rest[i] == rest[i];
    blank[i] = LoadOne(logits + nodes.blank);
    if (u + i < lattice.labels) {
      label[i] = LoadOne(logits + lattice.label[u + i]);
    }
  }
  const SoftmaxState<typename S::V> sums = {largest, rest};
  const auto shift = sums.shift(), log = sums.Log();
  Value mantissas[2][kCount];
  Exponent exponents[2][kCount];
  ScaledSoftmax(blank, shift, log, least).Store(mantissas[0], exponents[0]);
  ScaledSoftmax(label, shift, log, least).Store(mantissas[1], exponents[1]);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = lattice.At(t, u + i);
    lattice.blanks.mantissas[at] = mantissas[0][i];
    lattice.blanks.exponents[at] = exponents[0][i];
    lattice.emissions.mantissas[at] = mantissas[1][i];
    lattice.emissions.exponents[at] = exponents[1][i];
  }
  return finite;
}

// Sets blanks and emissions of frames [begin, end), of rows that are 0. Lowers
// `lowest` to their exponents. Returns whether all logits are below infinity.
template <typename T, typename Value>
bool RnntEmissions(const RnntNodes<T>& nodes, const RnntLattice<Value>& lattice,
                   int64_t begin, int64_t end, int64_t* lowest) {
  using S = ScaledVector<Value>;
  typename S::I least = {};
  bool finite = true;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const int64_t left = lattice.labels + 1 - u;
      const int64_t count = left < S::kCount ? left : S::kCount;
      finite &= EmitVector(nodes, lattice, t, u, count, least);
    }
  }
  const int64_t lane = LeastLane(least);
  *lowest = lane < *lowest ? lane : *lowest;
  return finite;
}

// Computes `alpha`. Returns the loss, and sets the total probability.
template <typename Value>
double RnntForward(const RnntLattice<Value>& lattice,
                   ScaledTotal<Value>* total) {
  using S = ScaledVector<Value>;
  const auto& alpha = lattice.alpha;
  const int64_t last = lattice.Diagonals() - 1;
  for (int64_t d = 0; d <= last; ++d) {
    if (d < 2 || lattice.keep_all_rows) {
      ClearRow(alpha, lattice.RowOf(d) - kStateGuard, lattice.stride);
    }
    if (d == 0) {
      alpha.mantissas[lattice.RowOf(0)] = 1;
      alpha.exponents[lattice.RowOf(0)] = 0;
      continue;
    }
    const int64_t from = lattice.RowOf(d - 1), to = lattice.RowOf(d);
    const int64_t edges = (d - 1) * lattice.stride + kStateGuard;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const S waits =
          LoadAt(alpha, from + u) * LoadAt(lattice.blanks, edges + u);
      const S emits = LoadAt(alpha, from + u - 1) *
                      LoadAt(lattice.emissions, edges + u - 1);
      StoreAt((waits + emits).Normalized(), alpha, to + u);
    }
  }
  const int64_t end = lattice.RowOf(last) + lattice.labels;
  const S sum = (Broadcast(alpha, end) *
                 Broadcast(lattice.blanks,
                           lattice.At(lattice.frames - 1, lattice.labels)))
                    .Normalized();
  *total = {sum.mantissa[0], sum.exponent[0]};
  return 0 - LogOfScaled(total->mantissa, total->exponent);
}

// Replaces mantissas after RnntForward: those of alpha by the posterior s of
// the node; those of blanks and emissions by s p minus the posterior of the
// edge, where p is the probability of the edge.
template <typename Value>
void RnntBackward(const RnntLattice<Value>& lattice,
                  const ScaledTotal<Value>& of_all) {
  using S = ScaledVector<Value>;
  const auto& beta = lattice.scratch;
  const Value inverse = 1 / of_all.mantissa;
  const auto total = static_cast<typename S::Exponent>(of_all.exponent);
  const int64_t stride = lattice.stride;
  ClearRow(beta, 0, 2 * stride + kStateGuard);
  const int64_t last = lattice.Diagonals() - 1;
  const int64_t end = (last + 1) % 2 * stride + kStateGuard + lattice.labels;
  beta.mantissas[end] = 1;
  beta.exponents[end] = 0;
  for (int64_t d = last; d >= 0; --d) {
    const int64_t row = d * stride + kStateGuard;
    const int64_t from = (d + 1) % 2 * stride + kStateGuard;
    const int64_t to = d % 2 * stride + kStateGuard;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const S way = LoadAt(lattice.alpha, row + u);
      const S blank = LoadAt(lattice.blanks, row + u);
      const S label = LoadAt(lattice.emissions, row + u);
      const S by_blank = (blank * LoadAt(beta, from + u)).Normalized();
      const S by_label = (label * LoadAt(beta, from + u + 1)).Normalized();
      StoreAt((by_blank + by_label).Normalized(), beta, to + u);
      const auto blanks = Shares(way * by_blank, inverse, total);
      const auto labels = Shares(way * by_label, inverse, total);
      const auto node = blanks + labels;
      Store(node, lattice.alpha.mantissas + row + u);
      Store(node * Shares(blank, Value(1), 0) - blanks,
            lattice.blanks.mantissas + row + u);
      Store(node * Shares(label, Value(1), 0) - labels,
            lattice.emissions.mantissas + row + u);
    }
  }
}

// The lattice of an example, in `memory`.
template <typename Value>
class RnntLatticeIn {
 public:
  RnntLatticeIn(const Example& example, bool keep_all_rows,
                LatticeMemory* memory) {
    lattice_.frames = example.frames;
    lattice_.labels = example.labels;
    lattice_.stride = StatesStride(example.labels + 1);
    lattice_.keep_all_rows = keep_all_rows;
    lattice_.label = example.label.data();
    const int64_t cells = lattice_.Diagonals() * lattice_.stride;
    const int64_t two = 2 * lattice_.stride + kStateGuard;
    memory->Place<Value>({{&lattice_.blanks, cells},
                          {&lattice_.emissions, cells},
                          {&lattice_.alpha, keep_all_rows ? cells : two},
                          {&lattice_.scratch, keep_all_rows ? two : 0}});
    for (const auto& rows : {lattice_.blanks, lattice_.emissions}) {
      std::fill_n(rows.mantissas, cells, Value(0));
      std::fill_n(rows.exponents, cells, ScaledLimits<Value>::kZero);
    }
  }
  const RnntLattice<Value>& get() const { return lattice_; }

  // Returns whether the exponents of a way's probability can overflow.
  bool MayOverflow(int64_t lowest) const {
    return lowest < ScaledLimits<Value>::kLowest / (lattice_.Diagonals() + 1);
  }

 private:
  RnntLattice<Value> lattice_;
};

// Args are those of the loss or of its gradient.
template <typename T, typename Args>
RnntNodes<T> NodesOf(const Args& args, int64_t example) {
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.max_labels + 1;
  return {example * s.frames * per_frame,
          per_frame,
          s.classes,
          s.blank,
          args.logits,
          args.largest,
          args.rest};
}

template <typename Value, typename T, typename Sums>
bool ComputeLoss(const SequenceLossArgs<Rnnt, T>& args, int64_t index,
                 const Sums& sums, LatticeMemory* memory, double* loss) {
  const Example example(args.sequences, index);
  const RnntLatticeIn<Value> lattice(example, /*keep_all_rows=*/false, memory);
  const auto nodes = NodesOf<T>(args, index);
  bool finite = true;
  int64_t lowest = 0;
  for (int64_t t = 0; t < example.frames; ++t) {
    sums(t, t + 1);
    finite &= RnntEmissions(nodes, lattice.get(), t, t + 1, &lowest);
  }
  *loss = std::numeric_limits<double>::quiet_NaN();
  if (!finite) return true;
  if (lattice.MayOverflow(lowest)) return false;
  ScaledTotal<Value> total;
  *loss = RnntForward(lattice.get(), &total);
  return true;
}

template <typename T>
class ExampleGrad<Rnnt, T> {
 public:
  using Value = Accumulator<T>;
  using Args = SequenceLossGradArgs<Rnnt, T>;

  // `scale` is [batch, frames, max_labels + 1].
  ExampleGrad(const Args& args, int64_t index, Value* scale, bool /*shared*/,
              LatticeMemory* memory)
      : args_(args),
        example_(args.sequences, index),
        scale_(scale),
        memory_(memory) {}

  // Computes shares and the scale of rows.
  void Prepare() {
    if (!Compute<Value>()) Compute<double>();
  }
  static void PrepareAll(
      const Cpu& cpu, double cost,
      const std::vector<std::unique_ptr<ExampleGrad>>& grads) {
    cpu.ParallelFor(grads.size(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) grads[i]->Prepare();
    });
  }

  // Writes the gradient of frames [begin, end), padding included.
  void WriteFrames(int64_t begin, int64_t end) const {
    const LabelSequences& s = args_.sequences;
    const int64_t per_frame = s.max_labels + 1;
    const ScaledSoftmaxArgs<T> softmax{s.batch * s.frames * per_frame,
                                       s.classes,
                                       args_.logits,
                                       scale_,
                                       args_.largest,
                                       args_.rest,
                                       args_.d_logits};
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = (example_.index * s.frames + t) * per_frame;
      const int64_t rows =
          is_zero_ || t >= example_.frames ? 0 : example_.labels + 1;
      MapRows(softmax, row, row + rows);
      if (rows > 0 && !differences_.empty()) SubtractShares(t, row);
      std::fill(args_.d_logits + (row + rows) * s.classes,
                args_.d_logits + (row + per_frame) * s.classes, T());
    }
  }

 private:
  // Returns false if exponents may overflow.
  template <typename Mantissa>
  bool Compute() {
    const Value d = args_.d_loss[example_.index];
    if (d == 0) {
      is_zero_ = true;
      return true;
    }
    const RnntLatticeIn<Mantissa> with_memory(example_, /*keep_all_rows=*/true,
                                              memory_);
    const auto& lattice = with_memory.get();
    int64_t lowest = 0;
    if (!RnntEmissions(NodesOf<T>(args_, example_.index), lattice, 0,
                       example_.frames, &lowest)) {
      ForNodes([&](int64_t, int64_t, int64_t row) {
        scale_[row] = std::numeric_limits<Value>::quiet_NaN();
      });
      return true;
    }
    if (with_memory.MayOverflow(lowest)) return false;
    ScaledTotal<Mantissa> total;
    RnntForward(lattice, &total);
    is_zero_ = total.mantissa == 0;
    if (is_zero_) return true;
    RnntBackward(lattice, total);
    differences_.resize(example_.frames * (example_.labels + 1) * 2);
    Value* difference = differences_.data();
    ForNodes([&](int64_t t, int64_t u, int64_t row) {
      const int64_t at = lattice.At(t, u);
      scale_[row] = d * static_cast<Value>(lattice.alpha.mantissas[at]);
      *difference++ = d * static_cast<Value>(lattice.blanks.mantissas[at]);
      *difference++ = d * static_cast<Value>(lattice.emissions.mantissas[at]);
    });
    return true;
  }

  template <typename Body>
  void ForNodes(const Body& body) const {
    const LabelSequences& s = args_.sequences;
    for (int64_t t = 0; t < example_.frames; ++t) {
      for (int64_t u = 0; u <= example_.labels; ++u) {
        body(t, u, (example_.index * s.frames + t) * (s.max_labels + 1) + u);
      }
    }
  }

  // Replaces the gradients of blank and of the next label at a frame's nodes.
  void SubtractShares(int64_t t, int64_t row) const {
    const LabelSequences& s = args_.sequences;
    const Value* const difference =
        &differences_[t * (example_.labels + 1) * 2];
    for (int64_t u = 0; u <= example_.labels; ++u) {
      T* const d_logits = args_.d_logits + (row + u) * s.classes;
      d_logits[s.blank] = Narrow<T>(difference[2 * u]);
      if (u == example_.labels) break;
      d_logits[example_.label[u]] = Narrow<T>(difference[2 * u + 1]);
    }
  }

  const Args& args_;
  const Example example_;
  Value* const scale_;  // [batch, frames, max_labels + 1]
  LatticeMemory* const memory_;
  // Of blank and the next label at each node; empty for a gradient of NaN.
  std::vector<Value> differences_;
  bool is_zero_ = false;
};

template <typename T>
Error SequenceLoss(const Cpu& cpu, const RnntLossArgs<T>& args) {
  return ComputeLosses(cpu, args);
}
template <typename T>
Error SequenceLossGrad(const Cpu& cpu, const RnntLossGradArgs<T>& args) {
  return ComputeGradients(cpu, args);
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(SequenceLoss, RnntLossArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(SequenceLossGrad, RnntLossGradArgs);

}  // namespace tfo
