// demo/tables: what the demonstration measured, as two short tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "examples/packages/crew.h"
#include "examples/packages/measure.h"

namespace loch::demo {

// Which slot of the board is whose. On a cluster the second writer is not killed, the checker looks what is
// there all the time, and the restarted one loads again what was lost.
inline constexpr std::size_t writer_1_slot = 0;
inline constexpr std::size_t killed_slot = 1;
inline constexpr std::size_t checker_slot = 2;
inline constexpr std::size_t restarted_slot = 3;
inline constexpr std::size_t reader_1_slot = 4;
inline constexpr std::size_t reader_2_slot = 5;

struct Together {
  std::uint64_t acknowledged_at_kill = 0;
};

struct Alone {
  MachineFloor floor;
  std::vector<Measured> subjects;  // Loch first
  std::vector<std::string> notes;  // what was left out, and why
};

// Of a process, for a table with the columns: process, operations, rate, p50 us, p99 us, max us.
std::vector<std::string> process_row(const std::string& role, const Slot& slot);
std::string microseconds(std::uint64_t ns);
std::string times(double ratio);  // "1.4x"
// Under a table, if its times say nothing.
std::string build_note(bool built_for_speed);

std::string together_text(const Board& board, const Together& together, std::size_t records);
std::string alone_text(const Alone& alone, const Packages& packages, const bench::Machine& machine,
                       bool built_for_speed);

}  // namespace loch::demo
