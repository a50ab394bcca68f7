#include "fabric/verbs/lent_memory.h"

namespace loch::fabric::verbs {

bool LentMemory::covers(Address at, std::uint64_t length_bytes, base::Nanos deadline) {
  if (at.offset_bytes > region_bytes_max || length_bytes > region_bytes_max) return false;
  const std::uint64_t end = at.offset_bytes + length_bytes;
  while (at.offset_bytes < end) {
    const Keys::Key* key = find(at.region, at.offset_bytes);
    if (key == nullptr) key = learn(at, deadline);
    if (key == nullptr) return false;
    at.offset_bytes = key->end_bytes();
  }
  return true;
}

// Null if nothing is lent there, or the host could not be asked.
const Keys::Key* LentMemory::learn(Address at, base::Nanos deadline) {
  const base::Nanos before = base::Clock().now();
  // Of a host that answers at once, whatever it is asked, no question would be late.
  if (before > deadline) {
    trouble_ = Error{.code = Errc::timed_out,
                     .operation = "verbs",
                     .detail = "the host did not say in time at which memory its device lets this session"};
    return nullptr;
  }
  const auto answer =
      ask_({{"do", "key"}, {"port", port_}, {"region", at.region}, {"at", at.offset_bytes}}, deadline);
  asked_ns_ += base::Clock().now() - before;
  if (!answer) {
    if (answer.error().code != Errc::not_found) trouble_ = answer.error();
    return nullptr;
  }
  const Keys::Key key{.from_bytes = net::number_of(*answer, "from").value_or(0),
                      .length_bytes = net::number_of(*answer, "bytes").value_or(0),
                      .address = net::number_of(*answer, "address").value_or(0),
                      .key = static_cast<std::uint32_t>(net::number_of(*answer, "key").value_or(0))};
  if (!keys_.add(at.region, at.offset_bytes, key)) return nullptr;
  return find(at.region, at.offset_bytes);
}

}  // namespace loch::fabric::verbs
