#include "bench/bench.h"

#include <chrono>
#include <gtest/gtest.h>
#include <sched.h>

#include "bench/suite.h"
#include "lab/process.h"

namespace loch::bench {
namespace {

// How many processors the subject's server may use after one run of all reads with it confined to one; 0 if
// that can not be told.
int processors_of_confined_server() {
  Settings settings;
  settings.sections = {"network"};
  settings.subjects = {"loch"};
  settings.subjects_given = true;
  settings.items = settings.network_items = 1000;
  settings.processes = 1;
  settings.lochd = LOCHD_PROGRAM;
  settings.quiet = true;
  auto bench = Bench::make(settings);
  if (!bench) return 0;
  const auto loch = bench->subject(over_tcp("loch", false));
  if (!loch || !bench->start(*loch) || !bench->load_by_one(*loch)) return 0;
  Task task = bench->task(Act::read_back, *loch);
  task.last = settings.network_items;
  task.server_cores = Cores::first;
  if (!bench->run_once(task)) return 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(bench->at(*loch).server(), sizeof cores, &cores) != 0) return 0;
  return CPU_COUNT(&cores);
}

// In a child: whoever has made a network does not come back from the clients' namespace.
TEST(Bench, WhatIsRunOnceIsRunWithTheServerWhereItIsWanted) {
  const auto ended =
      lab::Process::fork(processors_of_confined_server).value().wait_for_end(std::chrono::seconds(60));
  EXPECT_EQ(ended, lab::Ending{.exit_code = 1});
}

}  // namespace
}  // namespace loch::bench
