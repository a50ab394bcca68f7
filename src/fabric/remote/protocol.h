// What a client and the Host of another machine say to each other over a control connection (net/message.h).
//
// Greeting, by both, so that each proves to the other that it knows the host's key, and neither says it:
//
//   client  {"protocol": V, "nonce": C}
//   host    {"protocol": V, "nonce": H}
//   client  {"open": store, "read_only": false, "proof": proof(key; "open", H, C, store, access)}
//   host    {"proof": proof(key; "host", H, C, store, access), "link": name, "read_only": false,
//            "device_atomics": false}
//
// where access is what stands beside it, "read" or "change". No other link has this name, nor one of a host
// that is started later, which may be asked for it. A client that asks to change the store may be told that
// it may only read: by its key, since a host may have another one for those. The key is that of a key file,
// or none. A host whose key is a cookie says whose, {"cookie": user}, and who came to it at a loopback
// address goes by the key that the cookie has there (net/cookie.h).
//
// of a store of a cluster, the last also has {"cluster": its map (map_message.h), "node": which node
// of it this host is}.
//
// Both now share a secret, digest(key; "link", H, C). With it the client joins data connections, one for each
// session, which greet alike and then carry operations (tcp/wire.h) and no messages any more:
//
//   client  {"join": name, "session": S, "proof": proof(secret; "join", H, C, S)}
//   host    {"port": id}
//
// S is empty, or of a cluster what all its hosts know the session by (is_session_name). A host that takes a
// session for dead has the others end it, and gives nothing of it away before they have. It says which node
// it means, and the other refuses unless it is that one, so nobody else can answer in its place:
//
//   host    {"fence": S, "store": store, "node": N, "proof": proof(key; "fence", H, C, S, store, N)}
//   other   {"proof": proof(key; "fenced", H, C, S, store, N)}
//
// What is asked for afterwards is answered in turn, by what stands here or by {"error": ...}:
//
//   {"do": "length", "region": R}                   {"bytes": N}
//   {"do": "extend", "region": R, "bytes": N}       {"bytes": N}
//   {"do": "extend_soon", "region": R, "bytes": N}  nothing: nobody waits for it
//   {"do": "free"}                                  {"bytes": N}
//   {"do": "membership"}                            {}      or the cluster's map, and which node this is
//   {"do": "claim", "port": P, "client": N}         {"claimed": true}
//   {"do": "release", "port": P, "client": N}       {}
//   {"do": "present", "client": N}                  {"present": true}
//   {"do": "leave", "port": P}                      {}      one that goes without is taken for dead
//
// A region is asked for in steps: no longer than it is by more than extension_bytes_max, nor than the store
// was created for.
//
// Who claims a number of a cluster's store adds {"reached": S}, the nodes that the session has a way to, a
// bit each: the others need not be asked to end it. And for a queue pair beside the data connection of P
// (verbs/), which the client makes by showing the token, and for what it then may get at around the place
// `at` of a region:
//
//   {"do": "queue_pair", "port": P}                 {"token": T, "device_changes": false}
//   {"do": "key", "port": P, "region": R, "at": N}  {"from": N, "bytes": N, "address": A, "key": K}
//   {"do": "connection", "port": P}                 the host's end (verbs/connection_end.h), for people
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace loch::fabric::remote {

inline constexpr std::uint64_t protocol_version = 15;
inline constexpr std::size_t nonce_bytes = 16;
inline constexpr std::size_t session_name_bytes_max = 32;
// By how much one question makes a region longer: the host answers nobody else until the memory is there.
inline constexpr std::uint64_t extension_bytes_max = std::uint64_t{64} << 20;

// Letters and digits alone: hosts note it (Fabric::note_session), and are to find the same there later.
constexpr bool is_session_name(std::string_view name) {
  return !name.empty() && name.size() <= session_name_bytes_max && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

constexpr std::string_view access_text(bool read_only) { return read_only ? "read" : "change"; }

// How long a greeting may take, and an answer.
inline constexpr base::Nanos greeting_max_ns = 5 * base::second_ns;
inline constexpr base::Nanos answer_max_ns = 10 * base::second_ns;
// How often a session that is in the midst of something lets each of its hosts see that, also while all it
// asks is of others, or goes by queue pairs. More often than a host that gives shards away calls a session
// idle (idle_ns in server/rebalancer.cc, 600 ms). One sign is under way at a time, and waits behind a long
// answer: meanwhile the host sees that the session takes that (tcp/agent.h), but for the end of it, which its
// kernel has already.
inline constexpr base::Nanos sign_every_ns = 250 * base::millisecond_ns;
// A sign that is not answered ends the session when nothing has come or gone for so long either: before a
// host, which may hear nothing of it either, takes it for dead, unless it is told to do so earlier than it
// would by itself (Host::Options::silence_max_ns).
inline constexpr base::Nanos sign_answer_max_ns = 4 * base::second_ns;
// How long a session of a cluster waits for a host that it may do without: to begin, and later for what it
// asks of the host itself. Meanwhile it does nothing else, and gives the others no signs.
inline constexpr base::Nanos joining_max_ns = base::second_ns;
constexpr base::Nanos within_ns_of(std::string_view session) {
  return session.empty() ? greeting_max_ns : joining_max_ns;
}

}  // namespace loch::fabric::remote
