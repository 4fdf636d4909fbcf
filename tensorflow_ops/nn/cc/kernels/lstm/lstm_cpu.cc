// The recurrence on the CPU: a task has examples, which it takes through all
// steps, as they wait for no other. A step is a product of the examples' states
// with the recurrent kernel, and a pass over the units.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/lstm/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/lstm/lstm_simd.h"

namespace tfo {
namespace {

// A matrix [depth, columns], packed once for the products of all steps.
template <typename T>
class PackedMatrix {
 public:
  // Element (i, j) is at matrix[i * row_stride + j * column_stride].
  PackedMatrix(const Cpu& cpu, const T* matrix, int64_t row_stride,
               int64_t column_stride, int64_t depth, int64_t columns)
      : depth_(depth),
        padded_(RoundUp(columns, TFO_DISPATCH(PanelColumns<T>)())),
        panels_(depth * padded_) {
    const auto pack = TFO_DISPATCH(PackPanels<T, T>);
    cpu.ParallelFor(DivideUp(depth, kGemmDepth), 1.0 * kGemmDepth * padded_,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t first = i * kGemmDepth;
                        pack(matrix + first * row_stride, row_stride,
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
    const auto pack = TFO_DISPATCH(PackTile<T, T>);
    const auto multiply = TFO_DISPATCH(MultiplyTile<T>);
    for (int64_t first = 0; first < depth_; first += kGemmDepth) {
      const int64_t block = std::min(kGemmDepth, depth_ - first);
      for (int64_t m = 0; m < rows; ++m) {
        pack(row(m) + first, 0, 1, block, tile + m * kGemmStride);
      }
      multiply(tile, rows, block, panels_.data() + first * padded_, padded_,
               add || first > 0, product, padded_);
    }
  }

 private:
  const int64_t depth_, padded_;
  const Buffer<T> panels_;
};

// Calls body(first example, examples) in parallel. A product of fewer than four
// rows takes the time of four.
template <typename Body>
void ForExamples(const Cpu& cpu, const LstmSpec& spec, const Body& body) {
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

template <typename T>
void RunSteps(const LstmArgs<T>& args, const PackedMatrix<T>& kernel,
              int64_t first, int64_t examples) {
  const auto step = TFO_DISPATCH(LstmStep<T>);
  const int64_t units = args.units, padded = kernel.padded_columns();
  const Buffer<T> tile(examples * kGemmStride), sums(examples * padded);
  // The states: of the last step that was not masked, or the initial ones.
  std::vector<const T*> h(examples), c(examples);
  for (int64_t m = 0; m < examples; ++m) {
    h[m] = args.h0 + (first + m) * units;
    c[m] = args.c0 + (first + m) * units;
  }
  for (int64_t t = 0; t < args.steps; ++t) {
    kernel.Multiply(
        examples, [&](int64_t m) { return h[m]; }, /*add=*/false, tile.data(),
        sums.data());
    for (int64_t m = 0; m < examples; ++m) {
      const int64_t row = (first + m) * args.steps + t;
      T* const output = args.outputs + row * units;
      T* const cell = args.cells + row * units;
      T* const gates = args.gates + row * 4 * units;
      if (args.IsMasked(first + m, t)) {
        const bool is_first = h[m] == args.h0 + (first + m) * units;
        if (is_first) {
          std::fill_n(output, units, T(0));
        } else {
          std::copy_n(h[m], units, output);
        }
        std::copy_n(c[m], units, cell);
        std::fill_n(gates, 4 * units, T(0));
        continue;
      }
      step(args, {args.inputs + row * 4 * units, args.bias,
                  sums.data() + m * padded, c[m], gates, cell, output});
      h[m] = output;
      c[m] = cell;
    }
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(h[m], units, args.h + (first + m) * units);
    std::copy_n(c[m], units, args.c + (first + m) * units);
  }
}

// `kernel` is transposed.
template <typename T>
void RunGradient(const LstmGradArgs<T>& args, const PackedMatrix<T>& kernel,
                 int64_t first, int64_t examples) {
  const auto step = TFO_DISPATCH(LstmStepGradient<T>);
  const int64_t units = args.units, padded = kernel.padded_columns();
  const Buffer<T> tile(examples * kGemmStride), d_h(examples * padded);
  std::fill_n(d_h.data(), examples * padded, T(0));
  std::copy_n(args.d_c + first * units, examples * units,
              args.d_c0 + first * units);
  // Outputs before the first step are constants.
  std::vector<int64_t> first_step(examples, 0);
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(args.d_h + (first + m) * units, units, d_h.data() + m * padded);
    int64_t& t = first_step[m];
    while (t < args.steps && args.IsMasked(first + m, t)) ++t;
  }
  for (int64_t t = args.steps - 1; t >= 0; --t) {
    for (int64_t m = 0; m < examples; ++m) {
      const int64_t example = first + m, row = example * args.steps + t;
      const T* const d_output = args.d_outputs + row * units;
      T* const d_state = d_h.data() + m * padded;
      T* const d_inputs = args.d_inputs + row * 4 * units;
      if (args.IsMasked(example, t)) {
        std::fill_n(d_inputs, 4 * units, T(0));
        for (int64_t u = 0; t > first_step[m] && u < units; ++u) {
          d_state[u] += d_output[u];
        }
        continue;
      }
      const T* const cell = args.cells + row * units;
      step(args, {args.gates + row * 4 * units,
                  t == 0 ? args.c0 + example * units : cell - units, cell,
                  d_output, d_state, args.d_c0 + example * units, d_inputs});
    }
    kernel.Multiply(
        examples,
        [&](int64_t m) {
          return args.d_inputs + ((first + m) * args.steps + t) * 4 * units;
        },
        /*add=*/true, tile.data(), d_h.data());
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(d_h.data() + m * padded, units,
                args.d_h0 + (first + m) * units);
  }
}

}  // namespace

template <typename T>
Error Lstm(const Cpu& cpu, const LstmArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const PackedMatrix<T> kernel(cpu, args.recurrent_kernel, 4 * args.units, 1,
                               args.units, 4 * args.units);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunSteps(args, kernel, first, examples);
  });
  return nullptr;
}

template <typename T>
Error LstmGrad(const Cpu& cpu, const LstmGradArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const PackedMatrix<T> kernel(cpu, args.recurrent_kernel, 1, 4 * args.units,
                               4 * args.units, args.units);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunGradient(args, kernel, first, examples);
  });
  return nullptr;
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Lstm, Cpu, LstmArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(LstmGrad, Cpu, LstmGradArgs);

}  // namespace tfo
