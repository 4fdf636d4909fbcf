// Compares the recurrence and its gradient with loops in double.
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_testing.h"

namespace tfo {
namespace {

using testing::Activate;
using testing::Bound;
using testing::Slope;
using testing::Tensors;

// Of an example: goes forward with all values kept, then back.
void Reference(const LstmArgs<double>& a, const LstmGradArgs<double>& grad,
               int64_t b) {
  const int64_t steps = a.steps, units = a.units;
  std::vector<std::vector<double>> h(steps + 1), c(steps + 1), z(steps);
  h[0].assign(a.h0 + b * units, a.h0 + (b + 1) * units);
  c[0].assign(a.c0 + b * units, a.c0 + (b + 1) * units);
  const auto gate = [&](int g) {
    return g == 2 ? a.activation : a.recurrent_activation;
  };
  int64_t first = steps;
  for (int64_t t = 0; t < steps; ++t) {
    h[t + 1] = h[t];
    c[t + 1] = c[t];
    z[t].assign(4 * units, 0);
    const int64_t row = b * steps + t;
    if (a.IsMasked(b, t)) {
      for (int64_t u = 0; u < units; ++u) {
        a.outputs[row * units + u] = first < t ? h[t][u] : 0;
        a.cells[row * units + u] = c[t][u];
      }
      continue;
    }
    first = std::min(first, t);
    for (int64_t k = 0; k < 4 * units; ++k) {
      z[t][k] = a.inputs[row * 4 * units + k] + a.bias[k];
      for (int64_t i = 0; i < units; ++i) {
        z[t][k] += h[t][i] * a.recurrent_kernel[i * 4 * units + k];
      }
      a.gates[row * 4 * units + k] = Activate(gate(k / units), z[t][k]);
    }
    const double* const gates = a.gates + row * 4 * units;
    for (int64_t u = 0; u < units; ++u) {
      const double i = gates[u], f = gates[units + u], g = gates[2 * units + u],
                   o = gates[3 * units + u];
      c[t + 1][u] = f * c[t][u] + i * g;
      h[t + 1][u] = o * Activate(a.activation, c[t + 1][u]);
      a.outputs[row * units + u] = h[t + 1][u];
      a.cells[row * units + u] = c[t + 1][u];
    }
  }
  std::vector<double> to_h(units), to_c(units);
  for (int64_t u = 0; u < units; ++u) {
    a.h[b * units + u] = h[steps][u];
    a.c[b * units + u] = c[steps][u];
    to_h[u] = grad.d_h[b * units + u];
    to_c[u] = grad.d_c[b * units + u];
  }
  for (int64_t t = steps - 1; t >= 0; --t) {
    const int64_t row = b * steps + t;
    for (int64_t u = 0; t >= first && u < units; ++u) {
      to_h[u] += grad.d_outputs[row * units + u];
    }
    if (a.IsMasked(b, t)) continue;
    const double* const gates = a.gates + row * 4 * units;
    double* const d = grad.d_inputs + row * 4 * units;
    for (int64_t u = 0; u < units; ++u) {
      const double i = gates[u], f = gates[units + u], g = gates[2 * units + u],
                   o = gates[3 * units + u];
      const double cell = c[t + 1][u];
      to_c[u] += to_h[u] * o * Slope(a.activation, cell);
      d[u] = to_c[u] * g;
      d[units + u] = to_c[u] * c[t][u];
      d[2 * units + u] = to_c[u] * i;
      d[3 * units + u] = to_h[u] * Activate(a.activation, cell);
      to_c[u] *= f;
    }
    for (int64_t k = 0; k < 4 * units; ++k) {
      d[k] *= Slope(gate(k / units), z[t][k]);
    }
    for (int64_t i = 0; i < units; ++i) {
      to_h[i] = 0;
      for (int64_t k = 0; k < 4 * units; ++k) {
        to_h[i] += d[k] * a.recurrent_kernel[i * 4 * units + k];
      }
    }
  }
  for (int64_t u = 0; u < units; ++u) {
    grad.d_h0[b * units + u] = to_h[u];
    grad.d_c0[b * units + u] = to_c[u];
  }
}

template <typename T, typename Device>
void Run(const Device& device, const RecurrentSpec& options, Tensors* tensors) {
  TFO_EXPECT_RUNS(Lstm(device, Bound<LstmArgs<T>>(options, tensors)));
  TFO_EXPECT_RUNS(LstmGrad(device, Bound<LstmGradArgs<T>>(options, tensors)));
}

template <typename T, typename Device>
void Check(const Device& device, int64_t batch, int64_t steps, int64_t units,
           bool has_mask, bool in_place,
           CellActivation activation = CellActivation::kTanh,
           CellActivation recurrent = CellActivation::kSigmoid,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "[", batch, ", ", steps, ", ", units, "]",
      has_mask ? ", mask" : "", in_place ? ", in place" : "", ", activations ",
      static_cast<int>(activation), static_cast<int>(recurrent));
  const RecurrentSpec options{0, 0, 0, activation, recurrent, nullptr};
  Tensors tensors =
      testing::RecurrentTensors(batch, steps, units, has_mask, in_place);
  Bound<LstmArgs<T>>(options, &tensors);
  Bound<LstmGradArgs<T>>(options, &tensors);
  Tensors expected = tensors.InDouble();
  const auto args = Bound<LstmArgs<double>>(options, &expected);
  const auto grad = Bound<LstmGradArgs<double>>(options, &expected);
  for (int64_t b = 0; b < batch; ++b) Reference(args, grad, b);
  for (const Tensors& results : testing::ComputeOn(
           device, tensors, [](const Gpu&) { return 0; },
           [&](const auto& on, Tensors* t) { Run<T>(on, options, t); })) {
    results.ExpectCloseTo(expected);
  }
}

template <typename T, typename Device>
void CheckSizes(const Device& device) {
  for (const bool has_mask : {false, true}) {
    testing::ForEachSize(
        [&](int64_t batch, int64_t steps, int64_t units, bool in_place) {
          Check<T>(device, batch, steps, units, has_mask, in_place);
        });
  }
  for (const auto& [name, activation] : kCellActivations) {
    for (const auto& [recurrent_name, recurrent] : kCellActivations) {
      Check<T>(device, 3, 4, 9, true, false, activation, recurrent);
    }
  }
}

TFO_DEVICE_TEST(Lstm, Float) { CheckSizes<float>(device); }
TFO_DEVICE_TEST(Lstm, Double) { CheckSizes<double>(device); }

TFO_BENCHMARK(Lstm, Training) {
  const RecurrentSpec options{
      0, 0, 0, CellActivation::kTanh, CellActivation::kSigmoid, nullptr};
  Tensors tensors = testing::BenchmarkTensors();
  testing::TimeOnGpu("lstm and its gradient [64, 100] x 256",
                     int64_t{4 * 13} * 64 * 100 * 256, 0, [&](const Gpu& gpu) {
                       Run<float>(gpu, options, &tensors);
                       return Error();
                     });
}

}  // namespace
}  // namespace tfo
