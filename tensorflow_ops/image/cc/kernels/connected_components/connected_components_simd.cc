// Runs have ids in the order of their first pixels. A band of rows has an id
// for each of its pixels, of which its runs take the first ones: bands find
// their runs in parallel. Runs that meet are joined in a forest in which every
// parent has the smaller id: a root is the first run of its component.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/image/cc/kernels/connected_components/connected_components.h"
#include "tensorflow_ops/image/cc/kernels/connected_components/row_runs_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

int Count(uint64_t bits) { return __builtin_popcountll(bits); }

// A forest of runs: parents[id] <= id; of a root, parents[id] == id.
int32_t FindRoot(int32_t* parents, int32_t id) {
  // Most runs are at most two steps from their root: these need no branch.
  id = parents[parents[id]];
  while (parents[id] != id) {
    parents[id] = parents[parents[id]];
    id = parents[id];
  }
  return id;
}

// Returns the root that was merged away, or -1.
int32_t Unite(int32_t* parents, int32_t a, int32_t b) {
  const int32_t root_a = FindRoot(parents, a), root_b = FindRoot(parents, b);
  const int32_t low = std::min(root_a, root_b);
  const int32_t high = std::max(root_a, root_b);
  parents[high] = low;
  parents[a] = low;
  parents[b] = low;
  return low == high ? -1 : high;
}

// A row's runs, and the id of the first run that starts in each word.
struct Runs {
  RunMasks masks;
  const int32_t* first_ids;

  // The id of the last run that starts in word w at one of these bits, or
  // before the word.
  int32_t Id(int64_t w, uint64_t bits) const {
    return first_ids[w] + Count(masks.starts[w] & bits) - 1;
  }
};

// Joins the runs of two rows. Calls lost(id) for each run that is no root any
// more.
template <typename Lost>
void JoinRows(const LinkMasks& links, bool diagonal, int64_t words,
              const Runs& above, const Runs& row, int32_t* parents,
              const Lost& lost) {
  const auto unite = [&](int32_t a, int32_t b) {
    const int32_t root = Unite(parents, a, b);
    if (root >= 0) lost(root);
  };
  for (int64_t w = 0; w < words; ++w) {
    for (uint64_t left = links.above[w]; left != 0; left &= left - 1) {
      const uint64_t up_to_here = left ^ (left - 1);
      unite(above.Id(w, up_to_here), row.Id(w, up_to_here));
    }
    if (!diagonal) continue;
    for (uint64_t left = links.above_left[w]; left != 0; left &= left - 1) {
      const uint64_t up_to_here = left ^ (left - 1);
      unite(above.Id(w, up_to_here >> 1), row.Id(w, up_to_here));
    }
    for (uint64_t left = links.above_right[w]; left != 0; left &= left - 1) {
      const uint64_t up_to_here = left ^ (left - 1);
      const uint64_t up_to_next = up_to_here << 1 | 1;
      const bool in_next_word = up_to_here >> (kWord - 1);
      unite(in_next_word ? above.Id(w + 1, 1) : above.Id(w, up_to_next),
            row.Id(w, up_to_here));
    }
  }
}

template <typename Bits>
class Labeling {
 public:
  Labeling(const Cpu& cpu, const ConnectedComponentsArgs& args)
      : cpu_(cpu),
        args_(args),
        height_(args.planes.height),
        width_(args.planes.width),
        words_((width_ + kWord - 1) / kWord),
        masks_(new uint64_t[2 * args.planes.Count() * height_ * words_]),
        parents_(new int32_t[args.planes.Count() * ParentsOfPlane()]),
        first_ids_(args.planes.Count() * height_) {
    const int64_t planes = args.planes.Count();
    constexpr int64_t kMinBandRows = 8;
    if (planes < 4 * cpu.num_threads && cpu.num_threads > 1) {
      bands_ = std::min((4 * cpu.num_threads + planes - 1) / planes,
                        (height_ + kMinBandRows - 1) / kMinBandRows);
    }
    band_rows_ = (height_ + bands_ - 1) / bands_;
    bands_ = (height_ + band_rows_ - 1) / band_rows_;
    roots_.resize(planes * bands_);
  }

  void Run() {
    const int64_t planes = args_.planes.Count();
    constexpr double kCyclesPerPixel = 6;
    if (bands_ == 1) {
      cpu_.ParallelFor(planes, kCyclesPerPixel * height_ * width_,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t plane = begin; plane < end; ++plane) {
                           FindComponents(plane, 0);
                           LabelRuns(plane);
                           Paint(plane, 0);
                         }
                       });
      return;
    }
    const auto for_bands = [&](double cycles, auto run) {
      cpu_.ParallelFor(planes * bands_, cycles * band_rows_ * width_,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           (this->*run)(i / bands_, i % bands_);
                         }
                       });
    };
    for_bands(0.6 * kCyclesPerPixel, &Labeling::FindComponents);
    for_bands(0.1 * kCyclesPerPixel, &Labeling::LinkToRoots);
    cpu_.ParallelFor(planes, 10.0 * bands_ * width_,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t plane = begin; plane < end; ++plane) {
                         JoinBands(plane);
                       }
                     });
    for_bands(0.1 * kCyclesPerPixel, &Labeling::NumberRoots);
    for_bands(0.3 * kCyclesPerPixel, &Labeling::Paint);
  }

 private:
  // Two rows of pixels, with zeros around them, and the links between them.
  struct Rows {
    explicit Rows(int64_t words)
        : pixels(2 * (words + 2) * kWord),
          links(3 * words),
          masks(2 * words),
          first_ids(2 * (words + 1)),
          words(words) {}

    Bits* Pixels(int64_t y) {
      return pixels.data() + (y % 2) * (words + 2) * kWord + kWord;
    }
    int32_t* FirstIds(int64_t y) {
      return first_ids.data() + (y % 2) * (words + 1);
    }
    LinkMasks Links() { return {&links[0], &links[words], &links[2 * words]}; }
    RunMasks Unused() { return {&masks[0], &masks[words]}; }

    std::vector<Bits> pixels;
    std::vector<uint64_t> links, masks;
    std::vector<int32_t> first_ids;
    int64_t words;
  };

  // With elements before and after them, which PaintRuns reads as labels.
  static constexpr int64_t kPadding = 8;
  int64_t ParentsOfPlane() const { return height_ * width_ + 2 * kPadding; }

  int64_t FirstRow(int64_t band) const { return band * band_rows_; }
  int64_t EndRow(int64_t band) const {
    return std::min(height_, FirstRow(band + 1));
  }
  int32_t* Parents(int64_t plane) {
    return parents_.get() + plane * ParentsOfPlane() + kPadding;
  }
  RunMasks Masks(int64_t plane, int64_t y) {
    uint64_t* const row = masks_.get() + 2 * (plane * height_ + y) * words_;
    return {row, row + words_};
  }
  int64_t Offset(int64_t plane, int64_t y) const {
    const int64_t channels = args_.planes.channels;
    return (plane / channels * height_ + y) * width_ * channels +
           plane % channels;
  }

  void CopyRow(int64_t plane, int64_t y, Bits* to) const {
    const auto* const from =
        static_cast<const Bits*>(args_.images) + Offset(plane, y);
    const int64_t channels = args_.planes.channels;
    if (channels == 1) {
      std::memcpy(to, from, width_ * sizeof(Bits));
    } else {
      for (int64_t x = 0; x < width_; ++x) to[x] = from[x * channels];
    }
  }

  void FindRuns(const Bits* row, const Bits* row_above, RunMasks runs,
                LinkMasks links) const {
    if (args_.diagonal) {
      FindRunsOf<Bits, true>(row, row_above, words_, runs, links);
    } else {
      FindRunsOf<Bits, false>(row, row_above, words_, runs, links);
    }
  }

  // Writes the ids of the first runs of words; returns the id after the last.
  int32_t NumberRuns(RunMasks masks, int32_t id, int32_t* first_ids) const {
    for (int64_t w = 0; w < words_; ++w) {
      first_ids[w] = id;
      id += Count(masks.starts[w]);
    }
    return id;
  }

  // Finds the runs of a band and joins them.
  void FindComponents(int64_t plane, int64_t band) {
    Rows rows(words_);
    int32_t* const parents = Parents(plane);
    const int64_t begin = FirstRow(band), end = EndRow(band);
    const auto first_id = static_cast<int32_t>(begin * width_);
    int32_t id = first_id;
    for (int64_t y = begin; y < end; ++y) {
      CopyRow(plane, y, rows.Pixels(y));
      // The band's first row has only zeros above it: no links.
      FindRuns(rows.Pixels(y), rows.Pixels(y + 1), Masks(plane, y),
               rows.Links());
      first_ids_[plane * height_ + y] = id;
      const int32_t next = NumberRuns(Masks(plane, y), id, rows.FirstIds(y));
      for (; id < next; ++id) parents[id] = id;
      if (y == begin) continue;
      JoinRows(rows.Links(), args_.diagonal, words_,
               {Masks(plane, y - 1), rows.FirstIds(y - 1)},
               {Masks(plane, y), rows.FirstIds(y)}, parents, [](int32_t) {});
    }
  }

  // Replaces the parents of a plane in one band by labels. Parents come before
  // their children, so they have their labels already.
  void LabelRuns(int64_t plane) {
    int32_t* const parents = Parents(plane);
    const int32_t end = EndId(plane, height_ - 1);
    int32_t label = 0;
    for (int32_t id = 0; id < end; ++id) {
      const int32_t parent = parents[id];
      label += parent == id;
      parents[id] = parent == id ? label : parents[parent];
    }
    args_.counts[plane] = label;
  }

  // Links the runs of a band to their roots, and counts these.
  void LinkToRoots(int64_t plane, int64_t band) {
    int32_t* const parents = Parents(plane);
    const int32_t end = EndId(plane, EndRow(band) - 1);
    int32_t roots = 0;
    for (int32_t id = FirstId(plane, FirstRow(band)); id < end; ++id) {
      roots += parents[id] == id;
      parents[id] = parents[parents[id]];
    }
    roots_[plane * bands_ + band] = roots;
  }

  // Joins the bands of a plane, in order; replaces the numbers of roots by the
  // number of those in previous bands.
  void JoinBands(int64_t plane) {
    int32_t* const roots = &roots_[plane * bands_];
    const int64_t ids_of_band = band_rows_ * width_;
    Rows rows(words_);
    for (int64_t band = 1; band < bands_; ++band) {
      const int64_t below = FirstRow(band);
      for (const int64_t y : {below - 1, below}) {
        CopyRow(plane, y, rows.Pixels(y));
        NumberRuns(Masks(plane, y), first_ids_[plane * height_ + y],
                   rows.FirstIds(y));
      }
      FindRuns(rows.Pixels(below), rows.Pixels(below - 1), rows.Unused(),
               rows.Links());
      JoinRows(rows.Links(), args_.diagonal, words_,
               {Masks(plane, below - 1), rows.FirstIds(below - 1)},
               {Masks(plane, below), rows.FirstIds(below)}, Parents(plane),
               [&](int32_t id) { --roots[id / ids_of_band]; });
    }
    int32_t before = 0;
    for (int64_t band = 0; band < bands_; ++band) {
      const int32_t of_band = roots[band];
      roots[band] = before;
      before += of_band;
    }
    args_.counts[plane] = before;
  }

  // The ids of a row's runs.
  int32_t FirstId(int64_t plane, int64_t y) const {
    return first_ids_[plane * height_ + y];
  }
  int32_t EndId(int64_t plane, int64_t y) {
    int32_t id = FirstId(plane, y);
    const RunMasks masks = Masks(plane, y);
    for (int64_t w = 0; w < words_; ++w) id += Count(masks.starts[w]);
    return id;
  }

  // Replaces the parents of roots by their labels, negated.
  void NumberRoots(int64_t plane, int64_t band) {
    int32_t* const parents = Parents(plane);
    int32_t label = roots_[plane * bands_ + band];
    const int32_t end = EndId(plane, EndRow(band) - 1);
    for (int32_t id = FirstId(plane, FirstRow(band)); id < end; ++id) {
      const bool is_root = parents[id] == id;
      label += is_root;
      parents[id] = is_root ? -label : parents[id];
    }
  }

  // Copies the labels of roots to the runs [begin, end).
  static void CopyLabels(const int32_t* parents, int32_t begin, int32_t end,
                         int32_t* labels) {
    for (int32_t id = begin; id < end; ++id) {
      // A root, its child, or, after bands are joined, a descendant.
      int32_t parent = parents[id];
      parent = parents[parent < 0 ? id : parent];
      while (parent >= 0) parent = parents[parent];
      labels[id - begin] = -parent;
    }
  }

  // Writes the labels of a band.
  void Paint(int64_t plane, int64_t band) {
    const int64_t channels = args_.planes.channels;
    std::vector<int32_t> copied(bands_ == 1 ? 0 : width_ + 2 * kPadding);
    std::vector<int32_t> painted(channels == 1 ? 0 : width_);
    for (int64_t y = FirstRow(band); y < EndRow(band); ++y) {
      const int32_t begin = FirstId(plane, y);
      const int32_t* labels = Parents(plane) + begin;
      if (bands_ > 1) {
        const int32_t end =
            y + 1 < EndRow(band) ? FirstId(plane, y + 1) : EndId(plane, y);
        CopyLabels(Parents(plane), begin, end, &copied[kPadding]);
        labels = &copied[kPadding];
      }
      int32_t* const to = args_.labels + Offset(plane, y);
      PaintRuns(Masks(plane, y), labels, width_,
                channels == 1 ? to : painted.data());
      if (channels == 1) continue;
      for (int64_t x = 0; x < width_; ++x) to[x * channels] = painted[x];
    }
  }

  const Cpu& cpu_;
  const ConnectedComponentsArgs& args_;
  const int64_t height_, width_, words_;
  int64_t bands_ = 1, band_rows_;  // of a plane, of a band
  // [planes, height, 2, words]; [planes, height, width] with padding: only
  // elements of runs are written, and the system provides memory for those
  // only.
  std::unique_ptr<uint64_t[]> masks_;
  std::unique_ptr<int32_t[]> parents_;
  std::vector<int32_t> first_ids_;  // [planes, height]
  std::vector<int32_t> roots_;      // [planes, bands]
};

}  // namespace

Error ConnectedComponents(const Cpu& cpu, const ConnectedComponentsArgs& args) {
  if (args.planes.Elements() == 0) {
    std::fill_n(args.counts, args.planes.Count(), 0);
    return nullptr;
  }
  WithPixelBits({args.pixel_bytes, false}, [&](auto bits, auto) {
    Labeling<decltype(bits)>(cpu, args).Run();
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_PER_CPU_LEVEL(Error ConnectedComponents(const Cpu& cpu,
                                            const ConnectedComponentsArgs&);)
TFO_IF_NARROWEST_CPU_LEVEL(
    __attribute__((visibility("default"))) Error ConnectedComponents(
        const Cpu& cpu, const ConnectedComponentsArgs& args) {
      return TFO_DISPATCH(ConnectedComponents)(cpu, args);
    })

}  // namespace tfo
