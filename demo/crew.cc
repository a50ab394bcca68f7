#include "demo/crew.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace loch::demo {
namespace {

bool put_record(Store& store, Slot& slot, const Package& package) {
  const auto stored = timed(slot, [&] { return store.put(package.key, package.stanza); });
  if (!stored) {
    slot.fail(fmt::format("{}: {}", package.key, stored.error().message()));
    return false;
  }
  slot.operations.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::size_t part_index(std::size_t record, std::size_t records) {
  return record < part_of(0, records).end ? 0 : 1;
}

}  // namespace

std::optional<Store> open_store(const Scene& scene, Slot& slot) {
  auto store = Store::open(scene.url, scene.options);
  if (!store) {
    slot.fail(store.error().message());
    return std::nullopt;
  }
  slot.began_ns.store(bench::now_ns(), std::memory_order_relaxed);
  return std::move(*store);
}

void Slot::fail(std::string_view what) {
  const std::size_t length = std::min(what.size(), error_.size() - 1);
  std::memcpy(error_.data(), what.data(), length);
  error_[length] = '\0';
  has_failed_.store(true, std::memory_order_release);
}

std::uint64_t Board::stored() const {
  std::uint64_t sum = 0;
  for (const auto& count : acknowledged) sum += count.load(std::memory_order_acquire);
  return sum;
}

Part part_of(std::size_t writer, std::size_t records) {
  return {.index = writer,
          .begin = records * writer / writer_count,
          .end = records * (writer + 1) / writer_count};
}

int write_records(const Scene& scene, Slot& slot, Part part, bool tell_half) {
  auto store = open_store(scene, slot);
  if (!store) return exit_failed;
  std::atomic<std::uint64_t>& acknowledged = scene.board.acknowledged[part.index];
  // acquire: whoever restarts a writer goes on from where the dead one was.
  for (std::size_t done = acknowledged.load(std::memory_order_acquire); done < part.size(); ++done) {
    if (!put_record(*store, slot, scene.packages[part.begin + done])) return exit_failed;
    // release: pairs with the readers' acquire; the value is in the store before it is counted (I1).
    acknowledged.store(done + 1, std::memory_order_release);
    if (tell_half && done + 1 == (part.size() + 1) / 2 && ::write(scene.half_done, "", 1) != 1) {
      slot.fail(fmt::format("cannot tell that half is done: {}", std::strerror(errno)));
      return exit_failed;
    }
  }
  // Then the same records again and again, for the readers to meet changes.
  std::mt19937_64 random(part.index);
  while (!scene.board.stop.load(std::memory_order_relaxed)) {
    const std::size_t record = part.begin + random() % part.size();
    if (!put_record(*store, slot, scene.packages[record])) return exit_failed;
  }
  return 0;
}

int read_records(const Scene& scene, Slot& slot, std::uint64_t seed) {
  auto store = open_store(scene, slot);
  if (!store) return exit_failed;
  std::mt19937_64 random(seed);
  std::string value;
  while (!scene.board.stop.load(std::memory_order_relaxed)) {
    const std::size_t record = random() % scene.packages.size();
    const Package& package = scene.packages[record];
    const Part part = part_of(part_index(record, scene.packages.size()), scene.packages.size());
    // acquire: pairs with the writer's release; what is counted now must be found below.
    const std::uint64_t acknowledged = scene.board.acknowledged[part.index].load(std::memory_order_acquire);
    const auto got = timed(slot, [&] { return store->get(package.key, value); });
    if (got && value == package.stanza) {
      slot.operations.fetch_add(1, std::memory_order_relaxed);
    } else if (got) {
      slot.fail(fmt::format("{}: {} bytes were read that are not its stanza", package.key, value.size()));
      return exit_failed;
    } else if (got.error().code != Errc::not_found) {
      slot.fail(fmt::format("{}: {}", package.key, got.error().message()));
      return exit_failed;
    } else if (record - part.begin < acknowledged) {
      slot.fail(fmt::format("{}: not there, although its put had succeeded", package.key));
      return exit_failed;
    } else {
      slot.misses.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return 0;
}

int check_acknowledged(const Scene& scene, Slot& slot, Part part) {
  auto store = open_store(scene, slot);
  if (!store) return exit_failed;
  std::string value;
  const std::uint64_t acknowledged = scene.board.acknowledged[part.index].load(std::memory_order_acquire);
  for (std::size_t i = 0; i < acknowledged; ++i) {
    const Package& package = scene.packages[part.begin + i];
    const auto got = timed(slot, [&] { return store->get(package.key, value); });
    if (!got || value != package.stanza) {
      slot.fail(fmt::format("{}: {}", package.key, got ? "not its stanza" : got.error().message()));
      return exit_failed;
    }
    slot.operations.fetch_add(1, std::memory_order_relaxed);
  }
  return 0;
}

Result<lab::Process> begin(const std::function<int()>& work) {
  return lab::Process::fork([&work] {
    ::signal(SIGINT, SIG_IGN);
    return work();
  });
}

Result<void*> map_shared(std::size_t length_bytes) {
  void* memory = ::mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return loch::fail(Errc::io, "mmap", std::strerror(errno));
  return memory;
}

void unmap_shared(void* memory, std::size_t length_bytes) { ::munmap(memory, length_bytes); }

}  // namespace loch::demo
