// A counting sort.
#ifndef TENSORFLOW_OPS_CORE_CC_BUCKETS_H_
#define TENSORFLOW_OPS_CORE_CC_BUCKETS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace tfo {

// Items sorted into buckets, in order within each.
class Buckets {
 public:
  Buckets() = default;
  // for_each(add) calls add(bucket, item) for each item, with a bucket in
  // [0, count). It is called twice, and may add to different buckets in
  // parallel.
  template <typename ForEach>
  Buckets(int64_t count, const ForEach& for_each) : begin_(count + 1) {
    for_each([&](int64_t bucket, int64_t) { ++begin_[bucket + 1]; });
    for (int64_t b = 0; b < count; ++b) begin_[b + 1] += begin_[b];
    items_.resize(begin_[count]);
    for_each(
        [&](int64_t bucket, int64_t item) { items_[begin_[bucket]++] = item; });
    // Each bucket now begins where its items end.
    for (int64_t b = count; b > 0; --b) begin_[b] = begin_[b - 1];
    begin_[0] = 0;
  }

  const int64_t* begin(int64_t bucket) const {
    return items_.data() + begin_[bucket];
  }
  const int64_t* end(int64_t bucket) const { return begin(bucket + 1); }
  int64_t size() const { return items_.size(); }
  // All of them, bucket by bucket.
  std::vector<int64_t> TakeItems() && { return std::move(items_); }

 private:
  std::vector<int64_t> begin_, items_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_BUCKETS_H_
