#include "cmd/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include <loch/loch.h>

namespace loch::cmd {
namespace {

struct NumberAndUnit {
  double number = 0;
  std::string_view unit;
};

// Splits "1.5s"; nothing if it does not start with a number that is finite and not negative.
Parsed<NumberAndUnit> split_number(std::string_view text) {
  double number = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) {
    return std::unexpected(fmt::format("'{}' does not start with a number", escaped(text)));
  }
  return NumberAndUnit{number, std::string_view(rest, static_cast<std::size_t>(end - rest))};
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

Parsed<std::chrono::milliseconds> parse_duration(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 7> units_ms{
      {{"ms", 1}, {"", 1e3}, {"s", 1e3}, {"m", 6e4}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}}};
  const auto parts = split_number(text);
  if (!parts) return std::unexpected(parts.error());
  for (const auto& [unit, scale_ms] : units_ms) {
    if (unit != parts->unit) continue;
    const double duration_ms = parts->number * scale_ms;
    if (duration_ms > static_cast<double>(time_to_live_max.count()))
      return std::unexpected(fmt::format("'{}' is longer than {}", text, human_duration(time_to_live_max)));
    if (duration_ms > 0 && duration_ms < 1)
      return std::unexpected(fmt::format("'{}' is shorter than 1 ms", text));
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(duration_ms)));
  }
  return std::unexpected(fmt::format("'{}' has no unit of ms, s, m, h or d", escaped(text)));
}

Parsed<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::string_view scales = "KMGTP";
  const auto parts = split_number(text);
  if (!parts) return std::unexpected(parts.error());
  std::string_view unit = parts->unit;
  double scale = 1;
  if (!unit.empty()) {
    const std::size_t power = scales.find(unit[0] >= 'a' ? static_cast<char>(unit[0] - 32) : unit[0]);
    if (power != std::string_view::npos) {
      scale = std::ldexp(1.0, static_cast<int>(10 * (power + 1)));
      unit.remove_prefix(1);
      if (unit == "i" || unit == "iB") unit = "B";
    }
  }
  if (!unit.empty() && unit != "B") {
    return std::unexpected(fmt::format("'{}' has no unit of K, M, G, T or P", escaped(text)));
  }
  const double bytes = parts->number * scale;
  if (bytes > 9e18) return std::unexpected(fmt::format("'{}' is too large", text));
  return static_cast<std::uint64_t>(std::llround(bytes));
}

Parsed<std::uint32_t> parse_mode(std::string_view text) {
  std::uint32_t mode = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, mode, 8);
  if (error != std::errc{} || rest != end || mode > 0777) {
    return std::unexpected(fmt::format("'{}' is no octal file mode such as 660", escaped(text)));
  }
  return mode;
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < units.size()) {
    number /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", number, number < 10 ? 2 : number < 100 ? 1 : 0, units[unit]);
}

std::string human_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string how_many(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", human_count(count), what, count == 1 ? "" : "s");
}

std::string human_rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f} M/s", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.0f} k/s", per_second / 1e3);
  return fmt::format("{:.0f}/s", per_second);
}

std::string human_duration(std::chrono::milliseconds duration) {
  const auto parts = [](std::int64_t whole, const char* unit, std::int64_t rest, const char* rest_unit) {
    const std::string first = fmt::format("{} {}", whole, unit);
    return rest == 0 ? first : fmt::format("{} {} {}", first, rest, rest_unit);
  };
  const std::int64_t total_ms = duration.count();
  if (total_ms < 1000) return fmt::format("{} ms", total_ms);
  const std::int64_t seconds = total_ms / 1000;
  if (seconds < 60) return fmt::format("{:.3g} s", static_cast<double>(total_ms) / 1000);
  if (seconds < 3600) return parts(seconds / 60, "min", seconds % 60, "s");
  if (seconds < 86400) return parts(seconds / 3600, "h", seconds / 60 % 60, "min");
  return parts(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string exact_bytes(std::uint64_t bytes) {
  const std::string text = human_bytes(bytes);
  const auto read = parse_bytes(without_spaces(text));
  return read && *read == bytes ? text : fmt::format("{} ({} B)", text, bytes);
}

std::string exact_duration(std::chrono::milliseconds duration) {
  const std::string text = human_duration(duration);
  const auto read = parse_duration(without_spaces(text));
  return read && *read == duration ? text : fmt::format("{} ({} ms)", text, duration.count());
}

}  // namespace loch::cmd
