// Compares assignments with the cheapest flow by Bellman and Ford.
#include <limits>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_search.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::GpuVector;
using testing::Tensors;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Problem {
  int64_t batch, rows, columns;
  bool maximize;
  std::vector<double> costs;
  std::vector<int64_t> counts;  // or empty

  int64_t Count(int64_t example) const {
    return counts.empty() ? columns : counts[example];
  }
  double Cost(int64_t example, int64_t q, int64_t t) const {
    const double cost = costs[(example * rows + q) * columns + t];
    return maximize ? -cost : cost;
  }
};

// What run(args) writes: all columns, then all rows.
template <typename T, typename Run>
std::vector<int32_t> Results(const Problem& problem, const Run& run) {
  Tensors tensors({{"...", problem.batch},
                   {"rows", problem.rows},
                   {"columns", problem.columns}});
  GpuVector<T> costs;
  for (double cost : problem.costs) costs.push_back(testing::Rounded<T>(cost));
  tensors.Set("costs", std::move(costs));
  const bool has_counts = !problem.counts.empty();
  if (has_counts) tensors.Set("counts", testing::ToGpu(problem.counts));
  auto args = Bound<AssignmentArgs<T>>(&tensors);
  args.maximize = problem.maximize;
  run(args);
  auto both = tensors.Get<int32_t>("columns");
  const auto& rows = tensors.Get<int32_t>("rows");
  both.insert(both.end(), rows.begin(), rows.end());
  return {both.begin(), both.end()};
}

template <typename T, typename Device>
std::vector<int32_t> Run(const Device& device, const Problem& problem) {
  return Results<T>(problem, [&](const auto& args) {
    testing::WithScratch(
        device, [&] { return AssignmentScratchBytes(args); },
        [&](const Device& on) {
          TFO_EXPECT_RUNS(LinearSumAssignment(on, args));
        });
  });
}

// The steps of a search in plain loops.
struct PlainLoops {
  template <typename Body>
  void ForEach(int64_t n, const Body& body) const {
    for (int64_t i = n; i-- > 0;) body(i);
  }
  template <typename IsOne>
  bool Any(int64_t n, const IsOne& is_one) const {
    bool any = false;
    for (int64_t i = 0; i < n; ++i) any |= is_one(i);
    return any;
  }
  template <typename Body>
  void Alone(const Body& body) const {
    body();
  }
  int64_t Relax(const SinkScan& s, double* low) const {
    if (s.is_first) std::fill_n(s.nearest, s.sinks, kInf);
    for (int64_t t = 0; t < s.sinks; ++t) {
      const double through = s.base + s.costs[t] - s.potentials[t];
      if (!(through < s.nearest[t])) continue;
      s.nearest[t] = through;
      s.from[t] = s.source;
    }
    *low = *std::min_element(s.nearest, s.nearest + s.sinks);
    if (*low == kInf) return -1;
    for (bool owned : {false, true}) {
      for (int64_t t = 0; t < s.sinks; ++t) {
        if (s.nearest[t] == *low && (s.owners[t] >= 0) == owned) return t;
      }
    }
    return -1;
  }
};

std::vector<int32_t> RunPlain(const Problem& problem) {
  return Results<double>(problem, [](const auto& args) {
    const int64_t bytes =
        AssignmentMemory(args.rows, args.columns, 1, nullptr).bytes;
    const Buffer<char> buffer(bytes);
    std::fill_n(buffer.data(), bytes, '\xFF');
    const AssignmentMemory memory(args.rows, args.columns, 1, buffer.data());
    for (int64_t i = 0; i < args.batch; ++i) {
      AssignExample(PlainLoops(), args, i, memory);
    }
  });
}

struct Optimum {
  int64_t pairs;
  double sum;
};

// Adds the cheapest augmenting path until there is none.
Optimum CheapestFlow(const Problem& problem, int64_t example) {
  const int64_t rows = problem.rows, columns = problem.Count(example);
  std::vector<int64_t> of_column(columns, -1), of_row(rows, -1);
  Optimum best = {0, 0};
  while (true) {
    std::vector<double> to_row(rows), to_column(columns, kInf);
    std::vector<int64_t> from(columns, -1);
    for (int64_t q = 0; q < rows; ++q) to_row[q] = of_row[q] < 0 ? 0 : kInf;
    for (bool changed = true; changed;) {
      changed = false;
      for (int64_t q = 0; q < rows; ++q) {
        for (int64_t t = 0; t < columns; ++t) {
          const double cost = problem.Cost(example, q, t);
          if (!(cost < kInf) || of_row[q] == t) continue;
          if (!(to_row[q] + cost < to_column[t])) continue;
          to_column[t] = to_row[q] + cost;
          from[t] = q;
          changed = true;
          const int64_t owner = of_column[t];
          if (owner < 0) continue;
          to_row[owner] = to_column[t] - problem.Cost(example, owner, t);
        }
      }
    }
    int64_t end = -1;
    for (int64_t t = 0; t < columns; ++t) {
      if (of_column[t] >= 0 || to_column[t] == kInf) continue;
      if (end < 0 || to_column[t] < to_column[end]) end = t;
    }
    if (end < 0) return best;
    ++best.pairs;
    best.sum += to_column[end];
    while (end >= 0) {
      const int64_t q = from[end], next = of_row[q];
      of_column[end] = q;
      of_row[q] = end;
      end = next;
    }
  }
}

// Expects the pairs and sums of the cheapest flow, and the plain loops' ties.
template <typename T, typename Device>
void Check(const Device& device, const Problem& problem,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), problem.batch,
                              " x [", problem.rows, ", ", problem.columns,
                              problem.maximize ? "], maximize" : "]");
  const auto both = Run<T>(device, problem);
  TFO_EXPECT(both == RunPlain(problem));
  const int32_t* const columns_of = both.data();
  const int32_t* const rows_of = columns_of + problem.batch * problem.rows;
  for (int64_t i = 0; i < problem.batch; ++i) {
    Optimum found = {0, 0};
    for (int64_t q = 0; q < problem.rows; ++q) {
      const int32_t t = columns_of[i * problem.rows + q];
      if (t == -1) continue;
      TFO_EXPECT(t >= 0 && t < problem.Count(i));
      TFO_EXPECT_EQ(rows_of[i * problem.columns + t], q);
      TFO_EXPECT(problem.Cost(i, q, t) < kInf);
      ++found.pairs;
      found.sum += problem.Cost(i, q, t);
    }
    int64_t matched = 0;
    for (int64_t t = 0; t < problem.columns; ++t) {
      matched += rows_of[i * problem.columns + t] != -1;
    }
    const Optimum expected = CheapestFlow(problem, i);
    TFO_EXPECT_EQ(found.pairs, expected.pairs);
    TFO_EXPECT_EQ(matched, expected.pairs);
    TFO_EXPECT_EQ(found.sum, expected.sum);
  }
}

// Costs are integers, so that sums are exact.
Problem Draw(int64_t batch, int64_t rows, int64_t columns, bool maximize,
             bool with_counts, int greatest, double forbidden, uint32_t seed) {
  std::mt19937 engine(seed);
  Problem problem = {batch, rows, columns, maximize, {}, {}};
  for (int64_t i = 0; i < batch * rows * columns; ++i) {
    const int drawn = static_cast<int>(engine() % (2 * greatest + 1));
    const bool is_forbidden = engine() % 1000 < 1000 * forbidden;
    const double none = engine() % 2 ? kNan : maximize ? -kInf : kInf;
    problem.costs.push_back(is_forbidden ? none : drawn - greatest);
  }
  for (int64_t i = 0; with_counts && i < batch; ++i) {
    problem.counts.push_back(engine() % (columns + 1));
  }
  return problem;
}

template <typename T, typename Device>
void CheckDrawn(const Device& device, int64_t batch, int64_t rows,
                int64_t columns, const testing::Caller& caller = {}) {
  uint32_t seed = 0;
  for (const double forbidden : {0.0, 0.3, 0.7, 0.95}) {
    for (const int greatest : {0, 3, 200}) {
      for (const bool maximize : {false, true}) {
        ++seed;
        Check<T>(device,
                 Draw(batch, rows, columns, maximize, seed % 3 == 0, greatest,
                      forbidden, seed),
                 caller);
      }
    }
  }
}

TFO_TEST(Assignment, IsTheCheapestFlow) {
  const std::pair<int64_t, int64_t> sizes[] = {
      {1, 1}, {1, 9}, {9, 1}, {2, 2}, {5, 5}, {8, 16}, {16, 7}, {23, 24}};
  for (const auto& [rows, columns] : sizes) {
    CheckDrawn<float>(testing::ThreadedCpu(2), 4, rows, columns);
  }
  testing::ForTypes([](auto type) {
    CheckDrawn<decltype(type)>(testing::ThreadedCpu(1), 2, 12, 9);
  });
}

TFO_TEST(Assignment, OfManyQueries) {
  Check<float>(testing::ThreadedCpu(2),
               Draw(2, 120, 40, false, true, 1000000, 0, 1));
  Check<double>(testing::ThreadedCpu(2),
                Draw(1, 60, 90, true, false, 1000000, 0.97, 2));
}

// Pairs that differ by less than the greatest costs' unit, and costs whose sums
// are not finite.
template <typename T, typename Device>
void CheckExtremeCosts(const Device& device) {
  const double most = std::numeric_limits<T>::max();
  const std::vector<int32_t> same = {0, 1}, crossed = {1, 0}, none = {-1, -1},
                             first = {0, -1}, second = {1, -1};
  const auto expect = [&](std::vector<double> costs,
                          const std::vector<int32_t>& expected,
                          const testing::Caller& caller = {}) {
    const testing::Case of_test(caller, testing::NameOf<T>());
    for (const bool maximize : {false, true}) {
      auto columns = Run<T>(device, {1, 2, 2, maximize, costs, {}});
      columns.resize(2);
      TFO_EXPECT(columns == expected);
      for (double& cost : costs) cost = -cost;
    }
  };
  expect({2, 1, 3, 1}, same);
  expect({1, 1e30, 1e30, 2}, same);
  expect({1e30, 1, 2, 1e30}, crossed);
  expect({1, 2, 1e30, 1e30}, same);
  expect({most, -most, -most, most}, crossed);
  expect({-most, most, most, -most}, same);
  expect({most, most, most, most}, same);
  expect({-most, most, most, kNan}, crossed);
  expect({-kInf, 0, 0, 0}, same);
  expect({0, -kInf, 1, 0}, crossed);
  expect({-kInf, -kInf, -kInf, 1}, crossed);
  expect({-most, -kInf, 0, kNan}, crossed);
  expect({kInf, -kInf, kInf, kNan}, second);
  expect({kNan, kNan, kInf, kNan}, none);
  expect({most, kNan, kInf, kNan}, first);
  // The second row gives way, though it comes last and costs less by itself.
  expect({kNan, -5, 7, -9}, crossed);
}

TFO_DEVICE_TEST(AssignmentExtremes, AreOrdered) {
  CheckExtremeCosts<float>(device);
  CheckExtremeCosts<double>(device);
}

TFO_DEVICE_TEST(AssignmentEmpty, HasNoPairs) {
  const std::vector<int32_t> none(6, -1);
  TFO_EXPECT(Run<float>(device, {2, 3, 0, false, {}, {}}) == none);
  TFO_EXPECT(Run<float>(device, {2, 0, 3, false, {}, {0, 3}}) == none);
  TFO_EXPECT(
      Run<float>(device, {1, 2, 4, false, {8, 1, 2, 3, 4, 5, 6, 7}, {0}}) ==
      none);
}

// The CPU's caller has checked counts.
TFO_CUDA_TEST(Assignment, CudaCountsOutOfRangeMatchNothing) {
  for (const int64_t count : {int64_t{-1}, int64_t{3}, int64_t{1} << 40}) {
    const std::vector<int32_t> expected = {-1, 0, -1, -1, 0, -1};
    TFO_EXPECT(Run<float>(Gpu{}, {2, 1, 2, false, {1, 2, 3, 4}, {count, 1}}) ==
               expected);
  }
}

// Emulated kernels are slow, so these cover a few sizes only.
TFO_CUDA_TEST(Assignment, CudaIsTheCheapestFlow) {
  CheckDrawn<float>(Gpu{}, 3, 12, 9);
  CheckDrawn<float>(Gpu{}, 1, 5, 40);
  testing::ForTypes([](auto type) {
    Check<decltype(type)>(Gpu{}, Draw(2, 9, 12, true, true, 3, 0.5, 1));
  });
}

// More sinks than threads; more examples than blocks.
TFO_CUDA_TEST(Assignment, CudaLargeCosts) {
  Check<float>(Gpu{}, Draw(1, 600, 7, false, false, 1000000, 0.2, 1));
  Check<float>(Gpu{}, Draw(1100, 2, 3, false, true, 3, 0.4, 2));
}

TFO_BENCHMARK(Assignment, Queries) {
  for (const auto& [batch, rows, columns] :
       {std::array<int64_t, 3>{8, 300, 30}, {8, 900, 100}, {1, 1000, 1000}}) {
    const int64_t q = testing::BenchmarkSize(rows);
    const int64_t t = testing::BenchmarkSize(columns);
    Tensors tensors({{"...", batch}, {"rows", q}, {"columns", t}});
    const auto args = Bound<AssignmentArgs<float>>(&tensors);
    const auto name = testing::Text("float32 linear_sum_assignment ", batch,
                                    " x [", rows, ", ", columns, "]");
    const int64_t bytes = 4 * batch * (q * t + q + t);
    testing::TimeOnCpu(name, bytes, [&](const Cpu& cpu) {
      return LinearSumAssignment(cpu, args);
    });
    testing::TimeOnGpu(
        name, bytes, AssignmentScratchBytes(args),
        [&](const Gpu& gpu) { return LinearSumAssignment(gpu, args); });
  }
}

}  // namespace
}  // namespace tfo
