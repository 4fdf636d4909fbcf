// The search of an example's assignment, for one thread of a CPU or a block of
// a GPU: shortest augmenting paths (Crouse, "On implementing 2D rectangular
// assignment algorithms", doi.org/10.1109/TAES.2016.140952).
//
// The smaller side of the costs are sources, the other one sinks. Each source
// in turn looks for the cheapest way to get a sink, in which sources that have
// one may pass to another.
//
// A Team runs the steps:
//   ForEach(n, body)     calls body(i) for i in [0, n), in parallel
//   Any(n, is_one)       whether is_one(i) for any i in [0, n)
//   Alone(body)          calls body() once
//   Relax(scan, &low)    see RelaxSinks in assignment_simd.cc
// All that one of these calls writes, the next one sees.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SEARCH_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SEARCH_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/sink_scan.h"

namespace tfo {

// The memory of searches that run at the same time.
struct AssignmentMemory {
  AssignmentMemory(int64_t rows, int64_t columns, int64_t searches, void* base)
      : most_sources(rows < columns ? rows : columns),
        most_sinks(most_sources == 0 ? 0
                                     : RoundUp(rows + columns - most_sources,
                                               kSinkMultiple)) {
    ScratchLayout layout(base);
    layout.Reserve(&costs, searches * most_sources * most_sinks);
    layout.Reserve(&sink_potentials, searches * most_sinks);
    layout.Reserve(&nearest, searches * most_sinks);
    layout.Reserve(&from, searches * most_sinks);
    layout.Reserve(&owners, searches * most_sinks);
    layout.Reserve(&source_potentials, searches * most_sources);
    layout.Reserve(&closed_distances, searches * most_sources);
    layout.Reserve(&closed_potentials, searches * most_sources);
    layout.Reserve(&closed, searches * most_sources);
    layout.Reserve(&matches, searches * most_sources);
    layout.Reserve(&short_sources, searches * most_sources);
    layout.Reserve(&short_sinks, searches * most_sources);
    layout.Reserve(&facts, searches * 2);
    bytes = layout.bytes();
  }

  // The memory of one of the searches.
  TFO_HOST_DEVICE AssignmentMemory Of(int64_t search) const {
    AssignmentMemory of = *this;
    of.costs += search * most_sources * most_sinks;
    of.sink_potentials += search * most_sinks;
    of.nearest += search * most_sinks;
    of.from += search * most_sinks;
    of.owners += search * most_sinks;
    of.source_potentials += search * most_sources;
    of.closed_distances += search * most_sources;
    of.closed_potentials += search * most_sources;
    of.closed += search * most_sources;
    of.matches += search * most_sources;
    of.short_sources += search * most_sources;
    of.short_sinks += search * most_sources;
    of.facts += search * 2;
    return of;
  }

  int64_t most_sources, most_sinks, bytes;
  double* costs;  // [sources, sinks], rows padded; +infinity: forbidden
  // Costs less both potentials are not negative, and 0 for pairs. A sink that
  // is closed has -infinity.
  double *sink_potentials, *source_potentials;
  double* nearest;  // [sinks], distances from the start; closed: +infinity
  int64_t* from;    // [sinks], the source before each on the shortest path
  int32_t *owners, *matches;  // each sink's source, each source's sink, or -1
  // The closed sinks in order, their distances and potentials before.
  int32_t* closed;
  double *closed_distances, *closed_potentials;
  int32_t *short_sources, *short_sinks;  // see AssignExample
  int64_t* facts;                        // values that a team's threads share
};

namespace assignment_internal {

inline constexpr double kInfinity = __builtin_inf();

// Costs in double have to leave room for sums.
inline constexpr double kHuge = 0x1p900, kShrink = 0x1p-100;

template <typename T>
inline constexpr double kGreatest = __FLT_MAX__;
template <>
inline constexpr double kGreatest<double> = __DBL_MAX__;
template <>
inline constexpr double kGreatest<Half> = 65504;
template <>
inline constexpr double kGreatest<BFloat16> = 0x1.FEp127;

// The cost times `sign`; +infinity forbids the pair. Comparisons that NaN
// fails, each of which is one instruction.
template <typename T>
TFO_HOST_DEVICE double CostOf(T value, double sign) {
  const double cost = sign * Widen(value);
  const double or_forbidden = cost < kInfinity ? cost : kInfinity;
  return or_forbidden > -kGreatest<T> ? or_forbidden : -kGreatest<T>;
}

template <typename Team>
class Search {
 public:
  TFO_HOST_DEVICE Search(const Team& team, const AssignmentMemory& memory)
      : team_(team), memory_(memory) {}

  // Sets the costs of source s and sink t to cost(s, t).
  template <typename Cost>
  TFO_HOST_DEVICE void SetCosts(int64_t sources, int64_t sinks,
                                const Cost& cost) {
    sources_ = sources;
    sinks_ = sinks;
    padded_ = RoundUp(sinks, kSinkMultiple);
    double* const costs = memory_.costs;
    const int64_t padded = padded_;
    for (int64_t s = 0; s < sources; ++s) {
      double* const of_source = costs + s * padded;
      team_.ForEach(padded - sinks,
                    [=](int64_t t) { of_source[sinks + t] = kInfinity; });
      team_.ForEach(sinks, [=](int64_t t) { of_source[t] = cost(s, t); });
    }
  }

  // Makes huge costs smaller, for T = double.
  TFO_HOST_DEVICE void ShrinkHuge() {
    double* const costs = memory_.costs;
    const bool found = team_.Any(sources_ * padded_, [&](int64_t i) {
      return costs[i] < -kHuge || (costs[i] > kHuge && costs[i] < kInfinity);
    });
    if (!found) return;
    team_.ForEach(sources_ * padded_, [&](int64_t i) { costs[i] *= kShrink; });
  }

  // Gives sinks to sources. Returns whether each source has one. If not, all
  // allowed pairs of the sources without one, and of those whose sinks are
  // still closed, are with closed sinks.
  TFO_HOST_DEVICE bool Run() {
    const AssignmentMemory& m = memory_;
    team_.ForEach(padded_, [&](int64_t t) {
      m.sink_potentials[t] = 0;
      m.owners[t] = -1;
    });
    team_.ForEach(sources_, [&](int64_t s) {
      m.source_potentials[s] = 0;
      m.matches[s] = -1;
    });
    bool all = true;
    for (int64_t s = 0; s < sources_; ++s) all &= Augment(s);
    return all;
  }

 private:
  // Gives `start` a sink along the shortest path. If there is none, leaves the
  // sinks that it reached closed: no later source can get one of them.
  TFO_HOST_DEVICE bool Augment(int64_t start) {
    const AssignmentMemory& m = memory_;
    double low = 0;
    int64_t count = 0, sink = -1;
    for (int64_t source = start; source >= 0; source = m.owners[sink]) {
      const double base = low - m.source_potentials[source];
      sink =
          team_.Relax({m.costs + source * padded_, m.sink_potentials, m.nearest,
                       m.from, m.owners, padded_, source, base, count == 0},
                      &low);
      if (sink < 0) return false;
      team_.Alone([&] {
        m.closed[count] = static_cast<int32_t>(sink);
        m.closed_distances[count] = low;
        m.closed_potentials[count] = m.sink_potentials[sink];
        m.sink_potentials[sink] = -kInfinity;
        m.nearest[sink] = kInfinity;
      });
      ++count;
    }
    team_.ForEach(count, [&](int64_t i) {
      const double gain = low - m.closed_distances[i];
      const int32_t closed = m.closed[i], owner = m.owners[closed];
      m.sink_potentials[closed] = m.closed_potentials[i] - gain;
      if (owner >= 0) m.source_potentials[owner] += gain;
    });
    team_.Alone([&] {
      m.source_potentials[start] += low;
      for (int64_t to = sink; to >= 0;) {
        const int64_t source = m.from[to];
        const int32_t before = m.matches[source];
        m.owners[to] = static_cast<int32_t>(source);
        m.matches[source] = static_cast<int32_t>(to);
        to = source == start ? -1 : before;
      }
    });
    return true;
  }

  const Team& team_;
  const AssignmentMemory& memory_;
  int64_t sources_ = 0, sinks_ = 0, padded_ = 0;
};

}  // namespace assignment_internal

// Writes the assignment of an example.
template <typename Team, typename T>
TFO_HOST_DEVICE void AssignExample(const Team& team,
                                   const AssignmentArgs<T>& args,
                                   int64_t example, const AssignmentMemory& m) {
  using namespace assignment_internal;
  int32_t* const columns_of_rows = args.columns_of_rows + example * args.rows;
  int32_t* const rows_of_columns =
      args.rows_of_columns + example * args.columns;
  team.ForEach(args.rows, [&](int64_t q) { columns_of_rows[q] = -1; });
  team.ForEach(args.columns, [&](int64_t t) { rows_of_columns[t] = -1; });

  const int64_t count =
      args.counts == nullptr ? args.columns : args.counts[example];
  if (count <= 0 || count > args.columns || args.rows == 0) return;
  const T* const costs = args.costs + example * args.rows * args.columns;
  const bool by_column = count < args.rows;  // columns are the sources
  const int64_t source_step = by_column ? 1 : args.columns;
  const int64_t sink_step = by_column ? args.columns : 1;
  const double sign = args.maximize ? -1 : 1;
  const auto cost = [=](int64_t s, int64_t t) {
    return CostOf(costs[s * source_step + t * sink_step], sign);
  };
  const auto match = [&](int32_t s, int32_t t) {
    const int32_t q = by_column ? t : s, column = by_column ? s : t;
    columns_of_rows[q] = column;
    rows_of_columns[column] = q;
  };
  const int64_t sources = by_column ? count : args.rows;
  const int64_t sinks = by_column ? args.rows : count;

  Search<Team> search(team, m);
  search.SetCosts(sources, sinks, cost);
  if constexpr (std::is_same_v<T, double>) search.ShrinkHuge();
  const bool all = search.Run();
  const auto is_closed = [&](int32_t t) {
    return m.sink_potentials[t] == -kInfinity;
  };
  team.ForEach(sources, [&](int64_t s) {
    const int32_t t = m.matches[s];
    if (t >= 0 && !is_closed(t)) match(static_cast<int32_t>(s), t);
  });
  if (all) return;

  // Not all sources get a sink. Those that compete for the closed sinks, which
  // are too few, have no others (Dulmage and Mendelsohn, 1958): these sinks
  // choose among them, and all of them get one.
  int64_t* const sizes = m.facts;
  team.Alone([&] {
    int64_t n = 0;
    for (int64_t s = 0; s < sources; ++s) {
      const int32_t t = m.matches[s];
      if (t < 0 || is_closed(t)) m.short_sources[n++] = static_cast<int32_t>(s);
    }
    sizes[0] = n;
    n = 0;
    for (int64_t t = 0; t < sinks; ++t) {
      const auto sink = static_cast<int32_t>(t);
      if (is_closed(sink)) m.short_sinks[n++] = sink;
    }
    sizes[1] = n;
  });
  const int64_t short_sources = sizes[0], short_sinks = sizes[1];
  if (short_sinks == 0) return;
  search.SetCosts(short_sinks, short_sources, [&](int64_t s, int64_t t) {
    return cost(m.short_sources[t], m.short_sinks[s]);
  });
  if constexpr (std::is_same_v<T, double>) search.ShrinkHuge();
  search.Run();
  team.ForEach(short_sinks, [&](int64_t s) {
    match(m.short_sources[m.matches[s]], m.short_sinks[s]);
  });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ASSIGNMENT_ASSIGNMENT_SEARCH_H_
