// cmd/doctor: networks: the RDMA devices of this host, and a store on another one.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <vector>

#include <loch/devices.h>

#include "cmd/command.h"
#include "cmd/doctor.h"

namespace loch::cmd {

std::vector<Finding> probe_rdma() {
  std::vector<Finding> findings;
  for (const RdmaDevice& device : rdma_devices()) {
    if (!device.trouble.empty()) {
      findings.push_back(
          {.subject = "RDMA " + device.name,
           .status = Status::warn,
           .found = "cannot be opened: " + device.trouble,
           .mend = "let this user read and write /dev/infiniband/uverbs* (Debian: group rdma)"});
    }
    for (const RdmaDevice::Port& port : device.ports) findings.push_back(judge_port(device, port));
  }
  if (findings.empty())
    findings.push_back(
        {.subject = "RDMA", .found = "no device; stores on other hosts are reached as tcp://"});
  return findings;
}

namespace {

// Looks up a key that is not there, again and again.
Finding time_store(Store& store, const std::string& name) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t tries = 101;
  Finding finding{.subject = "store"};
  const std::string url = store_url(name);
  std::vector<Clock::duration> times;
  for (std::size_t i = 0; i < tries; ++i) {
    const auto start = Clock::now();
    const auto there = store.exists("loch doctor looks for no key");
    times.push_back(Clock::now() - start);
    if (there) continue;
    finding.status = Status::fail;
    finding.found = fmt::format("{}: {}", url, there.error().message());
    finding.mend = is_of_this_host(name)
                       ? mend_near_store(name, there.error())
                       : "the network loses what is sent, or the host is overloaded: look at both ends' logs";
    return finding;
  }
  std::ranges::sort(times);
  const auto median_us = std::chrono::duration<double, std::micro>(times[tries / 2]).count();
  finding.found = fmt::format("{}: a key that is not there is looked up in {:.1f} us (median of {})", url,
                              median_us, tries);
  return finding;
}

// Whether both ends agree.
std::vector<Finding> probe_connections(Store& store) {
  const auto connections = store.rdma_connections();
  if (!connections) {
    return {{.subject = "connection",
             .status = Status::fail,
             .found = connections.error().message(),
             .mend = mend_far_store(connections.error())}};
  }
  std::vector<Finding> findings;
  std::ranges::transform(*connections, std::back_inserter(findings), judge_connection);
  return findings;
}

}  // namespace

std::vector<Finding> probe_store(const Options& options, const std::string& store_name) {
  const std::string url = store_url(store_name);
  Options attach = options;
  attach.mode = Options::Mode::attach;
  auto store = Store::open(url, attach);
  if (!store) {
    const bool is_near = is_of_this_host(store_name);
    return {{.subject = "store",
             .status = Status::fail,
             .found = store.error().message(),
             .mend = is_near ? mend_near_store(store_name, store.error()) : mend_far_store(store.error())}};
  }
  std::vector<Finding> findings;
  if (const auto info = store->info(); info && info->hosts_away > 0) {
    // What is about the whole store says which are away, and why, before it begins.
    const auto walked = store->for_each([](const Entry&) { return false; });
    findings.push_back(
        {.subject = "store",
         .status = Status::warn,
         .found = fmt::format("{}: {} of its {} hosts cannot be reached{}", url, info->hosts_away,
                              info->hosts, walked ? "" : ": " + walked.error().detail),
         .mend = "is lochd running there, and what does its log say?"});
  } else {
    findings.push_back(time_store(*store, store_name));
  }
  std::ranges::move(probe_connections(*store), std::back_inserter(findings));
  return findings;
}

}  // namespace loch::cmd
