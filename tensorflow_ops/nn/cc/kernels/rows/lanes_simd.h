// The two ways in which row functions fill vectors: with consecutive classes of
// one row (OneRow) or, where rows are short, with one class of as many rows
// (TileRows), which are transposed into a tile first. Only *_simd.cc files
// include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LANES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LANES_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/math.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Lowers *bad_row to `row`, unless null; any thread may.
static inline void ReportBadRow(int64_t row, int64_t* bad_row) {
  if (bad_row == nullptr) return;
  int64_t first = __atomic_load_n(bad_row, __ATOMIC_RELAXED);
  while (row < first &&
         !__atomic_compare_exchange_n(bad_row, &first, row, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// Classes [begin, ...) of a row.
template <typename V>
struct OneRow {
  using Value = ScalarOf<V>;
  using Index = decltype(V{} < V{});
  static constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  int64_t row, begin;
  bool writes;

  TFO_INLINE V Load(const Value* of_rows) const {
    return Broadcast<V>(of_rows[row]);
  }
  TFO_INLINE void Store(V v, Value* of_rows) const { of_rows[row] = v[0]; }
  // per_row(row) for each row, in its lane.
  template <typename PerRow>
  TFO_INLINE V Gather(const PerRow& per_row) const {
    return Broadcast<V>(per_row(row));
  }
  TFO_INLINE void ReportBad(int64_t bad, int64_t* bad_row) const {
    if (writes) ReportBadRow(bad, bad_row);
  }
  // IsAt: is the class at `at` the label, lane by lane?
  struct Label {
    int64_t label;
    TFO_INLINE Index IsAt(int64_t at) const {
      Index lane;
      for (int i = 0; i < kCount; ++i) lane[i] = i;
      const int64_t in = label - at;
      const bool here = in >= 0 && in < kCount;
      using Integer = decltype(lane[0] + 0);
      return lane == static_cast<Integer>(here ? in : -1);
    }
  };
  template <typename Labels>
  TFO_INLINE Label LabelIn(const Labels& labels) const {
    return {labels[row] - begin};
  }
};

// Rows [row, row + lanes), one per lane.
template <typename V>
struct TileRows {
  using Value = ScalarOf<V>;
  using Index = decltype(V{} < V{});
  static constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  static constexpr bool writes = true;
  int64_t row;
  int lanes;

  TFO_INLINE V Load(const Value* of_rows) const {
    return lanes == kCount ? TFO_CPU_NAMESPACE::Load(of_rows + row)
                           : LoadFirst(of_rows + row, lanes);
  }
  TFO_INLINE void Store(V v, Value* of_rows) const {
    if (lanes == kCount) {
      TFO_CPU_NAMESPACE::Store(v, of_rows + row);
    } else {
      StoreFirst(v, of_rows + row, lanes);
    }
  }
  template <typename PerRow>
  TFO_INLINE V Gather(const PerRow& per_row) const {
    alignas(kVectorBytes) Value values[kCount] = {};
    for (int i = 0; i < lanes; ++i) values[i] = per_row(row + i);
    return TFO_CPU_NAMESPACE::Load(values);
  }
  TFO_INLINE void ReportBad(int64_t bad, int64_t* bad_row) const {
    ReportBadRow(bad, bad_row);
  }
  struct Label {
    Index labels;
    TFO_INLINE Index IsAt(int64_t at) const {
      using Integer = decltype(labels[0] + 0);
      return labels == static_cast<Integer>(at / kCount);
    }
  };
  template <typename Labels>
  TFO_INLINE Label LabelIn(const Labels& labels) const {
    using Integer = decltype(Index{}[0] + 0);
    Integer values[kCount] = {};
    for (int i = 0; i < lanes; ++i) {
      // -1 is no class, and no tile has 2^30 classes.
      const int64_t label = labels[row + i];
      values[i] = label >= 0 && label < (1 << 30) ? label : -1;
    }
    Index all;
    memcpy(&all, values, sizeof(all));
    return {all};
  }
};

// ---- Tiles: rows as [classes][lanes] and back. Not inline: all functions of a
// file share them.

// The most classes of rows that share vectors.
template <typename E>
inline constexpr int64_t kTileClasses = 16 * Lanes<E>::kCount;

// Writes rows [0, lanes) of `from`, which has `readable` values, as a tile. The
// other lanes are unspecified.
template <typename E>
[[gnu::noinline]] static void ReadTile(const E* from, int64_t readable,
                                       int lanes, int64_t classes,
                                       typename Lanes<E>::Value* tile) {
  using V = typename Lanes<E>::Vector;
  constexpr int kCount = Lanes<E>::kCount;
  for (int64_t c = 0; c < classes; c += kCount) {
    V v[kCount];
    const int64_t last = (kCount - 1) * classes + c + kCount;
    if (lanes == kCount && last <= readable) {
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) v[i] = Load(from + i * classes + c);
    } else {
      for (int i = 0; i < kCount; ++i) {
        const int64_t at = i * classes + c;
        if (i >= lanes) {
          v[i] = V{};
        } else if (at + kCount <= readable) {
          v[i] = Load(from + at);
        } else {
          v[i] = LoadFirst(from + at, readable - at);
        }
      }
    }
    Transpose(v);
    const int64_t count = classes - c < kCount ? classes - c : kCount;
    for (int64_t i = 0; i < count; ++i) Store(v[i], tile + (c + i) * kCount);
  }
}

// Writes a tile as contiguous rows; `to` has room for one more vector.
template <typename E>
[[gnu::noinline]] static void WriteTile(const typename Lanes<E>::Value* tile,
                                        int64_t classes, E* to) {
  using V = typename Lanes<E>::Vector;
  constexpr int kCount = Lanes<E>::kCount;
  // From the last classes to the first, and from the first row to the last:
  // later stores overwrite what a vector writes beyond its row.
  for (int64_t c = (classes - 1) / kCount * kCount; c >= 0; c -= kCount) {
    V v[kCount];
    const int64_t count = classes - c < kCount ? classes - c : kCount;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kCount; ++i) {
      v[i] = i < count ? Load(tile + (c + i) * kCount) : V{};
    }
    Transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) Store(v[i], to + i * classes + c);
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LANES_SIMD_H_
