#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/counted_sums.h"

namespace tfo {
namespace {

// A chunk's logits as they count.
template <typename Chunk>
struct CountedChunk {
  static constexpr int kSteps = Chunk::kSteps, kWidth = Chunk::kWidth;
  using Value = typename Chunk::Value;
  Chunk& chunk;
  int steps;

  __device__ explicit CountedChunk(Chunk& of) : chunk(of), steps(of.steps) {}
  __device__ Value Get(int input, int step, int i) const {
    return CountedLogit(chunk.Get(input, step, i));
  }
  __device__ void Forget() { chunk.Forget(); }
};

// A row function (rows.h).
template <typename T>
struct CountedRows {
  using Element = T;
  using State = scalar::SoftmaxState<Accumulator<T>>;
  static constexpr int kInputs = 1, kOutputs = 0;
  CountedSums<T> sums;

  __host__ __device__ const T* Input(int) const { return sums.logits; }
  __host__ __device__ T* Output(int) const { return nullptr; }
  template <typename Row>
  __device__ int Finish(const State& s, const Row& row) const {
    if (!row.writes) return 0;
    row.Store(s.max, sums.largest);
    row.Store(s.rest, sums.rest);
    return 0;
  }
};
// Found by argument-dependent lookup. Scores are compared across beams, so the
// sum is as exact for 16-bit logits as for wider ones.
template <typename T, typename Chunk>
__device__ void Reduce(const CountedRows<T>&, Chunk& chunk,
                       typename CountedRows<T>::State& state) {
  CountedChunk<Chunk> counted(chunk);
  scalar::AddToSoftmax<Accumulator<T>>(counted, state);
}

}  // namespace

template <typename T>
Error SumCountedRows(const Gpu& gpu, const CountedSums<T>& sums) {
  return scalar::RunOnRows(gpu, CountedRows<T>{sums}, sums.rows, sums.classes);
}

TFO_INSTANTIATE_ALGORITHM(SumCountedRows, Gpu, CountedSums);

}  // namespace tfo
