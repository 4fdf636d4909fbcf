// The scratch memory of a custom call on a GPU, from XLA's C interface.
#ifndef TENSORFLOW_OPS_CORE_CC_XLA_XLA_SCRATCH_H_
#define TENSORFLOW_OPS_CORE_CC_XLA_XLA_SCRATCH_H_

#include <algorithm>
#include <cstddef>
#include <map>

#include "xla/ffi/api/c_api.h"

namespace tfo {

// Returns a zeroed argument struct: XlaArgs<XLA_FFI_State_Get_Args>(size).
template <typename T>
T XlaArgs(size_t struct_size) {
  T args = {};
  args.struct_size = struct_size;
  return args;
}

class XlaScratch {
 public:
  XlaScratch(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* ctx)
      : api_(api), ctx_(ctx) {}

  // Returns null if XLA has not so much memory.
  void* Allocate(size_t alignment, size_t bytes) {
    auto args = XlaArgs<XLA_FFI_DeviceMemory_Allocate_Args>(
        XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE);
    args.ctx = ctx_;
    args.size = bytes;
    // XLA refuses to promise more than 16, although its memory is aligned to
    // 256.
    args.alignment = std::min<size_t>(alignment, 16);
    if (!Succeeds(api_->XLA_FFI_DeviceMemory_Allocate(&args))) return nullptr;
    bytes_[args.data] = bytes;
    return args.data;
  }

  void Free(void* data) {
    auto args = XlaArgs<XLA_FFI_DeviceMemory_Free_Args>(
        XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE);
    args.ctx = ctx_;
    args.size = bytes_[data];
    args.data = data;
    bytes_.erase(data);
    Succeeds(api_->XLA_FFI_DeviceMemory_Free(&args));
  }

 private:
  // Frees the error, if there is one.
  bool Succeeds(XLA_FFI_Error* error) const {
    if (error == nullptr) return true;
    auto args = XlaArgs<XLA_FFI_Error_Destroy_Args>(
        XLA_FFI_Error_Destroy_Args_STRUCT_SIZE);
    args.error = error;
    api_->XLA_FFI_Error_Destroy(&args);
    return false;
  }

  const XLA_FFI_Api* const api_;
  XLA_FFI_ExecutionContext* const ctx_;
  std::map<void*, size_t> bytes_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_XLA_XLA_SCRATCH_H_
