// Gradients of deformable convolution on the CPU, in two passes over the
// outputs of an image: one to features, offsets and mask, one to filters.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using namespace deform_conv;  // NOLINT: the header of these files

// a + fraction * (b - a), where a number of weight 0 may be NaN.
template <typename C>
C Mix(C a, C b, C fraction) {
  const C rest = 1 - fraction;
  return (rest != 0 ? rest * a : 0) + (fraction != 0 ? fraction * b : 0);
}

// Adds the dot products of d_columns with the four corners to dots, which has
// four numbers for each of the taps.
template <typename T, typename C>
void DotColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                const C* d_columns, int64_t d_stride, C* dots) {
  using Vector = typename Lanes<C>::Vector;
  for (int64_t m = 0; m < taps.rows; ++m, d_columns += d_stride) {
    const DeformTap<C>& tap = taps.taps[m * taps.stride];
    const T* corners[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) corners[i] = CornerOf(tap, i, features);
    Vector sums[4] = {};
    ForVectors<T>(features.count, [&](auto part, int64_t c) {
      // Not all lanes: another thread may be writing the columns behind.
      const Vector d = part.Load(d_columns + c, 0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sums[i] = MulAdd(d, part.Load(corners[i] + c, 0), sums[i]);
      }
    });
    C* const to = dots + 4 * m * taps.stride;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) to[i] += SumLanes(sums[i]);
  }
}

// The gradients to features, offsets and mask of one image. Waves of outputs:
// first threads share the outputs, find the gradient to their columns and from
// it those to offsets and mask; then they share the channels and add the
// columns to the features. Sums are in the order of outputs and taps, whatever
// the waves.
template <typename T, typename P>
class ToFeatures {
 public:
  using C = Accumulator<T>;

  ToFeatures(const Cpu& cpu, const DeformConvGradArgs<T>& args)
      : args_(args),
        outputs_(args.out_channels / args.groups),
        group_stride_(RoundUp(args.Depth(), PanelColumns<C>())),
        d_stride_(args.groups * group_stride_),
        per_output_(args.Taps() * args.offset_groups),
        panels_(d_stride_ * PackCount<P>(outputs_)),
        zeros_(args.channels + kGemmStride) {
    // The filters, transposed.
    const int64_t blocks = DivideUp(outputs_, kGemmDepth);
    cpu.ParallelFor(args.groups * blocks, 2.0 * kGemmDepth * group_stride_,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t group = i / blocks;
                        const int64_t o = i % blocks * kGemmDepth;
                        PackPanelsOf(args.filters + group * outputs_ + o, 1,
                                     args.out_channels,
                                     std::min(kGemmDepth, outputs_ - o),
                                     args.Depth(), Panels(group, o));
                      }
                    });
  }

  void Run(const Cpu& cpu, int64_t image) const {
    const int64_t outputs = args_.Outputs();
    const int64_t wave =
        std::min(outputs, int64_t{kTileRows} * 2 * cpu.num_threads);
    const Buffer<C> d_columns(RoundUp(wave, kAmxRows) * d_stride_ +
                              kGemmStride);
    const Buffer<DeformTap<C>> taps(wave * per_output_);
    T* const d_features =
        args_.d_features + image * args_.Pixels() * args_.channels;
    std::vector<C> wide(kInPlace ? 0 : args_.Pixels() * args_.channels);
    C* sums = wide.data();
    if constexpr (kInPlace) {
      sums = d_features;
      cpu.ParallelFor(args_.Pixels(), 0.1 * args_.channels,
                      [&](int64_t begin, int64_t end) {
                        std::fill(d_features + begin * args_.channels,
                                  d_features + end * args_.channels, T{0});
                      });
    }
    for (int64_t first = 0; first < outputs; first += wave) {
      const int64_t rows = std::min(wave, outputs - first);
      const double cycles = CyclesPerOutput<T>(args_);
      cpu.ParallelFor(
          DivideUp(rows, kTileRows), kTileRows * cycles,
          [&](int64_t begin, int64_t end) {
            [[maybe_unused]] const ScopeOf<P> scope;
            const Buffer<P> upstream(kTileRows * kRowPacks<P>);
            std::vector<C> dots(4 * kTileRows * per_output_);
            for (int64_t tile = begin; tile < end; ++tile) {
              const int64_t at = tile * kTileRows;
              const int64_t count = std::min<int64_t>(kTileRows, rows - at);
              DeformTap<C>* const tile_taps = taps.data() + at * per_output_;
              C* const tile_columns = d_columns.data() + at * d_stride_;
              FindTaps<TapUse::kSlopes>(args_, image, first + at, count,
                                        tile_taps);
              Columns(image * outputs + first + at, count, upstream.data(),
                      tile_columns);
              Offsets(image, first + at, count, tile_taps, tile_columns,
                      dots.data());
            }
          });
      Scatter(cpu, rows, taps.data(), d_columns.data(), sums);
    }
    if constexpr (!kInPlace) {
      cpu.ParallelFor(args_.Pixels(), 0.2 * args_.channels,
                      [&](int64_t begin, int64_t end) {
                        NarrowArray<T>(sums + begin * args_.channels,
                                       d_features + begin * args_.channels,
                                       (end - begin) * args_.channels);
                      });
    }
  }

 private:
  static constexpr bool kInPlace = sizeof(C) == sizeof(T);
  // Outputs of a tile: a multiple of the rows in registers.
  static constexpr int kTileRows = kIsAmxPack<P> ? 128 : 84;

  P* Panels(int64_t group, int64_t o) const {
    return panels_.data() +
           (group * PackCount<P>(outputs_) + PackCount<P>(o)) * group_stride_;
  }

  // Writes the gradient to the columns of `rows` outputs.
  void Columns(int64_t first, int64_t rows, P* upstream, C* d_columns) const {
    for (int64_t group = 0; group < args_.groups; ++group) {
      for (int64_t o = 0; o < outputs_; o += kGemmDepth) {
        const int64_t block = std::min(kGemmDepth, outputs_ - o);
        PackOperand(
            args_.d_output + first * args_.out_channels + group * outputs_ + o,
            args_.out_channels, rows, block, upstream);
        Multiply(upstream, rows, block, Panels(group, o), group_stride_, o > 0,
                 d_columns + group * group_stride_, d_stride_);
      }
    }
  }

  // Writes the gradients to the offsets and the mask of `rows` outputs.
  void Offsets(int64_t image, int64_t first, int64_t rows,
               const DeformTap<C>* taps, const C* d_columns, C* dots) const {
    const T* const features =
        args_.features + image * args_.Pixels() * args_.channels;
    std::fill_n(dots, 4 * rows * per_output_, C{0});
    for (int64_t group = 0; group < args_.groups; ++group) {
      ForColumns(args_, group, 0, args_.Depth(),
                 [&](int64_t tap, const Segment& segment, int64_t column) {
                   const int64_t at =
                       tap * args_.offset_groups + segment.offset_group;
                   DotColumns<T>({taps + at, per_output_, rows},
                                 {features + segment.channel, args_.channels,
                                  segment.count, zeros_.data()},
                                 d_columns + group * group_stride_ + column,
                                 d_stride_, dots + 4 * at);
                 });
    }
    const int64_t all = args_.Taps();
    const int64_t output = image * args_.Outputs() + first;
    for (int64_t i = 0; i < rows * per_output_; ++i) {
      const DeformTap<C>& tap = taps[i];
      const C* const d = dots + 4 * i;
      const int64_t t = i % per_output_ / args_.offset_groups;
      const int64_t g = i % args_.offset_groups;
      const int64_t to = (output + i / per_output_) * per_output_ + g * all + t;
      const C low = Mix(d[0], d[1], tap.x_fraction);
      const C high = Mix(d[2], d[3], tap.x_fraction);
      const C left = Mix(d[0], d[2], tap.y_fraction);
      const C right = Mix(d[1], d[3], tap.y_fraction);
      const bool reads = tap.pixels[0] >= 0 || tap.pixels[1] >= 0 ||
                         tap.pixels[2] >= 0 || tap.pixels[3] >= 0;
      args_.d_offsets[2 * to] = reads ? tap.mask * (high - low) : C{0};
      args_.d_offsets[2 * to + 1] = reads ? tap.mask * (right - left) : C{0};
      if (args_.d_mask != nullptr) {
        args_.d_mask[to] =
            Narrow<T>(reads ? Mix(low, high, tap.y_fraction) : C{0});
      }
    }
  }

  // Adds the gradient to the columns of `rows` outputs to the features.
  void Scatter(const Cpu& cpu, int64_t rows, const DeformTap<C>* taps,
               const C* d_columns, C* sums) const {
    // Owners of some channels, whole cache lines, and of bands of pixels.
    constexpr int64_t kLine = 64 / sizeof(C);
    const int64_t channels = RoundUp(
        std::max<int64_t>(1, DivideUp(args_.channels, cpu.num_threads)), kLine);
    const int64_t blocks = DivideUp(args_.channels, channels);
    const int64_t bands = std::max<int64_t>(1, cpu.num_threads / blocks);
    cpu.ParallelFor(
        blocks * bands, 0.5 * rows * args_.Taps() * channels,
        [&](int64_t begin, int64_t end) {
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t band = unit % bands, c = unit / bands * channels;
            const int64_t from = args_.Pixels() * band / bands;
            const int64_t to = args_.Pixels() * (band + 1) / bands;
            for (const Segment& segment :
                 SegmentsOf(args_, c, std::min(args_.channels, c + channels))) {
              ScatterSegment(segment, rows, taps, d_columns, from, to, sums);
            }
          }
        });
  }

  // The same, of some channels and for the pixels [begin, end).
  void ScatterSegment(const Segment& segment, int64_t rows,
                      const DeformTap<C>* taps, const C* d_columns,
                      int64_t begin, int64_t end, C* sums) const {
    using Vector = typename Lanes<C>::Vector;
    const int64_t of_group = args_.channels / args_.groups;
    const int64_t column = segment.group * group_stride_ + segment.channel -
                           segment.group * of_group;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t t = 0; t < args_.Taps(); ++t) {
        const DeformTap<C>& tap =
            taps[m * per_output_ + t * args_.offset_groups +
                 segment.offset_group];
        const C* const from = d_columns + m * d_stride_ + t * of_group + column;
        for (int i = 0; i < 4; ++i) {
          const int64_t pixel = tap.pixels[i];
          if (pixel < begin || pixel >= end || tap.weights[i] == 0) continue;
          C* const to = sums + pixel * args_.channels + segment.channel;
          const Vector weight = Broadcast<Vector>(tap.mask * tap.weights[i]);
          ForVectors<C>(segment.count, [&](auto part, int64_t c) {
            part.Store(
                MulAdd(weight, part.Load(from + c, 0), part.Load(to + c, 0)),
                to + c);
          });
        }
      }
    }
  }

  const DeformConvGradArgs<T>& args_;
  const int64_t outputs_;                  // output channels of a group
  const int64_t group_stride_, d_stride_;  // columns of a group, of all
  const int64_t per_output_;               // taps of an output
  const Buffer<P> panels_;
  const std::vector<T> zeros_;
};

// The gradient to filters. An owner has some columns, of a group, and one of
// few parts of the outputs, and samples them again.
template <typename T, typename P>
class ToFilters {
 public:
  using C = Accumulator<T>;

  explicit ToFilters(const DeformConvGradArgs<T>& args)
      : args_(args),
        outputs_(args.out_channels / args.groups),
        padded_(RoundUp(outputs_, PanelColumns<C>())),
        tiles_(DivideUp(args.Outputs(), kTileRows)),
        zeros_(args.channels + kGemmStride) {
    // Depends on shapes only: the parts are summed one after the other.
    constexpr int64_t kTilesPerPart = 16, kMaxValues = 4 << 20;
    const int64_t size = args.groups * args.Depth() * padded_;
    parts_ = std::min({args.batch * tiles_ / kTilesPerPart,
                       kMaxValues / std::max<int64_t>(size, 1), int64_t{8}});
    parts_ = std::max<int64_t>(parts_, 1);
  }

  void Run(const Cpu& cpu) const {
    const int64_t depth = args_.Depth();
    int64_t width = kGemmDepth;
    while (width > 32 && args_.groups * DivideUp(depth, width) * parts_ <
                             2 * cpu.num_threads) {
      width /= 2;
    }
    const int64_t blocks = DivideUp(depth, width);
    const int64_t rows = RoundUp(depth, kAmxRows);
    const int64_t size = args_.groups * rows * padded_;
    const Buffer<C> sums(parts_ * size);
    cpu.ParallelFor(
        args_.groups * blocks * parts_,
        1.0 * args_.batch * args_.Outputs() / parts_ * width * padded_ / 16,
        [&](int64_t begin, int64_t end) {
          [[maybe_unused]] const ScopeOf<P> scope;
          const Buffer<DeformTap<C>> taps(kTileRows * args_.Taps() *
                                          args_.offset_groups);
          const Buffer<C> columns(kTileRows * kGemmStride);
          const Buffer<P> packs(kIsAmxPack<P> ? kGemmDepth * kRowPacks<P> : 0);
          const Buffer<P> upstream(PackCount<P>(kTileRows) * padded_);
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t part = unit % parts_;
            const int64_t group = unit / parts_ / blocks;
            const int64_t k = unit / parts_ % blocks * width;
            SumPart(part, group, k, std::min(depth, k + width), taps.data(),
                    columns.data(), packs.data(), upstream.data(),
                    sums.data() + part * size + (group * rows + k) * padded_);
          }
        });
    cpu.ParallelFor(
        args_.groups * depth, 1.0 * parts_ * outputs_,
        [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            C* const sum =
                sums.data() + (row / depth * rows + row % depth) * padded_;
            for (int64_t part = 1; part < parts_; ++part) {
              for (int64_t i = 0; i < outputs_; ++i) {
                sum[i] += sum[part * size + i];
              }
            }
            NarrowArray<T>(sum,
                           args_.d_filters + row % depth * args_.out_channels +
                               row / depth * outputs_,
                           outputs_);
          }
        });
  }

 private:
  static constexpr int kTileRows = kIsAmxPack<P> ? 256 : 252;

  void SumPart(int64_t part, int64_t group, int64_t begin, int64_t end,
               DeformTap<C>* taps, C* columns, P* packs, P* upstream,
               C* sums) const {
    const int64_t all = args_.batch * tiles_;
    const int64_t first_tile = all * part / parts_;
    std::fill_n(sums, (end - begin) * padded_, C{0});
    for (int64_t tile = first_tile; tile < all * (part + 1) / parts_; ++tile) {
      const int64_t image = tile / tiles_, first = tile % tiles_ * kTileRows;
      const int64_t rows =
          std::min<int64_t>(kTileRows, args_.Outputs() - first);
      FindTaps<TapUse::kFilters>(args_, image, first, rows, taps);
      SampleBlock(args_,
                  args_.features + image * args_.Pixels() * args_.channels,
                  group, begin, end, taps, rows, zeros_.data(), columns);
      PackPanelsOf(args_.d_output +
                       (image * args_.Outputs() + first) * args_.out_channels +
                       group * outputs_,
                   args_.out_channels, 1, rows, outputs_, upstream);
      if constexpr (kIsAmxPack<P>) {
        cpu_avx512::PackAmxRows(columns, 1, kGemmStride, end - begin, rows,
                                kRowPacks<P>, packs);
        cpu_avx512::MultiplyAmx(packs, kRowPacks<P>, end - begin,
                                PackCount<P>(rows), upstream, padded_, true,
                                sums, padded_);
      } else {
        MultiplyTransposedTile<C>(columns, end - begin, rows, upstream, padded_,
                                  true, sums, padded_);
      }
    }
  }

  const DeformConvGradArgs<T>& args_;
  const int64_t outputs_, padded_;  // output channels of a group
  const int64_t tiles_;             // of an image
  int64_t parts_;
  const std::vector<T> zeros_;
};

// Sums over all outputs, of some channels for each thread.
template <typename T>
void ToBias(const Cpu& cpu, const DeformConvGradArgs<T>& args) {
  using C = Accumulator<T>;
  const int64_t rows = args.batch * args.Outputs();
  cpu.ParallelFor(
      args.out_channels, 1.0 * rows, [&](int64_t begin, int64_t end) {
        // Partial sums, so that errors do not grow with the rows.
        constexpr int64_t kBlock = 256;
        std::vector<C> sums(end - begin), partial(end - begin);
        for (int64_t first = 0; first < rows; first += kBlock) {
          std::fill(partial.begin(), partial.end(), C{0});
          for (int64_t m = first; m < std::min(rows, first + kBlock); ++m) {
            const T* const row = args.d_output + m * args.out_channels + begin;
            for (int64_t o = 0; o < end - begin; ++o)
              partial[o] += Widen(row[o]);
          }
          for (int64_t o = 0; o < end - begin; ++o) sums[o] += partial[o];
        }
        for (int64_t o = begin; o < end; ++o) {
          args.d_bias[o] = Narrow<T>(sums[o - begin]);
        }
      });
}

template <typename T, typename P>
void ToOperands(const Cpu& cpu, const DeformConvGradArgs<T>& args) {
  const ToFeatures<T, P> to_features(cpu, args);
  if (args.batch >= 2 * cpu.num_threads) {
    cpu.ParallelFor(args.batch, args.Outputs() * CyclesPerOutput<T>(args),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t image = begin; image < end; ++image) {
                        to_features.Run(Cpu(), image);
                      }
                    });
  } else {
    for (int64_t image = 0; image < args.batch; ++image) {
      to_features.Run(cpu, image);
    }
  }
  ToFilters<T, P>(args).Run(cpu);
}

}  // namespace

template <typename T>
Error DeformConvGrad(const Cpu& cpu, const DeformConvGradArgs<T>& args) {
  WithPacks<T>(cpu, args, args.d_output,
               [&](auto pack) { ToOperands<T, decltype(pack)>(cpu, args); });
  if (args.d_bias != nullptr) ToBias(cpu, args);
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DeformConvGrad, DeformConvGradArgs);

}  // namespace tfo
