// LinearSumAssignment.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment.h"

TFO_OP("LinearSumAssignment", AssignmentArgs);
