// cmd/table: text in aligned columns, for people.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace loch::cmd {

class Table {
 public:
  // A letter a column: 'l' aligns left, 'r' right.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // The rows, two spaces between the columns, no spaces at the ends of lines.
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths(alignment_.size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - width(row[i]), ' ');
        if (i > 0) line += "  ";
        line += alignment_[i] == 'r' ? padding + row[i] : row[i] + padding;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  // Characters, not bytes: what begins no UTF-8 sequence takes no column.
  static std::size_t width(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (c & '\xc0') != '\x80'; }));
  }

  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace loch::cmd
