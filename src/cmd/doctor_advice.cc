// cmd/doctor: what to do about a store that can not be opened. To remove it is advised for what is damaged or
// of another version alone: all else is a matter of who asks, and when.
#include <fmt/format.h>

#include "cmd/doctor.h"
#include "cmd/encode.h"

namespace loch::cmd {
namespace {

constexpr const char* about_arguments = "loch --help says how a store is named, and what its options are";

}  // namespace

bool is_lent_alone(const Error& error) {
  return error.code == Errc::incompatible && error.detail.contains("open it as ");
}

bool is_damage(const Error& error) {
  return error.code == Errc::corrupt || (error.code == Errc::incompatible && !is_lent_alone(error));
}

std::string mend_near_store(const std::string& store, const Error& error) {
  if (is_damage(error)) {
    return fmt::format("loch ls -l says why; loch rm {} removes it if nobody needs it", escaped(store));
  }
  switch (error.code) {
    case Errc::incompatible:
      return "it is in order: open it as lochd lends it";
    case Errc::no_space:
      return "loch ls -l says of what there is too much: if of clients, close some; if of memory, see "
             "'space'";
    case Errc::permission:
      return "it is for those whom its owner lets open it (loch create --mode and --group), and may be in "
             "order";
    case Errc::not_found:
      return "loch ls lists the stores, loch create makes one";
    case Errc::invalid_argument:
      return about_arguments;
    default:
      return "loch ls -l says why; fix what else is FAIL here, and try again";
  }
}

std::string mend_far_store(const Error& error) {
  if (is_lent_alone(error)) return "it is in order: open it as it is lent";
  switch (error.code) {
    case Errc::not_found:
      return "on that host, loch ls lists the stores and loch create makes one; on this one, see that the "
             "files of --key-file and --tls-... are there";
    case Errc::permission:
      return "--key-file and --tls-... have to be what that host's lochd asks for, and one without a "
             "key_file is for its own user and root alone; its log says what was wrong";
    case Errc::incompatible:
      return "both hosts need the same version of Loch";
    case Errc::no_space:
      return "the store has too many clients: close some";
    case Errc::invalid_argument:
      return about_arguments;
    default:
      return "look there: is lochd running, what does its log say, and what does `loch doctor` say on that "
             "host?";
  }
}

}  // namespace loch::cmd
