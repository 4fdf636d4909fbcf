// The CUDA kernels of attention with its options: apart from the others, so
// that two processes share the emulation.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_checks_testing.h"

namespace tfo::testing {
namespace {

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

// Masks of padding: all queries see the same keys.
TFO_CUDA_TEST(Attention, KernelsOfMaskedKeysEqualDoubleLoops) {
  const auto check = [](auto p, int broadcast) {
    AddMask(broadcast, &p);
    const int64_t keys = p.spec.keys;
    for (size_t i = 0; i < p.mask.size(); ++i) {
      const int64_t example = i / keys, j = i % keys;
      p.mask[i] = example != 1 && j / 50 % 2 == example / 2 && j != 60;
    }
    CheckGpu(p);
    AddOption(0, &p);
    AddBias(0, &p);
    CheckGpu(p);
  };
  check(MakeProblem<Half>({3, 7, 280, 1, 1, 8, 8}), 6);
  check(MakeProblem<BFloat16>({1, 130, 141, 2, 1, 8, 8}), 6);
  check(MakeProblem<double>({2, 5, 150, 2, 1, 3, 3}), 14);
}

TFO_CUDA_TEST(Attention, KernelsOfRaggedExamplesEqualDoubleLoops) {
  Problem<float> p = MakeRagged<float>();
  CheckGpu(p);
  AddOption(0, &p);
  AddBias(9, &p);
  CheckGpu(p);
  CheckGpu(MakeRagged<Half>());
}

}  // namespace
}  // namespace tfo::testing
