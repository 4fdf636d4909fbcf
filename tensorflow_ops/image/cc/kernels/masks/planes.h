// Images as planes: every image and channel is a plane of its own.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_PLANES_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_PLANES_H_

#include <cstdint>

namespace tfo {

// Images [images, height, width, channels]. [H, W] and [N, H, W] have one
// channel.
struct Planes {
  int64_t images, height, width, channels;

  int64_t Count() const { return images * channels; }
  int64_t Pixels() const { return height * width; }  // of a plane
  int64_t RowElements() const { return width * channels; }
  int64_t Elements() const { return Count() * Pixels(); }
};

// distance_transform needs heights and widths below this.
inline constexpr int64_t kMaxImageSide = int64_t{1} << 30;

// connected_components needs planes of fewer pixels than this: labels are
// int32.
inline constexpr int64_t kMaxPlanePixels = int64_t{1} << 31;

// Pixels of any dtype, compared by their bits. The sign bit of a float is
// ignored when testing for zero.
struct PixelType {
  int64_t bytes;  // 1, 2, 4 or 8
  bool is_float;
};

// Calls run(Bits(), magnitude) with the unsigned type of a pixel's size; a
// pixel is zero if pixel & magnitude is.
template <typename Run>
auto WithPixelBits(PixelType type, const Run& run) {
  const auto call = [&](auto bits) {
    using Bits = decltype(bits);
    constexpr auto kAll = static_cast<Bits>(~Bits{0});
    return run(bits, type.is_float ? static_cast<Bits>(kAll >> 1) : kAll);
  };
  switch (type.bytes) {
    case 1:
      return call(uint8_t{});
    case 2:
      return call(uint16_t{});
    case 4:
      return call(uint32_t{});
    default:
      return call(uint64_t{});
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_PLANES_H_
