#include "server/keeper.h"

#include <chrono>
#include <utility>
#include <vector>

#include "memory/store_memory.h"

namespace loch::server {

Keeper::Keeper(fabric::Access access) : access_(std::move(access)), thread_([this] { run(); }) {}

Keeper::~Keeper() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<std::shared_ptr<fabric::Fabric>> Keeper::open(const std::string& name) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto kept = kept_[name].lock(); kept != nullptr && kept->fabric->is_published())
      return std::shared_ptr<fabric::Fabric>(kept, kept->fabric.get());
  }
  auto attached = fabric::attach("shm://" + name, access_);
  if (!attached) return attached;
  auto memory = memory::StoreMemory::attach(*attached);
  if (!memory) return std::unexpected(std::move(memory.error()));
  auto session = memory::Session::open(*memory);
  if (!session) return std::unexpected(std::move(session.error()));
  const auto kept =
      std::make_shared<Kept>(Kept{.fabric = std::move(*attached), .session = std::move(*session)});
  {
    const std::scoped_lock lock(mutex_);
    kept_[name] = kept;
  }
  changed_.notify_all();
  return std::shared_ptr<fabric::Fabric>(kept, kept->fabric.get());
}

std::map<std::string, Stats> Keeper::totals() {
  std::map<std::string, Stats> totals;
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, weak] : kept_) {
    if (const auto kept = weak.lock()) totals[name] = kept->session->totals();
  }
  return totals;
}

std::uint64_t Keeper::count() { return totals().size(); }

void Keeper::tick() {
  for (const auto& [name, weak] : kept_) {
    const auto kept = weak.lock();
    // Raises the latest time, as every operation does.
    if (kept != nullptr) kept->session->end_operation(kept->session->begin_operation());
  }
  std::erase_if(kept_, [](const auto& each) { return each.second.expired(); });
}

void Keeper::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    tick();
    if (kept_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(tick_ns));
    }
  }
}

}  // namespace loch::server
