// cmd/json: what the commands share to print JSON. Fields keep the order in which they are set.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <loch/loch.h>

#include "cmd/encode.h"

namespace loch::cmd {

using Json = nlohmann::ordered_json;

// Sets "field" if `bytes` is UTF-8, else "field_base64": JSON has no other bytes.
inline void set_bytes(Json& json, const std::string& field, std::string_view bytes) {
  if (is_utf8(bytes)) {
    json[field] = std::string(bytes);
  } else {
    json[field + "_base64"] = to_base64(bytes);
  }
}

// A version is 64 bits, more than a number of JavaScript holds, so it is text: "0x00ff...", as --if-version
// takes it.
inline std::string version_text(Version version) { return fmt::format("{:#018x}", version.token); }

}  // namespace loch::cmd
