// The one place that knows which backends there are.
#include <algorithm>
#include <fmt/format.h>

#include "fabric/fabric.h"
#include "fabric/shm/shm.h"

namespace loch::fabric {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}

Result<Url> parse_shm(std::string_view url) {
  Result<Url> parsed = parse_url(url);
  if (!parsed) return parsed;
  if (parsed->scheme != "shm") {
    return fail(
        Errc::invalid_argument, "open",
        fmt::format("no fabric '{}' in this build; '{}' must begin with shm://", parsed->scheme, url));
  }
  return parsed;
}

Access with_directory(const Access& access, const Url& url) {
  Access result = access;
  if (!url.directory.empty()) result.directory = url.directory;
  return result;
}

}  // namespace

Result<Url> parse_url(std::string_view url) {
  const auto colon = url.find("://");
  if (colon == std::string_view::npos) {
    return fail(Errc::invalid_argument, "open", fmt::format("'{}' is no store URL; write shm://NAME", url));
  }
  Url parsed;
  parsed.scheme = url.substr(0, colon);
  std::string_view rest = url.substr(colon + 3);
  if (const auto slash = rest.rfind('/'); slash != std::string_view::npos) {
    parsed.directory = rest.substr(0, slash);
    rest = rest.substr(slash + 1);
    if (parsed.directory.empty() || parsed.directory.front() != '/') {
      return fail(Errc::invalid_argument, "open",
                  fmt::format("the folder in '{}' must be absolute: shm:///folder/name", url));
    }
  }
  parsed.name = rest;
  constexpr std::size_t name_bytes_max = 64;
  if (rest.empty() || rest.size() > name_bytes_max || !std::ranges::all_of(rest, is_name_character) ||
      rest.front() == '.') {
    return fail(
        Errc::invalid_argument, "open",
        fmt::format("'{}' is no store name; use 1 to 64 letters, digits, '.', '_' or '-', and no '.' first",
                    rest));
  }
  return parsed;
}

Result<std::shared_ptr<Fabric>> attach(std::string_view url, const Access& access) {
  const Result<Url> parsed = parse_shm(url);
  if (!parsed) return std::unexpected(parsed.error());
  return shm::attach(parsed->name, with_directory(access, *parsed));
}

Result<std::shared_ptr<Fabric>> create(std::string_view url, const Access& access, const Plan& plan) {
  const Result<Url> parsed = parse_shm(url);
  if (!parsed) return std::unexpected(parsed.error());
  return shm::create(parsed->name, with_directory(access, *parsed), plan);
}

Result<void> destroy(std::string_view url, const Access& access) {
  const Result<Url> parsed = parse_shm(url);
  if (!parsed) return std::unexpected(parsed.error());
  return shm::destroy(parsed->name, with_directory(access, *parsed));
}

Result<std::vector<std::string>> list(const Access& access) { return shm::list(access); }

}  // namespace loch::fabric
