#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;

// Rows that a loop over channels reads at a time: sums of channels are then
// loaded and stored once for all.
constexpr int kRowsAtOnce = 4;
// Channels, or numbers of a row, whose sum is not split.
constexpr int64_t kBlock = 4096;

template <typename T>
int64_t Padded(int64_t channels) {
  return RoundUp(channels, Lanes<T>::kCount);
}

inline float InverseRoot(float v) { return 1 / __builtin_sqrtf(v); }
inline double InverseRoot(double v) { return 1 / __builtin_sqrt(v); }

// Sets kSums totals of n values: add(part, at, sums) adds to vectors.
template <int kSums, typename T, typename Add>
TFO_INLINE void SumUp(int64_t n, const Add& add, Accumulator<T>* totals) {
  constexpr int kCount = Lanes<T>::kCount;
  std::fill_n(totals, kSums, 0);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    Vector<T> sums[4][kSums] = {};
    ForVectorGroups<4, kCount>(
        std::min(begin + kBlock, n), begin,
        [&](auto group, int64_t at) {
#pragma GCC unroll 4
          for (int i = 0; i < group.kValue; ++i) {
            add(Whole<T>(), at + i * kCount, sums[i]);
          }
        },
        [&](int64_t at, int64_t rest) { add(First<T>{rest}, at, sums[0]); });
    for (int k = 0; k < kSums; ++k) {
      totals[k] +=
          SumLanes((sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]));
    }
  }
}

// Corrects the mean, and the sum of squares of distances from it, by the sum of
// distances: what rounding left. Where numbers are far from 0, or one is far
// from the others, a sum of them has few bits for their distances.
template <typename Value>
void Correct(Value distances, Value count, Value* mean, Value* squares) {
  const Value rest = distances / count;
  *mean += rest;
  *squares -= rest * distances;
  if (*squares < 0) *squares = 0;
}

// Calls body(Constant<k>(), part, row, c) for k rows from `row` on and each
// vector of their channels.
template <typename T, typename Body>
TFO_INLINE void ForRowsOfChannels(int64_t begin, int64_t end, int64_t channels,
                                  const Body& body) {
  int64_t row = begin;
  for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
    ForVectors<T>(channels, [&](const auto& part, int64_t c) {
      body(Constant<kRowsAtOnce>(), part, row, c);
    });
  }
  for (; row < end; ++row) {
    ForVectors<T>(channels, [&](const auto& part, int64_t c) {
      body(Constant<1>(), part, row, c);
    });
  }
}

// ---- Rows: groups of one pixel and all channels.

template <typename T>
void NormalizeRows(const NormalizationArgs<T>& a, int64_t begin, int64_t end) {
  using Value = Accumulator<T>;
  using V = Vector<T>;
  const int64_t n = a.channels;
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = a.x + row * n;
    const Value count = static_cast<Value>(n);
    Value mean = 0, sums[2];
    if (a.centered) {
      SumUp<1, T>(
          n,
          [&](const auto& part, int64_t at, V* sum) {
            *sum += part.Load(x + at, 0);
          },
          &mean);
      mean /= count;
    }
    SumUp<2, T>(
        n,
        [&](const auto& part, int64_t at, V* to) {
          const V d = part.Keep(part.Load(x + at, 0) - mean);
          to[0] += d;
          to[1] = MulAdd(d, d, to[1]);
        },
        sums);
    if (a.centered) Correct(sums[0], count, &mean, &sums[1]);
    const Value inverse =
        InverseRoot(sums[1] / count + static_cast<Value>(a.epsilon));
    T* const y = a.y + row * n;
    ForVectors<T>(n, [&](const auto& part, int64_t at) {
      const V z = (part.Load(x + at, 0) - mean) * inverse;
      part.Store(
          MulAdd(z, part.Load(a.gamma + at, 0), part.Load(a.beta + at, 0)),
          y + at);
    });
    a.statistics[2 * row] = mean;
    a.statistics[2 * row + 1] = inverse;
  }
}

// Gradients of kRows rows; adds to sums of channels.
template <int kRows, typename T>
TFO_INLINE void RowGradients(const NormalizationGradArgs<T>& a, int64_t row,
                             Accumulator<T>* d_gamma, Accumulator<T>* d_beta) {
  using Value = Accumulator<T>;
  using V = Vector<T>;
  const int64_t n = a.channels;
  const T *x[kRows], *d_y[kRows];
  Value mean[kRows], inverse[kRows], first[kRows] = {}, second[kRows] = {};
  for (int r = 0; r < kRows; ++r) {
    x[r] = a.x + (row + r) * n;
    d_y[r] = a.d_y + (row + r) * n;
    mean[r] = a.statistics[2 * (row + r)];
    inverse[r] = a.statistics[2 * (row + r) + 1];
  }
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    V firsts[kRows] = {}, seconds[kRows] = {};
    ForVectors<T>(std::min(kBlock, n - begin), [&](const auto& part,
                                                   int64_t at) {
      const int64_t c = begin + at;
      const V factor = part.Load(a.gamma + c, 0);
      V to_gamma = Load(d_gamma + c), to_beta = Load(d_beta + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const V d = part.Load(d_y[r] + c, 0);
        const V z = part.Keep((part.Load(x[r] + c, 0) - mean[r]) * inverse[r]);
        const V w = d * factor;
        to_gamma = MulAdd(d, z, to_gamma);
        to_beta += d;
        firsts[r] += w;
        seconds[r] = MulAdd(w, z, seconds[r]);
      }
      Store(to_gamma, d_gamma + c);
      Store(to_beta, d_beta + c);
    });
    for (int r = 0; r < kRows; ++r) {
      first[r] += SumLanes(firsts[r]);
      second[r] += SumLanes(seconds[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const Value by_one = a.centered ? first[r] / static_cast<Value>(n) : 0;
    const Value by_z = second[r] / static_cast<Value>(n);
    T* const d_x = a.d_x + (row + r) * n;
    ForVectors<T>(n, [&](const auto& part, int64_t c) {
      const V z = (part.Load(x[r] + c, 0) - mean[r]) * inverse[r];
      const V w = part.Load(d_y[r] + c, 0) * part.Load(a.gamma + c, 0);
      part.Store((w - by_one - z * by_z) * inverse[r], d_x + c);
    });
  }
}

// Adds `count` pairs of rows [channels] from `sums` on, in order.
template <typename T>
void AddBands(const Cpu& cpu, const Accumulator<T>* sums, int64_t count,
              int64_t channels, Accumulator<T>* d_gamma,
              Accumulator<T>* d_beta) {
  const int64_t padded = Padded<T>(channels);
  cpu.ParallelFor(channels, count, [&](int64_t begin, int64_t end) {
    std::fill(d_gamma + begin, d_gamma + end, 0);
    std::fill(d_beta + begin, d_beta + end, 0);
    for (int64_t i = 0; i < count; ++i) {
      const Accumulator<T>* const band = sums + i * 2 * padded;
      for (int64_t c = begin; c < end; ++c) {
        d_gamma[c] += band[c];
        d_beta[c] += band[padded + c];
      }
    }
  });
}

template <typename T>
void GradientsOfRows(const Cpu& cpu, const NormalizationGradArgs<T>& a) {
  const int64_t bands = NormalizationBands(a), padded = Padded<T>(a.channels);
  const Buffer<Accumulator<T>> sums(bands * 2 * padded);
  cpu.ParallelFor(bands, 3. * a.batch * a.channels / bands,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t band = begin; band < end; ++band) {
                      Accumulator<T>* const d_gamma =
                          sums.data() + band * 2 * padded;
                      Accumulator<T>* const d_beta = d_gamma + padded;
                      std::fill(d_gamma, d_beta + padded, 0);
                      int64_t row = a.batch * band / bands;
                      const int64_t last = a.batch * (band + 1) / bands;
                      for (; row + kRowsAtOnce <= last; row += kRowsAtOnce) {
                        RowGradients<kRowsAtOnce>(a, row, d_gamma, d_beta);
                      }
                      for (; row < last; ++row) {
                        RowGradients<1>(a, row, d_gamma, d_beta);
                      }
                    }
                  });
  AddBands<T>(cpu, sums.data(), bands, a.channels, a.d_gamma, a.d_beta);
}

// ---- Planes: groups of pixels, in chunks, whose sums are joined in order.

template <typename T>
struct Chunks {
  // At most 256 pixels: sums of more would round more.
  explicit Chunks(const NormalizationSpec& a)
      : spec(a),
        pixels(std::clamp<int64_t>(
            4 * kBlock / std::max<int64_t>(a.channels, 1), 16, 256)),
        count(DivideUp(a.pixels, pixels)) {}

  // Calls body(image, chunk, begin, end, is_first) with its pixels, in the
  // order of rows of the whole batch; is_first: of this image and call.
  template <typename Body>
  void ForEach(const Cpu& cpu, double cycles, const Body& make_body) const {
    cpu.ParallelFor(spec.batch * count, cycles * pixels * spec.channels,
                    [&](int64_t begin, int64_t end) {
                      auto body = make_body();
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t image = i / count, chunk = i % count;
                        const int64_t row = image * spec.pixels;
                        body(image, i, row + chunk * pixels,
                             row + std::min((chunk + 1) * pixels, spec.pixels),
                             i == begin || chunk == 0);
                      }
                    });
  }

  const NormalizationSpec& spec;
  const int64_t pixels, count;  // of a chunk; in an image
};

// For each group, calls body(group, first channel).
template <typename Body>
void ForGroups(const NormalizationSpec& a, const Body& body) {
  for (int64_t group = 0; group < a.groups; ++group) {
    body(group, group * a.GroupChannels());
  }
}

template <typename Value>
Value SumOfChannels(const NormalizationSpec& a, const Value* values) {
  Value sum = 0;
  for (int64_t c = 0; c < a.GroupChannels(); ++c) sum += values[c];
  return sum;
}

template <typename T>
void NormalizePlanes(const Cpu& cpu, const NormalizationArgs<T>& a) {
  using Value = Accumulator<T>;
  using V = Vector<T>;
  const Chunks<T> chunks(a);
  const int64_t channels = a.channels, padded = Padded<T>(channels);
  const int64_t group_channels = a.GroupChannels();
  // Of each chunk and group: the mean, and the sum of squares of distances.
  const Buffer<Value> moments(a.batch * chunks.count * a.groups * 2);
  chunks.ForEach(cpu, 2, [&] {
    return [&, shift = std::vector<Value>(padded),
            sums = std::vector<Value>(2 * padded)](
               int64_t, int64_t i, int64_t begin, int64_t end, bool) mutable {
      Value* const first = sums.data();
      Value* const second = first + padded;
      // Of distances from `shift` and of their squares.
      const auto sum_up = [&](auto squares) {
        std::fill(sums.begin(), sums.end(), 0);
        ForRowsOfChannels<T>(
            begin, end, channels,
            [&](auto rows, const auto& part, int64_t row, int64_t c) {
              const V mean = Load(shift.data() + c);
              V distances = Load(first + c), of_squares = Load(second + c);
#pragma GCC unroll 4
              for (int r = 0; r < rows.kValue; ++r) {
                const V d = part.Load(a.x + (row + r) * channels + c, 0) - mean;
                distances += d;
                if constexpr (squares.value) {
                  of_squares = MulAdd(d, d, of_squares);
                }
              }
              Store(distances, first + c);
              if constexpr (squares.value) Store(of_squares, second + c);
            });
      };
      std::fill(shift.begin(), shift.end(), 0);
      const Value count = static_cast<Value>((end - begin) * group_channels);
      if (a.centered) {
        sum_up(std::false_type());
        ForGroups(a, [&](int64_t, int64_t c) {
          std::fill_n(shift.begin() + c, group_channels,
                      SumOfChannels(a, first + c) / count);
        });
      }
      sum_up(std::true_type());
      ForGroups(a, [&](int64_t group, int64_t c) {
        Value* const to = moments.data() + 2 * (i * a.groups + group);
        to[0] = shift[c];
        to[1] = SumOfChannels(a, second + c);
        if (a.centered) {
          Correct(SumOfChannels(a, first + c), count, &to[0], &to[1]);
        }
      });
    };
  });
  // Chan, Golub and LeVeque: moments of two sets from theirs.
  cpu.ParallelFor(
      a.batch * a.groups, chunks.count * 10., [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t image = i / a.groups, group = i % a.groups;
          Value mean = 0, squares = 0, count = 0;
          for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
            const Value* const of_chunk =
                moments.data() +
                ((image * chunks.count + chunk) * a.groups + group) * 2;
            const Value more = static_cast<Value>(
                (std::min((chunk + 1) * chunks.pixels, a.pixels) -
                 chunk * chunks.pixels) *
                group_channels);
            const Value distance = of_chunk[0] - mean;
            const Value part = more / (count + more);
            squares += of_chunk[1] + distance * distance * count * part;
            mean += distance * part;
            count += more;
          }
          a.statistics[2 * i] = mean;
          a.statistics[2 * i + 1] =
              InverseRoot(squares / count + static_cast<Value>(a.epsilon));
        }
      });
  chunks.ForEach(cpu, 1, [&] {
    return [&, means = std::vector<Value>(padded),
            factors = std::vector<Value>(padded)](int64_t image, int64_t,
                                                  int64_t begin, int64_t end,
                                                  bool is_first) mutable {
      if (is_first) {
        const Value* const statistics = a.statistics + image * a.groups * 2;
        ForGroups(a, [&](int64_t group, int64_t first) {
          for (int64_t c = first; c < first + group_channels; ++c) {
            means[c] = statistics[2 * group];
            factors[c] = statistics[2 * group + 1] * a.gamma[c];
          }
        });
      }
      ForRowsOfChannels<T>(
          begin, end, channels,
          [&](auto rows, const auto& part, int64_t row, int64_t c) {
            const V mean = Load(means.data() + c);
            const V factor = Load(factors.data() + c);
            const V offset = part.Load(a.beta + c, 0);
#pragma GCC unroll 4
            for (int r = 0; r < rows.kValue; ++r) {
              const int64_t at = (row + r) * channels + c;
              part.Store(MulAdd(part.Load(a.x + at, 0) - mean, factor, offset),
                         a.y + at);
            }
          });
    };
  });
}

template <typename T>
void GradientsOfPlanes(const Cpu& cpu, const NormalizationGradArgs<T>& a) {
  using Value = Accumulator<T>;
  using V = Vector<T>;
  const Chunks<T> chunks(a);
  const int64_t channels = a.channels, padded = Padded<T>(channels);
  const int64_t group_channels = a.GroupChannels();
  const Value count = static_cast<Value>(a.Count());
  const auto spread = [&](const Value* of_groups, std::vector<Value>& to) {
    ForGroups(a, [&](int64_t group, int64_t c) {
      std::fill_n(to.begin() + c, group_channels, of_groups[2 * group]);
    });
  };
  // Of each chunk: sums of d_y (x - mean) and of d_y.
  const Buffer<Value> of_chunks(a.batch * chunks.count * 2 * padded);
  chunks.ForEach(cpu, 2, [&] {
    return [&, means = std::vector<Value>(padded)](int64_t image, int64_t i,
                                                   int64_t begin, int64_t end,
                                                   bool is_first) mutable {
      if (is_first) spread(a.statistics + image * a.groups * 2, means);
      Value* const by_x = of_chunks.data() + i * 2 * padded;
      Value* const by_one = by_x + padded;
      std::fill(by_x, by_one + padded, 0);
      ForRowsOfChannels<T>(
          begin, end, channels,
          [&](auto rows, const auto& part, int64_t row, int64_t c) {
            const V mean = Load(means.data() + c);
            V to_x = Load(by_x + c), to_one = Load(by_one + c);
#pragma GCC unroll 4
            for (int r = 0; r < rows.kValue; ++r) {
              const int64_t at = (row + r) * channels + c;
              const V d = part.Load(a.d_y + at, 0);
              to_x = MulAdd(d, part.Load(a.x + at, 0) - mean, to_x);
              to_one += d;
            }
            Store(to_x, by_x + c);
            Store(to_one, by_one + c);
          });
    };
  });
  // Of each image: sums of d_y z and of d_y; of its groups: means of d_y gamma
  // z and of d_y gamma.
  const Buffer<Value> of_images(a.batch * 2 * padded);
  const Buffer<Value> of_groups(a.batch * a.groups * 2);
  cpu.ParallelFor(
      a.batch, 2. * chunks.count * channels, [&](int64_t begin, int64_t end) {
        for (int64_t image = begin; image < end; ++image) {
          Value* const by_z = of_images.data() + image * 2 * padded;
          Value* const by_one = by_z + padded;
          std::fill(by_z, by_one + padded, 0);
          for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
            const Value* const from =
                of_chunks.data() + (image * chunks.count + chunk) * 2 * padded;
            for (int64_t c = 0; c < 2 * padded; ++c) by_z[c] += from[c];
          }
          ForGroups(a, [&](int64_t group, int64_t first) {
            const int64_t i = 2 * (image * a.groups + group);
            Value to_z = 0, to_one = 0;
            for (int64_t c = first; c < first + group_channels; ++c) {
              by_z[c] *= a.statistics[i + 1];
              to_z += by_z[c] * a.gamma[c];
              to_one += by_one[c] * a.gamma[c];
            }
            of_groups.data()[i] = to_z / count;
            of_groups.data()[i + 1] = a.centered ? to_one / count : 0;
          });
        }
      });
  AddBands<T>(cpu, of_images.data(), a.batch, channels, a.d_gamma, a.d_beta);
  // d_x = d_y gamma / deviation - (x - mean) q - r
  chunks.ForEach(cpu, 1.5, [&] {
    return [&, means = std::vector<Value>(padded),
            p = std::vector<Value>(padded), q = std::vector<Value>(padded),
            r = std::vector<Value>(padded)](int64_t image, int64_t,
                                            int64_t begin, int64_t end,
                                            bool is_first) mutable {
      if (is_first) {
        const int64_t first_group = image * a.groups * 2;
        spread(a.statistics + first_group, means);
        spread(a.statistics + first_group + 1, p);
        spread(of_groups.data() + first_group, q);
        spread(of_groups.data() + first_group + 1, r);
        for (int64_t c = 0; c < channels; ++c) {
          q[c] *= p[c] * p[c];
          r[c] *= p[c];
          p[c] *= a.gamma[c];
        }
      }
      ForRowsOfChannels<T>(
          begin, end, channels,
          [&](auto rows, const auto& part, int64_t row, int64_t c) {
            const V mean = Load(means.data() + c), by_d = Load(p.data() + c);
            const V by_x = Load(q.data() + c), offset = Load(r.data() + c);
#pragma GCC unroll 4
            for (int k = 0; k < rows.kValue; ++k) {
              const int64_t at = (row + k) * channels + c;
              const V d = part.Load(a.d_y + at, 0);
              const V x = part.Load(a.x + at, 0) - mean;
              part.Store(d * by_d - MulAdd(x, by_x, offset), a.d_x + at);
            }
          });
    };
  });
}

}  // namespace

template <typename T>
Error Normalization(const Cpu& cpu, const NormalizationArgs<T>& args) {
  if (args.Count() == 0) {
    for (int64_t i = 0; i < args.batch * args.groups; ++i) {
      args.statistics[2 * i] = 0;
      args.statistics[2 * i + 1] =
          InverseRoot(static_cast<Accumulator<T>>(args.epsilon));
    }
    return nullptr;
  }
  const std::vector<Accumulator<T>> zeros(args.beta == nullptr ? args.channels
                                                               : 0);
  NormalizationArgs<T> a = args;
  if (a.beta == nullptr) a.beta = zeros.data();
  if (a.IsOfRows()) {
    cpu.ParallelFor(
        a.batch, 2. * a.channels + 50,
        [&](int64_t begin, int64_t end) { NormalizeRows(a, begin, end); });
  } else {
    NormalizePlanes(cpu, a);
  }
  return nullptr;
}

template <typename T>
Error NormalizationGrad(const Cpu& cpu, const NormalizationGradArgs<T>& args) {
  if (args.Count() == 0) {
    std::fill_n(args.d_gamma, args.channels, 0);
    std::fill_n(args.d_beta, args.channels, 0);
  } else if (args.IsOfRows()) {
    GradientsOfRows(cpu, args);
  } else {
    GradientsOfPlanes(cpu, args);
  }
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(Normalization, NormalizationArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(NormalizationGrad, NormalizationGradArgs);

}  // namespace tfo
