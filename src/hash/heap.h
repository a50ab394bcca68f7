// Memory of the heap for what is as long as another process says. Where there is none, that is the end of one
// call, and not of the process.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <loch/error.h>

namespace loch::hash {

inline std::unexpected<Error> no_heap(const char* operation, std::size_t length_bytes) {
  return fail(Errc::no_space, operation,
              "this process has no heap memory for " + std::to_string(length_bytes) + " bytes");
}

// Null if there is none.
inline std::shared_ptr<std::byte[]> bytes_of_heap(std::size_t length_bytes) noexcept {
  try {
    return std::make_shared_for_overwrite<std::byte[]>(length_bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// What is in the string then is not specified. False if there is none.
inline bool make_as_long(std::string* into, std::size_t length_bytes) noexcept {
  try {
    // The length that libstdc++ 12 passes may be larger than the one asked for.
    into->resize_and_overwrite(
        length_bytes, [length_bytes](char* /*buffer*/, std::size_t /*length*/) { return length_bytes; });
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

inline Result<void> copy_out(std::string_view value, std::string* into, const char* operation) {
  if (!make_as_long(into, value.size())) return no_heap(operation, value.size());
  value.copy(into->data(), value.size());
  return {};
}

}  // namespace loch::hash
