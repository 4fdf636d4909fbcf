#include "tensorflow_ops/core/cc/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The Gaussians at some places: s_q - s_p, e^(-s_p / 2), and the difference of
// means in p's standard deviations.
template <typename V>
struct Difference {
  V log_variances, inverse_deviation, means;
};

template <bool kUnit, typename Part, typename E>
TFO_INLINE auto ReadDifference(Part part, const E* const* in, int64_t at) {
  using V = typename Lanes<E>::Vector;
  using Value = typename Lanes<E>::Value;
  const V q_mean = part.Load(in[0] + at, 0), q_log = part.Load(in[1] + at, 0);
  if constexpr (kUnit) {
    return Difference<V>{q_log, V{} + Value(1), q_mean};
  } else {
    const V p_log = part.Load(in[3] + at, 0);
    const V means = q_mean - part.Load(in[2] + at, 0);
    // A square would leave the type's range before the result does.
    const V inverse = Exp(p_log * Value(-0.5));
    return Difference<V>{q_log - p_log, inverse,
                         means == 0 ? V{} : means * inverse};
  }
}

}  // namespace

template <typename T, bool kUnit>
struct RowFunction<GaussianKlArgs<T, kUnit>> {
  using Args = GaussianKlArgs<T, kUnit>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SumsState<V>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = 0;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int i) const {
    const T* const all[] = {args.q_mean, args.q_log_variance, args.p_mean,
                            args.p_log_variance};
    return all[i];
  }
  T* Output(int) const { return nullptr; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    return ReduceBlocks<E, State>(n, [&](int64_t begin, int64_t size) {
      State s;
      ForVectors<E>(size, [&](auto part, int64_t at) {
        const auto d = ReadDifference<kUnit>(part, in, begin + at);
        s.first += ExpLessTangent(d.log_variances);
        s.second = MulAdd(d.means, d.means, s.second);
      });
      return s;
    });
  }
  template <typename Rows>
  TFO_INLINE int Finish(const State& s, Rows rows, bool write) const {
    if (write) rows.Store(Value(0.5) * (s.first + s.second), args.divergence);
    return 0;
  }
};

template <typename T, bool kUnit>
struct RowFunction<GaussianKlGradArgs<T, kUnit>> {
  using Args = GaussianKlGradArgs<T, kUnit>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SumsState<V>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = Args::kOutputs;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int i) const {
    const T* const all[] = {args.q_mean, args.q_log_variance, args.p_mean,
                            args.p_log_variance};
    return all[i];
  }
  T* Output(int i) const {
    T* const all[] = {args.d_q_mean, args.d_q_log_variance, args.d_p_mean,
                      args.d_p_log_variance};
    return all[i];
  }

  template <typename E>
  TFO_INLINE State Reduce(const E* const*, int64_t) const {
    return State();
  }
  template <typename Rows>
  TFO_INLINE V Finish(const State&, Rows rows, bool) const {
    return rows.Load(args.d_divergence);
  }
  template <typename Rows, typename Part, typename E>
  TFO_INLINE void Map(V d_row, Rows, Part part, const E* const* in,
                      E* const* out, int64_t at) const {
    const auto d = ReadDifference<kUnit>(part, in, at);
    const V d_mean = d.means == 0 ? V{} : d_row * d.means * d.inverse_deviation;
    const V ratio = ExpLessOne(d.log_variances), half = d_row * Value(0.5);
    part.Store(d_mean, out[0] + at);
    part.Store(half * ratio, out[1] + at);
    if constexpr (!kUnit) {
      part.Store(-d_mean, out[2] + at);
      part.Store(-half * MulAdd(d.means, d.means, ratio), out[3] + at);
    }
  }
};

#define TFO_DEFINE_FOR(T, unit)                     \
  TFO_DEFINE_ROW_FUNCTION(GaussianKlArgs<T, unit>); \
  TFO_DEFINE_ROW_FUNCTION(GaussianKlGradArgs<T, unit>)
#define TFO_DEFINE(T)       \
  TFO_DEFINE_FOR(T, false); \
  TFO_DEFINE_FOR(T, true)
TFO_DEFINE(float);
TFO_DEFINE(double);
TFO_DEFINE(Half);
TFO_DEFINE(BFloat16);
#undef TFO_DEFINE
#undef TFO_DEFINE_FOR

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
