// Memory of the host with mirrors on the GPU, for tests: kernels get the
// mirrors' addresses, in the emulation (cuda_emulation.h), too. Some machines
// with GPUs lack CUDA's managed memory.
//
// Launches (cuda_launch.h) copy what a kernel may access to its mirror, and
// Fetch copies it back. Objects of the wheel do not include this file.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_GPU_MIRROR_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_GPU_MIRROR_H_

#ifdef TFO_CUDA_EMULATION
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#else
#include <cuda_runtime_api.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <type_traits>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/scratch.h"

namespace tfo::gpu_mirror {

constexpr size_t kAlignment = 256;

struct Block {
  size_t bytes;
  char* mirror = nullptr;  // allocated for the first kernel
  bool mirror_is_newer = false;
};

// By the address on the host.
inline std::map<uintptr_t, Block>& Blocks() {
  static auto& blocks = *new std::map<uintptr_t, Block>;
  return blocks;
}

#ifdef TFO_CUDA_EMULATION
// Not rounded up, so that a sanitizer detects accesses beyond the end.
inline Error AllocateMirror(Block* block) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, block->bytes) != 0)
    return "no memory";
  block->mirror = static_cast<char*>(memory);
  return nullptr;
}
inline void FreeMirror(char* mirror) { std::free(mirror); }
// While the mirror is newer, a sanitizer detects accesses to the host's memory,
// of a kernel or of a test that did not wait.
inline Error CopyToMirror(void* host, const Block& block) {
  ASAN_UNPOISON_MEMORY_REGION(block.mirror, block.bytes);
  std::memcpy(block.mirror, host, block.bytes);
  ASAN_POISON_MEMORY_REGION(host, block.bytes);
  return nullptr;
}
inline Error CopyFromMirror(void* host, const Block& block) {
  ASAN_UNPOISON_MEMORY_REGION(block.mirror, block.bytes);
  ASAN_UNPOISON_MEMORY_REGION(host, block.bytes);
  std::memcpy(host, block.mirror, block.bytes);
  return nullptr;
}
// Lets a sanitizer detect accesses to the gaps between arrays.
inline void PoisonGaps(uintptr_t host, const Block& block) {
  ASAN_UNPOISON_MEMORY_REGION(block.mirror, block.bytes);
  for (const auto& [begin, end] : ScratchGaps()) {
    if (begin < host || end > host + block.bytes) continue;
    ASAN_POISON_MEMORY_REGION(block.mirror + (begin - host), end - begin);
  }
}
// Is a word of an argument an address of this process? Linux has programs,
// heaps and stacks in this range, other numbers are hardly in it.
inline bool IsOnHost(uintptr_t word) {
  if (word >> 44 < 5 || word >> 44 > 7) return false;
  void* const page = reinterpret_cast<void*>(word & ~uintptr_t{4095});
  return msync(page, 1, MS_ASYNC) == 0;
}
#else
inline Error ToError(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
inline Error AllocateMirror(Block* block) {
  return ToError(cudaMalloc(&block->mirror, block->bytes));
}
inline void FreeMirror(char* mirror) { cudaFree(mirror); }
inline Error CopyToMirror(void* host, const Block& block) {
  return ToError(
      cudaMemcpy(block.mirror, host, block.bytes, cudaMemcpyHostToDevice));
}
inline Error CopyFromMirror(void* host, const Block& block) {
  return ToError(
      cudaMemcpy(host, block.mirror, block.bytes, cudaMemcpyDeviceToHost));
}
inline void PoisonGaps(uintptr_t, const Block&) {}
inline bool IsOnHost(uintptr_t) { return false; }  // a GPU fails
#endif

// Returns memory of the host that has a mirror, or null.
inline void* Allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
  ScratchGaps().clear();
  Blocks()[reinterpret_cast<uintptr_t>(memory)].bytes = bytes;
  return memory;
}
inline void Free(void* memory) {
  const auto block = Blocks().find(reinterpret_cast<uintptr_t>(memory));
#ifdef TFO_CUDA_EMULATION
  ASAN_UNPOISON_MEMORY_REGION(memory, block->second.bytes);
#endif
  if (block->second.mirror != nullptr) FreeMirror(block->second.mirror);
  Blocks().erase(block);
  std::free(memory);
}

// May a word of a struct be a bool, a small integer or a float, and padding
// that has the other bytes of an address?
inline bool MaybeNumber(uintptr_t word) {
  const auto lower_half = static_cast<int32_t>(word);
  float number;
  std::memcpy(&number, &lower_half, sizeof(number));
  return (word & 0xFF) < 2 || std::abs(int64_t{lower_half}) < 1 << 16 ||
         (std::fabs(number) > 1e-4f && std::fabs(number) < 1e4f);
}

// Replaces addresses of the host in an argument of a kernel, a pointer or a
// struct with pointers, by those of the mirrors, which become up to date.
// Others are errors in the emulation.
template <typename T>
Error Replace(T* argument) {
  char* const words = reinterpret_cast<char*>(argument);
  for (size_t at = 0; at + sizeof(uintptr_t) <= sizeof(T);
       at += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, words + at, sizeof(word));
    auto found = Blocks().upper_bound(word);
    // Also the end, with which a kernel may compare.
    if (found == Blocks().begin() ||
        word > std::prev(found)->first + std::prev(found)->second.bytes) {
      const bool maybe_number = !std::is_pointer_v<T> && MaybeNumber(word);
      if (!maybe_number && IsOnHost(word)) return "an address of the host";
      continue;
    }
    auto& [begin, block] = *--found;
    if (block.mirror == nullptr) {
      if (const Error error = AllocateMirror(&block)) return error;
    }
    if (!block.mirror_is_newer) {
      void* const host = reinterpret_cast<void*>(begin);
      if (const Error error = CopyToMirror(host, block)) return error;
      block.mirror_is_newer = true;
    }
    PoisonGaps(begin, block);
    word = reinterpret_cast<uintptr_t>(block.mirror) + (word - begin);
    std::memcpy(words + at, &word, sizeof(word));
  }
  return nullptr;
}

// Copies what kernels may have written to the host, after the last of them.
inline Error Fetch() {
  for (auto& [begin, block] : Blocks()) {
    if (!block.mirror_is_newer) continue;
    block.mirror_is_newer = false;
    void* const host = reinterpret_cast<void*>(begin);
    if (const Error error = CopyFromMirror(host, block)) return error;
  }
  return nullptr;
}

}  // namespace tfo::gpu_mirror

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_GPU_MIRROR_H_
