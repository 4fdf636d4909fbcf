// In place of CUDA's runtime, for expected_times.py: runs nothing, and prints
// what each benchmark launches, a line of JSON each. Device memory is host
// memory.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

struct Dim3 {
  unsigned x, y, z;
};
struct Launch {
  Dim3 grid, block;
  size_t shared;
  void* stream;
};
Launch pushed;

std::map<const void*, std::string>& Kernels() {
  static auto* kernels = new std::map<const void*, std::string>;
  return *kernels;
}

int records =
    2;  // since the benchmark began: its first run is between the first two
bool IsFirstRun() { return records == 1; }

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int,
                       int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name,
                            int, void*, void*, void*, void*, int*) {
  Kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared,
                                     void* stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}
int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared,
                               void** stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *stream = pushed.stream;
  return 0;
}
int cudaLaunchKernel(const void* host, Dim3 grid, Dim3 block, void**,
                     size_t shared, void*) {
  if (!IsFirstRun()) return 0;
  std::printf(
      "{\"kernel\": \"%s\", \"grid\": %u, \"block\": %u, \"shared\": %zu}\n",
      Kernels()[host].c_str(), grid.x, block.x, shared);
  return 0;
}
int cudaMemsetAsync(void*, int, size_t bytes, void*) {
  if (IsFirstRun()) std::printf("{\"zeros\": %zu}\n", bytes);
  return 0;
}
int cudaMallocManaged(void** memory, size_t bytes, unsigned) {
  return posix_memalign(memory, 256, bytes);
}
int cudaMalloc(void** memory, size_t) {  // only overwritten by cudaMemsetAsync
  *memory = nullptr;
  return 0;
}
int cudaFree(void* memory) {
  std::free(memory);
  return 0;
}
int cudaEventCreate(void**) {
  records = 0;
  return 0;
}
int cudaEventRecord(void*, void*) {
  ++records;
  return 0;
}
int cudaEventElapsedTime(float* ms, void*, void*) {
  *ms = 0;
  return 0;
}
int cudaEventSynchronize(void*) { return 0; }
int cudaEventDestroy(void*) { return 0; }
int cudaDeviceSynchronize() { return 0; }
int cudaGetLastError() { return 0; }
int cudaPeekAtLastError() { return 0; }
int cudaFuncSetAttribute(const void*, int, int) { return 0; }
const char* cudaGetErrorString(int) { return "no error"; }
int cudaDriverGetVersion(int* version) {
  *version = 99000;
  return 0;
}
int cudaRuntimeGetVersion(int* version) {
  *version = 12000;
  return 0;
}

}  // extern "C"
