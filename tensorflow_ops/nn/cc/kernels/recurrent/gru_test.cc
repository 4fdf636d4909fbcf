// Compares the recurrence and its gradient with loops in double.
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"

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
void Reference(const GruArgs<double>& a, const GruGradArgs<double>& grad,
               int64_t b) {
  const int64_t steps = a.steps, units = a.units;
  std::vector<std::vector<double>> h(steps + 1);
  h[0].assign(a.h0 + b * units, a.h0 + (b + 1) * units);
  const auto weight = [&](int64_t i, int gate, int64_t u) {
    return a.recurrent_kernel[(i * 3 + gate) * units + u];
  };
  const auto product = [&](const double* x, int gate, int64_t u) {
    double sum = a.bias[(3 + gate) * units + u];
    for (int64_t i = 0; i < units; ++i) sum += x[i] * weight(i, gate, u);
    return sum;
  };
  const auto open = [&](double x) {
    return Activate(a.recurrent_activation, x);
  };
  const auto slope = [&](double x) { return Slope(a.recurrent_activation, x); };
  // Sums of the gates.
  std::vector<double> sums(steps * 3 * units);
  int64_t first = steps;
  for (int64_t t = 0; t < steps; ++t) {
    h[t + 1] = h[t];
    const int64_t row = b * steps + t;
    if (a.IsMasked(b, t)) {
      for (int64_t u = 0; u < units; ++u) {
        a.outputs[row * units + u] = first < t ? h[t][u] : 0;
      }
      continue;
    }
    first = std::min(first, t);
    double* const sum = sums.data() + t * 3 * units;
    double* const gates = a.gates + row * 3 * units;
    double* const resets = a.resets + row * units;
    for (int gate = 0; gate < 3; ++gate) {
      for (int64_t u = 0; u < units; ++u) {
        const int64_t at = gate * units + u;
        sum[at] = a.inputs[row * 3 * units + at] + a.bias[at];
        if (gate == 2) continue;
        sum[at] += product(h[t].data(), gate, u);
        gates[at] = open(sum[at]);
      }
    }
    for (int64_t u = 0; u < units; ++u) {
      const double r = gates[units + u];
      resets[u] = a.reset_after ? product(h[t].data(), 2, u) : r * h[t][u];
    }
    for (int64_t u = 0; u < units; ++u) {
      const int64_t at = 2 * units + u;
      sum[at] +=
          a.reset_after ? gates[units + u] * resets[u] : product(resets, 2, u);
      const double g = gates[at] = Activate(a.activation, sum[at]);
      h[t + 1][u] = gates[u] * h[t][u] + (1 - gates[u]) * g;
      a.outputs[row * units + u] = h[t + 1][u];
    }
  }
  std::vector<double> to_h(units);
  for (int64_t u = 0; u < units; ++u) {
    a.h[b * units + u] = h[steps][u];
    to_h[u] = grad.d_h[b * units + u];
  }
  for (int64_t t = steps - 1; t >= 0; --t) {
    const int64_t row = b * steps + t;
    for (int64_t u = 0; t >= first && u < units; ++u) {
      to_h[u] += grad.d_outputs[row * units + u];
    }
    if (a.IsMasked(b, t)) continue;
    const double* const sum = sums.data() + t * 3 * units;
    const double* const gates = a.gates + row * 3 * units;
    const double* const resets = a.resets + row * units;
    double* const d = grad.d_inputs + row * 3 * units;
    double* const d_y = grad.d_recurrent + row * 3 * units;
    // To what a gate multiplies.
    const auto back = [&](int gate, int64_t i) {
      double to = 0;
      for (int64_t u = 0; u < units; ++u) {
        to += d_y[gate * units + u] * weight(i, gate, u);
      }
      return to;
    };
    std::vector<double> before(units);
    for (int64_t u = 0; u < units; ++u) {
      const double z = gates[u], r = gates[units + u];
      const double g = gates[2 * units + u];
      before[u] = to_h[u] * z;
      d[u] = d_y[u] = to_h[u] * (h[t][u] - g) * slope(sum[u]);
      d[2 * units + u] =
          to_h[u] * (1 - z) * Slope(a.activation, sum[2 * units + u]);
      d_y[2 * units + u] = d[2 * units + u] * (a.reset_after ? r : 1);
    }
    for (int64_t u = 0; u < units; ++u) {
      double d_r = d[2 * units + u] * resets[u];
      if (!a.reset_after) {
        const double to = back(2, u);
        before[u] += to * gates[units + u];
        d_r = to * h[t][u];
      }
      d[units + u] = d_y[units + u] = d_r * slope(sum[units + u]);
    }
    for (int64_t u = 0; u < units; ++u) {
      before[u] += back(0, u) + back(1, u);
      if (a.reset_after) before[u] += back(2, u);
    }
    to_h = before;
  }
  std::copy(to_h.begin(), to_h.end(), grad.d_h0 + b * units);
}

template <typename T, typename Device>
void Run(const Device& device, const GruSpec& options, Tensors* tensors) {
  TFO_EXPECT_RUNS(Gru(device, Bound<GruArgs<T>>(options, tensors)));
  TFO_EXPECT_RUNS(GruGrad(device, Bound<GruGradArgs<T>>(options, tensors)));
}

template <typename T, typename Device>
void Check(const Device& device, int64_t batch, int64_t steps, int64_t units,
           bool has_mask, bool reset_after, bool in_place,
           CellActivation activation = CellActivation::kTanh,
           CellActivation recurrent = CellActivation::kSigmoid,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "[", batch, ", ", steps, ", ", units, "]",
      has_mask ? ", mask" : "", reset_after ? "" : ", reset before",
      in_place ? ", in place" : "", ", activations ",
      static_cast<int>(activation), static_cast<int>(recurrent));
  const GruSpec options{{0, 0, 0, activation, recurrent, nullptr}, reset_after};
  Tensors tensors =
      testing::RecurrentTensors(batch, steps, units, has_mask, in_place);
  // Far enough for the ends of hard_sigmoid, but without bounds errors grow.
  const bool is_bounded = recurrent != CellActivation::kLinear &&
                          recurrent != CellActivation::kRelu;
  tensors.Scale("gate_inputs", is_bounded ? 1.5 : 0.5);
  Bound<GruArgs<T>>(options, &tensors);
  Bound<GruGradArgs<T>>(options, &tensors);
  Tensors expected = tensors.InDouble();
  const auto args = Bound<GruArgs<double>>(options, &expected);
  const auto grad = Bound<GruGradArgs<double>>(options, &expected);
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
    for (const bool reset_after : {false, true}) {
      testing::ForEachSize([&](int64_t batch, int64_t steps, int64_t units,
                               bool in_place) {
        Check<T>(device, batch, steps, units, has_mask, reset_after, in_place);
      });
    }
  }
  for (const auto& [name, activation] : kCellActivations) {
    for (const auto& [recurrent_name, recurrent] : kCellActivations) {
      for (const bool reset_after : {false, true}) {
        Check<T>(device, 3, 4, 9, true, reset_after, false, activation,
                 recurrent);
      }
    }
  }
}

TFO_DEVICE_TEST(Gru, Float) { CheckSizes<float>(device); }
TFO_DEVICE_TEST(Gru, Double) { CheckSizes<double>(device); }

TFO_BENCHMARK(Gru, Training) {
  const GruSpec options{
      {0, 0, 0, CellActivation::kTanh, CellActivation::kSigmoid, nullptr},
      true};
  Tensors tensors = testing::BenchmarkTensors();
  testing::TimeOnGpu("gru and its gradient [64, 100] x 256",
                     int64_t{4 * 16} * 64 * 100 * 256, 0, [&](const Gpu& gpu) {
                       Run<float>(gpu, options, &tensors);
                       return Error();
                     });
}

}  // namespace
}  // namespace tfo
