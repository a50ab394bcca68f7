// bench/bench: one run of the benchmark: its subjects, worker processes and floor, and how measurements are
// taken.
//
// Machines drift, and others run on them. So what is compared is measured in alternating rounds: each round
// measures every member of the comparison once, a ratio is taken within a round, and the median of the rounds
// is the figure.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loch/error.h>

#include "bench/cores.h"
#include "bench/figure.h"
#include "bench/network.h"
#include "bench/pool.h"
#include "bench/worker.h"
#include "lab/temp_folder.h"

namespace loch::bench {

struct Planned {
  Task task;
  std::uint32_t processes = 1;
};

// On which cores a client and its server are.
struct Where {
  Cores client = Cores::all;
  Cores server = Cores::all;

  void apply_to(Task& task) const {
    task.cores = client;
    task.server_cores = server;
  }
};

// The rates of one measurement, round by round, in operations a second of all its processes together.
struct Series {
  std::vector<double> rates;
  std::vector<double> server_ns{};  // processor time of the subject's server for an operation, if it has one
  Histogram reads{};                // of all rounds, of tasks with `latencies`
  Histogram writes{};

  [[nodiscard]] double rate() const;  // the median
  [[nodiscard]] double ns() const { return rate() <= 0 ? 0 : 1e9 / rate(); }
};

// One run of all its processes together.
struct Sum {
  double rate = 0;  // in operations a second
  std::uint64_t operations = 0;
  Histogram reads{};
  Histogram writes{};
};

// The median over the rounds of: how many times the rate of `other` is that of `one`.
double rate_ratio(const Series& one, const Series& other);
double median_ratio(const std::vector<double>& one, const std::vector<double>& other);
double median(std::vector<double> values);

class Bench {
 public:
  static Result<Bench> make(const Settings& settings);

  [[nodiscard]] const Settings& settings() const { return report_.settings; }
  [[nodiscard]] Report& report() { return report_; }
  // A folder in memory that ends with this run.
  [[nodiscard]] const std::string& folder() const { return folder_.path(); }
  // Null when nothing is reached over TCP.
  [[nodiscard]] const Network* network() const { return network_.get(); }

  // The place of a subject in the list; none when it takes no part in this run.
  [[nodiscard]] std::optional<std::uint32_t> subject(std::string_view name) const;
  [[nodiscard]] const Subject& at(std::uint32_t subject) const { return *subjects_[subject]; }
  [[nodiscard]] std::vector<std::uint32_t> peers() const;  // those on this host

  // Starts a subject and puts items `first` to `last` into it, by all workers together.
  Result<void> start(std::uint32_t subject);
  Result<void> load(std::uint32_t subject, std::uint64_t first, std::uint64_t last);
  // The same by the first worker alone, so that no other has a session.
  Result<void> load_by_one(std::uint32_t subject);
  void stop(std::uint32_t subject);
  Result<MemoryUse> memory(std::uint32_t subject);

  // The floor's memory, as large as a store.
  Result<MemoryUse> make_floor(std::uint64_t bytes, bool large = false);
  Result<void> remove_floor(bool large = false);

  // A task of the settings' length on a subject.
  [[nodiscard]] Task task(Act act, std::uint32_t subject = no_subject) const;

  // One run by the first worker, for what is done once.
  Result<Lap> run_once(const Task& task);
  // `settings().rounds` alternating rounds of all that is planned; the result is in the same order.
  Result<std::vector<Series>> alternate(std::span<const Planned> planned);

  // One run of `mix`, with the items that it inserts kept apart from those of other runs.
  Result<Sum> mixed(std::uint32_t subject, const Mix& mix, std::uint32_t processes, double seconds,
                    bool latencies);

  // Where the client and the subject's server are for a mix of one process; unless told, anywhere.
  void set_where(std::uint32_t subject, Where where) { where_[subject] = where; }

  // Processor time of a process that sleeps and has a session of `subject`, or never had any (`no_subject`).
  Result<std::uint64_t> idle_processor_ns(std::uint32_t subject, double seconds);

  // To be called when all is measured: adds to the report what is known only then.
  void conclude();

  // A line on standard error about what goes on.
  template <class... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) const {
    if (!settings().quiet) tell(fmt::format(text, std::forward<Values>(values)...));
  }

 private:
  Bench(Report report, lab::TempFolder folder, std::unique_ptr<Network> network, Subjects subjects, Pool pool,
        Pool forking_pool);
  static void tell(const std::string& line);
  Result<void> load(Task loading, std::size_t workers);
  Result<std::span<const Outcome>> run(const Task& task, std::size_t processes);
  void note_share(const Task& task, std::span<const Outcome> outcomes);
  Result<void> run_round(std::span<const Planned> planned, std::uint64_t round, std::vector<Series>& series);

  Report report_;
  lab::TempFolder folder_;
  std::unique_ptr<Network> network_;  // of the subjects that are reached over TCP, if there are any
  Subjects subjects_;
  std::vector<Where> where_;             // for each subject
  std::vector<double> shares_;           // of its time that a measured process had a processor
  std::vector<std::uint64_t> next_ids_;  // of each subject: the number of the next item to insert
  // They end before the subjects do, since their workers use them.
  Pool pool_;
  Pool forking_pool_;  // of one worker, for what forks: a fork leaves a process's memory copy-on-write
};

}  // namespace loch::bench
