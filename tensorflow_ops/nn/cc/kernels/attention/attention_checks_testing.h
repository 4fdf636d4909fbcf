// Attention and its gradients against loops in double.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_CHECKS_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_CHECKS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_testing.h"

namespace tfo::testing {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
            slope = std::pow(std::cosh(s / spec.softcap), -2);
            s = spec.softcap * std::tanh(s / spec.softcap);
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
    ExpectClose("log_sum_exp", log_sum_exp, expected.log_sum_exp);
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
Case CaseOf(const Problem<T>& p, const Caller& caller) {
  const AttentionSpec& s = p.spec;
  return Case(caller, NameOf<T>(), s.batch, " x ", s.queries, " x ", s.keys,
              ", heads ", s.heads, " on ", s.key_heads, ", depth ", s.depth,
              ", ", s.value_depth, p.options);
}

template <typename T>
void Check(const Problem<T>& p, const Caller& caller = {}) {
  const Case of_test = CaseOf(p, caller);
  Outputs<T> one(p);
  one.Compute(ThreadedCpu(1), p);
  one.Expect(Reference(p));
  for (int threads : {2, 7}) {
    Outputs<T> other(p);
    other.Compute(ThreadedCpu(threads), p);
    TFO_EXPECT(other.Equals(one));
  }
}

// Scratch memory that is NaN, or finite: the sums of a fast GPU are computed
// again if they are NaN.
template <typename T>
void ComputeOnGpu(const Gpu& gpu, const Problem<T>& p, Outputs<T>* outputs) {
  WithScratch(
      gpu,
      [&] {
        return std::max(
            AttentionScratchBytes(p.Operands()),
            AttentionGradScratchBytes(outputs->GradArgs(p), gpu.deterministic));
      },
      [&](const Gpu& on) { outputs->Compute(on, p); },
      gpu.deterministic ? '\xFF' : '\x3F');
}
template <typename T>
void CheckGpu(const Problem<T>& p, const Caller& caller = {}) {
  const Case of_test = CaseOf(p, caller);
  const Result expected = Reference(p);
  const auto [fast, deterministic] = Gpus();
  Outputs<T> one(p), two(p);
  ComputeOnGpu(fast, p, &one);
  one.Expect(expected);
  ComputeOnGpu(deterministic, p, &two);
  two.Expect(expected);
  // Only gradients to 16-bit queries differ.
  if (sizeof(T) == 2) ComputeOnGpu(deterministic, p, &one);
  TFO_EXPECT(two.Equals(one));
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
void CheckWild(const Problem<T>& p, const Caller& caller = {}) {
  const Case of_test(caller, NameOf<T>(), p.options);
  const Result expected = Reference(p);
  Outputs<T> outputs(p);
  if constexpr (std::is_same_v<Device, Gpu>) {
    ComputeOnGpu(Gpu(), p, &outputs);
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
void CheckSpoiled(int64_t queries = 30) {
  const Sizes sizes = {2, queries, 121, 2, 1, 7, 9};
  for (int tensor = 0; tensor < 5; ++tensor) {
    for (int option : {0, 8, 10}) {  // excludes pairs
      Problem<T> p = MakeProblem<T>(sizes);
      AddOption(option, &p);
      p.options += Text(", spoiled ", tensor);
      // Three of four queries see no key that Spoil chooses.
      for (size_t i = 0; i < p.mask.size(); ++i) {
        const int64_t row = i / (2 * queries * 121) * 121 + i % 121;
        if (row % 5 == 0 && i / 121 % 4 != 0) p.mask[i] = 0;
      }
      if (tensor == 0) Spoil(&p.query, 2 * queries * 2, 7);
      if (tensor == 1) Spoil(&p.key, 2 * 121, 7);
      if (tensor == 2) Spoil(&p.value, 2 * 121, 9);
      if (tensor == 3) Spoil(&p.d_output, 2 * queries * 2, 9);
      if (tensor == 4) {
        AddBias(0, &p);
        Spoil(&p.bias, 2 * 2 * queries, 121);
      }
      CheckWild<Device>(p);
    }
  }
}

// Keys before `first` have values of infinity and, by the scores of the others,
// weights of 0.
template <typename T, typename Device = Cpu>
void CheckInfiniteValuesOfWeightZero(const Caller& caller = {}) {
  for (int64_t queries : {1, 40}) {
    for (int64_t first : {1, 300, 320}) {
      const Case of_test(caller, NameOf<T>(), queries, " queries, ", first);
      Problem<T> p = MakeProblem<T>({1, queries, 640, 1, 1, 8, 8});
      p.spec.scale = 1;
      std::fill(p.query.begin(), p.query.end(), Narrow<T>(0.125f));
      std::fill(p.key.begin(), p.key.end(), Narrow<T>(0));
      std::fill(p.value.begin(), p.value.end(), Narrow<T>(3));
      std::fill_n(p.key.begin(), 8 * first, Narrow<T>(-1e4f));
      std::fill_n(p.value.begin(), 8 * first,
                  Narrow<T>(static_cast<float>(kInfinity)));
      Outputs<T> outputs(p);
      if constexpr (std::is_same_v<Device, Gpu>) {
        ComputeOnGpu(Gpu(), p, &outputs);
      } else {
        outputs.Compute(ThreadedCpu(2), p);
      }
      ExpectClose("output", outputs.output,
                  std::vector<double>(outputs.output.size(), 3));
      for (int64_t i = 0; i < 8 * first; ++i) {
        TFO_EXPECT_EQ(Widen(outputs.d_key[i]), 0);
        TFO_EXPECT_EQ(Widen(outputs.d_value[i]), 0);
      }
      TFO_EXPECT(std::isfinite(Widen(outputs.d_query[0])));
    }
  }
}

// Scores of up to 1e11, which float32 rounds by more than e^x can tell apart.
template <typename T, typename Device = Cpu>
void CheckHugeScores(int64_t depth = 8) {
  for (int option = -1; option < kNumOptions; ++option) {
    Problem<T> p = MakeProblem<T>({1, 9, 230, 2, 1, depth, 3});
    for (T& x : p.query) x = Narrow<T>(Widen(x) * 6e4f);
    for (T& x : p.key) x = Narrow<T>(Widen(x) * 6e4f);
    // So that gradients are about 1.
    for (T& d : p.d_output) d = Narrow<T>(Widen(d) / 6e4f);
    for (auto& d : p.d_log_sum_exp) d /= 6e4f;
    if (option >= 0) AddOption(option, &p);
    p.options += " huge scores";
    CheckWild<Device>(p);
  }
}

// Scores of 8 softcaps and more, where 1 - tanh^2 is a few ulp of 1. The
// gradients are about 1.
template <typename T, typename Device = Cpu>
void CheckSaturatedSoftcap() {
  Problem<T> p = MakeProblem<T>({1, 1, 20, 1, 1, 1, 1});
  p.spec.softcap = 1;
  p.query[0] = Narrow<T>(-1);
  for (int j = 0; j < 20; ++j) p.key[j] = Narrow<T>(8 + j / 16.f);
  p.d_output[0] = Narrow<T>(1e8f);
  p.options += " saturated softcap";
  CheckWild<Device>(p);
}

// With ancestors, the bits of attention to reordered keys and values. Those
// that nobody names are NaN. On a GPU some ancestors are not in their range.
template <typename T, typename Device = Cpu>
void CheckAncestors(const Sizes& sizes, int64_t beams, int option = -1) {
  Problem<T> expected = MakeProblem<T>(sizes);
  if (option >= 0) AddOption(option, &expected);
  Problem<T> p = expected;
  p.beams = beams;
  p.options += Text(" of ", beams, " beams");
  const Case of_test = CaseOf(p, Caller());
  std::fill(p.key.begin(), p.key.end(), Narrow<T>(Accumulator<T>(NAN)));
  std::fill(p.value.begin(), p.value.end(), Narrow<T>(Accumulator<T>(NAN)));
  const auto random = RandomValues<float>(sizes.batch * sizes.keys, 9);
  const Problem<T> all = expected;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const int64_t count =
        expected.key_lengths.empty() ? sizes.keys : expected.key_lengths[b];
    for (int64_t j = 0; j < sizes.keys; ++j) {
      const int64_t at = b * sizes.keys + j;
      const auto beam = static_cast<int32_t>(
          static_cast<int64_t>(std::abs(random[at]) * 1000) % beams);
      const bool beyond = std::is_same_v<Device, Gpu> && j % 3 == 0;
      p.ancestors.push_back(beyond && beam == 0           ? -7
                            : beyond && beam == beams - 1 ? beam + 7
                                                          : beam);
      if (j >= count) continue;
      const int64_t from = (b / beams * beams + beam) * sizes.keys + j;
      const auto take = [&](const GpuVector<T>& kept, int64_t row,
                            GpuVector<T>* read, GpuVector<T>* reordered) {
        std::copy_n(kept.begin() + from * row, row, read->begin() + from * row);
        std::copy_n(kept.begin() + from * row, row,
                    reordered->begin() + at * row);
      };
      take(all.key, sizes.key_heads * sizes.depth, &p.key, &expected.key);
      take(all.value, sizes.key_heads * sizes.value_depth, &p.value,
           &expected.value);
    }
  }
  const auto compute = [](const auto& device, const Problem<T>& of) {
    Outputs<T> outputs(of);
    WithScratch(
        device, [&] { return AttentionScratchBytes(of.Operands()); },
        [&](const auto& on) {
          TFO_EXPECT_RUNS(Attention(on, outputs.Args(of)));
        });
    return outputs;
  };
  const auto check = [&](const auto& device) {
    // First, so that scratch memory does not have what the other leaves.
    const Outputs<T> two = compute(device, p), one = compute(device, expected);
    TFO_EXPECT(HaveSameBits(one.output, two.output));
    TFO_EXPECT(HaveSameBits(one.log_sum_exp, two.log_sum_exp));
  };
  if constexpr (std::is_same_v<Device, Gpu>) {
    check(Gpu());
  } else {
    for (int threads : {1, 2, 7}) check(ThreadedCpu(threads));
  }
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_CHECKS_TESTING_H_
