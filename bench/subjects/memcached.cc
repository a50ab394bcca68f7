// memcached over a Unix socket or TCP, with one worker thread, by its text protocol. A batch of reads is one
// `get` of 64 keys, a batch of writes is a pipeline of 64.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench/socket_stream.h"
#include "bench/subjects/peer_server.h"

namespace loch::bench {
namespace {

std::unexpected<Error> unexpected_line(std::string_view wanted, std::string_view line) {
  return fail(Errc::corrupt, "memcached", fmt::format("instead of {} came: {}", wanted, line.substr(0, 100)));
}

class MemcachedSession final : public Session {
 public:
  static Result<std::unique_ptr<MemcachedSession>> open(Result<SocketStream> stream) {
    if (!stream) return std::unexpected(std::move(stream.error()));
    return std::make_unique<MemcachedSession>(std::move(*stream));
  }

  explicit MemcachedSession(SocketStream stream) : stream_(std::move(stream)) {}

  Result<void> get(std::string_view key, std::string& into) override {
    Lookup lookup{.key = key, .value = std::move(into)};
    multi_get({&lookup, 1});
    into = std::move(lookup.value);
    return std::move(lookup.result);
  }

  Result<void> put(std::string_view key, std::string_view value) override {
    Assignment assignment{.key = key, .value = value};
    multi_put({&assignment, 1});
    return std::move(assignment.result);
  }

  void multi_get(std::span<Lookup> lookups) override {
    while (!lookups.empty()) {
      const auto part = lookups.first(std::min(peer_batch, lookups.size()));
      if (auto failed = get_some(part); !failed) {
        for (Lookup& lookup : part) lookup.result = failed;
      }
      lookups = lookups.subspan(part.size());
    }
  }

  void multi_put(std::span<Assignment> assignments) override {
    while (!assignments.empty()) {
      const auto part = assignments.first(std::min(peer_batch, assignments.size()));
      request_.clear();
      for (const auto& [key, value, options, result] : part) {
        fmt::format_to(std::back_inserter(request_), "set {} 0 0 {}\r\n", key, value.size());
        request_.append(value).append("\r\n");
      }
      const auto sent = stream_.send(request_);
      for (Assignment& assignment : part) {
        if (sent) {
          assignment.result = receive_stored();
        } else {
          assignment.result = sent;
        }
      }
      assignments = assignments.subspan(part.size());
    }
  }

  Result<MemoryUse> memory() override {
    if (auto sent = stream_.send("stats\r\n"); !sent) return std::unexpected(std::move(sent.error()));
    MemoryUse use;
    for (;;) {
      const auto line = stream_.receive_line();
      if (!line) return std::unexpected(line.error());
      if (*line == "END") return use;
      if (const auto pid = number_of(*line, "pid")) use.held_bytes = resident_bytes(static_cast<pid_t>(*pid));
      if (const auto bytes = number_of(*line, "bytes")) use.used_bytes += *bytes;
      if (const auto bytes = number_of(*line, "hash_bytes")) use.used_bytes += *bytes;
      if (const auto evicted = number_of(*line, "evictions"); evicted && *evicted != 0) {
        return fail(Errc::no_space, "memcached", fmt::format("{} items were evicted", *evicted));
      }
    }
  }

  bool ping() {
    if (!stream_.send("version\r\n")) return false;
    const auto line = stream_.receive_line();
    return line && line->starts_with("VERSION");
  }

 private:
  // The number of a line "STAT name number".
  static std::optional<std::uint64_t> number_of(std::string_view line, std::string_view name) {
    const auto before = fmt::format("STAT {} ", name);
    if (!line.starts_with(before)) return std::nullopt;
    std::uint64_t number = 0;
    std::from_chars(line.data() + before.size(), line.data() + line.size(), number);
    return number;
  }

  // The server answers in the order of the keys and leaves out those that it has not.
  Result<void> get_some(std::span<Lookup> lookups) {
    request_ = "get";
    for (const Lookup& lookup : lookups) request_.append(" ").append(lookup.key);
    request_.append("\r\n");
    if (auto sent = stream_.send(request_); !sent) return sent;
    std::size_t next = 0;
    for (;;) {
      const auto line = stream_.receive_line();
      if (!line) return std::unexpected(line.error());
      if (*line == "END") break;
      const auto length_bytes = find_value(*line, lookups, next);
      if (!length_bytes) return std::unexpected(length_bytes.error());
      const auto data = stream_.receive(*length_bytes + 2);
      if (!data) return std::unexpected(data.error());
      lookups[next].value.assign(data->substr(0, *length_bytes));
      lookups[next++].result = {};
    }
    for (; next < lookups.size(); ++next) lookups[next].result = fail(Errc::not_found, "memcached");
    return {};
  }

  // Reads "VALUE <key> <flags> <bytes>", moves `next` on to that key, and returns the bytes.
  static Result<std::size_t> find_value(std::string_view line, std::span<Lookup> lookups, std::size_t& next) {
    constexpr std::string_view before = "VALUE ";
    const auto end_of_key = line.find(' ', before.size());
    const auto end_of_flags =
        end_of_key == std::string_view::npos ? std::string_view::npos : line.find(' ', end_of_key + 1);
    if (!line.starts_with(before) || end_of_flags == std::string_view::npos)
      return unexpected_line("a value", line);
    const auto key = line.substr(before.size(), end_of_key - before.size());
    while (next < lookups.size() && lookups[next].key != key) {
      lookups[next++].result = fail(Errc::not_found, "memcached");
    }
    std::size_t length_bytes = 0;
    const auto parsed =
        std::from_chars(line.data() + end_of_flags + 1, line.data() + line.size(), length_bytes);
    if (next == lookups.size() || parsed.ec != std::errc{})
      return unexpected_line("a value that was asked for", line);
    return length_bytes;
  }

  Result<void> receive_stored() {
    const auto line = stream_.receive_line();
    if (!line) return std::unexpected(line.error());
    if (*line == "STORED") return {};
    if (line->starts_with("SERVER_ERROR out of memory"))
      return fail(Errc::no_space, "memcached", std::string(*line));
    return unexpected_line("STORED", *line);
  }

  SocketStream stream_;
  std::string request_;
};

class MemcachedSubject final : public PeerServer {
 public:
  using PeerServer::PeerServer;

  [[nodiscard]] Batches batches() const override {
    return {.gets = "get of 64 keys", .puts = "pipeline of 64"};
  }
  Result<std::unique_ptr<Session>> open() override { return MemcachedSession::open(connect()); }

 private:
  [[nodiscard]] std::vector<std::string> arguments() const override {
    // A limit, not a reservation; it must never evict. An item takes up to twice its size in its slab class.
    const std::size_t item_bytes = dataset().key_bytes() + dataset().value_bytes() + 64;
    const std::size_t limit_mib = 256 + ((dataset().items() * item_bytes * 3) >> 20);
    const std::size_t item_kib_max = std::max<std::size_t>(1024, (item_bytes * 2) >> 10);
    std::vector<std::string> arguments = {
        "-t", "1", "-m", fmt::to_string(limit_mib), "-I", fmt::format("{}k", item_kib_max)};
    if (geteuid() == 0) arguments.insert(arguments.end(), {"-u", "root"});
    return arguments;
  }
  [[nodiscard]] std::vector<std::string> listen_at_socket() const override { return {"-s", socket()}; }
  [[nodiscard]] std::vector<std::string> listen_at_port(std::uint16_t port) const override {
    return {"-p", fmt::to_string(port), "-U", "0", "-l", place().host()};
  }
  [[nodiscard]] bool answers() const override {
    auto session = MemcachedSession::open(connect());
    return session && (*session)->ping();
  }

  [[nodiscard]] Result<SocketStream> connect() const {
    if (!is_over_tcp()) return SocketStream::connect_unix(socket(), peer_timeout_s);
    return SocketStream::connect_tcp(place().host(), place().port(), peer_timeout_s);
  }
};

}  // namespace

Result<std::unique_ptr<Subject>> make_memcached(Place place, const Dataset& dataset) {
  constexpr std::size_t key_bytes_most = 250;
  if (dataset.key_bytes() > key_bytes_most) {
    return fail(Errc::invalid_argument, "memcached",
                fmt::format("keys of {} B: memcached takes at most {}", dataset.key_bytes(), key_bytes_most));
  }
  auto program = lab::find_program("memcached", "memcached");
  if (!program) return std::unexpected(std::move(program.error()));
  return std::make_unique<MemcachedSubject>(std::move(*program), std::move(place), dataset);
}

}  // namespace loch::bench
