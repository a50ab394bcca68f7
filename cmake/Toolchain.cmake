# The compiler, its flags and the sanitizers of a build.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
  message(FATAL_ERROR
    "Loch is built with clang 19 or later, not ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. "
    "g++ 12 silently miscompiles coroutines (HACKING.md, \"Coroutines\"). "
    "Install clang-19 and use a preset: cmake --preset release; or name another compiler: CXX=clang++-20 ./dev build")
endif()

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(LOCH_SANITIZE "" CACHE STRING "Sanitizers of this build: empty, address;undefined or thread")
set(LOCH_TEST_PREFIX "" CACHE STRING "Put before the name of each test, to tell builds apart")

set(LOCH_ARCH "x86-64-v2" CACHE STRING "The processors that this build is for; x86-64-v2 (CRC32C) is the least")

# Other compilers than those that Loch is developed with warn of more.
option(LOCH_WERROR "Warnings are errors" OFF)

# Flags for our own code alone; nothing that installs carries them.
add_library(loch_options INTERFACE)
target_compile_options(loch_options INTERFACE
  -march=${LOCH_ARCH}
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
  -Wimplicit-fallthrough -Wextra-semi -Wunused $<$<BOOL:${LOCH_WERROR}>:-Werror>
  -fno-omit-frame-pointer -momit-leaf-frame-pointer
  "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
target_link_options(loch_options INTERFACE -fuse-ld=lld)

# How a test's sanitizers behave, in the binary itself, so that it does not depend on who starts it.
add_library(loch_sanitizer_options INTERFACE)
if(LOCH_SANITIZE)
  list(JOIN LOCH_SANITIZE "," sanitizers)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${sanitizers})
  # Here, so that it comes before everything that is to be installed.
  install(CODE "message(FATAL_ERROR \"A build with sanitizers is not for installing: use the preset release.\")")

  find_program(LOCH_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer
               DOC "Puts names and lines into the sanitizers' traces")
  add_library(loch_sanitizer_defaults OBJECT "${PROJECT_SOURCE_DIR}/cmake/sanitizer_defaults.cc")
  target_link_libraries(loch_sanitizer_defaults PRIVATE loch_options)
  if(LOCH_SYMBOLIZER)
    target_compile_definitions(loch_sanitizer_defaults PRIVATE
      "LOCH_SYMBOLIZER=\":external_symbolizer_path=${LOCH_SYMBOLIZER}\"")
  endif()
  target_link_libraries(loch_sanitizer_options INTERFACE "$<TARGET_OBJECTS:loch_sanitizer_defaults>")
endif()
