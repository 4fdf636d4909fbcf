#include <algorithm>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_reader_simd.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_beams.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// The log probabilities of a frame, and its best labels.
template <typename T>
class Frame {
 public:
  // Reads find the `keep` best classes; of all classes, or with blank >= 0 of
  // all but blank.
  Frame(int64_t classes, int64_t blank, int64_t keep)
      : classes_(classes),
        blank_(blank),
        candidates_(
            std::max<int64_t>(1, std::min(keep, classes - (blank >= 0)))) {}

  void Read(const T* row) {
    row_ = row;
    part_.candidates = candidates_.data();
    part_.keep = candidates_.size();
    const BeamTokens tokens{blank_ >= 0 ? EosRule::kNone : EosRule::kAny,
                            blank_ >= 0, &blank_};
    ReadBeamPart(row, 0, classes_, tokens, nullptr, &part_);
    log_sum_ = std::log1p(double{part_.rest});
  }

  double LogProb(int64_t label) const {
    const double logit = CountedLogit(Value{Widen(row_[label])});
    return logit > kNone ? (logit - part_.largest) - log_sum_ : kNone;
  }

  // Any of the best classes; -1 if none is allowed.
  int64_t Best() const {
    return part_.count > 0 ? part_.candidates[0].token : -1;
  }

  // The best classes in descending order; of equal ones the lower first.
  void SortBest(std::vector<CtcLabel>* labels) {
    auto* const first = part_.candidates;
    std::sort(first, first + part_.count, [](const auto& a, const auto& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    });
    labels->clear();
    for (int64_t i = 0; i < part_.count; ++i) {
      labels->push_back({LogProb(first[i].token), first[i].token});
    }
  }

 private:
  using Value = Accumulator<T>;
  int64_t classes_;
  int32_t blank_;
  const T* row_ = nullptr;
  std::vector<BeamCandidate<Value>> candidates_;
  BeamPart<Value> part_{};
  double log_sum_ = 0;
};

// Log probabilities that prefixes need in a frame.
template <typename T>
CtcBeams::Frame ReadPrefixes(const Frame<T>& frame, int64_t blank,
                             const std::vector<CtcPrefix>& prefixes,
                             std::vector<double>* last) {
  last->clear();
  for (const CtcPrefix& prefix : prefixes) {
    last->push_back(prefix.last < 0 ? kNone : frame.LogProb(prefix.last));
  }
  return {frame.LogProb(blank), *last};
}

// The label sequences of a search, as nodes of a tree.
struct Node {
  int64_t parent, label;  // parent -1: none
};

template <typename T>
class BeamSearch {
 public:
  explicit BeamSearch(const CtcBeamSearchArgs<T>& args) : args_(args) {}

  void Run(int64_t example) {
    const CtcLogits<T>& input = args_.input;
    CtcBeams beams(args_.beam_width);
    nodes_.clear();
    Frame<T> frame(input.classes, input.blank, args_.beam_width + 1);
    for (int64_t t = 0; t < input.lengths[example]; ++t) {
      frame.Read(input.Row(example, t));
      frame.SortBest(&labels_);
      const auto logs =
          ReadPrefixes(frame, input.blank, beams.prefixes(), &last_);
      beams.AdvanceByBest(logs, labels_, args_.label_bonus);
      for (CtcPrefix& prefix : beams.prefixes()) {
        if (prefix.added < 0) continue;
        nodes_.push_back({prefix.node, prefix.added});
        prefix.node = static_cast<int64_t>(nodes_.size()) - 1;
      }
    }
    Write(example, beams.prefixes());
  }

 private:
  using Value = Accumulator<T>;

  void Write(int64_t example, const std::vector<CtcPrefix>& prefixes) const {
    const int64_t frames = args_.input.frames;
    for (int64_t k = 0; k < args_.top_paths; ++k) {
      const int64_t to = example * args_.top_paths + k;
      int32_t* const labels = args_.labels + to * frames;
      const bool is_missing = k >= static_cast<int64_t>(prefixes.size());
      args_.scores[to] = is_missing ? kNone : prefixes[k].Score();
      args_.log_probs[to] = is_missing ? kNone : prefixes[k].total;
      const int64_t last = is_missing ? -1 : prefixes[k].node;
      int64_t length = 0;
      for (int64_t node = last; node >= 0; node = nodes_[node].parent) ++length;
      args_.lengths[to] = length;
      std::fill(labels + length, labels + frames, args_.pad_id);
      for (int64_t node = last; node >= 0; node = nodes_[node].parent) {
        labels[--length] = nodes_[node].label;
      }
    }
  }

  const CtcBeamSearchArgs<T>& args_;
  std::vector<Node> nodes_;
  std::vector<CtcLabel> labels_;
  std::vector<double> last_;
};

template <typename T>
class SearchStep {
 public:
  using Args = CtcBeamSearchStepArgs<T>;

  explicit SearchStep(const Args& args)
      : args_(args), frame_(args.classes, args.blank, 1) {}

  void Run(int64_t example) {
    CtcBeams beams(args_.beam_width);
    Load(example, &beams.prefixes());
    if (args_.is_frame[example]) Advance(example, &beams);
    Store(example, beams.prefixes());
  }

 private:
  void Load(int64_t example, std::vector<CtcPrefix>* prefixes) const {
    prefixes->clear();
    for (int64_t k = 0; k < args_.beam_width; ++k) {
      const int64_t at = example * args_.beam_width + k;
      const double* const weights = args_.weights + at * kCtcWeights;
      const int64_t* const ids = args_.prefixes + at * kCtcPrefixIds;
      CtcPrefix prefix;
      prefix.blank = weights[0];
      prefix.label = weights[1];
      if (!(std::max(prefix.blank, prefix.label) > kNone)) break;
      prefix.total = CtcLogAdd(prefix.blank, prefix.label);
      prefix.bonus = weights[2];
      prefix.last = ids[0];
      prefix.id = {static_cast<uint64_t>(ids[1]),
                   static_cast<uint64_t>(ids[2])};
      prefix.parent = {static_cast<uint64_t>(ids[3]),
                       static_cast<uint64_t>(ids[4])};
      prefix.from = k;
      prefixes->push_back(prefix);
    }
  }

  void Advance(int64_t example, CtcBeams* beams) {
    frame_.Read(args_.logits + example * args_.classes);
    labels_.clear();
    for (int64_t c = 0; c < args_.classes; ++c) {
      if (c != args_.blank) labels_.push_back({frame_.LogProb(c), c});
    }
    const auto logs =
        ReadPrefixes(frame_, args_.blank, beams->prefixes(), &last_);
    const auto* const scores =
        args_.label_scores + example * args_.beam_width * args_.classes;
    beams->AdvanceByAll(logs, labels_, [&](int64_t i, int64_t r) {
      return CtcModelBonus(
          CountedLogit(scores[i * args_.classes + labels_[r].label]),
          args_.lm_weight, args_.label_bonus);
    });
  }

  void Store(int64_t example, const std::vector<CtcPrefix>& prefixes) const {
    for (int64_t k = 0; k < args_.beam_width; ++k) {
      const int64_t at = example * args_.beam_width + k;
      CtcPrefix prefix;
      prefix.blank = kNone;
      if (k < static_cast<int64_t>(prefixes.size())) prefix = prefixes[k];
      double* const weights = args_.next_weights + at * kCtcWeights;
      int64_t* const ids = args_.next_prefixes + at * kCtcPrefixIds;
      weights[0] = prefix.blank;
      weights[1] = prefix.label;
      weights[2] = prefix.bonus;
      ids[0] = prefix.last;
      ids[1] = static_cast<int64_t>(prefix.id.a);
      ids[2] = static_cast<int64_t>(prefix.id.b);
      ids[3] = static_cast<int64_t>(prefix.parent.a);
      ids[4] = static_cast<int64_t>(prefix.parent.b);
      args_.parents[at] = prefix.from;
      args_.labels[at] = prefix.added;
    }
  }

  const Args& args_;
  Frame<T> frame_;
  std::vector<CtcLabel> labels_;
  std::vector<double> last_;
};

template <typename Value>
struct GreedyClass {
  Value rest;     // the sum is (1 + rest) e^(the largest logit)
  int64_t index;  // of the first class with the largest logit
};

// The index of the first value that is not below `largest`; n if there is none.
template <typename T>
int64_t FindLargest(const T* row, int64_t n, Accumulator<T> largest) {
  using V = typename Lanes<T>::Vector;
  using Value = Accumulator<T>;
  constexpr int64_t kBlock = 4 * Lanes<T>::kCount;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = n - begin < kBlock ? n - begin : kBlock;
    V found = V{};
    ForVectors<T>(size, [&](auto part, int64_t at) {
      const V v = part.Load(row + begin + at, -static_cast<Value>(INFINITY));
      found = v >= Broadcast<V>(largest) ? Broadcast<V>(Value(1)) : found;
    });
    if (VectorLanes::Max(found)[0] == 0) continue;
    for (int64_t i = begin; i < begin + size; ++i) {
      if (LoadOne(row + i) >= largest) return i;
    }
  }
  return n;
}

// `rest` is NaN, and nothing else is known, if a logit is NaN or +inf.
template <typename T>
GreedyClass<Accumulator<T>> ReadGreedyClass(const T* row, int64_t classes) {
  const auto state = ReduceSoftmax(row, classes).Joined(VectorLanes());
  const Accumulator<T> largest = state.max[0], rest = state.rest[0];
  if (!(rest == rest)) return {rest, 0};
  return {rest, FindLargest(row, classes, largest)};
}

}  // namespace

template <typename T>
Error CtcGreedyDecode(const Cpu& cpu, const CtcGreedyArgs<T>& args) {
  const CtcLogits<T>& input = args.input;
  const int64_t frames = input.frames;
  std::vector<int32_t> best(input.batch * frames);
  std::vector<double> log_probs(input.batch * frames);
  // Frame by frame: a batch of one long example has work for all threads, too.
  cpu.ParallelFor(input.batch * frames, 0.8 * input.classes + 200,
                  [&](int64_t begin, int64_t end) {
                    Frame<T> frame(input.classes, -1, 1);
                    for (int64_t i = begin; i < end; ++i) {
                      if (i % frames >= input.lengths[i / frames]) continue;
                      const T* const row = input.Row(i / frames, i % frames);
                      const auto greedy = ReadGreedyClass(row, input.classes);
                      if (greedy.rest == greedy.rest) {
                        best[i] = greedy.index;
                        // Without an allowed class, rest is -1 and the
                        // logarithm infinite.
                        log_probs[i] = greedy.rest == -1
                                           ? kNone
                                           : -std::log1p(double{greedy.rest});
                      } else {
                        frame.Read(row);
                        best[i] = std::max<int64_t>(0, frame.Best());
                        log_probs[i] = frame.LogProb(best[i]);
                      }
                    }
                  });
  cpu.ParallelFor(input.batch, 5. * frames, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int32_t* const labels = args.labels + b * frames;
      int64_t length = 0, before = -1;
      double log_prob = 0;
      for (int64_t t = 0; t < input.lengths[b]; ++t) {
        const int32_t label = best[b * frames + t];
        log_prob += log_probs[b * frames + t];
        if (label != input.blank && !(args.merge_repeated && label == before)) {
          labels[length++] = label;
        }
        before = label;
      }
      std::fill(labels + length, labels + frames, args.pad_id);
      args.lengths[b] = length;
      args.log_probs[b] = log_prob;
    }
  });
  return nullptr;
}

template <typename T>
Error CtcBeamSearch(const Cpu& cpu, const CtcBeamSearchArgs<T>& args) {
  const double per_frame = 200. * args.beam_width + args.input.classes;
  cpu.ParallelFor(args.input.batch, per_frame * args.input.frames,
                  [&](int64_t begin, int64_t end) {
                    BeamSearch<T> search(args);
                    for (int64_t b = begin; b < end; ++b) search.Run(b);
                  });
  return nullptr;
}

template <typename T>
Error CtcBeamSearchStep(const Cpu& cpu, const CtcBeamSearchStepArgs<T>& args) {
  cpu.ParallelFor(args.batch, 3. * args.beam_width * (args.classes + 100),
                  [&](int64_t begin, int64_t end) {
                    SearchStep<T> step(args);
                    for (int64_t b = begin; b < end; ++b) step.Run(b);
                  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(CtcGreedyDecode, CtcGreedyArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(CtcBeamSearch, CtcBeamSearchArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(CtcBeamSearchStep, CtcBeamSearchStepArgs);

}  // namespace tfo
