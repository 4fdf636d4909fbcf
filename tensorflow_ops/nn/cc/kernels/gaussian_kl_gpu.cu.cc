#include "tensorflow_ops/core/cc/rows_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl.h"

namespace tfo {
namespace {

// The Gaussians at a place: s_q - s_p, e^(-s_p / 2), and the difference of
// means in p's standard deviations.
template <typename Value>
struct Difference {
  Value log_variances, inverse_deviation, means;
};

// get(input) is a value.
template <bool kUnit, typename Value, typename Get>
__device__ Difference<Value> ReadDifference(const Get& get) {
  const Value q_mean = get(0), q_log = get(1);
  if constexpr (kUnit) {
    return {q_log, 1, q_mean};
  } else {
    const Value p_log = get(3), means = q_mean - get(2);
    // A square would leave the type's range before the result does.
    const Value inverse = Exp(p_log * Value(-0.5));
    return {q_log - p_log, inverse, means == 0 ? Value(0) : means * inverse};
  }
}

template <typename T, bool kUnit>
struct GaussianKlRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = SumsState<Value>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = 0;
  GaussianKlArgs<T, kUnit> args;

  __host__ __device__ const T* Input(int i) const {
    return i == 0   ? args.q_mean
           : i == 1 ? args.q_log_variance
           : i == 2 ? args.p_mean
                    : args.p_log_variance;
  }
  __host__ __device__ T* Output(int) const { return nullptr; }
  // Two unit Gaussians, which do not differ.
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  template <typename Chunk>
  __device__ void Reduce(Chunk& chunk, State& state) const {
    State s;
    ForPlaces(chunk, [&](int step, int i) {
      const auto d = ReadDifference<kUnit, Value>(
          [&](int input) { return chunk.Get(input, step, i); });
      s.first += ExpLessTangent(d.log_variances);
      s.second = d.means * d.means + s.second;
    });
    state = State::Merge(state, s);
  }
  __device__ int Finish(const State& s, int64_t row, int64_t,
                        bool write) const {
    if (write) args.divergence[row] = Value(0.5) * (s.first + s.second);
    return 0;
  }
};

template <typename T, bool kUnit>
struct GaussianKlGradRows {
  using Element = T;
  using Value = Accumulator<T>;
  using State = NoState<Value>;
  using Args = GaussianKlGradArgs<T, kUnit>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = Args::kOutputs;
  Args args;

  __host__ __device__ const T* Input(int i) const {
    return i == 0   ? args.q_mean
           : i == 1 ? args.q_log_variance
           : i == 2 ? args.p_mean
                    : args.p_log_variance;
  }
  __host__ __device__ T* Output(int i) const {
    return i == 0   ? args.d_q_mean
           : i == 1 ? args.d_q_log_variance
           : i == 2 ? args.d_p_mean
                    : args.d_p_log_variance;
  }
  __device__ static T Fill(int) { return Narrow<T>(Value(0)); }

  __device__ Value Finish(const State&, int64_t row, int64_t, bool) const {
    return args.d_divergence[row];
  }
  template <int N>
  __device__ void Map(Value d_row, const Value (&in)[kInputs][N], int,
                      Value (&out)[kOutputs][N]) const {
    const Value half = d_row * Value(0.5);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto d =
          ReadDifference<kUnit, Value>([&](int input) { return in[input][i]; });
      const Value d_mean =
          d.means == 0 ? Value(0) : d_row * d.means * d.inverse_deviation;
      const Value ratio = ExpLessOne(d.log_variances);
      out[0][i] = d_mean;
      out[1][i] = half * ratio;
      if constexpr (!kUnit) {
        out[2][i] = -d_mean;
        out[3][i] = -half * (d.means * d.means + ratio);
      }
    }
  }
};

}  // namespace

template <typename T, bool kUnit>
Error GaussianKl(const Gpu& gpu, const GaussianKlArgs<T, kUnit>& args) {
  return RunRowFunction(gpu, GaussianKlRows<T, kUnit>{args}, args.rows,
                        args.classes, args.scratch);
}
template <typename T, bool kUnit>
Error GaussianKlGrad(const Gpu& gpu, const GaussianKlGradArgs<T, kUnit>& args) {
  return RunRowFunction(gpu, GaussianKlGradRows<T, kUnit>{args}, args.rows,
                        args.classes, nullptr);
}

#define TFO_INSTANTIATE_FOR(T, unit)                                     \
  template Error GaussianKl(const Gpu&, const GaussianKlArgs<T, unit>&); \
  template Error GaussianKlGrad(const Gpu&, const GaussianKlGradArgs<T, unit>&)
#define TFO_INSTANTIATE(T)       \
  TFO_INSTANTIATE_FOR(T, false); \
  TFO_INSTANTIATE_FOR(T, true)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_FOR

}  // namespace tfo
