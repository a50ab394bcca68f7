#include "bench/histogram.h"

#include <algorithm>
#include <cmath>

namespace loch::bench {

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < bucket_count; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ns_ += other.sum_ns_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

double Histogram::mean_ns() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_ns_) / static_cast<double>(count_);
}

std::uint64_t Histogram::quantile_ns(double quantile) const {
  if (count_ == 0) return 0;
  const double share = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_));
  const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < bucket_count; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(last_ns_of(i), max_ns_);
  }
  return max_ns_;
}

}  // namespace loch::bench
