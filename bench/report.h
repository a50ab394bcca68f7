// bench/report: the results as tables for people, as JSON for programs and as a plot.
#pragma once

#include <string>

#include <loch/error.h>

#include "bench/figure.h"

namespace loch::bench {

// What was run, on what, of which build.
std::string header_text(const Report& report);

// One table for each section that has figures, the notes, and how many targets were met.
std::string tables_text(const Report& report);

// Everything that the tables show, and more digits; the form is described in bench/README.md.
std::string json_text(const Report& report);

// A script for gnuplot that draws rates and latencies into the file `svg`.
std::string plot_script(const Report& report, const std::string& svg);

// Errors: io, naming the file; not_found when gnuplot is not installed; timed_out.
Result<void> write_file(const std::string& path, const std::string& text);
Result<void> draw_plot(const Report& report, const std::string& svg);

}  // namespace loch::bench
