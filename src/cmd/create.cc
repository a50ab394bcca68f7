// loch create: makes a store, with the geometry and access that it keeps.
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

struct CreateArguments {
  std::string store;
  std::optional<std::uint32_t> candidates;
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::chrono::milliseconds> expiry;
  std::optional<std::uint32_t> mode;
  std::string group;
  bool no_huge_pages = false;
  std::optional<Atomics> atomics;
};

Exit run_create(Context& context, const CreateArguments& arguments) {
  if (context.globals.read_only) return context.complain(Exit::failed, "with --read-only no store is made");
  if (const auto refused = context.check_options(arguments.store)) return *refused;
  Options options = context.options(Work::point);
  options.candidates = arguments.candidates;
  options.max_bytes = arguments.max_bytes;
  options.expiry = arguments.expiry;
  options.group = arguments.group;
  options.huge_pages = !arguments.no_huge_pages;
  if (arguments.mode) options.file_mode = *arguments.mode;
  options.atomics = arguments.atomics.value_or(Atomics::processor);
  const auto where = Store::create(store_url(arguments.store), options);
  if (!where) {
    const Errc code = where.error().code;
    const bool is_no_folder = code == Errc::not_found || code == Errc::permission;
    const Exit exit = is_no_folder                     ? Exit::cannot_open
                      : code == Errc::invalid_argument ? Exit::usage
                                                       : Exit::failed;
    return context.complain(
        exit,
        fmt::format("cannot create store '{}': {}", escaped(arguments.store), what_is_wrong(where.error())),
        code);
  }
  if (context.globals.json)
    context.print_json(Json{{"name", last_part(arguments.store)}, {"location", *where}});
  return Exit::ok;
}

}  // namespace

void add_create(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CreateArguments>();
  CLI::App& command =
      add_command(app, context, "create", "Make a store with options of its own", arguments, run_create);
  add_store(command, arguments->store);
  add_number(command, "--candidates", arguments->candidates,
             "Slots that a key may stand in, 2 to 4 (default: 3)");
  add_bytes(
      command, "--max-bytes", arguments->max_bytes,
      "Limit of items and index together, such as 512M, at least 4M; in a cluster, on each host (default: "
      "what the file system gives)");
  add_duration(command, "--expiry", arguments->expiry,
               "How long unlinked memory rests, 50ms to 60s (default: 1s)");
  add_parsed(command, "--mode", arguments->mode,
             "Mode of the store's files, 600 (default), 660 or 666: who may open them may use the store",
             "OCTAL", parse_mode);
  add_text(command, "--group", arguments->group, "Group of the store's files", "GROUP");
  add_flag(command, "--no-huge-pages", arguments->no_huge_pages, "Do not ask the kernel for 2 MiB pages");
  add_parsed(
      command, "--atomics", arguments->atomics,
      "What changes its words: processor (default), or device: an RDMA device, and then all clients use "
      "verbs://",
      "WHOSE", [](std::string_view text) -> Parsed<Atomics> {
        if (const auto atomics = parse_atomics(text)) return *atomics;
        return std::unexpected(fmt::format("'{}' is neither processor nor device", escaped(text)));
      });
  add_footer(command,
             "put, load and incr make a missing store of this host by themselves, without these options.\n"
             "Fails (1) if it exists.\n"
             "Examples:\n"
             "  loch create sessions --max-bytes 2G\n"
             "  loch create shared --mode 660 --group www-data\n"
             "  loch --directory /mnt/huge create cache");
}

}  // namespace loch::cmd
