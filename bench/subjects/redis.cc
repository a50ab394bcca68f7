// Redis over a Unix socket or TCP, without persistence. A batch is a pipeline of 64 commands.
#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <string>
#include <utility>
#include <vector>

#include "bench/subjects/peer_server.h"

namespace loch::bench {
namespace {

constexpr timeval call_timeout{.tv_sec = peer_timeout_s, .tv_usec = 0};

struct Free {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
  void operator()(redisContext* context) const { redisFree(context); }
};
using Reply = std::unique_ptr<redisReply, Free>;
using Context = std::unique_ptr<redisContext, Free>;

template <std::size_t N>
struct Command {
  std::array<const char*, N> words;
  std::array<std::size_t, N> lengths;
};

// NOLINTBEGIN(bugprone-suspicious-stringview-data-usage): the lengths go with them.
Command<2> get_command(std::string_view key) { return {{"GET", key.data()}, {3, key.size()}}; }
Command<3> set_command(std::string_view key, std::string_view value) {
  return {{"SET", key.data(), value.data()}, {3, key.size(), value.size()}};
}
// NOLINTEND(bugprone-suspicious-stringview-data-usage)

// The number after "name:" in the text of INFO.
std::uint64_t field(std::string_view info, std::string_view name) {
  const auto at = info.find(fmt::format("\n{}:", name));
  if (at == std::string_view::npos) return 0;
  info.remove_prefix(at + name.size() + 2);
  std::uint64_t number = 0;
  std::from_chars(info.data(), info.data() + info.size(), number);
  return number;
}

class RedisSession final : public Session {
 public:
  static Result<std::unique_ptr<RedisSession>> open(Context context) {
    if (context == nullptr) return fail(Errc::io, "redis", "no memory for a connection");
    if (context->err != 0) {
      return fail(Errc::unavailable, "redis", fmt::format("connect: {}", context->errstr));
    }
    redisSetTimeout(context.get(), call_timeout);
    return std::make_unique<RedisSession>(std::move(context));
  }

  explicit RedisSession(Context context) : context_(std::move(context)) {}

  Result<void> get(std::string_view key, std::string& into) override {
    append(get_command(key));
    return receive_value(into);
  }

  Result<void> put(std::string_view key, std::string_view value) override {
    append(set_command(key, value));
    return receive_status();
  }

  void multi_get(std::span<Lookup> lookups) override {
    while (!lookups.empty()) {
      const auto part = lookups.first(std::min(peer_batch, lookups.size()));
      for (const Lookup& lookup : part) append(get_command(lookup.key));
      for (Lookup& lookup : part) lookup.result = receive_value(lookup.value);
      lookups = lookups.subspan(part.size());
    }
  }

  void multi_put(std::span<Assignment> assignments) override {
    while (!assignments.empty()) {
      const auto part = assignments.first(std::min(peer_batch, assignments.size()));
      for (const Assignment& assignment : part) append(set_command(assignment.key, assignment.value));
      for (Assignment& assignment : part) assignment.result = receive_status();
      assignments = assignments.subspan(part.size());
    }
  }

  Result<MemoryUse> memory() override {
    append(Command<2>{{"INFO", "everything"}, {4, 10}});
    std::string info;
    if (auto received = receive_value(info); !received) return std::unexpected(received.error());
    return MemoryUse{.held_bytes = resident_bytes(static_cast<pid_t>(field(info, "process_id"))),
                     .used_bytes = field(info, "used_memory")};
  }

  bool ping() {
    append(Command<1>{{"PING"}, {4}});
    return receive_status().has_value();
  }

 private:
  // Into the connection's buffer; what goes wrong is reported by the reply.
  template <std::size_t N>
  void append(Command<N> command) {
    redisAppendCommandArgv(context_.get(), N, command.words.data(), command.lengths.data());
  }

  Result<Reply> receive() {
    void* reply = nullptr;
    if (redisGetReply(context_.get(), &reply) != REDIS_OK) {
      return fail(Errc::unavailable, "redis", fmt::format("no reply: {}", context_->errstr));
    }
    Reply received(static_cast<redisReply*>(reply));
    if (received->type == REDIS_REPLY_ERROR) {
      return fail(Errc::io, "redis", std::string(received->str, received->len));
    }
    return received;
  }

  Result<void> receive_value(std::string& into) {
    auto reply = receive();
    if (!reply) return std::unexpected(std::move(reply.error()));
    if ((*reply)->type == REDIS_REPLY_NIL) return fail(Errc::not_found, "redis");
    if ((*reply)->type != REDIS_REPLY_STRING) {
      return fail(Errc::corrupt, "redis", fmt::format("a reply of type {} is not a string", (*reply)->type));
    }
    into.assign((*reply)->str, (*reply)->len);
    return {};
  }

  Result<void> receive_status() {
    auto reply = receive();
    if (!reply) return std::unexpected(std::move(reply.error()));
    if ((*reply)->type != REDIS_REPLY_STATUS) {
      return fail(Errc::corrupt, "redis", fmt::format("a reply of type {} is not a status", (*reply)->type));
    }
    return {};
  }

  Context context_;
};

class RedisSubject final : public PeerServer {
 public:
  using PeerServer::PeerServer;

  [[nodiscard]] Batches batches() const override {
    return {.gets = "pipeline of 64", .puts = "pipeline of 64"};
  }
  Result<std::unique_ptr<Session>> open() override { return RedisSession::open(connect()); }

 private:
  [[nodiscard]] std::vector<std::string> arguments() const override {
    return {"--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--dir",
            place().folder,
            "--proto-max-bulk-len",
            "536870912"};
  }
  [[nodiscard]] std::vector<std::string> listen_at_socket() const override {
    return {"--port", "0", "--unixsocket", socket()};
  }
  [[nodiscard]] std::vector<std::string> listen_at_port(std::uint16_t port) const override {
    return {"--port", fmt::to_string(port), "--bind", place().host(), "--protected-mode", "no"};
  }
  [[nodiscard]] bool answers() const override {
    auto session = RedisSession::open(connect());
    return session && (*session)->ping();
  }

  [[nodiscard]] Context connect() const {
    if (!is_over_tcp()) return Context(redisConnectUnixWithTimeout(socket().c_str(), call_timeout));
    return Context(redisConnectWithTimeout(place().host().c_str(), place().port(), call_timeout));
  }
};

}  // namespace

Result<std::unique_ptr<Subject>> make_redis(Place place, const Dataset& dataset) {
  auto program = lab::find_program("redis-server", "redis-server");
  if (!program) return std::unexpected(std::move(program.error()));
  return std::make_unique<RedisSubject>(std::move(*program), std::move(place), dataset);
}

}  // namespace loch::bench
