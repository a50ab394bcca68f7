#include "tests/store_processes.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <signal.h>
#include <thread>
#include <utility>

#include "base/testing/comes_true.h"
#include "client/impl.h"
#include "memory/session.h"
#include "sim/crowd.h"
#include "sim/linearizability.h"
#include "sim/value.h"
#include "tests/responses.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

namespace fs = std::filesystem;
using base::fake::comes_true;
using Clock = std::chrono::steady_clock;

const std::string url = "shm://test";
// A worker with lives takes a client number for each.
constexpr std::uint64_t clients_of_worker = 1'000'000;
constexpr milliseconds settle_time{10'000};
// More than rest at a time where there is one key that is written now and then, so that all of its memory
// comes round.
constexpr std::uint64_t reuses_of_a_stop = 50;
// A store that loses memory is to fail a test, not to take the machine's.
constexpr std::uint64_t store_bytes_max = std::uint64_t{1} << 30;

std::uint64_t chosen_seed() {
  const char* text = std::getenv("LOCH_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : base::system_seed();
}

std::string text(const Report& report) {
  std::string lines =
      fmt::format("items {}, resting {}, unaccounted {}, corrupt {}; slots used {}, pending {}, corrupt {}\n",
                  report.items, report.items_resting, report.items_unaccounted, report.items_corrupt,
                  report.slots_used, report.slots_pending, report.slots_corrupt);
  for (const std::string& finding : report.findings) lines += fmt::format("  {}\n", finding);
  return lines;
}

// In a worker that is started: one that is told to end before it can report does so when it can.
void keep_sigterm_back() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
}

}  // namespace

std::string lochd_program() { return LOCH_TEST_LOCHD; }

void StoreProcesses::SetUp() {
  seed_ = chosen_seed();
  random_ = base::Random(seed_);
  Options options;
  options.directory = folder_.path();
  options.expiry = expiry;
  options.timeout = operation_timeout;
  options.max_bytes = store_bytes_max;
  options.candidates = candidates_;
  opened_ = open_store(options);
  ASSERT_TRUE(opened_->has_value()) << opened_->error().message();
  store_ = &**opened_;
}

Result<Store> StoreProcesses::open_store(const Options& options) { return Store::open(url, options); }

void StoreProcesses::TearDown() {
  opened_.reset();
  const bool keep = HasFailure() && std::getenv("LOCH_TEST_KEEP") != nullptr;
  if (HasFailure()) {
    fmt::print("LOCH_TEST_SEED={} makes the same choices again.\n{}\n", seed_,
               keep ? fmt::format("The store and the histories are left in {}", folder_.path())
                    : "LOCH_TEST_KEEP=1 keeps the store and the histories.");
  }
  if (keep) folder_.keep();
}

Result<Store> StoreProcesses::open_when_whole(const std::string& where, const Options& options) {
  Options remote = options;
  remote.mode = Options::Mode::attach;
  remote.max_bytes.reset();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    auto opened = Store::open(where, remote);
    const Result<std::uint64_t> counted = opened ? opened->count() : std::unexpected(opened.error());
    if (counted) return opened;
    if (std::chrono::steady_clock::now() > deadline) return std::unexpected(counted.error());
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void StoreProcesses::fill(std::uint64_t items) {
  const std::vector<std::string> keys = numbered_keys("fill", items);
  std::string value;
  for (std::uint64_t i = 0; i < items; ++i) {
    sim::Operation write{.key = keys[i], .kind = sim::Kind::put, .written = i + 1, .invoked_ns = now_ns()};
    sim::make_value(write.written, sim::value_bytes_min, value);
    const auto put = store().put(write.key, value);
    ASSERT_TRUE(put.has_value()) << put.error().message();
    write.outcome = sim::Outcome::ok;
    write.responded_ns = now_ns();
    own_history_.push_back(write);
  }
}

Worker StoreProcesses::start(const WorkerSpec& spec) {
  const std::uint64_t client = ++clients_ * clients_of_worker;
  is_lent_ = is_lent_ || !spec.url.empty();
  if (spec.crowded && crowd_list_.empty()) {
    crowd_list_ = folder() / "crowd";
    std::ofstream list(crowd_list_);
    sim::Crowd crowd(store().impl().memory()->geometry(), "crowd-", crowd_.rows);
    for (const std::string& key : crowd.keys(crowd_.keys)) list << key << '\n';
  }
  histories_.push_back(folder() / fmt::format("history-{}", client));
  std::vector<std::string> arguments{LOCH_TEST_WORKER};
  const auto add = [&arguments](std::string_view option, const auto& value) {
    arguments.push_back(fmt::format("--{}={}", option, value));
  };
  add("url", spec.url.empty() ? url : spec.url);
  if (!spec.source_address.empty()) add("from", spec.source_address);
  if (spec.may_be_cut_off) arguments.emplace_back("--may-be-cut-off");
  if (!spec.placement.empty()) add("placement", spec.placement);
  add("directory", folder_.path());
  add("history", histories_.back().string());
  add("client", client);
  add("seed", random_.next());
  add("key-prefix", spec.key_prefix);
  add("keys", spec.keys);
  if (spec.crowded) add("key-list", crowd_list_.string());
  add("operations", spec.operations);
  add("millis", spec.millis.count());
  if (spec.think_us != 0) add("think-us", spec.think_us);
  add("mix", spec.mix);
  add("value-bytes", spec.value_bytes);
  add("value-bytes-max", std::max(spec.value_bytes, spec.value_bytes_max));
  add("timeout-ms", spec.timeout.count());
  add("expiry-ms", expiry.count());
  add("lives", spec.lives);
  add("life-us", spec.life_us);
  if (*spec.pause_at != '\0') {
    add("pause-at", spec.pause_at);
    add("pause-us", spec.pause_us);
  }
  if (spec.iterate) arguments.emplace_back("--iterate");
  if (spec.collect) arguments.emplace_back("--collect");
  return {.process = lab::Process::start({.words = std::move(arguments),
                                          .log = folder() / fmt::format("output-{}", client),
                                          .environment = spec.environment,
                                          .become = keep_sigterm_back})
                         .value(),
          .history = histories_.back()};
}

WorkerReport StoreProcesses::finish(Worker& worker, bool may_time_out) {
  worker.process.signal(SIGTERM);
  return await(worker, may_time_out);
}

void StoreProcesses::finish_all(std::vector<Worker>& workers, bool may_time_out) {
  for (const Worker& worker : workers) worker.process.signal(SIGTERM);
  for (Worker& worker : workers) await(worker, may_time_out);
}

WorkerReport StoreProcesses::await(Worker& worker, bool may_time_out) {
  const auto ending = worker.process.wait(patience);
  if (!ending) {
    worker.process.signal(SIGABRT);  // a sanitizer says where it was, if asked by handle_abort=1
    worker.process.wait(patience);
  }
  const std::string output = worker.process.output();
  EXPECT_TRUE(ending.has_value()) << "a worker hangs:\n" << output;
  if (!ending) return {};
  EXPECT_EQ(*ending, lab::Ending{.exit_code = 0})
      << "exit code " << ending->exit_code << ", signal " << ending->signal << '\n'
      << output;
  const auto json = nlohmann::json::parse(output, nullptr, false);
  if (json.is_discarded()) return {};
  const auto number = [&json](const char* name) { return json.value(name, std::uint64_t{0}); };
  const WorkerReport report{.operations = number("operations"),
                            .timed_out = number("timed_out"),
                            .unavailable = number("unavailable"),
                            .values_ended = number("values_ended"),
                            .longest_us = number("longest_us"),
                            .longest_held_up_us = number("longest_held_up_us"),
                            .killed = number("killed")};
  if (!may_time_out) {
    EXPECT_EQ(report.timed_out, 0U) << "an operation was blocked until its deadline";
    if (call_time_max_) {
      EXPECT_LE(milliseconds(report.longest_held_up_us / 1'000), *call_time_max_)
          << "an operation waited for somebody else";
    }
  }
  return report;
}

void StoreProcesses::stop_for_a_while(Worker& worker, bool until_reuse) {
  worker.process.signal(SIGSTOP);
  const auto stopped = worker.process.wait(patience);
  ASSERT_TRUE(stopped && stopped->stopped) << worker.process.output();
  if (until_reuse) return continue_after_reuse(worker);
  continue_late(worker);
}

void StoreProcesses::continue_late(Worker& worker) {
  // Not waiting for anything: the others are to go on for so long.
  std::this_thread::sleep_for(2 * expiry + random_time(expiry));
  worker.process.signal(SIGCONT);
}

void StoreProcesses::continue_after_reuse(Worker& worker) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(memory::Session::act_window_ns) + 2 * expiry +
                              random_time(expiry));
  await_reuse();
  worker.process.signal(SIGCONT);
}

void StoreProcesses::await_reuse() {
  const std::uint64_t wanted = items_reused() + reuses_of_a_stop;
  EXPECT_TRUE(comes_true([&] { return items_reused() >= wanted; }, patience))
      << "too little memory was used again meanwhile: the stop shows nothing";
}

std::uint64_t StoreProcesses::items_reused() {
  const Result<Info> info = store().info();
  EXPECT_TRUE(info.has_value()) << info.error().message();
  return info ? info->totals[Counter::items_reused] : 0;
}

std::chrono::microseconds StoreProcesses::random_time(std::chrono::microseconds max) {
  return std::chrono::microseconds(random_.below(static_cast<std::uint64_t>(max.count()) + 1));
}

void StoreProcesses::await_work(const Worker& worker) {
  std::error_code none;  // until it has a history, its length is the largest there is
  const auto written = [&] { return fs::file_size(worker.history, none) + 1; };
  constexpr std::uintmax_t some_operations = 4'096;
  const std::uintmax_t enough = written() + some_operations;
  ASSERT_TRUE(comes_true([&] { return written() >= enough; }, patience)) << worker.process.output();
}

void StoreProcesses::await_answers(const Worker& worker, const std::vector<std::string>& keys,
                                   std::uint64_t since_ns) {
  std::set<std::string> missing(keys.begin(), keys.end());
  Responses responses(worker.history, since_ns);
  const auto are_all_there = [&] {
    responses.read_on([&missing](const std::string& key, std::string_view outcome) {
      if (outcome != name(sim::Outcome::unknown)) missing.erase(key);
    });
    return missing.empty() || HasFatalFailure();
  };
  ASSERT_TRUE(comes_true(are_all_there, patience))
      << "no answer about " << *missing.begin() << ", by " << worker.history.string() << '\n'
      << worker.process.output();
}

void StoreProcesses::await_trouble(const Worker& worker, std::uint64_t since_ns) {
  bool is_there = false;
  Responses responses(worker.history, since_ns);
  const auto is_noticed = [&] {
    responses.read_on([&is_there](const std::string&, std::string_view outcome) {
      is_there = is_there || outcome == name(sim::Outcome::unknown);
    });
    return is_there || HasFatalFailure();
  };
  ASSERT_TRUE(comes_true(is_noticed, patience))
      << "it notices nothing, by " << worker.history.string() << '\n'
      << worker.process.output();
}

void StoreProcesses::expect_untroubled(const WorkerReport& report) {
  EXPECT_GT(report.operations, 0U);
  EXPECT_EQ(report.unavailable, 0U);
  EXPECT_EQ(report.timed_out, 0U);
}

void StoreProcesses::await_clients(std::uint64_t count) {
  Result<Info> info;
  const auto are_so_many = [&] {
    info = store().info();
    return info && info->clients == count;
  };
  ASSERT_TRUE(comes_true(are_so_many, patience))
      << "not " << count << " clients: " << (info ? std::to_string(info->clients) : info.error().message());
}

std::map<std::string, std::string> StoreProcesses::expect_some_out_of_reach(
    const std::vector<std::string>& keys) {
  std::map<std::string, std::string> there;
  Result<void> wrong;
  const auto are_some = [&] {
    std::vector<Lookup> lookups(keys.size());
    for (std::size_t i = 0; i < lookups.size(); ++i) lookups[i].key = keys[i];
    store().multi_get(lookups);
    there.clear();
    for (Lookup& each : lookups) {
      if (each.result) {
        there.emplace(each.key, std::move(each.value));
      } else if (each.result.error().code != Errc::unavailable &&
                 each.result.error().code != Errc::timed_out) {
        wrong = each.result;
      }
    }
    return !wrong || (!there.empty() && there.size() < keys.size());
  };
  EXPECT_TRUE(comes_true(are_some, patience)) << there.size() << " of " << keys.size() << " keys are there";
  EXPECT_TRUE(wrong.has_value()) << wrong.error().message();
  return there;
}

void StoreProcesses::note_loss(std::uint64_t since_ns) {
  loss_ = {.since_ns = since_ns, .until_ns = now_ns(), .outlived = {}};
  Result<void> visited;
  const auto are_visited = [&] {  // hosts that forget what is lost end sessions
    loss_.outlived.clear();
    visited = store().for_each([this](const Entry& entry) {
      const auto id = sim::read_value(entry.value);
      EXPECT_TRUE(id.has_value()) << entry.key << " has a value " << id.error();
      if (id) loss_.outlived.insert(*id);
      return true;
    });
    return visited.has_value();
  };
  ASSERT_TRUE(comes_true(are_visited, patience)) << visited.error().message();
}

void StoreProcesses::expect_linearizable() {
  // A worker that was killed early has no history.
  std::erase_if(histories_, [](const fs::path& path) { return !fs::exists(path); });
  auto history = sim::read_histories(histories_);
  ASSERT_TRUE(history.has_value()) << history.error().detail;
  EXPECT_TRUE(
      std::ranges::any_of(*history, [](const auto& o) { return o.outcome != sim::Outcome::unknown; }));
  // Times to live go by the time of the store, which is behind the clock where the host tells it others
  // (docs/memory.md, "Remote sessions").
  if (is_lent_) sim::forget_when_values_end(*history);
  sim::let_ends_overtake_replaces(*history);
  history->insert(history->end(), own_history_.begin(), own_history_.end());
  std::set<std::string> keys;
  for (const sim::Operation& operation : *history) keys.insert(operation.key);
  for (std::size_t i = 0, operations = history->size(); i < operations; ++i) {
    const sim::Operation& write = (*history)[i];
    if (write.written == sim::no_value || write.invoked_ns >= loss_.until_ns) continue;
    if (loss_.outlived.contains(write.written)) continue;
    history->push_back({.client = write.client,
                        .key = write.key,
                        .kind = sim::Kind::expire,
                        .expected = write.written,
                        .invoked_ns = std::max(write.invoked_ns, loss_.since_ns)});
  }

  std::string value;
  for (const std::string& key : keys) {
    sim::Operation last{.key = key, .invoked_ns = now_ns()};
    const Result<void> got = store().get(key, value);
    ASSERT_TRUE(got || got.error().code == Errc::not_found) << got.error().message();
    last.outcome = got ? sim::Outcome::ok : sim::Outcome::not_found;
    if (got) {
      const auto id = sim::read_value(value);
      ASSERT_TRUE(id.has_value()) << key << " has a value " << id.error();
      last.found = *id;
    }
    last.responded_ns = now_ns();
    history->push_back(last);
  }
  const sim::CheckResult result = sim::check_linearizability(*history);
  EXPECT_TRUE(result.linearizable()) << history->size() << " operations\n" << result.explanation;
}

void StoreProcesses::expect_accounted_for() {
  Result<Report> report;
  const auto settled = [&report] {
    return report && report->items_unaccounted == 0 && report->slots_pending == 0 &&
           report->items_corrupt == 0 && report->slots_corrupt == 0;
  };
  const auto deadline = Clock::now() + settle_time;
  do {  // what a client left a moment ago may have to rest first
    const Result<Collected> collected = store().collect();
    ASSERT_TRUE(collected.has_value()) << collected.error().message();
    report = store().check();
    ASSERT_TRUE(report.has_value()) << report.error().message();
  } while (!settled() && Clock::now() < deadline);
  EXPECT_TRUE(settled()) << text(*report);
}

void StoreProcesses::expect_memory_back() {
  struct Left {
    std::string key;
    bool is_mortal = false;
  };
  std::vector<Left> items;
  const Result<void> visited = store().for_each([&items](const Entry& entry) {
    items.push_back({.key = std::string(entry.key), .is_mortal = entry.time_to_live.has_value()});
    return true;
  });
  ASSERT_TRUE(visited.has_value()) << visited.error().message();
  for (const auto& [key, is_mortal] : items) {
    const Result<void> removed = store().remove(key);
    const bool has_ended = is_mortal && !removed && removed.error().code == Errc::not_found;
    ASSERT_TRUE(removed || has_ended) << removed.error().message();
  }
  const Result<std::uint64_t> count = store().count();
  ASSERT_TRUE(count.has_value()) << count.error().message();
  EXPECT_EQ(*count, 0U);
  histories_.clear();
  own_history_.clear();
  loss_ = {};

  // What this process itself is filling stays with it.
  Result<Info> info;
  const auto back = [&info] { return info && info->blocks_free + info->blocks_leased == info->blocks; };
  const auto deadline = Clock::now() + settle_time;
  do {
    const Result<Collected> collected = store().collect();
    ASSERT_TRUE(collected.has_value()) << collected.error().message();
    info = store().info();
    ASSERT_TRUE(info.has_value()) << info.error().message();
  } while (!back() && Clock::now() < deadline);
  const Result<Report> report = store().check();
  EXPECT_TRUE(back()) << info->blocks_free << " free and " << info->blocks_leased << " leased of "
                      << info->blocks << " blocks\n"
                      << (report ? text(*report) : report.error().message());
}

}  // namespace loch::tests
