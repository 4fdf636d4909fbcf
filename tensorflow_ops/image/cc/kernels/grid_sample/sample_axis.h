// The taps of a coordinate on one axis: pixels, weights, slopes. Formulas
// (core/cc/simd/elementwise.h): V is a vector, or float or double.
//
// A coordinate becomes a place in pixels, and the place is padded:
//   zeros       stays; pixels outside count fill_value
//   constant    stays, but outside of [0, size - 1] all pixels are outside
//   border      is clipped to [0, size - 1]
//   reflection  is reflected about the centres of the outer pixels
//               (align_corners) or their outer edges, then clipped
//   wrap        is moved into [0, size - 1] by multiples of size - 1
//   grid_wrap   is moved into [0, size) by multiples of size; the pixel after
//               the last one is the first
// For bicubic samples, each tap is padded, not the place; the last three have
// none.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_AXIS_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_AXIS_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// kCount taps. A tap outside of the axis, or of a NaN place, has pixel 0,
// weight 0 and slope 0.
template <typename V, int kCount>
struct AxisTaps {
  V pixel[kCount];   // a whole number in [0, size)
  V weight[kCount];  // to be skipped if 0: the pixel may be NaN
  V slope[kCount];   // of the weight, as the coordinate changes
  V nan;             // NaN if the sample is NaN, else 0
  // If the axis fills: the weight of the taps that are outside, as all of a NaN
  // place are, without a slope.
  V outside, outside_slope;
};

template <typename V>
TFO_FORMULA V Clip(V v, ScalarOf<V> low, ScalarOf<V> high) {
  v = v < low ? Broadcast<V>(low) : v;
  return v > high ? Broadcast<V>(high) : v;
}

// a modulo a period of at least 1, exactly; NaN for an infinite a >= 0.
template <typename C>
TFO_FORMULA C Modulo(C a, C period) {
  if (!(a >= period)) return a;
  if (a - a != 0) return a - a;
  C multiple = period;
  while (multiple <= a / 2) multiple *= 2;
  for (; multiple >= period; multiple /= 2) {
    if (a >= multiple) a -= multiple;
  }
  return a;
}
#ifdef TFO_CPU_NAMESPACE
template <typename V>
TFO_FORMULA V ModuloOf(V a, ScalarOf<V> period) {
  if (AnyLane(a >= period)) {
    for (size_t i = 0; i < sizeof(V) / sizeof(a[0]); ++i) {
      a[i] = Modulo<ScalarOf<V>>(a[i], period);
    }
  }
  return a;
}
#else
template <typename V>
TFO_FORMULA V ModuloOf(V a, V period) {
  return Modulo(a, period);
}
#endif

// The place of a coordinate. `own` is the sample's own position, for kFlow.
template <typename V, typename C>
TFO_FORMULA V PlaceOf(const ImageAxis<C>& axis, V coordinate, V own) {
  const C size = static_cast<C>(axis.size);
  switch (axis.coordinates) {
    case SampleCoordinates::kFlow:
      return own - coordinate;
    case SampleCoordinates::kPixels:
    case SampleCoordinates::kIndices:
      return coordinate;
    default:
      if (!axis.align_corners) {
        return (Product<V>(coordinate + 1, Broadcast<V>(size)) - 1) / 2;
      }
      const V half = (coordinate + 1) / 2;
      const V place = Product<V>(half, Broadcast<V>(size - 1));
      // Infinity stays, on an axis of one pixel, too.
      return place == place ? place : half;
  }
}

// A whole number beyond all pixels and all their taps. Large floats are whole
// multiples of up to 128: `size + 2` may round to the last pixel.
template <typename C>
TFO_FORMULA C FarOutside(const ImageAxis<C>& axis) {
  return static_cast<C>(axis.size + 2 + (axis.size >> 21));
}

// Reflects a place, and its slope with it. A place inside of the image stays as
// it is, and no step rounds another one on an axis below 2^24 pixels. What lies
// in half a pixel around the image is left for a clip.
template <typename V, typename C>
TFO_FORMULA V Reflected(const ImageAxis<C>& axis, V place, V* slope) {
  const C edge =
      axis.align_corners ? C(0) : C(1);  // pixels -1 and 1, or -1 and 0
  const C span = static_cast<C>(axis.size - 1) + edge;
  if (span == 0) return place - place;
  const V distance = ModuloOf<V>(place < 0 ? -place : place, 2 * span);
  const auto beyond = distance > span;
  const auto mirrored = beyond ^ (place < 0);
  V reflected = beyond ? 2 * span - distance : distance;
  if (axis.coordinates == SampleCoordinates::kIndices &&
      axis.mode == SampleMode::kNearest && axis.align_corners) {
    // SciPy rounds this half up before it reflects the pixel.
    const auto is_half = (place > 0) & (distance - span == C(0.5));
    reflected = is_half ? reflected - C(0.5) : reflected;
  }
  *slope = mirrored ? -*slope : *slope;
  return mirrored ? reflected - edge : reflected;
}

// Moves the pixel `low` of a place, the one below or the nearest, by multiples
// of the period: the place itself would round.
template <typename V, typename C>
TFO_FORMULA V Wrapped(const ImageAxis<C>& axis, V place, V low) {
  const bool grid = axis.padding == SamplePadding::kGridWrap;
  const C last = static_cast<C>(axis.size - 1);
  const C period = grid ? static_cast<C>(axis.size) : last;
  if (period == 0) return low;
  const V distance = ModuloOf<V>(low < 0 ? -low : low, period);
  V wrapped = (low < 0) & (distance > 0) ? period - distance : distance;
  if (grid) return wrapped;
  // The last pixel is at each multiple of the period, too, for places before.
  const V fraction = place - low;
  const auto before = (fraction < 0) | ((fraction == 0) & (place < 0));
  wrapped = (wrapped == 0) & before ? Broadcast<V>(last) : wrapped;
  return (place >= 0) & (place <= last) ? low : wrapped;
}

// A place moved by the padding, and its slope.
template <typename V, typename C>
TFO_FORMULA V Padded(const ImageAxis<C>& axis, V place, V* slope) {
  const C last = static_cast<C>(axis.size - 1);
  switch (axis.padding) {
    case SamplePadding::kZeros:
      return Clip<V>(place, -2, FarOutside(axis));
    case SamplePadding::kConstant:
      *slope = place < last ? *slope : V{};
      return (place < 0) | (place > last) ? Broadcast<V>(-2) : place;
    case SamplePadding::kGridWrap:
      return place;  // Wrapped moves its pixel
    case SamplePadding::kWrap:
      return last == 0 ? place - place : place;
    case SamplePadding::kReflection:
      place = Reflected<V>(axis, place, slope);
      break;
    case SamplePadding::kBorder:
      break;
  }
  place = Clip<V>(place, 0, last);
  *slope = place > 0 ? *slope : V{};
  *slope = place < last ? *slope : V{};
  return place;
}

// The nearest pixel: halves to even, but up by SciPy's rules.
template <typename V, typename C>
TFO_FORMULA V Nearest(const ImageAxis<C>& axis, V place) {
  if (axis.coordinates != SampleCoordinates::kIndices) return RoundEven(place);
  const V low = Floor(place);
  return place - low < C(0.5) ? low : low + 1;
}

// The cubic convolution with a = -3/4 of the pixels at -1, 0, 1, 2, and its
// derivatives.
template <typename V>
TFO_FORMULA void CubicWeights(V f, V (&weight)[4], V (&slope)[4]) {
  constexpr ScalarOf<V> a = -0.75;
  const V t[4] = {f + 1, f, 1 - f, 2 - f};
  TFO_UNROLL
  for (int i = 0; i < 4; ++i) {
    const V x = t[i];
    V s;
    if (i == 0 || i == 3) {
      weight[i] = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
      s = (3 * a * x - 10 * a) * x + 8 * a;
    } else {
      weight[i] = ((a + 2) * x - (a + 3)) * x * x + 1;
      s = (3 * (a + 2) * x - 2 * (a + 3)) * x;
    }
    slope[i] = i < 2 ? s : -s;
  }
}

// The pixel of a tap of a bicubic sample; `tap` is a whole number in (-size -
// 3, size + 3). Outside of the axis only with zeros.
template <typename V, typename C>
TFO_FORMULA V PaddedTap(const ImageAxis<C>& axis, V tap) {
  const C last = static_cast<C>(axis.size - 1);
  if (axis.padding == SamplePadding::kZeros) return tap;
  if (axis.padding == SamplePadding::kBorder || last == 0) {
    return Clip<V>(tap, 0, last);
  }
  const C edge =
      axis.align_corners ? C(0) : C(1);  // pixels -1 and 0, or -1 and 1
  const C period = 2 * (last + edge);
  tap = tap < 0 ? -tap - edge : tap;
  tap = tap >= period ? tap - period : tap;
  tap = tap >= period ? tap - period : tap;
  return tap > last ? period - tap - edge : tap;
}

template <typename V, typename C>
TFO_FORMULA AxisTaps<V, 4> CubicTaps(const ImageAxis<C>& axis, V place) {
  AxisTaps<V, 4> taps;
  if (axis.padding == SamplePadding::kReflection) {
    const C size = static_cast<C>(axis.size);
    const C period = 2 * (axis.align_corners ? size - 1 : size);
    if (period == 0) {
      place = place - place;
    } else {
      V distance = ModuloOf<V>(place < 0 ? -place : place, period);
      distance = distance > size ? distance - period : distance;
      place = place < 0 ? -distance : distance;
    }
  } else {
    // Farther outside, all taps are the same.
    place = Clip<V>(place, -3, FarOutside(axis));
  }
  const V low = Floor(place);
  CubicWeights<V>(place - low, taps.weight, taps.slope);
  TFO_UNROLL
  for (int i = 0; i < 4; ++i) taps.pixel[i] = PaddedTap(axis, low + C(i - 1));
  taps.nan = place - place;
  return taps;
}

template <int kCount, typename V, typename C>
TFO_FORMULA AxisTaps<V, kCount> TapsAt(const ImageAxis<C>& axis, V place) {
  const C last = static_cast<C>(axis.size - 1);
  V slope = Broadcast<V>(axis.scale);
  AxisTaps<V, kCount> taps;
  if constexpr (kCount == 4) {
    taps = CubicTaps<V>(axis, place);
  } else {
    place = Padded<V>(axis, place, &slope);
    taps.nan = place - place;
    V low = kCount == 1 ? Nearest<V>(axis, place) : Floor(place);
    const V fraction = place - low;
    if (axis.padding == SamplePadding::kWrap ||
        axis.padding == SamplePadding::kGridWrap) {
      low = Wrapped<V>(axis, place, low);
      if (axis.padding == SamplePadding::kWrap) {
        slope = low < last ? slope : V{};
      }
    }
    taps.pixel[0] = low;
    if constexpr (kCount == 1) {
      taps.weight[0] = Broadcast<V>(1);
      taps.slope[0] = V{};
    } else {
      taps.weight[0] = 1 - fraction;
      taps.slope[0] = V{} - 1;
      taps.pixel[1] = low + 1;
      taps.weight[1] = fraction;
      taps.slope[1] = Broadcast<V>(1);
    }
  }
  taps.outside = taps.outside_slope = V{};
  TFO_UNROLL
  for (int i = 0; i < kCount; ++i) {
    V pixel = taps.pixel[i];
    if (axis.padding == SamplePadding::kGridWrap) {
      pixel = pixel > last ? V{} : pixel;
    }
    const auto is_pixel = (pixel >= 0) & (pixel <= last);
    const V tap_slope = taps.slope[i] * slope;
    if (axis.fills) {
      taps.outside += is_pixel ? V{} : taps.weight[i];
      taps.outside_slope += is_pixel ? V{} : tap_slope;
    }
    taps.pixel[i] = is_pixel ? pixel : V{};
    taps.weight[i] = is_pixel ? taps.weight[i] : V{};
    taps.slope[i] = is_pixel ? tap_slope : V{};
  }
  if (axis.fills) {
    taps.outside = taps.nan == 0 ? taps.outside : Broadcast<V>(1);
    taps.outside_slope = taps.nan == 0 ? taps.outside_slope : V{};
  }
  return taps;
}

template <int kCount, typename V, typename C>
TFO_FORMULA AxisTaps<V, kCount> TapsOf(const ImageAxis<C>& axis, V coordinate,
                                       V own) {
  return TapsAt<kCount, V>(axis, PlaceOf<V>(axis, coordinate, own));
}

// What pixels outside add to a sample, and its slopes along y and x.
template <typename V>
struct Fill {
  V value, y, x;
};
template <int kCount, typename V>
TFO_FORMULA Fill<V> FillOf(double fill_value, const AxisTaps<V, kCount>& y,
                           const AxisTaps<V, kCount>& x) {
  if (fill_value == 0) return {V{}, V{}, V{}};
  const auto filled = [&](V weight) {
    // Zero times infinity is NaN.
    return weight == 0 ? V{} : weight * static_cast<ScalarOf<V>>(fill_value);
  };
  return {filled(y.outside + (1 - y.outside) * x.outside),
          filled(y.outside_slope * (1 - x.outside)),
          filled(x.outside_slope * (1 - y.outside))};
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_AXIS_H_
