// Compares the recurrence and its gradient with loops in double.
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_testing.h"

namespace tfo {
namespace {

using testing::Activate;
using testing::ExpectClose;
using testing::GpuVector;
using testing::kCellActivations;
using testing::Slope;

struct Expected {
  std::vector<double> outputs, h, gates, resets;
  std::vector<double> d_inputs, d_recurrent, d_h0;
};

template <typename T>
struct Problem {
  GruSpec spec;
  GpuVector<char> kept;
  GpuVector<T> inputs, kernel, bias, h0, d_outputs, d_h;

  Problem(int64_t batch, int64_t steps, int64_t units, bool has_mask,
          bool reset_after, CellActivation activation, CellActivation recurrent)
      : spec{{batch, steps, units, activation, recurrent, nullptr},
             reset_after} {
    uint32_t seed = 0;
    const auto random = [&](int64_t n, double scale) {
      return testing::NormalValues<T>(++seed, n, scale);
    };
    // Far enough for the ends of hard_sigmoid, but without bounds errors grow.
    const bool is_bounded = recurrent != CellActivation::kLinear &&
                            recurrent != CellActivation::kRelu;
    inputs = random(batch * steps * 3 * units, is_bounded ? 1.5 : 0.7);
    kernel = random(units * 3 * units, 0.5 / std::sqrt(units + 1.0));
    bias = random(2 * 3 * units, 0.3);
    h0 = random(batch * units, 0.5);
    d_outputs = random(batch * steps * units, 1);
    d_h = random(batch * units, 1);
    if (!has_mask) return;
    kept = testing::StepMask(batch, steps);
    spec.mask = reinterpret_cast<const bool*>(kept.data());
  }

  // Of an example: goes forward with all values kept, then back.
  void Compute(int64_t b, Expected* e) const {
    const int64_t steps = spec.steps, units = spec.units;
    std::vector<std::vector<double>> h(steps + 1);
    h[0].assign(h0.begin() + b * units, h0.begin() + (b + 1) * units);
    const auto weight = [&](int64_t i, int gate, int64_t u) {
      return double{kernel[(i * 3 + gate) * units + u]};
    };
    const auto product = [&](const double* x, int gate, int64_t u) {
      double sum = bias[(3 + gate) * units + u];
      for (int64_t i = 0; i < units; ++i) sum += x[i] * weight(i, gate, u);
      return sum;
    };
    const auto open = [&](double x) {
      return Activate(spec.recurrent_activation, x);
    };
    const auto slope = [&](double x) {
      return Slope(spec.recurrent_activation, x);
    };
    // Sums of the gates.
    std::vector<double> sums(steps * 3 * units);
    int64_t first = steps;
    for (int64_t t = 0; t < steps; ++t) {
      h[t + 1] = h[t];
      const int64_t row = b * steps + t;
      if (spec.IsMasked(b, t)) {
        for (int64_t u = 0; u < units; ++u) {
          e->outputs[row * units + u] = first < t ? h[t][u] : 0;
        }
        continue;
      }
      first = std::min(first, t);
      double* const sum = sums.data() + t * 3 * units;
      double* const gates = e->gates.data() + row * 3 * units;
      double* const resets = e->resets.data() + row * units;
      for (int gate = 0; gate < 3; ++gate) {
        for (int64_t u = 0; u < units; ++u) {
          const int64_t at = gate * units + u;
          sum[at] = double{inputs[row * 3 * units + at]} + bias[at];
          if (gate == 2) continue;
          sum[at] += product(h[t].data(), gate, u);
          gates[at] = open(sum[at]);
        }
      }
      for (int64_t u = 0; u < units; ++u) {
        const double r = gates[units + u];
        resets[u] = spec.reset_after ? product(h[t].data(), 2, u) : r * h[t][u];
      }
      for (int64_t u = 0; u < units; ++u) {
        const int64_t at = 2 * units + u;
        sum[at] += spec.reset_after ? gates[units + u] * resets[u]
                                    : product(resets, 2, u);
        const double g = gates[at] = Activate(spec.activation, sum[at]);
        h[t + 1][u] = gates[u] * h[t][u] + (1 - gates[u]) * g;
        e->outputs[row * units + u] = h[t + 1][u];
      }
    }
    std::vector<double> to_h(units);
    for (int64_t u = 0; u < units; ++u) {
      e->h[b * units + u] = h[steps][u];
      to_h[u] = d_h[b * units + u];
    }
    for (int64_t t = steps - 1; t >= 0; --t) {
      const int64_t row = b * steps + t;
      for (int64_t u = 0; t >= first && u < units; ++u) {
        to_h[u] += d_outputs[row * units + u];
      }
      if (spec.IsMasked(b, t)) continue;
      const double* const sum = sums.data() + t * 3 * units;
      const double* const gates = e->gates.data() + row * 3 * units;
      const double* const resets = e->resets.data() + row * units;
      double* const d = e->d_inputs.data() + row * 3 * units;
      double* const d_y = e->d_recurrent.data() + row * 3 * units;
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
            to_h[u] * (1 - z) * Slope(spec.activation, sum[2 * units + u]);
        d_y[2 * units + u] = d[2 * units + u] * (spec.reset_after ? r : 1);
      }
      for (int64_t u = 0; u < units; ++u) {
        double d_r = d[2 * units + u] * resets[u];
        if (!spec.reset_after) {
          const double to = back(2, u);
          before[u] += to * gates[units + u];
          d_r = to * h[t][u];
        }
        d[units + u] = d_y[units + u] = d_r * slope(sum[units + u]);
      }
      for (int64_t u = 0; u < units; ++u) {
        before[u] += back(0, u) + back(1, u);
        if (spec.reset_after) before[u] += back(2, u);
      }
      to_h = before;
    }
    std::copy(to_h.begin(), to_h.end(), e->d_h0.begin() + b * units);
  }
};

template <typename T>
struct Results {
  GpuVector<T> outputs, h, gates, resets, d_inputs, d_recurrent, d_h0;

  bool HasBitsOf(const Results& other) const {
    return HaveSameBits(outputs, other.outputs) && HaveSameBits(h, other.h) &&
           HaveSameBits(gates, other.gates) &&
           HaveSameBits(resets, other.resets) &&
           HaveSameBits(d_inputs, other.d_inputs) &&
           HaveSameBits(d_recurrent, other.d_recurrent) &&
           HaveSameBits(d_h0, other.d_h0);
  }
};

// In place: gates take the place of the inputs, and their gradients that of
// gates.
template <typename T, typename Device>
void Run(const Device& device, const Problem<T>& p, bool in_place,
         Results<T>* r) {
  GruArgs<T> args;
  static_cast<GruSpec&>(args) = p.spec;
  if (in_place) r->gates = p.inputs;
  args.inputs = in_place ? r->gates.data() : p.inputs.data();
  args.recurrent_kernel = p.kernel.data();
  args.bias = p.bias.data();
  args.h0 = p.h0.data();
  args.outputs = r->outputs.data();
  args.h = r->h.data();
  args.gates = r->gates.data();
  args.resets = r->resets.data();
  TFO_EXPECT_RUNS(Gru(device, args));
  GruGradArgs<T> grad;
  static_cast<GruSpec&>(grad) = p.spec;
  if (in_place) r->d_inputs = r->gates;
  grad.gates = in_place ? r->d_inputs.data() : r->gates.data();
  grad.recurrent_kernel = p.kernel.data();
  grad.h0 = p.h0.data();
  grad.outputs = r->outputs.data();
  grad.resets = r->resets.data();
  grad.d_outputs = p.d_outputs.data();
  grad.d_h = p.d_h.data();
  grad.d_inputs = r->d_inputs.data();
  grad.d_recurrent = r->d_recurrent.data();
  grad.d_h0 = r->d_h0.data();
  TFO_EXPECT_RUNS(GruGrad(device, grad));
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
  const Problem<T> p(batch, steps, units, has_mask, reset_after, activation,
                     recurrent);
  const int64_t states = batch * units, all = states * steps;
  Expected e;
  for (auto* values : {&e.outputs, &e.resets}) values->assign(all, 0);
  for (auto* values : {&e.gates, &e.d_inputs, &e.d_recurrent}) {
    values->assign(3 * all, 0);
  }
  for (auto* values : {&e.h, &e.d_h0}) values->assign(states, 0);
  for (int64_t b = 0; b < batch; ++b) p.Compute(b, &e);
  const GpuVector<T> of_states(states, 7), of_all(all, 7), of_gates(3 * all, 7);
  const Results<T> empty{of_all,   of_states, of_gates, of_all,
                         of_gates, of_gates,  of_states};
  const auto results = testing::ComputeOn(
      device, empty, [](const Gpu&) { return 0; },
      [&](const auto& on, Results<T>* r) { Run(on, p, in_place, r); });
  for (const Results<T>& r : results) {
    ExpectClose("outputs", r.outputs, e.outputs);
    ExpectClose("h", r.h, e.h);
    ExpectClose("gates", r.gates, e.gates);
    ExpectClose("resets", r.resets, e.resets);
    ExpectClose("d_inputs", r.d_inputs, e.d_inputs);
    ExpectClose("d_recurrent", r.d_recurrent, e.d_recurrent);
    ExpectClose("d_h0", r.d_h0, e.d_h0);
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
  for (const CellActivation activation : kCellActivations) {
    for (const CellActivation recurrent : kCellActivations) {
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
  const int64_t batch = testing::BenchmarkSize(64), steps = 100, units = 256;
  const Problem<float> p(batch, testing::BenchmarkSize(steps),
                         testing::BenchmarkSize(units), false, true,
                         CellActivation::kTanh, CellActivation::kSigmoid);
  const int64_t states = batch * p.spec.units, all = states * p.spec.steps;
  const GpuVector<float> of_states(states), of_all(all), of_gates(3 * all);
  Results<float> r{of_all,   of_states, of_gates, of_all,
                   of_gates, of_gates,  of_states};
  testing::TimeOnGpu("gru and its gradient [64, 100] x 256", 4 * 16 * all, 0,
                     [&](const Gpu& gpu) {
                       Run(gpu, p, false, &r);
                       return Error();
                     });
}

}  // namespace
}  // namespace tfo
