// bench/workload: which item an operation takes and which operation it is. Seeded and deterministic.
//
// The mixes are YCSB's A, B, C, D and F (E scans in key order, which a hash store does not offer) and two
// plain ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace loch::bench {

// One draw from [0, bound), and what is left of it as a fraction of 2^64.
struct Split {
  std::uint64_t whole;
  std::uint64_t fraction;
};

inline Split split(base::Random& random, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(random.next()) * bound;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

enum class Distribution : std::uint8_t { uniform, zipf, latest };

std::string_view name(Distribution distribution);
std::optional<Distribution> find_distribution(std::string_view name);

enum class Operation : std::uint8_t { read, update, insert, modify };

// Shares of the operations in percent; they add up to 100. `modify` reads and then writes the same item.
struct Mix {
  std::string_view name;  // static storage
  std::uint32_t read = 100;
  std::uint32_t update = 0;
  std::uint32_t insert = 0;
  std::uint32_t modify = 0;
  Distribution distribution = Distribution::uniform;

  [[nodiscard]] Operation draw(base::Random& random) const {
    const auto percent = random.below(100);
    if (percent < read) return Operation::read;
    if (percent < read + update) return Operation::update;
    return percent < read + update + insert ? Operation::insert : Operation::modify;
  }
};

std::span<const Mix> mixes();
std::optional<Mix> find_mix(std::string_view name);

// Ranks 0, 1, 2 ... below `count`, rank r with a probability proportional to 1 / (r + 1)^theta. Exact, in
// constant time, and almost never through a power function:
//   ranks stand in buckets whose width is at most 1/32 of their first rank; a bucket is drawn by Walker's
//   alias method with the weight of a step function that lies above the law; a rank is drawn uniformly in the
//   bucket and accepted with the law's share of the step, or else everything is drawn again (at most 3 % of
//   draws).
class Zipf {
 public:
  explicit Zipf(std::uint64_t count, double theta = 0.99);

  [[nodiscard]] std::uint64_t draw(base::Random& random) const {
    for (;;) {
      const Split first = split(random, buckets_.size());
      const Bucket& drawn = buckets_[first.whole];
      // Nobody can predict which of the two it is: choose by arithmetic and not by a branch.
      const std::uint64_t is_alias = first.fraction > drawn.own_share ? 1 : 0;
      const Bucket& bucket = buckets_[first.whole + (drawn.alias - first.whole) * is_alias];
      const Split second = split(random, bucket.width);
      if (second.fraction <= bucket.sure_share || accept(bucket, second)) [[likely]] {
        return bucket.first + second.whole;
      }
    }
  }

 private:
  struct Bucket {
    std::uint64_t first = 0;
    std::uint64_t width = 1;
    std::uint64_t own_share =
        ~std::uint64_t{0};  // of 2^64: below it the bucket itself is meant, above it its alias
    std::uint64_t sure_share = ~std::uint64_t{0};  // of 2^64: below it every rank of the bucket is accepted
    std::uint64_t alias = 0;
  };

  [[nodiscard]] bool accept(const Bucket& bucket, Split drawn) const;
  void make_aliases(std::vector<double> weights);

  double theta_;
  std::vector<Bucket> buckets_;
};

// Draws item numbers below `items`.
//   uniform  every item alike
//   zipf     Zipf 0.99 over ranks that a bijection scatters over the items
//   latest   Zipf 0.99 over the age: the youngest item is the most frequent. What was inserted in this run
//            bears the numbers from `insert_base` on.
class ItemChooser {
 public:
  ItemChooser(Distribution distribution, std::uint64_t items, std::uint64_t insert_base = 0);

  // `inserted`: how many items from `insert_base` on are there.
  [[nodiscard]] std::uint64_t draw(base::Random& random, std::uint64_t inserted = 0) const {
    if (distribution_ == Distribution::uniform) return random.below(items_);
    const std::uint64_t rank = zipf_->draw(random);
    if (distribution_ == Distribution::zipf) return scatter(rank);
    return rank < inserted ? insert_base_ + inserted - 1 - rank : items_ - 1 - (rank - inserted);
  }

  // A bijection of [0, items): rank * step modulo items. The quotient comes from a multiplication of doubles,
  // which is several times faster than a division and at most one off; `items` is at most 2^31, so the
  // product fits.
  [[nodiscard]] std::uint64_t scatter(std::uint64_t rank) const {
    const std::uint64_t product = rank * step_;
    const auto quotient = static_cast<std::uint64_t>(static_cast<double>(product) * reciprocal_);
    const auto rest = static_cast<std::int64_t>(product - quotient * items_);
    const auto count = static_cast<std::int64_t>(items_);
    return static_cast<std::uint64_t>(rest < 0 ? rest + count : rest >= count ? rest - count : rest);
  }

 private:
  Distribution distribution_;
  std::uint64_t items_;
  std::uint64_t insert_base_;
  std::uint64_t step_ = 1;
  double reciprocal_;
  std::optional<Zipf> zipf_;
};

}  // namespace loch::bench
