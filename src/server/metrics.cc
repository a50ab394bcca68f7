#include "server/metrics.h"

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
  Collected(const fabric::Host& host, Keeper& keeper) : host_(host), keeper_(keeper) {}

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
    put(add("lochd_clients", "Processes on other hosts that have a store open.", MetricType::Gauge), {},
        counts.clients);
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
    MetricFamily& events =
        add("loch_events_total", "What all clients of a store have counted, local and remote ones.",
            MetricType::Counter);
    for (const auto& [store, totals] : keeper_.totals()) {
      for (std::size_t i = 0; i < counter_count; ++i) {
        put(events, {{"store", store}, {"event", std::string(name(static_cast<Counter>(i)))}},
            totals.values[i]);
      }
    }
    return all;
  }

 private:
  const fabric::Host& host_;
  Keeper& keeper_;
};

class Served final : public Metrics {
 public:
  Served(const net::HostPort& at, const fabric::Host& host, Keeper& keeper)
      : collected_(std::make_shared<Collected>(host, keeper)), exposer_(at.text(), 1) {
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
                                                Keeper& keeper) {
  // The library says by an exception that it can not listen there.
  try {
    return std::make_unique<Served>(at, host, keeper);
  } catch (const std::exception& error) {
    return std::unexpected(explained(at, error));
  }
}

}  // namespace loch::server
