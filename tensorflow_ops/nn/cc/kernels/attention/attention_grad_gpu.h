// Shared by the kernels of attention's gradients: what they compute from, and
// the gradients to the scores of a tile.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_GPU_H_

#include <type_traits>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_scores_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_tiles_gpu.h"

namespace tfo {
namespace attention {

template <typename T>
inline constexpr int kColumns = sizeof(T) == sizeof(double) ? 16 : 32;
template <typename T>
inline constexpr int kFragments = kColumns<T> / 8;
constexpr int kSlots = 4;
template <typename T>
using GradSteps = Steps<T, kColumns<T>, kSlots>;
template <typename T>
using GradBuffers = typename GradSteps<T>::Buffers;

// What gradients of an example and head are computed from.
template <typename T>
struct Inputs {
  using C = Accumulator<T>;
  Matrix<T> queries, keys, values, d_outputs;
  const Terms<C>* terms;  // of the queries

  __device__ Inputs(const AttentionGradArgs<T>& args, const Options& options,
                    const Example& example, int64_t head,
                    const Terms<C>* all_terms)
      : queries(QueryRows(args, example, head, args.query, args.depth,
                          options.depth_packs)),
        keys(KeyRows(args, example, head, args.key, args.depth,
                     options.depth_packs)),
        values(KeyRows(args, example, head, args.value, args.value_depth,
                       options.value_depth_packs)),
        d_outputs(QueryRows(args, example, head, args.d_output,
                            args.value_depth, options.value_depth_packs)),
        terms(all_terms + FirstSum(args, example, head)) {}

  // Loads those of the thread's two rows.
  __device__ void LoadTerms(int first_query, Terms<C> (&of_rows)[2]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int t = first_query + FragmentRow(2 * m);
      of_rows[m] = t < queries.rows ? terms[t] : Terms<C>();
    }
  }
};

// Replaces products of queries and keys by weights after the dropout, and
// products of d_outputs and values by the gradients to the scores, or to scale
// * product: for a fragment, whose rows and columns begin at `row` and
// `column`. kScored: the products of queries and keys are scores already, and
// there is no dropout. `terms`: of the thread's two queries.
template <bool kRowsAreKeys, bool kScored, typename T, typename C>
__device__ void DifferentiateFragment(const Pairs<T>& pairs,
                                      const Terms<C> (&terms)[2], int row,
                                      int column, bool to_products,
                                      C (&weights)[4], C (&d)[4]) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = row + FragmentRow(i), c = column + FragmentColumn(0, i);
    const int t = kRowsAreKeys ? c : r, j = kRowsAreKeys ? r : c;
    C slope = 1;
    const C score =
        kScored ? weights[i] : pairs.Score(weights[i], t, j, &slope);
    const auto& [lse, delta] = terms[kRowsAreKeys ? i % 2 : i / 2];
    const C power = Exp2((score - lse) * static_cast<C>(kLog2OfE));
    const C weight = score == kNoScore<C> ? C(0) : power;
    weights[i] = weight;
    if (!kScored && pairs.has_dropout()) {
      // Keys j and j + 1 share a word if j is even, as SeenKeys begins.
      if (kRowsAreKeys || i % 2 == 0) word = pairs.DropoutWord(t, j);
      d[i] = pairs.Drop(word, j, d[i]);
      weights[i] = pairs.Drop(word, j, weight);
    }
    d[i] = weight == 0 ? C(0) : weight * (d[i] - delta);
    if (!kScored && to_products && weight != 0) d[i] *= slope;
  }
}
// terms: of the thread's two rows or, if they are keys, of all columns. Bits of
// the mask are of the columns or, if the rows are keys, of those.
template <bool kRowsAreKeys, typename T, int N, typename C>
__device__ void Differentiate(const Pairs<T>& pairs, const Terms<C>* terms,
                              int row, int column, uint64_t key_bits,
                              bool to_products, C (&products)[N][4],
                              C (&d_weights)[N][4]) {
  const auto differentiate = [&](auto scored, int n, C(&weights)[4], C(&d)[4]) {
    const int at = kRowsAreKeys ? FragmentColumn(n, 0) : 0;
    const Terms<C> of_two[2] = {terms[at], terms[at + 1]};
    DifferentiateFragment<kRowsAreKeys, scored>(
        pairs, of_two, row, column + 8 * n, to_products, weights, d);
  };
  const int warp_row = row + WarpRow();
  if (!pairs.has_dropout() && !pairs.has_softcap()) {
    if (kRowsAreKeys ? pairs.ArePlain(column, 8 * N, warp_row, 16, key_bits)
                     : pairs.ArePlain(warp_row, 16, column, 8 * N, key_bits)) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          products[n][i] = pairs.Plain(products[n][i]);
      }
    } else {
      pairs.template SetScores<kRowsAreKeys>(row, column, key_bits, products);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      differentiate(std::true_type(), n, products[n], d_weights[n]);
    }
    return;
  }
#pragma unroll 1
  for (int n = 0; n < N; ++n) {
    differentiate(std::false_type(), n, products[0], d_weights[0]);
    Rotate(products);
    Rotate(d_weights);
  }
}

template <typename T>
Error EnqueueBiasGrad(const Gpu& gpu, const AttentionGradArgs<T>& args,
                      const Options& options,
                      const Terms<Accumulator<T>>* terms);

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_GPU_H_
