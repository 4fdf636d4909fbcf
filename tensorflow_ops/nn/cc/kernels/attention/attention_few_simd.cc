// Memory decides the time of few queries. A task reads rows of keys and values
// as they lie, once, for all queries of the heads that share them. Spans of
// keys always begin at multiples of kSpanKeys, and their parts are merged in
// order, whoever computes them.
#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_simd.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {
namespace {

// sums += weights values, of `count` rows of values.
template <typename T>
TFO_INLINE void AddRows(const Accumulator<T>* weights, const T* values,
                        int64_t stride, int64_t count, int64_t columns,
                        Accumulator<T>* sums) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  ForVectorGroups<8, kCount>(
      columns, 0,
      [&](auto vectors, int64_t at) {
        constexpr int kVectors = decltype(vectors)::kValue;
        Vector v[kVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) v[i] = Load(sums + at + i * kCount);
        for (int64_t j = 0; j < count; ++j) {
          const Vector weight = Broadcast<Vector>(weights[j]);
#pragma GCC unroll 8
          for (int i = 0; i < kVectors; ++i) {
            v[i] = MulAdd(Load(values + j * stride + at + i * kCount), weight,
                          v[i]);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) Store(v[i], sums + at + i * kCount);
      },
      [&](int64_t at, int64_t n) {
        Vector v = Load(sums + at);
        for (int64_t j = 0; j < count; ++j) {
          v = MulAdd(LoadFirst(values + j * stride + at, n),
                     Broadcast<Vector>(weights[j]), v);
        }
        Store(v, sums + at);
      });
}

// Adds weighted values to sums, padded rows `sums_stride` apart: weights
// [heads][rows][kSpanKeys].
template <typename T>
void AddValues(const Accumulator<T>* weights, const HeadRows<T>& values,
               Accumulator<T>* widened, int64_t sums_stride,
               Accumulator<T>* sums) {
  for (int64_t j = 0; j < values.count; j += kWidenedRows) {
    const int64_t count = std::min(kWidenedRows, values.count - j);
    ForHeads(
        values, j, count, widened, [&](int64_t h, auto* from, int64_t stride) {
          for (int64_t r = h * values.rows; r < (h + 1) * values.rows; ++r) {
            AddRows(weights + r * kSpanKeys + j, from, stride, count,
                    values.columns, sums + r * sums_stride);
          }
        });
  }
}

// Merges the parts of a query's row, `stride` apart: `columns` sums and, at
// `stats`, their high and total. The sink, or -inf, is as a first part without
// values. Writes the output, and high and total of all.
template <typename T>
void MergeParts(const Accumulator<T>* parts, int64_t count, int64_t stride,
                int64_t columns, int64_t stats, Accumulator<T> sink,
                Accumulator<T>* sums, T* output, Accumulator<T>* high,
                Accumulator<T>* total) {
  using C = Accumulator<T>;
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  C most = sink;  // NaN stays
  for (int64_t i = 0; i < count; ++i) {
    const C one = parts[i * stride + stats];
    most = one > most ? one : most;
  }
  const auto factor_of = [&](C one) {
    return one == most ? C(1) : ExpOfWeight(Broadcast<Vector>(one - most))[0];
  };
  C sum = factor_of(sink);
  for (int64_t d = 0; d < columns; d += kCount) Store(Vector{}, sums + d);
  for (int64_t i = 0; i < count; ++i) {
    const C* const part = parts + i * stride;
    const C factor = factor_of(part[stats]);
    const C more = factor * part[stats + 1];
    if (more == 0) continue;  // whatever its values are
    sum += more;
    const Vector factors = Broadcast<Vector>(factor);
    for (int64_t d = 0; d < columns; d += kCount) {
      Store(MulAdd(Load(part + d), factors, Load(sums + d)), sums + d);
    }
  }
  const C scale = 1 / sum;
  ForVectors<T>(columns, [&](auto part, int64_t d) {
    part.Store(Load(sums + d) * scale, output + d);
  });
  *high = most;
  *total = sum;
}

// At most, so that the scores of a task stay in the L2 cache.
constexpr int64_t kTaskRows = 64;

// Some key heads of a span.
struct Task {
  int64_t batch, span;
  int64_t first_head, key_heads;
};
// Spans of an example, of which the first has the part `first_part`.
struct Spans {
  int64_t begin, end, first_part;
};

// Computes tasks, in memory that it keeps.
template <typename T>
class TaskRunner {
 public:
  using C = Accumulator<T>;

  TaskRunner(const AttentionArgs<T>& args, int64_t key_heads)
      : args_(args),
        group_(args.heads / args.key_heads),
        depth_(RoundUp(args.depth, kRowPadding)),
        width_(RoundUp(args.value_depth, kRowPadding)),
        queries_(key_heads * group_ * args.queries * depth_),
        scores_(key_heads * group_ * args.queries * kSpanKeys),
        widened_(kWidenedRows * std::max(depth_, width_)),
        sums_(width_) {}

  // A row's sums, and then their high and total.
  int64_t part_size() const { return width_ + kRowPadding; }

  // Writes a part: a row for each head of the task, and each query.
  void Attend(const Task& task, C* part) const {
    const Example example = ExampleOf(args_, task.batch);
    const int64_t first = task.span * kSpanKeys;
    const Span keys = KeysOf(task, example);
    const int64_t count = keys.end - keys.begin;
    const int64_t rows = group_ * example.queries;
    const int64_t first_row = task.first_head * group_;
    for (int64_t n = 0; n < task.key_heads * group_; ++n) {
      WidenRows<T>(
          args_.query +
              (example.first_query * args_.heads + first_row + n) * args_.depth,
          args_.heads * args_.depth, example.queries, args_.depth,
          queries_.data() + n * example.queries * depth_, depth_);
    }
    const auto rows_of = [&](const T* data, int64_t columns) {
      const int64_t stride = args_.key_heads * columns;
      const int64_t key = first + keys.begin;
      HeadRows<T> of = {
          data + (example.first_key + key) * stride + task.first_head * columns,
          stride,
          count,
          columns,
          task.key_heads,
          rows,
          nullptr,
          args_.keys * stride};
      if (args_.ancestors != nullptr) {
        of.data -= example.batch % args_.beams * of.beam_stride;
        of.ancestors = args_.ancestors + example.batch * args_.keys + key;
      }
      return of;
    };
    MultiplyKeys<T>(queries_.data(), rows_of(args_.key, args_.depth),
                    widened_.data(), scores_.data());
    for (int64_t r = 0; r < task.key_heads * rows; ++r) {
      C* const row = part + r * part_size();
      std::fill_n(row, width_, C{0});
      WeighKeys<T>(OptionsOf(example, first_row + r / example.queries,
                             r % example.queries, first, keys),
                   count, scores_.data() + r * kSpanKeys, row + width_,
                   row + width_ + 1);
    }
    const HeadRows<T> values = rows_of(args_.value, args_.value_depth);
    AddValues<T>(scores_.data(), values, widened_.data(), part_size(), part);
    if (IsFinite(part, task.key_heads * rows)) return;
    for (int64_t r = 0; r < task.key_heads * rows; ++r) {
      C* const sums = part + r * part_size();
      if (!IsFinite(sums, 1)) AddAgain(values, r, sums);
    }
  }

  // Merges `count` parts of query t of a head, `stride` apart.
  void Merge(const Example& example, int64_t head, int64_t t, const C* parts,
             int64_t count, int64_t stride) const {
    C high, total;
    MergeParts<T>(
        parts, count, stride, args_.value_depth, width_,
        args_.sinks != nullptr ? args_.sinks[head] : -static_cast<C>(INFINITY),
        sums_.data(),
        args_.output + ((example.first_query + t) * args_.heads + head) *
                           args_.value_depth,
        &high, &total);
    if (args_.log_sum_exp != nullptr) {
      args_.log_sum_exp[FirstSum(args_, example, head) + t] = high + Log(total);
    }
  }

 private:
  // The keys of the span that a query of the task sees and its mask leaves.
  // They depend on the heads of the task, but bits do not: SumLanes adds the
  // same pairs if lanes rotate.
  Span KeysOf(const Task& task, const Example& example) const {
    const int64_t first = task.span * kSpanKeys;
    Span keys = SeenKeys(
        args_, example, {0, 0, example.queries}, first,
        std::min(kSpanKeys, std::max<int64_t>(example.keys - first, 0)));
    const AttentionStrides& strides = args_.mask_strides;
    if (args_.mask != nullptr && strides.key != 0) {
      const int64_t heads = strides.head != 0 ? task.key_heads * group_ : 1;
      const int64_t queries = strides.query != 0 ? example.queries : 1;
      Span left = {keys.end, keys.begin};
      for (int64_t i = 0; i < heads * queries; ++i) {
        const bool* const mask =
            MaskOf(example, task.first_head * group_ + i / queries, i % queries,
                   first);
        int64_t j = keys.begin;
        while (j < left.begin && !mask[j]) ++j;
        left.begin = j;
        for (j = keys.end; j > left.end && !mask[j - 1];) --j;
        left.end = j;
      }
      keys = left;
    }
    return keys.begin < keys.end ? keys : Span{0, 0};
  }

  // The mask of key `first` and of those that follow.
  const bool* MaskOf(const Example& example, int64_t head, int64_t t,
                     int64_t first) const {
    const AttentionStrides& strides = args_.mask_strides;
    return args_.mask + example.batch * strides.batch + head * strides.head +
           t * strides.query + first * strides.key;
  }

  // Of `keys` from `first` on.
  QueryOptions<T> OptionsOf(const Example& example, int64_t head, int64_t t,
                            int64_t first, const Span& keys) const {
    const int64_t key = first + keys.begin;
    const Span seen = SeenKeys(args_, example, t, key, keys.end - keys.begin);
    QueryOptions<T> options = {static_cast<C>(args_.scale),
                               static_cast<C>(args_.softcap),
                               0,
                               static_cast<C>(t + example.offset - key),
                               seen.begin,
                               seen.end,
                               nullptr,
                               nullptr,
                               args_.bias_strides.key};
    if (args_.alibi_slopes != nullptr) {
      options.slope =
          args_.alibi_slopes[example.batch * args_.alibi_batch_stride + head];
    }
    if (args_.bias != nullptr) {
      const AttentionStrides& strides = args_.bias_strides;
      options.bias = args_.bias + example.batch * strides.batch +
                     head * strides.head + t * strides.query +
                     key * strides.key;
    }
    if (args_.mask != nullptr) {
      const bool* const mask = MaskOf(example, head, t, key);
      if (args_.mask_strides.key != 0) {
        options.mask = mask;
      } else if (!*mask) {
        options.end = 0;
      }
    }
    return options;
  }

  bool IsFinite(const C* part, int64_t rows) const {
    return std::isfinite(
        GreatestMagnitude<C>(part, part_size(), rows, args_.value_depth));
  }

  // Sums row r again: a pair of weight 0 must not meet values that are not
  // finite. Other sums keep their bits.
  void AddAgain(const HeadRows<T>& values, int64_t r, C* sums) const {
    std::fill_n(sums, width_, C{0});
    const C* const weights = scores_.data() + r * kSpanKeys;
    for (int64_t j = 0; j < values.count; ++j) {
      if (weights[j] == 0) continue;
      HeadRows<T> row = values;
      row.data += j * values.stride + r / values.rows * values.columns;
      row.count = row.heads = row.rows = 1;
      if (row.ancestors != nullptr) row.ancestors += j;
      AddValues<T>(weights + j, row, widened_.data(), width_, sums);
    }
  }

  const AttentionArgs<T>& args_;
  const int64_t group_;
  const int64_t depth_, width_;  // padded
  const Buffer<C> queries_;      // [key heads][group][queries][depth_]
  const Buffer<C> scores_;       // the same rows; then weights
  const Buffer<C> widened_, sums_;
};

}  // namespace

template <typename T>
void AttendFewQueries(const Cpu& cpu, const AttentionArgs<T>& args) {
  using C = Accumulator<T>;
  const int64_t group = args.heads / args.key_heads;
  std::vector<Spans> spans(args.batch);
  int64_t num_spans = 0, num_parts = 0, num_keys = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    const Example example = ExampleOf(args, b);
    const Span keys =
        SeenKeys(args, example, {0, 0, example.queries}, 0, example.keys);
    // One without keys writes zeros.
    const int64_t begin = keys.begin / kSpanKeys;
    const int64_t end = std::max(DivideUp(keys.end, kSpanKeys), begin + 1);
    spans[b] = {begin, example.queries > 0 ? end : begin, num_parts};
    num_keys += keys.end - keys.begin;
    num_spans += spans[b].end - begin;
    if (end - begin > 1) num_parts += spans[b].end - begin;
  }
  if (num_spans == 0) return;
  // All heads, whose rows are neighbors, if there are enough tasks.
  const int64_t key_heads = std::clamp<int64_t>(
      std::min(kTaskRows / (group * args.queries),
               DivideUp(args.key_heads * num_spans, 2 * cpu.num_threads)),
      1, args.key_heads);
  std::vector<Task> tasks;
  // Beams beside each other, for they share keys.
  const int64_t beams = args.ancestors != nullptr ? args.beams : 1;
  for (int64_t first = 0; first < args.batch; first += beams) {
    int64_t begin = spans[first].begin, end = 0;
    for (int64_t b = first; b < first + beams; ++b) {
      begin = std::min(begin, spans[b].begin);
      end = std::max(end, spans[b].end);
    }
    for (int64_t s = begin; s < end; ++s) {
      for (int64_t h = 0; h < args.key_heads; h += key_heads) {
        for (int64_t b = first; b < first + beams; ++b) {
          if (s < spans[b].begin || spans[b].end <= s) continue;
          tasks.push_back({b, s, h, std::min(key_heads, args.key_heads - h)});
        }
      }
    }
  }
  const int64_t rows = args.heads * args.queries;
  const int64_t part_size = TaskRunner<T>(args, 0).part_size();
  const Buffer<C> parts(num_parts * rows * part_size);
  // The part of an example's span, from a head on.
  const auto part_of = [&](const Example& example, int64_t span, int64_t head) {
    const Spans& of = spans[example.batch];
    return parts.data() +
           ((of.first_part + span - of.begin) * rows + head * example.queries) *
               part_size;
  };
  // Reading a number of keys and values, and its products.
  const double cycles =
      1.0 * num_keys * args.key_heads / tasks.size() *
      (args.depth + args.value_depth) *
      (sizeof(T) / 4.0 + group * args.queries * sizeof(C) / 64.0);
  cpu.ParallelFor(tasks.size(), cycles, [&](int64_t begin, int64_t end) {
    const TaskRunner<T> runner(args, key_heads);
    const Buffer<C> own_part(key_heads * group * args.queries * part_size);
    for (int64_t i = begin; i < end; ++i) {
      const Task& task = tasks[i];
      const Example example = ExampleOf(args, task.batch);
      const int64_t head = task.first_head * group;
      if (spans[task.batch].end - spans[task.batch].begin > 1) {
        runner.Attend(task, part_of(example, task.span, head));
        continue;
      }
      runner.Attend(task, own_part.data());
      for (int64_t r = 0; r < task.key_heads * group * example.queries; ++r) {
        runner.Merge(example, head + r / example.queries, r % example.queries,
                     own_part.data() + r * part_size, 1, 0);
      }
    }
  });
  if (num_parts == 0) return;
  cpu.ParallelFor(
      args.batch * args.heads,
      1.0 * num_parts / args.batch * args.queries * args.value_depth / 2,
      [&](int64_t begin, int64_t end) {
        const TaskRunner<T> runner(args, 0);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / args.heads, head = i % args.heads;
          const int64_t count = spans[b].end - spans[b].begin;
          if (count < 2) continue;
          const Example example = ExampleOf(args, b);
          for (int64_t t = 0; t < example.queries; ++t) {
            runner.Merge(example, head, t,
                         part_of(example, spans[b].begin, head) + t * part_size,
                         count, rows * part_size);
          }
        }
      });
}

#define TFO_INSTANTIATE(T) \
  template void AttendFewQueries(const Cpu&, const AttentionArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
