// ZooKeeperCoordinator: a cluster whose map ZooKeeper keeps, and which may change.
//
//   zookeeper://HOST:PORT,HOST:PORT/PATH                 port 2181 unless told
//   zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH   up to the last '@'; so a PATH with one needs a user
//
//   PATH/map             the map as JSON (fabric/map_message.h)
//   PATH/members/NAME    {"at": "10.0.0.1:7457"}, of each host that is there; goes with its session
//
// Without USER:PASSWORD everybody who reaches ZooKeeper may read and change all of this, and so say which
// hosts the store is on. With it ("digest"), what is created here is for that user alone. ZooKeeper's
// connections are not encrypted: a network that others listen to needs more than this.
//
// A call ends within 5 seconds (announce: see there), with or without ZooKeeper, and within 6 if that does
// not answer and its hosts' names are looked up once more, since they may be elsewhere now. A session that
// expired is replaced by the next call, or within a second if this host is announced, and then it is
// announced again.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/zookeeper_session.h"

namespace loch::cluster {

class ZooKeeperCoordinator final : public Coordinator {
 public:
  // `where` without "zookeeper://". Errors: invalid_argument.
  static Result<std::unique_ptr<Coordinator>> open(std::string_view where);
  explicit ZooKeeperCoordinator(ZooKeeperAddress address) : address_(std::move(address)) {}
  ~ZooKeeperCoordinator() override;
  ZooKeeperCoordinator(const ZooKeeperCoordinator&) = delete;
  ZooKeeperCoordinator& operator=(const ZooKeeperCoordinator&) = delete;

  Result<Versioned> read_map() override;
  [[nodiscard]] bool may_change() const override { return true; }
  Result<void> write_map(const fabric::ClusterMap& map, std::uint64_t version) override;
  // What a killed process said stands until its session has timed out, so somebody else of this name is an
  // error only after two such times.
  Result<void> announce(const Present& self) override;
  // That ZooKeeper does not answer is no reason: all other calls say so.
  void tell_of_lost_name(const std::function<void(const std::string& why)>& told) override {
    lost_name_ = told;
  }
  Result<std::vector<Present>> present() override;
  void wait_for_change(std::uint64_t version, base::Nanos at_most_ns) override;

 private:
  using Session = ZooKeeperSession;
  struct Asked {
    Session::Answer answer;
    std::uint64_t session = 0;  // that was answered
    bool is_unsure = false;     // it was asked before, and what came of that is not known
  };

  Result<std::shared_ptr<Session>> session(base::Nanos deadline);
  void drop_if_moved(const std::shared_ptr<Session>& silent);
  // Asks, in new sessions if need be, until there is an answer. Errors: unavailable, permission, io.
  template <class Ask>
  Result<Asked> ask(const std::string& path, base::Nanos deadline, Ask ask);
  Result<Asked> create(const std::string& path, const std::string& data, Session::Lifetime lifetime,
                       base::Nanos deadline);
  // Whether it says so now; false: another one does.
  Result<bool> announce_once(const Present& self, base::Nanos deadline);
  Result<void> start_announcer();
  Result<bool> announce_again();
  [[nodiscard]] std::unexpected<Error> name_is_taken(const std::string& name) const;
  void keep_announced();
  [[nodiscard]] std::string map_path() const { return address_.path + "/map"; }
  [[nodiscard]] std::string members_path() const { return address_.path + "/members"; }
  [[nodiscard]] std::unexpected<Error> failure(Errc code, const std::string& path,
                                               std::string_view what) const;

  const ZooKeeperAddress address_;
  const base::Clock clock_;
  ZooKeeperSignals signals_;
  // Under the mutex of signals_.
  std::shared_ptr<Session> session_;
  std::uint64_t announced_in_ = 0;  // the session
  bool stop_ = false;

  std::function<void(const std::string&)> lost_name_;

  std::mutex announcing_;  // one at a time
  // Under announcing_.
  std::optional<Present> self_;
  std::thread announcer_;  // announces again; begins with the first announcement
};

}  // namespace loch::cluster
