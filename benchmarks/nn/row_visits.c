// Reads rows and adds to rows at given places, with no other work: what
// sampling demands of the memory. Each row has ROW_FLOATS numbers.
#include <stdint.h>

#define VECTOR_BYTES __BIGGEST_ALIGNMENT__
#define VECTORS (4 * ROW_FLOATS / VECTOR_BYTES)

typedef int32_t Bits __attribute__((vector_size(VECTOR_BYTES)));
typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef union {
  Bits bits[VECTORS];
  Floats floats[VECTORS];
} Row;

// Returns a number that depends on all that was read. Adds to the rows of
// `sums`, unless it is null, at the same places.
int32_t visit_rows(const Row* values, Row* sums, const int32_t* places,
                   int64_t count) {
  Bits seen[VECTORS] = {};
  if (sums == 0) {
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < VECTORS; ++v) seen[v] ^= values[places[i]].bits[v];
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < VECTORS; ++v) {
        seen[v] ^= values[places[i]].bits[v];
        sums[places[i]].floats[v] += 1;
      }
    }
  }
  int32_t result = 0;
  for (int v = 0; v < VECTORS; ++v) {
    for (int i = 0; i < VECTOR_BYTES / 4; ++i) result ^= seen[v][i];
  }
  return result;
}
