// A task has examples of a batch, which it takes through all steps, as they
// wait for no other. Each step multiplies their states with the recurrent
// kernel.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_SIMD_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// A matrix [depth, columns], packed once for the products of all steps.
template <typename T>
class PackedMatrix {
 public:
  // Element (i, j) is at matrix[i * row_stride + j * column_stride].
  PackedMatrix(const Cpu& cpu, const T* matrix, int64_t row_stride,
               int64_t column_stride, int64_t depth, int64_t columns)
      : depth_(depth),
        padded_(RoundUp(columns, PanelColumns<T>())),
        panels_(depth * padded_) {
    cpu.ParallelFor(DivideUp(depth, kGemmDepth), 1.0 * kGemmDepth * padded_,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t first = i * kGemmDepth;
                        PackPanels<T, T>(
                            matrix + first * row_stride, row_stride,
                            column_stride, std::min(kGemmDepth, depth - first),
                            columns, panels_.data() + first * padded_);
                      }
                    });
  }
  int64_t padded_columns() const { return padded_; }

  // product [rows, padded_columns()] = a * matrix, or += with `add`; row(m) is
  // row m of a. `tile` has room for `rows` rows of kGemmStride.
  template <typename Row>
  void Multiply(int64_t rows, const Row& row, bool add, T* tile,
                T* product) const {
    for (int64_t first = 0; first < depth_; first += kGemmDepth) {
      const int64_t block = std::min(kGemmDepth, depth_ - first);
      for (int64_t m = 0; m < rows; ++m) {
        PackTile<T, T>(row(m) + first, 0, 1, block, tile + m * kGemmStride);
      }
      MultiplyTile<T>(tile, rows, block, panels_.data() + first * padded_,
                      padded_, add || first > 0, product, padded_);
    }
  }

 private:
  const int64_t depth_, padded_;
  const Buffer<T> panels_;
};

// Calls body(first example, examples) in parallel. A product of fewer than four
// rows takes the time of four.
template <typename Body>
void ForExamples(const Cpu& cpu, const RecurrentSpec& spec, const Body& body) {
  const int64_t tasks =
      std::clamp<int64_t>(spec.batch / 4, 1, std::max(cpu.num_threads, 1));
  const double cycles_per_example =
      spec.steps * spec.units * (0.25 * spec.units + 20.0);
  cpu.ParallelFor(tasks, cycles_per_example * spec.batch / tasks,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t first = i * spec.batch / tasks;
                      body(first, (i + 1) * spec.batch / tasks - first);
                    }
                  });
}

// Calls body(activation, recurrent_activation): types that convert to it for
// the usual ones, so that the compiler knows them.
template <typename Body>
TFO_INLINE void WithActivations(const RecurrentSpec& spec, const Body& body) {
  constexpr auto kTanh = CellActivation::kTanh;
  constexpr auto kSigmoid = CellActivation::kSigmoid;
  if (spec.activation == kTanh && spec.recurrent_activation == kSigmoid) {
    body(std::integral_constant<CellActivation, kTanh>(),
         std::integral_constant<CellActivation, kSigmoid>());
  } else {
    body(spec.activation, spec.recurrent_activation);
  }
}

// The output of a masked step.
template <typename T>
void RepeatOutput(const T* state, bool has_begun, int64_t units, T* output) {
  if (has_begun) {
    std::copy_n(state, units, output);
  } else {
    std::fill_n(output, units, T(0));
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_SIMD_H_
