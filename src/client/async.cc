#include <loch/async.h>

#include "base/check.h"
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

// Of several, each says what became of it.
template <class Request>
void fail_all(std::span<Request> requests, const std::unexpected<Error>& error) {
  for (Request& one : requests) one.result = error;
}

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
  if (auto got = state_->store->sound(co_await state_->client->get(key, &value)); !got)
    co_return std::unexpected(std::move(got.error()));
  co_return value;
}

coro::Task<Result<Item>> Async::read(std::string_view key) {
  if (state_->is_inherited()) co_return state_->inherited("read");
  co_return state_->store->sound(co_await state_->client->read(key));
}

coro::Task<Result<bool>> Async::exists(std::string_view key) {
  if (state_->is_inherited()) co_return state_->inherited("exists");
  co_return state_->store->sound(co_await state_->client->exists(key));
}

coro::Task<Result<Version>> Async::put(std::string_view key, std::string_view value, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("put");
  co_return version_of(
      state_->store->sound(co_await state_->client->put({.key = key, .value = value, .options = options})));
}

coro::Task<Result<Version>> Async::insert(std::string_view key, std::string_view value, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("insert");
  co_return version_of(
      state_->store->sound(co_await state_->client->put(client::insertion(key, value, options))));
}

coro::Task<Result<Version>> Async::replace(std::string_view key, std::string_view value, Version expected,
                                           PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("replace");
  co_return version_of(
      state_->store->sound(co_await state_->client->put(client::replacement(key, value, expected, options))));
}

coro::Task<Result<Version>> Async::update(std::string_view key, Change change, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("update");
  const Change noting = state_->store->until_forked(change);
  auto updated = co_await state_->client->update(key, &noting, options);
  if (state_->is_inherited()) co_return state_->inherited("update");
  co_return version_of(state_->store->sound(std::move(updated)));
}

coro::Task<Result<Version>> Async::touch(std::string_view key, PutOptions options) {
  if (state_->is_inherited()) co_return state_->inherited("touch");
  co_return version_of(state_->store->sound(co_await state_->client->touch(key, options)));
}

coro::Task<Result<void>> Async::remove(std::string_view key) {
  if (state_->is_inherited()) co_return state_->inherited("remove");
  co_return state_->store->sound(co_await state_->client->remove(key));
}

coro::Task<Result<void>> Async::remove(std::string_view key, Version expected) {
  if (state_->is_inherited()) co_return state_->inherited("remove");
  co_return state_->store->sound(co_await state_->client->remove(key, expected.token));
}

coro::Task<void> Async::multi_get(std::span<Lookup> lookups) {
  if (state_->is_inherited()) co_return fail_all(lookups, state_->inherited("get"));
  co_await state_->client->multi_get(lookups);
  if (const auto intact = state_->store->intact(); !intact)
    fail_all(lookups, std::unexpected(intact.error()));
}

coro::Task<void> Async::multi_put(std::span<Assignment> assignments) {
  if (state_->is_inherited()) co_return fail_all(assignments, state_->inherited("put"));
  co_await state_->client->multi_put(assignments);
  if (const auto intact = state_->store->intact(); !intact)
    fail_all(assignments, std::unexpected(intact.error()));
}

coro::Task<void> Async::multi_remove(std::span<Removal> removals) {
  if (state_->is_inherited()) co_return fail_all(removals, state_->inherited("remove"));
  co_await state_->client->multi_remove(removals);
  if (const auto intact = state_->store->intact(); !intact)
    fail_all(removals, std::unexpected(intact.error()));
}

// In the child of a fork it would take what is sent to the parent; and to do nothing would be to wait for
// ever.
void Async::step() {
  LOCH_CHECK(!state_->is_inherited() && "an Async stays with the process that opened it");
  state_->client->attachment().endpoint().step();
}

}  // namespace loch
