// bench/interrupt: Ctrl-C and termination end a benchmark in order: what waits looks here, returns an error,
// and what was started is stopped and removed on the way out.
#pragma once

namespace loch::bench {

void catch_interrupts();  // once, in the process that runs the benchmark, before it forks
[[nodiscard]] bool interrupted();

}  // namespace loch::bench
