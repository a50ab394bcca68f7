#include "demo/cluster_demo.h"

#include <algorithm>
#include <fmt/format.h>
#include <poll.h>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/exchanges.h"
#include "bench/machine.h"
#include "cmd/table.h"
#include "cmd/units.h"
#include "demo/cluster_crew.h"
#include "demo/measure.h"
#include "demo/tables.h"
#include "lab/cluster_files.h"
#include "lab/hosts.h"
#include "lab/lochds.h"
#include "lab/temp_folder.h"

namespace loch::demo {
namespace {

constexpr std::size_t a = 0;
constexpr std::size_t b = 1;  // is lost
constexpr std::size_t c = 2;
constexpr std::size_t d = 3;  // has no lochd
constexpr std::size_t host_count = 4;
constexpr const char* store_name = "packages";
// Until somebody has put another machine there.
constexpr std::chrono::milliseconds replacement_time{2'000};

// When what happened, and what was lost.
struct Events {
  std::uint64_t began_ns = 0;
  std::uint64_t lost_ns = 0;
  std::uint64_t replaced_ns = 0;
  std::uint64_t reachable_ns = 0;
  std::uint64_t reloaded_ns = 0;
  std::uint64_t stored_when_lost = 0;
  std::uint64_t loaded_again = 0;
};

// Runs one process to its end.
Result<void> run_alone(const ClusterScene& cluster, std::size_t host, std::size_t slot, const char* role,
                       const std::function<int()>& work) {
  auto process = cluster.start(host, work);
  if (!process) return std::unexpected(std::move(process.error()));
  return await_success(*process, cluster.scene.board.slots[slot], role);
}

// A host goes, and another one comes in its place; then what it had is loaded again.
Result<void> lose_and_replace(const ClusterScene& cluster, std::span<Member> crew, lab::Lochds& lochds,
                              Events& events) {
  const Scene& scene = cluster.scene;
  const auto half_is_stored = [&] { return scene.board.stored() >= scene.packages.size() / 2; };
  if (auto half = await("load", scene.board, crew, half_is_stored); !half) return half;
  events.stored_when_lost = scene.board.stored();
  events.lost_ns = bench::now_ns();
  lochds.at(b).kill();
  if (auto lost = lochds.files().lose_memory(b); !lost) return lost;
  say(fmt::format("host b is lost, with its memory, after {} of {} records", events.stored_when_lost,
                  scene.packages.size()));
  bench::sleep_for(std::chrono::duration<double>(replacement_time).count());
  cluster.watch.records.store(Records::may_be_gone, std::memory_order_release);
  if (auto replaced = lochds.start(b); !replaced) return replaced;
  events.replaced_ns = bench::now_ns();
  say("another host, with nothing on it, has taken its name and place");

  const auto reachable = [&] {
    const auto looks = cluster.watch.all();
    return !looks.empty() && looks.back().at_ns > events.replaced_ns && looks.back().unavailable == 0;
  };
  if (auto back = await("wait for host b", scene.board, crew, reachable); !back) return back;
  events.reachable_ns = bench::now_ns();
  Slot& slot = scene.board.slots[late_writer_slot];
  if (auto loaded =
          run_alone(cluster, a, late_writer_slot, "loader", [&] { return load_again(cluster, slot); });
      !loaded)
    return loaded;
  cluster.watch.records.store(Records::all_there_again, std::memory_order_release);
  events.reloaded_ns = bench::now_ns();
  events.loaded_again = slot.operations.load();
  say(fmt::format("{} records that were lost are loaded again", events.loaded_again));
  return {};
}

Result<Events> run_together(const ClusterScene& cluster, lab::Lochds& lochds, const Settings& settings) {
  const Scene& scene = cluster.scene;
  Board& board = scene.board;
  Events events{.began_ns = bench::now_ns()};
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(settings.seconds * 1000));
  const auto writer = [&](std::size_t slot, std::size_t part) {
    return [&, slot, part] {
      return write_part(cluster, board.slots[slot], part_of(part, scene.packages.size()));
    };
  };
  const auto reader = [&](std::size_t slot) {
    return [&, slot] { return read_what_there_is(cluster, board.slots[slot], slot); };
  };
  std::vector<Member> crew;
  crew.push_back({"reader 1", reader_1_slot, cluster.start(c, reader(reader_1_slot))});
  crew.push_back({"reader 2", reader_2_slot, cluster.start(d, reader(reader_2_slot))});
  crew.push_back({"writer 1", writer_1_slot, cluster.start(a, writer(writer_1_slot, 0))});
  crew.push_back({"writer 2", writer_2_slot, cluster.start(d, writer(writer_2_slot, 1))});
  crew.push_back({"the one that looks", checker_slot,
                  cluster.start(d, [&] { return look_what_is_there(cluster, board.slots[checker_slot]); })});
  if (auto began = all_began(crew); !began) return std::unexpected(std::move(began.error()));
  if (auto replaced = lose_and_replace(cluster, crew, lochds, events); !replaced)
    return std::unexpected(std::move(replaced.error()));
  if (auto loaded = await_load(board, crew, scene.packages.size(), end); !loaded)
    return std::unexpected(std::move(loaded.error()));
  if (auto ended = dismiss(board, crew); !ended) return std::unexpected(std::move(ended.error()));
  return events;
}

// Where host b answers exchanges of plain TCP; as echoes were always answered.
net::HostPort plain_server() { return {.host = lab::Hosts::address(b), .port = "7"}; }

int serve_plain(Slot& slot) {
  const auto listener = net::listen(plain_server());
  const Error ended = listener ? bench::serve_exchanges(*listener).error() : listener.error();
  slot.fail(ended.message());
  return exit_failed;
}

// One client alone, on one host.
struct Client {
  OneAtATime loch{};
  bench::Histogram round_trips{};  // of plain TCP, to host b
};

int measure_client(const ClusterScene& cluster, Slot& slot, double seconds, Client& into) {
  const auto trips = bench::run_exchanges(plain_server(), {}, seconds);
  auto session = bench::open_loch(cluster.scene.url, cluster.scene.options);
  if (!session) {
    slot.fail(session.error().message());
    return exit_failed;
  }
  const auto measured = measure_one_at_a_time(**session, cluster.scene.packages, seconds);
  if (!trips || !measured) {
    slot.fail((trips ? measured.error() : trips.error()).message());
    return exit_failed;
  }
  into = {.loch = *measured, .round_trips = trips->latencies};
  return 0;
}

struct Clients {
  Client on_host;     // a, which has a lochd
  Client on_no_host;  // d
};

Result<Shared<Clients>> measure_clients(const ClusterScene& cluster, const Settings& settings) {
  auto clients = Shared<Clients>::make();
  if (!clients) return clients;
  Slot& slot = cluster.scene.board.slots[checker_slot];
  auto plain = cluster.start(b, [&] { return serve_plain(slot); });
  if (!plain) return std::unexpected(std::move(plain.error()));
  const std::tuple<std::size_t, Client&> places[] = {{a, (*clients)->on_host}, {d, (*clients)->on_no_host}};
  for (const auto& [host, client] : places) {
    say(fmt::format("measuring a client on host {}", lab::Hosts::name(host)));
    auto measured = run_alone(cluster, host, checker_slot, "client",
                              [&] { return measure_client(cluster, slot, settings.alone_seconds, client); });
    if (!measured) return std::unexpected(std::move(measured.error()));
  }
  return clients;
}

std::string seconds_between(std::uint64_t from_ns, std::uint64_t to_ns) {
  return fmt::format("{:.1f} s", static_cast<double>(to_ns - std::min(from_ns, to_ns)) / 1e9);
}

// How large the share was while there was one: the median of the looks that saw it, and until when.
struct Spell {
  double share = 0;
  std::uint64_t until_ns = 0;
};
Spell spell_of(std::span<const Look> looks, std::uint64_t since_ns, std::uint32_t Look::* what) {
  std::vector<double> shares;
  Spell spell{.until_ns = since_ns};
  for (const Look& look : looks) {
    if (look.at_ns < since_ns || look.*what == 0 || look.asked == 0) continue;
    shares.push_back(static_cast<double>(look.*what) / look.asked);
    spell.until_ns = look.at_ns;
  }
  if (shares.empty()) return spell;
  std::ranges::sort(shares);
  spell.share = shares[shares.size() / 2];
  return spell;
}

std::string together_text(const ClusterScene& cluster, const Events& events) {
  const Board& board = cluster.scene.board;
  const auto looks = cluster.watch.all();
  const Spell unavailable = spell_of(looks, events.lost_ns, &Look::unavailable);
  const Spell gone = spell_of(looks, events.lost_ns, &Look::gone);
  cmd::Table table("lrrrrr");
  table.add({"process", "operations", "rate", "p50 us", "p99 us", "max us"});
  table.add(process_row("writer 1, on host a", board.slots[writer_1_slot]));
  table.add(process_row("writer 2, on host d", board.slots[writer_2_slot]));
  table.add(process_row("reader 1, on host c", board.slots[reader_1_slot]));
  table.add(process_row("reader 2, on host d", board.slots[reader_2_slot]));
  return fmt::format(
      "All processes together, hosts a, b and c with a lochd each, host d without:\n{}"
      "The times of writers are a record's share of a put of {} at once.\n"
      "After {}: host b was lost, with its memory, when {} of {} records were stored.\n"
      "{} later: a host with nothing on it took its name and place.\n"
      "Until {} after the loss: {:.0f} % of the stored records could not be reached.\n"
      "Until {} after the loss: {:.0f} % of them were gone. The {} that were lost were loaded again in {}.\n",
      table.text(), puts_at_once, seconds_between(events.began_ns, events.lost_ns),
      cmd::human_count(events.stored_when_lost), cmd::human_count(cluster.scene.packages.size()),
      seconds_between(events.lost_ns, events.replaced_ns),
      seconds_between(events.lost_ns, unavailable.until_ns), unavailable.share * 100,
      seconds_between(events.lost_ns, std::max(gone.until_ns, events.reloaded_ns)), gone.share * 100,
      cmd::human_count(events.loaded_again), seconds_between(events.reachable_ns, events.reloaded_ns));
}

std::vector<std::string> client_row(const std::string& name, const bench::Histogram& operation,
                                    const bench::Histogram& round_trips) {
  const double ratio = static_cast<double>(operation.quantile_ns(0.5)) /
                       static_cast<double>(std::max<std::uint64_t>(round_trips.quantile_ns(0.5), 1));
  return {name,
          cmd::human_rate(operation.count() == 0 ? 0 : 1e9 / operation.mean_ns()),
          microseconds(operation.quantile_ns(0.5)),
          microseconds(operation.quantile_ns(0.99)),
          microseconds(operation.max_ns()),
          times(ratio)};
}

std::string clients_text(const Clients& clients, const ClusterScene& cluster) {
  cmd::Table table("lrrrrr");
  table.add({"one client alone", "rate", "p50 us", "p99 us", "max us", "/ TCP"});
  const auto add = [&table](const Client& client, const char* where) {
    table.add(client_row(fmt::format("get, {}", where), client.loch.gets, client.round_trips));
    table.add(client_row(fmt::format("put, {}", where), client.loch.puts, client.round_trips));
    table.add(client_row(fmt::format("TCP, {}", where), client.round_trips, client.round_trips));
  };
  add(clients.on_host, "on host a, which has a lochd");
  add(clients.on_no_host, "on host d, which has none");
  return fmt::format(
      "Records of {} B on average:\n{}"
      "/ TCP: of medians, to a plain round trip of 64 B over TCP from the same host to host b, in the same "
      "run,\nwhere both ends look for more as Loch's do, and do not sleep.\n",
      cluster.scene.packages.bytes() / cluster.scene.packages.size(), table.text());
}

}  // namespace

Result<void> run_cluster_demo(const Settings& settings) {
  auto lochd = lab::find_lochd(settings.lochd);
  if (!lochd) return std::unexpected(std::move(lochd.error()));
  auto folder = lab::TempFolder::make(settings.directory);
  if (!folder) return std::unexpected(std::move(folder.error()));
  const auto hosts = lab::Hosts::make(host_count, folder->path() + "/network.log");
  if (!hosts) return std::unexpected(hosts.error());
  const auto source = read_source(settings, folder->path());
  if (!source) return std::unexpected(source.error());
  const Packages& packages = **source;
  if (auto room = check_room(settings.directory, packages.bytes()); !room) return room;
  auto files = lab::ClusterFiles::make(
      {.folder = folder->path(), .store = store_name, .hosts = 3, .coordinator = "", .more_of_lochd = {}});
  if (!files) return std::unexpected(std::move(files.error()));
  lab::Lochds lochds(std::move(*lochd), std::move(*files), &*hosts);
  for (const std::size_t host : {a, b, c}) {
    if (auto started = lochds.start(host); !started) return started;
  }
  say(fmt::format("{} packages, {:.1f} MiB; into a fresh store at {}", packages.size(),
                  static_cast<double>(packages.bytes()) / (1 << 20), lochds.files().url()));

  const auto board = Shared<Board>::make();
  const auto watch = Shared<Watch>::make();
  const auto stored = Shared<std::atomic<bool>>::make(packages.size());
  if (!board || !watch || !stored)
    return fail(Errc::no_space, "demo", "there is no memory for what processes share");
  Options options;
  options.timeout = std::chrono::seconds(2);
  // So a host that is lost takes the records of its own part of the index along, and no others.
  options.placement = Placement::by_key;
  const Scene scene{.packages = packages,
                    .board = **board,
                    .url = lochds.files().url(),
                    .options = options,
                    .half_done = -1};
  const ClusterScene cluster{.scene = scene, .hosts = *hosts, .watch = **watch, .stored = stored->all()};

  Slot& first = scene.board.slots[checker_slot];
  if (auto there =
          run_alone(cluster, d, checker_slot, "first client", [&] { return await_store(cluster, first); });
      !there)
    return there;
  const auto events = run_together(cluster, lochds, settings);
  if (!events) return std::unexpected(events.error());
  // A store does not cross a fork, so the clients are measured before this process opens it.
  const auto clients = measure_clients(cluster, settings);
  if (!clients) return std::unexpected(clients.error());
  if (auto right = check_everything(scene); !right) return right;
  say("");
  say(together_text(cluster, *events));
  say(clients_text(**clients, cluster) + build_note(bench::built_for_speed()));
  return {};
}

}  // namespace loch::demo
