// Batches of logits, the CTC decoders on them, and what they should find.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_TESTING_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequences_testing.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo::testing {

using Labels = std::vector<int32_t>;

// A batch of logits, and what decoders return for it.
template <typename T>
struct Problem {
  using Value = Accumulator<T>;
  int64_t batch, frames, classes, blank;
  GpuVector<T> logits;
  GpuVector<int32_t> lengths;

  Problem(int64_t b, int64_t t, int64_t v, int64_t blank_index, double scale,
          uint32_t seed)
      : batch(b),
        frames(t),
        classes(v),
        blank(blank_index),
        logits(RandomOnGpu<T>(b * t * v, seed)) {
    for (T& x : logits) x = Rounded<T>(Widen(x) * scale);
    for (int64_t i = 0; i < b; ++i) {
      lengths.push_back(i % 3 == 1 ? t / 2 : t);
      // Padding is not read.
      std::fill(logits.data() + (i * t + lengths[i]) * v,
                logits.data() + (i + 1) * t * v, Rounded<T>(kNan));
    }
  }

  // The decoders' tensors.
  Tensors ToTensors(int64_t width = 0, int64_t top_paths = 0) const {
    Tensors tensors({{"batch", batch},
                     {"frames", frames},
                     {"classes", classes},
                     {"blank_index", blank},
                     {"beam_width", width},
                     {"top_paths", top_paths},
                     {"pad_id", -5}});
    tensors.Set("logits", logits);
    tensors.Set("logit_lengths", lengths);
    return tensors;
  }

  double Logit(int64_t b, int64_t t, int64_t c) const {
    return CountedLogit(Value{Widen(logits[(b * frames + t) * classes + c])});
  }
  T& At(int64_t b, int64_t t, int64_t c) {
    return logits[(b * frames + t) * classes + c];
  }

  // log softmax of a frame.
  std::vector<double> LogProbs(int64_t b, int64_t t) const {
    double most = -kInfinity, sum = 0;
    for (int64_t c = 0; c < classes; ++c) most = std::max(most, Logit(b, t, c));
    std::vector<double> result(classes, -kInfinity);
    if (most == -kInfinity) return result;
    for (int64_t c = 0; c < classes; ++c)
      sum += std::exp(Logit(b, t, c) - most);
    for (int64_t c = 0; c < classes; ++c) {
      result[c] = Logit(b, t, c) - most - std::log(sum);
    }
    return result;
  }
};

template <typename Device, typename Args>
void Run(Error (*decoder)(const Device&, const Args&), const Device& device,
         const Args& args) {
  WithScratch(
      device, [&] { return CtcDecodeScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(decoder(on, args)); });
}

struct Path {
  Labels labels;
  double score = -kInfinity, log_prob = -kInfinity;
};

// Without padding, which is checked.
inline Labels WithoutPadding(const int32_t* labels, int64_t length,
                             int64_t frames) {
  TFO_EXPECT(length >= 0 && length <= frames);
  length = std::clamp<int64_t>(length, 0, frames);
  for (int64_t t = length; t < frames; ++t) TFO_EXPECT_EQ(labels[t], -5);
  return Labels(labels, labels + length);
}

// The best path of each example.
template <typename Device, typename T>
std::vector<Path> Decode(const Device& device, const Problem<T>& p,
                         bool merge) {
  Tensors tensors = p.ToTensors();
  auto args = Bound<CtcGreedyArgs<T>>(&tensors);
  args.merge_repeated = merge;
  Run(&CtcGreedyDecode<T>, device, args);
  std::vector<Path> paths;
  for (int64_t b = 0; b < p.batch; ++b) {
    paths.push_back(
        {WithoutPadding(args.labels + b * p.frames, args.lengths[b], p.frames),
         args.log_probs[b], args.log_probs[b]});
  }
  return paths;
}

// The best paths of each example.
template <typename Device, typename T>
std::vector<std::vector<Path>> Search(const Device& device, const Problem<T>& p,
                                      int64_t width, int64_t top,
                                      double bonus = 0) {
  Tensors tensors = p.ToTensors(width, top);
  auto args = Bound<CtcBeamSearchArgs<T>>(&tensors);
  args.label_bonus = bonus;
  Run(&CtcBeamSearch<T>, device, args);
  std::vector<std::vector<Path>> paths(p.batch);
  for (int64_t i = 0; i < p.batch * top; ++i) {
    paths[i / top].push_back(
        {WithoutPadding(args.labels + i * p.frames, args.lengths[i], p.frames),
         args.scores[i], args.log_probs[i]});
  }
  return paths;
}

// A language model: the score of a label after a prefix.
inline double LanguageModel(const Labels& prefix, int64_t label) {
  uint32_t state = 17;
  for (const int32_t one : prefix) state = state * 31 + one;
  if ((state * 7 + label) % 11 == 3) return -kInfinity;
  return -0.25 * ((state + 5 * label) % 13);
}

struct Options {
  int64_t width;
  double lm_weight = 0, bonus = 0;
  bool has_lm = false;
};

// Prefix search over maps.
template <typename T>
std::vector<Path> PlainSearch(const Problem<T>& p, int64_t b,
                              const Options& options) {
  struct Sums {
    double blank = -kInfinity, label = -kInfinity, bonus = 0;
    double Total() const { return LogAdd(blank, label); }
  };
  std::map<Labels, Sums> beam;
  beam[{}].blank = 0;
  std::vector<Path> best;
  for (int64_t t = 0; t < p.lengths[b]; ++t) {
    const std::vector<double> logs = p.LogProbs(b, t);
    std::map<Labels, Sums> next;
    for (const auto& [prefix, sums] : beam) {
      Sums& stay = next[prefix];
      stay.bonus = sums.bonus;
      stay.blank = LogAdd(stay.blank, sums.Total() + logs[p.blank]);
      for (int64_t c = 0; c < p.classes; ++c) {
        if (c == p.blank) continue;
        const bool repeats = !prefix.empty() && prefix.back() == c;
        if (repeats) {
          stay.label = LogAdd(stay.label, sums.label + logs[c]);
        }
        const double lm = options.has_lm ? LanguageModel(prefix, c) : 0;
        if (lm == -kInfinity) continue;
        Labels longer(prefix.begin(), prefix.end());
        longer.push_back(c);
        Sums& extended = next[longer];
        extended.bonus = sums.bonus + options.lm_weight * lm + options.bonus;
        extended.label = LogAdd(
            extended.label, (repeats ? sums.blank : sums.Total()) + logs[c]);
      }
    }
    std::vector<std::pair<double, const Labels*>> order;
    for (const auto& [prefix, sums] : next) {
      const double score = sums.Total() + sums.bonus;
      if (score > -kInfinity) order.push_back({-score, &prefix});
    }
    std::sort(order.begin(), order.end());
    if (static_cast<int64_t>(order.size()) > options.width) {
      order.resize(options.width);
    }
    beam.clear();
    best.clear();
    for (const auto& [score, prefix] : order) {
      beam[*prefix] = next[*prefix];
      best.push_back({*prefix, -score, next[*prefix].Total()});
    }
  }
  if (p.lengths[b] == 0) best.push_back({{}, 0, 0});
  return best;
}

// The log probabilities of all label sequences, from all paths.
template <typename T>
std::map<Labels, double> AllPaths(const Problem<T>& p, int64_t b) {
  std::map<Labels, double> sums;
  std::vector<int64_t> path(p.lengths[b], 0);
  std::vector<std::vector<double>> logs;
  for (int64_t t = 0; t < p.lengths[b]; ++t) logs.push_back(p.LogProbs(b, t));
  while (true) {
    double log_prob = 0;
    Labels labels;
    for (size_t t = 0; t < path.size(); ++t) {
      log_prob += logs[t][path[t]];
      if (path[t] != p.blank && (t == 0 || path[t] != path[t - 1])) {
        labels.push_back(path[t]);
      }
    }
    const auto found = sums.insert({labels, -kInfinity}).first;
    found->second = LogAdd(found->second, log_prob);
    size_t t = 0;
    while (t < path.size() && ++path[t] == p.classes) path[t++] = 0;
    if (t == path.size()) return sums;
  }
}

struct Beam {
  GpuVector<double> weights;
  GpuVector<int64_t> prefixes;
  GpuVector<int32_t> parents, labels;
};

// Only the empty prefix.
template <typename T>
Beam FirstBeam(const Problem<T>& p, int64_t width) {
  Beam beam;
  for (int64_t i = 0; i < p.batch * width; ++i) {
    beam.weights.insert(beam.weights.end(),
                        {i % width ? -kInfinity : 0, -kInfinity, 0});
    beam.prefixes.insert(beam.prefixes.end(), {-1, 0, 0, 0, 0});
  }
  return beam;
}

// The beam after frame t.
template <typename Device, typename T>
Beam Step(const Device& device, const Problem<T>& p, int64_t t,
          const Beam& beam, const GpuVector<Accumulator<T>>& scores,
          const Options& options) {
  GpuVector<T> frame(p.batch * p.classes);
  GpuVector<char> is_frame(p.batch);
  for (int64_t i = 0; i < p.batch; ++i) {
    std::copy_n(&p.logits[(i * p.frames + t) * p.classes], p.classes,
                &frame[i * p.classes]);
    is_frame[i] = t < p.lengths[i];
  }
  Tensors tensors = p.ToTensors(options.width);
  tensors.Set("logits", std::move(frame));
  tensors.Set("is_frame", std::move(is_frame));
  tensors.Set("weights", beam.weights);
  tensors.Set("prefixes", beam.prefixes);
  tensors.Set("label_scores", scores);
  auto args = Bound<CtcBeamSearchStepArgs<T>>(&tensors);
  args.lm_weight = options.lm_weight;
  args.label_bonus = options.bonus;
  Run(&CtcBeamSearchStep<T>, device, args);
  return {tensors.Get<double>("next_weights"),
          tensors.Get<int64_t>("next_prefixes"),
          tensors.Get<int32_t>("parents"), tensors.Get<int32_t>("labels")};
}

// Steps through all frames with the language model's scores. Missing paths are
// empty.
template <typename T>
std::vector<Path> SearchBySteps(const Problem<T>& p, const Options& options,
                                int64_t b) {
  using Value = Accumulator<T>;
  const int64_t width = options.width, rows = p.batch * width;
  Beam beam = FirstBeam(p, width);
  std::vector<Labels> labels(rows), next_labels(rows);
  GpuVector<Value> scores(rows * p.classes);
  for (int64_t t = 0; t < p.frames; ++t) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < p.classes; ++c) {
        scores[i * p.classes + c] = static_cast<Value>(
            options.has_lm ? LanguageModel(labels[i], c) : 0);
      }
    }
    beam = Step(ThreadedCpu(2), p, t, beam, scores, options);
    for (int64_t i = 0; i < rows; ++i) {
      const Labels& from = labels[i / width * width + beam.parents[i]];
      next_labels[i].assign(from.begin(), from.end());
      if (beam.labels[i] >= 0) next_labels[i].push_back(beam.labels[i]);
    }
    labels.swap(next_labels);
  }
  std::vector<Path> paths;
  for (int64_t i = b * width; i < (b + 1) * width; ++i) {
    const double* const w = &beam.weights[i * kCtcWeights];
    const double log_prob = LogAdd(w[0], w[1]);
    if (log_prob == -kInfinity) break;
    paths.push_back({std::move(labels[i]), log_prob + w[2], log_prob});
  }
  paths.resize(width);
  return paths;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_TESTING_H_
