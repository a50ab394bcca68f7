#include "bench/pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <semaphore.h>
#include <sys/mman.h>
#include <utility>

#include "bench/clock.h"
#include "bench/cores.h"
#include "lab/interrupt.h"

namespace loch::bench {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t look_around_ns =
    100'000'000;  // between two looks whether a worker died or the user wants out
constexpr std::uint64_t arrival_ns_max = 10 * second_ns;
constexpr std::uint64_t quit_ns_max = 5 * second_ns;
constexpr double task_seconds_max = 600;  // beyond the time that the task itself was given

bool wait_until(sem_t& semaphore, std::uint64_t deadline_ns) {
  const timespec deadline{.tv_sec = static_cast<time_t>(deadline_ns / second_ns),
                          .tv_nsec = static_cast<long>(deadline_ns % second_ns)};
  return sem_clockwait(&semaphore, CLOCK_MONOTONIC, &deadline) == 0;
}

}  // namespace

struct Pool::Shared final : Gathering {
  struct Slot {
    sem_t go;
    sem_t done;
    bool quit = false;
    Task task;
    Outcome outcome;
  };
  struct alignas(64) Inserted {
    std::atomic<std::uint64_t> count = 0;
  };

  bool arrive(std::uint32_t workers) override {
    // acquire and release: whoever leaves sees what the others did before they came.
    arrived.fetch_add(1, std::memory_order_acq_rel);
    const std::uint64_t deadline_ns = now_ns() + arrival_ns_max;
    while (arrived.load(std::memory_order_acquire) < workers) {
      if (first_failed.load(std::memory_order_relaxed) != nobody || now_ns() > deadline_ns) return false;
    }
    return true;
  }
  void set_inserted(std::uint32_t worker, std::uint64_t count) override {
    // release: pairs with the acquire below; the items were put before they are counted.
    inserts[worker].count.store(count, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t inserted(std::uint32_t worker) const override {
    return inserts[worker].count.load(std::memory_order_acquire);
  }

  // Those that fail after it may do so because of it.
  void note_failure(std::size_t worker) {
    std::size_t expected = nobody;
    first_failed.compare_exchange_strong(expected, worker, std::memory_order_relaxed);
  }

  static constexpr std::size_t nobody = workers_max;
  std::atomic<std::uint32_t> arrived = 0;
  std::atomic<std::size_t> first_failed = nobody;  // read by the pool when all workers are done
  std::array<Inserted, workers_max> inserts;
  std::array<Slot, workers_max> slots;
};

Result<Pool> Pool::make(std::size_t workers, const std::function<Work()>& make_work) {
  if (workers == 0 || workers > workers_max) {
    return fail(Errc::invalid_argument, "bench", fmt::format("{} processes: 1 to {}", workers, workers_max));
  }
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(Errc::io, "bench", fmt::format("mmap: {}", std::strerror(errno)));
  Pool pool;
  pool.shared_ = new (memory) Shared;
  pool.outcomes_.resize(workers);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    sem_init(&pool.shared_->slots[worker].go, 1, 0);
    sem_init(&pool.shared_->slots[worker].done, 1, 0);
    auto child = lab::Process::fork([&] {
      serve(*pool.shared_, worker, make_work());
      return 0;
    });
    if (!child) return std::unexpected(std::move(child.error()));
    pool.processes_.push_back(std::move(*child));
  }
  return pool;
}

void Pool::serve(Shared& shared, std::size_t worker, const Work& work) {
  Shared::Slot& slot = shared.slots[worker];
  for (;;) {
    // Without a deadline: the kernel ends this process when the one that gives the tasks ends.
    while (sem_wait(&slot.go) != 0) {
    }
    if (slot.quit) return;
    slot.outcome = Outcome{};
    confine(0, slot.task.cores);
    work(slot.task, shared, slot.outcome);
    if (slot.outcome.failed()) shared.note_failure(worker);
    sem_post(&slot.done);
  }
}

Result<std::span<const Outcome>> Pool::run(const Task& task, std::size_t workers) {
  shared_->arrived.store(0, std::memory_order_relaxed);
  shared_->first_failed.store(Shared::nobody, std::memory_order_relaxed);
  for (auto& inserts : shared_->inserts) inserts.count.store(0, std::memory_order_relaxed);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    Task& given = shared_->slots[worker].task;
    given = task;
    given.worker = static_cast<std::uint32_t>(worker);
    given.workers = static_cast<std::uint32_t>(workers);
  }
  for (std::size_t worker = 0; worker < workers; ++worker) sem_post(&shared_->slots[worker].go);
  const auto budget_ns = static_cast<std::uint64_t>((task.seconds + task_seconds_max) * 1e9);
  const std::uint64_t deadline_ns = now_ns() + budget_ns;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    if (auto waited = wait_for(worker, deadline_ns); !waited)
      return std::unexpected(std::move(waited.error()));
    outcomes_[worker] = shared_->slots[worker].outcome;
  }
  const std::size_t failed = shared_->first_failed.load(std::memory_order_relaxed);
  if (failed != Shared::nobody) return fail(Errc::io, "bench", outcomes_[failed].failure.data());
  return std::span<const Outcome>(outcomes_).first(workers);
}

Result<void> Pool::wait_for(std::size_t worker, std::uint64_t deadline_ns) {
  while (!wait_until(shared_->slots[worker].done, now_ns() + look_around_ns)) {
    if (lab::interrupted()) return fail(Errc::cancelled, "bench", "interrupted");
    for (lab::Process& process : processes_) {
      const auto ended = process.wait_for_end({});
      if (!ended) continue;
      return fail(Errc::io, "bench",
                  ended->signal != 0
                      ? fmt::format("worker {} was killed by signal {}", process.id(), ended->signal)
                      : fmt::format("worker {} ended with {}", process.id(), ended->exit_code));
    }
    if (now_ns() > deadline_ns) {
      return fail(Errc::timed_out, "bench", fmt::format("worker {} did not finish its task", worker));
    }
  }
  return {};
}

Pool::Pool(Pool&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)),
      processes_(std::exchange(other.processes_, {})),
      outcomes_(std::move(other.outcomes_)) {}

Pool::~Pool() {
  if (shared_ == nullptr) return;
  for (std::size_t worker = 0; worker < processes_.size(); ++worker) {
    shared_->slots[worker].quit = true;
    sem_post(&shared_->slots[worker].go);
  }
  const std::uint64_t deadline_ns = now_ns() + quit_ns_max;
  for (lab::Process& process : processes_) {
    // One that does not end in time, or at Ctrl-C, is killed.
    while (!process.wait_for_end(std::chrono::nanoseconds(look_around_ns))) {
      if (lab::interrupted() || now_ns() > deadline_ns) process.kill();
    }
  }
  munmap(shared_, sizeof(Shared));
}

}  // namespace loch::bench
