// Histories: what clients asked of a store and what they were told, each with the time of asking and of the
// answer. A history is evidence for sim/linearizability.h.
//
// One client writes one file with a HistoryWriter; read_histories merges the files of all. A client may be
// killed at any instruction: I1 The line of an invocation is in the file before the operation begins. I2 A
// line is appended by one write(), so the file is whole lines and at most one torn line, the last. I3 An
// invocation without a response is an operation of unknown outcome: it may take effect at any later time, or
// never.
//
// The file, one event a line, fields separated by one space, numbers in decimal:
//
//   > SEQUENCE CLIENT TIME_NS KIND KEY [WRITTEN] [EXPECTED]     an operation begins
//   < SEQUENCE CLIENT TIME_NS OUTCOME [VALUE]                   and ends
//   # anything                                                  a remark
//
//   > 7 3 81000512 replace hot%201 12884901890 12884901889
//   < 7 3 81004099 changed
//
// KIND is one of the names of `Kind`, OUTCOME one of `Outcome`. WRITTEN is there for put, insert and replace,
// EXPECTED for replace, remove_version and expire, VALUE for a get that is ok. Bytes of a key that are '%' or
// not printable ASCII stand as %XX. SEQUENCE numbers a client's operations within its file; several may be
// open at once (multi_get).
//
// The expire of a value with a time to live is there before its write begins, with a TIME_NS that is still to
// come, and is answered once it is known that the value has to be gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::sim {

enum class Kind : std::uint8_t {
  get,
  exists,
  put,
  insert,
  replace,
  remove,
  remove_version,  // of the value that was read, if that is there still
  erase,           // a remove that does not tell whether the key was there
  // The end of a value's time: from then on that value may vanish, or be gone. Nobody is told of it; it is ok
  // where it is known by when the value has to be gone, if it was there.
  expire,
};
inline constexpr std::size_t kind_count = static_cast<std::size_t>(Kind::expire) + 1;

enum class Outcome : std::uint8_t {
  ok,         // get: found; exists: it does; the others: done
  not_found,  // get, exists, replace, both removes: no such key
  exists,     // insert: the key was there
  changed,    // replace, remove_version: another value was there
  unknown,    // may or may not have taken effect, or may still
  failed,     // certainly had no effect, and tells nothing about the key
};

std::string_view name(Kind kind);
std::string_view name(Outcome outcome);

// Which have a written value, which an expected one, and which may leave the key as another.
constexpr bool writes(Kind kind) {
  return kind == Kind::put || kind == Kind::insert || kind == Kind::replace;
}
constexpr bool expects(Kind kind) {
  return kind == Kind::replace || kind == Kind::remove_version || kind == Kind::expire;
}
constexpr bool changes(Kind kind) { return kind != Kind::get && kind != Kind::exists; }

// A value is known by an id that no two writes share; 0 is no value.
using ValueId = std::uint64_t;
inline constexpr ValueId no_value = 0;

// The response time of what never ended.
inline constexpr std::uint64_t never_ns = ~std::uint64_t{0};

struct Operation {
  std::uint64_t client = 0;
  std::string key{};
  Kind kind = Kind::get;
  ValueId written = no_value;   // put, insert, replace
  ValueId expected = no_value;  // replace, remove_version; expire: the value whose time is over
  Outcome outcome = Outcome::unknown;
  ValueId found = no_value;  // get that is ok
  // Of one clock for all clients, or any numbers in the order of real time. Never later than the true
  // beginning and never earlier than the true end.
  std::uint64_t invoked_ns = 0;
  std::uint64_t responded_ns = never_ns;

  bool operator==(const Operation&) const = default;
};

// One line for people, without times: "client 3: replace hot 12 expecting 11 -> changed".
std::string describe(const Operation& operation);

// For a store whose times to live go by another clock than its history: a value with one may be gone from its
// write on, and need not be.
void forget_when_values_end(std::span<Operation> history);

// A replace that is under way when the time of the value that it expects is over may come before that or
// after it (docs/hash.md, "Operations"). Each that was becomes a put: it does not tell whether that value was
// there still.
void let_ends_overtake_replaces(std::span<Operation> history);

// Appends one client's events to a file. One thread.
class HistoryWriter {
 public:
  // Creates `path`, or goes on in it after cutting off a torn last line. Errors: io.
  static Result<HistoryWriter> open(const std::filesystem::path& path, std::uint64_t client);

  struct Invocation {
    Kind kind = Kind::get;
    std::string_view key{};
    ValueId written = no_value;
    ValueId expected = no_value;
    std::uint64_t at_ns = 0;
  };

  // To be called before the operation begins, with a time read before the call; of an expire, with one before
  // which the value does not end. Returns its sequence number. Errors: io.
  Result<std::uint64_t> invoke(const Invocation& invocation);

  struct Response {
    std::uint64_t sequence = 0;
    Outcome outcome = Outcome::unknown;
    ValueId found = no_value;
    std::uint64_t at_ns = 0;
  };

  // To be called after the operation ended, with a time read after it; of an expire, with one from which on
  // whoever looks finds the value gone. Errors: io.
  Result<void> respond(const Response& response);

 private:
  HistoryWriter(base::FileDescriptor file, std::filesystem::path path, std::uint64_t client);
  Result<void> append(std::string_view line);

  base::FileDescriptor file_;
  std::filesystem::path path_;
  std::uint64_t client_ = 0;
  std::uint64_t sequence_ = 0;
};

// The operations of one file, in the order of their invocation. A torn last line is left out. A response of
// unknown outcome counts as none: responded_ns is never_ns. Errors: io; corrupt, naming the file and the
// line.
Result<std::vector<Operation>> read_history(const std::filesystem::path& path);

// The operations of several files, in the order of their invocation times.
Result<std::vector<Operation>> read_histories(std::span<const std::filesystem::path> paths);

// The same of text instead of a file; `name` stands for the file in errors.
Result<std::vector<Operation>> parse_history(std::string_view text, std::string_view name);

}  // namespace loch::sim
