#include "bench/figure.h"

#include <algorithm>
#include <fmt/format.h>

namespace loch::bench {

Target at_most(double ratio, double limit) {
  return {.text = fmt::format("<= {}", limit), .met = ratio > 0 && ratio <= limit};
}

Target at_least(double ratio, double limit) {
  return {.text = fmt::format(">= {}", limit), .met = ratio >= limit};
}

Latency latency_of(const Histogram& histogram) {
  return {.count = histogram.count(),
          .mean_ns = histogram.mean_ns(),
          .p50_ns = histogram.quantile_ns(0.5),
          .p99_ns = histogram.quantile_ns(0.99),
          .p999_ns = histogram.quantile_ns(0.999),
          .max_ns = histogram.max_ns()};
}

const Figure* Report::find(std::string_view section, std::string_view name, std::string_view subject,
                           std::uint32_t processes) const {
  const auto found = std::ranges::find_if(figures, [&](const Figure& figure) {
    return figure.section == section && figure.name == name && figure.subject == subject &&
           figure.processes == processes;
  });
  return found == figures.end() ? nullptr : &*found;
}

std::vector<const Figure*> Report::in(std::string_view section) const {
  std::vector<const Figure*> chosen;
  for (const Figure& figure : figures) {
    if (figure.section == section) chosen.push_back(&figure);
  }
  return chosen;
}

std::size_t Report::targets() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(figures, [](const Figure& figure) { return figure.target.has_value(); }));
}

std::size_t Report::targets_met() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      figures, [](const Figure& figure) { return figure.target.has_value() && figure.target->met; }));
}

}  // namespace loch::bench
