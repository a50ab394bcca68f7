// loch doctor: looks at the host and says what would keep a store from working, or from working fast.
#include "cmd/doctor.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>

#include "cmd/command.h"
#include "cmd/json.h"

namespace loch::cmd {
namespace {

const char* status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "OK";
    case Status::warn:
      return "WARN";
    case Status::fail:
      return "FAIL";
  }
  return "";
}

std::vector<Finding> examine(const Options& options, const std::string& store) {
  std::vector<Finding> findings{probe_directory(options.directory),
                                probe_space(options.directory),
                                probe_round_trip(options),
                                probe_stores(options),
                                probe_memory(options.directory),
                                probe_swap(),
                                probe_huge_pages(options.directory),
                                probe_processor(),
                                probe_clock_source(),
                                probe_locked_memory(),
                                probe_open_files(),
                                probe_address_space(),
                                probe_file_size(),
                                probe_logout(options.directory),
                                probe_build()};
  std::ranges::move(probe_rdma(), std::back_inserter(findings));
  if (!store.empty()) std::ranges::move(probe_store(options, store), std::back_inserter(findings));
  return findings;
}

Json findings_json(const std::vector<Finding>& findings, bool healthy) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json json{
        {"subject", finding.subject}, {"status", status_name(finding.status)}, {"found", finding.found}};
    if (!finding.mend.empty()) json["mend"] = finding.mend;
    list.push_back(std::move(json));
  }
  return Json{{"healthy", healthy}, {"findings", std::move(list)}};
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<4}  {:<14}  {}\n", status_name(finding.status), finding.subject, finding.found);
    if (!finding.mend.empty()) text += fmt::format("{:<4}  {:<14}  -> {}\n", "", "", finding.mend);
  }
  return text;
}

Exit run_doctor(Context& context, const std::string& store) {
  if (!store.empty() && is_of_this_host(store)) {
    if (const auto refused = context.check_options(store)) return *refused;
  }
  const std::vector<Finding> findings = examine(context.options(Work::point), store);
  bool healthy = true;
  for (const Finding& finding : findings) healthy = healthy && finding.status != Status::fail;
  if (context.globals.json) {
    context.print_json(findings_json(findings, healthy));
  } else {
    context.out.write(findings_text(findings));
  }
  return healthy ? Exit::ok : Exit::failed;
}

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> field_of(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(field + ":")) continue;
    const std::size_t digits = line.find_first_of("0123456789", field.size());
    if (digits == std::string::npos) return std::nullopt;
    std::uint64_t number = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), number);
    return line.ends_with(" kB") ? number * 1024 : number;
  }
  return std::nullopt;
}

void add_doctor(CLI::App& app, Context& context) {
  auto store = std::make_shared<std::string>();
  CLI::App& command = add_command(app, context, "doctor",
                                  "Check this host: memory, huge pages, processor, limits, network devices",
                                  store, run_doctor);
  add_optional_argument(command, "STORE", *store, "A store to check too, here or on another host");
  add_footer(
      command,
      "Each finding is OK, WARN (works, but not as well as it could) or FAIL, with a line on how to fix it.\n"
      "Exit code 1 if anything is FAIL.\n"
      "Examples:\n"
      "  loch doctor\n"
      "  loch --directory /mnt/huge doctor\n"
      "  loch doctor verbs://10.0.0.1/sessions\n"
      "  loch --json doctor | jq '.findings[] | select(.status != \"OK\")'");
}

}  // namespace loch::cmd
