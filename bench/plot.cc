#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/report.h"
#include "lab/process.h"

namespace loch::bench {
namespace {

constexpr std::chrono::seconds plot_timeout{30};

struct Style {
  const char* subject;
  const char* color;
};

constexpr std::array<Style, 4> styles = {
    {{"loch", "#1b6ca8"}, {"lmdb", "#8bb174"}, {"redis", "#d1603d"}, {"memcached", "#b8a9c9"}}};

constexpr std::array<const char*, 4> operations = {"get", "multi_get", "put", "multi_put"};
constexpr std::array<const char*, 5> workloads = {"a", "b", "c", "d", "f"};

// The figure of a section whose name is `name`, or else the first whose name goes on after it.
const Figure* first_of(const Report& report, std::string_view section, std::string_view name,
                       std::string_view subject) {
  const Figure* longer = nullptr;
  for (const Figure* figure : report.in(section)) {
    if (figure->subject != subject) continue;
    if (figure->name == name) return figure;
    const bool goes_on = figure->name.starts_with(fmt::format("{}:", name)) ||
                         figure->name.starts_with(fmt::format("{},", name));
    if (goes_on && longer == nullptr) longer = figure;
  }
  return longer;
}

std::string rate_cell(const Figure* figure) {
  return figure == nullptr ? "NaN" : fmt::format("{:.6g}", figure->rate());
}

// What stands at the horizontal axis: operations, or the one workload.
std::vector<std::string> rows_of(const Report& report, bool standard) {
  if (standard) return {operations.begin(), operations.end()};
  return {report.in("ycsb").front()->name};
}

const Figure* rate_of(const Report& report, bool standard, std::string_view row, std::string_view subject) {
  const char* const section = !standard ? "ycsb" : subject == "loch" ? "loch" : "peers";
  return first_of(report, section, row, subject);
}

// Those that were measured: gnuplot refuses a column that has no figure.
std::vector<Style> styles_of(const Report& report, bool standard) {
  std::vector<Style> measured;
  for (const Style& style : styles) {
    const bool has_figures = std::ranges::any_of(rows_of(report, standard), [&](const std::string& row) {
      return rate_of(report, standard, row, style.subject) != nullptr;
    });
    if (has_figures) measured.push_back(style);
  }
  return measured;
}

// A column of rates for each subject.
std::string rates_data(const Report& report, bool standard, const std::vector<Style>& measured) {
  std::string data = "$rates << EOD\n";
  for (const std::string& row : rows_of(report, standard)) {
    data += fmt::format("\"{}\"", row);
    for (const Style& style : measured)
      data += " " + rate_cell(rate_of(report, standard, row, style.subject));
    data += "\n";
  }
  return data + "EOD\n";
}

std::string rates_panel(const Report& report, bool standard) {
  const std::vector<Style> measured = styles_of(report, standard);
  std::string script = rates_data(report, standard, measured);
  const Figure* floor = report.find("floor", "independent read", "machine");
  script += fmt::format("set title \"Operations a second of one key ({} + {} B, {} items)\"\n",
                        report.settings.key_bytes, report.settings.value_bytes, report.settings.items);
  script += R"(set ylabel "operations a second"
set yrange [1e3:*]
set format y "%.0s%c"
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set key outside right top
)";
  if (floor != nullptr) {
    const double rate = floor->rate();
    script += fmt::format(
        R"(set arrow 1 from graph 0, first {0:.6g} to graph 1, first {0:.6g} nohead dt 2 lc rgb "#333333"
set label 1 "floor: independent 64 B read" at graph 0.01, first {1:.6g}
)",
        rate, rate * 1.4);
  }
  script += "plot ";
  for (std::size_t i = 0; i < measured.size(); ++i) {
    script += fmt::format(R"({}$rates using {}:xtic(1) title "{}" lc rgb "{}")", i == 0 ? "" : ", ", i + 2,
                          measured[i].subject, measured[i].color);
  }
  return script + "\nunset arrow 1\nunset label 1\n";
}

std::string latency_panel(const Report& report) {
  std::string script = "$latencies << EOD\n";
  for (const char* workload : workloads) {
    const Figure* figure = first_of(report, "ycsb", workload, "loch");
    if (figure == nullptr) continue;
    for (const auto& [kind, latency] :
         {std::pair{"reads", figure->reads}, std::pair{"writes", figure->writes}}) {
      if (!latency) continue;
      script += fmt::format("\"{} {}\" {} {} {}\n", workload, kind, latency->p50_ns, latency->p99_ns,
                            latency->p999_ns);
    }
  }
  script += R"(EOD
set title "Latencies of Loch, YCSB, one process"
set xtics norotate scale 0
set ylabel "nanoseconds"
set yrange [10:*]
plot $latencies using 2:xtic(1) title "p50" lc rgb "#1b6ca8", \
  '' using 3 title "p99" lc rgb "#6fa8d6", '' using 4 title "p99.9" lc rgb "#c3dcf0"
)";
  return script;
}

}  // namespace

std::string plot_script(const Report& report, const std::string& svg) {
  const bool standard = report.settings.suite != "workload";
  const bool latencies = standard && first_of(report, "ycsb", "a", "loch") != nullptr;
  std::string quoted;
  for (const char letter : svg) quoted += letter == '\'' ? std::string("''") : std::string(1, letter);
  std::string script = fmt::format(
      "set terminal svg size 1000,{} dynamic font \"sans-serif,13\" noenhanced background \"white\"\n",
      latencies ? 900 : 480);
  script += fmt::format("set output '{}'\nset logscale y\nset grid ytics lc rgb \"#dddddd\"\n", quoted);
  script += "set border 3\nset tics nomirror\nset rmargin 22\nset bmargin 4\n";
  if (latencies) script += "set multiplot layout 2,1\n";
  script += rates_panel(report, standard);
  if (latencies) script += latency_panel(report) + "unset multiplot\n";
  return script;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail(Errc::io, "bench", fmt::format("write {}: {}", path, std::strerror(errno)));
  return {};
}

Result<void> draw_plot(const Report& report, const std::string& svg) {
  const bool something = !report.in(report.settings.suite == "workload" ? "ycsb" : "loch").empty();
  if (!something) return fail(Errc::invalid_argument, "bench", "there are no figures to plot");
  const auto program = lab::find_program("gnuplot", "gnuplot-nox");
  if (!program) return std::unexpected(program.error());
  // The script stays beside the plot, for whoever wants to change it.
  const std::string script = svg + ".gnuplot";
  const std::string log = svg + ".log";
  if (auto written = write_file(script, plot_script(report, svg)); !written) return written;
  auto drawn = lab::Process::run_to_end({.words = {*program, script}, .log = log}, plot_timeout);
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  return drawn;
}

}  // namespace loch::bench
