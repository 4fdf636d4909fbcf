#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

// Op names cannot change later. Each repository uses its own namespace.
REGISTER_OP("RampOps>Ramp")
    .Input("x: T")
    .Output("y: T")
    .Attr("limit: float = 1.0")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape);
