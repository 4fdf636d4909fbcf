// BoxIou, BoxIouLoss and their gradients: names, inputs, attrs, outputs,
// shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Checks boxes [..., `more_dims` dims, 4 or 5]; merges their leading dims into
// `leading` and sets `dims` to what follows, without the last dim.
absl::Status BoxDims(InferenceContext* c, int input, const char* name,
                     int more_dims, ShapeHandle* leading,
                     std::vector<DimensionHandle>* dims) {
  std::string format;
  TF_RETURN_IF_ERROR(c->GetAttr("box_format", &format));
  const int size = format == "cxcywhr" ? 5 : 4;
  const std::string expected = absl::StrCat(
      name, " must be [..., ", more_dims == 1 ? "boxes, " : "", size, "]");
  ShapeHandle boxes, before;
  DimensionHandle numbers;
  TF_RETURN_IF_ERROR(Expect(
      expected, c->WithRankAtLeast(c->input(input), more_dims + 1, &boxes)));
  TF_RETURN_IF_ERROR(
      Expect(expected, c->WithValue(c->Dim(boxes, -1), size, &numbers)));
  for (int i = 0; i < more_dims; ++i) {
    dims->push_back(c->Dim(boxes, i - more_dims - 1));
  }
  if (!c->RankKnown(boxes)) return absl::OkStatus();
  TF_RETURN_IF_ERROR(c->Subshape(boxes, 0, -more_dims - 1, &before));
  return Expect("boxes2 must have boxes1's leading dims",
                c->Merge(*leading, before, leading));
}

// boxes1 and boxes2, two inputs in a row, as a matrix of pairs.
absl::Status PairsShape(InferenceContext* c, int first, ShapeHandle* pairs) {
  ShapeHandle leading = c->UnknownShape();
  std::vector<DimensionHandle> dims;
  TF_RETURN_IF_ERROR(BoxDims(c, first, "boxes1", 1, &leading, &dims));
  TF_RETURN_IF_ERROR(BoxDims(c, first + 1, "boxes2", 1, &leading, &dims));
  return c->Concatenate(leading, c->MakeShape(dims), pairs);
}

// The same, of pairs in order.
absl::Status OrderedPairsShape(InferenceContext* c, int first,
                               ShapeHandle* pairs) {
  std::vector<DimensionHandle> none;
  *pairs = c->UnknownShape();
  TF_RETURN_IF_ERROR(BoxDims(c, first, "boxes1", 0, pairs, &none));
  return BoxDims(c, first + 1, "boxes2", 0, pairs, &none);
}

// Gradients to boxes1 and boxes2, inputs 1 and 2, of a result shaped `pairs`.
absl::Status BoxGradients(InferenceContext* c, const char* expected,
                          ShapeHandle pairs) {
  ShapeHandle merged;
  TF_RETURN_IF_ERROR(Expect(expected, c->Merge(c->input(0), pairs, &merged)));
  c->set_output(0, c->input(1));
  c->set_output(1, c->input(2));
  return absl::OkStatus();
}

REGISTER_OP("TensorflowOps>BoxIou")
    .Input("boxes1: T")
    .Input("boxes2: T")
    .Output("iou: T")
    .Attr("T: {float, double}")
    .Attr("mode: {'iou', 'giou', 'diou', 'ciou'} = 'iou'")
    .Attr("box_format: {'xyxy', 'yxyx', 'cxcywhr'} = 'xyxy'")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle pairs;
      TF_RETURN_IF_ERROR(PairsShape(c, 0, &pairs));
      c->set_output(0, pairs);
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>BoxIouGrad")
    .Input("d_iou: T")
    .Input("boxes1: T")
    .Input("boxes2: T")
    .Output("d_boxes1: T")
    .Output("d_boxes2: T")
    .Attr("T: {float, double}")
    .Attr("mode: {'iou', 'giou', 'diou', 'ciou'} = 'iou'")
    .Attr("box_format: {'xyxy', 'yxyx'} = 'xyxy'")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle pairs;
      TF_RETURN_IF_ERROR(PairsShape(c, 1, &pairs));
      return BoxGradients(c, "d_iou must have the shape of box_iou's result",
                          pairs);
    });

REGISTER_OP("TensorflowOps>BoxIouLoss")
    .Input("boxes1: T")
    .Input("boxes2: T")
    .Output("loss: T")
    .Attr("T: {float, double}")
    .Attr("mode: {'iou', 'giou', 'diou', 'ciou'} = 'giou'")
    .Attr("box_format: {'xyxy', 'yxyx'} = 'xyxy'")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle pairs;
      TF_RETURN_IF_ERROR(OrderedPairsShape(c, 0, &pairs));
      c->set_output(0, pairs);
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>BoxIouLossGrad")
    .Input("d_loss: T")
    .Input("boxes1: T")
    .Input("boxes2: T")
    .Output("d_boxes1: T")
    .Output("d_boxes2: T")
    .Attr("T: {float, double}")
    .Attr("mode: {'iou', 'giou', 'diou', 'ciou'} = 'giou'")
    .Attr("box_format: {'xyxy', 'yxyx'} = 'xyxy'")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle pairs;
      TF_RETURN_IF_ERROR(OrderedPairsShape(c, 1, &pairs));
      return BoxGradients(c, "d_loss must have the loss's shape", pairs);
    });

}  // namespace
}  // namespace tfo
