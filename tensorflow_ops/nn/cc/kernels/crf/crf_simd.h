// The matrix of crf.h's recursions in plain doubles, and the search for the
// best ways, over vectors of tags.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo {

// Values beyond its stride that a row needs while logits are widened into it.
inline constexpr int64_t kCrfRowGuard = 16;

// e^(transitions - largest), [tags, stride]; 0 beyond the tags.
struct CrfMatrix {
  int64_t tags, stride;
  double* plain;
};

TFO_PER_CPU_LEVEL(
    // Sets `matrix` to e^(transitions - shift), and its transpose.
    template <typename Value>
    void CrfMatrices(const Value* transitions, double shift,
                     const CrfMatrix& matrix, const CrfMatrix& transposed);
    // Sets to[n] to e^(scores - shift). Neither this nor CrfLog calls the C
    // library, whose exp and log of doubles need glibc 2.29.
    template <typename T> void CrfExactRow(const T* scores, double shift,
                                           int64_t n, Scaled<double>* to);
    double CrfLog(const Scaled<double>& number);
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
