// demo/tables: what the demonstration measured, as two short tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "demo/crew.h"
#include "demo/measure.h"

namespace loch::demo {

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
