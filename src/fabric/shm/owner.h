// Whose stores are: the group that one is made for, and which users' are taken for granted.
#pragma once

#include <string>
#include <sys/types.h>

#include "fabric/shm/folder.h"

namespace loch::fabric::shm {

// no_group for "". Errors: invalid_argument.
Result<gid_t> group_id(const std::string& group);

// Whether this process is in the group.
bool is_of_group(gid_t group);

// Anybody may take the name of a store that is not there yet, and open it to all, to have what others put
// there. Whoever means to create a store if there is none therefore takes one that this user made, or root,
// or somebody for a group that this user is in. Errors: permission, with what to do for a program or, if
// `lends`, for lochd.
Result<void> check_maker(const Folder& folder, bool lends);

}  // namespace loch::fabric::shm
