#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_search.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_simd.h"

namespace tfo {
namespace {

struct OneThread {
  template <typename Body>
  void ForEach(int64_t n, const Body& body) const {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
  template <typename IsOne>
  bool Any(int64_t n, const IsOne& is_one) const {
    bool any = false;
    for (int64_t i = 0; i < n; ++i) any |= is_one(i);
    return any;
  }
  template <typename Body>
  void Alone(const Body& body) const {
    body();
  }
  int64_t Relax(const SinkScan& scan, double* low) const {
    return TFO_DISPATCH(RelaxSinks)(scan, low);
  }
};

}  // namespace

template <typename T>
Error LinearSumAssignment(const Cpu& cpu, const AssignmentArgs<T>& args) {
  const AssignmentMemory sizes(args.rows, args.columns, 1, nullptr);
  // Most searches reach few sinks.
  const double cycles =
      args.rows * args.columns * (2 + sizes.most_sources / 32.0);
  cpu.ParallelFor(args.batch, cycles, [&](int64_t begin, int64_t end) {
    const Buffer<char> buffer(sizes.bytes);
    const AssignmentMemory memory(args.rows, args.columns, 1, buffer.data());
    for (int64_t i = begin; i < end; ++i) {
      AssignExample(OneThread(), args, i, memory);
    }
  });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(LinearSumAssignment, Cpu, AssignmentArgs);

}  // namespace tfo
