// Fault points: named places in the protocols where a test can kill, stop or fail the process.
//
//   LOCH_FAULT=put.before_update:kill      dies there by SIGKILL, the first time
//   LOCH_FAULT=put.before_update:stop:5    stops there by SIGSTOP, the fifth time
//
// Compiled in by the option LOCH_FAULT_POINTS alone; a release has none. Every point is listed in fault.cc,
// and a test reaches every one.
#pragma once

#include <span>

namespace loch::base {

// The names of all fault points that one client may come to.
std::span<const char* const> fault_points();
// Of those that the hosts of a cluster come to while a shard goes from one to another.
std::span<const char* const> handover_points();

// Acts if the environment's LOCH_FAULT names this point. A name that is not listed is a bug.
void fault_hit(const char* name);

// Called at every point instead of the environment's action; a simulation sets it. Whoever runs already may
// pass a point before it knows of it.
void set_fault_hook(void (*hook)(const char* name));

}  // namespace loch::base

#ifdef LOCH_FAULT_POINTS
#define LOCH_FAULT_POINT(name) ::loch::base::fault_hit(name)
#else
#define LOCH_FAULT_POINT(name) static_cast<void>(0)
#endif
