// Cookie: the key of a server that was given none. It makes one for itself, in the directory of its stores:
// whoever can read that, its own user and root, gets in from this host, at an address of the server's own.
//
// The user UID's is DIRECTORY/.loch-cookie.UID, a name that no store and no unfinished one has, of mode 0600:
// 64 hexadecimal digits and a newline. It is there whole or not at all, and stays when the server ends, for
// the next one. Others can write to the directory: no link is followed, and what is not that user's,
// or for others too, is no cookie. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include <loch/error.h>

#include "net/proof.h"

namespace loch::net {

std::string cookie_path(const std::string& directory, uid_t user);

// Errors: not_found, permission (it can not be read, or is not `user`'s, or is for others too), corrupt
// (something else has its name), io.
Result<Secret> read_cookie(const std::string& directory, uid_t user);
// This process's user's; a new one, if there is none. Errors: as read_cookie, but for not_found.
Result<Secret> own_cookie(const std::string& directory);
// The key that is proved by who knows the cookie, over a connection to this address of the server: to whoever
// is reached at another one, and passes on what he is told, the server shows nothing, nor does it let him in.
Secret cookie_key(const Secret& cookie, std::string_view server_address);

}  // namespace loch::net
