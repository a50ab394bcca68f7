#include "demo/packages.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>

#include <loch/loch.h>

#include "lab/process.h"

namespace loch::demo {
namespace {

constexpr std::chrono::seconds apt_timeout{60};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// The line at the start of `text`, without its newline; takes it off `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t newline = text.find('\n');
  const std::string_view line = text.substr(0, newline);
  text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  return line;
}

}  // namespace

std::string_view field(std::string_view stanza, std::string_view name) {
  while (!stanza.empty()) {
    std::string_view line = take_line(stanza);
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    const std::size_t begin = line.find_first_not_of(" \t");
    const std::size_t end = line.find_last_not_of(" \t\r");
    return begin == std::string_view::npos ? std::string_view() : line.substr(begin, end - begin + 1);
  }
  return {};
}

Packages::Packages(std::string text) : text_(std::move(text)) {
  std::string_view rest = text_;
  std::string_view stanza = rest.substr(0, 0);
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (is_blank(line)) {
      take(stanza);
      stanza = rest.substr(0, 0);
    } else {
      const char* begin =
          stanza.data();  // NOLINT(bugprone-suspicious-stringview-data-usage): the length follows
      stanza = std::string_view(begin, static_cast<std::size_t>(line.data() + line.size() - begin));
    }
  }
  take(stanza);
  make_keys_unique();
  for (const Package& package : packages_) bytes_ += package.key.size() + package.stanza.size();
}

void Packages::take(std::string_view stanza) {
  if (stanza.empty()) return;
  const Names names{.name = field(stanza, "Package"),
                    .version = field(stanza, "Version"),
                    .architecture = field(stanza, "Architecture")};
  const std::size_t longest_key = names.name.size() + names.version.size() + names.architecture.size() + 32;
  if (names.name.empty() || longest_key > key_bytes_max || stanza.size() > value_bytes_max) {
    ++left_out_;
    return;
  }
  packages_.push_back({.key = "", .stanza = stanza});
  names_.push_back(names);
}

void Packages::make_keys_unique() {
  std::unordered_map<std::string_view, std::size_t> of_that_name;
  for (const Names& names : names_) ++of_that_name[names.name];
  std::unordered_set<std::string_view> taken;  // views into the keys, which stay where they are
  for (std::size_t i = 0; i < packages_.size(); ++i) {
    const Names& names = names_[i];
    std::string& key = packages_[i].key;
    const std::string full = fmt::format("{}/{}/{}", names.name, names.version, names.architecture);
    key = of_that_name[names.name] == 1 ? std::string(names.name) : full;
    for (std::size_t number = 2; !taken.insert(key).second; ++number)
      key = fmt::format("{}#{}", full, number);
  }
}

Result<std::string> read_index_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) {
    return fail(Errc::io, "read", fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  return text;
}

Result<std::string> read_available_packages(const std::string& folder) {
  const auto program = lab::find_program("apt-cache", "apt");
  if (!program) {
    return fail(Errc::not_found, "read", "there is no apt-cache here; give a package index by --source FILE");
  }
  const std::string path = folder + "/available";
  const auto ended = lab::Process::run_to_end({.words = {*program, "dumpavail"}, .log = path}, apt_timeout);
  if (!ended) return std::unexpected(ended.error());
  auto text = read_index_file(path);
  ::unlink(path.c_str());
  if (text && text->find("Package:") == std::string::npos) {
    return fail(Errc::not_found, "read",
                "apt-cache dumpavail lists no packages; fetch the lists, as root: apt-get update "
                "(or give a package index by --source FILE)");
  }
  return text;
}

}  // namespace loch::demo
