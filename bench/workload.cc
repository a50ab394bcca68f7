#include "bench/workload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

namespace loch::bench {
namespace {

constexpr std::array<std::string_view, 3> distribution_names = {"uniform", "zipf", "latest"};

constexpr std::array<Mix, 7> all_mixes = {{
    {.name = "a", .read = 50, .update = 50, .distribution = Distribution::zipf},
    {.name = "b", .read = 95, .update = 5, .distribution = Distribution::zipf},
    {.name = "c", .read = 100, .distribution = Distribution::zipf},
    {.name = "d", .read = 95, .insert = 5, .distribution = Distribution::latest},
    {.name = "f", .read = 50, .modify = 50, .distribution = Distribution::zipf},
    {.name = "read-only", .read = 100},
    {.name = "95-5", .read = 95, .update = 5},
}};
static_assert(std::ranges::all_of(all_mixes, [](const Mix& mix) {
  return mix.read + mix.update + mix.insert + mix.modify == 100;
}));

// Buckets of one rank below this rank, 32 buckets for each power of two above.
constexpr std::uint64_t buckets_per_power = 32;
constexpr double two_to_64 = 18446744073709551616.0;

// A share of 2^64, for a probability from 0 to 1.
std::uint64_t share_of(double probability) {
  const double scaled = probability * two_to_64;
  return scaled >= two_to_64 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(std::max(scaled, 0.0));
}

}  // namespace

std::string_view name(Distribution distribution) {
  return distribution_names[static_cast<std::size_t>(distribution)];
}

std::optional<Distribution> find_distribution(std::string_view name) {
  const auto found = std::ranges::find(distribution_names, name);
  if (found == distribution_names.end()) return std::nullopt;
  return static_cast<Distribution>(found - distribution_names.begin());
}

std::span<const Mix> mixes() { return all_mixes; }

std::optional<Mix> find_mix(std::string_view name) {
  const auto found = std::ranges::find(all_mixes, name, &Mix::name);
  if (found == all_mixes.end()) return std::nullopt;
  return *found;
}

Zipf::Zipf(std::uint64_t count, double theta) : theta_(theta) {
  std::vector<double> weights;
  for (std::uint64_t first = 0; first < count;) {
    const std::uint64_t power = std::bit_floor(first + 1);
    const std::uint64_t width =
        std::min(std::max<std::uint64_t>(1, power / buckets_per_power), count - first);
    const auto law_at = [&](std::uint64_t rank) { return std::pow(static_cast<double>(rank + 1), -theta); };
    Bucket bucket{.first = first, .width = width};
    if (width > 1) bucket.sure_share = share_of(law_at(first + width - 1) / law_at(first));
    buckets_.push_back(bucket);
    weights.push_back(law_at(first) * static_cast<double>(width));
    first += width;
  }
  make_aliases(std::move(weights));
}

// Vose's form of the alias method: a bucket whose weight is below the mean is filled up from one above it.
void Zipf::make_aliases(std::vector<double> weights) {
  const double mean = std::reduce(weights.begin(), weights.end()) / static_cast<double>(weights.size());
  std::vector<std::size_t> below;
  std::vector<std::size_t> above;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] /= mean;
    (weights[i] < 1 ? below : above).push_back(i);
  }
  while (!below.empty() && !above.empty()) {
    const std::size_t poor = below.back();
    const std::size_t rich = above.back();
    below.pop_back();
    buckets_[poor].own_share = share_of(weights[poor]);
    buckets_[poor].alias = rich;
    weights[rich] -= 1 - weights[poor];
    if (weights[rich] < 1) {
      above.pop_back();
      below.push_back(rich);
    }
  }
}

bool Zipf::accept(const Bucket& bucket, Split drawn) const {
  const auto first = static_cast<double>(bucket.first + 1);
  const auto rank = static_cast<double>(bucket.first + drawn.whole + 1);
  return static_cast<double>(drawn.fraction) < std::pow(first / rank, theta_) * two_to_64;
}

ItemChooser::ItemChooser(Distribution distribution, std::uint64_t items, std::uint64_t insert_base)
    : distribution_(distribution),
      items_(items),
      insert_base_(insert_base),
      reciprocal_(1.0 / static_cast<double>(items)) {
  if (distribution != Distribution::uniform) zipf_.emplace(items);
  // A step near the golden section, coprime to the number of items, scatters neighbours far from each other.
  step_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(items) * 0.6180339887));
  while (std::gcd(step_, items) != 1) ++step_;
}

}  // namespace loch::bench
