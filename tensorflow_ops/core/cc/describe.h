// An algorithm's header describes the members of its Args once. From this come
// the op's definition, shape function and OpKernel (op_spec.h), and tensors for
// tests (args_testing.h). The order is that of the op's inputs, outputs and
// attrs:
//
//   template <typename T, typename V>
//   void Describe(ScaleArgs<T>& a, V& v) {
//     v.In("x", "[rows, classes]", &a.x);
//     v.In("factors", "[rows]", &a.factors);
//     v.Out("y", "[rows, classes]", &a.y, /*may take*/ "x");
//     v.Size("rows", &a.rows);
//     v.Size("classes", &a.classes);
//     v.Types("T");
//     v.Option("log", false, &a.log);
//   }
//
// A member's type is the tensor's: T, Accumulator<T> (attr Tvalue), bool,
// int32_t, or IndexArray, whose attr follows: v.In("labels", "[rows]",
// &a.labels, "Tlabels").
//
//   In, Optional   an input; null where attr has_NAME is 0
//   Scalar         an input of one number, in host memory
//   Out            an output; the name of the input whose memory it may take
//   OptionalOut    an output, which a call has if it has this Optional
//   Size           of a dim that inputs above have; of "...", the number of
//                  rows
//   Types          where the attrs of dtypes stand among the others
//   Option         an attr: bool, int64_t, float or, without a default, double,
//                  which is a list of floats
//   Required       an attr without a default: bool, int32_t, or int64_t, which
//                  is also the size of a dim of its name; its bound: ">= 1"
//   Enum           an attr: a word, which a table of pairs gives a value
//   Check          a condition on sizes and options, and the error's parts; an
//                  unknown size is -1
#ifndef TENSORFLOW_OPS_CORE_CC_DESCRIBE_H_
#define TENSORFLOW_OPS_CORE_CC_DESCRIBE_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace tfo {

// Ignores all. A visitor hides what it reads.
struct ArgsVisitor {
  template <typename... X>
  void In(const X&...) {}
  template <typename... X>
  void Optional(const X&...) {}
  template <typename... X>
  void Scalar(const X&...) {}
  template <typename... X>
  void Out(const X&...) {}
  template <typename... X>
  void OptionalOut(const X&...) {}
  template <typename... X>
  void Size(const X&...) {}
  template <typename... X>
  void Types(const X&...) {}
  template <typename... X>
  void Option(const X&...) {}
  template <typename... X>
  void Required(const X&...) {}
  template <typename... X>
  void Enum(const X&...) {}
  template <typename... X>
  void Check(const X&...) {}
};

// A shape's text has dims in its first brackets; without brackets it is of a
// scalar. A dim is a name, which stands for one size in all texts, such as
// `labels`; a name and a number, `labels + 1`; a number; or, first, `...`, for
// any number of dims.
inline std::vector<std::string> DimsOf(const std::string& text) {
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
inline std::pair<std::string, int64_t> Terms(const std::string& dim) {
  const size_t plus = dim.find(" + ");
  if (plus == std::string::npos) return {dim, 0};
  return {dim.substr(0, plus), std::atoi(dim.c_str() + plus + 3)};
}

inline bool IsNumber(const std::string& dim) {
  return dim[0] >= '0' && dim[0] <= '9';
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_DESCRIBE_H_
