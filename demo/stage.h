// demo/stage: what all forms of the demonstration share: their settings, their input, how the main process
// waits for the others, and the check at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <loch/error.h>

#include "demo/crew.h"
#include "demo/packages.h"

namespace loch::demo {

inline constexpr std::chrono::milliseconds step_timeout = std::chrono::seconds(120);

struct Settings {
  std::string source{};
  std::string directory = "/dev/shm";
  double seconds = 4;        // that the processes work together
  double alone_seconds = 1;  // for each measurement of one process alone
  bool peers = true;
  std::string lochd{};
};

void say(std::string_view text);

// The records; `folder` is for the time being. Errors: those of packages.h; not_found, if they are too few.
Result<std::unique_ptr<Packages>> read_source(const Settings& settings, const std::string& folder);

// Whether there is room in a folder for all that is stored of records of `bytes`. Errors: no_space, with what
// to do.
Result<void> check_room(const std::string& directory, std::uint64_t bytes);

// A process that works while the main process waits for something else.
struct Member {
  const char* role;
  std::size_t slot;
  Result<lab::Process> process;
};
// Errors: those of the processes that could not be started.
Result<void> all_began(std::span<const Member> crew);

// Until it has ended, and well. Errors: io, with what is in its slot; cancelled; timed_out, after which it is
// killed.
Result<void> await_success(lab::Process& process, const Slot& slot, const char* role);

// Polls until it is so. Errors: what one of the board has failed with; io, when one of the crew has died;
// cancelled, timed_out.
Result<void> await(const char* what, const Board& board, std::span<Member> crew,
                   const std::function<bool()>& is_so);
// Waits until every record has been stored, then lets all go on until the time is over.
Result<void> await_load(const Board& board, std::span<Member> crew, std::size_t records,
                        std::chrono::steady_clock::time_point end);
// Tells the crew to stop, and waits for each.
Result<void> dismiss(Board& board, std::span<Member> crew);

// Every record against the source, and nothing besides; then the store's own accounts.
Result<void> check_everything(const Scene& scene);

}  // namespace loch::demo
