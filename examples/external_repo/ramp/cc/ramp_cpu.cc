#include "ramp/cc/ramp.h"

namespace ramp {

template <typename T>
tfo::Error Ramp(const tfo::Cpu& cpu, const RampArgs& args, const T* x, T* y) {
  cpu.ParallelFor(args.num_elements, /*cycles_per_unit=*/1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      y[i] = RampValue(args, x[i]);
                    }
                  });
  return nullptr;
}

#define INSTANTIATE(T) \
  template tfo::Error Ramp(const tfo::Cpu&, const RampArgs&, const T*, T*)
INSTANTIATE(float);
INSTANTIATE(double);
INSTANTIATE(tfo::Half);
INSTANTIATE(tfo::BFloat16);
#undef INSTANTIATE

}  // namespace ramp
