#include "cmd/record.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include <loch/loch.h>

#include "cmd/json.h"

namespace loch::cmd {
namespace {

constexpr std::size_t fields_max = 6;  // key, value, each in its other form, ttl_ms and version

bool is_ttl(std::int64_t ttl_ms) { return ttl_ms > 0 && ttl_ms <= time_to_live_max.count(); }

Parsed<std::chrono::milliseconds> ttl_of_text(std::string_view text) {
  std::int64_t ttl_ms = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, ttl_ms);
  if (error != std::errc{} || rest != end || !is_ttl(ttl_ms)) {
    return std::unexpected(fmt::format("third field '{}' is no time to live of 1 to {} milliseconds",
                                       escaped(text), time_to_live_max.count()));
  }
  return std::chrono::milliseconds(ttl_ms);
}

Parsed<Record> parse_tsv(std::string_view line) {
  const std::size_t key_end = line.find('\t');
  if (key_end == std::string_view::npos) {
    return std::unexpected(
        fmt::format("no tab: expected KEY<TAB>VALUE{}",
                    line.starts_with('{') ? "; is this JSON Lines? Say --format jsonl" : ""));
  }
  const std::string_view rest = line.substr(key_end + 1);
  const std::size_t value_end = rest.find('\t');
  Record record;
  auto key = unescape(line.substr(0, key_end));
  if (!key) return std::unexpected("key: " + key.error());
  auto value = unescape(rest.substr(0, value_end));
  if (!value) return std::unexpected("value: " + value.error());
  record.key = std::move(*key);
  record.value = std::move(*value);
  if (value_end != std::string_view::npos) {
    const std::string_view ttl = rest.substr(value_end + 1);
    if (ttl.find('\t') != std::string_view::npos) {
      return std::unexpected("more than three fields (write \\t for a tab in a value)");
    }
    const auto parsed = ttl_of_text(ttl);
    if (!parsed) return std::unexpected(parsed.error());
    record.time_to_live = *parsed;
  }
  return record;
}

// Takes the string of "key" or "key_base64" (or of the value) into `into`.
Parsed<void> take_bytes(const std::string& field, const nlohmann::json& json, bool base64,
                        std::optional<std::string>& into) {
  if (!json.is_string()) return std::unexpected(fmt::format("\"{}\" is not a string", field));
  if (into) return std::unexpected(fmt::format("\"{}\" beside its other form", field));
  const auto& text = json.get_ref<const std::string&>();
  if (!base64) {
    into = text;
    return {};
  }
  auto bytes = from_base64(text);
  if (!bytes) return std::unexpected(fmt::format("\"{}\": {}", field, bytes.error()));
  into = std::move(*bytes);
  return {};
}

Parsed<std::optional<std::chrono::milliseconds>> ttl_of_json(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  if (!json.is_number_integer()) return std::unexpected("\"ttl_ms\" is not a whole number");
  const auto ttl_ms = json.get<std::int64_t>();
  if (!is_ttl(ttl_ms)) {
    return std::unexpected(
        fmt::format("\"ttl_ms\" is {}, not 1 to {}", json.dump(), time_to_live_max.count()));
  }
  return std::chrono::milliseconds(ttl_ms);
}

// Without the name of the exception, and short: it may quote all of a long line.
std::string json_complaint(std::string_view what) {
  constexpr std::size_t length_max = 160;
  const std::size_t name_end = what.find("] ");
  if (name_end != std::string_view::npos) what.remove_prefix(name_end + 2);
  return escaped(what.substr(0, length_max)) + (what.size() > length_max ? "..." : "");
}

// The document of a line. A field that stands in it twice is an error: of its two values one would be lost.
Parsed<nlohmann::json> json_of(std::string_view line) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::string> fields;
  std::optional<std::string> twice;
  const auto look = [&](int depth, Event event, const nlohmann::json& parsed) {
    if (event != Event::key || depth != 1) return true;
    const auto& field = parsed.get_ref<const std::string&>();
    if (std::ranges::find(fields, field) != fields.end()) twice = field;
    // Of more than a record may have, one is refused for being unknown.
    if (fields.size() < fields_max) fields.push_back(field);
    return true;
  };
  try {
    auto json = nlohmann::json::parse(line, look);
    if (twice) return std::unexpected(fmt::format("field \"{}\" stands there twice", escaped(*twice)));
    return json;
  } catch (const nlohmann::json::exception& error) {
    return std::unexpected("no JSON: " + json_complaint(error.what()));
  }
}

Parsed<Record> parse_jsonl(std::string_view line) {
  auto parsed = json_of(line);
  if (!parsed) return std::unexpected(parsed.error());
  const nlohmann::json& json = *parsed;
  if (!json.is_object()) return std::unexpected(R"(not a JSON object such as {"key":"k","value":"v"})");
  std::optional<std::string> key;
  std::optional<std::string> value;
  Record record;
  for (const auto& [field, content] : json.items()) {
    Parsed<void> taken;
    if (field == "key" || field == "key_base64") {
      taken = take_bytes(field, content, field != "key", key);
    } else if (field == "value" || field == "value_base64") {
      taken = take_bytes(field, content, field != "value", value);
    } else if (field == "ttl_ms") {
      auto ttl = ttl_of_json(content);
      if (!ttl) return std::unexpected(ttl.error());
      record.time_to_live = *ttl;
    } else if (field != "version") {  // of `get --json`; a load gives another one
      return std::unexpected(fmt::format("unknown field \"{}\"", escaped(field)));
    }
    if (!taken) return std::unexpected(taken.error());
  }
  if (!key) return std::unexpected(R"(no "key" (or "key_base64"))");
  if (!value) return std::unexpected(R"(no "value" (or "value_base64"))");
  record.key = std::move(*key);
  record.value = std::move(*value);
  return record;
}

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings) {
    if (path.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace

void append_record(std::string& out, Format format, std::string_view key, std::string_view value,
                   std::optional<std::chrono::milliseconds> time_to_live) {
  if (format == Format::jsonl) {
    Json json;
    set_bytes(json, "key", key);
    set_bytes(json, "value", value);
    if (time_to_live) json["ttl_ms"] = ttl_ms_left(*time_to_live);
    out += json.dump();
  } else {
    append_escaped(out, key);
    out += '\t';
    append_escaped(out, value);
    if (time_to_live) out += fmt::format("\t{}", ttl_ms_left(*time_to_live));
  }
  out += '\n';
}

void append_key(std::string& out, Format format, std::string_view key) {
  if (format == Format::jsonl) {
    Json json;
    set_bytes(json, "key", key);
    out += json.dump();
  } else {
    append_escaped(out, key);
  }
  out += '\n';
}

Parsed<Record> parse_record(Format format, std::string_view line) {
  return format == Format::jsonl ? parse_jsonl(line) : parse_tsv(line);
}

Parsed<Format> parse_format(std::string_view name) {
  if (name == "tsv") return Format::tsv;
  if (name == "jsonl") return Format::jsonl;
  return std::unexpected(fmt::format("'{}' is neither tsv nor jsonl", escaped(name)));
}

Format format_of_file(std::string_view path) {
  return ends_with_any(path, {".jsonl", ".ndjson", ".json"}) ? Format::jsonl : Format::tsv;
}

}  // namespace loch::cmd
