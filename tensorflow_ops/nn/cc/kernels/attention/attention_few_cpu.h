// Attention of few queries on the CPU, such as a decoder's step: panels, most
// of whose lanes would be empty, and packing of keys and values cost more than
// they gain.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_CPU_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_simd.h"

namespace tfo {
namespace attention {

// Whether Attention is AttendFewQueries.
template <typename T>
bool HasFewQueries(const AttentionOperands<T>& args) {
  return args.queries < 16 && args.dropout == 0;
}

// Does not write beyond lengths.
template <typename T>
void AttendFewQueries(const Cpu& cpu, const AttentionArgs<T>& args);

// The products of few queries, with the bits that they have in
// AttendFewQueries: scores of 1e9 are rounded by more than e^x can bear, so
// gradients must see the same.
template <typename T>
class FewProducts {
 public:
  using C = Accumulator<T>;

  explicit FewProducts(const AttentionOperands<T>& args)
      : args_(args),
        depth_(RoundUp(args.depth, kRowPadding)),
        queries_(kMaxPanelColumns * depth_),
        products_(kMaxPanelColumns * kSpanKeys),
        widened_(kWidenedRows * depth_) {}

  // Writes those of a panel and `count` keys from `key` on to rows of
  // kGemmStride, with zeros in lanes beyond the panel.
  void Write(const Example& example, const Panel& panel, int64_t key,
             int64_t count, C* to) const {
    const int64_t query_row =
        (example.first_query + panel.first) * args_.heads + panel.head;
    const int64_t key_row = (example.first_key + key) * args_.key_heads +
                            panel.head / (args_.heads / args_.key_heads);
    TFO_DISPATCH(WidenRows<T>)
    (args_.query + query_row * args_.depth, args_.heads * args_.depth,
     panel.count, args_.depth, queries_.data(), depth_);
    TFO_DISPATCH(MultiplyKeys<T>)
    (queries_.data(),
     {args_.key + key_row * args_.depth, args_.key_heads * args_.depth, count,
      args_.depth, 1, panel.count, nullptr, 0},
     widened_.data(), products_.data());
    const int64_t columns = TFO_DISPATCH(PanelColumns<C>)();
    for (int64_t j = 0; j < count; ++j, to += kGemmStride) {
      std::fill_n(to + panel.count, columns - panel.count, C{0});
      for (int64_t i = 0; i < panel.count; ++i) {
        to[i] = products_.data()[i * kSpanKeys + j];
      }
    }
  }

 private:
  const AttentionOperands<T>& args_;
  const int64_t depth_;  // padded
  const Buffer<C> queries_, products_, widened_;
};

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_CPU_H_
