// Scaled dot-product attention (Vaswani et al., arXiv:1706.03762) that keeps no
// scores (Dao et al., arXiv:2205.14135), and its gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/philox.h"

namespace tfo {

// A side of the window without bound.
inline constexpr int64_t kUnboundedWindow = int64_t{1} << 40;

struct AttentionSpec {
  int64_t batch;
  // Of an example; of the longest, if the tensors are ragged.
  int64_t queries, keys;
  // Both at least 1. key_heads divides heads: query head n reads key head
  // n / (heads / key_heads).
  int64_t heads, key_heads;
  int64_t depth, value_depth;
  double scale;
  double softcap;  // 0: none; else in [2^-100, 2^100]
  // Query position i sees the keys [i - left, i + right]: causal is right = 0.
  int64_t left, right;
  double dropout;  // in [0, 1), and less than 1 as a threshold rounds it
};

// The strides, in elements, of a tensor that broadcasts to [batch, heads,
// queries, keys]; 0 for a dim of size 1.
struct AttentionStrides {
  int64_t batch, head, query, key;
};

template <typename T>
struct AttentionOperands : AttentionSpec {
  // [batch, queries, heads, depth], [batch, keys, key_heads, depth] and [batch,
  // keys, key_heads, value_depth]. Ragged tensors are flat: the first dim is
  // the sum of all lengths.
  const T *query, *key, *value;
  // [batch + 1]: where the rows of examples begin, if ragged; or null.
  const int64_t *query_splits, *key_splits;
  // [batch]: the queries and keys of examples that are not ragged; null: all.
  // In [0, queries] and [0, keys].
  const int32_t *lengths, *key_lengths;
  // [batch]: query t has the position t + offset. Null: the last query is
  // beside the last key.
  const int32_t* query_offset;
  const bool* mask;  // true: the pair attends; or null
  AttentionStrides mask_strides;
  const T* bias;  // or null
  AttentionStrides bias_strides;
  const Accumulator<T>* alibi_slopes;  // [heads], or [batch, heads]; or null
  int64_t alibi_batch_stride;          // 0, or heads
  const Accumulator<T>* sinks;         // [heads], or null
  const uint32_t* seed;                // [2]; not read without dropout
  int64_t query_rows, key_rows;        // of all examples
  // [batch / beams, beams, keys], or null. Examples are beams, `beams` of them
  // beside each other: key and value j of an example are those of the beam
  // ancestors[j], in [0, beams). Not ragged, and without gradients.
  const int32_t* ancestors;
  int64_t beams;  // divides batch
};
template <typename T>
struct AttentionArgs : AttentionOperands<T> {
  T* output;  // [batch, queries, heads, value_depth], or flat as query
  // [batch, heads, queries], or [heads, rows of query] if ragged; or null.
  Accumulator<T>* log_sum_exp;
};
template <typename T>
struct AttentionGradArgs : AttentionOperands<T> {
  const T* output;
  const Accumulator<T>* log_sum_exp;
  const T* d_output;
  const Accumulator<T>* d_log_sum_exp;  // or null
  T *d_query, *d_key, *d_value;         // all null: not computed
  T* d_bias;                // of the bias's shape; null: not computed
  Accumulator<T>* d_sinks;  // null: not computed
};

// T is float, double, Half or BFloat16; scores and sums are of its Accumulator.
// The same bits for any number of threads, and from run to run on a GPU, for
// gradients to 16-bit queries with gpu.deterministic only. Each returns null
// or, on a GPU, the error of a launch or of sizes that it does not support; the
// Gpu overloads only enqueue.
//
// At the levels avx512_bf16 and amx (cpu_dispatch.h), BFloat16 is multiplied
// without widening: weights and the gradients of scores are rounded to it,
// once, to the nearest, for the products that follow; sums of weights are not,
// nor are weights of fewer than 16 queries without dropout.

// Writes all of `output` and `log_sum_exp`. With i the position of query t, the
// score of key j is
//   s = scale * (query . key), then s = softcap * tanh(s / softcap), then
//   s = s - slope * |i - j| + bias,
// and -inf if the mask, the lengths or the window exclude the pair. The output
// is the sum of e^(s - lse) * value, lse = log(sum of e^s + e^sink). A pair
// whose score is -inf adds nothing, whatever its key and value hold. Without
// any other pair, and beyond lengths, the output is 0; lse is then the sink, or
// -inf. NaN or +inf among the scores of a query make its row NaN. Sums are of
// weights up to e^8: values above 1e34 over the number of keys may overflow.
//
// With ancestors, the same bits as for keys and values in their order. Other
// beams' are not read.
//
// Dropout (AttentionDropout) drops weights e^(s - lse) and scales the others,
// after lse.
//
// A GPU rounds weights to T, clamps lengths, and needs scratch of
// AttentionScratchBytes.
template <typename T>
Error Attention(const Cpu& cpu, const AttentionArgs<T>& args);
template <typename T>
Error Attention(const Gpu& gpu, const AttentionArgs<T>& args);
template <typename T>
int64_t AttentionScratchBytes(const AttentionOperands<T>& args);

// Writes the gradients along d_output and, unless it is null, d_log_sum_exp;
// those of queries beyond lengths are ignored. A pair of weight 0 passes none.
// A GPU rounds the gradients to scores to T, too, and needs scratch of
// AttentionGradScratchBytes.
template <typename T>
Error AttentionGrad(const Cpu& cpu, const AttentionGradArgs<T>& args);
template <typename T>
Error AttentionGrad(const Gpu& gpu, const AttentionGradArgs<T>& args);
template <typename T>
int64_t AttentionGradScratchBytes(const AttentionGradArgs<T>& args,
                                  bool deterministic);

// ---- What the kernels of all devices share.

namespace attention {

// The rows and sizes of an example.
struct Example {
  int64_t batch;
  int64_t first_query, queries;  // first_query, first_key: rows of all examples
  int64_t first_key, keys;
  int64_t offset;
};
// The nearest valid length: those on a GPU may be invalid, since the host
// cannot check them.
TFO_HOST_DEVICE inline int64_t ValidLength(int64_t length, int64_t max) {
  return length < 0 ? 0 : length < max ? length : max;
}
template <typename T>
TFO_HOST_DEVICE inline Example ExampleOf(const AttentionOperands<T>& args,
                                         int64_t b) {
  Example e = {b, b * args.queries, args.queries, b * args.keys, args.keys, 0};
  if (args.lengths != nullptr) {
    e.queries = ValidLength(args.lengths[b], args.queries);
  }
  if (args.key_lengths != nullptr) {
    e.keys = ValidLength(args.key_lengths[b], args.keys);
  }
  if (args.query_splits != nullptr) {
    e.first_query = ValidLength(args.query_splits[b], args.query_rows);
    e.queries = ValidLength(
        ValidLength(args.query_splits[b + 1], args.query_rows) - e.first_query,
        args.queries);
  }
  if (args.key_splits != nullptr) {
    e.first_key = ValidLength(args.key_splits[b], args.key_rows);
    e.keys = ValidLength(
        ValidLength(args.key_splits[b + 1], args.key_rows) - e.first_key,
        args.keys);
  }
  e.offset =
      args.query_offset != nullptr ? args.query_offset[b] : e.keys - e.queries;
  return e;
}

// On a GPU, with fewer blocks of threads each does less, and another kernel
// joins the results. Two for each of 132 multiprocessors: results do not depend
// on the GPU's own.
inline constexpr int64_t kEnoughBlocks = 264;
// The most parts of each of `blocks` blocks that still run all at once. One
// block more would run alone, and double the time.
inline int64_t SplitsThatFit(int64_t blocks) {
  return blocks > 0 && blocks < kEnoughBlocks ? kEnoughBlocks / blocks : 1;
}

// The row of all examples that has key j of an example.
template <typename T>
inline int64_t KeyRow(const AttentionOperands<T>& args, const Example& example,
                      int64_t j) {
  if (args.ancestors == nullptr) return example.first_key + j;
  // The nearest beam, as ValidLength.
  const int64_t beam = ValidLength(
      args.ancestors[example.batch * args.keys + j], args.beams - 1);
  return (example.batch / args.beams * args.beams + beam) * args.keys + j;
}

// Where log_sum_exp has query 0 of a head.
template <typename T>
TFO_HOST_DEVICE inline int64_t FirstSum(const AttentionOperands<T>& args,
                                        const Example& example, int64_t head) {
  return args.query_splits != nullptr
             ? head * args.query_rows + example.first_query
             : (example.batch * args.heads + head) * args.queries;
}

}  // namespace attention

// The weights that attention drops: the place decides, so that all tiles,
// passes and devices agree.
//
// Key j of query t in row r = b * heads + n is kept if the 16-bit word j % 8 of
// Philox4x32-10 with the key `seed` and the counter (j / 8, t, r, 0) is at
// least `threshold`; the lower half of each 32-bit word comes first.
struct AttentionDropout {
  uint32_t seed[2];
  uint32_t threshold;  // 65536 * dropout, rounded: less than 65536
};

inline constexpr int64_t kDropoutKeys = 8;  // of one counter

// 65536 / (65536 - threshold).
TFO_HOST_DEVICE static inline double KeptFactor(
    const AttentionDropout& dropout) {
  return 65536.0 / (65536 - dropout.threshold);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_H_
