// LMDB with its environment in memory and everything that makes it faster there: no sync, a writable map, a
// reader's transaction that is renewed for each get. A put is a transaction of its own; a batch is one
// transaction.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fmt/format.h>
#include <lmdb.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "bench/subject.h"

namespace loch::bench {
namespace {

constexpr std::size_t measured_batch = 64;
constexpr unsigned environment_flags =
    MDB_NOSYNC | MDB_NOMETASYNC | MDB_WRITEMAP | MDB_NORDAHEAD | MDB_NOTLS | MDB_NOMEMINIT;

std::unexpected<Error> lmdb_failure(const char* step, int number) {
  const Errc code = number == MDB_NOTFOUND                       ? Errc::not_found
                    : number == MDB_MAP_FULL || number == ENOSPC ? Errc::no_space
                                                                 : Errc::io;
  return fail(code, "lmdb", fmt::format("{}: {}", step, mdb_strerror(number)));
}

MDB_val value_of(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }

class LmdbSession final : public Session {
 public:
  static Result<std::unique_ptr<Session>> open(const std::string& folder, std::size_t map_bytes) {
    auto session = std::make_unique<LmdbSession>();
    int number = mdb_env_create(&session->environment_);
    if (number == 0) number = mdb_env_set_mapsize(session->environment_, map_bytes);
    if (number == 0) number = mdb_env_open(session->environment_, folder.c_str(), environment_flags, 0600);
    if (number != 0) return lmdb_failure("open the environment", number);
    MDB_txn* opening = nullptr;
    number = mdb_txn_begin(session->environment_, nullptr, 0, &opening);
    if (number != 0) return lmdb_failure("begin", number);
    number = mdb_dbi_open(opening, nullptr, 0, &session->database_);
    if (number == 0) number = mdb_txn_commit(opening);
    if (number == 0) number = mdb_txn_begin(session->environment_, nullptr, MDB_RDONLY, &session->reader_);
    if (number != 0) return lmdb_failure("open the database", number);
    mdb_txn_reset(session->reader_);
    session->data_path_ = folder + "/data.mdb";
    return session;
  }

  LmdbSession() = default;
  LmdbSession(const LmdbSession&) = delete;
  LmdbSession& operator=(const LmdbSession&) = delete;
  ~LmdbSession() override {
    if (reader_ != nullptr) mdb_txn_abort(reader_);
    if (environment_ != nullptr) mdb_env_close(environment_);
  }

  Result<void> get(std::string_view key, std::string& into) override {
    if (const int number = mdb_txn_renew(reader_); number != 0) return lmdb_failure("renew", number);
    auto result = read(key, into);
    mdb_txn_reset(reader_);
    return result;
  }

  void multi_get(std::span<Lookup> lookups) override {
    const int number = mdb_txn_renew(reader_);
    for (Lookup& lookup : lookups) {
      if (number != 0) {
        lookup.result = lmdb_failure("renew", number);
      } else {
        lookup.result = read(lookup.key, lookup.value);
      }
    }
    if (number == 0) mdb_txn_reset(reader_);
  }

  Result<void> put(std::string_view key, std::string_view value) override {
    Assignment assignment{.key = key, .value = value};
    multi_put({&assignment, 1});
    return assignment.result;
  }

  void multi_put(std::span<Assignment> assignments) override {
    MDB_txn* writer = nullptr;
    int number = mdb_txn_begin(environment_, nullptr, 0, &writer);
    for (const Assignment& assignment : assignments) {
      if (number != 0) break;
      MDB_val key = value_of(assignment.key);
      MDB_val value = value_of(assignment.value);
      number = mdb_put(writer, database_, &key, &value, 0);
    }
    if (number == 0) {
      number = mdb_txn_commit(writer);
    } else if (writer != nullptr) {
      mdb_txn_abort(writer);
    }
    for (Assignment& assignment : assignments) {
      if (number == 0) {
        assignment.result = {};
      } else {
        assignment.result = lmdb_failure("put", number);
      }
    }
  }

  Result<MemoryUse> memory() override {
    struct stat status{};
    MDB_envinfo info{};
    MDB_stat pages{};
    if (stat(data_path_.c_str(), &status) != 0) return lmdb_failure("measure the file", errno);
    mdb_env_info(environment_, &info);
    mdb_env_stat(environment_, &pages);
    return MemoryUse{.held_bytes = static_cast<std::uint64_t>(status.st_blocks) * 512,
                     .used_bytes = (info.me_last_pgno + 1) * pages.ms_psize};
  }

 private:
  Result<void> read(std::string_view key, std::string& into) {
    MDB_val wanted = value_of(key);
    MDB_val found{};
    const int number = mdb_get(reader_, database_, &wanted, &found);
    if (number != 0) [[unlikely]]
      return lmdb_failure("get", number);
    into.assign(static_cast<const char*>(found.mv_data), found.mv_size);
    return {};
  }

  MDB_env* environment_ = nullptr;
  MDB_txn* reader_ = nullptr;
  MDB_dbi database_ = 0;
  std::string data_path_;
};

class LmdbSubject final : public Subject {
 public:
  LmdbSubject(const Place& place, const Dataset& dataset)
      : name_(place.name), folder_(place.folder + "/" + place.name), dataset_(dataset) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] Batches batches() const override {
    return {.gets = "transaction of 64", .puts = "transaction of 64"};
  }
  [[nodiscard]] std::size_t batch() const override { return measured_batch; }
  [[nodiscard]] const Dataset& dataset() const override { return dataset_; }

  Result<void> start() override {
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    if (failure) return fail(Errc::io, "lmdb", fmt::format("make {}: {}", folder_, failure.message()));
    return {};
  }

  Result<std::unique_ptr<Session>> open() override {
    // Addresses only, not memory: room for half-full pages and for the pages that updates copy.
    const std::size_t item_bytes = dataset_.key_bytes() + 2 * dataset_.value_bytes() + 64;
    return LmdbSession::open(folder_, (std::size_t{1} << 30) + dataset_.items() * item_bytes * 4);
  }

  void stop() noexcept override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string name_;
  std::string folder_;
  Dataset dataset_;
};

}  // namespace

// By value, as of all subjects.
Result<std::unique_ptr<Subject>> make_lmdb(Place place,  // NOLINT(performance-unnecessary-value-param)
                                           const Dataset& dataset) {
  constexpr std::size_t key_bytes_most = 511;  // MDB_MAXKEYSIZE of Debian's build
  if (dataset.key_bytes() > key_bytes_most) {
    return fail(Errc::invalid_argument, "lmdb",
                fmt::format("keys of {} B: LMDB takes at most {}", dataset.key_bytes(), key_bytes_most));
  }
  return std::make_unique<LmdbSubject>(place, dataset);
}

}  // namespace loch::bench
