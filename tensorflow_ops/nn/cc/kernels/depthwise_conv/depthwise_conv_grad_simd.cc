#include <vector>

#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using namespace depthwise_conv;  // NOLINT: the header of these files

// The gradient to pixels of one phase, the remainders of pixel + before by the
// strides: only every stride-th tap meets them. It is a convolution of d_output
// of stride 1.
template <typename V>
struct Phase {
  int64_t y, x;
  std::vector<int64_t> taps;     // of the filter
  std::vector<int64_t> offsets;  // in the plane of d_output

  Phase(const DepthwiseConvShape& args, int64_t of_y, int64_t of_x,
        int64_t width)
      : y(of_y), x(of_x) {
    for (int64_t p = y; p < args.y.taps; p += args.y.stride) {
      for (int64_t q = x; q < args.x.taps; q += args.x.stride) {
        taps.push_back(p * args.x.taps + q);
        offsets.push_back(-p / args.y.stride * args.y.dilation * width -
                          q / args.x.stride * args.x.dilation);
      }
    }
  }
};

// The first pixel from `begin` on that has a phase.
inline int64_t FirstOf(const ConvAxis& axis, int64_t phase, int64_t begin) {
  const int64_t over = (begin + axis.before) % axis.stride;
  return begin + (phase - over + axis.stride) % axis.stride;
}

// Adds the products of kRows x kTaps taps to sums[kRows][row_taps] over rows of
// d_output. `x` is the first tap's first pixel; `across` and `below` lie
// between taps, `down` between rows.
template <int kStride, int kRows, int kTaps, typename V>
void AddTapProducts(const V* x, int64_t across, int64_t below, int64_t down,
                    const V* d, int64_t d_width, int64_t rows, int64_t columns,
                    int64_t row_taps, V* sums) {
  V acc[kRows][kTaps];
#pragma GCC unroll 4
  for (int p = 0; p < kRows; ++p) {
#pragma GCC unroll 8
    for (int q = 0; q < kTaps; ++q) acc[p][q] = sums[p * row_taps + q];
  }
  for (int64_t i = 0; i < rows; ++i, x += down, d += d_width) {
    const V* from = x;
    for (int64_t j = 0; j < columns; ++j, from += kStride) {
      const V by = d[j];
#pragma GCC unroll 4
      for (int p = 0; p < kRows; ++p) {
#pragma GCC unroll 8
        for (int q = 0; q < kTaps; ++q) {
          acc[p][q] = MulAdd(from[p * below + q * across], by, acc[p][q]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kRows; ++p) {
#pragma GCC unroll 8
    for (int q = 0; q < kTaps; ++q) sums[p * row_taps + q] = acc[p][q];
  }
}

// Calls body(Constant<rows>, Constant<taps>, p, q) for blocks of about 10 sums,
// as many as hide the latency of additions, that cover all taps.
template <int kRows, int kTaps, typename Body>
TFO_INLINE void ForTapRows(int64_t rows, int64_t q, const Body& body) {
  int64_t p = 0;
  for (; p + kRows <= rows; p += kRows) {
    body(Constant<kRows>(), Constant<kTaps>(), p, q);
  }
  for (; kRows > 1 && p < rows; ++p)
    body(Constant<1>(), Constant<kTaps>(), p, q);
}
template <typename Body>
TFO_INLINE void ForTapBlocks(const DepthwiseConvShape& args, const Body& body) {
  const int64_t rows = args.y.taps;
  for (int64_t q = 0, left; (left = args.x.taps - q) > 0;) {
    if (left >= 7) {
      ForTapRows<2, 7>(rows, q, body), q += 7;
    } else if (left >= 5) {
      ForTapRows<2, 5>(rows, q, body), q += 5;
    } else if (left >= 3) {
      ForTapRows<3, 3>(rows, q, body), q += 3;
    } else {
      ForTapRows<3, 1>(rows, q, body), q += 1;
    }
  }
}

template <int kStride, typename T>
void GradientsByPlanes(const Cpu& cpu, const DepthwiseConvGradArgs<T>& args) {
  using V = typename Lanes<T>::Vector;
  constexpr int64_t kCacheBytes = 24 << 10;  // most of an L1 cache
  const Pieces pieces = Pieces::Of(args, args.input);
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t taps = args.Taps(), channels = args.channels;
  // Sums over a part of the pieces; parts are added in order. They are many
  // enough for threads, or read far more than they write.
  const int64_t most = args.batch * y.size * x.size / (16 * taps);
  const int64_t parts = std::min(
      pieces.count, std::max(most, DivideUp(int64_t{64}, pieces.vectors)));
  const Buffer<V> sums(parts * pieces.vectors * taps);

  const Range columns = PixelsOf(x, {0, x.outputs});
  Range d_columns = OutputsOf(x, {0, x.size});
  d_columns = {std::min<int64_t>(0, d_columns.begin),
               std::max(x.outputs, d_columns.end) + kColumns};
  std::vector<Phase<V>> phases;
  for (int64_t p = 0; p < y.stride; ++p) {
    for (int64_t q = 0; q < x.stride; ++q) {
      phases.emplace_back(args, p, q, d_columns.size());
    }
  }
  int64_t max_rows = 0, max_d_rows = 0;
  const auto d_rows_of = [&](int64_t piece) {
    Range rows = pieces.Outputs(y, piece);
    const Range of_pixels = pieces.Pixels(y, piece);
    if (of_pixels.size() > 0) {
      const Range read = OutputsOf(y, of_pixels);
      rows = {std::min(rows.begin, read.begin), std::max(rows.end, read.end)};
    }
    return rows;
  };
  for (int64_t band = 0; band < pieces.bands; ++band) {
    max_rows = std::max(max_rows, PixelsOf(y, pieces.Outputs(y, band)).size());
    max_d_rows = std::max(max_d_rows, d_rows_of(band).size());
  }

  cpu.ParallelFor(
      parts * pieces.vectors,
      1.0 * pieces.count / std::max<int64_t>(1, parts * pieces.bands) *
          y.outputs * x.outputs * (taps * 1.2 + 20),
      [&](int64_t begin, int64_t end) {
        Plane<T> plane(max_rows, columns), d_plane(max_d_rows, d_columns);
        const Buffer<V> weights(taps);
        const int64_t block = std::max<int64_t>(
            1, kCacheBytes / int64_t{sizeof(V)} /
                   (y.stride * plane.width() + d_plane.width()));
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t part = unit / pieces.vectors;
          const int64_t c = unit % pieces.vectors * Lanes<T>::kCount;
          const int64_t n = channels - c;
          V* const to_filter = sums.data() + unit * taps;
          std::fill_n(to_filter, taps, V{});
          V* weight = weights.data();
          for (const Phase<V>& phase : phases) {
            for (const int64_t tap : phase.taps) {
              *weight++ = LoadChannels(args.filter + tap * channels + c, n);
            }
          }
          for (int64_t piece = pieces.count * part / parts;
               piece < pieces.count * (part + 1) / parts; ++piece) {
            const int64_t image = piece / pieces.bands;
            const int64_t first = image * y.size * x.size * channels + c;
            const Range rows = pieces.Outputs(y, piece);
            const Range pixels = pieces.Pixels(y, piece);
            plane.Fill(args.input + first, y.size, x.size, channels, n,
                       PixelsOf(y, rows));
            d_plane.Fill(
                args.d_output + image * y.outputs * x.outputs * channels + c,
                y.outputs, x.outputs, channels, n, d_rows_of(piece));

            for (int64_t i = rows.begin; i < rows.end; i += block) {
              ForTapBlocks(args, [&](auto tap_rows, auto tap_columns, int64_t p,
                                     int64_t q) {
                AddTapProducts<kStride, tap_rows.kValue, tap_columns.kValue>(
                    plane.At(y.PixelOf(i, p), x.PixelOf(0, q)), x.dilation,
                    y.dilation * plane.width(), y.stride * plane.width(),
                    d_plane.At(i, 0), d_plane.width(),
                    std::min(block, rows.end - i), x.outputs, x.taps,
                    to_filter + p * x.taps + q);
              });
            }

            weight = weights.data();
            for (const Phase<V>& phase : phases) {
              const int64_t count = phase.taps.size();
              const int64_t h = FirstOf(y, phase.y, pixels.begin);
              const int64_t w = FirstOf(x, phase.x, 0);
              T* const to = args.d_input + first + (h * x.size + w) * channels;
              Convolve<1>(
                  d_plane.At((h + y.before) / y.stride,
                             (w + x.before) / x.stride),
                  d_plane.width(), DivideUp(pixels.end - h, y.stride),
                  DivideUp(x.size - w, x.stride),
                  Taps<V>{count, weight, phase.offsets.data()},
                  [&](int64_t i, int64_t j, V sum) {
                    StoreChannels(
                        sum,
                        to + (i * y.stride * x.size + j * x.stride) * channels,
                        n);
                  });
              weight += count;
            }
          }
        }
      });

  cpu.ParallelFor(
      pieces.vectors, 2.0 * parts * taps, [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
          const int64_t c = v * Lanes<T>::kCount;
          for (int64_t t = 0; t < taps; ++t) {
            V sum = {};
            for (int64_t part = 0; part < parts; ++part) {
              sum += sums.data()[(part * pieces.vectors + v) * taps + t];
            }
            StoreChannels(sum, args.d_filter + t * channels + c, channels - c);
          }
        }
      });
}

// From the tensors themselves.
template <typename T>
void GradientsDirectly(const Cpu& cpu, const DepthwiseConvGradArgs<T>& args) {
  using V = typename Lanes<T>::Vector;
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels;
  const auto load = [&](const T* from, int64_t row, int64_t c) {
    return LoadChannels(from + row * channels + c, channels - c);
  };
  const auto of_pixel = [&](int64_t image, int64_t h, int64_t w, int64_t c) {
    V sum = {};
    for (int64_t p = 0; p < y.taps; ++p) {
      const int64_t i = y.OutputOf(h, p);
      if (i < 0) continue;
      for (int64_t q = 0; q < x.taps; ++q) {
        const int64_t j = x.OutputOf(w, q);
        if (j < 0) continue;
        const int64_t output = (image * y.outputs + i) * x.outputs + j;
        sum = MulAdd(load(args.d_output, output, c),
                     load(args.filter, p * x.taps + q, c), sum);
      }
    }
    return sum;
  };
  const auto of_tap = [&](int64_t p, int64_t q, int64_t c) {
    V sum = {};
    for (int64_t row = 0; row < args.batch * y.outputs; ++row) {
      const int64_t h = y.PixelOf(row % y.outputs, p);
      if (!y.HasPixel(h)) continue;
      const int64_t pixels = (row / y.outputs * y.size + h) * x.size;
      for (int64_t j = 0; j < x.outputs; ++j) {
        const int64_t w = x.PixelOf(j, q);
        if (!x.HasPixel(w)) continue;
        sum = MulAdd(load(args.input, pixels + w, c),
                     load(args.d_output, row * x.outputs + j, c), sum);
      }
    }
    return sum;
  };
  cpu.ParallelFor(
      args.batch * y.size, 1.0 * x.size * channels * args.Taps(),
      [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t w = 0; w < x.size; ++w) {
            for (int64_t c = 0; c < channels; c += Lanes<T>::kCount) {
              StoreChannels(of_pixel(row / y.size, row % y.size, w, c),
                            args.d_input + (row * x.size + w) * channels + c,
                            channels - c);
            }
          }
        }
      });
  cpu.ParallelFor(
      args.Taps(), 1.0 * args.batch * y.outputs * x.outputs * channels,
      [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          for (int64_t c = 0; c < channels; c += Lanes<T>::kCount) {
            StoreChannels(of_tap(t / x.taps, t % x.taps, c),
                          args.d_filter + t * channels + c, channels - c);
          }
        }
      });
}

}  // namespace

template <typename T>
Error DepthwiseConvGrad(const Cpu& cpu, const DepthwiseConvGradArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  if (!FitPlanes(args)) {
    GradientsDirectly(cpu, args);
  } else if (args.x.stride == 1) {
    GradientsByPlanes<1>(cpu, args);
  } else {
    GradientsByPlanes<2>(cpu, args);
  }
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DepthwiseConvGrad, DepthwiseConvGradArgs);

}  // namespace tfo
