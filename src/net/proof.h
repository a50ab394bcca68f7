// What shows that both ends of a connection know the same key, without saying it: an HMAC (SHA-256) over who
// speaks and over the nonces of both.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include <loch/error.h>

namespace loch::net {

using Secret = std::array<std::byte, 32>;

// Bytes that nobody can guess, as hexadecimal digits.
std::string random_hex(std::size_t bytes);

// Of texts of any length, each set off from the next.
Secret digest(const Secret& secret, std::initializer_list<std::string_view> texts);

// The same as hexadecimal digits, to be sent.
std::string proof(const Secret& secret, std::initializer_list<std::string_view> texts);
// In a time that does not depend on where they differ.
bool same(std::string_view a, std::string_view b);

// Errors: permission, if others than the file's owner and group may read it, or others than its owner change
// it.
Result<void> check_private(const std::string& path, unsigned mode);
// The secret of a key file: what is in it, but for white space at its end. 16 bytes and more; nobody but
// its owner and its group may read it. Errors: not_found, permission, invalid_argument, io.
Result<Secret> read_key_file(const std::string& path);
// Of those who have no key.
Secret no_key();

}  // namespace loch::net
