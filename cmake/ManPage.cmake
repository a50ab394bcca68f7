# loch_man_page(NAME SECTION): the man page of packaging/NAME.SECTION.scd, where there is scdoc to make it.
find_program(SCDOC scdoc DOC "Makes the man pages")
if(NOT SCDOC)
  message(STATUS "There is no scdoc: no man pages are made or installed")
endif()

function(loch_man_page name section)
  if(NOT SCDOC)
    return()
  endif()
  set(page "${name}.${section}")
  set(source "${PROJECT_SOURCE_DIR}/packaging/${page}.scd")
  add_custom_command(OUTPUT "${page}"
    COMMAND "${CMAKE_COMMAND}" -E env "SOURCE_DATE_EPOCH=0" sh -c "\"$0\" < \"$1\" > \"$2\"" "${SCDOC}" "${source}" "${page}"
    DEPENDS "${source}" VERBATIM)
  add_custom_target("man_${page}" ALL DEPENDS "${page}")
  if(NOT LOCH_INSTALL)
    return()
  endif()
  # It says where Loch is installed to, which `cmake --install --prefix` may change. roff has its own '\' and '-'.
  install(CODE "
    cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX NORMALIZE OUTPUT_VARIABLE prefix)
    cmake_path(APPEND prefix \"${CMAKE_INSTALL_DOCDIR}\" OUTPUT_VARIABLE LOCH_DOCDIR)
    string(REPLACE \"-\" \"\\\\-\" LOCH_DOCDIR \"\${LOCH_DOCDIR}\")
    cmake_path(APPEND prefix \"${CMAKE_INSTALL_MANDIR}\" man${section} OUTPUT_VARIABLE folder)
    configure_file(\"${CMAKE_CURRENT_BINARY_DIR}/${page}\" \"${CMAKE_CURRENT_BINARY_DIR}/installed/${page}\" @ONLY)
    file(INSTALL \"${CMAKE_CURRENT_BINARY_DIR}/installed/${page}\" DESTINATION \"\${folder}\")")
endfunction()
