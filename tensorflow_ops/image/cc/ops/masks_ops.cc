// The ops of masks: names, inputs, attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Checks the sizes that the algorithms support. Errors show `shape` as that of
// the images.
absl::Status CheckImageSides(int64_t height, int64_t width,
                             const std::string& shape) {
  if (height < kMaxImageSide && width < kMaxImageSide) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("images are ", shape, ", expected height and width below ",
                   kMaxImageSide));
}
absl::Status CheckPlanePixels(int64_t height, int64_t width,
                              const std::string& shape) {
  if (width == 0 || height <= (kMaxPlanePixels - 1) / width) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("images are ", shape, ", expected planes of fewer than ",
                   kMaxPlanePixels, " pixels: labels are int32"));
}

// Reads images, and their height and width if they are known.
absl::Status ReadImages(InferenceContext* c, ShapeHandle* images,
                        int64_t* height, int64_t* width) {
  constexpr char kExpected[] =
      "images must be [H, W], [N, H, W] or [N, H, W, C]";
  TF_RETURN_IF_ERROR(
      Expect(kExpected, c->WithRankAtLeast(c->input(0), 2, images)));
  TF_RETURN_IF_ERROR(Expect(kExpected, c->WithRankAtMost(*images, 4, images)));
  *height = *width = -1;
  if (c->RankKnown(*images)) {
    const int first = c->Rank(*images) > 2;
    *height = c->Value(c->Dim(*images, first));
    *width = c->Value(c->Dim(*images, first + 1));
  }
  return absl::OkStatus();
}

absl::Status DistanceTransformShape(InferenceContext* c) {
  ShapeHandle images;
  int64_t height, width;
  TF_RETURN_IF_ERROR(ReadImages(c, &images, &height, &width));
  TF_RETURN_IF_ERROR(CheckImageSides(height, width, c->DebugString(images)));
  c->set_output(0, images);
  return NamedDims(c).Read(1, {"spacing must be [2]: of rows and of columns"});
}

absl::Status ConnectedComponentsShape(InferenceContext* c) {
  ShapeHandle images;
  int64_t height, width;
  TF_RETURN_IF_ERROR(ReadImages(c, &images, &height, &width));
  if (height > 0 && width > 0) {
    TF_RETURN_IF_ERROR(CheckPlanePixels(height, width, c->DebugString(images)));
  }
  c->set_output(0, images);
  if (!c->RankKnown(images)) {
    c->set_output(1, c->UnknownShape());
  } else if (c->Rank(images) == 2) {
    c->set_output(1, c->Scalar());
  } else if (c->Rank(images) == 3) {
    c->set_output(1, c->Vector(c->Dim(images, 0)));
  } else {
    c->set_output(1, c->Matrix(c->Dim(images, 0), c->Dim(images, 3)));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

REGISTER_OP("TensorflowOps>EuclideanDistanceTransform")
    .Input("images: Timages")
    .Input("spacing: double")
    .Output("distances: T")
    .Attr(
        "Timages: {bool, int8, uint8, int16, uint16, int32, uint32, int64, "
        "uint64, half, bfloat16, float, double}")
    .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
    .SetShapeFn(tfo::DistanceTransformShape);

REGISTER_OP("TensorflowOps>ConnectedComponents")
    .Input("images: T")
    .Output("labels: int32")
    .Output("counts: int32")
    .Attr("connectivity: int = 4")
    .Attr("T: {bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64}")
    .SetShapeFn(tfo::ConnectedComponentsShape);
