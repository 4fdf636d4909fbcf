// The sums of crf.h in plain doubles, with one exponent for each row.
// Sufficient for typical scores; where a number could be lost, functions here
// return false, and the caller computes the example with an exponent for each
// number (crf_exact_cpu.h).
//
// Nothing significant is lost: factors (e^transitions, e^logits, in units of
// the largest) are 0 or at least 2^-300, and a row's numbers, whose largest is
// about 2^450, are 0 or at least 2^-400. So no product underflows, and a 0
// comes from a forbidden tag or transition.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/index_array.h"

namespace tfo {

// The memory of one example.
struct CrfPlainRows {
  int64_t frames, stride;
  // Without keep_all_frames: two rows of paths, one of emissions.
  bool keep_all_frames;
  double* paths;       // rows, in units of 2^exponent
  double* emissions;   // rows and kCrfRowGuard; CrfPlainBackward changes them
  int64_t* exponents;  // of each row of paths
  double* scratch;     // 2 rows and kCrfRowGuard
  double* largest;     // [frames], of logits

  int64_t RowOf(int64_t t) const { return keep_all_frames ? t : t & 1; }
};

// The sum over all paths, mantissa * 2^exponent, in units of the largest scores
// of each frame and of transitions.
struct CrfPlainTotal {
  double mantissa;
  int64_t exponent;
  double log;  // of the sum
};

// Where a way back writes scale * (marginals - one-hot labels).
template <typename Out>
struct CrfShares {
  double scale;
  const IndexArray* labels;  // null: none
  int64_t first_label;       // of the example
  Out* out;                  // [frames, tags]
};

TFO_PER_CPU_LEVEL(
    // Returns whether each transition is forbidden or near enough to the
    // largest.
    template <typename Value>
    bool CrfPlainSuffices(const Value* transitions, int64_t count,
                          double largest);
    // Computes paths to each tag, for at least one frame.
    template <typename T>
    bool CrfPlainForward(const CrfMatrix& matrix, const T* logits,
                         const CrfPlainRows& rows, CrfPlainTotal* total);
    // After CrfPlainForward with rows.keep_all_frames: writes shares. Leaves in
    // paths t and emissions t + 1 rows whose products, times `matrix`, are
    // `scale` times the probabilities of transitions.
    template <typename Out>
    bool CrfPlainBackward(const CrfMatrix& transposed, const CrfPlainRows& rows,
                          const CrfPlainTotal& total,
                          const CrfShares<Out>& shares);
    // to = from * matrix, without checks.
    void CrfPlainSums(const CrfMatrix& matrix, const double* from, double* to);
    // Adds the products of these rows to factors [tags, stride].
    void CrfPlainAddPairs(int64_t tags, const CrfPlainRows& rows,
                          double* factors);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_PLAIN_SIMD_H_
