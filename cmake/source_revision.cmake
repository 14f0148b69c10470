# Writes OUTPUT, a C++ file with the git revision of SOURCE_DIR, at build time. A file that is up to date is not
# written, so that nothing is recompiled. A source package has no repository; `git archive` wrote its revision into
# cmake/revision.txt (.gitattributes). Run as: cmake -DSOURCE_DIR=... -DOUTPUT=... -P source_revision.cmake
set(revision unknown)
set(dirty std::nullopt)
find_program(git NAMES git)
file(STRINGS ${SOURCE_DIR}/cmake/revision.txt archived REGEX "^[0-9a-f]+$")
if(archived)
  set(revision ${archived})
elseif(git)
  set(git_here ${git} -c safe.directory=* -C ${SOURCE_DIR})
  execute_process(COMMAND ${git_here} rev-parse HEAD OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(revision ${head})
    execute_process(COMMAND ${git_here} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      set(dirty true)
    else()
      set(dirty false)
    endif()
  endif()
endif()

set(text "// Written by cmake/source_revision.cmake at build time.
#include \"core/provenance.h\"

namespace lockstep::core {

Source source() { return {\"${revision}\", ${dirty}}; }

}  // namespace lockstep::core
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} present)
endif()
if(NOT "${present}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
