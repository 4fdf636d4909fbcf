// The CUDA kernels of attention.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_checks_testing.h"

namespace tfo::testing {
namespace {

TFO_TEST(Attention, SplitsFitBesideEachOther) {
  TFO_EXPECT_EQ(attention::SplitsThatFit(32), 8);
  for (int64_t blocks = 0; blocks < 600; ++blocks) {
    const int64_t splits = attention::SplitsThatFit(blocks);
    TFO_EXPECT(splits >= 1);
    if (splits == 1) continue;
    TFO_EXPECT(blocks * splits <= attention::kEnoughBlocks);
    TFO_EXPECT(blocks * (splits + 1) > attention::kEnoughBlocks);
  }
}

// Around tiles of 64 rows, of 64 and 32 columns, and chunks of 128 bytes of the
// depth; depths of packs and not.
TFO_CUDA_TEST(Attention, KernelsEqualDoubleLoops) {
  ForTypes([](auto type) {
    using T = decltype(type);
    CheckGpu(MakeProblem<T>({1, 65, 63, 2, 1, 64, 64}));
    CheckGpu(MakeProblem<T>({1, 64, 130, 1, 1, 20, 33}));
    CheckGpu(MakeProblem<T>({1, 1, 5, 10, 1, 1, 1}));
    CheckGpu(MakeProblem<T>({2, 32, 7, 4, 4, 8, 96}));
    CheckGpu(MakeProblem<T>({1, 66, 65, 1, 1, 72, 120}));
    CheckGpu(MakeProblem<T>({1, 130, 9, 1, 1, 140, 8}));
    CheckGpu(MakeProblem<T>({1, 5, 70, 1, 1, 300, 270}));
  });
}

TFO_CUDA_TEST(Attention, KernelsOfAncestorsEqualReorderedKeys) {
  ForTypes([](auto type) {
    using T = decltype(type);
    CheckAncestors<T, Gpu>({6, 1, 40, 4, 2, 20, 33}, 3);
    CheckAncestors<T, Gpu>({4, 17, 70, 2, 1, 8, 16}, 2, 10);
  });
  CheckAncestors<Half, Gpu>({2, 2, 550, 1, 1, 8, 8}, 2);  // blocks split keys
  CheckAncestors<Half, Gpu>({2, 1, 330, 2, 2, 200, 8}, 2);
  CheckAncestors<BFloat16, Gpu>({2, 70, 200, 1, 1, 8, 8}, 2);
  CheckAncestors<float, Gpu>({2, 1, 330, 2, 2, 8, 0}, 2);  // a chunk a tile
}

// Without gradients, which take most of the emulation's time.
template <typename T>
void CheckForward(const Problem<T>& p, const Caller& caller = {}) {
  const Case of_test = CaseOf(p, caller);
  const Result expected = Reference(p);
  Outputs<T> outputs(p);
  WithScratch(
      Gpu(), [&] { return AttentionScratchBytes(p.Operands()); },
      [&](const Gpu& on) { TFO_EXPECT_RUNS(Attention(on, outputs.Args(p))); });
  ExpectClose("output", outputs.output, expected.output);
  ExpectClose("log_sum_exp", outputs.log_sum_exp, expected.log_sum_exp);
}

// Heads that share keys are rows of a tile, unless options tell them apart.
TFO_CUDA_TEST(Attention, KernelsOfOneQueryEqualDoubleLoops) {
  const auto for_options = [](const auto& without) {
    for (int option = 0; option < kNumOptions; ++option) {
      auto p = without;
      AddOption(option, &p);
      CheckForward(p);
      AddOption(0, &p);
      AddOption(6, &p);
      CheckForward(p);
    }
    auto p = without;
    AddOption(0, &p);
    p.query_offset = {30, 68};
    CheckForward(p);
  };
  for_options(MakeProblem<Half>({2, 1, 70, 6, 2, 8, 12}));
  for_options(MakeProblem<float>({2, 1, 70, 4, 1, 8, 12}));
  for (int broadcast = 0; broadcast < 16; ++broadcast) {
    Problem<float> p = MakeProblem<float>({2, 1, 70, 6, 2, 6, 6});
    AddMask(broadcast, &p);
    AddBias(15 - broadcast, &p);
    CheckForward(p);
  }
  // Several tiles, and splits: without rows of heads there would be none.
  CheckForward(MakeProblem<Half>({1, 1, 520, 142, 2, 4, 4}));
}

// Few queries of many keys, which blocks split.
TFO_CUDA_TEST(Attention, KernelsOfManyKeysEqualDoubleLoops) {
  for (int option : {0, 6, 10, 11}) {
    Problem<Half> p = MakeProblem<Half>({2, 2, 550, 1, 1, 8, 8});
    AddOption(option, &p);
    CheckGpu(p);
  }
  Problem<double> p = MakeProblem<double>({1, 1, 523, 2, 1, 3, 66});
  CheckGpu(p);
  AddOption(6, &p);
  p.sinks[1] = -kInfinity;
  AddMask(3, &p);
  CheckGpu(p);
  Problem<float> q = MakeProblem<float>({2, 2, 530, 1, 1, 4, 4});
  q.query_splits = {0, 0, 2};
  q.key_splits = {0, 530, 1060};
  q.query.resize(2 * 4);
  q.d_output.resize(2 * 4);
  q.d_log_sum_exp.resize(2);
  CheckGpu(q);
  // More splits, and more columns, than a warp joins at once.
  CheckForward(MakeProblem<Half>({1, 1, 2310, 2, 1, 4, 132}));
}

TFO_CUDA_TEST(Attention, KernelsOfValuesFarBelowTheLargestScoreAddNothing) {
  CheckInfiniteValuesOfWeightZero<float, Gpu>();
  CheckInfiniteValuesOfWeightZero<double, Gpu>();
  CheckInfiniteValuesOfWeightZero<Half, Gpu>();
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

TFO_CUDA_TEST(Attention, KernelsOfHugeScoresEqualDoubleLoops) {
  CheckHugeScores<float, Gpu>(24);
  CheckHugeScores<BFloat16, Gpu>();
}

// TF32 has no number as large: a product with 0 is NaN there.
TFO_CUDA_TEST(Attention, KernelsOfTheGreatestNumbersEqualDoubleLoops) {
  constexpr int kDepth = 4;
  for (bool is_key : {true, false}) {
    Problem<float> p = MakeProblem<float>({1, 20, 40, 1, 1, kDepth, kDepth});
    GpuVector<float>& factors = is_key ? p.query : p.d_output;
    for (size_t i = 0; i < factors.size(); i += kDepth) factors[i] = 0;
    (is_key ? p.key : p.value)[5 * kDepth] = std::numeric_limits<float>::max();
    AddBias(0, &p);
    p.options += is_key ? " a great key" : " a great value";
    CheckGpu(p);
  }
}

TFO_CUDA_TEST(Attention, KernelsOfSaturatedSoftcapsEqualDoubleLoops) {
  CheckSaturatedSoftcap<float, Gpu>();
  CheckSaturatedSoftcap<Half, Gpu>();
}

// Arrays of packs that begin at any value.
void CheckUnaligned(const Problem<Half>& p) {
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
  WithScratch(
      Gpu(), [&] { return AttentionScratchBytes(forward); },
      [&](const Gpu& on) { TFO_EXPECT_RUNS(Attention(on, forward)); });
  AttentionGradArgs<Half> grad = outputs.GradArgs(p);
  static_cast<AttentionOperands<Half>&>(grad) = forward;
  grad.output = forward.output;
  grad.d_output = d_output.data() + 1;
  grad.d_query = d_query.data() + 1;
  grad.d_value = d_value.data() + 1;
  WithScratch(
      Gpu(), [&] { return AttentionGradScratchBytes(grad, false); },
      [&](const Gpu& on) { TFO_EXPECT_RUNS(AttentionGrad(on, grad)); });
  outputs.output = unshifted(output);
  outputs.d_query = unshifted(d_query);
  outputs.d_value = unshifted(d_value);
  outputs.Expect(expected);
}
TFO_CUDA_TEST(Attention, KernelsAcceptUnalignedArrays) {
  CheckUnaligned(MakeProblem<Half>({1, 20, 30, 2, 1, 16, 16}));
  CheckUnaligned(MakeProblem<Half>({1, 1, 520, 2, 1, 16, 16}));  // split
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

// Keys are as many as queries, if not said otherwise; peers.py reads the names.
template <typename T>
void TimeKernels(int64_t batch, int64_t queries, int64_t heads, int64_t depth,
                 std::optional<int> option = {}, int64_t keys = 0,
                 int64_t key_heads = 0) {
  if (!IsTiming()) batch = 1, heads /= 8, key_heads /= 8;
  const int64_t t = BenchmarkSize(queries);
  std::string of = Text(" ", NameOf<T>(), " ", batch, " x ", queries,
                        " queries, ", heads, " heads, depth ", depth);
  if (keys > 0) of += Text(", ", keys, " keys, ", key_heads, " key heads");
  Problem<T> p =
      keys > 0 ? MakeProblem<T>({batch, t, BenchmarkSize(keys), heads,
                                 key_heads, depth, depth})
               : MakeProblem<T>({batch, t, t, heads, heads, depth, depth});
  if (option.has_value()) AddOption(*option, &p);
  of += p.options;
  Outputs<T> outputs(p);
  const int64_t num_bytes =
      (p.query.size() + p.key.size() + p.value.size() + p.d_output.size()) *
      sizeof(T);
  const auto forward = outputs.Args(p);
  TimeOnGpu("attention" + of, num_bytes, AttentionScratchBytes(forward),
            [&](const Gpu& gpu) { return Attention(gpu, forward); });
  const auto grad = outputs.GradArgs(p);
  TimeOnGpu("attention_grad" + of, 2 * num_bytes,
            AttentionGradScratchBytes(grad, false),
            [&](const Gpu& gpu) { return AttentionGrad(gpu, grad); });
}

// A step of a search: each beam's past is in rows of all.
template <typename T>
void TimeSteps(int64_t batch, int64_t beams, int64_t heads, int64_t depth,
               int64_t keys, int64_t key_heads) {
  if (!IsTiming()) beams = 2, heads = 4, key_heads = 1, keys = 8;
  const int64_t rows = batch * beams;
  Problem<T> p =
      MakeProblem<T>({rows, 1, keys, heads, key_heads, depth, depth});
  AddOption(0, &p);
  p.beams = beams;
  p.key_lengths.assign(rows, static_cast<int32_t>(keys));
  for (int64_t i = 0; i < rows * keys; ++i) {
    p.ancestors.push_back(static_cast<int32_t>((i / keys + i % keys) % beams));
  }
  Outputs<T> outputs(p);
  const auto args = outputs.Args(p);
  TimeOnGpu(Text(NameOf<T>(), "decode_attention [", batch, ", ", beams, ", ",
                 heads, ", ", depth, ", ", keys, ", ", key_heads, "]"),
            (p.key.size() + p.value.size()) * sizeof(T),
            AttentionScratchBytes(args),
            [&](const Gpu& gpu) { return Attention(gpu, args); });
}

TFO_BENCHMARK(Attention, KernelsOfModels) {
  constexpr int kCausal = 0, kKeyLengths = 10;
  for (const auto& option : {std::optional<int>(), std::optional(kCausal)}) {
    TimeKernels<Half>(4, 4096, 16, 64, option);
    TimeKernels<BFloat16>(4, 4096, 16, 64, option);
    TimeKernels<Half>(4, 4096, 16, 128, option);
    TimeKernels<float>(4, 2048, 16, 64, option);
  }
  TimeKernels<Half>(4, 4096, 16, 64, kKeyLengths);
  TimeKernels<Half>(1, 1, 32, 128, {}, 8192, 8);
  TimeSteps<Half>(1, 32, 32, 128, 2048, 8);
}

}  // namespace
}  // namespace tfo::testing
