// demo/crew: the processes of the demonstration, and the memory in which they say what they did.
//
// I1 What a writer counts in `acknowledged` it has had a success for; it counts before it goes on. So whoever
//    sees a record counted must find it in the store, whatever happens to the writer.
// I2 The main process opens no store while it still forks: a store does not cross a fork.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <loch/loch.h>

#include "bench/clock.h"
#include "bench/histogram.h"
#include "demo/packages.h"
#include "lab/process.h"

namespace loch::demo {

inline constexpr std::size_t writer_count = 2;
inline constexpr std::size_t slot_count = 6;
// Which slot of the board is whose.
inline constexpr std::size_t writer_1_slot = 0;
inline constexpr std::size_t writer_2_slot = 1;     // is killed, but on a cluster
inline constexpr std::size_t checker_slot = 2;      // on a cluster looks what is there all the time
inline constexpr std::size_t late_writer_slot = 3;  // writer 2 again; on a cluster loads what was lost
inline constexpr std::size_t reader_1_slot = 4;
inline constexpr std::size_t reader_2_slot = 5;
// What a process of the demonstration returns when it said in its slot what went wrong.
inline constexpr int exit_failed = 1;

// What one process says. Written by it alone; others read the atomics and what_failed() while it runs, and
// the rest when it has ended.
class Slot {
 public:
  std::atomic<std::uint64_t> operations{0};   // that found or stored a value
  std::atomic<std::uint64_t> misses{0};       // reads of what nobody had stored yet, or what was lost
  std::atomic<std::uint64_t> unavailable{0};  // the host that has the record could not be reached
  std::atomic<std::uint64_t> began_ns{0};
  std::atomic<std::uint64_t> ended_ns{0};  // of its last operation
  bench::Histogram latency;

  void fail(std::string_view what);
  // Empty: nothing did.
  [[nodiscard]] std::string_view what_failed() const {
    // acquire: pairs with the release in fail(); the text is whole before it is read.
    return has_failed_.load(std::memory_order_acquire) ? error_.data() : "";
  }

 private:
  std::array<char, 512> error_{};
  std::atomic<bool> has_failed_{false};
};

struct Board {
  std::atomic<bool> stop{false};
  std::array<std::atomic<std::uint64_t>, writer_count> acknowledged{};  // records of each writer's part
  std::array<Slot, slot_count> slots;

  // How many records have been, of all parts.
  [[nodiscard]] std::uint64_t stored() const;
};

// The part of the records that a writer stores: [begin, end).
struct Part {
  std::size_t index = 0;
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};
Part part_of(std::size_t writer, std::size_t records);

// Everything that a process of the demonstration needs.
struct Scene {
  const Packages& packages;
  Board& board;
  std::string url;
  Options options;
  int half_done;  // a pipe's end: a writer that was told to says there when half of its part is stored
};

// Opens the store for a process; says in the slot why not.
std::optional<Store> open_store(const Scene& scene, Slot& slot);

// Runs one operation on the store, and notes its time.
template <class Operation>
auto timed(Slot& slot, Operation operation) {
  const std::uint64_t before_ns = bench::now_ns();
  auto result = operation();
  const std::uint64_t after_ns = bench::now_ns();
  slot.latency.record(after_ns - before_ns);
  slot.ended_ns.store(after_ns, std::memory_order_relaxed);
  return result;
}

// What the processes do; each returns an exit code, and says in its slot what went wrong.
int write_records(const Scene& scene, Slot& slot, Part part, bool tell_half);  // from where the part stands
int read_records(const Scene& scene, Slot& slot, std::uint64_t seed);          // until the board says stop
int check_acknowledged(const Scene& scene, Slot& slot, Part part);

// A process of the demonstration; a Ctrl-C is for the main process, which ends the others.
Result<lab::Process> begin(const std::function<int()>& work);

// Some Ts in memory that forked processes share.
Result<void*> map_shared(std::size_t length_bytes);
void unmap_shared(void* memory, std::size_t length_bytes);

template <class T>
class Shared {
 public:
  static Result<Shared> make(std::size_t count = 1) {
    const auto memory = map_shared(count * sizeof(T));
    if (!memory) return std::unexpected(memory.error());
    Shared made(static_cast<T*>(*memory), count);
    std::uninitialized_value_construct_n(made.first_, count);
    return made;
  }
  Shared(Shared&& other) noexcept : first_(std::exchange(other.first_, nullptr)), count_(other.count_) {}
  Shared& operator=(Shared&&) = delete;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (first_ == nullptr) return;
    std::destroy_n(first_, count_);
    unmap_shared(first_, count_ * sizeof(T));
  }

  T& operator*() const { return *first_; }
  T* operator->() const { return first_; }
  [[nodiscard]] std::span<T> all() const { return {first_, count_}; }

 private:
  Shared(T* first, std::size_t count) : first_(first), count_(count) {}

  T* first_;
  std::size_t count_;
};

}  // namespace loch::demo
