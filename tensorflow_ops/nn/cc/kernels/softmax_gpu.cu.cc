#include "tensorflow_ops/core/cc/rows_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"

namespace tfo {
namespace {

template <typename T>
struct SoftmaxRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SoftmaxState<Value, Beside::kNothing>;
  static constexpr int kInputs = 1, kOutputs = 1;
  bool log;  // asked for at run time: kernels for each would be twice as many
  const T* logits;
  T* output;

  __host__ __device__ const T* Input(int) const { return logits; }
  __host__ __device__ T* Output(int) const { return output; }
  __device__ static T Fill(int) {
    return Narrow<T>(-static_cast<Value>(INFINITY));
  }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    AddToSoftmax<T>(chunk, state);
  }
  struct Constants {
    Value shift, sum;  // the sum's logarithm or inverse
  };
  __device__ Constants Finish(const State& s, int64_t, int64_t, bool) const {
    return {s.shift(), log ? s.Log() : s.Inverse()};
  }
  template <int N>
  __device__ void Map(const Constants& row, const Value (&in)[1][N], int,
                      Value (&out)[1][N]) const {
    if (log) {
#pragma unroll
      for (int i = 0; i < N; ++i) out[0][i] = in[0][i] - row.shift - row.sum;
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        out[0][i] = ExpFor<T>(in[0][i] - row.shift) * row.sum;
      }
    }
  }
};

template <typename T>
struct SoftmaxGradRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SumsState<Value>;
  static constexpr int kInputs = 2, kOutputs = 1;
  bool log;
  const T *d_output, *output;
  T* d_logits;

  __host__ __device__ const T* Input(int i) const {
    return i == 0 ? d_output : output;
  }
  __host__ __device__ T* Output(int) const { return d_logits; }
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    State s;
    if (log) {
      ForPlaces(chunk,
                [&](int step, int i) { s.first += chunk.Get(0, step, i); });
    } else {
      ForPlaces(chunk, [&](int step, int i) {
        // A class without probability has no part in the gradient, whatever
        // comes in there.
        const Value d = chunk.Get(0, step, i), y = chunk.Get(1, step, i);
        s.first = y == 0 ? s.first : d * y + s.first;
      });
    }
    state = State::Merge(state, s);
  }
  __device__ Value Finish(const State& s, int64_t, int64_t, bool) const {
    return s.first;
  }
  template <int N>
  __device__ void Map(Value sum, const Value (&in)[2][N], int,
                      Value (&out)[1][N]) const {
    if (log) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        out[0][i] = in[0][i] - ExpFor<T>(in[1][i]) * sum;
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Value y = in[1][i];
        out[0][i] = y == 0 ? Value(0) : y * (in[0][i] - sum);
      }
    }
  }
};

template <typename T>
struct EntropyRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SoftmaxState<Value, Beside::kWeighted>;
  static constexpr int kInputs = 1, kOutputs = 0;
  EntropyArgs<T> args;

  __host__ __device__ const T* Input(int) const { return args.logits; }
  __host__ __device__ T* Output(int) const { return nullptr; }
  __device__ static T Fill(int) {
    return Narrow<T>(-static_cast<Value>(INFINITY));
  }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    AddToSoftmax<T>(chunk, state);
  }
  __device__ int Finish(const State& s, int64_t row, int64_t,
                        bool write) const {
    if (!write) return 0;
    // -sum p log p, log p = x - largest - log sum: both terms are positive.
    args.entropy[row] = s.Log() - s.second * s.Inverse();
    args.sums.largest[row] = s.max;
    args.sums.rest[row] = s.rest;
    return 0;
  }
};

template <typename T>
struct EntropyGradRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = NoState<Value>;
  static constexpr int kInputs = 1, kOutputs = 1;
  EntropyGradArgs<T> args;

  __host__ __device__ const T* Input(int) const { return args.logits; }
  __host__ __device__ T* Output(int) const { return args.d_logits; }
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  struct Constants {
    Value shift, factor, added;
  };
  __device__ Constants Finish(const State&, int64_t row, int64_t, bool) const {
    const SoftmaxState<Value, Beside::kNothing> s{args.sums.largest[row],
                                                  args.sums.rest[row], 0, 0};
    return {s.shift(), -args.d_entropy[row] * s.Inverse(),
            args.entropy[row] - s.Log()};
  }
  template <int N>
  __device__ void Map(const Constants& row, const Value (&in)[1][N], int,
                      Value (&out)[1][N]) const {
    // -d p (log p + H)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Value below = ClampForExp(in[0][i] - row.shift);
      out[0][i] = row.factor * ExpFor<T>(below) * (below + row.added);
    }
  }
};

}  // namespace

template <typename T, bool kLog>
Error Softmax(const Gpu& gpu, const SoftmaxArgs<T, kLog>& args) {
  return RunRowFunction(gpu, SoftmaxRows<T>{kLog, args.logits, args.output},
                        args.rows, args.classes, args.scratch);
}
template <typename T, bool kLog>
Error SoftmaxGrad(const Gpu& gpu, const SoftmaxGradArgs<T, kLog>& args) {
  const SoftmaxGradRows<T> rows{kLog, args.d_output, args.output,
                                args.d_logits};
  return RunRowFunction(gpu, rows, args.rows, args.classes, args.scratch);
}
template <typename T>
Error Entropy(const Gpu& gpu, const EntropyArgs<T>& args) {
  return RunRowFunction(gpu, EntropyRows<T>{args}, args.rows, args.classes,
                        args.scratch);
}
template <typename T>
Error EntropyGrad(const Gpu& gpu, const EntropyGradArgs<T>& args) {
  return RunRowFunction(gpu, EntropyGradRows<T>{args}, args.rows, args.classes,
                        nullptr);
}

#define TFO_INSTANTIATE_FOR(T, log)                               \
  template Error Softmax(const Gpu&, const SoftmaxArgs<T, log>&); \
  template Error SoftmaxGrad(const Gpu&, const SoftmaxGradArgs<T, log>&)
#define TFO_INSTANTIATE(T)                                   \
  TFO_INSTANTIATE_FOR(T, false);                             \
  TFO_INSTANTIATE_FOR(T, true);                              \
  template Error Entropy(const Gpu&, const EntropyArgs<T>&); \
  template Error EntropyGrad(const Gpu&, const EntropyGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_FOR

}  // namespace tfo
