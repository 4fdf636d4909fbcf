// The steps of crf.h's recursions, over vectors of tags.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo {

// Sums below this are computed again, exactly, since the bits that a double
// lost may matter. Larger ones are off by less than the number of tags times
// 2^-1022.
inline constexpr double kCrfLeastSum = 0x1p-600;

// Values beyond its stride that a row needs while logits are widened into it.
inline constexpr int64_t kCrfRowGuard = 16;

// e^(transitions - largest), [tags, stride], as doubles and exactly; 0 beyond
// the tags.
struct CrfMatrix {
  int64_t tags, stride;
  double* plain;
  ScaledRows<double> exact;
};

// The range of a frame's scores.
struct CrfFrame {
  double largest;
  bool finite;  // below +inf, and no NaN
};

TFO_PER_CPU_LEVEL(
    // Sets `matrix` and its transpose. Returns the largest transition.
    template <typename Value>
    CrfFrame CrfMatrices(const Value* transitions, const CrfMatrix& matrix,
                         const CrfMatrix& transposed);
    // Sets a row to e^(logits - largest); 0 beyond the tags.
    template <typename T>
    CrfFrame CrfEmissions(const T* logits, int64_t tags, int64_t stride,
                          const ScaledRows<double>& row);
    // to = from * matrix, times emissions unless these are null. `plain` has
    // room for a row.
    void CrfStep(const CrfMatrix& matrix, const ScaledRows<double>& from,
                 const ScaledRows<double>& emissions, double* plain,
                 const ScaledRows<double>& to);
    // to = a times b.
    void CrfMultiply(int64_t stride, const ScaledRows<double>& a,
                     const ScaledRows<double>& b, const ScaledRows<double>& to);
    // The sum of a row, and its logarithm.
    double CrfTotal(int64_t stride, const ScaledRows<double>& row,
                    double* mantissa, int64_t* exponent);
    // shares = a times b / total.
    void CrfShares(int64_t stride, const ScaledRows<double>& a,
                   const ScaledRows<double>& b, double mantissa,
                   int64_t exponent, double* shares);
    // Adds `scale` times the probabilities of transitions between two frames:
    // to `factors` (to be multiplied with matrix.plain) or to `sums`. `before`
    // are the paths to the first, `after` those from the second, with its
    // emissions. `plain` has room for two rows.
    void CrfAddPairs(const CrfMatrix& matrix, const ScaledRows<double>& before,
                     const ScaledRows<double>& after, double scale,
                     double mantissa, int64_t exponent, double* plain,
                     double* factors, double* sums);
    // The best ways to each tag, of at least one frame: ways[t] is logits[t] +
    // max_i (ways[t - 1][i] + transitions[i]), -inf for NaN. Subtracts
    // each frame's largest logit, if finite; returns the sum of these.
    // Rows have `stride` values; those of `transitions` are -inf beyond the
    // tags. `row` has room for a row and kCrfRowGuard.
    template <typename T>
    double CrfBestWays(const double* transitions, const T* logits,
                       int64_t frames, int64_t tags, int64_t stride,
                       double* ways, double* row);
    // Follows them back from the tag of the last frame, and sets
    // labels[frames]. Ties go to the lowest tag. `transposed` are transitions
    // to each tag.
    void CrfTrace(const double* transposed, const double* ways, int64_t frames,
                  int64_t stride, int32_t last, int32_t* labels);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_SIMD_H_
