# tendril_embed_ptx(TARGET NAME SOURCE.cu): compiles device code to PTX with clang alone (no toolkit) and gives TARGET the header
# "NAME.ptx.gen.h" that holds it as text: `inline constexpr char kNamePtx[]`, name in CamelCase.
find_program(TENDRIL_DEVICE_CLANG NAMES clang++-14 clang++ clang-14 clang)

set(TENDRIL_PTX_ROOM ${CMAKE_CURRENT_LIST_DIR})

function(tendril_embed_ptx target name source)
  get_filename_component(source ${source} ABSOLUTE)
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
  set(header ${CMAKE_CURRENT_BINARY_DIR}/ptx/${name}.ptx.gen.h)
  # The missing --cuda-path keeps clang from picking the PTX version by whatever toolkit happens to be installed.
  add_custom_command(
    OUTPUT ${header} BYPRODUCTS ${ptx}
    COMMAND ${TENDRIL_DEVICE_CLANG} -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 --cuda-path=/nonexistent -nocudainc
            -nocudalib -Xclang -target-feature -Xclang +ptx60 -std=c++17 -O2 -Wall -I${CMAKE_SOURCE_DIR} -S -o ${ptx} ${source}
    COMMAND ${Python3_EXECUTABLE} ${TENDRIL_PTX_ROOM}/embed_ptx.py ${ptx} ${name} ${header}
    DEPENDS ${source} ${TENDRIL_PTX_ROOM}/kernels/device.h ${TENDRIL_PTX_ROOM}/embed_ptx.py
    COMMENT "Compiling ${name}.cu to PTX" VERBATIM)
  target_sources(${target} PRIVATE ${header})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/ptx)
endfunction()
