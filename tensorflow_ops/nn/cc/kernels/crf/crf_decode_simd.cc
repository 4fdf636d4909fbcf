// The search for the best sequence, over vectors of tags.
#include <algorithm>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// to[j] = max_i (from[i] + transitions[i][j]); NaN is not above any score.
static TFO_INLINE void BestSums(const double* transitions, const double* from,
                                int64_t tags, int64_t stride, double* to) {
  ForColumnGroups(stride, [&](auto vectors, int64_t at) {
    constexpr int kVectors = decltype(vectors)::kValue;
    V best[kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) best[k] = V{} - INFINITY;
    for (int64_t i = 0; i < tags; ++i) {
      const V way = Broadcast<V>(from[i]);
      const double* const row = transitions + i * stride + at;
#pragma GCC unroll 8
      for (int k = 0; k < kVectors; ++k) {
        best[k] = Max(way + Load(row + k * kCount), best[k]);
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) Store(best[k], to + at + k * kCount);
  });
}

// The best ways to each tag, of at least one frame: ways[t] is logits[t] +
// max_i (ways[t - 1][i] + transitions[i]), -inf for NaN. Subtracts each frame's
// largest logit, if finite; returns the sum of these. Rows have `stride`
// values; those of `transitions` are -inf beyond the tags. `row` has room for a
// row and kRowGuard.
template <typename T>
double BestWays(const double* transitions, const T* logits, int64_t frames,
                int64_t tags, int64_t stride, double* ways, double* row) {
  double shifts = 0;
  for (int64_t t = 0; t < frames; ++t) {
    double* const to = ways + t * stride;
    WidenRow(logits + t * tags, tags, stride, row);
    if (t > 0) BestSums(transitions, to - stride, tags, stride, to);
    V top = V{} - INFINITY;
    for (int64_t i = 0; i < stride; i += kCount) top = Max(Load(row + i), top);
    const double shift = FiniteShift(VectorLanes::Max(top)[0]);
    for (int64_t i = 0; i < stride; i += kCount) {
      const V score = Load(row + i) - shift + (t > 0 ? Load(to + i) : V{});
      Store(score == score ? score : V{} - INFINITY, to + i);
    }
    shifts += shift;
  }
  return shifts;
}

// The lowest i with the largest from[i] + transitions[i]; 0 if all are -inf.
static TFO_INLINE int32_t BestBefore(const double* from,
                                     const double* transitions,
                                     int64_t stride) {
  V best = V{} - INFINITY;
  for (int64_t i = 0; i < stride; i += kCount) {
    best = Max(Load(from + i) + Load(transitions + i), best);
  }
  best = VectorLanes::Max(best);
  if (best[0] == -INFINITY) return 0;
  S::I lane;
  for (int k = 0; k < kCount; ++k) lane[k] = k;
  V first =
      Broadcast<V>(INFINITY);  // as doubles, which have a minimum at all levels
  for (int64_t i = 0; i < stride; i += kCount) {
    const V at = __builtin_convertvector(lane + i, V);
    const V score = Load(from + i) + Load(transitions + i);
    first = -Max(score == best ? -at : V{} - INFINITY, -first);
  }
  return static_cast<int32_t>(-VectorLanes::Max(-first)[0]);
}

// Follows them back from the tag of the last frame, and sets labels[frames].
// Ties go to the lowest tag. `transposed` are transitions to each tag.
void Trace(const double* transposed, const double* ways, int64_t frames,
           int64_t stride, int32_t last, int32_t* labels) {
  labels[frames - 1] = last;
  for (int64_t t = frames - 1; t > 0; --t) {
    last =
        BestBefore(ways + (t - 1) * stride, transposed + last * stride, stride);
    labels[t - 1] = last;
  }
}

// Transitions as BestWays takes them, less `shift`: -inf instead of NaN and
// beyond the tags.
template <typename Value>
AlignedDoubles TransitionsOf(const Value* transitions, int64_t tags,
                             double shift, bool transposed) {
  const int64_t stride = StrideOf(tags);
  AlignedDoubles result(tags * stride);
  std::fill_n(result.get(), tags * stride, -kInfinity);
  for (int64_t i = 0; i < tags; ++i) {
    for (int64_t j = 0; j < tags; ++j) {
      const double score = transitions[i * tags + j] - shift;
      const int64_t to = transposed ? j * stride + i : i * stride + j;
      if (score == score) result.get()[to] = score;
    }
  }
  return result;
}

// Decodes one example, with transitions less `shift`.
template <typename T>
void Decode(const CrfDecodeArgs<T>& args, double shift,
            const double* transitions, const double* transposed,
            int64_t example) {
  const CrfScores<T>& s = args.scores;
  const int64_t length = s.lengths[example], stride = StrideOf(s.tags);
  int32_t* const labels = args.labels + example * s.frames;
  std::fill(labels + length, labels + s.frames, 0);
  args.best[example] = 0;
  if (length == 0) return;
  const AlignedDoubles memory((length + 1) * stride + kRowGuard);
  double* const ways = memory.get();
  const double shifts =
      BestWays(transitions, s.logits + example * s.frames * s.tags, length,
               s.tags, stride, ways, ways + length * stride);
  const double* const last = ways + (length - 1) * stride;
  const double* const best = std::max_element(last, last + s.tags);
  // -infinity, of no allowed sequence, remains, also if a shift is infinite.
  args.best[example] =
      *best == -kInfinity ? *best : *best + shifts + (length - 1) * shift;
  Trace(transposed, ways, length, stride, static_cast<int32_t>(best - last),
        labels);
}

}  // namespace

template <typename T>
Error RunCrf(const Cpu& cpu, const CrfDecodeArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  double largest = -kInfinity;
  for (int64_t i = 0; i < s.tags * s.tags; ++i) {
    const double score = s.transitions[i];
    if (score > largest) largest = score;
  }
  const double shift = FiniteShift(largest);
  const auto transitions = TransitionsOf(s.transitions, s.tags, shift, false);
  const auto transposed = TransitionsOf(s.transitions, s.tags, shift, true);
  cpu.ParallelFor(s.batch, CyclesOf(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Decode(args, shift, transitions.get(), transposed.get(), i);
    }
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RunCrf, CrfDecodeArgs);

}  // namespace tfo
