#include "demo/tables.h"

#include <fmt/format.h>

#include "cmd/table.h"
#include "cmd/units.h"

namespace loch::demo {
namespace {

using cmd::human_bytes;
using cmd::human_count;
using cmd::human_rate;
using cmd::Table;

// One operation on all subjects: Loch's figures, and its median as a multiple of the floor's and below each
// peer's.
std::vector<std::string> operation_row(const Alone& alone, std::string name,
                                       bench::Histogram Measured::* of) {
  const bench::Histogram& latency = alone.subjects.front().*of;
  const auto median_ns = static_cast<double>(latency.quantile_ns(0.5));
  std::vector<std::string> row{std::move(name),
                               human_rate(latency.count() == 0 ? 0 : 1e9 / latency.mean_ns()),
                               fmt::format("{}", latency.quantile_ns(0.5)),
                               fmt::format("{}", latency.quantile_ns(0.99)),
                               microseconds(latency.max_ns()),
                               times(median_ns / alone.floor.read_ns),
                               times(median_ns / alone.floor.copy_ns)};
  for (std::size_t i = 1; i < alone.subjects.size(); ++i) {
    row.push_back(times(static_cast<double>((alone.subjects[i].*of).quantile_ns(0.5)) / median_ns));
  }
  return row;
}

}  // namespace

std::string microseconds(std::uint64_t ns) { return fmt::format("{:.1f}", static_cast<double>(ns) / 1000); }

std::vector<std::string> process_row(const std::string& role, const Slot& slot) {
  const std::uint64_t elapsed_ns = slot.ended_ns.load() - slot.began_ns.load();
  const std::uint64_t operations = slot.operations.load() + slot.misses.load() + slot.unavailable.load();
  const double rate =
      elapsed_ns == 0 ? 0 : static_cast<double>(operations) * 1e9 / static_cast<double>(elapsed_ns);
  return {role,
          human_count(operations),
          human_rate(rate),
          microseconds(slot.latency.quantile_ns(0.5)),
          microseconds(slot.latency.quantile_ns(0.99)),
          microseconds(slot.latency.max_ns())};
}

std::string times(double ratio) { return fmt::format("{:.{}f}x", ratio, ratio < 10 ? 1 : 0); }

std::string build_note(bool built_for_speed) {
  return built_for_speed ? ""
                         : "This build is for tests (sanitizers, or not optimized): its times say nothing.\n";
}

std::string together_text(const Board& board, const Together& together, std::size_t records) {
  Table table("lrrrrr");
  table.add({"process", "operations", "rate", "p50 us", "p99 us", "max us"});
  table.add(process_row("writer 1", board.slots[writer_1_slot]));
  table.add(process_row("writer 2, killed", board.slots[writer_2_slot]));
  table.add(process_row("writer 2, restarted", board.slots[late_writer_slot]));
  table.add(process_row("reader 1", board.slots[reader_1_slot]));
  table.add(process_row("reader 2", board.slots[reader_2_slot]));
  const std::uint64_t misses =
      board.slots[reader_1_slot].misses.load() + board.slots[reader_2_slot].misses.load();
  return fmt::format(
      "All processes together: {} records stored, then stored again while others read.\n{}"
      "{} reads were of records that nobody had stored yet; every other value was whole.\n"
      "Writer 2 was killed after {} records; every one was there at once.\n",
      human_count(records), table.text(), human_count(misses), human_count(together.acknowledged_at_kill));
}

std::string alone_text(const Alone& alone, const Packages& packages, const bench::Machine& machine,
                       bool built_for_speed) {
  std::vector<std::string> head{"operation", "rate", "p50 ns", "p99 ns", "max us", "/ read", "/ copy"};
  std::string alignment = "lrrrrrr";
  for (std::size_t i = 1; i < alone.subjects.size(); ++i) {
    head.push_back("vs " + alone.subjects[i].subject);
    alignment += 'r';
  }
  Table table(alignment);
  table.add(head);
  table.add(operation_row(alone, "get", &Measured::gets));
  table.add(operation_row(alone, "multi_get of " + alone.subjects.front().batch, &Measured::multi_gets));
  table.add(operation_row(alone, "put", &Measured::puts));

  const std::size_t record_bytes = packages.bytes() / packages.size();
  std::string text = fmt::format(
      "One process alone, records of {} B on average:\n{}"
      "Ratios are of medians. / read: to an independent random read of 64 B ({:.1f} ns here); / copy: to a "
      "copy\n"
      "of {} B from a random place ({:.0f} ns); both over {} of memory, where the last-level cache\n"
      "has {}. vs: the peer's time over Loch's, each filled and used by one process.\n",
      record_bytes, table.text(), alone.floor.read_ns, record_bytes, alone.floor.copy_ns,
      human_bytes(alone.floor.bytes), human_bytes(machine.cache_bytes));
  text += "Memory in use for an item above its key and value:";
  for (const Measured& each : alone.subjects)
    text += fmt::format(" {} {:.0f} B,", each.subject, each.overhead_bytes);
  text.back() = '\n';
  for (const std::string& note : alone.notes) text += note + "\n";
  return text + build_note(built_for_speed);
}

}  // namespace loch::demo
