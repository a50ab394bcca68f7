#include "bench/place.h"

#include <fmt/format.h>
#include <fstream>

namespace loch::bench {

std::string Place::file(std::string_view ending) const {
  return fmt::format("{}/{}.{}", folder, name, ending);
}

Result<std::uint16_t> Place::choose_port() const {
  const auto chosen = network->free_port();
  if (!chosen) return chosen;
  std::ofstream written(file("port"), std::ios::trunc);
  written << *chosen;
  written.close();
  if (!written) return fail(Errc::io, "bench", fmt::format("{} can not be written", file("port")));
  return chosen;
}

std::uint16_t Place::port() const {
  std::uint16_t chosen = 0;
  std::ifstream(file("port")) >> chosen;
  return chosen;
}

}  // namespace loch::bench
