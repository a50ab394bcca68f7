# What `cmake --install` puts where: the library, its headers, the notes, and how other builds find them. Programs are
# installed by the folders that make them.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/loch")

install(TARGETS loch EXPORT lochTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/loch DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES examples/quickstart.cc examples/coroutines.cc DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")

# The README and the notes link to where things are installed; of what is not, the text of the link is left.
file(GLOB notes RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS docs/*.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS README.md ${notes})
foreach(note IN ITEMS README.md LISTS notes)
  cmake_path(GET note PARENT_PATH folder)
  file(RELATIVE_PATH to_headers "${CMAKE_INSTALL_FULL_DOCDIR}/${folder}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  file(READ ${note} text)
  string(REGEX REPLACE
    "\\[([^]]*)\\]\\((\\.\\./(bench|cmake|packaging/lochd\\.8|sim|src|tests)|ARCHITECTURE|HACKING)[^)]*\\)" "\\1"
    text "${text}")
  string(REGEX REPLACE "\\]\\((\\.\\./)?include/" "](${to_headers}/" text "${text}")
  string(REPLACE "packaging/lochd.toml" "examples/lochd.toml" text "${text}")
  file(WRITE "${PROJECT_BINARY_DIR}/installed/${note}" "${text}")
  install(FILES "${PROJECT_BINARY_DIR}/installed/${note}" DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}")
endforeach()

# find_package(loch)
install(EXPORT lochTargets NAMESPACE loch:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/lochConfig.cmake.in "${PROJECT_BINARY_DIR}/lochConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lochConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lochConfig.cmake" "${PROJECT_BINARY_DIR}/lochConfigVersion.cmake"
  DESTINATION "${package_dir}")

# pkg-config. The prefix is found from where the file lies, so that an installed tree may be moved.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
if(libdir_is_absolute)
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pc_libdir "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH up_to_prefix "/${pc_dir}" "/")
  string(REGEX REPLACE "/$" "" up_to_prefix "${up_to_prefix}")
  set(pc_prefix "\${pcfiledir}/${up_to_prefix}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR includedir_is_absolute)
if(includedir_is_absolute)
  set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/loch.pc.in "${PROJECT_BINARY_DIR}/loch.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/loch.pc" DESTINATION "${pc_dir}")

# The shell's part of the command.
if(LOCH_BUILD_PROGRAMS)
  install(FILES packaging/loch.bash DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME loch)
endif()
