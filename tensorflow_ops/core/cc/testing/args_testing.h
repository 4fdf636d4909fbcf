// Tensors of a test, by the names that algorithms' headers describe
// (describe.h).
#ifndef TENSORFLOW_OPS_CORE_CC_TESTING_ARGS_TESTING_H_
#define TENSORFLOW_OPS_CORE_CC_TESTING_ARGS_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensorflow_ops/core/cc/describe.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo::testing {

// Describe(args, tensors) points `args` to tensors: a missing input gets random
// values, and an output 7s; an optional input is null unless it is set, and
// integers must be set. An op and its gradient share tensors of a name.
class Tensors : public ArgsVisitor {
 public:
  // In place: outputs take the memory of inputs where they may.
  explicit Tensors(std::map<std::string, int64_t> sizes, bool in_place = false)
      : sizes_(std::move(sizes)), in_place_(in_place) {}

  template <typename X>
  void Set(const std::string& name, GpuVector<X> values) {
    tensors_[name] = {std::move(values)};
  }
  // Scales random values, which are of a standard normal distribution.
  void Scale(const std::string& name, double scale) { scales_[name] = scale; }

  template <typename X>
  void In(const std::string& name, const std::string& shape, const X** data) {
    if constexpr (!std::is_integral_v<X>) {
      if (tensors_.count(name) == 0) {
        const double scale = scales_.count(name) > 0 ? scales_[name] : 1;
        auto values = RandomOnGpu<X>(CountOf(shape), tensors_.size() + 1);
        for (X& value : values) value = Rounded<X>(Widen(value) * scale);
        Set(name, std::move(values));
      }
    }
    inputs_[name] = data;
    *data = DataOf<X>(name);
  }
  template <typename Index>
  void In(const std::string& name, const std::string&, Index* index,
          const char*) {
    if (std::holds_alternative<GpuVector<int32_t>>(tensors_.at(name).values)) {
      *index = DataOf<int32_t>(name);
    } else {
      *index = DataOf<int64_t>(name);
    }
  }
  template <typename X>
  void Optional(const std::string& name, const char*, const X** data) {
    *data = tensors_.count(name) == 0 ? nullptr : DataOf<X>(name);
  }
  // Attrs may be among the sizes.
  using ArgsVisitor::Option;
  template <typename Name, typename Default, typename X>
  void Option(const Name& name, const Default&, X* attr) {
    if (sizes_.count(name) > 0) *attr = static_cast<X>(sizes_[name]);
  }
  template <typename X, typename... Limit>
  void Required(const std::string& name, X* attr, const Limit&...) {
    Option(name, X{}, attr);
  }
  template <typename X>
  void Out(const std::string& name, const std::string& shape, X** data,
           const std::string& from = "") {
    const bool takes = in_place_ && !from.empty();
    if (takes) tensors_[name] = tensors_.at(from);
    if (tensors_.count(name) == 0) {
      Set(name, GpuVector<X>(CountOf(shape), Rounded<X>(unset_)));
    }
    tensors_[name].is_output = true;
    *data = DataOf<X>(name);
    if (takes) *static_cast<const X**>(inputs_.at(from)) = *data;
  }
  template <typename X>
  void OptionalOut(const std::string& name, const std::string& shape,
                   const std::string& of, X** data) {
    *data = nullptr;
    if (tensors_.count(of) > 0) Out(name, shape, data);
  }
  void Size(const std::string& name, int64_t* size) { *size = sizes_.at(name); }

  template <typename X>
  const GpuVector<X>& Get(const std::string& name) const {
    return std::get<GpuVector<X>>(tensors_.at(name).values);
  }
  template <typename X>
  GpuVector<X>& Get(const std::string& name) {
    return std::get<GpuVector<X>>(tensors_.at(name).values);
  }

  // What failures say: "batch 2, frames 3".
  std::string SizesText() const {
    std::string text;
    for (const auto& [name, size] : sizes_) {
      text += Text(text.empty() ? "" : ", ", name, " ", size);
    }
    return text;
  }

  bool HasBitsOf(const Tensors& other) const {
    bool same = true;
    for (const auto& [name, tensor] : tensors_) {
      std::visit(
          [&, &others = other.tensors_.at(name).values](const auto& values) {
            using Values = std::decay_t<decltype(values)>;
            same &= HaveSameBits(values, std::get<Values>(others));
          },
          tensor.values);
    }
    return same;
  }

  // For a reference: the inputs in double, and outputs of 0.
  Tensors InDouble() const {
    Tensors wide(sizes_);
    wide.unset_ = 0;
    for (const auto& [name, tensor] : tensors_) {
      wide.tensors_[name] = tensor;
      std::visit(
          [&to = wide.tensors_[name].values,
           is_output = tensor.is_output](const auto& values) {
            using X = typename std::decay_t<decltype(values)>::value_type;
            if constexpr (!std::is_integral_v<X>) {
              GpuVector<double> widened(values.size());
              for (size_t i = 0; !is_output && i < values.size(); ++i) {
                widened[i] = Widen(values[i]);
              }
              to = std::move(widened);
            } else if (is_output) {
              to = GpuVector<X>(values.size());
            }
          },
          tensor.values);
    }
    return wide;
  }

  // Compares the outputs.
  void ExpectCloseTo(const Tensors& reference) const {
    for (const auto& [name, tensor] : tensors_) {
      if (!tensor.is_output) continue;
      std::visit(
          [&, &name = name](const auto& values) {
            using X = typename std::decay_t<decltype(values)>::value_type;
            if constexpr (std::is_integral_v<X>) {
              TFO_EXPECT(HaveSameBits(values, reference.Get<X>(name)));
            } else {
              const auto& e = reference.Get<double>(name);
              ExpectClose(name.c_str(), values,
                          std::vector<double>(e.begin(), e.end()));
            }
          },
          tensor.values);
    }
  }

 private:
  struct Tensor {
    std::variant<GpuVector<float>, GpuVector<double>, GpuVector<Half>,
                 GpuVector<BFloat16>, GpuVector<char>, GpuVector<int32_t>,
                 GpuVector<int64_t>>
        values;
    bool is_output = false;
  };

  template <typename X>
  X* DataOf(const std::string& name) {
    using Stored = std::conditional_t<std::is_same_v<X, bool>, char, X>;
    return reinterpret_cast<X*>(
        std::get<GpuVector<Stored>>(tensors_.at(name).values).data());
  }
  int64_t CountOf(const std::string& shape) const {
    int64_t count = 1;
    for (const std::string& dim : DimsOf(shape)) {
      const auto [name, more] = Terms(dim);
      count *=
          IsNumber(name) ? std::atoi(name.c_str()) : sizes_.at(name) + more;
    }
    return count;
  }

  std::map<std::string, int64_t> sizes_;
  bool in_place_;
  double unset_ = 7;  // in outputs
  std::map<std::string, double> scales_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, void*> inputs_;  // what `data` points to
};

// Args with these options and tensors.
template <typename Args, typename Options>
Args Bound(const Options& options, Tensors* tensors) {
  Args args{};
  static_cast<Options&>(args) = options;
  Describe(args, *tensors);
  return args;
}
template <typename Args>
Args Bound(Tensors* tensors) {
  return Bound<Args>(Args{}, tensors);
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_CORE_CC_TESTING_ARGS_TESTING_H_
