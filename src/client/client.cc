#include "client/client.h"

#include <fmt/format.h>
#include <functional>
#include <new>
#include <utility>

#include "client/arguments.h"
#include "hash/attempts.h"
#include "hash/heap.h"

namespace loch::client {
namespace {

Result<void> check_key(std::string_view key, const char* operation) {
  if (key_fits(key)) [[likely]]
    return {};
  return fail(Errc::invalid_argument, operation,
              fmt::format("a key has 1 to {} bytes, not {}", key_bytes_max, key.size()));
}

Result<void> check_value(std::string_view value, const char* operation) {
  if (value_fits(value)) [[likely]]
    return {};
  return fail(Errc::invalid_argument, operation,
              fmt::format("a value has at most {} bytes, not {}", value_bytes_max, value.size()));
}

std::optional<std::chrono::milliseconds> time_left(const hash::ItemView& view, base::Nanos now) {
  if (view.expires_at_ns() == 0) return std::nullopt;
  // Of what was there just now, though its time may be over by this: 0 is no time to live.
  const base::Nanos left = view.expires_at_ns() > now ? view.expires_at_ns() - now : 1;
  return std::chrono::milliseconds((left + base::millisecond_ns - 1) / base::millisecond_ns);
}

}  // namespace

Client::Client(std::unique_ptr<memory::Attachment> attachment, const ClientOptions& options)
    : attachment_(std::move(attachment)),
      session_(attachment_->nodes().front().session.get()),
      shards_(*attachment_, {.timeout_ns = options.timeout_ns,
                             .cache_bytes = options.cache_bytes,
                             .locations = options.locations}),
      hash_seed_(session_->geometry().hash_seed),
      reads_only_(options.read_only || attachment_->memory().fabric().read_only()),
      timeout_ns_(options.timeout_ns) {
  if (hash::Table* const only = shards_.only(); only != nullptr && only->works_here()) here_ = only;
}

Result<std::unique_ptr<Client>> Client::open(const std::shared_ptr<memory::StoreMemory>& memory,
                                             const ClientOptions& options) {
  auto begun = begin(memory, options);
  if (begun) return begun;
  // A host of a cluster may end in the midst of it, silently or not. Who begins after that does without it.
  const bool may_have_ended = begun.error().code == Errc::unavailable || begun.error().code == Errc::moved;
  const bool others_are_left = memory->region_map().nodes.size() > 1;
  if (may_have_ended && others_are_left) begun = begin(memory, options);
  return begun;
}

Result<std::unique_ptr<Client>> Client::begin(std::shared_ptr<memory::StoreMemory> memory,
                                              const ClientOptions& options) {
  auto attachment = memory::Attachment::open(std::move(memory), options.placement);
  if (!attachment) return std::unexpected(std::move(attachment.error()));
  std::unique_ptr<Client> client(new Client(std::move(*attachment), options));
  auto ready = client->run(client->settle_predecessors());
  if (ready) ready = client->run(client->shards_.open());
  if (!ready) return std::unexpected(std::move(ready.error()));
  return client;
}

Result<void> Client::may_change(const char* operation) const {
  if (!reads_only_) [[likely]]
    return {};
  return fail(Errc::permission, operation,
              fmt::format("this client may only read {}: it was opened so, or its key is one for reading",
                          attachment_->memory().fabric().location()));
}

// What those left who had this client's numbers and died.
coro::Task<Result<void>> Client::settle_predecessors() {
  for (const auto& node : attachment_->nodes()) {
    if (!node.session->took_over()) continue;
    node.session->count(Counter::sessions_reaped);
    if (auto settled = co_await node.allocator->settle_blocks(node.session->client()); !settled)
      co_return settled;
  }
  co_return Result<void>{};
}

bool Client::reads_long(const hash::Known& known) {
  return known.asks_for_item() && known.pointer.length_bytes > short_bytes_max;
}

// The value of a known item that is long is read to where it is wanted.
coro::Task<Result<void>> Client::get(std::string_view key, std::string* into) {
  if (auto valid = check_key(key, "get"); !valid) co_return valid;
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  const DuringOperation during(*attachment_);
  hash::Known known = (*table)->known().of(hashed);
  // What it knows does not count before it has refreshed.
  if (reads_long(known) && !attachment_->refresh_due()) {
    const bool found = co_await (*table)->known().read_value(&known, into);
    known.was_asked = true;
    if (found) {
      session_->count(Counter::get_hit);
      co_return Result<void>{};
    }
  }
  co_return answer_get(co_await (*table)->get(&known), into);
}

Result<void> Client::answer_get(const Result<hash::Found>& found, std::string* into) {
  count_outcome(found, Counter::get_hit, Counter::get_miss);
  if (!found) return std::unexpected(found.error());
  return hash::copy_out(found->view.value(), into, "get");
}

Result<void> Client::get_waiting(std::string_view key, std::string& into) {
  // Of one host, whoever hands out this client has seen to its refresh (Store::Impl::lives). Had that failed,
  // the registry would say of it what it said before, by which the others hold on to what it may read.
  if (!is_remote() || (attachment_->is_of_cluster() && attachment_->refresh_due()))
    return run(get(key, &into));
  if (auto valid = check_key(key, "get"); !valid) return valid;
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) return std::unexpected(table.error());
  const DuringOperation during(*attachment_);
  hash::Known known = (*table)->known().of(hashed);
  if (reads_long(known)) return run(get(key, &into));
  hash::Reader& reader = (*table)->reader();
  std::array<std::byte, 2 * short_bytes_max> room;
  hash::ShortWay way = reader.short_way(&known, room);
  const auto item = way.go_waiting();
  if (item && !*item) return answer_get(run(reader.get_after(&way)), &into);
  count_outcome(item, Counter::get_hit, Counter::get_miss);
  if (!item) return std::unexpected(item.error());
  return hash::copy_out((*item)->value(), &into, "get");
}

coro::Task<Result<hash::Found>> Client::look_up(hash::Key key, const char* asks) {
  auto found = co_await shards_.get(key);
  if (!found && std::string_view(found.error().operation) == "get") found.error().operation = asks;
  co_return found;
}

coro::Task<Result<Item>> Client::read(std::string_view key) {
  auto whole = co_await read_whole(key, "read");
  if (!whole) co_return std::unexpected(std::move(whole.error()));
  co_return Item{
      .value = std::move(whole->value), .version = {whole->version}, .time_to_live = whole->time_to_live};
}

coro::Task<Result<Client::Whole>> Client::read_whole(std::string_view key, const char* operation) {
  if (auto valid = check_key(key, operation); !valid) co_return std::unexpected(std::move(valid.error()));
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  const DuringOperation during(*attachment_);
  const auto found = co_await look_up(hashed, operation);
  count_outcome(found, Counter::get_hit, Counter::get_miss);
  if (!found) co_return std::unexpected(found.error());
  Whole whole{.value = {},
              .version = found->view.version(),
              .expires_at_ns = found->view.expires_at_ns(),
              .time_to_live = time_left(found->view, (*table)->slots().newest_time())};
  if (auto copied = hash::copy_out(found->view.value(), &whole.value, operation); !copied)
    co_return std::unexpected(std::move(copied.error()));
  co_return whole;
}

coro::Task<Result<hash::Found>> Client::find(std::string_view key) {
  if (auto valid = check_key(key, "view"); !valid) co_return std::unexpected(std::move(valid.error()));
  const DuringOperation during(*attachment_);
  auto found = co_await look_up(key_of(key), "view");
  count_outcome(found, Counter::get_hit, Counter::get_miss);
  co_return found;
}

coro::Task<Result<bool>> Client::exists(std::string_view key) {
  if (auto valid = check_key(key, "exists"); !valid) co_return std::unexpected(std::move(valid.error()));
  const hash::Key hashed = key_of(key);
  const DuringOperation during(*attachment_);
  auto exists = co_await shards_.exists(hashed);
  if (!exists && std::string_view(exists.error().operation) == "get") exists.error().operation = "exists";
  if (exists) session_->count(Counter::exists);
  co_return exists;
}

Result<hash::WriteRequest> Client::request_of(const Write& write, base::Nanos now) const {
  if (auto valid = check_key(write.key, write.operation); !valid)
    return std::unexpected(std::move(valid.error()));
  if (auto valid = check_value(write.value, write.operation); !valid)
    return std::unexpected(std::move(valid.error()));
  if (!time_to_live_fits(write.options)) {
    return fail(
        Errc::invalid_argument, write.operation,
        fmt::format("a time to live is 1 to {} ms, not {}; leave it out for what lives until it is removed",
                    time_to_live_max.count(), write.options.time_to_live->count()));
  }
  return hash::WriteRequest{.key = key_of(write.key),
                            .value = write.value,
                            .expires_at_ns = write.expires_at_ns.value_or(expiry_of(write.options, now)),
                            .condition = write.condition,
                            .version = write.version};
}

// A time to live counts from now, and a remote session has to ask when that is.
coro::Task<Result<void>> Client::know_time(hash::Table* table, const Write* write) {
  if (write->expires_at_ns || !write->options.time_to_live) co_return Result<void>{};
  if (auto now = co_await table->slots().read_time(); !now) co_return std::unexpected(std::move(now.error()));
  co_return Result<void>{};
}

coro::Task<Result<std::uint64_t>> Client::put(Write write) {
  fabric::Endpoint& endpoint = attachment_->endpoint();
  const base::Nanos began = endpoint.now();
  const auto found_no_memory = [](const Result<std::uint64_t>& put) {
    return !put && put.error().code == Errc::no_space;
  };
  auto written = co_await try_put(&write, 0);
  if (!found_no_memory(written)) [[likely]]
    co_return written;
  // What its condition refuses needs no memory.
  if (auto refused = co_await check_condition(&write); !refused)
    co_return std::unexpected(std::move(refused.error()));
  // Each try sweeps a part of the memory, and others use again what they unlink between two. One that swept
  // nothing found no memory of another kind. The other half of the time is for what follows.
  std::optional<std::uint64_t> swept_before;
  while (found_no_memory(written) && shards_.sweeps_on() && endpoint.now() - began < timeout_ns_ / 2) {
    const std::uint64_t swept = shards_.blocks_swept();
    if (swept_before == swept) break;
    swept_before = swept;
    co_await refresh_if_due();
    written = co_await try_put(&write, is_remote() ? 0 : endpoint.now() - began);
  }
  if (!found_no_memory(written)) co_return written;
  const auto room = co_await make_room(began + timeout_ns_);
  if (!room || !*room || **room > began + timeout_ns_) co_return written;
  co_await endpoint.sleep_until(**room);
  // An operation holds on to what was unlinked since the time that its session knew when it began.
  co_await refresh_if_due();
  // A time to live counts from the call on, however long that has waited; a remote session's from when it
  // knows the time.
  const base::Nanos waited = is_remote() ? 0 : endpoint.now() - began;
  co_return co_await try_put(&write, waited);
}

coro::Task<Result<std::uint64_t>> Client::try_put(const Write* write, base::Nanos waited_ns) {
  if (auto may = may_change(write->operation); !may) co_return std::unexpected(std::move(may.error()));
  const hash::Key hashed = key_of(write->key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  if (auto known = co_await know_time(*table, write); !known)
    co_return std::unexpected(std::move(known.error()));
  const auto request = request_of(*write, (*table)->slots().newest_time() - waited_ns);
  if (!request) co_return std::unexpected(request.error());
  const DuringOperation during(*attachment_);
  auto written = co_await (*table)->put(*request);
  if (!written) {
    written.error().operation = write->operation;
    count_refusal(written.error().code);
  }
  co_return written;
}

coro::Task<Result<void>> Client::check_condition(const Write* write) {
  if (write->condition == hash::Condition::none) co_return Result<void>{};
  const hash::Key hashed = key_of(write->key);
  const DuringOperation during(*attachment_);
  const auto found = co_await look_up(hashed, write->operation);
  const bool is_insert = write->condition == hash::Condition::absent;
  std::optional<Errc> refusal;
  if (found && is_insert) refusal = Errc::exists;
  if (found && !is_insert && found->view.version() != write->version) refusal = Errc::changed;
  if (!found && !is_insert && found.error().code == Errc::not_found) refusal = Errc::not_found;
  if (!refusal) co_return Result<void>{};
  count_refusal(*refusal);
  co_return fail(*refusal, write->operation, {}, hashed.hash);
}

void Client::count_refusal(Errc refusal) {
  if (refusal == Errc::exists) session_->count(Counter::insert_exists);
  if (refusal == Errc::changed) session_->count(Counter::replace_changed);
}

coro::Task<Result<std::uint64_t>> Client::update(std::string_view key, const Change* change,
                                                 PutOptions options) {
  return change_item(key, change, options, Keep::time_to_live, "update");
}

coro::Task<Result<std::uint64_t>> Client::touch(std::string_view key, PutOptions options) {
  const Change same = [](std::optional<std::string_view> value) {
    return value ? std::optional<std::string>(*value) : std::nullopt;
  };
  auto touched = co_await change_item(key, &same, options, Keep::value, "touch");
  if (touched && *touched == 0) co_return fail(Errc::not_found, "touch", "", key_of(key).hash);
  co_return touched;
}

coro::Task<Result<std::uint64_t>> Client::change_item(std::string_view key, const Change* change,
                                                      PutOptions options, Keep keep, const char* operation) {
  if (auto may = may_change(operation); !may) co_return std::unexpected(std::move(may.error()));
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  hash::Attempts attempts((*table)->slots(), operation, hashed.hash, hash::Attempts::Of::look);
  for (;;) {
    auto there = co_await read_whole(key, operation);
    if (!there && there.error().code != Errc::not_found) co_return std::unexpected(std::move(there.error()));
    const auto next = (*change)(there ? std::optional<std::string_view>(there->value) : std::nullopt);
    if (!next) co_return there ? there->version : 0;
    Write write{.key = key,
                .value = *next,
                .options = options,
                .condition = hash::Condition::absent,
                .operation = operation};
    if (there) {
      write.condition = hash::Condition::version;
      write.version = there->version;
      if (keep == Keep::time_to_live) write.expires_at_ns = there->expires_at_ns;
    }
    auto written = co_await put(write);
    if (written) co_return written;
    const Errc code = written.error().code;
    const bool another_was_quicker =
        code == Errc::changed || code == Errc::exists || (there && code == Errc::not_found);
    if (!another_was_quicker) co_return written;
    if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
  }
}

coro::Task<Result<void>> Client::remove(std::string_view key, std::optional<std::uint64_t> version) {
  if (auto may = may_change("remove"); !may) co_return may;
  if (auto valid = check_key(key, "remove"); !valid) co_return valid;
  const DuringOperation during(*attachment_);
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  auto removed = co_await (*table)->remove(hashed, version);
  count_outcome(removed, Counter::remove_hit, Counter::remove_miss);
  co_return removed;
}

bool Client::copy_out(hash::ItemView& item, base::Nanos asked_at, std::string& into) {
  if (!here_->parse_here(item) || hash::has_expired(item.expires_at_ns(), asked_at)) return false;
  bool intact = false;
  try {
    // The length that libstdc++ 12 passes may be larger than the one asked for.
    into.resize_and_overwrite(item.value().size(), [&](char* buffer, std::size_t /*length*/) {
      intact = item.copy_value_to(buffer);
      return item.value().size();
    });
  } catch (const std::bad_alloc&) {
    return false;
  }
  return intact;
}

bool Client::get_mapped(std::string_view key, std::string& into) {
  if (!key_fits(key)) return false;
  const DuringOperation during(*attachment_);
  const memory::Attachment::Look look(*attachment_);
  hash::Probe probe;
  probe.key = key_of(key);
  hash::Here& here = here_->here();
  if (!here.step1_find_slots(probe) || !here.step2_match_filter(probe, hash::item_bytes(key.size(), 0)) ||
      !hash::Here::step3_compare_key(probe) || !copy_out(probe.item, during.start(), into) || !look.holds()) {
    return false;
  }
  session_->count(Counter::get_hit);
  return true;
}

coro::Task<Result<void>> Client::for_each(const std::function<bool(const Entry&)>* visit) {
  const hash::Shards::Visit visit_item = [this, visit](const hash::ItemView& view) {
    const auto table = shards_.table_of(view.key_hash());
    const base::Nanos now = table ? (*table)->slots().newest_time() : session_->control().newest_time();
    return (*visit)(Entry{.key = view.key(),
                          .value = view.value(),
                          .version = {view.version()},
                          .time_to_live = time_left(view, now)});
  };
  co_return co_await shards_.for_each(&visit_item);
}

// Each of its steps is an operation of its own, as those of for_each, collect and check.
coro::Task<Result<std::uint64_t>> Client::count() { return shards_.count(); }

coro::Task<Result<Collected>> Client::collect() {
  if (auto may = may_change("collect"); !may) co_return std::unexpected(std::move(may.error()));
  co_return co_await shards_.collect_garbage();
}

coro::Task<Result<Report>> Client::check() { return shards_.check(); }

coro::Task<Result<Stats>> Client::totals() {
  Stats sum;
  for (const auto& node : attachment_->nodes()) {
    const auto of_node = co_await node.session->totals();
    if (!of_node) co_return of_node;
    sum += *of_node;
  }
  co_return sum;
}

coro::Task<Result<void>> Client::describe(Info* into) {
  Info& info = *into;
  if (is_remote()) {
    if (auto fresh = co_await attachment_->refresh(); !fresh) co_return fresh;
  }
  const memory::StoreMemory& memory = attachment_->memory();
  fabric::Endpoint& endpoint = attachment_->endpoint();
  info.hosts = static_cast<std::uint32_t>(memory.region_map().living());
  info.hosts_away = info.hosts - static_cast<std::uint32_t>(attachment_->nodes().size());
  info.format_version = memory::format_version;
  info.candidates = memory.geometry().candidates;
  if (auto described = co_await shards_.describe(into); !described) co_return described;
  info.block_bytes = memory::block_bytes;
  for (const auto& node : attachment_->nodes()) {
    const auto control = endpoint.length_bytes(node.session->regions().control);
    if (!control) co_return std::unexpected(control.error());
    info.control_bytes += *control;
    for (const fabric::RegionId region : node.session->regions().data) {
      const auto length = endpoint.length_bytes(region);
      if (!length) co_return std::unexpected(length.error());
      info.data_bytes += *length / memory::block_bytes * memory::block_bytes;
    }
    const auto blocks = node.allocator->blocks();
    if (!blocks) co_return std::unexpected(blocks.error());
    memory::DescriptorGroup group;
    for (const memory::BlockNumber block : *blocks) {
      if (auto read = co_await node.allocator->read_descriptors(&*blocks, block, &group); !read)
        co_return read;
      const memory::BlockState state = group.lease(block).state;
      ++info.blocks;
      if (state == memory::BlockState::free) ++info.blocks_free;
      if (state == memory::BlockState::leased || state == memory::BlockState::swept) ++info.blocks_leased;
    }
    info.clients = std::max(info.clients, node.session->living());
  }
  const auto counted = co_await totals();
  if (!counted) co_return std::unexpected(counted.error());
  info.totals = *counted;
  info.max_bytes = memory.geometry().max_bytes;
  info.huge_page_bytes = memory.fabric().huge_page_bytes();
  info.expiry = std::chrono::milliseconds(memory.geometry().expiry_ns / base::millisecond_ns);
  co_return Result<void>{};
}

}  // namespace loch::client
