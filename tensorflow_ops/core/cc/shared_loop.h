// A loop whose blocks the calling thread and its helpers claim one after the
// other. The caller never waits for a helper that has not begun: waking a
// thread takes tens to hundreds of microseconds, in which the caller may have
// done all the work itself.
#ifndef TENSORFLOW_OPS_CORE_CC_SHARED_LOOP_H_
#define TENSORFLOW_OPS_CORE_CC_SHARED_LOOP_H_

#include <cstdint>
#include <functional>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// Runs `work` on another thread, at any time, even after the loop has ended.
using Schedule = std::function<void(std::function<void()> work)>;

// Calls body on `blocks` ranges that cover [0, total), at most helpers + 1 at a
// time, and returns after the last. 0 < blocks <= total.
void RunSharedLoop(int64_t total, int64_t blocks, int helpers,
                   const Cpu::Body& body, const Schedule& schedule);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SHARED_LOOP_H_
