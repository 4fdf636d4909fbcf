#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {

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

absl::Status NamedDims::Read(const std::string& text, Shape shape) {
  const std::vector<std::string> dims = DimsOf(text);
  const int rank = dims.size();
  int first = 0;
  if (rank > 0 && dims[0] == "...") {
    first = 1;
    Shape known;
    TF_RETURN_IF_ERROR(Make(text, &known));
    TF_RETURN_IF_ERROR(
        Expect(text, c_->WithRankAtLeast(shape, rank - 1, &shape)));
    TF_RETURN_IF_ERROR(Expect(text, c_->Merge(known, shape, &shape)));
    rows_ = shape;
    if (rank > 1) TF_RETURN_IF_ERROR(c_->Subshape(shape, 0, 1 - rank, &rows_));
    if (!c_->RankKnown(shape)) return absl::OkStatus();
  } else {
    TF_RETURN_IF_ERROR(Expect(text, c_->WithRank(shape, rank, &shape)));
  }
  for (int i = first; i < rank; ++i) {
    TF_RETURN_IF_ERROR(Expect(text, Merge(dims[i], c_->Dim(shape, i - rank))));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::Make(const std::string& text, Shape* shape) {
  std::vector<Dim> sizes;
  Shape rows = c_->Scalar();
  for (const std::string& dim : DimsOf(text)) {
    if (dim == "...") {
      rows = rows_;
      continue;
    }
    const auto& [name, more] = Terms(dim);
    TF_RETURN_IF_ERROR(c_->Add((*this)[name], more, &sizes.emplace_back()));
  }
  return c_->Concatenate(rows, c_->MakeShape(sizes), shape);
}

absl::Status NamedDims::Read(int first,
                             std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    TF_RETURN_IF_ERROR(Read(text, c_->input(first++)));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::ReadOptional(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    std::optional<Shape> shape;
    TF_RETURN_IF_ERROR(
        OptionalInput(c_, text.substr(0, text.find(' ')), &shape));
    if (shape.has_value()) TF_RETURN_IF_ERROR(Read(text, *shape));
  }
  return absl::OkStatus();
}

absl::Status NamedDims::Write(std::initializer_list<std::string> texts) {
  int output = 0;
  for (const std::string& text : texts) {
    Shape shape;
    TF_RETURN_IF_ERROR(Make(text, &shape));
    c_->set_output(output++, shape);
  }
  return absl::OkStatus();
}

}  // namespace tfo
