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
  # It says where Loch is installed to; '_' underlines.
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${page}.scd")
  string(REPLACE "_" "\\_" LOCH_DOCDIR "${CMAKE_INSTALL_FULL_DOCDIR}")
  configure_file("${PROJECT_SOURCE_DIR}/packaging/${page}.scd" "${source}" @ONLY)
  add_custom_command(OUTPUT "${page}"
    COMMAND "${CMAKE_COMMAND}" -E env "SOURCE_DATE_EPOCH=0" sh -c "\"$0\" < \"$1\" > \"$2\"" "${SCDOC}" "${source}" "${page}"
    DEPENDS "${source}" VERBATIM)
  add_custom_target("man_${page}" ALL DEPENDS "${page}")
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
endfunction()
