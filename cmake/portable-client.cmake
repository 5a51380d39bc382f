# SPDX-License-Identifier: Apache-2.0
# How the client libraries are built. They are loaded into other people's programs on systems that we do not know, so they link the C
# library only and an old one of that: by default a second configuration of this source tree (TENDRIL_CLIENT_ONLY) compiles them with
# clang against the sysroot that scripts/setup unpacked. With a sanitizer, for fuzzing, or without a sysroot, the main build makes
# them itself. Either way they end up in <build>/lib/client, and the target `tendril_client` makes them.
include_guard(GLOBAL)

set(TENDRIL_SYSROOT "${CMAKE_SOURCE_DIR}/.cache/sysroot" CACHE PATH "The older C library that the client is built against")
set(TENDRIL_CLIENT_COMPILER "clang++-14" CACHE STRING "The compiler of the portable client")
set(TENDRIL_CLIENT_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/client" CACHE PATH "Where the client libraries go")

# What the targets of client/ are called; each is optional, so that the room can grow.
set(TENDRIL_CLIENT_TARGETS tendril_client_cuda tendril_client_nvml)

find_program(TENDRIL_CLIENT_COMPILER_PATH NAMES ${TENDRIL_CLIENT_COMPILER} NO_CACHE)
string(REPLACE "clang++" "clang" TENDRIL_CLIENT_C_COMPILER_PATH "${TENDRIL_CLIENT_COMPILER_PATH}")
set(portable_default OFF)
if(EXISTS "${TENDRIL_SYSROOT}/usr/include/features.h" AND TENDRIL_CLIENT_COMPILER_PATH
   AND NOT TENDRIL_SANITIZE AND NOT TENDRIL_CLIENT_ONLY)
  set(portable_default ON)
endif()
option(TENDRIL_PORTABLE_CLIENT "Build the client libraries against the older C library in TENDRIL_SYSROOT" ${portable_default})

# Flags for everything that goes into a client library. Called in the client-only configuration before any room is added.
function(tendril_client_compile_options)
  add_compile_options(-fno-exceptions -fno-rtti -fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections
                      $<$<CXX_COMPILER_ID:Clang>:-Wno-unused-command-line-argument>)
endfunction()

# Finishes the targets of client/ once that room has been added: where they go, and that they need no C++ runtime.
function(tendril_finish_client_targets)
  add_custom_target(tendril_client ALL)
  foreach(target IN LISTS TENDRIL_CLIENT_TARGETS)
    if(NOT TARGET ${target})
      continue()
    endif()
    add_dependencies(tendril_client ${target})
    # Some programs (Taichi among them) open the name without a version, which a vendor's installation has too.
    add_custom_command(TARGET tendril_client POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -E create_symlink
      $<TARGET_FILE_NAME:${target}> ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/lib$<TARGET_FILE_BASE_NAME:${target}>.so)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TENDRIL_CLIENT_OUTPUT_DIRECTORY})
    if(NOT TENDRIL_SANITIZE)
      target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-z,defs
                          -Wl,-z,relro -Wl,-z,now)
    endif()
  endforeach()
endfunction()

# The portable build: this source tree once more, as a project of its own below <build>/portable-client.
function(tendril_add_portable_client)
  include(ExternalProject)
  ExternalProject_Add(tendril_client
    SOURCE_DIR ${CMAKE_SOURCE_DIR}
    BINARY_DIR ${CMAKE_BINARY_DIR}/portable-client
    PREFIX ${CMAKE_BINARY_DIR}/portable-client-steps
    CMAKE_ARGS
      -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
      -DTENDRIL_QUICK_BUILD=${TENDRIL_QUICK_BUILD}
      -DCMAKE_C_COMPILER=${TENDRIL_CLIENT_C_COMPILER_PATH}
      -DCMAKE_CXX_COMPILER=${TENDRIL_CLIENT_COMPILER_PATH}
      -DCMAKE_SYSROOT=${TENDRIL_SYSROOT}
      -DTENDRIL_CLIENT_ONLY=ON
      -DTENDRIL_TESTS=OFF
      -DTENDRIL_PORTABLE_CLIENT=OFF
      -DTENDRIL_RUNTIME_SELF_TEST=${TENDRIL_RUNTIME_SELF_TEST}
      -DTENDRIL_CLIENT_OUTPUT_DIRECTORY=${CMAKE_BINARY_DIR}/lib/client
      -DPython3_EXECUTABLE=${Python3_EXECUTABLE}
    BUILD_COMMAND ${CMAKE_COMMAND} --build . --target tendril_client
    BUILD_ALWAYS ON  # ninja inside finds out in a moment that nothing is to be done
    INSTALL_COMMAND ""
    USES_TERMINAL_BUILD ON)
endfunction()

# Adds client/ to the build, one way or the other.
function(tendril_add_client)
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/client/CMakeLists.txt)
    return()
  endif()
  if(TENDRIL_PORTABLE_CLIENT)
    tendril_add_portable_client()
    return()
  endif()
  if(NOT TENDRIL_SANITIZE AND NOT TENDRIL_CLIENT_ONLY)
    message(WARNING "\nThe client libraries are built against THIS machine's C library, because there is none under "
                    "${TENDRIL_SYSROOT} (or no ${TENDRIL_CLIENT_COMPILER}). They will not load in older systems, and the test of "
                    "that floor fails unless TENDRIL_ALLOW_NEW_GLIBC=1 is set. Run scripts/setup, then configure afresh.\n")
  endif()
  add_subdirectory(${CMAKE_SOURCE_DIR}/client ${CMAKE_BINARY_DIR}/client)
  tendril_finish_client_targets()
endfunction()
