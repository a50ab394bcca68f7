// RemoteFabric: the way of one process to a store on another host. What concerns the store goes over a
// Link; operations over a data connection for each session.
//
// A link that is lost is made anew when the next session begins; those that there were are over.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "fabric/fabric.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_port.h"

namespace loch::fabric::remote {

class RemoteFabric final : public Fabric {
 public:
  static Result<std::shared_ptr<RemoteFabric>> attach(const Target& target,
                                                      base::Nanos within_ns = greeting_max_ns);

  std::unique_ptr<Port> connect() override;
  // The way of a session of a cluster, which it can go. Errors: as Link::join, and Link::open; of a queue
  // pair.
  Result<std::unique_ptr<RemotePort>> connect(const std::string& session);
  // What the host says of the cluster that the store is of, and which node of it the host is.
  struct Membership {
    net::Message map;  // null if it is of none
    std::uint64_t node = 0;
  };
  [[nodiscard]] Result<Membership> membership() const;
  // The same as it is now. It waits for the host no longer than a session does to begin.
  Result<Membership> ask_membership();
  Result<void> extend(RegionId region, std::uint64_t length_bytes) override;
  [[nodiscard]] Atomics atomics() const override { return atomics_; }
  [[nodiscard]] bool read_only() const override { return target_.read_only; }
  // Nobody knows better than the host, which says so when a session begins.
  [[nodiscard]] bool is_published() const override { return true; }
  [[nodiscard]] std::string location() const override { return target_.text(); }
  [[nodiscard]] std::uint64_t free_bytes() const override;
  [[nodiscard]] std::uint64_t huge_page_bytes() const override { return 0; }

  // What is known of a region's length; it only grows.
  [[nodiscard]] std::uint64_t known_length(RegionId region) const { return lengths_[region]; }
  // Asks the host, until then at most. Errors: as Link::ask; corrupt, if no region can be as long.
  Result<std::uint64_t> ask_length(Link& link, RegionId region, base::Nanos deadline);

 private:
  RemoteFabric(Target target, std::shared_ptr<Link> link)
      : target_(std::move(target)), atomics_(link->atomics()), link_(std::move(link)) {}
  // The link, or a new one. Errors: as Link::open.
  Result<std::shared_ptr<Link>> link(base::Nanos within_ns = greeting_max_ns) const;
  // A data connection, and its link. Errors: as Link::join.
  struct Connected {
    std::shared_ptr<Link> link;
    Link::Joined joined;
  };
  Result<Connected> join(const std::string& session) const;
  // Over a new data connection. Errors: as Link::join.
  Result<std::unique_ptr<RemotePort>> open_port(const std::string& session);
  // What the host has answered of a region's length. Errors: corrupt, if no region can be as long.
  Result<std::uint64_t> learn_length(RegionId region, const net::Message& answer);
  Result<void> has_room(Link& link, RegionId region, std::uint64_t length_bytes);

  const Target target_;
  const Atomics atomics_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Link> link_;
  // The last attempt to make a link that failed; how many did is read without the lock.
  struct Failed {
    base::Nanos within_ns = 0;
    Error error{};
  };
  mutable Failed failed_;
  mutable std::atomic<std::uint64_t> failures_ = 0;
  mutable std::array<std::atomic<std::uint64_t>, region_count_max> lengths_{};  // by its link
};

}  // namespace loch::fabric::remote
