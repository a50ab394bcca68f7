// TomlSettings: a TOML file that is read strictly: a setting that is not known, of another type, or out of
// its range is an error that names the file and the line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <toml++/toml.h>
#include <utility>

#include <loch/error.h>

#include "net/socket.h"

namespace loch::cluster {

// Of one table; it notices those that nobody asked for. What is wrong first is what is told.
class TomlSettings {
 public:
  using Read = std::function<void(TomlSettings&)>;
  // Has `read` ask for all settings of a file. Errors, of `what`: invalid_argument ("lochd.toml:7: ..."),
  // not_found, permission, io.
  static Result<void> read(const std::string& path, const char* what, const Read& read);

  void text(const char* name, std::string& into) { value(name, "is to be a text in quotes", into); }
  void flag(const char* name, bool& into) { value(name, "is true or false", into); }
  void number(const char* name, std::int64_t min, std::int64_t max,
              const std::function<void(std::int64_t)>& take);
  void address(const char* name, std::uint16_t default_port, const std::function<void(net::HostPort)>& take);
  void addresses(const char* name, std::uint16_t default_port,
                 const std::function<void(net::HostPort)>& take);
  // Of the table `name`, if there is one.
  void table(const char* name, const Read& read);
  void tables(const char* name, const Read& read);

  // Of the table, or of what it says of `name`, which has been asked for.
  void complain(const std::string& what) { complain(table_, what); }
  void complain_of(const char* name, const std::string& what);

 private:
  TomlSettings(const toml::table& table, std::string path) : table_(table), path_(std::move(path)) {}
  const toml::node* find(const char* name);
  void complain(const toml::node& node, const std::string& what);
  template <class T>
  void value(const char* name, const char* what, T& into);
  void take_address(const toml::node& node, std::uint16_t default_port,
                    const std::function<void(net::HostPort)>& take);
  void read_table(const toml::table& table, const Read& read);
  void read_all(const Read& read);

  const toml::table& table_;
  const std::string path_;
  std::set<std::string> asked_;
  std::optional<std::string> error_;
};

}  // namespace loch::cluster
