// What becomes of a program when somebody truncates the files of a store of this host that it has open.
//
// Whoever may write to a store may also cut its files short, by accident or not. The kernel then ends each
// program by SIGBUS that touches what was cut off. One that has stores of others open, or several stores, may
// want to live on.
#pragma once

#include <loch/error.h>

namespace loch {

// Installs a handler of SIGBUS for the whole process, once; the library never does so by itself. Calls on a
// store that was truncated then fail with Errc::corrupt, as soon as one of them touches what was cut off, and
// all other stores go on as before; in a View of such a store there may be zeros. The store can be opened
// anew, for what is left of it.
//
// Every other SIGBUS goes to the handler that was there before, or has its default action. One that is
// installed after this replaces this one, and should call it for what is not its own. Errors: io.
//
// Under the thread sanitizer a program stands still at such an access instead.
[[nodiscard]] Result<void> survive_truncation();

}  // namespace loch
