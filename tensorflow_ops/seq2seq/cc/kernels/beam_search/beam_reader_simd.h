// Reads a part of a row of logits once, for beam_search_step and ctc_decode.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_READER_SIMD_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_READER_SIMD_H_

#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename Value>
struct BeamCandidate {
  Value logit;
  int32_t token;
};

// The result of reading a part of a row once.
template <typename Value>
struct BeamPart {
  Value largest, rest;  // the softmax's sum is (1 + rest) e^largest
  // The greatest logits of allowed tokens, the first of equal ones; `count` <=
  // `keep` of them, as a heap with the worst at candidates[0].
  BeamCandidate<Value>* candidates;
  int64_t keep, count;
  // Upper bound on the logit of any allowed token that was not kept and
  // precedes a kept one.
  Value dropped;
};

#ifdef __aarch64__
// A bit per lane: is a > b (or a >= b)?
template <bool kOrEqual>
static TFO_INLINE uint32_t IsGreater(FloatVector a, FloatVector b) {
  const IntVector is = kOrEqual ? a >= b : a > b, bits = {1, 2, 4, 8};
  return vaddvq_u32(reinterpret_cast<uint32x4_t>(is & bits));
}
template <bool kOrEqual>
static TFO_INLINE uint32_t IsGreater(DoubleVector a, DoubleVector b) {
  const Lanes<double>::Index is = kOrEqual ? a >= b : a > b, bits = {1, 2};
  return vaddvq_u64(reinterpret_cast<uint64x2_t>(is & bits));
}

// A bit for each nonzero byte of n <= 16.
static TFO_INLINE uint32_t IsSet(const bool* bytes, int64_t n) {
  uint32_t set = 0;
  for (int64_t i = 0; i < n; ++i) set |= uint32_t{bytes[i]} << i;
  return set;
}
#else
// A bit per lane: is a > b (or a >= b)?
template <bool kOrEqual>
static TFO_INLINE uint32_t IsGreater(FloatVector a, FloatVector b) {
  constexpr int kIs = kOrEqual ? _CMP_GE_OQ : _CMP_GT_OQ;
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a),
                            reinterpret_cast<__m512>(b), kIs);
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(reinterpret_cast<__m256>(a),
                                          reinterpret_cast<__m256>(b), kIs));
#endif
}
template <bool kOrEqual>
static TFO_INLINE uint32_t IsGreater(DoubleVector a, DoubleVector b) {
  constexpr int kIs = kOrEqual ? _CMP_GE_OQ : _CMP_GT_OQ;
#ifdef __AVX512F__
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a),
                            reinterpret_cast<__m512d>(b), kIs);
#else
  return _mm256_movemask_pd(_mm256_cmp_pd(reinterpret_cast<__m256d>(a),
                                          reinterpret_cast<__m256d>(b), kIs));
#endif
}

// A bit for each nonzero byte of n <= 16.
static TFO_INLINE uint32_t IsSet(const bool* bytes, int64_t n) {
  alignas(16) char copy[16] = {};
  memcpy(copy, bytes, n);
  const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
  return ~_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128())) & 0xFFFF;
}
#endif

template <typename Value>
static inline bool IsWorse(const BeamCandidate<Value>& a,
                           const BeamCandidate<Value>& b) {
  return a.logit < b.logit || (a.logit == b.logit && a.token > b.token);
}

// Adds to a heap whose root is the worst candidate.
template <typename Value>
void Push(BeamCandidate<Value> candidate, BeamPart<Value>* part) {
  BeamCandidate<Value>* const heap = part->candidates;
  int64_t at;
  if (part->count < part->keep) {
    at = part->count++;
    for (int64_t over; at > 0; at = over) {
      over = (at - 1) / 2;
      if (!IsWorse(candidate, heap[over])) break;
      heap[at] = heap[over];
    }
  } else {
    // Earlier tokens that were not kept are no greater; later ones follow those
    // kept.
    if (part->dropped < heap[0].logit) part->dropped = heap[0].logit;
    at = 0;
    for (int64_t under; (under = 2 * at + 1) < part->count; at = under) {
      if (under + 1 < part->count && IsWorse(heap[under + 1], heap[under])) {
        ++under;
      }
      if (!IsWorse(heap[under], candidate)) break;
      heap[at] = heap[under];
    }
  }
  heap[at] = candidate;
}

template <typename T>
struct BeamReader {
  using Value = Accumulator<T>;
  using V = typename Lanes<T>::Vector;
  using State = SoftmaxState<V>;
  static constexpr int kCount = Lanes<T>::kCount;
  static constexpr int64_t kBlock = kBlockVectors * kCount;
  static constexpr Value kNone = -static_cast<Value>(INFINITY);

  const BeamTokens& tokens;
  const bool* forbidden;
  BeamPart<Value>* part;

  bool IsFull() const { return part->count == part->keep; }
  void Drop(Value greatest) const {
    if (part->dropped < greatest) part->dropped = greatest;
  }

  // Keeps logits above `bound` of x, which are tokens [token, token + n). With
  // kRaises, the bound rises to the worst logit kept.
  template <bool kOrEqual, bool kRaises, typename E>
  void Collect(const E* x, int64_t token, int64_t n, Value bound) const {
    ForVectors<E>(n, [&](auto vectors, int64_t at) {
      uint32_t lanes =
          IsGreater<kOrEqual>(vectors.Load(x + at, kNone), Broadcast<V>(bound));
      if (__builtin_expect(lanes == 0, 1)) return;
      if (forbidden != nullptr) {
        lanes &=
            ~IsSet(forbidden + token + at, n - at < kCount ? n - at : kCount);
      }
      for (; lanes != 0; lanes &= lanes - 1) {
        const int64_t i = at + __builtin_ctz(lanes);
        if (!Allows(tokens, token + i)) continue;
        const Value logit = LoadOne(x + i);
        if (IsFull() && logit <= part->candidates[0].logit) continue;
        Push({logit, static_cast<int32_t>(token + i)}, part);
        if (kRaises && IsFull()) bound = part->candidates[0].logit;
      }
    });
  }

  template <typename E>
  void CollectBlock(const E* x, int64_t token, int64_t n,
                    const State& state) const {
    if (tokens.rule == EosRule::kOnly) return;
    if (IsFull()) {
      const Value bound = part->candidates[0].logit;
      if (VectorLanes::Max(state.max)[0] <= bound) return;
      return Collect<false, false>(x, token, n, bound);
    }
    // A bound that at least `needed` lanes reach.
    const int64_t needed =
        part->keep + (tokens.rule == EosRule::kNone ? tokens.num_eos : 0);
    if (part->count == 0 && forbidden == nullptr && needed <= kCount) {
      Value best[kCount];
      for (int lane = 0; lane < kCount; ++lane) {
        int at = lane;
        for (; at > 0 && best[at - 1] < state.max[lane]; --at) {
          best[at] = best[at - 1];
        }
        best[at] = state.max[lane];
      }
      if (best[needed - 1] > kNone) {
        Drop(best[needed - 1]);
        return Collect<true, false>(x, token, n, best[needed - 1]);
      }
    }
    Collect<false, true>(x, token, n, kNone);
  }

  void Read(const T* row, int64_t begin, int64_t end) const {
    State all;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = end - at < kBlock ? end - at : kBlock;
      State state = ReduceSoftmax(row + at, n);
      const V sum = VectorLanes::Sum(state.rest);
      if (__builtin_expect(sum[0] == sum[0], 1)) {
        CollectBlock(row + at, at, n, state);
      } else {  // contains NaN or infinity
        Value counted[kBlock];
        for (int64_t i = 0; i < n; ++i) {
          counted[i] = CountedLogit(Value{LoadOne(row + at + i)});
        }
        state = ReduceSoftmax(counted, n);
        CollectBlock(counted, at, n, state);
      }
      all = at == begin ? state : State::Merge(all, state);
    }
    if (tokens.rule == EosRule::kOnly) CollectEos(row, begin, end);
    const State row_state = all.Joined(VectorLanes());
    part->largest = row_state.max[0];
    part->rest = row_state.rest[0];
  }

  void CollectEos(const T* row, int64_t begin, int64_t end) const {
    for (int64_t i = 0; i < tokens.num_eos; ++i) {
      const int64_t token = tokens.eos_ids[i];
      bool again = token < begin || token >= end ||
                   (forbidden != nullptr && forbidden[token]);
      for (int64_t j = 0; j < i; ++j) again |= tokens.eos_ids[j] == token;
      if (again) continue;
      const BeamCandidate<Value> candidate{
          CountedLogit(Value{LoadOne(row + token)}),
          static_cast<int32_t>(token)};
      if (!IsFull() || IsWorse(part->candidates[0], candidate)) {
        Push(candidate, part);
      } else {
        Drop(candidate.logit);
      }
    }
  }
};

// Reads tokens [begin, end) of a row; `forbidden` is the row's, or null. Sets
// all of `part` but candidates and keep, which is positive.
template <typename T>
void ReadBeamPart(const T* logits, int64_t begin, int64_t end,
                  const BeamTokens& tokens, const bool* forbidden,
                  BeamPart<Accumulator<T>>* part) {
  part->count = 0;
  part->dropped = BeamReader<T>::kNone;
  BeamReader<T>{tokens, forbidden, part}.Read(logits, begin, end);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_BEAM_READER_SIMD_H_
