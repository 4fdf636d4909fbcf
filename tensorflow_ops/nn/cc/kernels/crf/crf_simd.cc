// Sums over label sequences on the CPU: likelihoods, gradients, marginals.
#include <algorithm>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_exact_simd.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_plain_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Calls body(example, t, label, label before) for the labels of an example.
template <typename T, typename Body>
void ForLabels(const CrfScores<T>& s, const IndexArray& labels, int64_t example,
               const Body& body) {
  int64_t before = 0;
  for (int64_t t = 0; t < s.lengths[example]; ++t) {
    const int64_t label = labels[example * s.frames + t];
    body(t, label, before);
    before = label;
  }
}

// The log likelihood of an example's labels, from log Z. Each frame's largest
// logit and the largest transition are subtracted from score and log Z before
// they are summed, so that a large offset of the scores does not cost accuracy.
template <typename T>
double LikelihoodOf(const CrfLikelihoodArgs<T>& args, const Matrices& matrices,
                    int64_t example, double log, const double* largest) {
  const CrfScores<T>& s = args.scores;
  if (log == -kInfinity) return log;  // without any allowed sequence
  double score = 0;
  ForLabels(s, args.labels, example,
            [&](int64_t t, int64_t label, int64_t from) {
              const int64_t at = (example * s.frames + t) * s.tags + label;
              score += Widen(s.logits[at]) - largest[t];
              if (t > 0) {
                const double transition = s.transitions[from * s.tags + label];
                score += transition - matrices.range.largest;
              }
            });
  const double result = score - log;
  return result > 0 ? 0 : result;  // above by rounding
}

}  // namespace

template <typename T>
Error RunCrf(const Cpu& cpu, const CrfLikelihoodArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  cpu.ParallelFor(s.batch, CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto finish = [&](double log, const double* largest) {
        args.log_likelihood[i] = LikelihoodOf(args, matrices, i, log, largest);
      };
      double log;
      PlainPaths<T> plain(s, matrices, i, /*keep_all_frames=*/false);
      if (plain.Forward(&log)) {
        finish(log, plain.largest());
        continue;
      }
      ExactPaths<T> exact(s, matrices, i, /*keep_all_frames=*/false);
      log = exact.Forward();
      finish(log, exact.largest());
    }
  });
  return nullptr;
}

namespace {

// Writes the shares of an example. Adds those of transitions to factors (to be
// multiplied with matrices.forward) or to sums, both [tags, stride], unless
// they are null. Returns whether any sequence is possible.
template <typename T, typename Out>
bool RunBackward(const CrfScores<T>& s, const Matrices& matrices,
                 int64_t example, const CrfShares<Out>& shares, double* factors,
                 double* sums) {
  double log;
  PlainPaths<T> plain(s, matrices, example, /*keep_all_frames=*/true);
  if (plain.Forward(&log) && plain.Backward(shares)) {
    if (factors != nullptr) plain.AddPairs(factors);
    return true;
  }
  const int64_t length = s.lengths[example], stride = matrices.forward.stride;
  ExactPaths<T> exact(s, matrices, example, /*keep_all_frames=*/true);
  log = exact.Forward();
  if (log > -kInfinity) {
    exact.Backward(shares, factors, sums);
    return true;
  }
  std::fill_n(
      shares.out, length * s.tags,
      Narrow<Out>(static_cast<Accumulator<Out>>(log != log ? kNan : 0)));
  if (log != log && length > 1 && sums != nullptr) {
    std::fill_n(sums, s.tags * stride, kNan);
  }
  return false;
}

// The gradients of the examples [begin, end), in order.
template <typename T>
void RunGroup(const CrfLikelihoodGradArgs<T>& args, const Matrices& matrices,
              int64_t begin, int64_t end, double* factors, double* sums) {
  const CrfScores<T>& s = args.scores;
  const int64_t stride = matrices.forward.stride;
  for (int64_t i = begin; i < end; ++i) {
    T* const d_logits = args.d_logits + i * s.frames * s.tags;
    const double d = args.d[i];
    const int64_t length = d == 0 ? 0 : s.lengths[i];
    std::fill(d_logits + length * s.tags, d_logits + s.frames * s.tags, T());
    if (d == 0) continue;
    const CrfShares<T> shares = {-d, &args.labels, i * s.frames, d_logits};
    if (RunBackward(s, matrices, i, shares, factors, sums)) {
      ForLabels(s, args.labels, i, [&](int64_t t, int64_t label, int64_t from) {
        if (t > 0) sums[from * stride + label] += d;
      });
    }
  }
}

}  // namespace

template <typename T>
Error RunCrf(const Cpu& cpu, const CrfLikelihoodGradArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  const int64_t stride = matrices.forward.stride, cells = s.tags * stride;
  // Sums of groups of examples, which do not depend on the threads: fewer
  // groups of many tags, for their memory.
  constexpr int64_t kMaxCells = int64_t{1} << 22;
  const int64_t groups =
      std::min(s.batch, std::clamp<int64_t>(kMaxCells / cells, 2, 16));
  const AlignedDoubles memory(groups * 2 * cells);
  double* const sums = memory.get();
  std::fill_n(sums, groups * 2 * cells, 0.0);
  cpu.ParallelFor(groups, groups > 0 ? 4 * CyclesOf(s) * s.batch / groups : 0,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t g = begin; g < end; ++g) {
                      double* const factors = sums + g * 2 * cells;
                      RunGroup(args, matrices, g * s.batch / groups,
                               (g + 1) * s.batch / groups, factors,
                               factors + cells);
                    }
                  });
  for (int64_t i = 0; i < s.tags; ++i) {
    for (int64_t j = 0; j < s.tags; ++j) {
      const int64_t cell = i * stride + j;
      const double plain = matrices.forward.plain[cell];
      double sum = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const double* const of_group = sums + g * 2 * cells;
        sum += of_group[cell] * plain + of_group[cells + cell];
      }
      args.d_transitions[i * s.tags + j] = sum;
    }
  }
  return nullptr;
}

template <typename T>
Error RunCrf(const Cpu& cpu, const CrfMarginalsArgs<T>& args) {
  using Value = Accumulator<T>;
  const CrfScores<T>& s = args.scores;
  const Matrices matrices(s.transitions, s.tags);
  cpu.ParallelFor(s.batch, 3 * CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Value* const marginals = args.marginals + i * s.frames * s.tags;
      std::fill(marginals + s.lengths[i] * s.tags,
                marginals + s.frames * s.tags, Value(0));
      const CrfShares<Value> shares = {1, nullptr, 0, marginals};
      RunBackward(s, matrices, i, shares, nullptr, nullptr);
    }
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RunCrf, CrfLikelihoodArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RunCrf, CrfLikelihoodGradArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RunCrf, CrfMarginalsArgs);

}  // namespace tfo
