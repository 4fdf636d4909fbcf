// The examples of a batch: their rows, lengths and positions.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_EXAMPLE_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_EXAMPLE_H_

#include <cstdint>

#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

namespace tfo {
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

// Where log_sum_exp has query 0 of a head.
template <typename T>
TFO_HOST_DEVICE inline int64_t FirstSum(const AttentionOperands<T>& args,
                                        const Example& example, int64_t head) {
  return args.query_splits != nullptr
             ? head * args.query_rows + example.first_query
             : (example.batch * args.heads + head) * args.queries;
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_EXAMPLE_H_
