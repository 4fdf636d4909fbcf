#include <cstring>

#include "tensorflow_ops/nn/cc/kernels/update_cache/update_cache.h"

namespace tfo {

Error UpdateCache(const Cpu& cpu, const UpdateCacheArgs& args, int64_t* bad) {
  *bad = -1;
  for (int64_t b = 0; b < args.batch; ++b) {
    if (args.IsInside(b)) continue;
    *bad = b;
    return nullptr;
  }
  const int64_t size = args.length * args.bytes,
                added = args.count * args.bytes;
  if (args.output != args.cache) {
    cpu.ParallelFor(args.batch * args.length, args.bytes / 4.,
                    [&](int64_t begin, int64_t end) {
                      const int64_t first = begin * args.bytes;
                      std::memcpy(args.output + first, args.cache + first,
                                  end * args.bytes - first);
                    });
  }
  if (added == 0) return nullptr;
  cpu.ParallelFor(args.batch, added / 4. + 10, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::memcpy(args.output + b * size + args.positions[b] * args.bytes,
                  args.rows + b * added, added);
    }
  });
  return nullptr;
}

}  // namespace tfo
