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

  [[nodiscard]] bool is_inherited() const { return store->is_inherited(); }
  [[nodiscard]] std::unexpected<Error> inherited(const char* operation) const {
    return std::unexpected(store->inherited(operation));
  }
};

namespace {

template <class T>
coro::Task<Result<T>> fail_with(std::unexpected<Error> error) {
  co_return error;
}

// What became of each stands in it already.
coro::Task<void> nothing_more() { co_return; }

}  // namespace

Async::Async(std::unique_ptr<State> state) : state_(std::move(state)) {}
Async::Async(Async&&) noexcept = default;
Async& Async::operator=(Async&&) noexcept = default;
Async::~Async() = default;

Result<Async> Async::open(Store& store) {
  if (store.impl().is_inherited()) return std::unexpected(store.impl().inherited("open"));
  auto client = store.impl().lend_client();
  if (!client) return std::unexpected(std::move(client.error()));
  return Async(std::make_unique<State>(store.impl().shared_from_this(), *client));
}

coro::Task<Result<std::string>> Async::get(std::string_view key) {
  if (state_->is_inherited()) co_return state_->inherited("get");
  std::string value;
  if (auto got = co_await state_->client->get(key, &value); !got)
    co_return std::unexpected(std::move(got.error()));
  co_return value;
}

coro::Task<Result<Item>> Async::read(std::string_view key) {
  if (state_->is_inherited()) return fail_with<Item>(state_->inherited("read"));
  return state_->client->read(key);
}

coro::Task<Result<bool>> Async::exists(std::string_view key) {
  if (state_->is_inherited()) return fail_with<bool>(state_->inherited("exists"));
  return state_->client->exists(key);
}

coro::Task<Result<void>> Async::put(std::string_view key, std::string_view value, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("put");
  auto written = co_await state_->client->put(key, value, options, hash::Condition::none, 0, "put");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Result<void>{};
}

coro::Task<Result<void>> Async::insert(std::string_view key, std::string_view value, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("insert");
  auto written = co_await state_->client->put(key, value, options, hash::Condition::absent, 0, "insert");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Result<void>{};
}

coro::Task<Result<Version>> Async::replace(std::string_view key, std::string_view value, Version expected,
                                           PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("replace");
  auto written =
      co_await state_->client->put(key, value, options, hash::Condition::version, expected.token, "replace");
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Version{*written};
}

coro::Task<Result<void>> Async::remove(std::string_view key) {
  if (state_->is_inherited()) return fail_with<void>(state_->inherited("remove"));
  return state_->client->remove(key);
}

coro::Task<void> Async::multi_get(std::span<Lookup> lookups) {
  if (state_->is_inherited()) {
    for (Lookup& one : lookups) one.result = state_->inherited("get");
    return nothing_more();
  }
  return state_->client->multi_get(lookups);
}

coro::Task<void> Async::multi_put(std::span<Assignment> assignments) {
  if (state_->is_inherited()) {
    for (Assignment& one : assignments) one.result = state_->inherited("put");
    return nothing_more();
  }
  return state_->client->multi_put(assignments);
}

void Async::step() { state_->client->attachment().endpoint().step(); }

}  // namespace loch
