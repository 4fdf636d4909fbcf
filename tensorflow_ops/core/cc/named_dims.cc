#include "tensorflow_ops/core/cc/named_dims.h"

#include <cstdlib>

namespace tfo {

using ::tensorflow::shape_inference::ShapeHandle;

namespace {

// The dims in a text's first brackets.
std::vector<std::string> DimsOf(const std::string& text) {
  std::vector<std::string> dims;
  size_t begin = text.find('[');
  if (begin == std::string::npos) return dims;
  while (text[begin] != ']') {
    const size_t first = text.find_first_not_of(' ', begin + 1);
    begin = text.find_first_of(",]", first);
    dims.push_back(text.substr(first, begin - first));
  }
  return dims;
}

// Splits "labels + 1" into a name and a number.
std::pair<std::string, int64_t> Terms(const std::string& dim) {
  const size_t plus = dim.find(" + ");
  if (plus == std::string::npos) return {dim, 0};
  return {dim.substr(0, plus), std::atoi(dim.c_str() + plus + 3)};
}

bool IsNumber(const std::string& dim) { return dim[0] >= '0' && dim[0] <= '9'; }

}  // namespace

NamedDims::Dim& NamedDims::operator[](const std::string& name) {
  for (auto& [known, size] : sizes_) {
    if (known == name) return size;
  }
  const Dim size =
      IsNumber(name) ? c_->MakeDim(std::atoi(name.c_str())) : c_->UnknownDim();
  return sizes_.emplace_back(name, size).second;
}

absl::Status NamedDims::Merge(const std::string& dim, Dim found) {
  Dim size;
  if (IsNumber(dim)) {
    return c_->WithValue(found, std::atoi(dim.c_str()), &size);
  }
  const auto& [name, more] = Terms(dim);
  TF_RETURN_IF_ERROR(c_->Add((*this)[name], more, &size));
  TF_RETURN_IF_ERROR(c_->Merge(size, found, &size));
  return c_->Subtract(size, more, &(*this)[name]);
}

absl::Status NamedDims::ReadShape(const std::string& text, ShapeHandle shape) {
  const std::vector<std::string> dims = DimsOf(text);
  const int rank = dims.size();
  TF_RETURN_IF_ERROR(Expect(text, c_->WithRank(shape, rank, &shape)));
  for (int i = 0; i < rank; ++i) {
    TF_RETURN_IF_ERROR(Expect(text, Merge(dims[i], c_->Dim(shape, i))));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::Read(int first,
                             std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    TF_RETURN_IF_ERROR(ReadShape(text, c_->input(first++)));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::ReadOptional(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    std::optional<ShapeHandle> shape;
    TF_RETURN_IF_ERROR(
        OptionalInput(c_, text.substr(0, text.find(' ')), &shape));
    if (shape.has_value()) TF_RETURN_IF_ERROR(ReadShape(text, *shape));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::Write(std::initializer_list<std::string> texts) {
  int output = 0;
  for (const std::string& text : texts) {
    std::vector<Dim> sizes;
    for (const std::string& dim : DimsOf(text)) {
      const auto& [name, more] = Terms(dim);
      TF_RETURN_IF_ERROR(c_->Add((*this)[name], more, &sizes.emplace_back()));
    }
    c_->set_output(output++, c_->MakeShape(sizes));
  }
  return absl::OkStatus();
}

}  // namespace tfo
