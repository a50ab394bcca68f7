#include "lab/hosts.h"

#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace loch::lab {
namespace {

constexpr const char* bridge = "switch";
constexpr const char* interface = "cable";  // at the host's end

// Of a block that is for documentation alone.
std::string address_of(std::size_t number) { return fmt::format("192.0.2.{}", number); }
constexpr std::size_t number_of_switch = 254;

std::string with_network(const std::string& address) { return address + "/24"; }

// At the switch's end.
std::string cable(std::size_t host) { return "to-" + Hosts::name(host); }

}  // namespace

Result<Hosts> Hosts::make(std::size_t count, std::string log) {
  auto ip = Ip::make(std::move(log));
  if (!ip) return std::unexpected(std::move(ip.error()));
  const auto before = NetworkNamespace::current();
  if (!before) return std::unexpected(before.error());
  auto at_switch = NetworkNamespace::enter_new();
  if (!at_switch) return std::unexpected(std::move(at_switch.error()));
  Hosts hosts(std::move(*ip), std::move(*at_switch));
  auto made = hosts.make_switch();
  while (made && hosts.count() < count) made = hosts.add_host();
  if (made) return hosts;
  std::ignore = before->enter();
  return std::unexpected(std::move(made.error()));
}

Result<void> Hosts::make_switch() const {
  // Who is at the switch reaches itself by its address, too.
  if (auto raised = ip_.run({"link", "set", "lo", "up"}); !raised) return raised;
  if (auto made = ip_.run({"link", "add", bridge, "type", "bridge"}); !made) return made;
  return ip_.raise(bridge, with_network(address_of(number_of_switch)));
}

Result<void> Hosts::add_host() {
  const std::size_t host = count();
  auto added = NetworkNamespace::enter_new();
  if (!added) return std::unexpected(std::move(added.error()));
  hosts_.push_back(std::move(*added));
  // A host reaches itself by its own address, too.
  auto done = ip_.run({"link", "set", "lo", "up"});
  if (done) done = switch_.enter();
  if (done)
    done = ip_.run(
        {"link", "add", cable(host), "type", "veth", "peer", "name", interface, "netns", at(host).path()});
  if (done) done = ip_.run({"link", "set", cable(host), "master", bridge, "up"});
  if (!done) return done;
  const Visit visit = this->visit(host);
  return ip_.raise(interface, with_network(address(host)));
}

std::string Hosts::name(std::size_t host) { return {static_cast<char>('a' + host)}; }

std::string Hosts::address(std::size_t host) { return address_of(host + 1); }
std::string Hosts::address_of_switch() { return address_of(number_of_switch); }

// A thread that can not go where it was before would do all that follows in the wrong place.
Hosts::Visit::Visit(const NetworkNamespace& host, const NetworkNamespace& back) : back_(back) {
  LOCH_CHECK(host.enter().has_value());
}
Hosts::Visit::~Visit() { LOCH_CHECK(back_.enter().has_value()); }

Result<void> Hosts::cut_off(std::size_t host) const { return ip_.run({"link", "set", cable(host), "down"}); }

Result<void> Hosts::join_again(std::size_t host) const { return ip_.run({"link", "set", cable(host), "up"}); }

Result<void> Hosts::lose(std::size_t from, std::size_t to) const { return change_route("add", from, to); }

Result<void> Hosts::deliver(std::size_t from, std::size_t to) const { return change_route("del", from, to); }

Result<void> Hosts::change_route(const char* change, std::size_t from, std::size_t to) const {
  const Visit visit = this->visit(from);
  return ip_.run({"route", change, "blackhole", address(to)});
}

}  // namespace loch::lab
