// Attention and its gradients against loops in double.
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_dropout.h"

namespace tfo {
namespace {

using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::RandomValues;
using testing::ThreadedCpu;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
  GpuVector<int32_t> lengths, key_lengths, query_offset;
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
            KeyRows()};
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
  p.query = testing::ToGpu(RandomValues<T>(rows * s.depth, 1));
  p.key = testing::ToGpu(RandomValues<T>(key_rows * s.depth, 2));
  p.value = testing::ToGpu(RandomValues<T>(key_rows * s.value_depth, 3));
  p.d_output = testing::ToGpu(RandomValues<T>(rows * s.value_depth, 4));
  // Gradients below 1 are compared absolutely.
  for (T& d : p.d_output) d = Narrow<T>(Widen(d) / 16);
  p.d_log_sum_exp = testing::ToGpu(RandomValues<C>(rows, 5));
  for (C& d : p.d_log_sum_exp) d /= 16;
  return p;
}

// The shape of a mask or bias, and its strides.
int64_t Broadcast(const AttentionSpec& spec, int broadcast,
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
  p->options += testing::Text(" mask ", broadcast);
  const int64_t n = Broadcast(p->spec, broadcast, &p->mask_strides);
  const auto values = RandomValues<float>(n, 6);
  p->mask.resize(n);
  for (int64_t i = 0; i < n; ++i) p->mask[i] = values[i] < 0.5f;
}

template <typename T>
void AddBias(int broadcast, Problem<T>* p) {
  p->options += testing::Text(" bias ", broadcast);
  const int64_t n = Broadcast(p->spec, broadcast, &p->bias_strides);
  p->bias = testing::ToGpu(RandomValues<T>(n, 7));
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
      p->sinks = testing::ToGpu(RandomValues<C>(spec.heads, 8));
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

struct Result {
  std::vector<double> output, log_sum_exp;
  std::vector<double> d_query, d_key, d_value, d_bias, d_sinks;
};

// The definition.
template <typename T>
Result Reference(const Problem<T>& p) {
  const AttentionSpec& spec = p.spec;
  Result r;
  const bool ragged = !p.query_splits.empty();
  r.output.assign(p.d_output.size(), 0);
  r.log_sum_exp.assign(p.d_log_sum_exp.size(), -kInfinity);
  r.d_query.assign(p.query.size(), 0);
  r.d_key.assign(p.key.size(), 0);
  r.d_value.assign(p.value.size(), 0);
  r.d_bias.assign(p.bias.size(), 0);
  r.d_sinks.assign(p.sinks.size(), 0);
  const double threshold = std::round(65536 * spec.dropout);
  for (int64_t b = 0; b < spec.batch; ++b) {
    int64_t first = b * spec.queries, queries = spec.queries;
    int64_t first_key = b * spec.keys, keys = spec.keys;
    if (ragged) {
      first = p.query_splits[b];
      queries = p.query_splits[b + 1] - first;
      first_key = p.key_splits[b];
      keys = p.key_splits[b + 1] - first_key;
    }
    const int64_t all = queries;
    if (!p.lengths.empty()) queries = p.lengths[b];
    if (!p.key_lengths.empty()) keys = p.key_lengths[b];
    const int64_t offset =
        p.query_offset.empty() ? keys - queries : p.query_offset[b];
    for (int64_t n = 0; n < spec.heads; ++n) {
      const int64_t kn = n / (spec.heads / spec.key_heads);
      for (int64_t t = 0; t < all; ++t) {
        const int64_t row = (first + t) * spec.heads + n;
        const int64_t lse_at = ragged ? n * p.QueryRows() + first + t
                                      : (b * spec.heads + n) * all + t;
        const double sink = p.sinks.empty() ? -kInfinity : p.sinks[n];
        r.log_sum_exp[lse_at] = sink;
        if (t >= queries) continue;
        const int64_t i = t + offset;
        // Scores of the keys, and their derivatives along scale * product.
        std::vector<int64_t> attended;
        std::vector<double> scores, slopes;
        double high = sink;
        bool is_nan = std::isnan(sink);
        for (int64_t j = 0; j < keys; ++j) {
          if (j < i - spec.left || j > i + spec.right) continue;
          const auto at = [&](const AttentionStrides& strides) {
            return b * strides.batch + n * strides.head + t * strides.query +
                   j * strides.key;
          };
          if (!p.mask.empty() && !p.mask[at(p.mask_strides)]) continue;
          const int64_t key_row = (first_key + j) * spec.key_heads + kn;
          double s = 0;
          for (int64_t d = 0; d < spec.depth; ++d) {
            s += double{Widen(p.query[row * spec.depth + d])} *
                 Widen(p.key[key_row * spec.depth + d]);
          }
          s *= spec.scale;
          double slope = 1;
          if (spec.softcap != 0) {
            const double tanh = std::tanh(s / spec.softcap);
            s = spec.softcap * tanh;
            slope = 1 - tanh * tanh;
          }
          if (!p.slopes.empty()) {
            const size_t of =
                p.slopes.size() > size_t(spec.heads) ? b * spec.heads + n : n;
            s -= double{p.slopes[of]} * std::abs(double(i - j));
          }
          if (!p.bias.empty()) s += Widen(p.bias[at(p.bias_strides)]);
          if (s == -kInfinity) continue;
          is_nan |= std::isnan(s) || s == kInfinity;
          attended.push_back(j);
          scores.push_back(s);
          slopes.push_back(slope);
          high = std::max(high, s);
        }
        double sum = sink == -kInfinity ? 0 : std::exp(sink - high);
        for (double s : scores) sum += std::exp(s - high);
        const double lse = is_nan     ? double(NAN)
                           : sum == 0 ? -kInfinity
                                      : high + std::log(sum);
        r.log_sum_exp[lse_at] = lse;
        std::vector<double> weights, kept;
        for (size_t m = 0; m < scores.size(); ++m) {
          weights.push_back(std::exp(scores[m] - lse));
          double factor = 1;
          if (threshold > 0) {
            const int64_t j = attended[m];
            uint32_t words[4] = {uint32_t(j / 8), uint32_t(t),
                                 uint32_t(b * spec.heads + n), 0};
            Philox(p.seed.data(), words);
            const uint32_t word = words[j % 8 / 2] >> (j % 2 * 16) & 0xFFFF;
            factor = word >= threshold ? 65536 / (65536 - threshold) : 0;
          }
          kept.push_back(factor);
        }
        double delta = -double{p.d_log_sum_exp[lse_at]};
        for (int64_t c = 0; c < spec.value_depth; ++c) {
          double& out = r.output[row * spec.value_depth + c];
          for (size_t m = 0; m < scores.size(); ++m) {
            const int64_t key_row =
                (first_key + attended[m]) * spec.key_heads + kn;
            const double value = Widen(p.value[key_row * spec.value_depth + c]);
            if (kept[m] != 0) out += weights[m] * kept[m] * value;
          }
          delta += out * Widen(p.d_output[row * spec.value_depth + c]);
        }
        if (!p.sinks.empty() && sink != -kInfinity) {
          r.d_sinks[n] -= std::exp(sink - lse) * delta;
        }
        for (size_t m = 0; m < scores.size(); ++m) {
          const int64_t j = attended[m];
          const int64_t key_row = (first_key + j) * spec.key_heads + kn;
          double d_weight = 0;
          for (int64_t c = 0; c < spec.value_depth && kept[m] != 0; ++c) {
            const double d = Widen(p.d_output[row * spec.value_depth + c]);
            const int64_t at = key_row * spec.value_depth + c;
            d_weight += kept[m] * d * Widen(p.value[at]);
            r.d_value[at] += kept[m] * weights[m] * d;
          }
          const double d_score = weights[m] * (d_weight - delta);
          if (!p.bias.empty()) {
            r.d_bias[b * p.bias_strides.batch + n * p.bias_strides.head +
                     t * p.bias_strides.query + j * p.bias_strides.key] +=
                d_score;
          }
          const double d_product = d_score * slopes[m] * spec.scale;
          for (int64_t d = 0; d < spec.depth; ++d) {
            const int64_t query_at = row * spec.depth + d;
            const int64_t key_at = key_row * spec.depth + d;
            r.d_query[query_at] += d_product * Widen(p.key[key_at]);
            r.d_key[key_at] += d_product * Widen(p.query[query_at]);
          }
        }
      }
    }
  }
  return r;
}

template <typename T>
struct Outputs {
  using C = Accumulator<T>;
  GpuVector<T> output, d_query, d_key, d_value, d_bias;
  GpuVector<C> log_sum_exp, d_sinks;

  // NaN, since all of them must be written.
  explicit Outputs(const Problem<T>& p)
      : output(p.d_output.size(), Narrow<T>(C(NAN))),
        d_query(p.query.size(), Narrow<T>(C(NAN))),
        d_key(p.key.size(), Narrow<T>(C(NAN))),
        d_value(p.value.size(), Narrow<T>(C(NAN))),
        d_bias(p.bias.size(), Narrow<T>(C(NAN))),
        log_sum_exp(p.d_log_sum_exp.size(), C(NAN)),
        d_sinks(p.sinks.size(), C(NAN)) {}

  AttentionArgs<T> Args(const Problem<T>& p) {
    return {p.Operands(), output.data(), log_sum_exp.data()};
  }
  AttentionGradArgs<T> GradArgs(const Problem<T>& p) {
    return {p.Operands(),
            output.data(),
            log_sum_exp.data(),
            p.d_output.data(),
            p.d_log_sum_exp.data(),
            d_query.data(),
            d_key.data(),
            d_value.data(),
            d_bias.empty() ? nullptr : d_bias.data(),
            d_sinks.empty() ? nullptr : d_sinks.data()};
  }
  template <typename Device>
  void Compute(const Device& device, const Problem<T>& p) {
    TFO_EXPECT_RUNS(Attention(device, Args(p)));
    TFO_EXPECT_RUNS(AttentionGrad(device, GradArgs(p)));
  }
  void Expect(const Result& expected) const {
    ExpectClose("output", output, expected.output);
    GpuVector<C> sums = log_sum_exp;
    std::vector<double> expected_sums = expected.log_sum_exp;
    for (size_t i = 0; i < sums.size(); ++i) {
      // -inf equals itself, but their difference is NaN.
      if (double{sums[i]} != expected_sums[i]) continue;
      sums[i] = 0;
      expected_sums[i] = 0;
    }
    ExpectClose("log_sum_exp", sums, expected_sums);
    ExpectClose("d_query", d_query, expected.d_query);
    ExpectClose("d_key", d_key, expected.d_key);
    ExpectClose("d_value", d_value, expected.d_value);
    ExpectClose("d_bias", d_bias, expected.d_bias);
    // Sums of rounded outputs.
    GpuVector<T> d_rounded;
    for (C d : d_sinks) d_rounded.push_back(Narrow<T>(d));
    ExpectClose("d_sinks", d_rounded, expected.d_sinks);
  }
  bool Equals(const Outputs& other) const {
    return HaveSameBits(output, other.output) &&
           HaveSameBits(log_sum_exp, other.log_sum_exp) &&
           HaveSameBits(d_query, other.d_query) &&
           HaveSameBits(d_key, other.d_key) &&
           HaveSameBits(d_value, other.d_value) &&
           HaveSameBits(d_bias, other.d_bias) &&
           HaveSameBits(d_sinks, other.d_sinks);
  }
};

template <typename T>
testing::Case CaseOf(const Problem<T>& p, const testing::Caller& caller) {
  const AttentionSpec& s = p.spec;
  return testing::Case(caller, testing::NameOf<T>(), s.batch, " x ", s.queries,
                       " x ", s.keys, ", heads ", s.heads, " on ", s.key_heads,
                       ", depth ", s.depth, ", ", s.value_depth, p.options);
}

template <typename T>
void Check(const Problem<T>& p, const testing::Caller& caller = {}) {
  const testing::Case of_test = CaseOf(p, caller);
  Outputs<T> one(p);
  one.Compute(ThreadedCpu(1), p);
  one.Expect(Reference(p));
  for (int threads : {2, 7}) {
    Outputs<T> other(p);
    other.Compute(ThreadedCpu(threads), p);
    TFO_EXPECT(other.Equals(one));
  }
}

template <typename T>
void ComputeOnGpu(const Problem<T>& p, Outputs<T>* outputs) {
  GpuVector<char> scratch(
      AttentionGradScratchBytes<T>(outputs->log_sum_exp.size()));
  Gpu gpu;
  gpu.scratch = scratch.data();
  outputs->Compute(gpu, p);
}
template <typename T>
void CheckGpu(const Problem<T>& p, const testing::Caller& caller = {}) {
  const testing::Case of_test = CaseOf(p, caller);
  Outputs<T> one(p), other(p);
  ComputeOnGpu(p, &one);
  one.Expect(Reference(p));
  ComputeOnGpu(p, &other);
  TFO_EXPECT(other.Equals(one));
}

template <typename T>
void CheckSizes() {
  // Rows of panels and of blocks that are full, and not.
  Check(MakeProblem<T>({2, 33, 113, 2, 1, 64, 64}));
  Check(MakeProblem<T>({1, 130, 225, 1, 1, 20, 33}));
  Check(MakeProblem<T>({1, 1, 5, 6, 3, 1, 1}));
  Check(MakeProblem<T>({3, 32, 7, 4, 4, 8, 96}));
  // Depths of more than a tile has.
  Check(MakeProblem<T>({1, 9, 12, 2, 2, 300, 270}));
}

// Lanes beyond a panel must not decide when sums are corrected.
TFO_TEST(Attention, PartialPanelsDoNotDependOnThreads) {
  Problem<float> p = MakeProblem<float>({1, 40, 230, 2, 2, 8, 8});
  for (float& x : p.query) x *= 3;
  p.spec.left = 11;
  p.query_offset = {0};
  Check(p);
}

TFO_TEST(Attention, EqualsDoubleLoops) {
  CheckSizes<float>();
  CheckSizes<double>();
  CheckSizes<Half>();
  CheckSizes<BFloat16>();
}

TFO_TEST(Attention, OptionsEqualDoubleLoops) {
  for (int option = 0; option < kNumOptions; ++option) {
    Problem<float> p = MakeProblem<float>({2, 150, 131, 2, 1, 8, 12});
    AddOption(option, &p);
    Check(p);
  }
}

TFO_TEST(Attention, PairsOfOptionsEqualDoubleLoops) {
  for (int one = 0; one < kNumOptions; ++one) {
    for (int two = one + 1; two < kNumOptions; ++two) {
      if (one == 4 && two == 5) continue;  // both are slopes
      Problem<double> p = MakeProblem<double>({2, 17, 30, 4, 2, 5, 3});
      AddOption(one, &p);
      AddOption(two, &p);
      Check(p);
    }
  }
}

template <typename T>
void CheckAllOptions() {
  Problem<T> p = MakeProblem<T>({3, 40, 130, 4, 2, 16, 24});
  for (int option = 0; option < kNumOptions - 1; ++option) {
    if (option != 4) AddOption(option, &p);
  }
  p.spec.left = 60;
  Check(p);
}

TFO_TEST(Attention, AllOptionsTogetherEqualDoubleLoops) {
  CheckAllOptions<float>();
  CheckAllOptions<double>();
  CheckAllOptions<Half>();
  CheckAllOptions<BFloat16>();
}

TFO_TEST(Attention, MasksAndBiasesBroadcast) {
  for (int broadcast = 0; broadcast < 16; ++broadcast) {
    Problem<float> p = MakeProblem<float>({2, 131, 115, 2, 2, 6, 6});
    AddMask(broadcast, &p);
    AddBias(15 - broadcast, &p);
    Check(p);
  }
}

// Fewer queries than keys and more, aligned at the last or elsewhere.
template <typename T>
void CheckCausalRows() {
  for (const auto& [queries, keys] :
       {std::pair{300, 290}, {290, 300}, {5, 240}, {240, 5}}) {
    for (int option : {0, 1}) {
      Problem<T> p = MakeProblem<T>({1, queries, keys, 2, 1, 16, 16});
      AddOption(option, &p);
      Check(p);
      AddOption(2, &p);
      Check(p);
    }
  }
}

TFO_TEST(Attention, CausalRowsEqualDoubleLoops) {
  CheckCausalRows<float>();
  // Windows begin and end within pairs.
  CheckCausalRows<BFloat16>();
}

// Threads share the gradients to a head's queries: each tile gets those of many
// blocks of keys, or of few, or of none.
TFO_TEST(Attention, BlocksOfAHeadTakeTurns) {
  constexpr int64_t kAll = int64_t{1} << 40;
  for (const auto& [left, right, offset] : {std::tuple{kAll, kAll, 0},
                                            {kAll, int64_t{0}, 300},
                                            {int64_t{150}, int64_t{0}, 100},
                                            {int64_t{0}, int64_t{400}, 0},
                                            {int64_t{20}, int64_t{20}, 700}}) {
    Problem<float> p = MakeProblem<float>({1, 600, 900, 2, 1, 8, 8});
    p.spec.left = left;
    p.spec.right = right;
    p.query_offset = {offset};
    p.options = testing::Text(" window ", left, ", ", right, ", ", offset);
    Check(p);
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

TFO_TEST(Attention, RaggedExamplesEqualDoubleLoops) {
  Problem<float> p = MakeRagged<float>();
  Check(p);
  AddOption(0, &p);
  AddBias(9, &p);
  Check(p);
}

template <typename T>
void CheckRaggedOptions() {
  Problem<T> all = MakeRagged<T>();
  for (int option = 0; option < kNumOptions; ++option) {
    if (option == 9 || option == 10) continue;  // the splits are the lengths
    Problem<T> p = MakeRagged<T>();
    AddOption(option, &p);
    Check(p);
    // Slopes of the heads or of the examples.
    if (option != 4 && option != 12) AddOption(option, &all);
  }
  all.spec.left = 30;
  Check(all);
}

TFO_TEST(Attention, OptionsOfRaggedExamplesEqualDoubleLoops) {
  CheckRaggedOptions<float>();
  CheckRaggedOptions<BFloat16>();
}

template <typename T>
void CheckWithoutLogSumExp() {
  Problem<T> p = MakeProblem<T>({2, 40, 120, 2, 1, 16, 24});
  AddOption(9, &p);
  Outputs<T> with(p), without(p);
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(2), with.Args(p)));
  AttentionArgs<T> args = without.Args(p);
  args.log_sum_exp = nullptr;
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(2), args));
  TFO_EXPECT(HaveSameBits(without.output, with.output));
  // And its gradient, which is 0 then.
  std::fill(p.d_log_sum_exp.begin(), p.d_log_sum_exp.end(), 0);
  TFO_EXPECT_RUNS(AttentionGrad(ThreadedCpu(2), with.GradArgs(p)));
  std::copy(with.log_sum_exp.begin(), with.log_sum_exp.end(),
            without.log_sum_exp.begin());
  AttentionGradArgs<T> grad_args = without.GradArgs(p);
  grad_args.d_log_sum_exp = nullptr;
  TFO_EXPECT_RUNS(AttentionGrad(ThreadedCpu(2), grad_args));
  TFO_EXPECT(without.Equals(with));
}

TFO_TEST(Attention, LogSumExpIsOptional) {
  CheckWithoutLogSumExp<float>();
  CheckWithoutLogSumExp<BFloat16>();
}

TFO_TEST(Attention, EmptyInputsAreDone) {
  for (const Sizes& sizes : {Sizes{0, 3, 3, 2, 1, 4, 4},
                             {2, 0, 3, 2, 1, 4, 4},
                             {2, 3, 0, 2, 1, 4, 4},
                             {2, 3, 3, 2, 1, 0, 4},
                             {2, 3, 3, 2, 1, 4, 0}}) {
    Problem<float> p = MakeProblem<float>(sizes);
    p.spec.scale = 1;
    Check(p);
    AddBias(15, &p);
    AddOption(6, &p);
    Check(p);
  }
}

TFO_TEST(Attention, RowsWithoutKeysAreZero) {
  Problem<float> p = MakeProblem<float>({2, 40, 120, 2, 1, 8, 8});
  AddMask(0, &p);
  for (int64_t t = 0; t < 40; t += 3) {
    std::fill_n(p.mask.begin() + t * 120, 120, 0);
  }
  Check(p);
  Outputs<float> outputs(p);
  outputs.Compute(ThreadedCpu(1), p);
  TFO_EXPECT_EQ(outputs.output[0], 0.0f);
  TFO_EXPECT_EQ(outputs.log_sum_exp[0], -static_cast<float>(kInfinity));
  TFO_EXPECT_EQ(outputs.d_query[0], 0.0f);
  AddOption(6, &p);
  p.sinks[1] = -static_cast<float>(kInfinity);
  Check(p);
  outputs = Outputs<float>(p);
  outputs.Compute(ThreadedCpu(1), p);
  TFO_EXPECT_EQ(outputs.output[0], 0.0f);
  TFO_EXPECT_EQ(outputs.log_sum_exp[0], p.sinks[0]);
  // Whole panels, and whole blocks of others.
  std::fill_n(p.mask.begin(), 33 * 120, 0);
  for (int64_t t = 33; t < 40; ++t) {
    std::fill_n(p.mask.begin() + t * 120 + 112, 8, 0);
  }
  p.sinks[0] = -static_cast<float>(kInfinity);
  Check(p);
}

// The same as Check where results are NaN or infinite: those of the reference
// are then, too.
template <typename T>
void ExpectSameNumbers(const char* name, GpuVector<T> actual,
                       std::vector<double> expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isfinite(expected[i]) || std::isfinite(Widen(actual[i]))) continue;
    actual[i] = T{};
    expected[i] = 0;
  }
  ExpectClose(name, actual, expected);
}
// Kernels on a GPU are not linked under the thread sanitizer.
template <typename Device = Cpu, typename T>
void CheckWild(const Problem<T>& p, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), p.options);
  const Result expected = Reference(p);
  Outputs<T> outputs(p);
  if constexpr (std::is_same_v<Device, Gpu>) {
    ComputeOnGpu(p, &outputs);
  } else {
    outputs.Compute(ThreadedCpu(2), p);
  }
  ExpectSameNumbers("output", outputs.output, expected.output);
  ExpectSameNumbers("log_sum_exp", outputs.log_sum_exp, expected.log_sum_exp);
  ExpectSameNumbers("d_query", outputs.d_query, expected.d_query);
  ExpectSameNumbers("d_key", outputs.d_key, expected.d_key);
  ExpectSameNumbers("d_value", outputs.d_value, expected.d_value);
  ExpectSameNumbers("d_bias", outputs.d_bias, expected.d_bias);
  ExpectSameNumbers("d_sinks", outputs.d_sinks, expected.d_sinks);
}

// Numbers in rows of a tensor [batch, rows, row].
template <typename T>
void Spoil(GpuVector<T>* values, int64_t rows, int64_t row) {
  for (int64_t i = 0; i < rows; i += 5) {
    const double wild[] = {NAN, kInfinity, -kInfinity};
    const auto c = static_cast<Accumulator<T>>(wild[i / 5 % 3]);
    (*values)[i * row + i % row] = Narrow<T>(c);
  }
}

template <typename T, typename Device = Cpu>
void CheckSpoiled() {
  const Sizes sizes = {2, 30, 121, 2, 1, 7, 9};
  for (int tensor = 0; tensor < 5; ++tensor) {
    for (int option : {0, 8, 10}) {  // excludes pairs
      Problem<T> p = MakeProblem<T>(sizes);
      AddOption(option, &p);
      p.options += testing::Text(", spoiled ", tensor);
      // Three of four queries see no key that Spoil chooses.
      for (size_t i = 0; i < p.mask.size(); ++i) {
        const int64_t row = i / (2 * 30 * 121) * 121 + i % 121;
        if (row % 5 == 0 && i / 121 % 4 != 0) p.mask[i] = 0;
      }
      if (tensor == 0) Spoil(&p.query, 2 * 30 * 2, 7);
      if (tensor == 1) Spoil(&p.key, 2 * 121, 7);
      if (tensor == 2) Spoil(&p.value, 2 * 121, 9);
      if (tensor == 3) Spoil(&p.d_output, 2 * 30 * 2, 9);
      if (tensor == 4) {
        AddBias(0, &p);
        Spoil(&p.bias, 2 * 2 * 30, 121);
      }
      CheckWild<Device>(p);
    }
  }
}

TFO_TEST(Attention, NansOfExcludedPairsStayAway) {
  CheckSpoiled<float>();
  CheckSpoiled<double>();
  CheckSpoiled<BFloat16>();
  // The last pair of an odd number of queries.
  Problem<BFloat16> odd = MakeProblem<BFloat16>({2, 1, 121, 2, 1, 7, 9});
  AddOption(0, &odd);
  Spoil(&odd.key, 2 * 121, 7);
  CheckWild(odd);
}

TFO_TEST(Attention, RowsOfNanScoresAreNanAlone) {
  Problem<float> p = MakeProblem<float>({1, 40, 20, 1, 1, 8, 8});
  AddOption(0, &p);
  p.query[3 * 8] = NAN;
  p.key[0] = static_cast<float>(kInfinity);  // of key 0: seen by those after 20
  Outputs<float> outputs(p);
  outputs.Compute(ThreadedCpu(1), p);
  CheckWild(p);
  for (int64_t t = 0; t < 20; ++t) TFO_EXPECT_EQ(outputs.output[t * 8], 0.0f);
}

TFO_TEST(Attention, LargeScoresDoNotOverflow) {
  Problem<Half> p = MakeProblem<Half>({1, 4, 3, 1, 1, 128, 2});
  std::fill(p.query.begin(), p.query.end(), Narrow<Half>(30));
  std::fill(p.key.begin(), p.key.end(), Narrow<Half>(30));
  p.spec.scale = 1;
  Outputs<Half> outputs(p);
  outputs.Compute(ThreadedCpu(1), p);
  const Result expected = Reference(p);
  ExpectClose("output", outputs.output, expected.output);
  ExpectClose("log_sum_exp", outputs.log_sum_exp, expected.log_sum_exp);
  Problem<float> q = MakeProblem<float>({1, 40, 230, 1, 1, 4, 4});
  AddBias(0, &q);
  for (float& b : q.bias) b *= 1e4f;
  q.sinks = {1e4f};
  CheckWild(q);
  q.sinks = {-1e4f};
  CheckWild(q);
  Problem<float> r = MakeProblem<float>({1, 40, 230, 1, 1, 4, 4});
  r.spec.scale = -300;
  Outputs<float> of_negative(r);
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), of_negative.Args(r)));
  ExpectClose("log_sum_exp", of_negative.log_sum_exp, Reference(r).log_sum_exp);
}

TFO_TEST(Attention, ManyKeysKeepTheSum) {
  Problem<float> p = MakeProblem<float>({1, 1, 70000, 1, 1, 1, 1});
  p.query[0] = 0;
  std::fill(p.value.begin(), p.value.end(), 0.3f);
  Outputs<float> outputs(p);
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), outputs.Args(p)));
  ExpectClose("output", outputs.output, {0.3});
  ExpectClose("log_sum_exp", outputs.log_sum_exp, {std::log(70000.0)});
}

TFO_TEST(Attention, PhiloxEqualsItsPublishedVectors) {
  const uint32_t kCases[][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8},
      {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF,
       0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD},
      {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0,
       0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}};
  for (const auto& one : kCases) {
    uint32_t counter[4] = {one[0], one[1], one[2], one[3]};
    Philox(one + 4, counter);
    for (int i = 0; i < 4; ++i) TFO_EXPECT_EQ(counter[i], one[6 + i]);
  }
}

TFO_TEST(Attention, DropoutOfAllIsZero) {
  Problem<float> p = MakeProblem<float>({1, 5, 20, 1, 1, 4, 4});
  AddOption(11, &p);
  p.spec.dropout = 0.999999;  // rounds to 1
  Outputs<float> outputs(p);
  outputs.Compute(ThreadedCpu(1), p);
  for (float x : outputs.output) TFO_EXPECT_EQ(x, 0.0f);
  for (float x : outputs.d_value) TFO_EXPECT_EQ(x, 0.0f);
}

// Around tiles of 64 rows, of 64 and 32 columns, and chunks of 128 bytes of the
// depth; depths of packs and not.
template <typename T>
void CheckGpuSizes() {
  CheckGpu(MakeProblem<T>({1, 65, 63, 2, 1, 64, 64}));
  CheckGpu(MakeProblem<T>({1, 64, 130, 1, 1, 20, 33}));
  CheckGpu(MakeProblem<T>({1, 1, 5, 6, 3, 1, 1}));
  CheckGpu(MakeProblem<T>({2, 32, 7, 4, 4, 8, 96}));
  CheckGpu(MakeProblem<T>({1, 9, 65, 1, 1, 72, 136}));
  CheckGpu(MakeProblem<T>({1, 5, 70, 1, 1, 300, 270}));
}

TFO_CUDA_TEST(Attention, KernelsEqualDoubleLoops) {
  CheckGpuSizes<float>();
  CheckGpuSizes<double>();
  CheckGpuSizes<Half>();
  CheckGpuSizes<BFloat16>();
}

TFO_CUDA_TEST(Attention, KernelsOfAllOptionsEqualDoubleLoops) {
  for (int option = 0; option < kNumOptions; ++option) {
    Problem<float> p = MakeProblem<float>({2, 70, 66, 2, 1, 8, 12});
    AddOption(option, &p);
    CheckGpu(p);
    Problem<BFloat16> q = MakeProblem<BFloat16>({2, 19, 70, 2, 1, 8, 12});
    AddOption(option, &q);
    CheckGpu(q);
  }
  for (int one = 0; one < kNumOptions; ++one) {
    for (int two = one + 1; two < kNumOptions; ++two) {
      if (one == 4 && two == 5) continue;  // both are slopes
      Problem<double> p = MakeProblem<double>({2, 17, 40, 2, 1, 5, 3});
      AddOption(one, &p);
      AddOption(two, &p);
      CheckGpu(p);
    }
  }
}

TFO_CUDA_TEST(Attention, KernelsAcceptEachBroadcast) {
  for (int broadcast = 0; broadcast < 16; ++broadcast) {
    Problem<float> p = MakeProblem<float>({2, 67, 70, 2, 2, 6, 6});
    AddMask(broadcast, &p);
    AddBias(15 - broadcast, &p);
    CheckGpu(p);
  }
}

TFO_CUDA_TEST(Attention, KernelsOfCausalRowsEqualDoubleLoops) {
  for (const auto& [queries, keys] :
       {std::pair{150, 140}, {140, 150}, {5, 140}, {140, 5}}) {
    for (int option : {0, 1}) {
      Problem<Half> p = MakeProblem<Half>({1, queries, keys, 2, 1, 16, 16});
      AddOption(option, &p);
      CheckGpu(p);
      AddOption(2, &p);
      CheckGpu(p);
    }
  }
}

TFO_CUDA_TEST(Attention, KernelsOfRaggedExamplesEqualDoubleLoops) {
  Problem<float> p = MakeRagged<float>();
  CheckGpu(p);
  AddOption(0, &p);
  AddBias(9, &p);
  CheckGpu(p);
  CheckGpu(MakeRagged<Half>());
}

TFO_CUDA_TEST(Attention, KernelsWriteResultsOfEmptyInputs) {
  for (const Sizes& sizes : {Sizes{0, 3, 3, 2, 1, 4, 4},
                             {2, 0, 3, 2, 1, 4, 4},
                             {2, 3, 0, 2, 1, 4, 4},
                             {2, 3, 3, 2, 1, 0, 4},
                             {2, 3, 3, 2, 1, 4, 0},
                             {2, 3, 3, 2, 1, 0, 0}}) {
    Problem<float> p = MakeProblem<float>(sizes);
    p.spec.scale = 1;
    CheckGpu(p);
    AddBias(15, &p);
    AddOption(6, &p);
    CheckGpu(p);
  }
  Problem<float> p = MakeProblem<float>({2, 40, 120, 2, 1, 8, 8});
  AddMask(0, &p);
  for (int64_t t = 0; t < 40; t += 3) {
    std::fill_n(p.mask.begin() + t * 120, 120, 0);
  }
  CheckGpu(p);
  AddOption(6, &p);
  p.sinks[1] = -static_cast<float>(kInfinity);
  CheckGpu(p);
}

TFO_CUDA_TEST(Attention, KernelsKeepNansOfExcludedPairsAway) {
  CheckSpoiled<float, Gpu>();
  CheckSpoiled<double, Gpu>();
  CheckSpoiled<BFloat16, Gpu>();
  Problem<Half> p = MakeProblem<Half>({1, 40, 70, 1, 1, 8, 8});
  AddOption(0, &p);
  Spoil(&p.value, 70, 8);
  CheckWild<Gpu>(p);
}

TFO_CUDA_TEST(Attention, KernelsDoNotOverflow) {
  Problem<float> p = MakeProblem<float>({1, 40, 130, 1, 1, 4, 4});
  AddBias(0, &p);
  for (float& b : p.bias) b *= 1e4f;
  for (float sink : {1e4f, -1e4f}) {
    p.sinks = {sink};
    CheckWild<Gpu>(p);
  }
}

// Arrays of packs that begin at any value.
TFO_CUDA_TEST(Attention, KernelsAcceptUnalignedArrays) {
  const Problem<Half> p = MakeProblem<Half>({1, 20, 30, 2, 1, 16, 16});
  const Result expected = Reference(p);
  const auto shifted = [](GpuVector<Half> values) {
    values.insert(values.begin(), Half());
    return values;
  };
  const auto unshifted = [](GpuVector<Half> values) {
    values.erase(values.begin());
    return values;
  };
  const GpuVector<Half> query = shifted(p.query), value = shifted(p.value),
                        d_output = shifted(p.d_output);
  Outputs<Half> outputs(p);
  GpuVector<Half> output = shifted(outputs.output),
                  d_query = shifted(outputs.d_query),
                  d_value = shifted(outputs.d_value);
  AttentionArgs<Half> forward = outputs.Args(p);
  forward.query = query.data() + 1;
  forward.value = value.data() + 1;
  forward.output = output.data() + 1;
  TFO_EXPECT_RUNS(Attention(Gpu(), forward));
  AttentionGradArgs<Half> grad = outputs.GradArgs(p);
  static_cast<AttentionOperands<Half>&>(grad) = forward;
  grad.output = forward.output;
  grad.d_output = d_output.data() + 1;
  grad.d_query = d_query.data() + 1;
  grad.d_value = d_value.data() + 1;
  GpuVector<char> scratch(
      AttentionGradScratchBytes<Half>(outputs.log_sum_exp.size()));
  Gpu gpu;
  gpu.scratch = scratch.data();
  TFO_EXPECT_RUNS(AttentionGrad(gpu, grad));
  outputs.output = unshifted(output);
  outputs.d_query = unshifted(d_query);
  outputs.d_value = unshifted(d_value);
  outputs.Expect(expected);
}

TFO_CUDA_TEST(Attention, KernelsDropTheSamePairsInGradients) {
  Problem<float> p = MakeProblem<float>({1, 64, 64, 1, 1, 8, 8});
  p.spec.left = 3;  // the first key is odd
  p.query_offset = {10};
  AddBias(1, &p);
  AddOption(11, &p);
  CheckGpu(p);
}

TFO_CUDA_TEST(Attention, TooManyKeysAreAnError) {
  Problem<float> p = MakeProblem<float>({1, 1, 1, 1, 1, 1, 1});
  p.spec.keys = (int64_t{1} << 30) + 1;
  Outputs<float> outputs(p);
  TFO_EXPECT(Attention(Gpu(), outputs.Args(p)) != nullptr);
  TFO_EXPECT(AttentionGrad(Gpu(), outputs.GradArgs(p)) != nullptr);
}

// Sizes of models, as `queries` x `heads` x `depth`.
template <typename T>
void TimeAttention(int64_t batch, int64_t queries, int64_t heads, int64_t depth,
                   int option) {
  const int64_t t = testing::BenchmarkSize(queries);
  Problem<T> p = MakeProblem<T>({batch, t, t, heads, heads, depth, depth});
  if (option >= 0) AddOption(option, &p);
  if (option == 1) p.spec.left = 255, p.spec.right = 0;
  Outputs<T> outputs(p);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " ", batch, " x ", queries,
                         " queries, ", heads, " heads, depth ", depth,
                         p.options);
  };
  const int64_t num_bytes =
      (p.query.size() + p.key.size() + p.value.size() + p.d_output.size()) *
      sizeof(T);
  const auto forward = outputs.Args(p);
  testing::TimeOnCpu(name_of("attention"), num_bytes,
                     [&](const Cpu& cpu) { return Attention(cpu, forward); });
  const auto grad = outputs.GradArgs(p);
  testing::TimeOnCpu(name_of("attention_grad"), 2 * num_bytes,
                     [&](const Cpu& cpu) { return AttentionGrad(cpu, grad); });
}

template <typename T>
void TimeKernels(int64_t batch, int64_t queries, int64_t heads, int64_t depth,
                 bool causal) {
  const int64_t t = testing::BenchmarkSize(queries);
  Problem<T> p = MakeProblem<T>({batch, t, t, heads, heads, depth, depth});
  if (causal) AddOption(0, &p);
  Outputs<T> outputs(p);
  const std::string of =
      testing::Text(" ", testing::NameOf<T>(), " ", batch, " x ", queries,
                    " queries, ", heads, " heads, depth ", depth, p.options);
  const int64_t num_bytes =
      (p.query.size() + p.key.size() + p.value.size() + p.d_output.size()) *
      sizeof(T);
  const auto forward = outputs.Args(p);
  testing::TimeOnGpu("attention" + of, num_bytes, 0,
                     [&](const Gpu& gpu) { return Attention(gpu, forward); });
  const auto grad = outputs.GradArgs(p);
  testing::TimeOnGpu("attention_grad" + of, 2 * num_bytes,
                     AttentionGradScratchBytes<T>(outputs.log_sum_exp.size()),
                     [&](const Gpu& gpu) { return AttentionGrad(gpu, grad); });
}

TFO_BENCHMARK(Attention, KernelsOfModels) {
  for (bool causal : {false, true}) {
    TimeKernels<Half>(4, 4096, 16, 64, causal);
    TimeKernels<Half>(4, 4096, 16, 128, causal);
    TimeKernels<float>(4, 2048, 16, 64, causal);
  }
}

TFO_BENCHMARK(Attention, Models) {
  for (int option : {-1, 0, 1}) {  // all pairs, causal, window
    TimeAttention<float>(4, 128, 8, 64, option);
    TimeAttention<float>(1, 1024, 8, 64, option);
    TimeAttention<float>(1, 2048, 2, 64, option);
    TimeAttention<float>(1, 2048, 2, 128, option);
    TimeAttention<float>(1, 4096, 1, 64, option);
    TimeAttention<BFloat16>(1, 2048, 2, 64, option);
  }
}

}  // namespace
}  // namespace tfo
