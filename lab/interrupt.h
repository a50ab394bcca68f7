// lab/interrupt: Ctrl-C and termination end a program in order: what waits looks here, returns an error,
// and what was started is stopped and removed on the way out.
#pragma once

namespace loch::lab {

void catch_interrupts();  // once, before the process forks
[[nodiscard]] bool interrupted();

}  // namespace loch::lab
