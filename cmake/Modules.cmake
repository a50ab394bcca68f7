# loch_module(NAME [APART] DEPENDS lower... [SOURCES ...] [LIBRARIES ...])
#
# One module of src/. The build enforces the order of the modules: a module is compiled with an include
# directory that holds its own folder and the headers of what it names in DEPENDS, and nothing else, so an
# include of anything else does not compile; one that leads up by ".." fails the test below. The folders inside a
# module are its own: nobody else sees them.
# APART: it is no part of the library.
function(loch_module name)
  cmake_parse_arguments(arg "APART" "" "DEPENDS;SOURCES;LIBRARIES" ${ARGN})
  set(layer "${PROJECT_BINARY_DIR}/layers/${name}")
  file(REMOVE_RECURSE "${layer}")  # a dependency that was given up is not to be seen any longer
  file(MAKE_DIRECTORY "${layer}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${layer}/${name}" SYMBOLIC)
  foreach(lower IN LISTS arg_DEPENDS)
    if(NOT TARGET loch_${lower})
      message(FATAL_ERROR "The module ${name} depends on ${lower}, which is not a module below it.")
    endif()
    file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${lower}/*.h")
    file(MAKE_DIRECTORY "${layer}/${lower}")
    foreach(header IN LISTS headers)
      cmake_path(GET header FILENAME file_name)
      file(CREATE_LINK "${header}" "${layer}/${lower}/${file_name}" SYMBOLIC)
    endforeach()
  endforeach()

  add_library(loch_${name} OBJECT ${arg_SOURCES})
  target_include_directories(loch_${name} PRIVATE "${layer}" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(loch_${name} PUBLIC fmt::fmt PkgConfig::xxhash ${arg_LIBRARIES})
  if(arg_APART)
    loch_compile_as(quick loch_${name})
  else()
    loch_compile_as(library loch_${name})
  endif()
  if(LOCH_FAULT_POINTS)
    target_compile_definitions(loch_${name} PUBLIC LOCH_FAULT_POINTS=1)
  endif()
  if(NOT arg_APART)
    set_property(GLOBAL APPEND PROPERTY LOCH_MODULES loch_${name})
  endif()

  # That this is so; another build sees the same files.
  if(LOCH_BUILD_TESTS AND NOT "thread" IN_LIST LOCH_SANITIZE)
    list(JOIN arg_DEPENDS "|" seen)
    add_test(NAME "${LOCH_TEST_PREFIX}Modules.${name}" COMMAND "${CMAKE_COMMAND}"
      "-DMODULE=${name}" "-DSEEN=${seen}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DSOURCES=${PROJECT_SOURCE_DIR}/src"
      "-DINCLUDES=$<JOIN:$<TARGET_PROPERTY:loch_${name},INCLUDE_DIRECTORIES>,|>"
      "-DFOLDER=${PROJECT_BINARY_DIR}/include_checks" -P "${PROJECT_SOURCE_DIR}/cmake/check_includes.cmake")
    set_tests_properties("${LOCH_TEST_PREFIX}Modules.${name}" PROPERTIES LABELS unit)
  endif()
endfunction()

# loch_test(NAME SOURCES ... [LABELS ...] [LIBRARIES ...] [TIMEOUT seconds] [SIM] [NO_TSAN reason])
#
# A GoogleTest binary that sees all of src/ and links the whole library. SIM: it belongs to the simulator, and is built
# with it. NO_TSAN: it is not built under the thread sanitizer, for the reason given.
function(loch_test name)
  cmake_parse_arguments(arg "SIM" "TIMEOUT;NO_TSAN" "SOURCES;LABELS;LIBRARIES" ${ARGN})
  if(NOT LOCH_BUILD_TESTS AND NOT (arg_SIM AND LOCH_BUILD_SIM))
    return()
  endif()
  if(arg_NO_TSAN AND "thread" IN_LIST LOCH_SANITIZE)
    message(STATUS "Without ${name} under the thread sanitizer: ${arg_NO_TSAN}")
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE
    loch_sanitizer_options loch GTest::gtest GTest::gmock GTest::gtest_main ${arg_LIBRARIES})
  loch_compile_as(tests ${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    TEST_PREFIX "${LOCH_TEST_PREFIX}" PROPERTIES TIMEOUT ${arg_TIMEOUT})
  if(arg_LABELS)
    # Not by PROPERTIES, which can not hold a list.
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
    file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [[
foreach(test IN LISTS @name@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@arg_LABELS@")
endforeach()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
  endif()
endfunction()
