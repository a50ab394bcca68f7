// loch-demo: loads the package index of this machine into a fresh store from two processes while two others
// read, kills one writer half way and restarts it, checks every record against the source, and prints what it
// took.
//
// With --cluster: cluster_demo.h.
//
// Exit codes: 0 done and everything was right, 1 failed, 2 usage, 3 there may be no hosts here (--cluster).
#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench/machine.h"
#include "demo/cluster_demo.h"
#include "demo/crew.h"
#include "demo/measure.h"
#include "demo/stage.h"
#include "demo/tables.h"
#include "lab/interrupt.h"
#include "lab/temp_folder.h"

namespace loch::demo {
namespace {

constexpr const char* store_name = "packages";

// The whole of what the processes do together; fills the board. A writer tells at `half_told`, a pipe's
// reading end, that half of its part is stored.
Result<Together> run_together(const Scene& scene, int half_told, const Settings& settings) {
  Board& board = scene.board;
  const std::size_t records = scene.packages.size();
  const Part first = part_of(0, records);
  const Part second = part_of(1, records);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(settings.seconds * 1000));
  const auto reader = [&](std::size_t slot, std::uint64_t seed) {
    return begin([&, slot, seed] { return read_records(scene, board.slots[slot], seed); });
  };
  const auto writer = [&](std::size_t slot, Part part, bool tell_half) {
    return begin(
        [&, slot, part, tell_half] { return write_records(scene, board.slots[slot], part, tell_half); });
  };
  std::vector<Member> crew;
  crew.push_back({"reader 1", reader_1_slot, reader(reader_1_slot, 11)});
  crew.push_back({"reader 2", reader_2_slot, reader(reader_2_slot, 12)});
  crew.push_back({"writer 1", writer_1_slot, writer(writer_1_slot, first, false)});
  crew.push_back({"writer 2", writer_2_slot, writer(writer_2_slot, second, true)});
  if (auto began = all_began(crew); !began) return std::unexpected(std::move(began.error()));

  pollfd told{.fd = half_told, .events = POLLIN, .revents = 0};
  if (auto half = await("load", board, crew, [&] { return ::poll(&told, 1, 0) > 0; }); !half)
    return std::unexpected(std::move(half.error()));
  crew.back().process->kill();
  crew.pop_back();
  Together together;
  together.acknowledged_at_kill = board.acknowledged[second.index].load(std::memory_order_acquire);
  say(fmt::format("killed writer 2 after {} of its {} records", together.acknowledged_at_kill,
                  second.size()));

  auto checker = begin([&] { return check_acknowledged(scene, board.slots[checker_slot], second); });
  if (!checker) return std::unexpected(checker.error());
  if (auto right = await_success(*checker, board.slots[checker_slot], "checker"); !right) {
    return std::unexpected(right.error());
  }
  say(fmt::format("all {} are there and whole; restarted it", together.acknowledged_at_kill));
  crew.push_back({"writer 2", late_writer_slot, writer(late_writer_slot, second, false)});
  if (auto began = all_began(crew); !began) return std::unexpected(std::move(began.error()));
  if (auto loaded = await_load(board, crew, records, end); !loaded)
    return std::unexpected(std::move(loaded.error()));
  if (auto ended = dismiss(board, crew); !ended) return std::unexpected(std::move(ended.error()));
  return together;
}

using MakeSubject = Result<std::unique_ptr<bench::Subject>> (*)(bench::Place, const bench::Dataset&);

// Loch in a second store that one process fills, as the peers are filled; then the peers that are installed.
Result<Alone> run_alone(const Packages& packages, const std::string& folder, const Settings& settings) {
  Alone alone;
  const std::size_t record_bytes = packages.bytes() / packages.size();
  auto floor = measure_floor(folder, packages.bytes(), record_bytes, settings.alone_seconds);
  if (!floor) return std::unexpected(floor.error());
  alone.floor = *floor;

  // A server takes its limits from a data set of this size.
  const auto sizes = bench::Dataset::make(packages.size(), 32, record_bytes + 1024);
  if (!sizes) return std::unexpected(sizes.error());
  std::vector<std::pair<const char*, MakeSubject>> subjects{{"loch", bench::make_loch}};
  if (settings.peers) {
    subjects.insert(
        subjects.end(),
        {{"redis", bench::make_redis}, {"memcached", bench::make_memcached}, {"lmdb", bench::make_lmdb}});
  }
  for (const auto& [name, make] : subjects) {
    auto subject = make({.folder = folder, .name = name}, *sizes);
    if (!subject) {
      alone.notes.push_back("not measured: " + subject.error().detail);
      continue;
    }
    say(fmt::format("measuring {}", (*subject)->name()));
    auto measured = measure(**subject, packages, settings.alone_seconds);
    if (lab::interrupted()) return fail(Errc::cancelled, "measure", "interrupted");
    if (!measured && alone.subjects.empty()) return std::unexpected(measured.error());  // Loch itself
    if (measured) {
      alone.subjects.push_back(std::move(*measured));
    } else {
      alone.notes.push_back(
          fmt::format("not measured: {}: {}", (*subject)->name(), measured.error().message()));
    }
  }
  return alone;
}

Result<void> run_demo(const Settings& settings) {
  auto folder = lab::TempFolder::make(settings.directory);
  if (!folder) return std::unexpected(folder.error());
  const auto source = read_source(settings, folder->path());
  if (!source) return std::unexpected(source.error());
  const Packages& packages = **source;
  if (auto room = check_room(settings.directory, packages.bytes()); !room) return room;
  say(fmt::format("{} packages, {:.1f} MiB; into a fresh store in {}", packages.size(),
                  static_cast<double>(packages.bytes()) / (1 << 20), folder->path()));

  auto board = Shared<Board>::make();
  if (!board) return std::unexpected(board.error());
  std::array<int, 2> half{};
  if (::pipe2(half.data(), O_CLOEXEC) != 0) return fail(Errc::io, "pipe", std::strerror(errno));
  Options options;
  options.directory = folder->path();
  options.timeout = std::chrono::seconds(10);
  const Scene scene{.packages = packages,
                    .board = **board,
                    .url = std::string("shm://") + store_name,
                    .options = options,
                    .half_done = half[1]};

  const auto together = run_together(scene, half[0], settings);
  for (const int end : half) ::close(end);
  if (!together) return std::unexpected(together.error());
  if (auto right = check_everything(scene); !right) return right;
  const auto alone = run_alone(packages, folder->path(), settings);
  if (!alone) return std::unexpected(alone.error());
  say("");
  say(together_text(**board, *together, packages.size()));
  say(alone_text(*alone, packages, bench::describe_machine(settings.directory), bench::built_for_speed()));
  return {};
}

// As lab/namespaces says it: another permission that is missing is a failure.
bool may_have_no_hosts(const Error& error) {
  return error.code == Errc::permission && std::string_view(error.operation) == "network";
}

int run(int count, char** arguments) {
  Settings settings;
  bool no_peers = false;
  bool cluster = false;
  CLI::App app(
      "Loads this machine's package index into Loch from several processes, kills one, checks everything.",
      "loch-demo");
  app.add_option("--source", settings.source,
                 "A package index to read instead of what apt-cache dumpavail prints")
      ->check(CLI::ExistingFile);
  app.add_option("--directory", settings.directory,
                 "Where the store is for the time being: a folder in memory, with several times the room of "
                 "the index")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds, "How long the processes work together, at least")
      ->check(CLI::Range(0.1, 30.0))
      ->capture_default_str();
  app.add_option("--alone-seconds", settings.alone_seconds, "Time of each measurement of one process alone")
      ->check(CLI::Range(0.01, 5.0))
      ->capture_default_str();
  app.add_flag("--no-peers", no_peers, "Do not measure Redis, memcached and LMDB");
  app.add_flag("--cluster", cluster,
               "Three hosts with a lochd each, on this machine, one of which is lost half way; needs root");
  app.add_option("--lochd", settings.lochd, "The lochd to start, for --cluster")->check(CLI::ExistingFile);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  settings.peers = !no_peers;
  lab::catch_interrupts();
  ::signal(SIGPIPE, SIG_IGN);
  if (const auto done = cluster ? run_cluster_demo(settings) : run_demo(settings); !done) {
    std::fflush(stdout);
    fmt::print(stderr, "loch-demo: {}\n", done.error().message());
    return may_have_no_hosts(done.error()) ? 3 : 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace loch::demo

int main(int count, char** arguments) { return loch::demo::run(count, arguments); }
