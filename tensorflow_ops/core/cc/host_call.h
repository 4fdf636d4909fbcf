// Calls from a GPU's stream to the host.
#ifndef TENSORFLOW_OPS_CORE_CC_HOST_CALL_H_
#define TENSORFLOW_OPS_CORE_CC_HOST_CALL_H_

#include <cstddef>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// Enqueues a copy from the GPU's memory; `to` is pinned memory of the host.
Error EnqueueCopyToHost(const Gpu& gpu, void* to, const void* from,
                        size_t bytes);

// Enqueues a call of function(argument), on a thread of the driver's. It must
// be brief and must not call CUDA.
Error EnqueueHostCall(const Gpu& gpu, void (*function)(void* argument),
                      void* argument);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_HOST_CALL_H_
