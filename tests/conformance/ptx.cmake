# tendril_embed_ptx(TARGET NAME SOURCE.cu): compiles device code to PTX with clang alone (no
# toolkit) and gives TARGET a header that holds it as text. With the NAME faults the header is
# "faults.ptx.gen.h", and it says `inline constexpr char kFaultsPtx[]`. tendril_embed_text(TARGET
# CONSTANT FILE HEADER): gives TARGET a header that holds FILE as the text CONSTANT.
find_program(TENDRIL_DEVICE_CLANG NAMES clang++-14 clang++ clang-14 clang)

set(TENDRIL_PTX_ROOM ${CMAKE_CURRENT_LIST_DIR})

function(tendril_embed_text target constant file header)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded/${header})
  add_custom_command(OUTPUT ${out}
    COMMAND ${Python3_EXECUTABLE} ${TENDRIL_PTX_ROOM}/embed_text.py ${file} ${constant} ${out}
    DEPENDS ${file} ${TENDRIL_PTX_ROOM}/embed_text.py COMMENT "Embedding ${header}" VERBATIM)
  target_sources(${target} PRIVATE ${out})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded)
endfunction()

function(tendril_embed_ptx target name source)
  get_filename_component(source ${source} ABSOLUTE)
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
  # The missing --cuda-path keeps clang from picking the PTX version by whatever toolkit happens to
  # be installed.
  add_custom_command(OUTPUT ${ptx}
    COMMAND ${TENDRIL_DEVICE_CLANG} -x cuda --cuda-device-only --cuda-gpu-arch=sm_70
    --cuda-path=/nonexistent -nocudainc
            -nocudalib -Xclang -target-feature -Xclang +ptx60 -std=c++17 -O2 -Wall
            -I${CMAKE_SOURCE_DIR} -S -o ${ptx} ${source}
    DEPENDS ${source} ${TENDRIL_PTX_ROOM}/kernels/device.h COMMENT "Compiling ${name}.cu to PTX"
    VERBATIM)
  string(REPLACE "_" ";" words ${name})
  set(constant k)
  foreach(word ${words})
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND constant ${first}${rest})
  endforeach()
  tendril_embed_text(${target} ${constant}Ptx ${ptx} ${name}.ptx.gen.h)
endfunction()
