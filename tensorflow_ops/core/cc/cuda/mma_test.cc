#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tensorflow_ops/core/cc/cuda/mma_testing_gpu.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

// The figures of the PTX manual, "Matrix Fragments for mma.m16n8k16", float16
// and bfloat16. An entry is a pair of values, in order of the matrix in memory:
// "5:1" is register 1 of lane 5. Those of m16n8k8 are their left or upper half.
// Pairs of A and C are of a row; those of B, of a column. For m16n8k8 of TF32,
// an entry of A or B is a value.
const char* const kA[16] = {"0:0 1:0 2:0 3:0 0:2 1:2 2:2 3:2",
                            "4:0 5:0 6:0 7:0 4:2 5:2 6:2 7:2",
                            "8:0 9:0 10:0 11:0 8:2 9:2 10:2 11:2",
                            "12:0 13:0 14:0 15:0 12:2 13:2 14:2 15:2",
                            "16:0 17:0 18:0 19:0 16:2 17:2 18:2 19:2",
                            "20:0 21:0 22:0 23:0 20:2 21:2 22:2 23:2",
                            "24:0 25:0 26:0 27:0 24:2 25:2 26:2 27:2",
                            "28:0 29:0 30:0 31:0 28:2 29:2 30:2 31:2",
                            "0:1 1:1 2:1 3:1 0:3 1:3 2:3 3:3",
                            "4:1 5:1 6:1 7:1 4:3 5:3 6:3 7:3",
                            "8:1 9:1 10:1 11:1 8:3 9:3 10:3 11:3",
                            "12:1 13:1 14:1 15:1 12:3 13:3 14:3 15:3",
                            "16:1 17:1 18:1 19:1 16:3 17:3 18:3 19:3",
                            "20:1 21:1 22:1 23:1 20:3 21:3 22:3 23:3",
                            "24:1 25:1 26:1 27:1 24:3 25:3 26:3 27:3",
                            "28:1 29:1 30:1 31:1 28:3 29:3 30:3 31:3"};
const char* const kB[8] = {"0:0 4:0 8:0 12:0 16:0 20:0 24:0 28:0",
                           "1:0 5:0 9:0 13:0 17:0 21:0 25:0 29:0",
                           "2:0 6:0 10:0 14:0 18:0 22:0 26:0 30:0",
                           "3:0 7:0 11:0 15:0 19:0 23:0 27:0 31:0",
                           "0:1 4:1 8:1 12:1 16:1 20:1 24:1 28:1",
                           "1:1 5:1 9:1 13:1 17:1 21:1 25:1 29:1",
                           "2:1 6:1 10:1 14:1 18:1 22:1 26:1 30:1",
                           "3:1 7:1 11:1 15:1 19:1 23:1 27:1 31:1"};
// In pairs of registers: 0 for c0 and c1, 1 for c2 and c3.
const char* const kC[16] = {
    "0:0 1:0 2:0 3:0",     "4:0 5:0 6:0 7:0",     "8:0 9:0 10:0 11:0",
    "12:0 13:0 14:0 15:0", "16:0 17:0 18:0 19:0", "20:0 21:0 22:0 23:0",
    "24:0 25:0 26:0 27:0", "28:0 29:0 30:0 31:0", "0:1 1:1 2:1 3:1",
    "4:1 5:1 6:1 7:1",     "8:1 9:1 10:1 11:1",   "12:1 13:1 14:1 15:1",
    "16:1 17:1 18:1 19:1", "20:1 21:1 22:1 23:1", "24:1 25:1 26:1 27:1",
    "28:1 29:1 30:1 31:1"};

struct Place {
  int lane, pair;
};
Place PlaceOf(const char* row, int column) {
  std::istringstream entries(row);
  Place place;
  char colon;
  for (int i = 0; i <= column; ++i)
    entries >> place.lane >> colon >> place.pair;
  return place;
}

// A register of a or b.
template <typename T>
uint32_t RegisterOf(const T& first, const T& second) {
  uint32_t bits;
  if constexpr (sizeof(T) == sizeof(bits)) {
    memcpy(&bits, &first, sizeof(bits));
  } else {
    bits = first.bits | uint32_t{second.bits} << 16;
  }
  return bits;
}

// A product of random matrices, which fragments by the manual's figures hold.
template <typename T>
void CheckProduct(int depth, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "depth ", depth);
  const auto a = testing::RandomValues<T>(16 * depth, 1);
  const auto b = testing::RandomValues<T>(depth * 8, 2);
  const auto c = testing::RandomValues<float>(16 * 8, 3);
  constexpr int kEach = 4 / sizeof(T);                  // in a register
  const int of_a = depth / kEach / 2, of_b = of_a / 2;  // registers of a lane
  GpuVector<uint32_t> a_fragments(32 * of_a), b_fragments(32 * of_b);
  GpuVector<float> c_fragments(32 * 4);
  GpuVector<char> ran(1, 0);
  for (int k = 0; k < depth; k += kEach) {
    const int last = k + kEach - 1;
    for (int row = 0; row < 16; ++row) {
      const Place at = PlaceOf(kA[row], k / kEach);
      a_fragments[at.lane * of_a + at.pair] =
          RegisterOf(a[row * depth + k], a[row * depth + last]);
    }
    for (int column = 0; column < 8; ++column) {
      const Place at = PlaceOf(kB[k / kEach], column);
      b_fragments[at.lane * of_b + at.pair] =
          RegisterOf(b[k * 8 + column], b[last * 8 + column]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      const Place at = PlaceOf(kC[row], column / 2);
      c_fragments[at.lane * 4 + at.pair * 2 + column % 2] = c[row * 8 + column];
    }
  }
  TFO_EXPECT_RUNS(MultiplyFragments<T>(Gpu{}, depth, a_fragments.data(),
                                       b_fragments.data(), c_fragments.data(),
                                       reinterpret_cast<bool*>(ran.data())));
  if (!ran[0]) return;  // no tensor cores for T
  GpuVector<float> sums(16 * 8);
  std::vector<double> expected(16 * 8);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      const Place at = PlaceOf(kC[row], column / 2);
      sums[row * 8 + column] =
          c_fragments[at.lane * 4 + at.pair * 2 + column % 2];
      double& sum = expected[row * 8 + column];
      sum = c[row * 8 + column];
      for (int k = 0; k < depth; ++k) {
        sum += double{Widen(a[row * depth + k])} * Widen(b[k * 8 + column]);
      }
    }
  }
  testing::ExpectClose("sums", sums, expected);
}

TFO_CUDA_TEST(Mma, ProductsEqualDoubleLoops) {
  CheckProduct<float>(8);
  CheckProduct<Half>(8);
  CheckProduct<Half>(16);
  CheckProduct<BFloat16>(16);
}

// "Matrix Fragments for mma.m16n8k32" has the same figures, with four int8 in
// place of a pair of A and B. Of all int8, with sums that wrap around.
TFO_CUDA_TEST(Mma, ProductsOfIntegersEqualLoops) {
  const int depth = 32;
  std::mt19937 random(1);
  std::vector<int8_t> a(16 * depth), b(depth * 8);
  for (int8_t& x : a) x = static_cast<int8_t>(random());
  for (int8_t& x : b) x = static_cast<int8_t>(random());
  a[0] = b[0] = -128;
  GpuVector<uint32_t> a_fragments(32 * 4), b_fragments(32 * 2);
  GpuVector<int32_t> c_fragments(32 * 4);
  GpuVector<char> ran(1, 0);
  const int32_t start = 2147483647;
  for (int k = 0; k < depth; ++k) {
    const auto part = [&](int8_t x) {
      return uint32_t{static_cast<uint8_t>(x)} << (k % 4 * 8);
    };
    for (int row = 0; row < 16; ++row) {
      const Place at = PlaceOf(kA[row], k / 4);
      a_fragments[at.lane * 4 + at.pair] |= part(a[row * depth + k]);
    }
    for (int column = 0; column < 8; ++column) {
      const Place at = PlaceOf(kB[k / 4], column);
      b_fragments[at.lane * 2 + at.pair] |= part(b[k * 8 + column]);
    }
  }
  for (int32_t& c : c_fragments) c = start;
  TFO_EXPECT_RUNS(MultiplyIntegerFragments(
      Gpu{}, a_fragments.data(), b_fragments.data(), c_fragments.data(),
      reinterpret_cast<bool*>(ran.data())));
  if (!ran[0]) return;  // no such tensor cores
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      uint32_t sum = start;
      for (int k = 0; k < depth; ++k) {
        sum += static_cast<uint32_t>(a[row * depth + k] * b[k * 8 + column]);
      }
      const Place at = PlaceOf(kC[row], column / 2);
      TFO_EXPECT_EQ(c_fragments[at.lane * 4 + at.pair * 2 + column % 2],
                    static_cast<int32_t>(sum));
    }
  }
}

// The figure of "ldmatrix": row i is lanes 4 i to 4 i + 3, a pair each.
const int kLanes[8][4] = {{0, 1, 2, 3},     {4, 5, 6, 7},     {8, 9, 10, 11},
                          {12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23},
                          {24, 25, 26, 27}, {28, 29, 30, 31}};

TFO_CUDA_TEST(Mma, LoadsOfMatricesFollowTheManual) {
  GpuVector<uint16_t> rows(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = 100 + i;
  for (int n : {1, 2, 4}) {
    for (bool transposed : {false, true}) {
      GpuVector<uint32_t> to(32 * n);
      GpuVector<char> ran(1, 0);
      TFO_EXPECT_RUNS(LoadFragments(Gpu{}, n, transposed, rows.data(),
                                    to.data(),
                                    reinterpret_cast<bool*>(ran.data())));
      if (!ran[0]) return;  // no tensor cores
      for (int m = 0; m < n; ++m) {
        for (int i = 0; i < 8; ++i) {
          for (int j = 0; j < 8; ++j) {
            const int row = transposed ? j : i, column = transposed ? i : j;
            const uint32_t pair = to[kLanes[i][j / 2] * n + m];
            TFO_EXPECT_EQ(j % 2 == 0 ? pair & 0xFFFF : pair >> 16,
                          uint32_t(100 + 64 * m + 8 * row + column));
          }
        }
      }
    }
  }
}

TFO_CUDA_TEST(Mma, CopiesArriveAfterTheWaitAndEndInZeros) {
  for (int size : {4, 8, 16}) {
    for (int bytes : {0, 2, size - 2, size}) {
      GpuVector<char> from(64 * size), to(64 * size, 'x'),
          expected(64 * size, 0);
      for (size_t i = 0; i < from.size(); ++i) {
        from[i] = 1 + i % 100;
        if (static_cast<int>(i) % size < bytes) expected[i] = from[i];
      }
      TFO_EXPECT_RUNS(
          CopyThroughShared(Gpu{}, size, bytes, from.data(), to.data()));
      TFO_EXPECT(to == expected);
    }
  }
}

template <typename Run>
bool Aborts(const Run& run) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
         WTERMSIG(status) == SIGABRT;
}

TFO_CUDA_TEST(Mma, MisalignedAddressesAbortInTheEmulation) {
  if (!kIsEmulated) return;
  GpuVector<char> from(65 * 16), to(65 * 16);
  for (int size : {4, 8, 16}) {
    TFO_EXPECT(Aborts([&] {
      CopyThroughShared(Gpu{}, size, size, from.data() + size / 2, to.data());
    }));
  }
  GpuVector<uint16_t> rows(33 * 8);
  GpuVector<uint32_t> fragments(32);
  GpuVector<char> ran(1, 0);
  const auto load = [&](int shift) {
    return LoadFragments(Gpu{}, 1, false, rows.data() + shift, fragments.data(),
                         reinterpret_cast<bool*>(ran.data()));
  };
  TFO_EXPECT_RUNS(load(0));
  if (!ran[0]) return;  // no tensor cores
  TFO_EXPECT(Aborts([&] { load(4); }));
}

}  // namespace
}  // namespace tfo
