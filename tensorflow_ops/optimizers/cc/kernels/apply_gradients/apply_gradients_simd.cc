#include <algorithm>
#include <numeric>
#include <vector>

#include "tensorflow_ops/core/cc/buckets.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/optimizer_formulas.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Columns of a row whose gradients are summed at a time.
constexpr int64_t kColumns = 512;

// A gradient of rows, by row.
template <typename T>
struct SortedRows {
  explicit SortedRows(const VariableStep<T>& a) : order(a.num_ids) {
    std::iota(order.begin(), order.end(), 0);
    const int64_t last = a.num_ids == 0 ? 0 : a.size / a.width - 1;
    constexpr int kBits = 11;
    for (int shift = 0; last >> shift > 0; shift += kBits) {
      Buckets digits(int64_t{1} << kBits, [&](const auto& add) {
        for (const int64_t i : order) {
          add((a.ids[i] >> shift) & ((1 << kBits) - 1), i);
        }
      });
      order = std::move(digits).TakeItems();
    }
    for (int64_t i = 0; i < a.num_ids; ++i) {
      const int64_t row = a.ids[order[i]];
      if (!rows.empty() && rows.back() == row) continue;
      rows.push_back(row);
      first.push_back(i);
    }
    first.push_back(a.num_ids);
  }

  std::vector<int64_t> order;  // of the gradient's rows
  std::vector<int64_t> rows;   // without duplicates, ascending
  std::vector<int64_t> first;  // of each row, in `order`; and the end
};

// Updates `size` elements from `at` on. The gradient may be null: zero.
template <Optimizer kOptimizer, typename T, typename G>
void Update(const VariableStep<T>& a, const Accumulator<T>* scalars, int64_t at,
            int64_t size, const G* gradient) {
  using V = typename Lanes<T>::Vector;
  constexpr int kSlots = NumSlots(kOptimizer);
  V p[kMaxScalars];
  for (int i = 0; i < NumScalars(kOptimizer); ++i) {
    p[i] = Broadcast<V>(scalars[i]);
  }
  const T* before[1 + kSlots];
  T* after[1 + kSlots];
  for (int i = 0; i <= kSlots; ++i) {
    before[i] = a.before[i] + at;
    after[i] = a.after[i] + at;
  }
  const bool decays = a.decays;
  ForVectors<T>(size, [&](const auto& part, int64_t i) {
    V w = part.Load(before[0] + i, 0), s[kMaxSlots];
    for (int k = 0; k < kSlots; ++k) s[k] = part.Load(before[1 + k] + i, 0);
    V g{};
    if (gradient != nullptr) g = part.Load(gradient + i, 0) * p[2];
    DecayAndStep<kOptimizer>(p, decays, g, w, s);
    part.Store(w, after[0] + i);
    for (int k = 0; k < kSlots; ++k) part.Store(s[k], after[1 + k] + i);
  });
}

// Updates `size` elements of a row that has gradients, from `at` on.
template <Optimizer kOptimizer, typename T>
void UpdateRow(const VariableStep<T>& a, const SortedRows<T>& sorted,
               int64_t index, const Accumulator<T>* scalars, int64_t at,
               int64_t size) {
  const int64_t begin = sorted.first[index], end = sorted.first[index + 1];
  const int64_t column = at - sorted.rows[index] * a.width;
  const auto gradient = [&](int64_t i) {
    return a.gradient + sorted.order[i] * a.width + column;
  };
  if (end - begin == 1) {
    return Update<kOptimizer>(a, scalars, at, size, gradient(begin));
  }
  Accumulator<T> sums[kColumns];
  for (int64_t first = 0; first < size; first += kColumns) {
    const int64_t n = std::min(kColumns, size - first);
    std::fill_n(sums, n, 0);
    for (int64_t i = begin; i < end; ++i) {
      const T* const from = gradient(i) + first;
      ForVectors<Accumulator<T>>(n, [&](const auto& part, int64_t k) {
        part.Store(part.Load(sums + k, 0) + part.Load(from + k, 0), sums + k);
      });
    }
    Update<kOptimizer>(a, scalars, at + first, n, sums);
  }
}

// Updates elements [begin, end) of a variable whose gradient is of rows.
template <Optimizer kOptimizer, typename T>
void UpdateRows(const ApplyGradientsArgs<T>& args, const VariableStep<T>& a,
                const SortedRows<T>& sorted, int64_t begin, int64_t end) {
  const bool keeps_others = args.KeepsOtherRows(a);
  int64_t index = std::lower_bound(sorted.rows.begin(), sorted.rows.end(),
                                   begin / a.width) -
                  sorted.rows.begin();
  const int64_t rows = sorted.rows.size();
  for (int64_t at = begin; at < end; ++index) {
    const int64_t row_begin = index < rows ? sorted.rows[index] * a.width : end;
    const int64_t gap_end = std::min(end, row_begin);
    if (at < gap_end) {
      if (!keeps_others) {
        Update<kOptimizer, T, T>(a, args.scalars, at, gap_end - at, nullptr);
      } else {
        for (int i = 0; i <= NumSlots(kOptimizer); ++i) {
          if (a.before[i] == a.after[i]) continue;
          std::copy(a.before[i] + at, a.before[i] + gap_end, a.after[i] + at);
        }
      }
      at = gap_end;
    }
    if (at == end) break;
    const int64_t row_end = std::min(end, row_begin + a.width);
    UpdateRow<kOptimizer>(a, sorted, index, args.scalars, at, row_end - at);
    at = row_end;
  }
}

template <Optimizer kOptimizer, typename T>
Error Run(const Cpu& cpu, const ApplyGradientsArgs<T>& args) {
  constexpr int kSlots = NumSlots(kOptimizer);
  std::vector<SortedRows<T>> sorted;
  // Elements of a variable, or of its rows that have gradients.
  struct Work {
    int64_t end;
    const VariableStep<T>* variable;
    int64_t sorted;  // index, or -1
    bool visits_all;
  };
  std::vector<Work> work;
  int64_t total = 0;
  for (int64_t v = 0; v < args.num_variables; ++v) {
    const VariableStep<T>& a = args.variables[v];
    Work item{0, &a, -1, true};
    int64_t size = a.size;
    if (a.is_of_rows && a.size > 0) {
      item.sorted = sorted.size();
      sorted.emplace_back(a);
      item.visits_all = !args.KeepsOtherRows(a) || !a.IsInPlace(kSlots);
      if (!item.visits_all) size = sorted.back().rows.size() * a.width;
    }
    total += size;
    item.end = total;
    work.push_back(item);
  }
  constexpr double kCycles = 2 + 2 * kSlots;
  cpu.ParallelFor(total, kCycles, [&](int64_t begin, int64_t end) {
    auto item = std::upper_bound(
        work.begin(), work.end(), begin,
        [](int64_t value, const Work& other) { return value < other.end; });
    int64_t first = item == work.begin() ? 0 : (item - 1)->end;
    for (; begin < end; first = item->end, ++item) {
      const VariableStep<T>& a = *item->variable;
      const int64_t stop = std::min(end, item->end);
      int64_t at = begin - first;
      const int64_t last = stop - first;
      begin = stop;
      if (item->sorted < 0) {
        Update<kOptimizer>(a, args.scalars, at, last - at, a.gradient + at);
        continue;
      }
      const SortedRows<T>& rows = sorted[item->sorted];
      if (item->visits_all) {
        UpdateRows<kOptimizer>(args, a, rows, at, last);
        continue;
      }
      while (at < last) {
        const int64_t index = at / a.width, column = at % a.width;
        const int64_t n = std::min(last - at, a.width - column);
        UpdateRow<kOptimizer>(a, rows, index, args.scalars,
                              rows.rows[index] * a.width + column, n);
        at += n;
      }
    }
  });
  return nullptr;
}

}  // namespace

template <typename T>
Error ApplyGradients(const Cpu& cpu, const ApplyGradientsArgs<T>& args) {
  return WithOptimizer(args.optimizer, [&](auto k) {
    return Run<decltype(k)::value>(cpu, args);
  });
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(ApplyGradients, ApplyGradientsArgs);

}  // namespace tfo
