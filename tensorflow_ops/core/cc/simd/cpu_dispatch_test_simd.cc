#include "tensorflow_ops/core/cc/simd/cpu_dispatch_test_simd.h"

#include <new>
#include <string>
#include <vector>

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

struct Destroyed {
  ~Destroyed() { *is_destroyed = true; }
  bool* is_destroyed;
};

}  // namespace

// The variables make the compiler emit initializers and their guards.
const char* CompiledFor() {
  static const std::string of_all_threads = InstructionSet();
  thread_local const std::vector<std::string> of_thread(1, of_all_threads);
  return of_thread[0] == of_all_threads ? of_all_threads.c_str() : nullptr;
}

void Throw(bool* is_destroyed) {
  const std::vector<Destroyed> memory(1, Destroyed{is_destroyed});
  *is_destroyed = false;
  throw std::bad_alloc();
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
