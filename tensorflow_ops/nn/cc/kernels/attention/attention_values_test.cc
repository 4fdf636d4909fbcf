// Values of attention: of no keys, of large scores, NaN and infinite ones.
#include <algorithm>
#include <cmath>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_checks_testing.h"

namespace tfo::testing {
namespace {

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

// In each part of the vectors that go through a mask.
TFO_TEST(Attention, OnePairOfAMaskCounts) {
  for (int64_t keys : {7, 20, 70, 120}) {
    for (int64_t at : {0, 15, 16, 63, 64, 103, 111, 119}) {
      if (at >= keys) continue;
      for (bool others : {false, true}) {
        Problem<float> p = MakeProblem<float>({1, 3, keys, 1, 1, 4, 4});
        AddMask(0, &p);
        std::fill(p.mask.begin(), p.mask.end(), others);
        p.mask[keys + at] = !others;
        p.options += Text(" at ", at, " of ", keys);
        Check(p);
      }
    }
  }
}

TFO_TEST(Attention, NansOfExcludedPairsStayAway) {
  CheckSpoiled<float>();
  CheckSpoiled<double>();
  CheckSpoiled<BFloat16>();
  CheckSpoiled<float>(6);
  CheckSpoiled<Half>(6);
  // The last pair of an odd number of queries.
  Problem<BFloat16> odd = MakeProblem<BFloat16>({2, 1, 121, 2, 1, 7, 9});
  AddOption(0, &odd);
  Spoil(&odd.key, 2 * 121, 7);
  CheckWild(odd);
}

// Padding.
template <typename T>
void CheckSpoiledUnseenKeys(int64_t queries) {
  Problem<T> p = MakeProblem<T>({2, queries, 121, 2, 1, 40, 9});
  AddMask(0b0110, &p);
  for (size_t i = 0; i < p.mask.size(); ++i) p.mask[i] = i % 5 != 0;
  Outputs<T> expected(p), outputs(p);
  expected.Compute(ThreadedCpu(2), p);
  Spoil(&p.key, p.mask.size(), 40);
  Spoil(&p.value, p.mask.size(), 9);
  outputs.Compute(ThreadedCpu(2), p);
  const Case of_test({}, NameOf<T>());
  TFO_EXPECT(outputs.Equals(expected));
}

TFO_TEST(Attention, NansOfKeysThatNobodySeesKeepTheBits) {
  for (int64_t queries : {30, 6}) {
    CheckSpoiledUnseenKeys<Half>(queries);
    CheckSpoiledUnseenKeys<BFloat16>(queries);
    CheckSpoiledUnseenKeys<float>(queries);
    CheckSpoiledUnseenKeys<double>(queries);
  }
}

TFO_TEST(Attention, NansOfKeysThatABiasExcludesKeepTheBits) {
  for (int64_t queries : {30, 6}) {
    Problem<float> p = MakeProblem<float>({1, queries, 40, 1, 1, 8, 8});
    AddBias(0, &p);
    for (int64_t i = 20; i < queries * 40; i += 40) {
      p.bias[i] = -static_cast<float>(kInfinity);
    }
    Outputs<float> expected(p), outputs(p);
    expected.Compute(ThreadedCpu(2), p);
    p.key[20 * 8] = NAN;
    p.value[20 * 8] = NAN;
    outputs.Compute(ThreadedCpu(2), p);
    TFO_EXPECT(outputs.Equals(expected));
  }
}

TFO_TEST(Attention, RowsOfNanScoresAreNanAlone) {
  for (bool query_too : {false, true}) {
    Problem<float> p = MakeProblem<float>({1, 40, 20, 1, 1, 8, 8});
    AddOption(0, &p);
    if (query_too) p.query[3 * 8] = NAN;
    p.key[0] = static_cast<float>(kInfinity);  // seen by queries after 20
    Outputs<float> outputs(p);
    outputs.Compute(ThreadedCpu(1), p);
    CheckWild(p);
    for (int64_t t = 0; t < 20; ++t) {
      TFO_EXPECT_EQ(outputs.output[t * 8], 0.0f);
    }
  }
}

TFO_TEST(Attention, ValuesFarBelowTheLargestScoreAddNothing) {
  CheckInfiniteValuesOfWeightZero<float>();
  CheckInfiniteValuesOfWeightZero<double>();
  CheckInfiniteValuesOfWeightZero<Half>();
  CheckInfiniteValuesOfWeightZero<BFloat16>();
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

TFO_TEST(Attention, HugeScoresEqualDoubleLoops) {
  CheckHugeScores<float>();
  CheckHugeScores<double>();
  CheckHugeScores<BFloat16>();
  // A score that overflows, of a product that does not.
  Problem<float> p = MakeProblem<float>({1, 1, 2, 1, 1, 1, 1});
  p.query = {1e19f};
  p.key = {1e19f, 1};
  p.spec.scale = 10;
  Outputs<float> outputs(p);
  outputs.Compute(ThreadedCpu(1), p);
  TFO_EXPECT(std::isnan(outputs.output[0]));
  TFO_EXPECT(std::isnan(outputs.log_sum_exp[0]));
}

// Multiplies the first example's numbers by 2^power.
void ScaleFirst(int power, GpuVector<float>* values) {
  for (size_t i = 0; i < values->size() / 2; ++i) {
    (*values)[i] = std::ldexp((*values)[i], power);
  }
}

// The same scores from queries times 2^-of_keys and keys times 2^of_keys, and
// values and gradients times powers of 2, scale what follows exactly.
TFO_TEST(Attention, NumbersOfAllSizesEqualDoubleLoops) {
  const struct {
    int of_keys, of_values, of_gradients;
  } kCases[] = {{0, -110, 0}, {0, 0, -110}, {0, -55, -55}, {100, 0, 0},
                {-100, 0, 0}, {0, 100, 0},  {0, 0, 100},   {0, 50, 50}};
  for (const auto& powers : kCases) {
    const auto [keys, values, gradients] = powers;
    Problem<float> p = MakeProblem<float>({2, 37, 230, 4, 2, 20, 9});
    AddBias(0, &p);
    p.options += Text(" powers of 2: ", keys, ", ", values, ", ", gradients);
    const Result expected = Reference(p);
    ScaleFirst(-keys, &p.query);
    ScaleFirst(keys, &p.key);
    ScaleFirst(values, &p.value);
    ScaleFirst(gradients, &p.d_output);
    ScaleFirst(values + gradients, &p.d_log_sum_exp);
    Outputs<float> outputs(p);
    outputs.Compute(ThreadedCpu(2), p);
    ScaleFirst(-values, &outputs.output);
    ScaleFirst(-values - gradients - keys, &outputs.d_query);
    ScaleFirst(-values - gradients + keys, &outputs.d_key);
    ScaleFirst(-gradients, &outputs.d_value);
    ScaleFirst(-values - gradients, &outputs.d_bias);
    outputs.Expect(expected);
  }
}

TFO_TEST(Attention, SoftcapsOfAllSizesEqualDoubleLoops) {
  CheckSaturatedSoftcap<float>();
  CheckSaturatedSoftcap<double>();
  CheckSaturatedSoftcap<BFloat16>();
  // scale / softcap is not a normal number at two of these.
  for (double softcap : {1e-30, 1e30}) {
    for (float scale : {1e-9f, 0.7f, 1e9f}) {
      Problem<float> p = MakeProblem<float>({1, 3, 40, 1, 1, 4, 3});
      for (float& x : p.query) x /= scale;
      std::fill_n(p.query.begin(), 4, 0);
      p.spec.softcap = softcap;
      p.spec.scale = scale;
      p.options += Text(" softcap ", softcap, ", scale ", scale);
      CheckWild(p);
    }
  }
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

}  // namespace
}  // namespace tfo::testing
