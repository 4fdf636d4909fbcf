// How a GPU cuts rows that are long and few, so that all of it has work: into
// parts whose states are joined in their order (rows_gpu.h).
#ifndef TENSORFLOW_OPS_CORE_CC_ROW_PARTS_H_
#define TENSORFLOW_OPS_CORE_CC_ROW_PARTS_H_

#include <algorithm>
#include <cstdint>

namespace tfo {

// Numbers that the state of a part has room for.
inline constexpr int kPartState = 4;

// Of each row. By the shape alone, so the bits of a result depend on nothing
// else.
inline int64_t RowParts(int64_t rows, int64_t classes) {
  constexpr int64_t kPart = 1 << 14;
  constexpr int64_t kLongest = 1 << 28;  // positions in a part are ints
  constexpr int64_t kFewRows = 512, kMostUnits = 1024;
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t least = ceil(classes, kLongest);
  if (rows >= kFewRows || rows == 0 || classes < 2 * kPart) {
    return std::max<int64_t>(least, 1);
  }
  return std::max(least,
                  std::min(ceil(kMostUnits, rows), ceil(classes, kPart)));
}

// How many values the scratch memory of a function that reduces rows has; with
// none its pointer may be null.
inline int64_t RowScratch(int64_t rows, int64_t classes) {
  const int64_t parts = RowParts(rows, classes);
  return parts > 1 ? rows * parts * kPartState : 0;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ROW_PARTS_H_
