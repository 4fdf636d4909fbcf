// Inner loops of attention.h. Scores are transposed: a row for each key, of
// kGemmStride numbers, and lanes of one panel (gemm_simd.h) of queries.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

namespace tfo {

inline constexpr int64_t kMaxPanelColumns = 32;

// How products become the scores of a panel and of some keys.
template <typename C>
struct ScoreOptions {
  C scale;
  C softcap;   // 0: none
  C slope;     // of ALiBi
  C distance;  // the position of lane 0, less that of key 0
  // [keys][PanelColumns], or null: the bias; -inf excludes the pair.
  const C* added;
  // [PanelColumns], or null: each lane sees the keys [begin, end).
  const C *begin, *end;
};

enum class MaskKind { kNone, kSome, kAll };

TFO_PER_CPU_LEVEL(
    // Turns products into weights e^(score - high), of the lanes' running
    // maxima `high`, and adds them to `total`, [PanelColumns] each. True if
    // sums over earlier weights must be multiplied by `corrections` first.
    // kRounded: the weights are rounded to bfloat16 next.
    template <typename C, bool kRounded>
    bool WeighScores(const ScoreOptions<C>& options, int64_t keys, C* scores,
                     C* high, C* total, C* corrections);

    // Turns products into weights e^(score - lse), and `d_weights` into the
    // gradients weight * (d_weight - delta) of the scores, or, with
    // `to_products`, of the products. lse and delta have PanelColumns.
    template <typename C, bool kRounded>
    void DifferentiateScores(const ScoreOptions<C>& options, bool to_products,
                             int64_t keys, const C* lse, const C* delta,
                             C* scores, C* d_weights);

    // Is a mask of [queries, keys] all true, all false, or neither?
    MaskKind KindOfMask(const bool* mask, int64_t query_stride,
                        int64_t key_stride, int64_t queries, int64_t keys);

    // Sets `added` to -inf where the mask is false, and elsewhere to 0 unless
    // it has a bias.
    template <typename C>
    void ExcludePairs(const bool* mask, int64_t query_stride,
                      int64_t key_stride, int64_t queries, int64_t keys,
                      bool has_bias, C* added);

    // Drops weights of the keys from `key` on and of the queries from `query`
    // on, and scales the others.
    template <typename C>
    void DropWeights(const AttentionDropout& dropout, int64_t row,
                     int64_t query, int64_t key, int64_t keys, C* weights);

    // Multiplies each of `count` rows, `stride` apart, by its factor.
    template <typename C>
    void ScaleRows(const C* factors, int64_t count, int64_t columns,
                   int64_t stride, C* rows);

    // Writes a . b for each row; in a and b, rows are `stride` apart.
    template <typename T>
    void DotRows(const T* a, const T* b, int64_t stride, int64_t count,
                 int64_t columns, Accumulator<T>* dots);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SIMD_H_
