#include "tools/gpu/kernel_call.h"

#include <sstream>

namespace tfo::gpu {
namespace {

using Kernel = Error (*)(const KernelCall&);
std::map<std::string, Kernel>& Kernels() {
  static auto* kernels = new std::map<std::string, Kernel>;
  return *kernels;
}

}  // namespace

Registration::Registration(const char* name, Kernel run) {
  Kernels()[name] = run;
}

KernelCall::KernelCall(const std::string& options, void* const* buffers,
                       void* scratch, int64_t scratch_bytes, void* stream)
    : buffers_(buffers),
      scratch_(scratch),
      scratch_bytes_(scratch_bytes),
      stream_(stream) {
  std::istringstream words(options);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw std::invalid_argument("not NAME=VALUE: " + word);
    }
    options_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::string KernelCall::Text(const std::string& name) const {
  read_.insert(name);
  const auto option = options_.find(name);
  return option == options_.end() ? "" : option->second;
}

double KernelCall::Number(const std::string& name) const {
  const std::string text = Text(name);
  if (text.empty()) return 0;
  size_t end = 0;
  const double value = std::stod(text, &end);
  if (end != text.size()) {
    throw std::invalid_argument(name + " is not a number: " + text);
  }
  return value;
}

void KernelCall::ExpectAllRead() const {
  for (const auto& [name, value] : options_) {
    if (read_.count(name) == 0) {
      throw std::invalid_argument("unknown option: " + name);
    }
  }
}

tfo::Gpu KernelCall::Gpu(int64_t scratch_bytes) const {
  if (scratch_bytes > scratch_bytes_) {
    throw std::invalid_argument("needs " + std::to_string(scratch_bytes) +
                                " bytes of scratch memory");
  }
  tfo::Gpu gpu;
  gpu.stream = stream_;
  gpu.scratch = scratch_;
  gpu.deterministic = Int("deterministic") != 0;
  return gpu;
}

}  // namespace tfo::gpu

// Enqueues a kernel on a stream: `options` are those of KernelCall, `buffers`
// the kernel's inputs, then its outputs. Returns null or an error's text, which
// lives until this thread's next call.
extern "C" __attribute__((visibility("default"))) const char* tfo_run(
    const char* kernel, const char* options, void* const* buffers,
    void* scratch, int64_t scratch_bytes, void* stream) {
  static thread_local std::string error;
  try {
    const auto found = tfo::gpu::Kernels().find(kernel);
    if (found == tfo::gpu::Kernels().end()) {
      throw std::invalid_argument("no such kernel");
    }
    const tfo::gpu::KernelCall call(options, buffers, scratch, scratch_bytes,
                                    stream);
    const tfo::Error launch = found->second(call);
    if (launch != nullptr) throw std::runtime_error(launch);
    call.ExpectAllRead();
    return nullptr;
  } catch (const std::exception& exception) {
    error = std::string(kernel) + ": " + exception.what();
    return error.c_str();
  }
}
