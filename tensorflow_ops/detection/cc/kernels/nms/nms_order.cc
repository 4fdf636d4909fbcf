#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"

#include <algorithm>

namespace tfo {

template <typename Key>
Ranked<Key>* SortByKey(Ranked<Key>* items, Ranked<Key>* buffer, int64_t n) {
  constexpr int64_t kFew = 96;  // fewer are faster to compare than to count
  if (n < kFew) {
    std::stable_sort(items, items + n,
                     [](const Ranked<Key>& a, const Ranked<Key>& b) {
                       return a.key < b.key;
                     });
    return items;
  }
  // By bytes, the lowest first.
  constexpr int kDigits = sizeof(Key), kValues = 256;
  int32_t counts[kDigits][kValues] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < kDigits; ++d) {
      ++counts[d][(items[i].key >> (8 * d)) & 0xFF];
    }
  }
  for (int d = 0; d < kDigits; ++d) {
    int32_t* const count = counts[d];
    if (count[(items[0].key >> (8 * d)) & 0xFF] == n) continue;  // all equal
    int32_t place = 0;
    for (int v = 0; v < kValues; ++v) {
      const int32_t size = count[v];
      count[v] = place;
      place += size;
    }
    for (int64_t i = 0; i < n; ++i) {
      buffer[count[(items[i].key >> (8 * d)) & 0xFF]++] = items[i];
    }
    std::swap(items, buffer);
  }
  return items;
}

template Ranked<uint32_t>* SortByKey(Ranked<uint32_t>*, Ranked<uint32_t>*,
                                     int64_t);
template Ranked<uint64_t>* SortByKey(Ranked<uint64_t>*, Ranked<uint64_t>*,
                                     int64_t);

}  // namespace tfo
