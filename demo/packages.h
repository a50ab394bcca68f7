// demo/packages: the package index of a Debian system as a data set. The index is stanzas of "Field: value"
// lines, with an empty line between two stanzas; a line that starts with a space continues the one before it.
//
// I1 Every record has another key: the package's name, or "name/version/architecture" where several have that
// name,
//    or that with "#2", "#3" ... where even those are alike.
// I2 A record's stanza is its text as it stands in the index, without the empty line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

namespace loch::demo {

struct Package {
  std::string key;
  std::string_view stanza;  // into the text of its Packages
};

class Packages {
 public:
  // Takes the index as text; what has no "Package:" field is left out.
  explicit Packages(std::string text);
  Packages(const Packages&) = delete;
  Packages& operator=(const Packages&) = delete;

  [[nodiscard]] std::size_t size() const { return packages_.size(); }
  [[nodiscard]] const Package& operator[](std::size_t i) const { return packages_[i]; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of all keys and stanzas
  [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
  void take(std::string_view stanza);
  void make_keys_unique();

  struct Names {
    std::string_view name;
    std::string_view version;
    std::string_view architecture;
  };

  std::string text_;
  std::vector<Package> packages_;
  std::vector<Names> names_;
  std::uint64_t bytes_ = 0;
  std::size_t left_out_ = 0;
};

// The value of a field of a stanza up to the end of its first line; empty if there is none.
std::string_view field(std::string_view stanza, std::string_view name);

// What `apt-cache dumpavail` prints, by a file in `folder` for the time being. Errors: not_found if there is
// no apt-cache or it knows no packages, with what to do; io; timed_out.
Result<std::string> read_available_packages(const std::string& folder);

// The text of a file. Errors: io.
Result<std::string> read_index_file(const std::string& path);

}  // namespace loch::demo
