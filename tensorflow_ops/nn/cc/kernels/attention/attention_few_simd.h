// Inner loops of attention of few queries, which read keys and values as they
// lie: a row of scores for each query, whose lanes are keys.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {

// Keys of a span: the length of a row of scores.
inline constexpr int64_t kSpanKeys = 256;
// Rows of queries and of sums are padded to a multiple of this, the lanes of
// the widest level.
inline constexpr int64_t kRowPadding = 16;
// Rows of keys or values that are widened at once.
inline constexpr int64_t kWidenedRows = 16;

// Keys or values of some heads, `columns` numbers each: of head h, row j is at
// data + j * stride + h * columns, and with ancestors, ancestors[j] times
// `beam_stride` further. `rows` query rows meet each head.
template <typename T>
struct HeadRows {
  const T* data;
  int64_t stride, count, columns;
  int64_t heads, rows;
  const int32_t* ancestors;  // or null
  int64_t beam_stride;
};

// How the products of a query become scores. Keys count from the first product.
template <typename T>
struct QueryOptions {
  using C = Accumulator<T>;
  C scale;
  C softcap;            // 0: none
  C slope;              // of ALiBi
  C distance;           // the position of the query, less that of key 0
  int64_t begin, end;   // the query sees these keys
  const bool* mask;     // of the keys, or null
  const T* bias;        // of the keys, or null
  int64_t bias_stride;  // 1, or 0: one bias for all keys
};

TFO_PER_CPU_LEVEL(
    // Widens `count` rows, `stride` apart, and pads them with zeros to
    // `to_stride`, which is `columns` rounded up to kRowPadding.
    template <typename T>
    void WidenRows(const T* from, int64_t stride, int64_t count,
                   int64_t columns, Accumulator<T>* to, int64_t to_stride);

    // Writes the products of each query and each key: queries [heads][rows] of
    // padded rows, products [heads][rows][kSpanKeys]. Writes whole vectors,
    // beyond the last key, too. `widened` has kWidenedRows padded rows.
    template <typename T>
    void MultiplyKeys(const Accumulator<T>* queries, const HeadRows<T>& keys,
                      Accumulator<T>* widened, Accumulator<T>* products);

    // Turns a row of products into weights e^(score - high), of the greatest
    // score `high`, and sums them.
    template <typename T>
    void WeighKeys(const QueryOptions<T>& options, int64_t keys,
                   Accumulator<T>* scores, Accumulator<T>* high,
                   Accumulator<T>* total);

    // Adds weighted values to sums, padded rows `sums_stride` apart:
    // weights [heads][rows][kSpanKeys].
    template <typename T>
    void AddValues(const Accumulator<T>* weights, const HeadRows<T>& values,
                   Accumulator<T>* widened, int64_t sums_stride,
                   Accumulator<T>* sums);

    // Merges the parts of a query's row, `stride` apart: `columns` sums and, at
    // `stats`, their high and total. The sink, or -inf, is as a first part
    // without values. Writes the output, and high and total of all.
    template <typename T>
    void MergeParts(const Accumulator<T>* parts, int64_t count, int64_t stride,
                    int64_t columns, int64_t stats, Accumulator<T> sink,
                    Accumulator<T>* sums, T* output, Accumulator<T>* high,
                    Accumulator<T>* total);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_
