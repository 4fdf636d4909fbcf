// int32 or int64 values: labels and lengths. The type is a run-time choice,
// since a template parameter would double the number of kernels.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_INDEX_ARRAY_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_INDEX_ARRAY_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

class IndexArray {
 public:
  IndexArray() = default;
  IndexArray(const int32_t* values) : narrow_(values) {}  // NOLINT: implicit
  IndexArray(const int64_t* values) : wide_(values) {}    // NOLINT
  TFO_HOST_DEVICE int64_t operator[](int64_t i) const {
    return wide_ != nullptr ? wide_[i] : narrow_[i];
  }

 private:
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_INDEX_ARRAY_H_
