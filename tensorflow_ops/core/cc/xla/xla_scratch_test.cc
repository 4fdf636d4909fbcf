// Tests xla_scratch.h with an interface that refuses as XLA does.
#include "tensorflow_ops/core/cc/xla/xla_scratch.h"

#include <cstdlib>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

size_t allocated, freed, errors;

XLA_FFI_Error* Refuse() {
  ++errors;
  return reinterpret_cast<XLA_FFI_Error*>(&errors);
}

XLA_FFI_Api Api() {
  allocated = freed = errors = 0;
  XLA_FFI_Api api = {};
  // As XLA_FFI_DeviceMemory_Allocate of TensorFlow 2.21.
  api.XLA_FFI_DeviceMemory_Allocate =
      [](XLA_FFI_DeviceMemory_Allocate_Args* args) -> XLA_FFI_Error* {
    if (args->alignment > 16 || args->size > 1000) return Refuse();
    args->data = std::malloc(args->size);
    allocated += args->size;
    return nullptr;
  };
  api.XLA_FFI_DeviceMemory_Free =
      [](XLA_FFI_DeviceMemory_Free_Args* args) -> XLA_FFI_Error* {
    std::free(args->data);
    freed += args->size;
    return nullptr;
  };
  api.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args*) { --errors; };
  return api;
}

TFO_TEST(XlaScratch, TensorFlowsAlignmentIsNotRefused) {
  const XLA_FFI_Api api = Api();
  XlaScratch scratch(&api, nullptr);
  void* const small = scratch.Allocate(64, 100);
  void* const large = scratch.Allocate(8, 900);
  TFO_EXPECT(small != nullptr && large != nullptr);
  TFO_EXPECT_EQ(allocated, 1000u);
  scratch.Free(small);
  TFO_EXPECT_EQ(freed, 100u);
  scratch.Free(large);
  TFO_EXPECT_EQ(freed, 1000u);
}

TFO_TEST(XlaScratch, TooMuchIsNull) {
  const XLA_FFI_Api api = Api();
  TFO_EXPECT(XlaScratch(&api, nullptr).Allocate(64, 2000) == nullptr);
  TFO_EXPECT_EQ(errors, 0u);
}

}  // namespace
}  // namespace tfo
