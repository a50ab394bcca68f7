// lab/hosts: hosts with a network between them, on this machine alone: each is a network namespace with one
// address and one cable, and the cables meet in a switch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <loch/error.h>

#include "lab/namespaces.h"

namespace loch::lab {

class Hosts {
 public:
  // The calling thread is at the switch from then on, from where it reaches all hosts; so is every thread and
  // process that it starts. To be called while there is no other thread. Needs the privileges of root, and
  // `ip`, whose output goes to the file `log`. Errors: permission, io, not_found, timed_out; then the thread
  // is where it was.
  static Result<Hosts> make(std::size_t count, std::string log);

  [[nodiscard]] std::size_t count() const { return hosts_.size(); }
  // "a", "b" and so on.
  static std::string name(std::size_t host);
  static std::string address(std::size_t host);
  static std::string address_of_switch();
  [[nodiscard]] const NetworkNamespace& at(std::size_t host) const { return hosts_[host]; }

  // The calling thread is on a host while this lives, as is for good what it starts meanwhile.
  class [[nodiscard]] Visit {
   public:
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    friend class Hosts;
    Visit(const NetworkNamespace& host, const NetworkNamespace& back);
    const NetworkNamespace& back_;
  };
  Visit visit(std::size_t host) const { return {hosts_[host], switch_}; }

  // Pulls a host's cable, and plugs it in again.
  [[nodiscard]] Result<void> cut_off(std::size_t host) const;
  [[nodiscard]] Result<void> join_again(std::size_t host) const;
  // From now on what `from` sends to `to` is lost, or gets there again. The other direction stays as it is.
  [[nodiscard]] Result<void> lose(std::size_t from, std::size_t to) const;
  [[nodiscard]] Result<void> deliver(std::size_t from, std::size_t to) const;

 private:
  Hosts(Ip ip, NetworkNamespace at_switch) : ip_(std::move(ip)), switch_(std::move(at_switch)) {}
  Result<void> make_switch() const;
  Result<void> add_host();
  Result<void> change_route(const char* change, std::size_t from, std::size_t to) const;

  Ip ip_;
  NetworkNamespace switch_;
  std::vector<NetworkNamespace> hosts_;
};

}  // namespace loch::lab
