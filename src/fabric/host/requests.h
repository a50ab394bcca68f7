// Requests: what the process at the other end of a link asks a host for (protocol.h), and what it is
// answered. Of the host's thread.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/host.h"
#include "fabric/host/extender.h"
#include "fabric/host/seldom.h"
#include "fabric/host/sessions.h"
#include "fabric/verbs/lender.h"
#include "net/message.h"

namespace loch::fabric::host {

class Requests {
 public:
  using Id = Sessions::Id;

  // All outlive it; `lender` may be null.
  Requests(const Host::Options& options, Sessions& sessions, verbs::Lender* lender)
      : options_(options), sessions_(sessions), lender_(lender) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // Of a link that has opened this store.
  net::Message answer(Id link, OpenedStore& store, const net::Message& asked);
  // A client will need it. Nobody waits, so nobody is told why not.
  void extend_soon(OpenedStore& store, std::uint64_t region, std::uint64_t bytes);

 private:
  Result<net::Message> carry_out(Id link, OpenedStore& store, const net::Message& asked);
  [[nodiscard]] bool is_here(OpenedStore& store, std::uint64_t region) const;
  // Whether a region that is here may become so long by one question.
  Result<void> may_extend(OpenedStore& store, RegionId region, std::uint64_t bytes);
  Result<net::Message> answer_about_region(OpenedStore& store, const std::string& what,
                                           const net::Message& asked);
  Result<net::Message> offer_queue_pair(Id session, const OpenedStore& store);
  [[nodiscard]] Result<net::Message> describe_connection(Id session) const;
  Result<net::Message> lend(Id session, RegionId region, const net::Message& asked);

  const Host::Options& options_;
  Sessions& sessions_;
  verbs::Lender* const lender_;
  Extender extender_;
  Seldom unlent_{10};
};

// What a host says of the cluster that a store is of.
net::Message membership(const Host::Options::Cluster& of);

}  // namespace loch::fabric::host
