// bench/worker: what a worker process does with a task: it opens a session of the task's subject when it
// first needs one, and maps the floor's memory likewise.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/pool.h"
#include "bench/subject.h"

namespace loch::bench {

using Subjects = std::vector<std::unique_ptr<Subject>>;

// The task is on no subject.
inline constexpr std::uint32_t no_subject = ~std::uint32_t{0};

// The work of one worker process. `subjects` outlives it, and so does `network`, which is null where there is
// none; the floor's files are made in `folder`. Harness tasks draw from the data set of their subject.
Work make_work(const Subjects& subjects, const std::string& folder, const Network* network);

}  // namespace loch::bench
