// Errors: what a public call returns when it could not do what was asked.
//
// No exception crosses a public function. An Error names the operation, the hash of the key that it was
// about, and what can be done; a program branches on `code`.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace loch {

enum class Errc : std::uint8_t {
  not_found = 1,     // no such key (or no such store)
  exists,            // insert: the key is there already; create: the store is
  changed,           // replace: the item is not the one that was read
  timed_out,         // the operation's deadline passed; it may or may not have happened
  corrupt,           // bytes in the store are not what a client wrote there
  no_space,          // no memory left: reads and removes still work; or no session for one client more
  invalid_argument,  // a key, value or option outside its limits
  incompatible,      // the store has another version or geometry than was asked for
  permission,        // the files' mode or owner forbids it
  unavailable,       // the memory of this key can not be reached now
  moved,             // not done: it is on its way to another host of the cluster, or the host has ended the
                     // session; Store waits for it or begins anew, Async says so
  cancelled,         // the caller gave the operation up
  io,                // a system call failed
};

// The name of a code as in this enum: "not_found".
std::string_view name(Errc code);

struct [[nodiscard]] Error {
  Errc code{};
  const char* operation = "";  // static storage: "get", "open"
  std::uint64_t key_hash = 0;  // 0: not about one key
  std::string detail;          // what was wrong, where, and what to do; may be empty

  // One line for people: "get: not_found (key hash 1f3a...): ...".
  [[nodiscard]] std::string message() const;
};

template <class T>
using Result = std::expected<T, Error>;

// `return fail(Errc::io, "open", "...")`.
inline std::unexpected<Error> fail(Errc code, const char* operation, std::string detail = {},
                                   std::uint64_t key_hash = 0) {
  return std::unexpected<Error>(
      Error{.code = code, .operation = operation, .key_hash = key_hash, .detail = std::move(detail)});
}

}  // namespace loch
