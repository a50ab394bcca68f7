// A host that greets, lets a client open a store, and answers what it asks over its link, with messages of
// which anything was changed, or with any bytes. Expect: who does not prove that he knows the key is not
// taken for the host; what can not be is an error that people can be shown; and nothing is waited for in
// vain.
//
// The input says whether the client asks to read only; the rest is the host's script.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "fabric/fabric.h"
#include "fabric/map_message.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/tcp/tcp_port.h"
#include "tests/fuzz/connection.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/lying_host.h"
#include "tests/fuzz/messages.h"

namespace loch::fuzz {
namespace {

using fabric::remote::Link;
using fabric::remote::RemoteFabric;

constexpr base::Nanos within_ns = 5 * base::second_ns;

template <class T>
void check_plain(const Result<T>& result) {
  if (!result) LOCH_CHECK(!result.error().detail.empty() && is_plain(result.error().detail));
}

// What a session asks of the host itself.
void ask(RemoteFabric& way, const std::shared_ptr<Link>& link) {
  Connection connection({});
  fabric::tcp::TcpPort port(way, link, {.stream = connection.other_end(), .port = 1}, within_ns);
  check_plain(port.claim_presence(1));
  [[maybe_unused]] const bool is_present = port.present(2);
  const auto length = port.length_bytes(3);
  check_plain(length);
  // As long as a region can be: what is done with it relies on that.
  LOCH_CHECK(!length || *length <= fabric::region_bytes_max);
  port.release_presence(1);
  port.abandon();
}

void run(Input input) {
  static auto& host = *new LyingHost;
  static const auto& way = *new std::shared_ptr(RemoteFabric::attach(host.target()).value());
  auto target = host.target();
  target.read_only = (input.take(1) & 1) != 0;
  host.lie(input.take_bytes(~std::size_t{0}));
  const auto link = Link::open(target, within_ns);
  const LyingHost::Told told = host.told();
  check_plain(link);
  if (!link) {
    LOCH_CHECK(link.error().code != Errc::timed_out);
    return;
  }
  LOCH_CHECK(told.proves_the_host());
  LOCH_CHECK((*link)->read_only() == net::flag_of(told.opened, "read_only"));
  LOCH_CHECK(!target.read_only || (*link)->read_only());
  // As whoever goes by it does.
  const net::Message cluster((*link)->cluster());
  if (!cluster.is_null()) check_plain(fabric::cluster::map_of(cluster));
  ask(*way, *link);
}

}  // namespace
}  // namespace loch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::fuzz::run({data, size});
  return 0;
}
