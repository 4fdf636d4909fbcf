// Compares the recurrences and their gradients with loops in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::GpuVector;
using testing::Tensors;

double Activate(CellActivation activation, double x) {
  switch (activation) {
    case CellActivation::kTanh:
      return std::tanh(x);
    case CellActivation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case CellActivation::kRelu:
      return x > 0 ? x : 0;
    case CellActivation::kHardSigmoid:
      return std::min(1.0, std::max(0.0, x / 6 + 0.5));
    default:
      return x;
  }
}

// The derivative, at x.
double Slope(CellActivation activation, double x) {
  const double y = Activate(activation, x);
  switch (activation) {
    case CellActivation::kTanh:
      return 1 - y * y;
    case CellActivation::kSigmoid:
      return y * (1 - y);
    case CellActivation::kRelu:
      return x > 0;
    case CellActivation::kHardSigmoid:
      return std::abs(x) < 3 ? 1.0 / 6 : 0;
    default:
      return 1;
  }
}

// Of booleans. The first examples have no step, all steps, those of the second
// eighth, those of the second half, and some.
GpuVector<char> StepMask(int64_t batch, int64_t steps) {
  std::mt19937 engine(7);
  GpuVector<char> kept;
  for (int64_t i = 0; i < batch * steps; ++i) {
    const int64_t b = i / steps, eighth = i % steps * 8 / steps;
    kept.push_back(b == 1 || (b == 2 && eighth == 1) ||
                   (b == 3 && eighth >= 4) || (b > 3 && engine() % 3 > 0));
  }
  return kept;
}

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

// The same of a GRU.
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

constexpr RecurrentSpec kKeras = {
    0, 0, 0, CellActivation::kTanh, CellActivation::kSigmoid, nullptr};

// A layer's options, arguments and calls.
struct LstmOp {
  using Options = RecurrentSpec;
  template <typename T>
  using Args = LstmArgs<T>;
  template <typename T>
  using GradArgs = LstmGradArgs<T>;

  template <typename T, typename Device>
  static Error Run(const Device& device, const LstmArgs<T>& args) {
    return Lstm(device, args);
  }
  template <typename T, typename Device>
  static Error Run(const Device& device, const LstmGradArgs<T>& args) {
    return LstmGrad(device, args);
  }
};
struct GruOp {
  using Options = GruSpec;
  template <typename T>
  using Args = GruArgs<T>;
  template <typename T>
  using GradArgs = GruGradArgs<T>;

  template <typename T, typename Device>
  static Error Run(const Device& device, const GruArgs<T>& args) {
    return Gru(device, args);
  }
  template <typename T, typename Device>
  static Error Run(const Device& device, const GruGradArgs<T>& args) {
    return GruGrad(device, args);
  }
};

// Calls body(args), then that of the gradient, which reads results.
template <typename Op, typename T, typename Body>
void ForArgs(const typename Op::Options& options, Tensors* tensors,
             const Body& body) {
  body(Bound<typename Op::template Args<T>>(options, tensors));
  body(Bound<typename Op::template GradArgs<T>>(options, tensors));
}

template <typename Op, typename T, typename Device>
void Check(const Device& device, int64_t batch, int64_t steps, int64_t units,
           bool has_mask, bool in_place, const typename Op::Options& options,
           const std::string& text, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "[", batch, ", ",
                              steps, ", ", units, "]", has_mask ? ", mask" : "",
                              in_place ? ", in place" : "", text);
  Tensors tensors({{"batch", batch}, {"steps", steps}, {"units", units}},
                  in_place);
  // Far enough for the ends of hard_sigmoid, but without bounds errors grow.
  const CellActivation recurrent = options.recurrent_activation;
  const bool is_bounded = recurrent != CellActivation::kLinear &&
                          recurrent != CellActivation::kRelu;
  tensors.Scale("gate_inputs", is_bounded ? 1.5 : 0.5);
  tensors.Scale("recurrent_kernel", 0.5 / std::sqrt(units + 1.0));
  tensors.Scale("bias", 0.3);
  tensors.Scale("h0", 0.5);
  tensors.Scale("c0", 0.5);
  if (has_mask) tensors.Set("mask", StepMask(batch, steps));
  ForArgs<Op, T>(options, &tensors, [](const auto&) {});
  Tensors expected = tensors.InDouble();
  const auto args =
      Bound<typename Op::template Args<double>>(options, &expected);
  const auto grad =
      Bound<typename Op::template GradArgs<double>>(options, &expected);
  for (int64_t b = 0; b < batch; ++b) Reference(args, grad, b);
  for (const Tensors& results :
       testing::ComputeOn(device, tensors, [&](const auto& on, Tensors* t) {
         ForArgs<Op, T>(options, t, [&](const auto& args) {
           TFO_EXPECT_RUNS(Op::Run(on, args));
         });
       })) {
    results.ExpectCloseTo(expected);
  }
}

// `with` makes options of those that layers share, and `text` names others.
template <typename Op, typename T, typename Device, typename With>
void CheckSizes(const Device& device, const std::string& text,
                const With& with) {
  const auto check = [&](int64_t batch, int64_t steps, int64_t units,
                         bool has_mask, bool in_place) {
    Check<Op, T>(device, batch, steps, units, has_mask, in_place, with(kKeras),
                 text);
  };
  for (const bool has_mask : {false, true}) {
    for (const bool in_place : {false, true}) {
      for (const int64_t units : {1, 3, 16, 21}) {
        check(5, 6, units, has_mask, in_place);
      }
      check(1, 3, 40, has_mask, in_place);
      check(21, 3, 7, has_mask, in_place);
      // More than one block of the products' depth.
      check(3, 2, 90, has_mask, in_place);
      check(2, 2, 261, has_mask, in_place);
    }
    // More steps than a warp reads of the mask at once.
    check(4, 80, 2, has_mask, false);
    check(0, 3, 4, has_mask, false);
    check(3, 0, 4, has_mask, false);
    check(3, 4, 0, has_mask, false);
  }
  for (const auto& [name, activation] : kCellActivations) {
    for (const auto& [recurrent_name, recurrent] : kCellActivations) {
      Check<Op, T>(device, 3, 4, 9, true, false,
                   with({0, 0, 0, activation, recurrent, nullptr}),
                   testing::Text(text, ", ", name, ", ", recurrent_name));
    }
  }
}

template <typename T, typename Device>
void CheckLstm(const Device& device) {
  CheckSizes<LstmOp, T>(device, "", [](const RecurrentSpec& s) { return s; });
}
template <typename T, typename Device>
void CheckGru(const Device& device) {
  for (const bool reset_after : {false, true}) {
    CheckSizes<GruOp, T>(
        device, reset_after ? "" : ", reset before",
        [&](const RecurrentSpec& s) { return GruSpec{s, reset_after}; });
  }
}

TFO_DEVICE_TEST(Lstm, Float) { CheckLstm<float>(device); }
TFO_DEVICE_TEST(Lstm, Double) { CheckLstm<double>(device); }
TFO_DEVICE_TEST(Gru, Float) { CheckGru<float>(device); }
TFO_DEVICE_TEST(Gru, Double) { CheckGru<double>(device); }

// Of numbers_per_unit numbers that are read or written, without those of the
// recurrent kernel. peers.py reads the names.
template <typename Op, template <typename> class Args>
void Time(const char* name, const typename Op::Options& options,
          int64_t numbers_per_unit, int64_t units, Tensors* tensors) {
  const auto args = Bound<Args<float>>(options, tensors);
  const auto of = testing::Text("float32 ", name, " [64, 100, ", units, "]");
  const int64_t bytes = 4 * numbers_per_unit * 64 * 100 * units;
  const auto run = [&](const auto& device) { return Op::Run(device, args); };
  testing::TimeOnCpu(of, bytes, run);
  testing::TimeOnGpu(of, bytes, 0, run);
}
template <typename Op>
void Time(const char* name, const char* grad_name,
          const typename Op::Options& options, int64_t numbers_per_unit,
          int64_t grad_numbers_per_unit) {
  for (const int64_t units : {256, 1024}) {
    Tensors tensors({{"batch", testing::BenchmarkSize(64)},
                     {"steps", testing::BenchmarkSize(100)},
                     {"units", testing::BenchmarkSize(units)}});
    tensors.Scale("recurrent_kernel", 0.5 / std::sqrt(units));
    Time<Op, Op::template Args>(name, options, numbers_per_unit, units,
                                &tensors);
    Time<Op, Op::template GradArgs>(grad_name, options, grad_numbers_per_unit,
                                    units, &tensors);
  }
}
TFO_BENCHMARK(Lstm, Sizes) {
  Time<LstmOp>("lstm", "lstm_grad", kKeras, 10, 10);
}
TFO_BENCHMARK(Gru, Sizes) {
  Time<GruOp>("gru", "gru_grad", {kKeras, true}, 8, 12);
}

}  // namespace
}  // namespace tfo
