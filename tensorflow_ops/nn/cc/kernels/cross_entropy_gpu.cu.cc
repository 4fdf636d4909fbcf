#include "tensorflow_ops/core/cc/rows_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"

namespace tfo {
namespace {

// What a row's label says.
template <typename T>
struct LabelOfRow {
  int64_t label;
  bool ignored, bad;
  Accumulator<T> logit;  // 0 where the label is no class

  __device__ LabelOfRow(const LabelLossOptions& options, const Labels& labels,
                        const T* logits, int64_t classes, int64_t row)
      : label(labels[row]) {
    const bool is_class = label >= 0 && label < classes;
    ignored = options.ignores && label == options.ignore_index;
    bad = !is_class && !ignored;
    logit = is_class ? Widen(logits[row * classes + label]) : 0;
  }
};

template <typename T>
struct LabelLossRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SoftmaxState<Value, Beside::kTargets>;
  static constexpr int kInputs = 1, kOutputs = 0;
  int64_t classes;
  LabelLossOptions options;
  const T* logits;
  Labels labels;
  Value* loss;
  SoftmaxSums<Value> sums;

  __host__ __device__ const T* Input(int) const { return logits; }
  __host__ __device__ T* Output(int) const { return nullptr; }
  __device__ static T Fill(int) {
    return Narrow<T>(-static_cast<Value>(INFINITY));
  }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    if (options.label_smoothing != 0) {
      // first: how many; second: sum(x - largest)
      AddToSoftmax<T>(
          chunk,
          [&](int step, int i) {
            return chunk.Has(step, i) ? Value(1) : Value(0);
          },
          state);
    } else {
      SoftmaxState<Value, Beside::kNothing> s{state.max, state.rest, 0, 0};
      AddToSoftmax<T>(chunk, s);
      state = {s.max, s.rest, 0, 0};
    }
  }
  __device__ int Finish(const State& s, int64_t row, int64_t,
                        bool write) const {
    if (!write) return 0;
    const LabelOfRow<T> of(options, labels, logits, classes, row);
    const Value log = s.Log(), shift = s.shift();
    // Positive terms alone: what the sum is above 1, how far the label is below
    // the largest.
    Value result = log + (shift - of.logit);
    const Value smoothing = static_cast<Value>(options.label_smoothing);
    if (smoothing != 0) {
      result = (1 - smoothing) * result +
               smoothing * (log - s.second / static_cast<Value>(classes));
    }
    const Value z = static_cast<Value>(options.z_loss);
    if (z != 0) result += z * (shift + log) * (shift + log);
    if (of.bad) result = static_cast<Value>(NAN);
    if (of.ignored) result = 0;
    loss[row] = options.log_prob ? -result : result;
    sums.largest[row] = s.max;
    sums.rest[row] = s.rest;
    return 0;
  }
};

template <typename T>
struct LabelLossGradRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = NoState<Value>;
  static constexpr int kInputs = 1, kOutputs = 1;
  int64_t classes;
  LabelLossOptions options;
  const Value* d_loss;
  const T* logits;
  Labels labels;
  SoftmaxSums<const Value> sums;
  T* d_logits;

  __host__ __device__ const T* Input(int) const { return logits; }
  __host__ __device__ T* Output(int) const { return d_logits; }
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  struct Constants {
    // d/dx = keep ? factor e^(x - shift) - uniform : 0, and at the label's
    // place at_label.
    Value shift, factor, uniform, at_label;
    int place;  // -1 where it is elsewhere
    bool keep;
  };
  __device__ Constants Finish(const State&, int64_t row_index, int64_t origin,
                              bool) const {
    const SoftmaxState<Value, Beside::kNothing> s{sums.largest[row_index],
                                                  sums.rest[row_index], 0, 0};
    const LabelOfRow<T> of(options, labels, logits, classes, row_index);
    Constants row;
    row.shift = s.shift();
    Value d = d_loss[row_index];
    if (options.log_prob) d = -d;
    if (of.bad) d = static_cast<Value>(NAN);
    const Value smoothing = static_cast<Value>(options.label_smoothing);
    const Value each = smoothing / static_cast<Value>(classes);
    // 2 z lse, by which z_loss weighs the probabilities more.
    const Value z = static_cast<Value>(2 * options.z_loss);
    const Value more = z != 0 ? z * (row.shift + s.Log()) : Value(0);
    const Value inverse = s.Inverse();
    row.factor = d * (more + 1) * inverse;
    row.uniform = d * each;
    const Value p = Exp(of.logit - row.shift) * inverse;
    // p - 1, which for the largest is minus the others' share.
    const Value less_one = of.logit == s.max ? -s.rest * inverse : p - 1;
    row.at_label = d * (less_one + more * p + (smoothing - each));
    const int64_t place = of.label - origin;
    row.place = !of.bad && place >= 0 && place < (1 << 30)
                    ? static_cast<int>(place)
                    : -1;
    row.keep = !of.ignored && s.rest != -1;
    return row;
  }
  template <int N>
  __device__ void Map(const Constants& row, const Value (&in)[1][N], int at,
                      Value (&out)[1][N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Value e = ExpFor<T>(in[0][i] - row.shift);
      Value to = row.factor * e - row.uniform;
      if (at + i == row.place) to = row.at_label;
      out[0][i] = row.keep ? to : Value(0);
    }
  }
};

// What the targets are made of: keep * label + each.
template <typename Value>
struct Smoothing {
  Value keep, each;
  Smoothing(double smoothing, int64_t classes)
      : keep(static_cast<Value>(1 - smoothing)),
        each(static_cast<Value>(smoothing / static_cast<double>(classes))) {}
  __device__ Value Target(Value label) const { return label * keep + each; }
};

template <typename T>
struct CrossEntropyRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SoftmaxState<Value, Beside::kTargets>;
  static constexpr int kInputs = 2, kOutputs = 0;
  CrossEntropyArgs<T> args;
  Smoothing<Value> smoothing;

  __host__ __device__ const T* Input(int i) const {
    return i == 0 ? args.logits : args.labels;
  }
  __host__ __device__ T* Output(int) const { return nullptr; }
  __device__ static T Fill(int i) {
    return Narrow<T>(i == 0 ? -static_cast<Value>(INFINITY) : Value(0));
  }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    AddToSoftmax<T>(
        chunk,
        [&](int step, int i) {
          return chunk.Has(step, i) ? smoothing.Target(chunk.Get(1, step, i))
                                    : Value(0);
        },
        state);
  }
  __device__ int Finish(const State& s, int64_t row, int64_t,
                        bool write) const {
    if (!write) return 0;
    args.loss[row] = s.first * s.Log() - s.second;
    args.sums.largest[row] = s.max;
    args.sums.rest[row] = s.rest;
    args.label_sum[row] = s.first;
    return 0;
  }
};

template <typename T>
struct CrossEntropyGradRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = NoState<Value>;
  static constexpr int kInputs = 2, kOutputs = 2;
  CrossEntropyGradArgs<T> args;
  Smoothing<Value> smoothing;

  __host__ __device__ const T* Input(int i) const {
    return i == 0 ? args.logits : args.labels;
  }
  __host__ __device__ T* Output(int i) const {
    return i == 0 ? args.d_logits : args.d_labels;
  }
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  struct Constants {
    Value shift, factor, d, log;
    bool keep;
  };
  __device__ Constants Finish(const State&, int64_t row, int64_t, bool) const {
    const SoftmaxState<Value, Beside::kNothing> s{args.sums.largest[row],
                                                  args.sums.rest[row], 0, 0};
    return {s.shift(), args.label_sum[row] * s.Inverse(), args.d_loss[row],
            s.Log(), s.rest != -1};
  }
  template <int N>
  __device__ void Map(const Constants& row, const Value (&in)[2][N], int,
                      Value (&out)[2][N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Value below = in[0][i] - row.shift;
      const Value t = smoothing.Target(in[1][i]);
      const Value to = row.d * (row.factor * ExpFor<T>(below) - t);
      out[0][i] = row.keep ? to : Value(0);
    }
    if (args.d_labels == nullptr) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      // -log p; a class that has neither probability nor target has no part.
      const Value below = in[0][i] - row.shift;
      const Value t = smoothing.Target(in[1][i]);
      const Value to_label = row.d * smoothing.keep * (row.log - below);
      const bool is_none = below == -static_cast<Value>(INFINITY) && t == 0;
      out[1][i] = is_none ? Value(0) : to_label;
    }
  }
};

}  // namespace

template <typename T>
Error LabelLoss(const Gpu& gpu, const LabelLossArgs<T>& args) {
  const LabelLossRows<T> rows{args.classes, args.options, args.logits,
                              args.labels,  args.loss,    args.sums};
  return RunRowFunction(gpu, rows, args.rows, args.classes, args.scratch);
}
template <typename T>
Error LabelLossGrad(const Gpu& gpu, const LabelLossGradArgs<T>& args) {
  const LabelLossGradRows<T> rows{args.classes, args.options, args.d_loss,
                                  args.logits,  args.labels,  args.sums,
                                  args.d_logits};
  return RunRowFunction(gpu, rows, args.rows, args.classes, nullptr);
}
template <typename T>
Error CrossEntropy(const Gpu& gpu, const CrossEntropyArgs<T>& args) {
  const CrossEntropyRows<T> rows{args, {args.label_smoothing, args.classes}};
  return RunRowFunction(gpu, rows, args.rows, args.classes, args.scratch);
}
template <typename T>
Error CrossEntropyGrad(const Gpu& gpu, const CrossEntropyGradArgs<T>& args) {
  const CrossEntropyGradRows<T> rows{args,
                                     {args.label_smoothing, args.classes}};
  return RunRowFunction(gpu, rows, args.rows, args.classes, nullptr);
}

#define TFO_INSTANTIATE(T)                                               \
  template Error LabelLoss(const Gpu&, const LabelLossArgs<T>&);         \
  template Error LabelLossGrad(const Gpu&, const LabelLossGradArgs<T>&); \
  template Error CrossEntropy(const Gpu&, const CrossEntropyArgs<T>&);   \
  template Error CrossEntropyGrad(const Gpu&, const CrossEntropyGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
