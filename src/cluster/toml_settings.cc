#include "cluster/toml_settings.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <utility>

namespace loch::cluster {

template <class T>
void TomlSettings::value(const char* name, const char* what, T& into) {
  const auto* node = find(name);
  if (node == nullptr) return;
  if (auto value = node->value_exact<T>()) {
    into = std::move(*value);
  } else {
    complain(*node, fmt::format("'{}' {}", name, what));
  }
}
template void TomlSettings::value(const char*, const char*, std::string&);
template void TomlSettings::value(const char*, const char*, bool&);

void TomlSettings::number(const char* name, std::int64_t min, std::int64_t max,
                          const std::function<void(std::int64_t)>& take) {
  const auto* node = find(name);
  if (node == nullptr) return;
  const auto value = node->value_exact<std::int64_t>();
  if (value && *value >= min && *value <= max) {
    take(*value);
  } else {
    complain(*node, fmt::format("'{}' is a whole number, {} to {}", name, min, max));
  }
}

void TomlSettings::address(const char* name, std::uint16_t default_port,
                           const std::function<void(net::HostPort)>& take) {
  if (const auto* node = find(name); node != nullptr) take_address(*node, default_port, take);
}

void TomlSettings::addresses(const char* name, std::uint16_t default_port,
                             const std::function<void(net::HostPort)>& take) {
  const auto* node = find(name);
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty()) {
    complain(*node,
             fmt::format("'{}' is a list of one address or more, as [\"127.0.0.1:{}\"]", name, default_port));
    return;
  }
  for (const toml::node& each : *list) take_address(each, default_port, take);
}

void TomlSettings::table(const char* name, const Read& read) {
  const auto* node = find(name);
  if (node == nullptr) return;
  if (node->as_table() == nullptr) return complain(*node, fmt::format("'{}' is a table: [{}]", name, name));
  read_table(*node->as_table(), read);
}

void TomlSettings::tables(const char* name, const Read& read) {
  const auto* node = find(name);
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_homogeneous(toml::node_type::table))
    return complain(*node, fmt::format("'{}' is a list of tables: [[{}]]", name, name));
  for (const toml::node& each : *list) read_table(*each.as_table(), read);
}

const toml::node* TomlSettings::find(const char* name) {
  asked_.insert(name);
  return table_.get(name);
}

void TomlSettings::complain_of(const char* name, const std::string& what) {
  const toml::node* node = table_.get(name);
  complain(node == nullptr ? table_ : *node, what);
}

void TomlSettings::complain(const toml::node& node, const std::string& what) {
  if (!error_) error_ = fmt::format("{}:{}: {}", path_, node.source().begin.line, what);
}

void TomlSettings::take_address(const toml::node& node, std::uint16_t default_port,
                                const std::function<void(net::HostPort)>& take) {
  const auto value = node.value_exact<std::string>();
  if (!value) return complain(node, "an address is a text in quotes, as \"127.0.0.1:7457\"");
  auto address = net::parse_host_port(*value, default_port);
  if (!address) return complain(node, address.error().detail);
  take(std::move(*address));
}

void TomlSettings::read_table(const toml::table& table, const Read& read) {
  TomlSettings inner(table, path_);
  inner.read_all(read);
  if (!error_) error_ = inner.error_;
}

void TomlSettings::read_all(const Read& read) {
  read(*this);
  for (const auto& [key, node] : table_) {
    if (!asked_.contains(std::string(key.str())))
      complain(node,
               fmt::format("there is no setting '{}'; there are: {}", key.str(), fmt::join(asked_, ", ")));
  }
}

Result<void> TomlSettings::read(const std::string& path, const char* what, const Read& read) {
  const auto failed = [&](int error) {
    const Errc code = error == ENOENT ? Errc::not_found : error == EACCES ? Errc::permission : Errc::io;
    return fail(code, what, fmt::format("{}: {}", path, std::strerror(error)));
  };
  std::ifstream file(path);
  if (!file) return failed(errno);
  std::string text;
  for (std::array<char, 4'096> part; file.read(part.data(), part.size()) || file.gcount() != 0;)
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return failed(errno);  // of a folder, say
  // What toml++ throws stays here.
  try {
    const toml::table table = toml::parse(text, path);
    TomlSettings settings(table, path);
    settings.read_all(read);
    if (settings.error_) return fail(Errc::invalid_argument, what, *settings.error_);
    return {};
  } catch (const toml::parse_error& error) {
    return fail(Errc::invalid_argument, what,
                fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
}

}  // namespace loch::cluster
