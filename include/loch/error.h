// Errors: what a public call returns when it could not do what was asked.
//
// What can be expected to fail is an Error, never an exception; only memory that the heap does not have may
// be one (loch.h, "Heap"). An Error names the operation, the hash of the key that it was about, and what can
// be done; a program branches on `code`.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace loch {

// "Retry" says whether the same call may succeed when it is tried again. loch.h names the errors that a call
// is most likely to return; others are possible.
enum class Errc : std::uint8_t {
  // No such key, or no such store; or a file of a key that is not there. Retry: no.
  not_found = 1,
  // insert: the key is there already; create: the store is. Retry: no.
  exists,
  // replace, and remove of a version: the item is another one by now. Retry: read it again, and replace that.
  changed,
  // The deadline passed. A write may or may not have happened, and may happen yet. Retry: yes; but before an
  // insert or a replace, read the key, since the first attempt may have been the one that succeeded.
  timed_out,
  // Bytes in the store are not what a client wrote there: those of this key, or, where a file was truncated,
  // of the whole store. Retry: no; `loch check` says what is damaged. A put mends a key whose item is; where
  // its place in the index is, `loch gc` does (Store::collect), and may bring the item back.
  corrupt,
  // The store has no memory left; reads and removes still work. Or it has no session for one client more, or
  // this process no memory for the value that it reads. Retry: when items were removed or have expired, or
  // clients have ended.
  no_space,
  // A key, value, URL or option outside its limits. Retry: no.
  invalid_argument,
  // The store has another format or geometry, or its host another protocol, than this program asks for; or an
  // RDMA device changes its words, so it has to be opened as verbs://; or it is this host's part of a store
  // of a cluster, to be opened as tcp://; or it was left by an earlier boot; or the hosts of its cluster do
  // not agree about it. Retry: no.
  incompatible,
  // The files' mode or owner forbids it; or the host does not accept this client's key or certificate, nor
  // the client the host's; or this client may only read. Retry: no.
  permission,
  // A host is down, is about to end, or can not be reached; or the connection to it failed during the call. A
  // write may or may not have happened, as with timed_out. Retry: yes, after a pause. Also: this is the child
  // of a fork, and its parent opened the store; or the processor has no SSE 4.2. Then no.
  unavailable,
  // It did not happen: the key's part of the index is on its way to another host, or the host has ended the
  // session. A Store tries again by itself, and returns timed_out if that lasts; of an Async, open another.
  moved,
  // The caller gave the operation up. No call of the library returns it.
  cancelled,
  // A system call failed; the detail says why. Retry: when its cause is mended.
  io,
};

// The name of a code as in this enum: "not_found".
[[nodiscard]] std::string_view name(Errc code);

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
[[nodiscard]] inline std::unexpected<Error> fail(Errc code, const char* operation, std::string detail = {},
                                                 std::uint64_t key_hash = 0) {
  return std::unexpected<Error>(
      Error{.code = code, .operation = operation, .key_hash = key_hash, .detail = std::move(detail)});
}

}  // namespace loch
