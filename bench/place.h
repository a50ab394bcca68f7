// bench/place: where a subject is, and how its clients get there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <loch/error.h>

#include "bench/network.h"

namespace loch::bench {

struct Place {
  std::string folder;                // for files and sockets, in memory
  std::string name;                  // of the subject, and of its files
  const Network* network = nullptr;  // its server is beyond this network; null: there is none
  std::string lochd{};               // the program that is Loch's server

  // "folder/name.ending"
  [[nodiscard]] std::string file(std::string_view ending) const;

  // Over TCP, the port of the server. Whoever starts the server chooses it; the workers, which began before
  // that, read it from a file, and get 0 as long as there is none.
  [[nodiscard]] Result<std::uint16_t> choose_port() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string host() const { return network->server_address(); }
  // In which the server runs, for lab::Process.
  [[nodiscard]] int network_namespace() const { return network == nullptr ? -1 : network->servers(); }
};

}  // namespace loch::bench
