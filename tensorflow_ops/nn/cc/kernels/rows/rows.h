// Functions of rows: row-wise reductions of [rows, classes] tensors, such as
// softmax and its relatives.
//
// A function is two structs:
//   Args                its tensors and options (softmax.h, gaussian_kl.h, ...)
//   RowFunction<Args>   its formulas, written once for vectors and CUDA
//                       (softmax_rows.h, ...)
// and three files list its Args for the loops over rows: rows_cpu.cc (threads),
// X_simd.cc (rows_simd.h: vectors of every instruction set), and rows_gpu.cu.cc
// or losses_gpu.cu.cc (rows_gpu.h: CUDA).
//
// Words: a class is an element of a row. A part is a range of classes that a
// thread or block reduces on its own (partition.h). A state is the result of a
// reduction so far (state.h).
//
// Args has
//   using Value;                           of per-row results: float or double
//   static constexpr int kOutputs;         [rows, classes] results
//   static constexpr bool kReduces;        false: maps classes without reducing
//   static constexpr double kCyclesPerClass;   estimated cost
//   int64_t rows, classes;
//
// RowFunction<Args> has, with V = Vec<T>, a vector or a scalar,
//   using Element = T;                     dtype of the [rows, classes] tensors
//   using State = ...<V>;                  (state.h)
//   static constexpr int kInputs, kOutputs;    [rows, classes] tensors
//   explicit RowFunction(const Args&);
//   const T* Input(int i) const;
//   T* Output(int i) const;                null if not requested (i > 0)
//   // With SumsState: adds a class.
//   void Add(const Inputs& in, State& s) const;
//   // With SoftmaxState of input 0 and kTargets: the target of a class. If
//   // there are none, `first` and `second` of the state are zero.
//   bool HasTargets() const;  V Target(const Inputs& in) const;
//   // Once per row, after the reduction. Stores per-row results where
//   // row.writes. Returns the constants of the row for Map.
//   auto Finish(const State& s, const Row& row) const;
//   // Results of a class.
//   void Map(const Constants&, const Inputs& in, At at, V* out) const;
// `in(i)` loads input i of the class. `row` accesses per-row values:
// row.Load(values), row.Store(v, values), row.Gather(per_row),
// row.LabelIn(labels), whose IsAt(at) compares a class with the row's label.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"

namespace tfo {

// Computes a function, or enqueues it on a GPU, where gpu.scratch has
// RowScratchBytes(args) bytes. Returns null or the launch's error.
template <typename Args>
Error RunRowFunction(const Cpu& cpu, const Args& args);
template <typename Args>
Error RunRowFunction(const Gpu& gpu, const Args& args);

// Rows are the dims before the last one, of inputs described as "[...,
// classes]" and kPerRow.
inline constexpr char kPerRow[] = "[...], logits' shape without the classes";
template <typename Args, typename V>
void DescribeLogitRows(Args& a, V& v) {
  v.Size("...", &a.rows);
  v.Size("classes", &a.classes);
  v.Check(a.classes != 0, "logits must have at least one class");
}

template <typename Args>
int64_t RowScratchBytes(const Args& args) {
  if constexpr (!Args::kReduces) return 0;
  return GpuStateValues(args.rows, args.classes) * sizeof(typename Args::Value);
}

}  // namespace tfo

// DEFINE(Args) for each of four dtypes: TFO_FOR_ROW_DTYPES(DEFINE,
// SoftmaxArgs).
#define TFO_FOR_ROW_DTYPES(DEFINE, Args) \
  DEFINE(Args<float>);                   \
  DEFINE(Args<double>);                  \
  DEFINE(Args<Half>);                    \
  DEFINE(Args<BFloat16>)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_H_
