# loch_precompile(TARGET [KIND]): what most files include of the standard library and of others is read once for the
# whole build, instead of once for each file. Targets of a kind are compiled with the same options: `library` (unless
# told), `tests`, or `quick_tests`, which have loch_quick_options.
#
# Every file names what it includes all the same; builds without LOCH_PRECOMPILE, as that of ./dev lint, see to that.
option(LOCH_PRECOMPILE "Read common headers once for a build" OFF)

function(loch_precompile target)
  set(kind ${ARGN})
  if(NOT kind)
    set(kind library)
  endif()
  if(NOT kind STREQUAL library)
    target_compile_options(${target} PRIVATE -fPIE)  # also a library of tests is for programs
  endif()
  if(LOCH_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM loch_precompiled_${kind})
  endif()
endfunction()

if(NOT LOCH_PRECOMPILE)
  return()
endif()

set(common_headers
  <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable> <cstdint> <cstring> <deque> <expected>
  <filesystem> <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span>
  <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <vector>)

add_library(loch_precompiled_library OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cc")
target_link_libraries(loch_precompiled_library PRIVATE loch_options fmt::fmt)
target_precompile_headers(loch_precompiled_library PRIVATE ${common_headers})

if(NOT GTest_FOUND)
  return()
endif()
foreach(kind IN ITEMS tests quick_tests)
  set(target loch_precompiled_${kind})
  add_library(${target} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cc")
  target_compile_options(${target} PRIVATE -fPIE)
  target_link_libraries(${target} PRIVATE loch_options fmt::fmt GTest::gtest GTest::gmock)
  target_precompile_headers(${target} PRIVATE ${common_headers} <gmock/gmock.h> <gtest/gtest.h>)
endforeach()
target_link_libraries(loch_precompiled_quick_tests PRIVATE loch_quick_options)
