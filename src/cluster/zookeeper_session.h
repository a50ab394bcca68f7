// ZooKeeperSession: one session with ZooKeeper, of its C client, with calls that end by a deadline.
//
// The client has two threads of its own; what they tell is kept under the mutex of `Signals`, which
// outlives the session and is shared by all sessions of a coordinator. A session that is over (it expired)
// stays over; whoever needs one begins another. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loch/error.h>

#include "base/clock.h"
#include "net/socket.h"

struct _zhandle;  // of the C client

namespace loch::cluster {

// "USER:PASSWORD@HOST:PORT,HOST:PORT/PATH"
struct ZooKeeperAddress {
  std::string credentials{};  // empty: none
  std::vector<net::HostPort> hosts{};
  std::string path{};  // "/loch"

  // Errors: invalid_argument.
  static Result<ZooKeeperAddress> parse(std::string_view text);
  [[nodiscard]] std::string servers() const;  // "a:2181,b:2181"
  // As the C client is to be told of the servers, for as long as their names mean the same. Errors:
  // unavailable.
  [[nodiscard]] Result<std::string> look_up(base::Nanos deadline) const;
};

// What ZooKeeper's threads tell ours.
struct ZooKeeperSignals {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t watches_fired = 0;
};

class ZooKeeperSession {
 public:
  enum class Code : std::uint8_t {
    ok,
    missing,    // there is no such node
    exists,     // there is one
    changed,    // it is of another version
    forbidden,  // for these credentials
    lost,       // the connection or the session ended meanwhile: it may have happened or not
    other,      // see `text`
  };
  struct Answer {
    Code code = Code::lost;
    std::string text{};                   // what ZooKeeper calls it
    std::string data{};                   // get
    std::uint64_t version = 0;            // get, exists, set: 1 of a new node, and more with each change
    std::uint64_t owner = 0;              // get, exists: the session it is gone with; 0: none
    std::vector<std::string> children{};  // children
  };
  enum class Lifetime : std::uint8_t { lasting, of_session };

  // How long ZooKeeper waits for a session that says nothing before it takes its host for dead.
  static constexpr base::Nanos timeout_ns = 4 * base::second_ns;

  // The servers' names are looked up until then. Errors: unavailable (no such host), io.
  static Result<std::shared_ptr<ZooKeeperSession>> begin(const ZooKeeperAddress& address,
                                                         ZooKeeperSignals& signals, base::Nanos deadline);
  // What was `of_session` goes at once, if ZooKeeper can be told.
  ~ZooKeeperSession();
  ZooKeeperSession(const ZooKeeperSession&) = delete;
  ZooKeeperSession& operator=(const ZooKeeperSession&) = delete;

  // Of the servers, as they were looked up.
  [[nodiscard]] const std::string& addresses() const { return addresses_; }
  // It will never be of use again.
  [[nodiscard]] bool is_over() const;
  // Waits until ZooKeeper answers; false if it does not, or the session is over.
  bool await_connected(base::Nanos deadline);
  // ZooKeeper's name of it, once it has been connected.
  [[nodiscard]] std::uint64_t id() const;

  // Each says `lost` if there is no answer by the deadline. `watch`: the next change is told to `signals`.
  Answer get(const std::string& path, base::Nanos deadline);
  Answer exists(const std::string& path, bool watch, base::Nanos deadline);
  Answer children(const std::string& path, base::Nanos deadline);
  Answer create(const std::string& path, const std::string& data, Lifetime lifetime, base::Nanos deadline);
  // Of `version` as in Answer.
  Answer set(const std::string& path, const std::string& data, std::uint64_t version, base::Nanos deadline);

 private:
  struct Pending;
  struct Callbacks;
  ZooKeeperSession(std::string credentials, std::string addresses, ZooKeeperSignals& signals)
      : signals_(signals), credentials_(std::move(credentials)), addresses_(std::move(addresses)) {}
  bool introduce();
  Answer ask(base::Nanos deadline, const std::function<int(const void* pending)>& post);

  ZooKeeperSignals& signals_;
  const std::string credentials_;
  const std::string addresses_;
  _zhandle* handle_ = nullptr;
  bool is_introduced_ = false;  // under the mutex of signals_
};

}  // namespace loch::cluster
