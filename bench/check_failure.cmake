# cmake -DBENCH=loch-bench -DFOLDER=... -P check_failure.cmake: a run that fails reports what it has measured, and files that
# are not there are found out before anything is measured.
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY "${FOLDER}")
find_program(FALSE_PROGRAM false REQUIRED)

# A simulator that fails, after the floor and Loch were measured.
execute_process(COMMAND "${BENCH}" --items 1000 --seconds 0.01 --rounds 1 --quiet --subjects loch --sections loch,simulator
    --simulator "${FALSE_PROGRAM}" --json "${FOLDER}/failed.json"
  RESULT_VARIABLE code OUTPUT_VARIABLE tables ERROR_VARIABLE said)
if(NOT code EQUAL 1 OR NOT said MATCHES "${FALSE_PROGRAM}.* failed")
  message(FATAL_ERROR "A simulator that fails is told by ${code} and: ${said}")
endif()
file(READ "${FOLDER}/failed.json" results)
file(REMOVE "${FOLDER}/failed.json")
foreach(part IN ITEMS "multi_get" "this run failed")
  foreach(output IN ITEMS "${tables}" "${results}")
    string(FIND "${output}" "${part}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "Of a run that failed there is no '${part}' in: ${output}")
    endif()
  endforeach()
endforeach()

foreach(option IN ITEMS --simulator --lochd --results --directory --json --plot)
  execute_process(COMMAND "${BENCH}" --items 1000 --quiet ${option} "${FOLDER}/not/there"
    RESULT_VARIABLE code OUTPUT_VARIABLE tables ERROR_VARIABLE said)
  if(NOT code EQUAL 2 OR NOT said MATCHES "not/there" OR NOT tables STREQUAL "")
    message(FATAL_ERROR "${option} of what is not there is told by ${code} and: ${tables}${said}")
  endif()
endforeach()
