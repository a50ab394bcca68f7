# loch_compile_as(KIND TARGET...): the flags of our own code, and what its files include read once for the whole build
# instead of once for each of them. The kinds:
#   library  what takes part in operations on a store;
#   quick    what has many templates and little to do, as parsers of command lines: under sanitizers it would take the
#            optimiser longer than all modules together, and nothing that is tested is quicker for it;
#   tests    as quick, with GoogleTest.
#
# Every file names what it includes all the same; builds without LOCH_PRECOMPILE, as that of ./dev lint, see to that.
option(LOCH_PRECOMPILE "Read common headers once for a build" OFF)

function(loch_compile_as kind)
  foreach(target IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE loch_${kind}_options)
    if(LOCH_PRECOMPILE)
      target_precompile_headers(${target} REUSE_FROM loch_precompiled_${kind})
    endif()
  endforeach()
endfunction()

# Libraries and programs of one kind share its precompiled headers, which are for one kind of position independence.
foreach(kind IN ITEMS library quick tests)
  add_library(loch_${kind}_options INTERFACE)
  target_link_libraries(loch_${kind}_options INTERFACE loch_options)
  target_compile_options(loch_${kind}_options INTERFACE -fPIC)
endforeach()
if(LOCH_SANITIZE)
  target_compile_options(loch_quick_options INTERFACE -O0)
  target_compile_options(loch_tests_options INTERFACE -O0)
endif()

if(NOT LOCH_PRECOMPILE)
  return()
endif()

set(headers_of_all
  <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable> <cstdint> <cstring> <deque> <expected>
  <filesystem> <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory> <mutex> <nlohmann/json.hpp> <optional>
  <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <vector>)
# Not CLI11's: each file that sees its global validators compiles them.
set(headers_of_tests <gmock/gmock.h> <gtest/gtest.h>)

function(loch_precompile kind)
  add_library(loch_precompiled_${kind} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cc")
  target_link_libraries(loch_precompiled_${kind} PRIVATE loch_${kind}_options fmt::fmt
                        nlohmann_json::nlohmann_json ${ARGN})
  target_precompile_headers(loch_precompiled_${kind} PRIVATE ${headers_of_all} ${headers_of_${kind}})
endfunction()
loch_precompile(library)
loch_precompile(quick)
if(GTest_FOUND)
  loch_precompile(tests GTest::gtest GTest::gmock)
endif()
