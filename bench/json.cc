#include <nlohmann/json.hpp>

#include "bench/report.h"

namespace loch::bench {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Latency& latency) {
  return {{"count", latency.count},   {"mean_ns", latency.mean_ns}, {"p50_ns", latency.p50_ns},
          {"p99_ns", latency.p99_ns}, {"p999_ns", latency.p999_ns}, {"max_ns", latency.max_ns}};
}

Json to_json(const Figure& figure) {
  Json json = {{"section", figure.section},     {"name", figure.name},   {"subject", figure.subject},
               {"processes", figure.processes}, {"value", figure.value}, {"unit", figure.unit}};
  if (figure.unit == "ns") json["operations_per_second"] = figure.rate();
  if (figure.floor_ratio) json["floor_ratio"] = *figure.floor_ratio;
  if (!figure.peer_ratios.empty()) json["peer_ratios"] = figure.peer_ratios;
  if (figure.scaling) json["scaling"] = *figure.scaling;
  if (figure.target) json["target"] = {{"text", figure.target->text}, {"met", figure.target->met}};
  if (figure.reads) json["reads"] = to_json(*figure.reads);
  if (figure.writes) json["writes"] = to_json(*figure.writes);
  return json;
}

Json to_json(const Settings& settings) {
  return {{"suite", settings.suite},
          {"items", settings.items},
          {"peer_items", settings.items_of_peers()},
          {"key_bytes", settings.key_bytes},
          {"value_bytes", settings.value_bytes},
          {"large_items", settings.large_items},
          {"large_value_bytes", settings.large_value_bytes},
          {"network_items", settings.network_items},
          {"processes", settings.processes},
          {"seconds", settings.seconds},
          {"rounds", settings.rounds},
          {"seed", settings.seed}};
}

Json to_json(const Machine& machine) {
  return {{"processor", machine.processor},
          {"cores", machine.cores},
          {"cache_bytes", machine.cache_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"shared_bytes", machine.shared_bytes},
          {"kernel", machine.kernel},
          {"huge_pages", machine.huge_pages},
          {"huge_pages_shared", machine.huge_pages_shared},
          {"load", machine.load}};
}

}  // namespace

std::string json_text(const Report& report) {
  Json json = {{"format", 1},
               {"build", report.build},
               {"configuration", to_json(report.settings)},
               {"machine", to_json(report.machine)},
               {"network", report.network},
               {"floor_bytes", report.floor_bytes},
               {"floor_huge_bytes", report.floor_huge_bytes},
               {"targets", report.targets()},
               {"targets_met", report.targets_met()},
               {"notes", report.notes},
               {"figures", Json::array()}};
  for (const Figure& figure : report.figures) json["figures"].push_back(to_json(figure));
  return json.dump(2) + "\n";
}

}  // namespace loch::bench
