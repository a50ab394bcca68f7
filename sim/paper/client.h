// A client of the paper's store, its GET, PUT, MIGRATE and DELETE taken literally from sections 4.2 and 4.3.
// It is a specimen: it loses values and blocks keys, and the simulator has to find that (docs/simulation.md,
// "Teeth"). Nothing else uses it, and nothing of it is to be mended.
//
// Left out is what makes it faster and no righter: filter bits, the cache, reads of an entry in two parts.
// Data entries are never used again, so that whatever goes wrong is the protocol's own doing, and none of
// reuse.
//
// One thread. Keys and values that are passed live until the task is done.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <loch/coro/task.h>

#include "base/random.h"
#include "fabric/endpoint.h"
#include "sim/paper/tables.h"

namespace loch::sim::paper {

// What becomes of the index entry that a PUT has changed before it met interference. The paper says only that
// the caller has to retry.
enum class Undo : std::uint8_t {
  nothing,  // it stays
  restore,  // what stood there before comes back
  clear,    // it becomes empty
};

struct Options {
  Index index;
  Undo undo = Undo::nothing;
  base::Nanos timeout_ns = base::second_ns;  // of an operation with its retries
};

class Client {
 public:
  // Its data table is that of client `number`. Errors: no_space.
  static Result<std::unique_ptr<Client>> open(const std::shared_ptr<fabric::Fabric>& fabric,
                                              std::uint32_t number, const Options& options);

  // Each tries again after interference, until its time is up. Errors: not_found, timed_out.
  coro::Task<Result<void>> get(std::string_view key, std::string* into);
  // Errors: no_space (nothing has happened), timed_out.
  coro::Task<Result<void>> put(std::string_view key, std::string_view value);
  // DELETE, which does not tell whether the key was there. Errors: as of put.
  coro::Task<Result<void>> remove(std::string_view key);

  [[nodiscard]] fabric::Endpoint& endpoint() { return endpoint_; }

 private:
  struct Request {
    enum class Kind : std::uint8_t { get, put, remove };
    Kind kind = Kind::get;
    std::string_view key;
    std::string_view value{};
    std::string* into = nullptr;
    bool linked = false;  // some attempt has changed an index entry
  };

  // One attempt: what was seen in the forward pass, and what a write has put there.
  struct Pass {
    std::string_view key;
    std::array<Ite, ways_max> seen{};
    int candidate = -1;
    Ite old{};   // what the candidate was
    Ite mine{};  // what it is now
  };

  Client(const std::shared_ptr<fabric::Fabric>& fabric, fabric::RegionId data_table, const Options& options);

  coro::Task<Result<void>> carry_out(Request request);
  coro::Task<Result<void>> back_off(std::uint32_t retries, base::Nanos deadline);
  coro::Task<Result<void>> attempt_get(const Request* request);
  coro::Task<Result<void>> attempt_write(Request* request);

  coro::Task<Result<void>> forward_pass(const Request* request, Pass* pass);
  coro::Task<Result<void>> link(const Request* request, Pass* pass, std::uint32_t way);
  coro::Task<Result<void>> reverse_pass(const Pass* pass);
  coro::Task<Result<void>> finish_put(const Pass* pass);
  coro::Task<Result<void>> finish_remove(const Pass* pass);
  coro::Task<void> undo(const Pass* pass);
  coro::Task<Result<void>> migrate(fabric::Address source, std::uint32_t depth);

  coro::Task<Result<Ite>> read_ite(fabric::Address at);
  // Interference if another entry stands there.
  coro::Task<Result<void>> swap_ite(fabric::Address at, Ite expected, Ite desired);
  coro::Task<Result<Dte>> read_dte(Ite ite);
  // A new entry of the own data table, not valid yet.
  coro::Task<Result<Ite>> write_dte(std::string_view key, std::string_view value, Ite previous);
  coro::Task<Result<void>> set_valid(Ite ite, bool valid);

  [[nodiscard]] fabric::Address candidate(std::string_view key, std::uint32_t way) const {
    return options_.index.candidate(key, way);
  }
  // Which one MIGRATE takes; the paper's prototype takes the first.
  [[nodiscard]] fabric::Address draw_candidate(std::string_view key) {
    return candidate(key, static_cast<std::uint32_t>(random_.below(options_.index.ways)));
  }

  fabric::Endpoint endpoint_;
  fabric::RegionId data_table_;
  Options options_;
  base::Random random_;
  std::uint32_t dtes_used_ = 0;
};

}  // namespace loch::sim::paper
