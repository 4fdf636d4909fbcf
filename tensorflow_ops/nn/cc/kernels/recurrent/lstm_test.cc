// Compares the recurrence and its gradient with loops in double.
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

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
  std::vector<double> outputs, h, c, gates, cells;
  std::vector<double> d_inputs, d_h0, d_c0;
};

template <typename T>
struct Problem {
  RecurrentSpec spec;
  GpuVector<char> kept;
  GpuVector<T> inputs, kernel, bias, h0, c0, d_outputs, d_h, d_c;

  Problem(int64_t batch, int64_t steps, int64_t units, bool has_mask,
          CellActivation activation, CellActivation recurrent)
      : spec{batch, steps, units, activation, recurrent, nullptr} {
    uint32_t seed = 0;
    const auto random = [&](int64_t n, double scale) {
      return testing::NormalValues<T>(++seed, n, scale);
    };
    inputs = random(batch * steps * 4 * units, 0.7);
    kernel = random(units * 4 * units, 0.5 / std::sqrt(units + 1.0));
    bias = random(4 * units, 0.3);
    h0 = random(batch * units, 0.5);
    c0 = random(batch * units, 0.5);
    d_outputs = random(batch * steps * units, 1);
    d_h = random(batch * units, 1);
    d_c = random(batch * units, 1);
    if (!has_mask) return;
    kept = testing::StepMask(batch, steps);
    spec.mask = reinterpret_cast<const bool*>(kept.data());
  }

  // Of an example: goes forward with all values kept, then back.
  void Compute(int64_t b, Expected* e) const {
    const int64_t steps = spec.steps, units = spec.units;
    std::vector<std::vector<double>> h(steps + 1), c(steps + 1), z(steps);
    h[0].assign(h0.begin() + b * units, h0.begin() + (b + 1) * units);
    c[0].assign(c0.begin() + b * units, c0.begin() + (b + 1) * units);
    const auto gate = [&](int g) {
      return g == 2 ? spec.activation : spec.recurrent_activation;
    };
    int64_t first = steps;
    for (int64_t t = 0; t < steps; ++t) {
      h[t + 1] = h[t];
      c[t + 1] = c[t];
      z[t].assign(4 * units, 0);
      const int64_t row = b * steps + t;
      if (spec.IsMasked(b, t)) {
        for (int64_t u = 0; u < units; ++u) {
          e->outputs[row * units + u] = first < t ? h[t][u] : 0;
          e->cells[row * units + u] = c[t][u];
        }
        continue;
      }
      first = std::min(first, t);
      for (int64_t k = 0; k < 4 * units; ++k) {
        z[t][k] = double{inputs[row * 4 * units + k]} + bias[k];
        for (int64_t i = 0; i < units; ++i) {
          z[t][k] += h[t][i] * kernel[i * 4 * units + k];
        }
        e->gates[row * 4 * units + k] = Activate(gate(k / units), z[t][k]);
      }
      const double* const gates = e->gates.data() + row * 4 * units;
      for (int64_t u = 0; u < units; ++u) {
        const double i = gates[u], f = gates[units + u],
                     g = gates[2 * units + u], o = gates[3 * units + u];
        c[t + 1][u] = f * c[t][u] + i * g;
        h[t + 1][u] = o * Activate(spec.activation, c[t + 1][u]);
        e->outputs[row * units + u] = h[t + 1][u];
        e->cells[row * units + u] = c[t + 1][u];
      }
    }
    std::vector<double> to_h(units), to_c(units);
    for (int64_t u = 0; u < units; ++u) {
      e->h[b * units + u] = h[steps][u];
      e->c[b * units + u] = c[steps][u];
      to_h[u] = d_h[b * units + u];
      to_c[u] = d_c[b * units + u];
    }
    for (int64_t t = steps - 1; t >= 0; --t) {
      const int64_t row = b * steps + t;
      for (int64_t u = 0; t >= first && u < units; ++u) {
        to_h[u] += d_outputs[row * units + u];
      }
      if (spec.IsMasked(b, t)) continue;
      const double* const gates = e->gates.data() + row * 4 * units;
      double* const d = e->d_inputs.data() + row * 4 * units;
      for (int64_t u = 0; u < units; ++u) {
        const double i = gates[u], f = gates[units + u],
                     g = gates[2 * units + u], o = gates[3 * units + u];
        const double cell = c[t + 1][u];
        to_c[u] += to_h[u] * o * Slope(spec.activation, cell);
        d[u] = to_c[u] * g;
        d[units + u] = to_c[u] * c[t][u];
        d[2 * units + u] = to_c[u] * i;
        d[3 * units + u] = to_h[u] * Activate(spec.activation, cell);
        to_c[u] *= f;
      }
      for (int64_t k = 0; k < 4 * units; ++k) {
        d[k] *= Slope(gate(k / units), z[t][k]);
      }
      for (int64_t i = 0; i < units; ++i) {
        to_h[i] = 0;
        for (int64_t k = 0; k < 4 * units; ++k) {
          to_h[i] += d[k] * kernel[i * 4 * units + k];
        }
      }
    }
    for (int64_t u = 0; u < units; ++u) {
      e->d_h0[b * units + u] = to_h[u];
      e->d_c0[b * units + u] = to_c[u];
    }
  }
};

template <typename T>
struct Results {
  GpuVector<T> outputs, h, c, gates, cells, d_inputs, d_h0, d_c0;

  bool HasBitsOf(const Results& other) const {
    return HaveSameBits(outputs, other.outputs) && HaveSameBits(h, other.h) &&
           HaveSameBits(c, other.c) && HaveSameBits(gates, other.gates) &&
           HaveSameBits(cells, other.cells) &&
           HaveSameBits(d_inputs, other.d_inputs) &&
           HaveSameBits(d_h0, other.d_h0) && HaveSameBits(d_c0, other.d_c0);
  }
};

// In place: gates take the place of the inputs, and their gradients that of
// gates.
template <typename T, typename Device>
void Run(const Device& device, const Problem<T>& p, bool in_place,
         Results<T>* r) {
  LstmArgs<T> args;
  static_cast<RecurrentSpec&>(args) = p.spec;
  if (in_place) r->gates = p.inputs;
  args.inputs = in_place ? r->gates.data() : p.inputs.data();
  args.recurrent_kernel = p.kernel.data();
  args.bias = p.bias.data();
  args.h0 = p.h0.data();
  args.c0 = p.c0.data();
  args.outputs = r->outputs.data();
  args.h = r->h.data();
  args.c = r->c.data();
  args.gates = r->gates.data();
  args.cells = r->cells.data();
  TFO_EXPECT_RUNS(Lstm(device, args));
  LstmGradArgs<T> grad;
  static_cast<RecurrentSpec&>(grad) = p.spec;
  if (in_place) r->d_inputs = r->gates;
  grad.gates = in_place ? r->d_inputs.data() : r->gates.data();
  grad.recurrent_kernel = p.kernel.data();
  grad.c0 = p.c0.data();
  grad.cells = r->cells.data();
  grad.d_outputs = p.d_outputs.data();
  grad.d_h = p.d_h.data();
  grad.d_c = p.d_c.data();
  grad.d_inputs = r->d_inputs.data();
  grad.d_h0 = r->d_h0.data();
  grad.d_c0 = r->d_c0.data();
  TFO_EXPECT_RUNS(LstmGrad(device, grad));
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
  const Problem<T> p(batch, steps, units, has_mask, activation, recurrent);
  const int64_t states = batch * units, all = states * steps;
  Expected e;
  for (auto* values : {&e.outputs, &e.cells}) values->assign(all, 0);
  for (auto* values : {&e.gates, &e.d_inputs}) values->assign(4 * all, 0);
  for (auto* values : {&e.h, &e.c, &e.d_h0, &e.d_c0}) values->assign(states, 0);
  for (int64_t b = 0; b < batch; ++b) p.Compute(b, &e);
  const GpuVector<T> of_states(states, 7), of_all(all, 7), of_gates(4 * all, 7);
  const Results<T> empty{of_all, of_states, of_states, of_gates,
                         of_all, of_gates,  of_states, of_states};
  const auto results = testing::ComputeOn(
      device, empty, [](const Gpu&) { return 0; },
      [&](const auto& on, Results<T>* r) { Run(on, p, in_place, r); });
  for (const Results<T>& r : results) {
    ExpectClose("outputs", r.outputs, e.outputs);
    ExpectClose("h", r.h, e.h);
    ExpectClose("c", r.c, e.c);
    ExpectClose("gates", r.gates, e.gates);
    ExpectClose("cells", r.cells, e.cells);
    ExpectClose("d_inputs", r.d_inputs, e.d_inputs);
    ExpectClose("d_h0", r.d_h0, e.d_h0);
    ExpectClose("d_c0", r.d_c0, e.d_c0);
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
  for (const CellActivation activation : kCellActivations) {
    for (const CellActivation recurrent : kCellActivations) {
      Check<T>(device, 3, 4, 9, true, false, activation, recurrent);
    }
  }
}

TFO_DEVICE_TEST(Lstm, Float) { CheckSizes<float>(device); }
TFO_DEVICE_TEST(Lstm, Double) { CheckSizes<double>(device); }

TFO_BENCHMARK(Lstm, Training) {
  const int64_t batch = testing::BenchmarkSize(64), steps = 100, units = 256;
  const Problem<float> p(batch, testing::BenchmarkSize(steps),
                         testing::BenchmarkSize(units), false,
                         CellActivation::kTanh, CellActivation::kSigmoid);
  const int64_t states = batch * p.spec.units, all = states * p.spec.steps;
  const GpuVector<float> of_states(states), of_all(all), of_gates(4 * all);
  Results<float> r{of_all, of_states, of_states, of_gates,
                   of_all, of_gates,  of_states, of_states};
  testing::TimeOnGpu("lstm and its gradient [64, 100] x 256", 4 * 13 * all, 0,
                     [&](const Gpu& gpu) {
                       Run(gpu, p, false, &r);
                       return Error();
                     });
}

}  // namespace
}  // namespace tfo
