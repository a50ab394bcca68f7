#include "sim/explore/scenario.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

#include "hash/index.h"

namespace loch::explore {
namespace {

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

std::unexpected<Error> wrong(std::string_view word) {
  return fail(Errc::invalid_argument, "scenario",
              fmt::format("'{}' is not understood; see sim/explore/scenario.h", word));
}

bool is_digit(char c, unsigned below) { return c >= '0' && static_cast<unsigned>(c - '0') < below; }

bool parse_act(char letter, Act& act) {
  switch (letter) {
    case 'P':
      act = Act::put;
      return true;
    case 'I':
      act = Act::insert;
      return true;
    case 'D':
      act = Act::remove;
      return true;
    case 'G':
      act = Act::get;
      return true;
    case 'M':
      act = Act::move;
      return true;
    case 'S':
      act = Act::split;
      return true;
    case 'F':
      act = Act::finish;
      return true;
    default:
      return false;
  }
}

bool parse_script(const std::string& text, std::vector<ScriptOp>& script) {
  for (std::size_t i = 0; i < text.size();) {
    ScriptOp op;
    if (!parse_act(text[i++], op.act)) return false;
    if (op.act != Act::finish) {
      if (i >= text.size() || !is_digit(text[i], keys_max)) return false;
      op.key = static_cast<std::uint8_t>(text[i++] - '0');
    }
    if ((op.act == Act::split || op.act == Act::move) && i < text.size() && is_digit(text[i], 4)) {
      op.candidate = static_cast<std::uint8_t>(text[i++] - '0');
    }
    if (op.act == Act::split && op.candidate == ScriptOp::any_candidate) return false;
    script.push_back(op);
  }
  return !script.empty() && script.size() <= script_max;
}

bool parse_key(const std::string& text, KeyShape& key) {
  for (std::size_t i = 0; i < text.size();) {
    if (!is_digit(text[i], 1U << base_level)) return false;
    KeyShape::Candidate candidate{.bits = static_cast<std::uint64_t>(text[i++] - '0'),
                                  .known = (std::uint64_t{1} << base_level) - 1};
    for (unsigned bit = base_level; i < text.size() && (text[i] == '+' || text[i] == '-'); ++i, ++bit) {
      candidate.known |= std::uint64_t{1} << bit;
      if (text[i] == '+') candidate.bits |= std::uint64_t{1} << bit;
    }
    key.candidates.push_back(candidate);
  }
  const std::size_t count = key.candidates.size();
  if (count < 2 || count > hash::candidates_max) return false;
  // All but the last are in the home row.
  return std::all_of(key.candidates.begin(), key.candidates.end() - 1,
                     [&](const KeyShape::Candidate& one) { return one == key.candidates.front(); });
}

bool parse_places(const std::string& text, bool with_at, const Scenario& scenario,
                  std::vector<Place>& places) {
  for (const std::string& part : split_at(text, ',')) {
    if (part.size() != (with_at ? 3U : 2U) || (with_at && part[1] != '@')) return false;
    if (!is_digit(part.front(), static_cast<unsigned>(scenario.keys.size())) ||
        !is_digit(part.back(), scenario.candidates())) {
      return false;
    }
    places.push_back(
        {static_cast<std::uint8_t>(part.front() - '0'), static_cast<std::uint8_t>(part.back() - '0')});
  }
  return true;
}

bool parse_number(const std::string& text, unsigned max, unsigned& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number <= max;
}

bool parse_bool(const std::string& text, bool& value) {
  value = text == "1";
  return text == "0" || text == "1";
}

bool parse_field(const std::string& name, const std::string& value, Scenario& s) {
  constexpr unsigned retries_max = 9;  // one more would wait for a clock that stands still
  if (name == "ops") {
    for (const std::string& script : split_at(value, ';')) {
      if (!parse_script(script, s.scripts.emplace_back())) return false;
    }
    return !s.scripts.empty() && s.scripts.size() <= clients_max;
  }
  if (name == "keys") {
    for (const std::string& key : split_at(value, '/')) {
      if (!parse_key(key, s.keys.emplace_back())) return false;
    }
    for (const KeyShape& key : s.keys) {
      if (key.candidates.size() != s.keys[0].candidates.size()) return false;
    }
    return !s.keys.empty() && s.keys.size() <= keys_max;
  }
  if (name == "init") return !s.keys.empty() && parse_places(value, true, s, s.init);
  if (name == "split") return !s.keys.empty() && parse_places(value, false, s, s.split);
  if (name == "growing") return parse_bool(value, s.growing);
  if (name == "help") return parse_bool(value, s.help);
  if (name == "probe") return parse_bool(value, s.probe);
  if (name == "growths") return parse_number(value, 2, s.growths);
  if (name == "retries") return parse_number(value, retries_max, s.retries);
  if (name == "crashes") return parse_number(value, clients_max, s.crashes);
  return false;
}

}  // namespace

std::string ScriptOp::text() const {
  constexpr std::string_view letters = "PIDGMSF";
  std::string text(1, letters[static_cast<std::size_t>(act)]);
  if (act != Act::finish) text += static_cast<char>('0' + key);
  if (candidate != any_candidate) text += static_cast<char>('0' + candidate);
  return text;
}

bool Scenario::directory_changes() const {
  if (help) return true;
  for (const auto& script : scripts) {
    for (const ScriptOp& op : script) {
      if (op.act == Act::finish || (op.act == Act::split && (!growing || growths > 1))) return true;
    }
  }
  return false;
}

Result<Scenario> parse_scenario(std::string_view text) {
  Scenario scenario;
  scenario.text = text;
  for (const std::string& word : split_at(text, ' ')) {
    if (word.empty()) continue;
    const auto equals = word.find('=');
    if (equals == std::string::npos ||
        !parse_field(word.substr(0, equals), word.substr(equals + 1), scenario)) {
      return wrong(word);
    }
  }
  if (scenario.scripts.empty() || scenario.keys.empty()) return wrong(text);
  for (const auto& script : scenario.scripts) {
    for (const ScriptOp& op : script) {
      if (op.key >= scenario.keys.size()) return wrong(op.text());
      if (op.candidate != ScriptOp::any_candidate && op.candidate >= scenario.candidates())
        return wrong(op.text());
    }
  }
  return scenario;
}

Result<std::vector<std::string>> read_scenarios(const std::string& path) {
  std::ifstream in(path);
  if (!in) return fail(Errc::io, "scenario", fmt::format("{} can not be read", path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

}  // namespace loch::explore
