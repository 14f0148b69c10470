# Writes OUTPUT, a C++ file with the text of every machines/*.json of FOLDER by its name.
# Run as: cmake -DFOLDER=... -DOUTPUT=... -P embed_machines.cmake
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(rows "")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND rows "    {\"${name}\", R\"machine(${text})machine\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Written by simulator/machine/embed_machines.cmake at build time.
#include \"simulator/machine/machine.h\"

namespace lockstep::simulator {

std::vector<EmbeddedMachine> embedded_machines() {
  return {
${rows}  };
}

}  // namespace lockstep::simulator
")
