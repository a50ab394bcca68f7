// bench/histogram: a log-linear histogram of nanoseconds: 64 buckets for each power of two, so that a
// quantile is at most 1/64 too high.
//
// Plain data without pointers: it may stand in memory that processes share. One writer at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace loch::bench {

class Histogram {
 public:
  // Longer times count as this one (18 minutes).
  static constexpr std::uint64_t recordable_ns_max = (std::uint64_t{1} << 40) - 1;

  void record(std::uint64_t ns) {
    ns = std::min(ns, recordable_ns_max);
    ++buckets_[bucket_of(ns)];
    ++count_;
    sum_ns_ += ns;
    max_ns_ = std::max(max_ns_, ns);
  }

  void merge(const Histogram& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t max_ns() const { return max_ns_; }
  [[nodiscard]] double mean_ns() const;  // 0 when nothing was recorded

  // The time that the share `quantile` (0 to 1) of the records does not exceed: the upper end of its bucket,
  // and never more than the largest record. 0 when nothing was recorded.
  [[nodiscard]] std::uint64_t quantile_ns(double quantile) const;

 private:
  static constexpr unsigned sub_bits = 6;
  static constexpr std::uint64_t sub_count = std::uint64_t{1} << sub_bits;
  static constexpr std::size_t bucket_count = (40 - sub_bits + 1) * sub_count;

  // Below 128 ns a bucket is one nanosecond wide; above, its width doubles with each power of two.
  static constexpr std::size_t bucket_of(std::uint64_t ns) {
    if (ns < sub_count) return ns;
    const auto shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - sub_bits;
    return shift * sub_count + (ns >> shift);
  }
  static constexpr std::uint64_t last_ns_of(std::size_t bucket) {
    if (bucket < sub_count) return bucket;
    const auto shift = bucket / sub_count - 1;
    return ((bucket - shift * sub_count + 1) << shift) - 1;
  }

  std::array<std::uint64_t, bucket_count> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ns_ = 0;
  std::uint64_t max_ns_ = 0;
};

}  // namespace loch::bench
