// Inputs and options of attention, for its tests.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TESTING_H_

#include <algorithm>
#include <cmath>
#include <string>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/core/cc/testing/testing.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

namespace tfo::testing {

struct Sizes {
  int64_t batch, queries, keys, heads, key_heads, depth, value_depth;
};

template <typename T>
struct Problem {
  using C = Accumulator<T>;
  AttentionSpec spec;
  std::string options;
  GpuVector<T> query, key, value, bias, d_output;
  GpuVector<uint8_t> mask;
  AttentionStrides mask_strides = {}, bias_strides = {};
  GpuVector<int64_t> query_splits, key_splits;
  GpuVector<int32_t> lengths, key_lengths, query_offset, ancestors;
  int64_t beams = 1;
  GpuVector<C> slopes, sinks, d_log_sum_exp;
  GpuVector<uint32_t> seed;

  int64_t QueryRows() const {
    return query_splits.empty() ? spec.batch * spec.queries
                                : query_splits.back();
  }
  int64_t KeyRows() const {
    return key_splits.empty() ? spec.batch * spec.keys : key_splits.back();
  }
  AttentionOperands<T> Operands() const {
    const auto data = [](const auto& v) {
      return v.empty() ? nullptr : v.data();
    };
    return {spec,
            query.data(),
            key.data(),
            value.data(),
            data(query_splits),
            data(key_splits),
            data(lengths),
            data(key_lengths),
            data(query_offset),
            reinterpret_cast<const bool*>(data(mask)),
            mask_strides,
            data(bias),
            bias_strides,
            data(slopes),
            static_cast<int64_t>(slopes.size()) > spec.heads ? spec.heads : 0,
            data(sinks),
            data(seed),
            QueryRows(),
            KeyRows(),
            data(ancestors),
            beams};
  }
};

template <typename T>
Problem<T> MakeProblem(const Sizes& s) {
  using C = Accumulator<T>;
  Problem<T> p;
  p.spec = {s.batch,
            s.queries,
            s.keys,
            s.heads,
            s.key_heads,
            s.depth,
            s.value_depth,
            1 / std::sqrt(static_cast<double>(s.depth)),
            0,
            kUnboundedWindow,
            kUnboundedWindow,
            0};
  const int64_t rows = s.batch * s.queries * s.heads;
  const int64_t key_rows = s.batch * s.keys * s.key_heads;
  p.query = ToGpu(RandomValues<T>(rows * s.depth, 1));
  p.key = ToGpu(RandomValues<T>(key_rows * s.depth, 2));
  p.value = ToGpu(RandomValues<T>(key_rows * s.value_depth, 3));
  p.d_output = ToGpu(RandomValues<T>(rows * s.value_depth, 4));
  // Gradients below 1 are compared absolutely.
  for (T& d : p.d_output) d = Narrow<T>(Widen(d) / 16);
  p.d_log_sum_exp = ToGpu(RandomValues<C>(rows, 5));
  for (C& d : p.d_log_sum_exp) d /= 16;
  return p;
}

// The shape of a mask or bias, and its strides.
inline int64_t Broadcast(const AttentionSpec& spec, int broadcast,
                         AttentionStrides* strides) {
  int64_t size = 1;
  const auto add = [&](int bit, int64_t dim, int64_t* stride) {
    *stride = broadcast >> bit & 1 ? 0 : size;
    if (*stride != 0) size *= dim;
  };
  add(0, spec.keys, &strides->key);
  add(1, spec.queries, &strides->query);
  add(2, spec.heads, &strides->head);
  add(3, spec.batch, &strides->batch);
  return size;
}

template <typename T>
void AddMask(int broadcast, Problem<T>* p) {
  p->options += Text(" mask ", broadcast);
  const int64_t n = Broadcast(p->spec, broadcast, &p->mask_strides);
  const auto values = RandomValues<float>(n, 6);
  p->mask.resize(n);
  for (int64_t i = 0; i < n; ++i) p->mask[i] = values[i] < 0.5f;
}

template <typename T>
void AddBias(int broadcast, Problem<T>* p) {
  p->options += Text(" bias ", broadcast);
  const int64_t n = Broadcast(p->spec, broadcast, &p->bias_strides);
  p->bias = ToGpu(RandomValues<T>(n, 7));
}

constexpr int kNumOptions = 13;

// Turns on an option.
template <typename T>
void AddOption(int option, Problem<T>* p) {
  using C = Accumulator<T>;
  AttentionSpec& spec = p->spec;
  const auto lengths = [&](int64_t most) {
    GpuVector<int32_t> lengths;
    for (int64_t b = 0; b < spec.batch; ++b) {
      lengths.push_back(static_cast<int32_t>(most * (b + 1) / (b + 2)));
    }
    return lengths;
  };
  switch (option) {
    case 0:
      spec.right = std::min<int64_t>(spec.right, 0);
      p->options += " causal";
      break;
    case 1:
      spec.left = 11;
      spec.right = std::min<int64_t>(spec.right, 3);
      p->options += " window";
      break;
    case 2:
      for (int64_t b = 0; b < spec.batch; ++b) {
        p->query_offset.push_back(static_cast<int32_t>(5 * b - 7));
      }
      p->options += " offset";
      break;
    case 3:
      spec.softcap = 1.5;
      p->options += " softcap";
      break;
    case 4:
      for (int64_t n = 0; n < spec.heads; ++n) {
        p->slopes.push_back(C(std::exp2(-1.0 - n)));
      }
      p->options += " alibi";
      break;
    case 5:
      for (int64_t n = 0; n < spec.heads * spec.batch; ++n) {
        p->slopes.push_back(C(std::exp2(-1.0 - n)));
      }
      p->options += " alibi of examples";
      break;
    case 6:
      p->sinks = ToGpu(RandomValues<C>(spec.heads, 8));
      p->options += " sinks";
      break;
    case 7:
      AddBias(0, p);
      break;
    case 8:
      AddMask(0, p);
      break;
    case 9:
      p->lengths = lengths(spec.queries);
      p->options += " lengths";
      break;
    case 10:
      p->key_lengths = lengths(spec.keys);
      p->options += " key lengths";
      break;
    case 11:
      spec.dropout = 0.3;
      p->seed = {7, 0xFFFFFFF0};
      p->options += " dropout";
      break;
    case 12:
      spec.scale = -0.7;
      p->options += " scale";
      break;
  }
}

// Rows of all lengths, also none, and causal ones.
template <typename T>
Problem<T> MakeRagged() {
  Problem<T> p = MakeProblem<T>({4, 40, 50, 2, 1, 12, 8});
  p.query_splits = {0, 40, 40, 43, 60};
  p.key_splits = {0, 50, 70, 70, 85};
  p.query.resize(60 * 2 * 12);
  p.d_output.resize(60 * 2 * 8);
  p.d_log_sum_exp.resize(60 * 2);
  p.key.resize(85 * 12);
  p.value.resize(85 * 8);
  p.options = " ragged";
  return p;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TESTING_H_
