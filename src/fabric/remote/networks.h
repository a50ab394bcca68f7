// The networks that a target may name, as far as this folder has to know them. Defined where all backends are
// known (fabric/open.cc).
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_port.h"

namespace loch::fabric::remote {

class RemoteFabric;

// Whether the target's network is a way to a store with such atomics. Errors: incompatible.
Result<void> check_network(const Target& target, Atomics atomics);

// The way of a session, beside or over the data connection that it has joined. `within_ns` is for the queue
// pair, if it needs one, and for what the session asks the host later. It may be over already.
std::unique_ptr<RemotePort> make_port(RemoteFabric& fabric, const Target& target, std::shared_ptr<Link> link,
                                      Link::Joined joined, base::Nanos within_ns);

}  // namespace loch::fabric::remote
