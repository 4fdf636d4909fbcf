#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_reader_simd.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The greatest value of T below x, which T holds.
template <typename T>
Accumulator<T> NextBelow(Accumulator<T> x) {
  if constexpr (sizeof(T) > 2) {
    return std::nextafter(x, -std::numeric_limits<Accumulator<T>>::infinity());
  } else {
    T value = Narrow<T>(x);
    if ((value.bits & 0x7FFF) == 0) {
      value.bits = 0x8001;
    } else {
      value.bits += value.bits & 0x8000 ? 1 : -1;
    }
    return Widen(value);
  }
}

template <typename T>
class Step {
 public:
  using Value = Accumulator<T>;
  using Args = BeamSearchStepArgs<T>;

  explicit Step(const Args& args) : args_(args) {
    const int64_t rows = args.batch * args.beams;
    size_ = CpuPartSize(rows, args.vocabulary);
    parts_per_row_ = (args.vocabulary + size_ - 1) / size_;
    keep_ = std::min(args.beam_width, size_);
    parts_.resize(rows * parts_per_row_);
    candidates_.reset(new BeamCandidate<Value>[parts_.size() * keep_]);
  }

  void Run(const Cpu& cpu) {
    const double cycles_per_part = 0.8 * size_ + 200;
    // Waking the threads twice costs more than balancing the load saves.
    if (args_.batch >= 4 * cpu.num_threads) {
      cpu.ParallelFor(args_.batch,
                      cycles_per_part * parts_per_row_ * args_.beams,
                      [&](int64_t begin, int64_t end) {
                        const int64_t units = args_.beams * parts_per_row_;
                        for (int64_t b = begin; b < end; ++b) {
                          ReadParts(b * units, (b + 1) * units);
                          Select(b);
                        }
                      });
    } else {
      cpu.ParallelFor(
          parts_.size(), cycles_per_part,
          [&](int64_t begin, int64_t end) { ReadParts(begin, end); });
      for (int64_t b = 0; b < args_.batch; ++b) Select(b);
    }
  }

 private:
  struct Chosen {
    Value score, log_prob;
    int64_t flat;  // beam * vocabulary + token

    bool operator<(const Chosen& other) const {  // is it better?
      return score > other.score || (score == other.score && flat < other.flat);
    }
  };
  // A live beam, and the terms of its candidates' scores.
  struct Beam {
    Value log_prob, largest, log_sum, divisor;

    Value LogProb(Value logit) const {
      return log_prob + ((logit - largest) - log_sum);
    }
    Value Score(Value logit) const { return LogProb(logit) / divisor; }
  };

  bool IsDead(int64_t row) const {
    return !(args_.log_probs[row] > -std::numeric_limits<Value>::infinity());
  }

  void ReadParts(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts_per_row_, first = FirstToken(i);
      parts_[i].candidates = &candidates_[i * keep_];
      parts_[i].keep = keep_;
      if (args_.finished[row] || IsDead(row)) continue;
      ReadBeamPart(args_.logits + row * args_.vocabulary, first, LastToken(i),
                   args_.tokens, Forbidden(row), &parts_[i]);
    }
  }

  int64_t FirstToken(int64_t part) const {
    return part % parts_per_row_ * size_;
  }
  int64_t LastToken(int64_t part) const {
    return std::min(FirstToken(part) + size_, args_.vocabulary);
  }
  const bool* Forbidden(int64_t row) const {
    return args_.forbidden == nullptr
               ? nullptr
               : args_.forbidden + row * args_.vocabulary;
  }

  Beam MakeBeam(int64_t row) const {
    const BeamPart<Value>* const parts = &parts_[row * parts_per_row_];
    Value largest = parts[0].largest;
    for (int64_t p = 1; p < parts_per_row_; ++p) {
      largest = std::max(largest, parts[p].largest);
    }
    // The first part with the largest logit contributes its `rest`: the 1 is
    // left out.
    double rest = 0;
    bool has_top = false;
    for (int64_t p = 0; p < parts_per_row_; ++p) {
      if (!has_top && parts[p].largest == largest) {
        rest += parts[p].rest;
        has_top = true;
      } else {
        rest += (1. + parts[p].rest) *
                // exp of doubles needs glibc 2.29, which TensorFlow's own
                // wheels do not.
                static_cast<double>(
                    expl(double{parts[p].largest} - double{largest}));
      }
    }
    return {args_.log_probs[row], largest, static_cast<Value>(std::log1p(rest)),
            LengthDivisor<Value>(args_.lengths[row] + int64_t{1},
                                 args_.length_penalty)};
  }

  // Adds a candidate to the heap of the best, whose root is the worst.
  void Add(const Chosen& candidate, std::vector<Chosen>* best) const {
    if (!(candidate.score > -std::numeric_limits<Value>::infinity())) return;
    if (static_cast<int64_t>(best->size()) < args_.beam_width) {
      best->push_back(candidate);
    } else if (candidate < best->front()) {
      std::pop_heap(best->begin(), best->end());
      best->back() = candidate;
    } else {
      return;
    }
    std::push_heap(best->begin(), best->end());
  }

  void AddToken(const Beam& beam, int64_t k, int64_t token, Value logit,
                std::vector<Chosen>* best) const {
    if (!(logit > -std::numeric_limits<Value>::infinity())) return;
    Add({beam.Score(logit), beam.LogProb(logit), k * args_.vocabulary + token},
        best);
  }

  // Could a token that the part dropped tie with the worst selected score?
  // Rounding can make scores of different logits equal; then the lower token
  // wins.
  bool MissesTies(const Beam& beam, const BeamPart<Value>& part,
                  const std::vector<Chosen>& best) const {
    if (part.count < part.keep ||
        static_cast<int64_t>(best.size()) < args_.beam_width) {
      return false;
    }
    const Value worst = part.candidates[0].logit;
    if (beam.Score(worst) != best.front().score) return false;
    const Value dropped =
        part.dropped < worst ? part.dropped : NextBelow<T>(worst);
    return beam.Score(dropped) == best.front().score;
  }

  void Select(int64_t b) {
    std::vector<Chosen> best;
    std::vector<Beam> beams(args_.beams);
    for (int64_t k = 0; k < args_.beams; ++k) {
      const int64_t row = b * args_.beams + k;
      if (IsDead(row)) continue;
      if (args_.finished[row]) {
        const Value log_prob = args_.log_probs[row];
        Add({log_prob /
                 LengthDivisor<Value>(args_.lengths[row], args_.length_penalty),
             log_prob, k * args_.vocabulary + FirstEos(args_.tokens)},
            &best);
        continue;
      }
      beams[k] = MakeBeam(row);
      for (int64_t p = 0; p < parts_per_row_; ++p) {
        const auto& part = parts_[row * parts_per_row_ + p];
        for (int64_t i = 0; i < part.count; ++i) {
          AddToken(beams[k], k, part.candidates[i].token,
                   part.candidates[i].logit, &best);
        }
      }
    }
    AddMissedTies(b, beams, &best);
    std::sort_heap(best.begin(), best.end());
    Write(b, best);
  }

  void AddMissedTies(int64_t b, const std::vector<Beam>& beams,
                     std::vector<Chosen>* best) const {
    for (int64_t k = 0; k < args_.beams; ++k) {
      const int64_t row = b * args_.beams + k;
      if (IsDead(row) || args_.finished[row]) continue;
      for (int64_t i = row * parts_per_row_; i < (row + 1) * parts_per_row_;
           ++i) {
        const auto& part = parts_[i];
        if (!MissesTies(beams[k], part, *best)) continue;
        const BeamCandidate<Value>* const kept = part.candidates;
        const bool* const forbidden = Forbidden(row);
        for (int64_t token = FirstToken(i); token < LastToken(i); ++token) {
          const Value logit = CountedLogit(
              Value{Widen(args_.logits[row * args_.vocabulary + token])});
          if (beams[k].Score(logit) != best->front().score) continue;
          if (!Allows(args_.tokens, token)) continue;
          if (forbidden != nullptr && forbidden[token]) continue;
          if (std::any_of(kept, kept + part.count, [&](const auto& one) {
                return one.token == token;
              })) {
            continue;
          }
          AddToken(beams[k], k, token, logit, best);
        }
      }
    }
  }

  void Write(int64_t b, const std::vector<Chosen>& best) const {
    const int64_t rows = b * args_.beams, width = args_.beam_width;
    for (int64_t w = 0; w < width; ++w) {
      const int64_t to = b * width + w;
      if (w >= static_cast<int64_t>(best.size())) {
        args_.next_log_probs[to] = -std::numeric_limits<Value>::infinity();
        args_.token_ids[to] = FirstEos(args_.tokens);
        args_.parent_ids[to] = 0;
        args_.next_finished[to] = true;
        args_.next_lengths[to] = args_.lengths[rows];
        continue;
      }
      const int64_t parent = best[w].flat / args_.vocabulary;
      const int64_t token = best[w].flat % args_.vocabulary;
      const bool finished = args_.finished[rows + parent];
      args_.next_log_probs[to] = best[w].log_prob;
      args_.token_ids[to] = token;
      args_.parent_ids[to] = parent;
      args_.next_finished[to] = finished || IsEos(args_.tokens, token);
      args_.next_lengths[to] = args_.lengths[rows + parent] + !finished;
    }
  }

  const Args& args_;
  int64_t size_;  // of a part
  int64_t parts_per_row_, keep_;
  std::vector<BeamPart<Value>> parts_;
  std::unique_ptr<BeamCandidate<Value>[]> candidates_;
};

}  // namespace

template <typename T>
Error BeamSearchStep(const Cpu& cpu, const BeamSearchStepArgs<T>& args) {
  if (args.batch > 0 && args.beam_width > 0) Step<T>(args).Run(cpu);
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(BeamSearchStep, BeamSearchStepArgs);

}  // namespace tfo
