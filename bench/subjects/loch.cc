// Loch itself, through its public interface: a store in memory that is shared, or one that lochd lends over
// TCP.
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <loch/loch.h>

#include "bench/raw_reads.h"
#include "bench/subject.h"
#include "lab/lochds.h"
#include "lab/process.h"

namespace loch::bench {
namespace {

constexpr std::size_t measured_batch = 16;
constexpr std::chrono::seconds call_timeout{10};

class LochSession final : public Session {
 public:
  LochSession(Store store, std::string url, Options options)
      : store_(std::move(store)), url_(std::move(url)), options_(std::move(options)) {}

  Result<void> get(std::string_view key, std::string& into) override { return store_.get(key, into); }
  void get_each(std::span<Lookup> lookups) override { get_one_by_one(store_, lookups); }
  Result<void> put(std::string_view key, std::string_view value) override {
    const auto put = store_.put(key, value);
    return put ? Result<void>{} : std::unexpected(put.error());
  }
  void multi_get(std::span<Lookup> lookups) override { store_.multi_get(lookups); }
  void multi_put(std::span<Assignment> assignments) override { store_.multi_put(assignments); }

  Result<MemoryUse> memory() override {
    const auto info = store_.info();
    if (!info) return std::unexpected(info.error());
    MemoryUse use;
    use.held_bytes = info->index_bytes + info->control_bytes + info->data_bytes;
    use.used_bytes = use.held_bytes - info->blocks_free * info->block_bytes;
    use.huge_bytes = info->huge_page_bytes;
    use.raw_bytes = info->index_bytes;
    return use;
  }

  Result<Lap> raw_reads(double seconds, std::size_t outstanding, Histogram& latencies) override {
    auto reads = RawReads::attach(url_, options_.key_file);
    if (!reads) return std::unexpected(std::move(reads.error()));
    return reads->run(seconds, outstanding, latencies);
  }

 private:
  Store store_;
  std::string url_;
  Options options_;
};

class LochSubject final : public Subject {
 public:
  LochSubject(Place place, const Dataset& dataset)
      : place_(std::move(place)), here_("shm://" + place_.name), dataset_(dataset) {
    options_.directory = place_.folder;
    options_.timeout = call_timeout;
    if (place_.network != nullptr) options_.key_file = place_.file("key");
  }

  [[nodiscard]] std::string_view name() const override { return place_.name; }
  [[nodiscard]] Batches batches() const override { return {.gets = "16 keys", .puts = "16 keys"}; }
  [[nodiscard]] std::size_t batch() const override { return measured_batch; }
  [[nodiscard]] const Dataset& dataset() const override { return dataset_; }

  // Without lochd the first session creates the store.
  Result<void> start() override {
    if (place_.network == nullptr) return {};
    if (auto created = Store::open(here_, options_); !created)
      return std::unexpected(std::move(created.error()));
    if (auto made = make_key(); !made) return made;
    const auto port = place_.choose_port();
    if (!port) return std::unexpected(port.error());
    const auto ready = [this] { return open().has_value(); };
    auto server = lab::Process::start_until(
        {.words = {place_.lochd, "--listen", fmt::format("{}:{}", place_.host(), *port), "--directory",
                   place_.folder, "--key-file", options_.key_file},
         .log = place_.file("log"),
         .network_namespace = place_.network_namespace()},
        ready, std::chrono::seconds(20));
    if (!server) return std::unexpected(std::move(server.error()));
    server_.emplace(std::move(*server));
    return {};
  }

  Result<std::unique_ptr<Session>> open() override {
    if (place_.network == nullptr) return open(here_);
    return open(fmt::format("tcp://{}:{}/{}", place_.host(), place_.port(), place_.name));
  }
  // What lochd lends is in memory of this host.
  Result<std::unique_ptr<Session>> open_to_load() override {
    if (place_.network == nullptr) return nullptr;
    return open(here_);
  }

  void stop() noexcept override {
    server_.reset();
    std::ignore = Store::destroy(here_, options_);
  }
  [[nodiscard]] pid_t server() const override { return server_ ? server_->id() : 0; }

 private:
  [[nodiscard]] Result<std::unique_ptr<Session>> open(const std::string& url) const {
    return open_loch(url, options_);
  }

  // lochd lends nothing beyond its own host without a key.
  [[nodiscard]] Result<void> make_key() const {
    const base::FileDescriptor file(
        ::open(options_.key_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    constexpr std::string_view key = "the key of a benchmark, which guards nothing";
    if (::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
      return fail(Errc::io, "bench", fmt::format("{} can not be written", options_.key_file));
    return {};
  }

  Place place_;
  std::string here_;
  Dataset dataset_;
  Options options_;
  std::optional<lab::Process> server_;
};

}  // namespace

Result<std::unique_ptr<Session>> open_loch(const std::string& url, const Options& options) {
  auto store = Store::open(url, options);
  if (!store) return std::unexpected(std::move(store.error()));
  return std::make_unique<LochSession>(std::move(*store), url, options);
}

Result<std::unique_ptr<Subject>> make_loch(Place place, const Dataset& dataset) {
  if (place.network != nullptr) {
    auto program = lab::find_lochd(place.lochd);
    if (!program) return std::unexpected(std::move(program.error()));
    place.lochd = std::move(*program);
  }
  return std::make_unique<LochSubject>(std::move(place), dataset);
}

}  // namespace loch::bench
