#include "tensorflow_ops/core/cc/cuda/launch_error.h"

#include <string>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo {
namespace {

bool Has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TFO_TEST(LaunchError, FaultsMayBeOfEarlierKernels) {
  const LaunchInfo launch = {"Kernel", 3, 64, 5};
  for (const int fault :
       {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719}) {
    const testing::Case of_test({}, "error ", fault);
    const std::string text = LaunchError(fault, "misaligned address", launch);
    TFO_EXPECT(Has(text, "maybe an earlier one") &&
               Has(text, "CUDA_LAUNCH_BLOCKING=1") && !Has(text, "not launch"));
    TFO_EXPECT(Has(text,
                   ": misaligned address: 3 blocks of 64 threads and 5 "
                   "bytes of dynamic shared memory, kernel Kernel"));
  }
  // Invalid value, invalid configuration, no kernel image, out of resources,
  // cooperative launch too large.
  for (const int other : {1, 9, 209, 701, 720}) {
    const testing::Case of_test({}, "error ", other);
    const std::string text = LaunchError(other, "invalid argument", launch);
    TFO_EXPECT_EQ(text,
                  "The CUDA kernel was not launched: invalid argument: 3 "
                  "blocks of 64 threads and 5 bytes of dynamic shared memory, "
                  "kernel Kernel");
  }
}

}  // namespace
}  // namespace tfo
