// What fabric.h promises, as tests of any backend: written against fabric.h and endpoint.h alone
// (conformance_*test.cc). A test binary instantiates them with the backends that it has.
#pragma once

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <expected>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/fabric.h"
#include "fabric/host.h"
#include "lab/temp_folder.h"

namespace loch::fabric::conformance {

// Of a cluster of two both are on one node.
inline constexpr RegionId small_region = 2;
inline constexpr std::uint64_t small_bytes = 4'096;
inline constexpr RegionId large_region = 4;
inline constexpr std::uint64_t large_bytes = 262'144;

// A store made by `plan`; `attach` is the way of one more process.
class World {
 public:
  virtual ~World() = default;
  virtual std::shared_ptr<Fabric> attach() = 0;
  // Of one that may only read. Null if the backend knows none.
  virtual std::shared_ptr<Fabric> attach_to_read() { return nullptr; }

  // The words that such a session of a client number may write.
  static OwnWords own_words(std::uint32_t client) {
    constexpr std::uint64_t bytes_of_each = 128;
    const Address at{small_region, 1'024 + client * bytes_of_each};
    return {.first = {.at = at, .length_bytes = 64}, .second = {.at = at + 96, .length_bytes = 16}};
  }
  // Nobody can have this one.
  static constexpr std::uint32_t client_of_nobody = 9;
  [[nodiscard]] Readers readers() {
    return {.admit = [](Fabric& /*store*/, std::uint32_t client) -> Result<std::optional<OwnWords>> {
              if (client == client_of_nobody) return std::nullopt;
              return own_words(client);
            },
            .dismiss = [this](Fabric& /*store*/, std::uint32_t client) { dismissed = client; }};
  }
  std::atomic<std::uint32_t> dismissed = 0;  // the last
};

struct Backend {
  const char* name;
  std::function<std::unique_ptr<World>(const Plan& plan)> make;
  std::size_t times_fewer = 1;  // where it is slow: so many fewer operations, where a test does many
};
// For lists of tests, which would show the bytes of it.
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

// In files. One whose words are a device's to change is mapped to be lent.
class ShmWorld final : public World {
 public:
  explicit ShmWorld(const Plan& plan) {
    const auto created = create(url, access_, plan);
    EXPECT_TRUE(created.has_value()) << created.error().message();
  }
  ~ShmWorld() override { EXPECT_TRUE(destroy(url, access_).has_value()); }
  std::shared_ptr<Fabric> attach() override { return fabric::attach(url, access_).value(); }

 private:
  static constexpr const char* url = "shm://conformance";
  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const Access access_{.directory = temp_.path(), .group = {}, .huge_pages = false, .lends = true};
};

// A store in files, reached from `source` as from another host, on which it is lent at `address`.
class HostWorld final : public World {
 public:
  HostWorld(const Plan& plan, std::string scheme, const std::string& address, std::string source)
      : files_(plan), scheme_(std::move(scheme)), address_(address), access_{.source = std::move(source)} {
    auto host = Host::start({.listen = {{.host = address, .port = "0"}},
                             .verbs = scheme_ == "verbs",
                             .open_store = [this](const std::string&) { return files_.attach(); },
                             .readers = readers()});
    EXPECT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
  }
  std::shared_ptr<Fabric> attach() override { return fabric::attach(url(), access_).value(); }
  std::shared_ptr<Fabric> attach_to_read() override {
    Access access = access_;
    access.read_only = true;
    return fabric::attach(url(), access).value();
  }
  [[nodiscard]] Host& host() { return *host_; }

 private:
  [[nodiscard]] std::string url() const {
    return fmt::format("{}://{}:{}/conformance", scheme_, address_, host_->ports().at(0));
  }

  ShmWorld files_;
  std::string scheme_;
  std::string address_;
  Access access_;
  std::unique_ptr<Host> host_;
};

// ---- the operations, blocking

inline coro::Task<Result<void>> read_words_task(Endpoint* e, std::span<const Address> at,
                                                std::uint64_t* into) {
  co_return co_await e->read_words(at, into);
}
inline coro::Task<Result<std::uint64_t>> read_word_task(Endpoint* e, Address at) {
  co_return co_await e->read_word(at);
}
inline coro::Task<Result<std::uint64_t>> compare_swap_task(Endpoint* e, Address at, std::uint64_t expected,
                                                           std::uint64_t desired) {
  co_return co_await e->compare_swap(at, expected, desired);
}
inline coro::Task<Result<std::uint64_t>> fetch_add_task(Endpoint* e, Address at, std::uint64_t added) {
  co_return co_await e->fetch_add(at, added);
}
inline coro::Task<Result<void>> write_word_task(Endpoint* e, Address at, std::uint64_t value) {
  co_return co_await e->write_word(at, value);
}
inline coro::Task<Result<void>> write_task(Endpoint* e, Address at, std::span<const std::byte> bytes) {
  co_return co_await e->write(at, bytes);
}
inline coro::Task<Result<std::string>> fetch_task(Endpoint* e, Address at, std::size_t length) {
  auto bytes = co_await e->fetch(at, length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  EXPECT_EQ(bytes->size(), length);
  co_return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

inline coro::Task<Result<void>> perform_task(Endpoint* e, std::span<Operation> operations, Urgency urgency) {
  co_return co_await e->perform(operations, urgency);
}

// A session of a process of its own.
struct Session {
  std::shared_ptr<Fabric> fabric;
  Endpoint endpoint;

  explicit Session(World& world) : Session(world.attach()) {}
  explicit Session(std::shared_ptr<Fabric> f) : fabric(std::move(f)), endpoint(fabric, fabric->connect()) {
    endpoint.set_timeout(60 * base::second_ns);
  }

  Result<std::uint64_t> read_word(Address at) { return endpoint.run(read_word_task(&endpoint, at)); }
  Result<void> read_words(std::span<const Address> at, std::uint64_t* into) {
    return endpoint.run(read_words_task(&endpoint, at, into));
  }
  Result<std::uint64_t> compare_swap(Address at, std::uint64_t expected, std::uint64_t desired) {
    return endpoint.run(compare_swap_task(&endpoint, at, expected, desired));
  }
  Result<std::uint64_t> fetch_add(Address at, std::uint64_t added) {
    return endpoint.run(fetch_add_task(&endpoint, at, added));
  }
  Result<void> write_word(Address at, std::uint64_t value) {
    return endpoint.run(write_word_task(&endpoint, at, value));
  }
  Result<void> write(Address at, std::string_view bytes) {
    return endpoint.run(write_task(&endpoint, at, std::as_bytes(std::span(bytes))));
  }
  Result<void> perform(std::span<Operation> operations, Urgency urgency = Urgency::awaited) {
    return endpoint.run(perform_task(&endpoint, operations, urgency));
  }
  Result<std::string> fetch(Address at, std::size_t length) {
    return endpoint.run(fetch_task(&endpoint, at, length));
  }
};

// A thread of a test. A Result that is an error fails the test there too, and does not end the program; and
// the thread has ended before this does.
class Thread {
 public:
  explicit Thread(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          try {
            body();
          } catch (const std::bad_expected_access<Error>& thrown) {
            ADD_FAILURE() << thrown.error().message();
          }
          has_ended_ = true;
        }) {}
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  std::atomic<bool> has_ended_ = false;
  std::jthread thread_;
};

// For threads of a test that are to do something at the same time. One that has ended, be it by an error, is
// not waited for.
class Together {
 public:
  explicit Together(std::ptrdiff_t threads) : barrier_(threads) {}

  // One of the threads.
  class Member {
   public:
    explicit Member(Together& all) : barrier_(all.barrier_) {}
    ~Member() { barrier_.arrive_and_drop(); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    // Until all the others have come so far.
    void wait() { barrier_.arrive_and_wait(); }

   private:
    std::barrier<>& barrier_;
  };

 private:
  std::barrier<> barrier_;
};

class Conformance : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const Plan plan{.regions = {{small_region, small_bytes}, {large_region, large_bytes}},
                    .fill = [](std::span<const Mapping> regions) {
                      ASSERT_EQ(regions.size(), 2U);
                      ASSERT_GE(regions[0].length_bytes, small_bytes);
                      for (std::uint64_t i = 0; i < 8; ++i) {
                        std::memcpy(regions[1].base + i * 8, &i, sizeof i);
                      }
                    }};
    world_ = GetParam().make(plan);
  }

  static std::size_t few(std::size_t many) { return many / GetParam().times_fewer; }

  std::unique_ptr<World> world_;
};

// For backends with processes that may only read.
class ReadOnlyConformance : public Conformance {};
// For backends whose memory is elsewhere.
class ElsewhereConformance : public Conformance {};
// For backends that keep the order of a batch.
class OrderedConformance : public Conformance {};

}  // namespace loch::fabric::conformance
