#include "sim/history.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace loch::sim {
namespace {

constexpr std::array<std::string_view, kind_count> kind_names = {
    "get", "exists", "put", "insert", "replace", "remove", "remove_version", "erase", "expire"};
constexpr std::array<std::string_view, 6> outcome_names = {"ok",      "not_found", "exists",
                                                           "changed", "unknown",   "failed"};
constexpr const char* operation_name = "history";

std::string escape(std::string_view key) {
  std::string escaped;
  for (const char c : key) {
    if (c > ' ' && c < '\x7f' && c != '%') {
      escaped += c;
    } else {
      escaped += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

std::optional<std::string> unescape(std::string_view escaped) {
  std::string key;
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '%') {
      key += escaped[i];
      continue;
    }
    if (i + 2 >= escaped.size()) return std::nullopt;
    unsigned byte = 0;
    const char* const digits = escaped.data() + i + 1;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc{} || end != digits + 2) return std::nullopt;
    key += static_cast<char>(byte);
    i += 2;
  }
  return key;
}

std::unexpected<Error> io_error(std::string_view what, const std::filesystem::path& path) {
  return fail(Errc::io, operation_name, fmt::format("{} {}: {}", what, path.string(), std::strerror(errno)));
}

// The fields of one line, taken from the left.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::optional<std::string_view> word() {
    if (rest_.empty()) return std::nullopt;
    const std::size_t space = rest_.find(' ');
    const std::string_view found = rest_.substr(0, space);
    rest_ = space == std::string_view::npos ? std::string_view{} : rest_.substr(space + 1);
    if (found.empty()) return std::nullopt;
    return found;
  }

  std::optional<std::uint64_t> number() {
    const auto text = word();
    if (!text) return std::nullopt;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc{} || end != text->data() + text->size()) return std::nullopt;
    return value;
  }

  template <class Enum>
  std::optional<Enum> one_of(std::span<const std::string_view> names) {
    const auto text = word();
    if (!text) return std::nullopt;
    const auto found = std::ranges::find(names, *text);
    if (found == names.end()) return std::nullopt;
    return static_cast<Enum>(found - names.begin());
  }

  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Gathers the operations of one file from its lines. Each method returns false for a line that is none of its
// kind.
class Parser {
 public:
  bool line(std::string_view text) {
    if (text.starts_with('#')) return true;
    Fields fields(text);
    const auto mark = fields.word();
    const auto sequence = fields.number();
    const auto client = fields.number();
    const auto at_ns = fields.number();
    if (!mark || !sequence || !client || !at_ns) return false;
    if (*mark == ">") return invocation(fields, *sequence, *client, *at_ns);
    if (*mark == "<") return response(fields, *sequence, *client, *at_ns);
    return false;
  }

  std::vector<Operation> take() { return std::move(operations_); }

 private:
  bool invocation(Fields fields, std::uint64_t sequence, std::uint64_t client, std::uint64_t at_ns) {
    const auto kind = fields.one_of<Kind>(kind_names);
    const auto escaped = fields.word();
    if (!kind || !escaped) return false;
    auto key = unescape(*escaped);
    const auto written = writes(*kind) ? fields.number() : std::optional(no_value);
    const auto expected = expects(*kind) ? fields.number() : std::optional(no_value);
    if (!key || !written || !expected || !fields.done()) return false;
    // A client that was killed and goes on in its file may number from the start again: what was open stays
    // so.
    open_[{client, sequence}] = operations_.size();
    operations_.push_back({.client = client,
                           .key = *std::move(key),
                           .kind = *kind,
                           .written = *written,
                           .expected = *expected,
                           .outcome = Outcome::unknown,
                           .found = no_value,
                           .invoked_ns = at_ns,
                           .responded_ns = never_ns});
    return true;
  }

  bool response(Fields fields, std::uint64_t sequence, std::uint64_t client, std::uint64_t at_ns) {
    const auto outcome = fields.one_of<Outcome>(outcome_names);
    const auto open = open_.find({client, sequence});
    if (!outcome || open == open_.end()) return false;
    Operation& operation = operations_[open->second];
    const bool has_value = operation.kind == Kind::get && *outcome == Outcome::ok;
    const auto found = has_value ? fields.number() : std::optional(no_value);
    if (!found || !fields.done() || at_ns < operation.invoked_ns) return false;
    operation.outcome = *outcome;
    operation.found = *found;
    if (*outcome != Outcome::unknown) operation.responded_ns = at_ns;
    open_.erase(open);
    return true;
  }

  std::vector<Operation> operations_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> open_;  // by client and sequence
};

Result<void> write_whole(int file, std::string_view line, const std::filesystem::path& path) {
  for (;;) {
    const ssize_t written = ::write(file, line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size())) return {};
    if (written < 0 && errno == EINTR) continue;
    if (written >= 0) errno = ENOSPC;
    return io_error("could not append to", path);
  }
}

// Leaves whole lines only, so that what is appended does not join a torn one.
Result<void> cut_torn_line(int file, const std::filesystem::path& path) {
  struct stat status{};
  if (fstat(file, &status) != 0) return io_error("could not examine", path);
  off_t end = status.st_size;
  while (end > 0) {
    char last = 0;
    if (pread(file, &last, 1, end - 1) != 1) return io_error("could not read", path);
    if (last == '\n') break;
    --end;
  }
  if (end != status.st_size && ftruncate(file, end) != 0) return io_error("could not cut", path);
  return {};
}

}  // namespace

std::string_view name(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }
std::string_view name(Outcome outcome) { return outcome_names[static_cast<std::size_t>(outcome)]; }

std::string describe(const Operation& operation) {
  std::string text =
      fmt::format("client {}: {} {}", operation.client, name(operation.kind), escape(operation.key));
  if (writes(operation.kind)) text += fmt::format(" {}", operation.written);
  if (expects(operation.kind)) text += fmt::format(" expecting {}", operation.expected);
  if (operation.outcome == Outcome::unknown) return text + " -> (unknown)";
  text += fmt::format(" -> {}", name(operation.outcome));
  if (operation.kind == Kind::get && operation.outcome == Outcome::ok)
    text += fmt::format(" {}", operation.found);
  return text;
}

void forget_when_values_end(std::span<Operation> history) {
  std::map<ValueId, std::uint64_t> written_ns;
  for (const Operation& operation : history) {
    if (writes(operation.kind)) written_ns[operation.written] = operation.invoked_ns;
  }
  for (Operation& operation : history) {
    const auto written = written_ns.find(operation.expected);
    if (operation.kind != Kind::expire || written == written_ns.end()) continue;
    operation.invoked_ns = written->second;
    operation.responded_ns = never_ns;
    operation.outcome = Outcome::unknown;
  }
}

void let_ends_overtake_replaces(std::span<Operation> history) {
  std::map<ValueId, const Operation*> ends;
  for (const Operation& operation : history) {
    if (operation.kind == Kind::expire) ends[operation.expected] = &operation;
  }
  for (Operation& operation : history) {
    const bool may_be_done = operation.outcome == Outcome::ok || operation.outcome == Outcome::unknown;
    if (operation.kind != Kind::replace || !may_be_done) continue;
    const auto end = ends.find(operation.expected);
    if (end == ends.end() || end->second->responded_ns < operation.invoked_ns ||
        operation.responded_ns < end->second->invoked_ns)
      continue;
    operation.kind = Kind::put;
    operation.expected = no_value;
  }
}

HistoryWriter::HistoryWriter(base::FileDescriptor file, std::filesystem::path path, std::uint64_t client)
    : file_(std::move(file)), path_(std::move(path)), client_(client) {}

Result<HistoryWriter> HistoryWriter::open(const std::filesystem::path& path, std::uint64_t client) {
  base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.is_open()) return io_error("could not open", path);
  if (auto cut = cut_torn_line(file.get(), path); !cut) return std::unexpected(std::move(cut).error());
  return HistoryWriter(std::move(file), path, client);
}

Result<std::uint64_t> HistoryWriter::invoke(const Invocation& invocation) {
  const std::uint64_t sequence = ++sequence_;
  std::string line = fmt::format("> {} {} {} {} {}", sequence, client_, invocation.at_ns,
                                 name(invocation.kind), escape(invocation.key));
  if (writes(invocation.kind)) line += fmt::format(" {}", invocation.written);
  if (expects(invocation.kind)) line += fmt::format(" {}", invocation.expected);
  line += '\n';
  if (auto appended = append(line); !appended) return std::unexpected(std::move(appended).error());
  return sequence;
}

Result<void> HistoryWriter::respond(const Response& response) {
  std::string line =
      fmt::format("< {} {} {} {}", response.sequence, client_, response.at_ns, name(response.outcome));
  if (response.found != no_value) line += fmt::format(" {}", response.found);
  line += '\n';
  return append(line);
}

Result<void> HistoryWriter::append(std::string_view line) { return write_whole(file_.get(), line, path_); }

Result<std::vector<Operation>> parse_history(std::string_view text, std::string_view name) {
  Parser parser;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // torn: its writer was killed in the middle of it
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!parser.line(line)) {
      return fail(Errc::corrupt, operation_name,
                  fmt::format("{}:{}: not an event of a history: '{}'", name, line_number, line));
    }
  }
  return parser.take();
}

Result<std::vector<Operation>> read_history(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(file.peek() == std::ifstream::traits_type::eof() || text << file.rdbuf())) {
    return io_error("could not read", path);
  }
  return parse_history(text.view(), path.string());
}

Result<std::vector<Operation>> read_histories(std::span<const std::filesystem::path> paths) {
  std::vector<Operation> merged;
  for (const std::filesystem::path& path : paths) {
    auto operations = read_history(path);
    if (!operations) return operations;
    std::ranges::move(*operations, std::back_inserter(merged));
  }
  std::ranges::sort(merged, {}, [](const Operation& o) { return std::pair(o.invoked_ns, o.client); });
  return merged;
}

}  // namespace loch::sim
