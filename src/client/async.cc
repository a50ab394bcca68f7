#include <loch/async.h>

#include "client/impl.h"

namespace loch {

struct Async::State {
  std::shared_ptr<Store::Impl> store;
  client::Client* client;

  State(std::shared_ptr<Store::Impl> of, client::Client* lent) : store(std::move(of)), client(lent) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { store->give_back(client); }
};

Async::Async(std::unique_ptr<State> state) : state_(std::move(state)) {}
Async::Async(Async&&) noexcept = default;
Async& Async::operator=(Async&&) noexcept = default;
Async::~Async() = default;

Result<Async> Async::open(Store& store) {
  auto client = store.impl().lend_client();
  if (!client) return std::unexpected(std::move(client.error()));
  return Async(std::make_unique<State>(store.impl().shared_from_this(), *client));
}

coro::Task<Result<std::string>> Async::get(std::string_view key) {
  std::string value;
  if (auto got = co_await state_->client->get(key, &value); !got)
    co_return std::unexpected(std::move(got.error()));
  co_return value;
}

coro::Task<Result<Item>> Async::read(std::string_view key) { return state_->client->read(key); }

coro::Task<Result<bool>> Async::exists(std::string_view key) { return state_->client->exists(key); }

coro::Task<Result<void>> Async::put(std::string_view key, std::string_view value, PutOptions options) {
  auto written = co_await state_->client->put(key, value, options, hash::Condition::none, 0, "put");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Result<void>{};
}

coro::Task<Result<void>> Async::insert(std::string_view key, std::string_view value, PutOptions options) {
  auto written = co_await state_->client->put(key, value, options, hash::Condition::absent, 0, "insert");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Result<void>{};
}

coro::Task<Result<Version>> Async::replace(std::string_view key, std::string_view value, Version expected,
                                           PutOptions options) {
  auto written =
      co_await state_->client->put(key, value, options, hash::Condition::version, expected.token, "replace");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Version{*written};
}

coro::Task<Result<void>> Async::remove(std::string_view key) { return state_->client->remove(key); }
coro::Task<void> Async::multi_get(std::span<Lookup> lookups) { return state_->client->multi_get(lookups); }
coro::Task<void> Async::multi_put(std::span<Assignment> assignments) {
  return state_->client->multi_put(assignments);
}

void Async::step() { state_->client->attachment().endpoint().step(); }

}  // namespace loch
