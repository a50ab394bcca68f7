#include <fmt/format.h>

#include <loch/error.h>

namespace loch {

std::string_view name(Errc code) {
  switch (code) {
    case Errc::not_found:
      return "not_found";
    case Errc::exists:
      return "exists";
    case Errc::changed:
      return "changed";
    case Errc::timed_out:
      return "timed_out";
    case Errc::corrupt:
      return "corrupt";
    case Errc::no_space:
      return "no_space";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::incompatible:
      return "incompatible";
    case Errc::permission:
      return "permission";
    case Errc::unavailable:
      return "unavailable";
    case Errc::moved:
      return "moved";
    case Errc::cancelled:
      return "cancelled";
    case Errc::io:
      return "io";
  }
  return "unknown";
}

std::string Error::message() const {
  std::string text = fmt::format("{}: {}", operation, name(code));
  if (key_hash != 0) text += fmt::format(" (key hash {:016x})", key_hash);
  if (!detail.empty()) text += ": " + detail;
  return text;
}

}  // namespace loch
