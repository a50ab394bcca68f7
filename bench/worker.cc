#include "bench/worker.h"

#include <fmt/format.h>
#include <map>
#include <optional>
#include <sched.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "bench/child.h"
#include "bench/clock.h"
#include "bench/driver.h"
#include "bench/exchanges.h"
#include "bench/floor.h"
#include "bench/libfabric_reads.h"

namespace loch::bench {
namespace {

std::unexpected<Error> no_network() { return fail(Errc::invalid_argument, "bench", "there is no network"); }

class Worker {
 public:
  Worker(const Subjects& subjects, std::string folder, const Network* network)
      : subjects_(subjects), folder_(std::move(folder)), network_(network) {}

  Result<void> work(const Task& task, Gathering& gathering, Outcome& outcome) {
    switch (task.act) {
      case Act::floor_create:
        return create_floor(task, outcome);
      case Act::floor_independent:
      case Act::floor_dependent:
      case Act::floor_compare_swap:
      case Act::floor_copy:
        return measure_floor(task, gathering, outcome);
      case Act::floor_close:
        floor_of(task).reset();
        unlink(floor_path(task).c_str());
        return {};
      case Act::harness:
        outcome.lap = measure_harness(subjects_[task.subject]->dataset(), task);
        return {};
      case Act::idle:
        outcome.processor_ns = processor_time_asleep_ns(task.seconds);
        return {};
      case Act::close:
        sessions_.erase(task.subject);
        return {};
      case Act::memory: {
        auto session = session_of(task.subject);
        if (!session) return std::unexpected(std::move(session.error()));
        auto memory = (*session)->memory();
        if (!memory) return std::unexpected(std::move(memory.error()));
        outcome.memory = *memory;
        return {};
      }
      case Act::load:
        return load(task, gathering, outcome);
      case Act::raw_reads:
        return read_raw(task, outcome);
      case Act::exchanges:
        return exchange(task, outcome);
      case Act::libfabric_reads:
        return read_by_libfabric(task, outcome);
      default:
        return drive(task, gathering, outcome);
    }
  }

 private:
  Result<void> drive(const Task& task, Gathering& gathering, Outcome& outcome) {
    auto session = session_of(task.subject);
    if (!session) return std::unexpected(std::move(session.error()));
    return Driver(**session, subjects_[task.subject]->dataset(), task, gathering, outcome).run();
  }

  Result<void> load(const Task& task, Gathering& gathering, Outcome& outcome) {
    Subject& subject = *subjects_[task.subject];
    const auto loader = subject.open_to_load();
    if (!loader) return std::unexpected(loader.error());
    if (*loader == nullptr) return drive(task, gathering, outcome);
    return Driver(**loader, subject.dataset(), task, gathering, outcome).run();
  }

  Result<void> read_raw(const Task& task, Outcome& outcome) {
    auto session = session_of(task.subject);
    if (!session) return std::unexpected(std::move(session.error()));
    const auto lap = (*session)->raw_reads(task.seconds, task.batch, outcome.reads);
    if (!lap) return std::unexpected(lap.error());
    outcome.lap = *lap;
    return {};
  }

  // With a process at the servers' end of the network.
  Result<void> exchange(const Task& task, Outcome& outcome) {
    if (network_ == nullptr) return no_network();
    using Server = Child<std::uint16_t>;
    const auto server = Server::start("exchanges", [&](const Server::Tell& tell) -> Result<void> {
      if (auto entered = network_->enter_servers(); !entered) return entered;
      confine(0, task.server_cores);
      const auto listener = net::listen({.host = network_->server_address(), .port = "0"});
      if (!listener) return std::unexpected(listener.error());
      tell(listener->port);
      return serve_exchanges(*listener);
    });
    if (!server) return std::unexpected(server.error());
    const auto port = server->hear(10 * base::second_ns);
    if (!port) return std::unexpected(port.error());
    const auto done = run_exchanges(
        {.host = network_->server_address(), .port = std::to_string(*port)},
        {.request_bytes = task.batch * task.request_bytes, .reply_bytes = task.batch * task.reply_bytes},
        task.seconds);
    if (!done) return std::unexpected(done.error());
    outcome.lap = done->lap;
    outcome.lap.operations *= task.batch;
    if (task.batch == 1) outcome.reads = done->latencies;  // else they are of whole exchanges
    return {};
  }

  Result<void> read_by_libfabric(const Task& task, Outcome& outcome) {
    if (network_ == nullptr) return no_network();
    const auto lap = run_libfabric_reads({.host = network_->server_address(),
                                          .network_namespace = network_->servers(),
                                          .target_cores = task.server_cores,
                                          .seconds = task.seconds,
                                          .outstanding = task.batch,
                                          .region_bytes = task.region_bytes});
    if (!lap) return std::unexpected(lap.error());
    outcome.lap = *lap;
    return {};
  }

  Result<Session*> session_of(std::uint32_t subject) {
    auto& session = sessions_[subject];
    if (!session) {
      auto opened = subjects_[subject]->open();
      if (!opened) return std::unexpected(std::move(opened.error()));
      session = std::move(*opened);
    }
    return session.get();
  }

  [[nodiscard]] std::string floor_path(const Task& task) const {
    return folder_ + (task.large_floor ? "/floor-large" : "/floor");
  }
  std::optional<Floor>& floor_of(const Task& task) { return floors_[task.large_floor ? 1 : 0]; }

  Result<void> create_floor(const Task& task, Outcome& outcome) {
    floor_of(task).reset();
    unlink(floor_path(task).c_str());
    auto floor = Floor::create(floor_path(task), task.floor_bytes, task.seed);
    if (!floor) return std::unexpected(std::move(floor.error()));
    outcome.memory = {
        .held_bytes = floor->bytes(), .used_bytes = floor->bytes(), .huge_bytes = floor->huge_bytes()};
    floor_of(task).emplace(std::move(*floor));
    return {};
  }

  Result<void> measure_floor(const Task& task, Gathering& gathering, Outcome& outcome) {
    auto& floor = floor_of(task);
    if (!floor) {
      auto attached = Floor::attach(floor_path(task));
      if (!attached) return std::unexpected(std::move(attached.error()));
      floor.emplace(std::move(*attached));
    }
    if (!gathering.arrive(task.workers))
      return fail(Errc::timed_out, "floor", "not all workers came to the start");
    const std::uint64_t seed = task.seed + task.worker;
    switch (task.act) {
      case Act::floor_independent:
        outcome.lap = floor->independent_reads(task.seconds, seed);
        break;
      case Act::floor_dependent:
        outcome.lap = floor->dependent_reads(task.seconds, seed);
        break;
      case Act::floor_compare_swap:
        outcome.lap = floor->compare_swaps(task.seconds, seed);
        break;
      default:
        outcome.lap = floor->copies(task.seconds, seed, task.copy_bytes);
    }
    return {};
  }

  const Subjects& subjects_;
  std::string folder_;
  const Network* network_;
  std::map<std::uint32_t, std::unique_ptr<Session>> sessions_;
  std::optional<Floor> floors_[2];
};

}  // namespace

Work make_work(const Subjects& subjects, const std::string& folder, const Network* network) {
  auto worker = std::make_shared<Worker>(subjects, folder, network);
  return [worker](const Task& task, Gathering& gathering, Outcome& outcome) {
    const std::uint64_t before_ns = processor_time_ns();
    const auto done = worker->work(task, gathering, outcome);
    if (task.act != Act::idle) outcome.processor_ns = processor_time_ns() - before_ns;
    if (!done) outcome.fail_with(done.error().detail.empty() ? done.error().message() : done.error().detail);
  };
}

}  // namespace loch::bench
