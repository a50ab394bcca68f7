// Barriers for all processors at once (membarrier(2)), so that those who act all the time need no fence, and
// who looks at what they say, now and then, pays for it.
#pragma once

namespace loch::base {

// This process takes part in the barriers of all that do, from now on. False if the kernel has none (before
// Linux 4.16), or does not let it. Any thread, any number of times.
bool take_part_in_barriers();

// At some moment between the call and the return, each thread of each process that takes part was at a point
// of its program at which everybody sees all of its earlier stores, and none of its later loads has been
// made. False if there was no such moment.
bool barrier_for_all();

}  // namespace loch::base
