// Attention of few queries: each number of queries that has kernels of its own.
#include <algorithm>
#include <cmath>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_checks_testing.h"

namespace tfo::testing {
namespace {

TFO_TEST(AttentionOfFewQueries, EqualsDoubleLoops) {
  ForTypes([](auto type) {
    using T = decltype(type);
    // Spans of keys that are full, and not.
    for (int64_t keys : {1, 15, 255, 256, 257}) {
      for (int64_t queries : {1, 2, 7, 15}) {
        Check(MakeProblem<T>({2, queries, keys, 4, 2, 20, 33}));
      }
    }
    Check(MakeProblem<T>({1, 1, 5000, 4, 1, 7, 5}));
    // More rows than a task has, and depths of more than a tile.
    Check(MakeProblem<T>({1, 15, 260, 5, 1, 300, 9}));
    Check(MakeProblem<T>({1, 3, 20, 80, 1, 1, 1}));
    Check(MakeProblem<T>({1, 1, 20, 2, 2, 64, 128}));
  });
}

TFO_TEST(AttentionOfFewQueries, OptionsEqualDoubleLoops) {
  ForTypes([](auto type) {
    for (int option = 0; option < kNumOptions; ++option) {
      auto p = MakeProblem<decltype(type)>({2, 9, 270, 2, 1, 6, 5});
      AddOption(option, &p);
      Check(p);
    }
  });
}

TFO_TEST(AttentionOfFewQueries, PairsOfOptionsEqualDoubleLoops) {
  for (int one = 0; one < kNumOptions; ++one) {
    for (int two = one + 1; two < kNumOptions; ++two) {
      if (one == 4 && two == 5) continue;  // both are slopes
      Problem<double> p = MakeProblem<double>({2, 5, 260, 2, 1, 2, 3});
      AddOption(one, &p);
      AddOption(two, &p);
      Check(p);
    }
  }
}

TFO_TEST(AttentionOfFewQueries, AllOptionsButDropoutEqualDoubleLoops) {
  ForTypes([](auto type) {
    auto p = MakeProblem<decltype(type)>({3, 12, 530, 4, 2, 6, 9});
    for (int option = 0; option < kNumOptions - 2; ++option) {
      if (option != 4) AddOption(option, &p);
    }
    p.spec.left = 400;
    Check(p);
  });
}

TFO_TEST(AttentionOfFewQueries, MasksAndBiasesBroadcast) {
  for (int broadcast = 0; broadcast < 16; ++broadcast) {
    Problem<float> p = MakeProblem<float>({2, 5, 261, 4, 2, 6, 6});
    AddMask(broadcast, &p);
    AddBias(15 - broadcast, &p);
    Check(p);
  }
}

TFO_TEST(AttentionOfFewQueries, RaggedExamplesEqualDoubleLoops) {
  for (int option = -1; option < kNumOptions; ++option) {
    if (option == 9 || option == 10) continue;  // the splits are the lengths
    Problem<BFloat16> p = MakeProblem<BFloat16>({4, 9, 300, 2, 1, 12, 8});
    p.query_splits = {0, 9, 9, 10, 15};
    p.key_splits = {0, 300, 320, 320, 335};
    p.query.resize(15 * 2 * 12);
    p.d_output.resize(15 * 2 * 8);
    p.d_log_sum_exp.resize(15 * 2);
    p.key.resize(335 * 12);
    p.value.resize(335 * 8);
    p.options = " ragged";
    if (option >= 0) AddOption(option, &p);
    Check(p);
  }
}

// Each head has keys of its own, or none: the heads of a task, which depend on
// the number of threads, must not change bits.
TFO_TEST(AttentionOfFewQueries, KeysOfMasksDoNotDependOnThreads) {
  for (int64_t keys : {240, 800}) {
    Problem<float> p = MakeProblem<float>({2, 3, keys, 16, 16, 9, 12});
    AddMask(0b0010, &p);
    for (size_t i = 0; i < p.mask.size(); ++i) {
      const int64_t row = i / keys, j = i % keys;
      p.mask[i] = j >= 7 * row && j < keys - 3 * row && row % 16 != 3;
    }
    Check(p);
  }
}

TFO_TEST(AttentionOfFewQueries, SpansFarBelowTheLargestScoreAddNothing) {
  Problem<float> p = MakeProblem<float>({1, 1, 600, 1, 1, 1, 1});
  p.query[0] = 1;
  p.spec.scale = 1;
  std::fill(p.key.begin(), p.key.end(), -1e4f);
  std::fill_n(p.value.begin(), 512, static_cast<float>(kInfinity));
  std::fill(p.key.begin() + 512, p.key.end(), 0.f);
  std::fill(p.value.begin() + 512, p.value.end(), 3.f);
  Outputs<float> outputs(p);
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), outputs.Args(p)));
  TFO_EXPECT_EQ(outputs.output[0], 3.f);
  // Its NaN score does.
  p.key[0] = NAN;
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), outputs.Args(p)));
  TFO_EXPECT(std::isnan(outputs.output[0]));
}

TFO_TEST(AttentionOfFewQueries, AncestorsEqualReorderedKeys) {
  ForTypes([](auto type) {
    using T = decltype(type);
    CheckAncestors<T>({6, 1, 300, 4, 2, 20, 33}, 3);
    CheckAncestors<T>({4, 7, 40, 2, 2, 16, 16}, 2);
    CheckAncestors<T>({4, 16, 40, 2, 1, 9, 7}, 4);  // not few
  });
  for (int option = 0; option < kNumOptions; ++option) {
    CheckAncestors<float>({6, 2, 500, 4, 2, 6, 5}, 3, option);
  }
}

// A sum that is computed again.
TFO_TEST(AttentionOfFewQueries, AncestorsOfInfiniteValuesOfWeightZero) {
  Problem<float> p = MakeProblem<float>({2, 1, 9, 1, 1, 1, 1});
  p.spec.scale = 1;
  p.query = {1, 1};
  p.key[9 + 4] = -1e4f;
  p.value[9 + 4] = static_cast<float>(kInfinity);
  Problem<float> reordered = p;
  p.beams = 2;
  p.ancestors = {0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0};
  for (int i = 0; i < 18; ++i) {
    reordered.key[i] = p.key[p.ancestors[i] * 9 + i % 9];
    reordered.value[i] = p.value[p.ancestors[i] * 9 + i % 9];
  }
  Outputs<float> outputs(p), expected(p);
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), outputs.Args(p)));
  TFO_EXPECT_RUNS(Attention(ThreadedCpu(1), expected.Args(reordered)));
  TFO_EXPECT(HaveSameBits(outputs.output, expected.output));
  TFO_EXPECT(std::isfinite(outputs.output[0]));
}

template <typename T>
void TimeSteps(const Sizes& sizes) {
  Sizes s = sizes;
  s.keys = BenchmarkSize(s.keys);
  Problem<T> p = MakeProblem<T>(s);
  AddOption(0, &p);
  Outputs<T> outputs(p);
  const auto args = outputs.Args(p);
  TimeOnCpu(Text(NameOf<T>(), "attention ", s.batch, " x ", s.queries,
                 " queries, ", sizes.keys, " keys, ", s.heads, " heads on ",
                 s.key_heads, ", depth ", s.depth),
            (p.key.size() + p.value.size()) * sizeof(T),
            [&](const Cpu& cpu) { return Attention(cpu, args); });
}

TFO_BENCHMARK(AttentionOfFewQueries, Steps) {
  for (int64_t queries : {1, 8}) {
    TimeSteps<float>({16, queries, 512, 8, 8, 64, 64});
    TimeSteps<float>({1, queries, 4096, 32, 8, 128, 128});
    TimeSteps<BFloat16>({1, queries, 4096, 32, 8, 128, 128});
  }
}

}  // namespace
}  // namespace tfo::testing
