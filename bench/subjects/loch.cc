// Loch itself, through its public interface.

#include <chrono>
#include <tuple>
#include <utility>

#include <loch/loch.h>

#include "bench/subject.h"

namespace loch::bench {
namespace {

constexpr std::size_t measured_batch = 16;

class LochSession final : public Session {
 public:
  explicit LochSession(Store store) : store_(std::move(store)) {}

  Result<void> get(std::string_view key, std::string& into) override { return store_.get(key, into); }
  Result<void> put(std::string_view key, std::string_view value) override { return store_.put(key, value); }
  void multi_get(std::span<Lookup> lookups) override { store_.multi_get(lookups); }
  void multi_put(std::span<Assignment> assignments) override { store_.multi_put(assignments); }

  Result<MemoryUse> memory() override {
    const auto info = store_.info();
    if (!info) return std::unexpected(info.error());
    MemoryUse use;
    use.held_bytes = info->index_bytes + info->control_bytes + info->data_bytes;
    use.used_bytes = use.held_bytes - info->blocks_free * info->block_bytes;
    use.huge_bytes = info->huge_page_bytes;
    return use;
  }

 private:
  Store store_;
};

class LochSubject final : public Subject {
 public:
  LochSubject(const std::string& folder, std::string name, const Dataset& dataset)
      : name_(std::move(name)), url_("shm://" + name_), dataset_(dataset) {
    options_.directory = folder;
    options_.timeout = std::chrono::seconds(10);
  }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Batches batches() const override { return {.gets = "16 keys", .puts = "16 keys"}; }
  [[nodiscard]] std::size_t batch() const override { return measured_batch; }
  [[nodiscard]] const Dataset& dataset() const override { return dataset_; }

  Result<void> start() override { return {}; }  // the first session creates the store

  Result<std::unique_ptr<Session>> open() override {
    auto store = Store::open(url_, options_);
    if (!store) return std::unexpected(std::move(store.error()));
    return std::make_unique<LochSession>(std::move(*store));
  }

  void stop() noexcept override { std::ignore = Store::destroy(url_, options_); }

 private:
  std::string name_;
  std::string url_;
  Dataset dataset_;
  Options options_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_loch(const std::string& folder, std::string name,
                                           const Dataset& dataset) {
  return std::make_unique<LochSubject>(folder, std::move(name), dataset);
}

}  // namespace loch::bench
