// The scores of pairs, for CUDA kernels.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_GPU_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_products_gpu.h"

namespace tfo {
namespace attention {

template <typename C>
inline constexpr C kNoScore = -std::numeric_limits<C>::infinity();

struct Range {
  int begin, end;
};

// The pairs of an example and head: which attend, their scores, the dropout. In
// shared memory, since the options would take many registers.
template <typename T>
class Pairs {
 public:
  using C = Accumulator<T>;

  // All threads of the block call this. may_be_products: scores are in units of
  // unit(), as the products are, where no option forbids it.
  __device__ void Set(const AttentionOperands<T>& args, uint32_t threshold,
                      const Example& example, int64_t head,
                      bool may_be_products) {
    __syncthreads();
    if (threadIdx.x == 0) {
      SetAlone(args, threshold, example, head);
      unit_ = 1;
      if (may_be_products && scale_ > 0 && softcap_ == 0 && slope_ == 0 &&
          bias_ == nullptr && args.sinks == nullptr) {
        unit_ = scale_;
        scale_ = 1;
      }
    }
    __syncthreads();
  }
  __device__ C unit() const { return unit_; }

  // The keys that any of `count` queries from t on sees, from an even key on
  // (two keys share a word of the dropout); the queries that see any of `count`
  // keys from j on.
  __device__ Range SeenKeys(int t, int count) const {
    const int last = Min(int64_t{t} + count, queries_) - 1;
    if (last < t) return {0, 0};
    const Range keys = Clip(int64_t{t} + low_, int64_t{last} + high_, keys_);
    return {keys.begin / 2 * 2, keys.end};
  }
  __device__ Range QueriesThatSee(int j, int count) const {
    const int last = Min(int64_t{j} + count, keys_) - 1;
    return last < j ? Range{0, 0}
                    : Clip(int64_t{j} - high_, int64_t{last} - low_, queries_);
  }

  // The part of `keys` from the first to the last that the mask lets attend, if
  // that is the same for all queries. All threads of the block call this.
  __device__ Range Unmasked(Range keys) {
    if (!masks_keys_) return keys;
    __syncthreads();  // the last range was read
    Range mine = {keys.end, keys.begin};
    if (threadIdx.x == 0) unmasked_ = mine;
    __syncthreads();
    for (int j = keys.begin + threadIdx.x; j < keys.end; j += kThreads) {
      if (!mask_[j * mask_key_]) continue;
      if (j < mine.begin) mine.begin = j;
      mine.end = j + 1;
    }
    atomicMin(&unmasked_.begin, mine.begin);
    atomicMax(&unmasked_.end, mine.end);
    __syncthreads();
    if (unmasked_.end <= unmasked_.begin) return {0, 0};
    return {unmasked_.begin / 2 * 2, unmasked_.end};
  }
  // A bit for each of kCount keys from j on: is it attended? Of masks that are
  // not the same for all queries, and beyond the keys, 1. All lanes call this.
  template <int kCount>
  __device__ uint64_t KeyBits(int j) const {
    uint64_t bits = ~uint64_t{0};
    if (!masks_keys_) return bits;
    j += threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kCount; i += 32) {
      const int key = j + i;
      const bool masked = key < keys_ && !mask_[key * mask_key_];
      bits ^= uint64_t{__ballot_sync(kAllLanes, masked)} << i;
    }
    return kCount < 32 ? bits | ~uint64_t{0} << kCount : bits;
  }

  // Are the scores of all pairs of a tile scale * product?
  __device__ bool ArePlain(int t, int queries, int j, int keys,
                           uint64_t key_bits) const {
    return softcap_ == 0 && slope_ == 0 && bias_ == nullptr &&
           (mask_ == nullptr || masks_keys_) && ~key_bits == 0 &&
           SeeEachOther(t, queries, j, keys);
  }
  // Replaces products of a warp's rows, which begin at `row`, and columns by
  // scores. Without softcap.
  template <bool kRowsAreKeys, int N>
  __device__ void SetScores(int row, int column, uint64_t key_bits,
                            C (&products)[N][4]) const {
    const bool inside = kRowsAreKeys
                            ? SeeEachOther(column, 8 * N, row + WarpRow(), 16)
                            : SeeEachOther(row + WarpRow(), 16, column, 8 * N);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[n][i] = Plain(products[n][i]);
    }
    if (slope_ != 0) {
      const int sign = kRowsAreKeys ? -1 : 1;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const C distance =
            static_cast<C>(offset_ + sign * (int64_t{row} + FragmentRow(2 * m) -
                                             column - FragmentColumn(0, 0)));
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
          for (int x = 0; x < 2; ++x) {
            products[n][2 * m + x] -=
                slope_ * std::fabs(distance - sign * (n * 8 + x));
          }
        }
      }
    }
    if (bias_ != nullptr) {
      ForEachPair<kRowsAreKeys>(
          bias_, bias_query_, bias_key_, bias_pairs_ && inside, row, column,
          products, [](T value, C& score) {
            const C bias = Widen(value);
            score = bias == kNoScore<C> ? bias : score + bias;
          });
    }
    if (mask_ != nullptr && !masks_keys_) {
      ForEachPair<kRowsAreKeys>(mask_, mask_query_, mask_key_,
                                mask_pairs_ && inside, row, column, products,
                                [](bool attends, C& score) {
                                  score = attends ? score : kNoScore<C>;
                                });
    }
    if (inside && ~key_bits == 0) return;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint64_t bits = BitsOfRow<kRowsAreKeys>(
          row, FragmentRow(2 * m), column + FragmentColumn(0, 0), key_bits);
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          C& score = products[n][2 * m + x];
          if ((bits >> (n * 8 + x) & 1) == 0) score = kNoScore<C>;
        }
      }
    }
  }
  // Rounded, as the maxima and lse are that it is subtracted from.
  __device__ C Plain(C product) const { return Product(product, scale_); }
  __device__ bool PlainAreProducts() const { return scale_ == 1; }

  // The score of query t and key j, -inf if the pair is excluded. Also sets
  // `slope`, the score's derivative along scale * product, if the score is
  // finite.
  __device__ C Score(C product, int t, int j, C* slope) const {
    *slope = 1;
    const int distance = j - t;
    if (t >= queries_ || j >= keys_ || distance < low_ || distance > high_) {
      return kNoScore<C>;
    }
    if (mask_ != nullptr && !mask_[t * mask_query_ + j * mask_key_]) {
      return kNoScore<C>;
    }
    C score = Plain(product);
    if (softcap_ != 0) {
      const C x = score / softcap_, tanh = std::tanh(x);
      score = tanh * softcap_;
      // 1 - tanh^2, which cancels: (1 - |tanh|) (1 + |tanh|), where the first
      // is e^(-2 |x|) times the second.
      const C sum = 1 + std::fabs(tanh);
      *slope = std::exp(-2 * std::fabs(x)) * sum * sum;
    }
    if (slope_ != 0) {
      score -= slope_ * std::fabs(static_cast<C>(offset_ - distance));
    }
    if (bias_ != nullptr) {
      const C bias = Widen(bias_[t * bias_query_ + j * bias_key_]);
      score = bias == kNoScore<C> ? bias : score + bias;
    }
    return score;
  }

  __device__ bool has_softcap() const { return softcap_ != 0; }
  __device__ bool has_dropout() const { return threshold_ > 0; }
  // A weight or its gradient, after the dropout; `word` is the pair's.
  __device__ C Drop(uint32_t word, int j, C value) const {
    return (word >> (j % 2 * 16) & 0xFFFF) >= threshold_ ? value * kept_factor_
                                                         : C(0);
  }
  // The random bits of keys j and j ^ 1.
  __device__ uint32_t DropoutWord(int t, int j) const {
    uint32_t words[4] = {static_cast<uint32_t>(j / kDropoutKeys),
                         static_cast<uint32_t>(t), row_, 0};
    Philox(seed_, words);
    const int i = j / 2 % 4;
    return i < 2 ? (i == 0 ? words[0] : words[1])
                 : (i == 2 ? words[2] : words[3]);
  }

 private:
  // Does each of these queries see each of these keys, but for the mask?
  __device__ bool SeeEachOther(int t, int queries, int j, int keys) const {
    return t + queries <= queries_ && j + keys <= keys_ &&
           j - (t + queries - 1) >= low_ && j + keys - 1 - t <= high_;
  }
  // A bit for each of 64 columns, from `column` on: are they and row `first +
  // r` a pair that attends?
  template <bool kRowsAreKeys>
  __device__ uint64_t BitsOfRow(int first, int r, int column,
                                uint64_t key_bits) const {
    const int64_t row = int64_t{first} + r;
    if (row >= (kRowsAreKeys ? keys_ : queries_)) return 0;
    int64_t begin = row + (kRowsAreKeys ? -int64_t{high_} : low_);
    int64_t last = row + (kRowsAreKeys ? -int64_t{low_} : high_);
    const int64_t end = kRowsAreKeys ? queries_ : keys_;
    if (begin < 0) begin = 0;
    if (last >= end) last = end - 1;
    begin -= column;
    last -= column;
    if (begin > 63 || last < 0 || last < begin) return 0;
    uint64_t bits = ~uint64_t{0};
    if (begin > 0) bits = bits << begin;
    if (last < 63) bits &= ~(~uint64_t{0} << (last + 1));
    if (kRowsAreKeys) return (key_bits >> r & 1) != 0 ? bits : 0;
    return bits & key_bits >> FragmentColumn(0, 0);
  }
  // Calls use(value, score) with a value of the mask or bias for each pair;
  // where there is none, with any.
  template <bool kRowsAreKeys, typename V, int N, typename Use>
  __device__ void ForEachPair(const V* values, int64_t of_query, int64_t of_key,
                              bool in_pairs, int row, int column,
                              C (&scores)[N][4], const Use& use) const {
    if (!kRowsAreKeys && in_pairs) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const V* const of_row = values + (row + FragmentRow(2 * m)) * of_query +
                                column + FragmentColumn(0, 0);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const Pack<V, 2> pair = LoadPack<2>(of_row + n * 8);
          use(pair.values[0], scores[n][2 * m]);
          use(pair.values[1], scores[n][2 * m + 1]);
        }
      }
      return;
    }
    const int last_row = (kRowsAreKeys ? keys_ : queries_) - 1;
    const int last_column = (kRowsAreKeys ? queries_ : keys_) - 1;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const V* const of_row =
          values + AtMost(row + FragmentRow(2 * m), last_row) *
                       (kRowsAreKeys ? of_key : of_query);
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          use(of_row[AtMost(column + FragmentColumn(n, x), last_column) *
                     (kRowsAreKeys ? of_query : of_key)],
              scores[n][2 * m + x]);
        }
      }
    }
  }

  __device__ void SetAlone(const AttentionOperands<T>& args, uint32_t threshold,
                           const Example& example, int64_t head) {
    const auto first_of = [&](const AttentionStrides& strides) {
      return example.batch * strides.batch + head * strides.head;
    };
    queries_ = static_cast<int>(example.queries);
    keys_ = static_cast<int>(example.keys);
    low_ = Saturate(example.offset - args.left);
    high_ = Saturate(example.offset + args.right);
    offset_ = example.offset;
    scale_ = static_cast<C>(args.scale);
    softcap_ = static_cast<C>(args.softcap);
    slope_ =
        args.alibi_slopes == nullptr
            ? C(0)
            : args.alibi_slopes[example.batch * args.alibi_batch_stride + head];
    mask_ = args.mask == nullptr ? nullptr
                                 : args.mask + first_of(args.mask_strides);
    mask_query_ = args.mask_strides.query;
    mask_key_ = args.mask_strides.key;
    bias_ = args.bias == nullptr ? nullptr
                                 : args.bias + first_of(args.bias_strides);
    bias_query_ = args.bias_strides.query;
    bias_key_ = args.bias_strides.key;
    masks_keys_ = mask_ != nullptr && mask_query_ == 0;
    const auto in_pairs = [](const auto* first, int64_t query, int64_t key) {
      return key == 1 && query % 2 == 0 &&
             reinterpret_cast<uintptr_t>(first) % (2 * sizeof(*first)) == 0;
    };
    mask_pairs_ = in_pairs(mask_, mask_query_, mask_key_);
    bias_pairs_ = in_pairs(bias_, bias_query_, bias_key_);
    threshold_ = threshold;
    row_ = static_cast<uint32_t>(example.batch * args.heads + head);
    if (threshold == 0) return;
    seed_[0] = args.seed[0];
    seed_[1] = args.seed[1];
    kept_factor_ = static_cast<C>(KeptFactor({{}, threshold}));
  }
  __device__ static int Saturate(int64_t n) {
    constexpr int64_t kMax = 0x7FFFFFFF;
    return static_cast<int>(n < -kMax ? -kMax : n > kMax ? kMax : n);
  }
  __device__ static int Min(int64_t a, int64_t b) {
    return static_cast<int>(a < b ? a : b);
  }
  __device__ static int AtMost(int n, int most) { return n < most ? n : most; }
  // The part of [begin, last] in [0, count).
  __device__ static Range Clip(int64_t begin, int64_t last, int count) {
    if (begin < 0) begin = 0;
    if (last >= count) last = count - 1;
    if (last < begin) return {0, 0};
    return {static_cast<int>(begin), static_cast<int>(last) + 1};
  }

  int queries_, keys_;
  int low_, high_;  // of j - t
  int64_t offset_;
  C unit_, scale_, softcap_, slope_;
  const bool* mask_;
  const T* bias_;
  int64_t mask_query_, mask_key_, bias_query_, bias_key_;
  // Can neighboring keys of the mask or bias be loaded at once?
  bool mask_pairs_, bias_pairs_;
  bool masks_keys_;  // the mask is the same for all queries
  Range unmasked_;
  uint32_t threshold_, row_, seed_[2];
  C kept_factor_;
};

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_GPU_H_
