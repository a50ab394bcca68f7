#include "cmd/info.h"

#include <algorithm>

#include "cmd/table.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0 %";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string limit_text(const Info& info) {
  if (info.max_bytes == 0) return "what the file system gives";
  return exact_bytes(info.max_bytes) + (info.hosts > 1 ? " on each host" : "");
}

void begin_with_store(Table& table, const Info& info) {
  table.add({"store", fmt::format("{}, at {}", info.name, info.directory)});
  if (info.hosts == 1) return;
  const std::string without =
      info.hosts_away == 0
          ? ""
          : fmt::format("; {} CANNOT BE REACHED, and their part is not in this", info.hosts_away);
  table.add({"hosts", fmt::format("{}{}", info.hosts, without)});
}

}  // namespace

std::uint64_t other_clients(const Info& info) {
  return info.clients - std::min<std::uint64_t>(info.clients, 1);
}

Json info_json(const Info& info) {
  Json json{{"name", info.name},
            {"location", info.directory},
            {"hosts", info.hosts},
            {"hosts_away", info.hosts_away},
            {"format_version", info.format_version},
            {"candidates", info.candidates},
            {"index_slots", info.index_slots},
            {"index_growing", info.index_growing},
            {"index_bytes", info.index_bytes},
            {"control_bytes", info.control_bytes},
            {"data_bytes", info.data_bytes},
            {"block_bytes", info.block_bytes},
            {"blocks", info.blocks},
            {"blocks_free", info.blocks_free},
            {"blocks_leased", info.blocks_leased},
            {"clients", other_clients(info)},
            {"max_bytes", info.max_bytes},
            {"huge_page_bytes", info.huge_page_bytes},
            {"expiry_ms", info.expiry.count()}};
  Json totals = Json::object();
  for (std::size_t i = 0; i < counter_count; ++i) {
    totals[std::string(name(static_cast<Counter>(i)))] = info.totals.values[i];
  }
  json["totals"] = std::move(totals);
  return json;
}

std::string info_text(const Info& info) {
  const std::uint64_t used = info.blocks - std::min(info.blocks, info.blocks_free);
  Table table("ll");
  begin_with_store(table, info);
  table.add({"memory", fmt::format("{} ({} data, {} index, {} control), limit {}",
                                   human_bytes(info.data_bytes + info.index_bytes + info.control_bytes),
                                   human_bytes(info.data_bytes), human_bytes(info.index_bytes),
                                   human_bytes(info.control_bytes), limit_text(info))});
  table.add({"blocks", fmt::format("{} of {} in use ({}), {} leased, {} each", human_count(used),
                                   human_count(info.blocks), percent(used, info.blocks),
                                   human_count(info.blocks_leased), human_bytes(info.block_bytes))});
  table.add({"index", fmt::format("{} slots{}", human_count(info.index_slots),
                                  info.index_growing ? ", growing" : "")});
  table.add({"huge pages", fmt::format("{} of this process's mapping", human_bytes(info.huge_page_bytes))});
  table.add({"clients", human_count(other_clients(info))});
  return table.text();
}

std::string geometry_text(const Info& info) {
  Table table("ll");
  begin_with_store(table, info);
  table.add({"format", fmt::format("version {}", info.format_version)});
  table.add({"candidates", fmt::format("{} slots a key", info.candidates)});
  table.add(
      {"index", fmt::format("{} slots, {}", human_count(info.index_slots), human_bytes(info.index_bytes))});
  table.add({"block", human_bytes(info.block_bytes)});
  table.add({"limit", limit_text(info)});
  table.add({"expiry", exact_duration(info.expiry)});
  return table.text();
}

}  // namespace loch::cmd
