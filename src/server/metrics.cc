#include "server/metrics.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <string>
#include <utility>
#include <vector>

namespace loch::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

class Collected final : public prometheus::Collectable {
 public:
  Collected(const fabric::Host& host, Keeper& keeper, const Member* member)
      : host_(host), keeper_(keeper), member_(member) {}

  std::vector<MetricFamily> Collect() const override {
    const fabric::Host::Counts counts = host_.counts();
    std::vector<MetricFamily> all;
    const auto add = [&all](const char* name, const char* help, MetricType type) -> MetricFamily& {
      return all.emplace_back(MetricFamily{.name = name, .help = help, .type = type, .metric = {}});
    };
    const auto put = [](MetricFamily& family, Labels labels, std::uint64_t value) {
      prometheus::ClientMetric metric;
      metric.label = std::move(labels);
      metric.gauge.value = static_cast<double>(value);
      metric.counter.value = static_cast<double>(value);
      family.metric.push_back(std::move(metric));
    };
    put(add("lochd_clients",
            "Links: one for each process and store that it has open; hosts of a cluster are clients, too.",
            MetricType::Gauge),
        {}, counts.clients);
    put(add("lochd_sessions", "Sessions of theirs.", MetricType::Gauge), {}, counts.sessions);
    put(add("lochd_refused_total", "Connections that knew no key, or spoke something else.",
            MetricType::Counter),
        {}, counts.refused);
    put(add("lochd_fenced_total",
            "Sessions that were taken for dead: silent for too long, or gone without leaving.",
            MetricType::Counter),
        {}, counts.fenced);
    MetricFamily& operations = add("lochd_operations_total",
                                   "One-sided operations that the agent carried out.", MetricType::Counter);
    put(operations, {{"kind", "read"}}, counts.reads);
    put(operations, {{"kind", "write"}}, counts.writes);
    put(operations, {{"kind", "atomic"}}, counts.atomics);
    put(operations, {{"kind", "bad_address"}}, counts.bad_addresses);
    MetricFamily& bytes = add("lochd_bytes_total", "Bytes over the data connections.", MetricType::Counter);
    put(bytes, {{"way", "in"}}, counts.bytes_in);
    put(bytes, {{"way", "out"}}, counts.bytes_out);
    put(add("lochd_sends_total", "System calls that sent answers.", MetricType::Counter), {}, counts.sends);
    put(add("lochd_build_info", "Always 1; which lochd this is.", MetricType::Gauge),
        {{"version", LOCH_VERSION}}, 1);
    if (member_ != nullptr) {
      const Member::State state = member_->now();
      const auto& shards = state.map.map.shards;
      const auto is_here = [&](const auto& shard) { return shard.home.node == state.node; };
      put(add("lochd_cluster_epoch", "Of the map that this host goes by; 0: of none.", MetricType::Gauge), {},
          state.map.map.epoch);
      put(add("lochd_cluster_shards", "Parts of the index that are at home on this host.", MetricType::Gauge),
          {}, static_cast<std::uint64_t>(std::ranges::count_if(shards, is_here)));
    }
    const auto stores = keeper_.seen();
    MetricFamily& used =
        add("loch_store_bytes",
            "Memory of a store on this host: of its index, of blocks in use, and of free ones.",
            MetricType::Gauge);
    for (const auto& [store, seen] : stores) {
      put(used, {{"store", store}, {"part", "index"}}, seen.usage.index_bytes);
      put(used, {{"store", store}, {"part", "used"}}, seen.usage.data_bytes - seen.usage.data_free_bytes);
      put(used, {{"store", store}, {"part", "free"}}, seen.usage.data_free_bytes);
    }
    MetricFamily& most = add("loch_store_max_bytes", "What a store may grow to; 0: what its directory gives.",
                             MetricType::Gauge);
    for (const auto& [store, seen] : stores) put(most, {{"store", store}}, seen.bytes_max);
    MetricFamily& events =
        add("loch_events_total", "What all clients of a store have counted, local and remote ones.",
            MetricType::Counter);
    for (const auto& [store, seen] : stores) {
      for (std::size_t i = 0; i < counter_count; ++i) {
        put(events, {{"store", store}, {"event", std::string(name(static_cast<Counter>(i)))}},
            seen.totals.values[i]);
      }
    }
    return all;
  }

 private:
  const fabric::Host& host_;
  Keeper& keeper_;
  const Member* member_;  // null: of no cluster
};

// One that connects and asks for nothing holds up no other, and is let go soon.
std::vector<std::string> served_at(const net::HostPort& at) {
  return {"listening_ports", at.text(), "num_threads", "4", "request_timeout_ms", "2000"};
}

class Served final : public Metrics {
 public:
  Served(const net::HostPort& at, const fabric::Host& host, Keeper& keeper, const Member* member)
      : collected_(std::make_shared<Collected>(host, keeper, member)), exposer_(served_at(at)) {
    exposer_.RegisterCollectable(collected_);
  }

 private:
  std::shared_ptr<Collected> collected_;
  prometheus::Exposer exposer_;
};

// The library says that it can not listen there, and not why; the kernel does when it is asked again.
Error explained(const net::HostPort& at, const std::exception& error) {
  auto again = net::listen(at);
  Error why = again ? Error{.code = Errc::io, .detail = fmt::format("{}: {}", at.text(), error.what())}
                    : std::move(again.error());
  why.operation = "metrics.listen";
  return why;
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::start(const net::HostPort& at, const fabric::Host& host,
                                                Keeper& keeper, const Member* member) {
  // The library says by an exception that it can not listen there.
  try {
    return std::make_unique<Served>(at, host, keeper, member);
  } catch (const std::exception& error) {
    return std::unexpected(explained(at, error));
  }
}

}  // namespace loch::server
