#include "fabric/remote/remote_fabric.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "fabric/remote/networks.h"

namespace loch::fabric::remote {
namespace {

// Of a session for which there is no way to the host: everything ends with the reason.
class NoWay final : public RemotePort {
 public:
  NoWay(const RemoteFabric& fabric, Error why) : RemotePort(fabric.location()), fabric_(fabric) {
    severed_ = std::move(why);
  }

  Result<Mapping> map(RegionId region) override {
    return Mapping{.base = nullptr, .length_bytes = fabric_.known_length(region)};
  }
  Result<std::uint64_t> length_bytes(RegionId /*region*/) override { return std::unexpected(*severed_); }
  void post(std::span<Operation> /*batch*/, base::Nanos /*deadline*/, Completion& done) override {
    done.complete(done, std::unexpected(*severed_));
  }
  [[nodiscard]] bool keeps_order() const override { return true; }

  bool progress() override { return false; }
  [[nodiscard]] bool is_idle() const override { return true; }
  bool await(std::vector<pollfd>& /*waits*/) override { return true; }
  void abandon() override {}
  void tell_reached(NodeSet /*nodes*/) override {}
  void give_sign(RegionId /*region*/) override {}

  Result<bool> claim_presence(std::uint32_t /*client*/) override { return std::unexpected(*severed_); }
  void release_presence(std::uint32_t /*client*/) override {}
  [[nodiscard]] bool present(std::uint32_t /*client*/) override { return true; }

 private:
  const RemoteFabric& fabric_;
};

}  // namespace

Result<std::shared_ptr<RemoteFabric>> RemoteFabric::attach(const Target& target, base::Nanos within_ns) {
  auto link = Link::open(target, within_ns);
  if (!link) return std::unexpected(std::move(link.error()));
  if (auto may = check_network(target, (*link)->atomics()); !may)
    return std::unexpected(std::move(may.error()));
  Target granted = target;
  granted.read_only = (*link)->read_only();
  return std::shared_ptr<RemoteFabric>(new RemoteFabric(std::move(granted), std::move(*link)));
}

Result<std::shared_ptr<Link>> RemoteFabric::link(base::Nanos within_ns) const {
  const std::uint64_t failures_before = failures_;
  const std::scoped_lock lock(mutex_);
  if (!link_->is_alive()) {
    // Of threads that wait for each other's turn each would wait for the host in vain, one after the other.
    if (failures_ != failures_before && failed_.within_ns >= within_ns) return std::unexpected(failed_.error);
    auto link = Link::open(target_, within_ns);
    if (!link) {
      failed_ = {.within_ns = within_ns, .error = link.error()};
      ++failures_;
      return link;
    }
    if ((*link)->read_only() != target_.read_only) {
      return fail(
          Errc::permission, "open",
          fmt::format("{}: the host lets this client only read now; open the store again", target_.text()));
    }
    link_ = std::move(*link);
    // What is there now may be another store.
    for (auto& length : lengths_) length = 0;
  }
  return link_;
}

Result<RemoteFabric::Connected> RemoteFabric::join(const std::string& session) const {
  constexpr std::chrono::milliseconds pause{20};
  const base::Nanos deadline = base::Clock().now() + within_ns_of(session);
  for (bool may_have_ended = true;;) {
    auto link = this->link(within_ns_of(session));
    if (!link) return std::unexpected(std::move(link.error()));
    auto joined = (*link)->join(session);
    if (joined) return Connected{.link = std::move(*link), .joined = std::move(*joined)};
    if (joined.error().code == Errc::moved) {
      if (base::Clock().now() < deadline) {
        std::this_thread::sleep_for(pause);
        continue;
      }
      joined.error().code = Errc::unavailable;
    }
    // The host may have ended it before this end could know.
    if ((*link)->is_alive() || !std::exchange(may_have_ended, false))
      return std::unexpected(std::move(joined.error()));
  }
}

Result<std::unique_ptr<RemotePort>> RemoteFabric::open_port(const std::string& session) {
  auto connected = join(session);
  if (!connected) return std::unexpected(std::move(connected.error()));
  return make_port(*this, target_, std::move(connected->link), std::move(connected->joined),
                   within_ns_of(session));
}

std::unique_ptr<Port> RemoteFabric::connect() {
  auto port = open_port({});
  if (!port) return std::make_unique<NoWay>(*this, std::move(port.error()));
  return std::move(*port);
}

Result<std::unique_ptr<RemotePort>> RemoteFabric::connect(const std::string& session) {
  auto port = open_port(session);
  if (!port) return port;
  if (const auto& why = (*port)->severed()) return std::unexpected(*why);
  return port;
}

Result<RemoteFabric::Membership> RemoteFabric::membership() const {
  const auto link = this->link();
  if (!link) return std::unexpected(link.error());
  return Membership{.map = (*link)->cluster(), .node = (*link)->node()};
}

Result<RemoteFabric::Membership> RemoteFabric::ask_membership() {
  const auto link = this->link(joining_max_ns);
  if (!link) return std::unexpected(link.error());
  auto answer = (*link)->ask({{"do", "membership"}}, base::Clock().now() + joining_max_ns);
  if (!answer) return std::unexpected(std::move(answer.error()));
  return Membership{.map = (*answer)["cluster"], .node = net::number_of(*answer, "node").value_or(0)};
}

Result<std::uint64_t> RemoteFabric::learn_length(RegionId region, const net::Message& answer) {
  const std::uint64_t told = net::number_of(answer, "bytes").value_or(0);
  if (told > region_bytes_max) {
    return fail(Errc::corrupt, "fabric",
                fmt::format("{}: the host says that region {} has {} bytes, more than a region can have",
                            target_.text(), region, told));
  }
  std::uint64_t known = lengths_[region];
  while (known < told && !lengths_[region].compare_exchange_weak(known, told)) {
  }
  return told;
}

Result<std::uint64_t> RemoteFabric::ask_length(Link& link, RegionId region, base::Nanos deadline) {
  const auto answer = link.ask({{"do", "length"}, {"region", region}}, deadline);
  if (!answer) return std::unexpected(answer.error());
  if (auto told = learn_length(region, *answer); !told) return told;
  return known_length(region);
}

Result<void> RemoteFabric::extend(RegionId region, std::uint64_t length_bytes) {
  auto link = this->link();
  if (!link) return std::unexpected(std::move(link.error()));
  std::uint64_t length = known_length(region);
  if (length_bytes > length + extension_bytes_max) {
    if (auto has_room = this->has_room(**link, region, length_bytes); !has_room) return has_room;
    length = known_length(region);
  }
  do {
    const std::uint64_t wanted = std::min(length_bytes, length + extension_bytes_max);
    auto answer = (*link)->ask({{"do", "extend"}, {"region", region}, {"bytes", wanted}});
    if (!answer) return std::unexpected(std::move(answer.error()));
    const auto told = learn_length(region, *answer);
    if (!told) return std::unexpected(told.error());
    length = *told;
    if (length < wanted) {
      return fail(Errc::unavailable, "extend",
                  fmt::format("{}: the host says that a region which it has just made {} bytes long has {}",
                              target_.text(), wanted, length));
    }
  } while (length < length_bytes);
  return {};
}

// Before it is made longer in several steps, since those that came to nothing would stay.
Result<void> RemoteFabric::has_room(Link& link, RegionId region, std::uint64_t length_bytes) {
  const auto length = ask_length(link, region, base::Clock().now() + answer_max_ns);
  if (!length && length.error().code != Errc::not_found) return std::unexpected(length.error());
  const auto free = link.ask({{"do", "free"}});
  if (!free) return std::unexpected(free.error());
  const std::uint64_t free_bytes = net::number_of(*free, "bytes").value_or(0);
  const std::uint64_t more_bytes = length_bytes - std::min(length_bytes, known_length(region));
  if (more_bytes <= free_bytes) return {};
  return fail(
      Errc::no_space, "extend",
      fmt::format("{}: {} bytes more are needed together, and {} are free on that host; remove items or "
                  "stores there (`loch ls`), or enlarge the file system",
                  target_.text(), more_bytes, free_bytes));
}

std::uint64_t RemoteFabric::free_bytes() const {
  const auto link = this->link();
  if (!link) return 0;
  const auto answer = (*link)->ask({{"do", "free"}});
  return answer ? net::number_of(*answer, "bytes").value_or(0) : 0;
}

}  // namespace loch::fabric::remote
