// ConnectionEnd: what one end of a queue pair says of itself, for people to see whether both ends agree; and
// how a host tells a client (remote/protocol.h).
#pragma once

#include <loch/devices.h>
#include <loch/error.h>

#include "fabric/verbs/rdma.h"
#include "net/message.h"

namespace loch::fabric::verbs {

using ConnectionEnd = RdmaConnection::End;

// Of an identifier that has a queue pair. Errors: io.
Result<ConnectionEnd> connection_end_of(const rdma_cm_id& id);

net::Message to_message(const ConnectionEnd& end);
// Errors: corrupt, naming the field.
Result<ConnectionEnd> connection_end_of(const net::Message& message);

}  // namespace loch::fabric::verbs
