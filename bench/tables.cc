#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "bench/report.h"
#include "cmd/table.h"

namespace loch::bench {
namespace {

constexpr std::array<const char*, 3> peer_names = {"lmdb", "redis", "memcached"};

// The sizes for which the targets are stated.
constexpr std::uint64_t target_items_min = 10'000'000;
constexpr std::uint64_t target_key_bytes = 16;
constexpr std::uint64_t target_value_bytes = 64;

std::string grouped(std::uint64_t number) {
  std::string text = fmt::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(text.begin() + at, ',');
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr double kib = 1024;
  const auto size = static_cast<double>(bytes);
  if (size >= kib * kib * kib) return fmt::format("{:.2f} GiB", size / (kib * kib * kib));
  return size >= kib * kib ? fmt::format("{:.0f} MiB", size / (kib * kib))
                           : fmt::format("{:.0f} KiB", size / kib);
}

// Three digits that count, in the unit that a person would choose.
std::string time_text(double ns) {
  if (ns < 1e4) return fmt::format("{:.{}f} ns", ns, ns < 100 ? 1 : 0);
  if (ns < 1e7) return fmt::format("{:.{}f} us", ns / 1e3, ns < 1e5 ? 1 : 0);
  return fmt::format("{:.{}f} ms", ns / 1e6, ns < 1e8 ? 1 : 0);
}

std::string rate_text(double rate) {
  if (rate >= 1e6) return fmt::format("{:.2f} M/s", rate / 1e6);
  return rate >= 1e3 ? fmt::format("{:.1f} k/s", rate / 1e3) : fmt::format("{:.1f} /s", rate);
}

std::string ratio_text(std::optional<double> ratio) {
  if (!ratio || *ratio <= 0) return "";
  return fmt::format("{:.{}f} x", *ratio, *ratio < 10 ? 2 : *ratio < 100 ? 1 : 0);
}

// Of a column that compares with a peer: a dash where there is nothing to compare with.
std::string peer_text(std::optional<double> ratio) {
  const std::string text = ratio_text(ratio);
  return text.empty() ? "-" : text;
}

std::optional<double> ratio_of(const Figure& figure, const std::string& peer) {
  const auto found = figure.peer_ratios.find(peer);
  if (found == figure.peer_ratios.end()) return std::nullopt;
  return found->second;
}

void add_target(std::vector<std::string>& row, const Figure& figure) {
  row.push_back(figure.target ? figure.target->text : "");
  const char* const verdict = !figure.target ? "" : figure.target->met ? "met" : "NOT MET";
  row.emplace_back(verdict);
}

std::string titled(const std::string& title, const cmd::Table& table) {
  return fmt::format("\n{}\n\n{}", title, table.text());
}

std::string floor_table(const Report& report) {
  cmd::Table table("lrrrr");
  table.add({"operation", "time", "rate", "/ floor"});
  for (const Figure* figure : report.in("floor")) {
    table.add(
        {figure->name, time_text(figure->value), rate_text(figure->rate()), ratio_text(figure->floor_ratio)});
  }
  return titled(
      fmt::format("The machine's floor: {} of shared memory, {} of it in pages of 2 MiB. \"harness\" is the "
                  "benchmark itself:\nmaking a key and a value and checking one; it is part of every "
                  "figure below.",
                  bytes_text(report.floor_bytes), bytes_text(report.floor_huge_bytes)),
      table);
}

std::string loch_table(const Report& report) {
  cmd::Table table("lrrrrrrrl");
  table.add({"operation", "time", "rate", "/ floor", "x lmdb", "x redis", "x memcached", "target", ""});
  for (const Figure* figure : report.in("loch")) {
    std::vector<std::string> row = {figure->name, time_text(figure->value), rate_text(figure->rate()),
                                    ratio_text(figure->floor_ratio)};
    for (const char* peer : peer_names) row.push_back(peer_text(ratio_of(*figure, peer)));
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled(
      "Loch, one process; time of one key, batches of 16. \"/ floor\": times the floor's independent "
      "read\n(of a "
      "dependent get: the dependent read; of large values: the copy). \"x peer\": times its rate in the same "
      "way.",
      table);
}

std::string peers_table(const Report& report) {
  cmd::Table table("llrrrrrl");
  table.add({"subject", "operation", "time", "rate", "/ floor", "loch is", "target", ""});
  // Large values were measured before; they stand last.
  for (const bool large : {false, true}) {
    for (const Figure* figure : report.in("peers")) {
      if ((figure->name.starts_with("get of ") || figure->name.starts_with("put of ")) != large) continue;
      std::vector<std::string> row = {figure->subject,
                                      figure->name,
                                      time_text(figure->value),
                                      rate_text(figure->rate()),
                                      ratio_text(figure->floor_ratio),
                                      peer_text(ratio_of(*figure, figure->subject))};
      add_target(row, *figure);
      table.add(std::move(row));
    }
  }
  return titled(
      "The peers, one client process; time of one key. \"loch is\": how many times as fast, one process.\n"
      "A server's figure is the best of three: on its client's core, on another one, and where the kernel "
      "puts it.",
      table);
}

// How many times as fast Loch is as the peer whose figure this is; of the others there is nothing to say.
std::string loch_is_text(const Figure& figure) {
  const bool is_peer = std::ranges::find(peer_names, figure.subject) != peer_names.end();
  return is_peer ? peer_text(ratio_of(figure, figure.subject)) : "";
}

std::string processes_table(const Report& report) {
  cmd::Table table("llrrrrrrrl");
  table.add({"workload", "subject", "processes", "rate", "time of one", "/ floor", "x one process", "loch is",
             "target", ""});
  for (const Figure* figure : report.in("processes")) {
    std::vector<std::string> row = {figure->name,
                                    figure->subject,
                                    fmt::to_string(figure->processes),
                                    rate_text(figure->rate()),
                                    time_text(figure->value * figure->processes),
                                    ratio_text(figure->floor_ratio),
                                    ratio_text(figure->scaling),
                                    loch_is_text(*figure)};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled(
      "Several processes against one; \"/ floor\" is the floor of as many processes. \"loch is\": how many "
      "times\nas fast, with as many processes.",
      table);
}

std::string ycsb_table(const Report& report) {
  cmd::Table table("lllrrrrrrrrrr");
  table.add({"workload", "subject", "", "rate", "/ floor", "loch is", "", "count", "mean", "p50", "p99",
             "p99.9", "max"});
  for (const Figure* figure : report.in("ycsb")) {
    std::vector<std::string> row = {
        figure->name,
        figure->subject,
        fmt::format("{} process{}", figure->processes, figure->processes == 1 ? "" : "es"),
        rate_text(figure->rate()),
        ratio_text(figure->floor_ratio),
        loch_is_text(*figure)};
    if (!figure->reads && !figure->writes) table.add(row);
    for (const auto& [kind, latency] :
         {std::pair{"reads", figure->reads}, std::pair{"writes", figure->writes}}) {
      if (!latency) continue;
      row.insert(row.end(), {kind, grouped(latency->count), time_text(latency->mean_ns),
                             time_text(static_cast<double>(latency->p50_ns)),
                             time_text(static_cast<double>(latency->p99_ns)),
                             time_text(static_cast<double>(latency->p999_ns)),
                             time_text(static_cast<double>(latency->max_ns))});
      table.add(std::move(row));
      row = std::vector<std::string>(6);
    }
  }
  return titled(
      "Workloads; latencies are from a run of their own and include about 50 ns for the clock; those of "
      "peers "
      "are\nof one process. \"/ floor\": of as many processes; \"loch is\": how many times as fast, with as "
      "many.",
      table);
}

std::string network_table(const Report& report) {
  cmd::Table table("llrrrrrrrl");
  table.add(
      {"operation", "subject", "rate", "time of one", "p50", "p99", "/ floor", "loch is", "target", ""});
  for (const Figure* figure : report.in("network")) {
    const auto& latency = figure->reads ? figure->reads : figure->writes;
    std::vector<std::string> row = {figure->name,
                                    figure->subject,
                                    rate_text(figure->rate()),
                                    time_text(figure->value),
                                    latency ? time_text(static_cast<double>(latency->p50_ns)) : "",
                                    latency ? time_text(static_cast<double>(latency->p99_ns)) : "",
                                    ratio_text(figure->floor_ratio),
                                    ratio_text(ratio_of(*figure, figure->subject))};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled(
      fmt::format("Over TCP, through {}: servers on one core, one client on another,\n{} items of each; one "
                  "operation at a time, or as many as are named. \"loch is\": how many times as fast.",
                  report.network, grouped(report.settings.network_items)),
      table);
}

std::string network_processor_table(const Report& report) {
  cmd::Table table("llrrrl");
  table.add({"operation", "subject", "time", "/ loch's", "target", ""});
  for (const Figure* figure : report.in("network processor")) {
    const bool is_idle = figure->unit == "us/s";
    std::vector<std::string> row = {
        figure->name, figure->subject,
        is_idle ? fmt::format("{:.1f} {}", figure->value, figure->unit) : time_text(figure->value),
        ratio_text(ratio_of(*figure, figure->subject))};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled(
      "Processor time of the server for one operation of the table above, in the kernel and outside.", table);
}

std::string memory_table(const Report& report) {
  cmd::Table table("llrrl");
  table.add({"items", "subject", "B/item", "target", ""});
  for (const Figure* figure : report.in("memory")) {
    std::vector<std::string> row = {figure->name, figure->subject, fmt::format("{:.1f}", figure->value)};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled(
      fmt::format("Memory above key and value ({} B). \"held\": files in memory, or a server's resident set; "
                  "\"in use\": by its own\naccount, index included.",
                  report.settings.key_bytes + report.settings.value_bytes),
      table);
}

std::string idle_table(const Report& report) {
  cmd::Table table("lrrl");
  for (const Figure* figure : report.in("idle")) {
    std::vector<std::string> row = {figure->name, fmt::format("{:.1f} {}", figure->value, figure->unit)};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled("Processor time of an idle process, beyond that of one without a store.", table);
}

std::string simulator_table(const Report& report) {
  cmd::Table table("lrrrl");
  for (const Figure* figure : report.in("simulator")) {
    std::vector<std::string> row = {figure->name, time_text(figure->value), rate_text(figure->rate())};
    add_target(row, *figure);
    table.add(std::move(row));
  }
  return titled("The simulator on one core; whole runs, with all that is checked.", table);
}

}  // namespace

std::string header_text(const Report& report) {
  const Settings& settings = report.settings;
  const Machine& machine = report.machine;
  cmd::Table table("ll");
  table.add({"loch", report.build});
  table.add(
      {"machine", fmt::format("{}, {} cores, last cache {}, memory {}, {}", machine.processor, machine.cores,
                              machine.cache_bytes == 0 ? "unknown" : bytes_text(machine.cache_bytes),
                              bytes_text(machine.memory_bytes), machine.kernel)});
  table.add({"", fmt::format("huge pages: {}, in shared memory: {}; {} has {} free; load {}",
                             machine.huge_pages, machine.huge_pages_shared, settings.directory,
                             bytes_text(machine.shared_bytes), machine.load)});
  table.add({"run", fmt::format("{} items of {} + {} B, seed {}; figures are medians of {} rounds of {} s",
                                grouped(settings.items), settings.key_bytes, settings.value_bytes,
                                settings.seed, settings.rounds, settings.seconds)});
  if (settings.items_of_peers() != settings.items) {
    table.add({"", fmt::format("peers have {} items", grouped(settings.items_of_peers()))});
  }
  return table.text();
}

std::string tables_text(const Report& report) {
  using Section = std::string (*)(const Report&);
  constexpr std::array<std::pair<const char*, Section>, 10> sections = {{
      {"floor", floor_table},
      {"loch", loch_table},
      {"peers", peers_table},
      {"processes", processes_table},
      {"ycsb", ycsb_table},
      {"network", network_table},
      {"network processor", network_processor_table},
      {"memory", memory_table},
      {"idle", idle_table},
      {"simulator", simulator_table},
  }};
  std::string text;
  for (const auto& [name, table] : sections) {
    if (!report.in(name).empty()) text += table(report);
  }
  if (!report.notes.empty()) text += "\n";
  for (const std::string& note : report.notes) text += fmt::format("Note: {}.\n", note);
  const Settings& settings = report.settings;
  if (report.targets() != 0) {
    text += fmt::format("\n{} of {} targets met", report.targets_met(), report.targets());
    const bool stated = settings.items >= target_items_min && settings.key_bytes == target_key_bytes &&
                        settings.value_bytes == target_value_bytes;
    if (!stated) {
      text += fmt::format("; they are stated for {} items and more of {} + {} B", grouped(target_items_min),
                          target_key_bytes, target_value_bytes);
    }
    text += ".\n";
  }
  return text;
}

}  // namespace loch::bench
