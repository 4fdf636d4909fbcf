// Sizes and options of attention.
#include <tuple>
#include <utility>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_checks_testing.h"

namespace tfo::testing {
namespace {

TFO_TEST(Attention, EqualsDoubleLoops) {
  ForTypes([](auto type) {
    using T = decltype(type);
    // Rows of panels and of blocks that are full, and not.
    Check(MakeProblem<T>({2, 33, 113, 2, 1, 64, 64}));
    Check(MakeProblem<T>({1, 130, 225, 1, 1, 20, 33}));
    Check(MakeProblem<T>({1, 1, 5, 6, 3, 1, 1}));
    Check(MakeProblem<T>({3, 32, 7, 4, 4, 8, 96}));
    // Depths of more than a tile has.
    Check(MakeProblem<T>({1, 9, 12, 2, 2, 300, 270}));
  });
}

// Lanes beyond a panel must not decide when sums are corrected.
TFO_TEST(Attention, PartialPanelsDoNotDependOnThreads) {
  Problem<float> p = MakeProblem<float>({1, 40, 230, 2, 2, 8, 8});
  for (float& x : p.query) x *= 3;
  p.spec.left = 11;
  p.query_offset = {0};
  Check(p);
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

TFO_TEST(Attention, AllOptionsTogetherEqualDoubleLoops) {
  ForTypes([](auto type) {
    auto p = MakeProblem<decltype(type)>({3, 40, 130, 4, 2, 16, 24});
    for (int option = 0; option < kNumOptions - 1; ++option) {
      if (option != 4) AddOption(option, &p);
    }
    p.spec.left = 60;
    Check(p);
  });
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
    p.options = Text(" window ", left, ", ", right, ", ", offset);
    Check(p);
  }
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

// Sizes of models, as `queries` x `heads` x `depth`.
template <typename T>
void TimeAttention(int64_t batch, int64_t queries, int64_t heads, int64_t depth,
                   int option) {
  const int64_t t = BenchmarkSize(queries);
  Problem<T> p = MakeProblem<T>({batch, t, t, heads, heads, depth, depth});
  if (option >= 0) AddOption(option, &p);
  if (option == 1) p.spec.left = 255, p.spec.right = 0;
  Outputs<T> outputs(p);
  const auto name_of = [&](const char* name) {
    return Text(NameOf<T>(), name, " ", batch, " x ", queries, " queries, ",
                heads, " heads, depth ", depth, p.options);
  };
  const int64_t num_bytes =
      (p.query.size() + p.key.size() + p.value.size() + p.d_output.size()) *
      sizeof(T);
  const auto forward = outputs.Args(p);
  TimeOnCpu(name_of("attention"), num_bytes,
            [&](const Cpu& cpu) { return Attention(cpu, forward); });
  const auto grad = outputs.GradArgs(p);
  TimeOnCpu(name_of("attention_grad"), 2 * num_bytes,
            [&](const Cpu& cpu) { return AttentionGrad(cpu, grad); });
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
}  // namespace tfo::testing
