#include "tests/cluster/cluster_processes.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/testing/comes_true.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

using base::fake::comes_true;

constexpr const char* key_prefix = "hot";
constexpr std::uint64_t keys = 6;
constexpr std::uint64_t think_us = 2'000;

}  // namespace

void ClusterProcesses::SetUp() {
  auto hosts = lab::Hosts::make(hosts_of_network, (folder() / "network.log").string());
  if (!hosts) {
    const Errc code = hosts.error().code;
    ASSERT_TRUE(code == Errc::permission || code == Errc::not_found) << hosts.error().message();
    GTEST_SKIP() << "there can be no hosts here: " << hosts.error().message();
  }
  hosts_.emplace(std::move(*hosts));
  StoreProcesses::SetUp();
}

void ClusterProcesses::TearDown() {
  if (HasFailure() && lochds_) {
    for (const auto& [host, lochd] : lochds_->all()) fmt::print("{}\n", lochd.output());
  }
  StoreProcesses::TearDown();
}

Result<Store> ClusterProcesses::open_store(const Options& options) {
  auto files = lab::ClusterFiles::make(
      {.folder = folder(),
       .store = "test",
       .hosts = hosts_of_cluster,
       .coordinator = coordinator(),
       .more_of_lochd = fmt::format("silence_s = {}\n", silence / std::chrono::seconds(1)),
       .more_of_store = fmt::format("expiry_ms = {}\n", expiry.count())});
  if (!files) return std::unexpected(std::move(files.error()));
  lochds_.emplace(lochd_program(), std::move(*files), &*hosts_);
  for (const Host host : {a, b, c}) start_lochd(host);
  return open_when_whole(lochds_->files().url(), options);
}

void ClusterProcesses::start_lochd(Host host, std::vector<std::string> environment) {
  must(lochds_->start(host, std::move(environment)));
}

void ClusterProcesses::kill_lochd(Host host) { lochds_->at(host).kill(); }

void ClusterProcesses::end_lochd(Host host) {
  lochds_->at(host).signal(SIGTERM);
  const auto ending = lochds_->at(host).wait(std::chrono::seconds(10));
  ASSERT_TRUE(ending.has_value()) << "it goes on after 10 s:\n" << lochds_->at(host).output();
  EXPECT_EQ(*ending, lab::Ending{.exit_code = 0}) << lochds_->at(host).output();
}

void ClusterProcesses::stop_lochd(Host host) {
  lochds_->at(host).signal(SIGSTOP);
  await_own_stop(host);
}

void ClusterProcesses::await_own_stop(Host host) {
  const auto stopped = lochds_->at(host).wait(patience);
  ASSERT_TRUE(stopped && stopped->stopped) << lochds_->at(host).output();
}

void ClusterProcesses::await_own_kill(Host host) {
  const auto ended = lochds_->at(host).wait_for_end(patience);
  ASSERT_TRUE(ended && *ended == lab::Ending{.signal = SIGKILL}) << lochds_->at(host).output();
}

void ClusterProcesses::continue_lochd(Host host) { lochds_->at(host).signal(SIGCONT); }

void ClusterProcesses::await_epoch(Host host, std::uint64_t epoch) {
  constexpr std::string_view before_the_number = "goes by epoch ";
  const auto goes_by_it = [&] {
    const std::string log = lochds_->at(host).output();
    const auto last = log.rfind(before_the_number);
    return last != std::string::npos &&
           std::strtoull(log.c_str() + last + before_the_number.size(), nullptr, 10) >= epoch;
  };
  ASSERT_TRUE(comes_true(goes_by_it, patience)) << lochds_->at(host).output();
}

void ClusterProcesses::for_a_while(milliseconds time) { std::this_thread::sleep_for(time); }

void ClusterProcesses::lose_memory(Host host) { must(lochds_->files().lose_memory(host)); }

WorkerSpec ClusterProcesses::spec() const {
  return {.url = lochds_->files().url(),
          .may_be_cut_off = true,
          .timeout = worker_timeout,
          .key_prefix = key_prefix,
          .keys = keys,
          .think_us = think_us};
}

WorkerSpec ClusterProcesses::busy_spec() const {
  WorkerSpec busy = spec();
  busy.think_us = 0;
  return busy;
}

Worker ClusterProcesses::start_on(Host host, const WorkerSpec& spec) {
  const auto visit = hosts().visit(host);
  return start(spec);
}

std::vector<ClusterProcesses::Placed> ClusterProcesses::start_crew() {
  fill(quiet_keys);
  struct Member {
    Host host;
    const char* mix;
    const char* placement;
  };
  std::vector<Placed> crew;
  for (const Member& member : {Member{.host = a, .mix = "write-heavy", .placement = "local"},
                               Member{.host = b, .mix = "insert-remove", .placement = "spread"},
                               Member{.host = c, .mix = "read-heavy", .placement = "local"},
                               Member{.host = d, .mix = "write-heavy", .placement = "spread"}}) {
    WorkerSpec each = spec();
    each.mix = member.mix;
    each.placement = member.placement;
    crew.push_back({.host = member.host, .worker = start_on(member.host, each)});
  }
  for (const Placed& each : crew) await_work(each.worker);
  return crew;
}

void ClusterProcesses::await_answers_on(const std::vector<Placed>& crew, std::initializer_list<Host> hosts) {
  const std::uint64_t since_ns = now_ns();
  for (const Placed& each : crew) {
    if (std::ranges::find(hosts, each.host) != hosts.end())
      await_answers(each.worker, numbered_keys(key_prefix, keys), since_ns);
  }
}

void ClusterProcesses::await_trouble_on(const std::vector<Placed>& crew, std::initializer_list<Host> hosts,
                                        std::uint64_t since_ns) {
  for (const Placed& each : crew) {
    if (std::ranges::find(hosts, each.host) != hosts.end()) await_trouble(each.worker, since_ns);
  }
}

void ClusterProcesses::await_recovery(const std::vector<Placed>& crew) {
  const std::uint64_t since_ns = now_ns();
  Result<void> whole;
  const auto is_whole = [&] {
    whole = store().for_each([](const Entry&) { return false; });  // to begin a walk takes all hosts
    return whole.has_value();
  };
  ASSERT_TRUE(comes_true(is_whole, patience)) << whole.error().message();
  for (const Placed& each : crew) await_answers(each.worker, numbered_keys(key_prefix, keys), since_ns);
}

ClusterProcesses::Items ClusterProcesses::quiet_items() {
  const std::vector<std::string> quiet = numbered_keys("fill", quiet_keys);
  std::vector<Lookup> lookups(quiet.size());
  for (std::size_t i = 0; i < lookups.size(); ++i) lookups[i].key = quiet[i];
  store().multi_get(lookups);
  Items items;
  for (Lookup& each : lookups) {
    if (each.result) {
      items.emplace(each.key, std::move(each.value));
    } else {
      EXPECT_EQ(each.result.error().code, Errc::not_found) << each.result.error().message();
    }
  }
  return items;
}

ClusterProcesses::Items ClusterProcesses::expect_some_quiet_out_of_reach() {
  return expect_some_out_of_reach(numbered_keys("fill", quiet_keys));
}

void ClusterProcesses::expect_lost_all_but(const Items& within_reach) {
  const Items left = quiet_items();
  EXPECT_FALSE(within_reach.empty());
  EXPECT_THAT(left, testing::IsSupersetOf(within_reach));
  EXPECT_LT(left.size(), quiet_keys);
}

std::map<Host, WorkerReport> ClusterProcesses::finish_all(std::vector<Placed>& crew, milliseconds at_most) {
  std::map<Host, WorkerReport> reports;
  for (const Placed& each : crew) each.worker.process.signal(SIGTERM);
  for (Placed& each : crew) {
    const WorkerReport& report = reports[each.host] = await(each.worker, true);
    EXPECT_LE(milliseconds(report.longest_us / 1'000), at_most)
        << "an operation went on after its deadline, on host " << lab::Hosts::name(each.host);
  }
  crew.clear();
  return reports;
}

void ClusterProcesses::expect_in_order() {
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

}  // namespace loch::tests
