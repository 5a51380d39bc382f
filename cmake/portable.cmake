# SPDX-License-Identifier: Apache-2.0
# The client libraries, which other people's programs load, and the command line (`tendril`,
# `tendril-bench`) run on systems that we do not know. So they are built against an old C library.
# By default a second configuration of this source tree (TENDRIL_PORTABLE_ONLY) compiles them with
# clang against the sysroot that scripts/setup unpacked. With a sanitizer, for fuzzing, or without a
# sysroot, the main build makes them itself. Either way the targets are `tendril_client`, `tendril`
# and `tendril_bench`, and the results are in <build>/lib/client and <build>/bin.
include_guard(GLOBAL)

set(TENDRIL_SYSROOT "${CMAKE_SOURCE_DIR}/.cache/sysroot" CACHE PATH
  "The older C library that portable targets are built against")
set(TENDRIL_PORTABLE_COMPILER "clang++-14" CACHE STRING "The compiler of portable targets")
set(TENDRIL_CLIENT_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/client" CACHE PATH
  "Where the client libraries go")
set(TENDRIL_PROGRAM_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin" CACHE PATH "Where programs go")

# The names of the targets of client/. Each is optional, so that the room can grow.
set(TENDRIL_CLIENT_TARGETS tendril_client_cuda tendril_client_nvml tendril_client_nccl
  tendril_client_opencl)

find_program(TENDRIL_PORTABLE_COMPILER_PATH NAMES ${TENDRIL_PORTABLE_COMPILER} NO_CACHE)
string(REPLACE "clang++" "clang" TENDRIL_PORTABLE_C_COMPILER_PATH
  "${TENDRIL_PORTABLE_COMPILER_PATH}")
set(portable_default OFF)
if(EXISTS "${TENDRIL_SYSROOT}/usr/include/features.h" AND TENDRIL_PORTABLE_COMPILER_PATH
   AND NOT TENDRIL_SANITIZE AND NOT TENDRIL_PORTABLE_ONLY)
  set(portable_default ON)
endif()
option(TENDRIL_PORTABLE
  "Build the client libraries and the command line against the older C library in TENDRIL_SYSROOT"
       ${portable_default})

# Flags for everything that goes into a client library. Called in the portable configuration before
# any room is added.
function(tendril_client_compile_options)
  add_compile_options(-fno-exceptions -fno-rtti -fvisibility=hidden -fvisibility-inlines-hidden
    -ffunction-sections -fdata-sections
                      $<$<CXX_COMPILER_ID:Clang>:-Wno-unused-command-line-argument>)
endfunction()

# Flags for the rooms of the command line. Called in the portable configuration after the rooms that
# reach a client library. The included header removes what is younger than the oldest C library.
macro(tendril_command_line_compile_options)
  add_compile_options(-fexceptions -frtti
    $<$<COMPILE_LANGUAGE:CXX>:-include$<SEMICOLON>${CMAKE_SOURCE_DIR}/cmake/old_glibc.h>)
endmacro()

# Finishes the targets of client/ once that room has been added. It sets where they go, and that
# they need no C++ runtime.
function(tendril_finish_client_targets)
  add_custom_target(tendril_client ALL)
  add_dependencies(tendril_client tendril_client_smi)
  foreach(target IN LISTS TENDRIL_CLIENT_TARGETS)
    if(NOT TARGET ${target})
      continue()
    endif()
    add_dependencies(tendril_client ${target})
    if(target STREQUAL tendril_client_nccl)
      # Only programs on several servers need it. Where the loader does not look, all others find
      # their own.
      set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
        ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/nccl)
    elseif(target STREQUAL tendril_client_opencl)
      # Loaders look for files that name drivers in a folder.
      file(WRITE ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/opencl/tendril.icd "libtendril-opencl.so\n")
      # In containers LD_LIBRARY_PATH is the image's, so this file says where `tendril env --docker`
      # and CDI mount the library.
      file(WRITE ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/opencl/container/tendril.icd
        "/opt/tendril/lib/tendril/opencl/libtendril-opencl.so\n")
      set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
        ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/opencl)
    else()
      # Some programs (Taichi among them) open the name without a version, which a vendor's
      # installation has too.
      add_custom_command(TARGET tendril_client POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -E
        create_symlink
        $<TARGET_FILE_NAME:${target}>
        ${TENDRIL_CLIENT_OUTPUT_DIRECTORY}/lib$<TARGET_FILE_BASE_NAME:${target}>.so)
      set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
        ${TENDRIL_CLIENT_OUTPUT_DIRECTORY})
    endif()
    if(NOT TENDRIL_SANITIZE)
      target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
        -Wl,--gc-sections -Wl,-z,defs
                          -Wl,-z,relro -Wl,-z,now)
    endif()
  endforeach()
endfunction()

# A program of the command line. It contains its C++ runtime and needs only the C library.
function(tendril_portable_program target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
    ${TENDRIL_PROGRAM_OUTPUT_DIRECTORY})
  if(TENDRIL_PORTABLE_ONLY)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections
      -Wl,-z,relro -Wl,-z,now)
  endif()
endfunction()

# Libraries that consist of headers come from this machine's packages. Each folder of headers gets a
# link in a folder of its own, because the folder around it also holds this machine's C library.
function(tendril_header_library target folder header)
  find_path(header_place ${folder}/${header} NO_CACHE NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/header_libraries)
  file(CREATE_LINK ${header_place}/${folder} ${CMAKE_BINARY_DIR}/header_libraries/${folder}
    SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/header_libraries)
endfunction()

# A static library of this machine's packages, whose headers are in folders named FOLDER (one for
# all architectures and one for this), or whose one header is FOLDER.h. The portable build cannot
# use the folders around them.
function(tendril_static_library target folder archive)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/static_libraries/${folder})
  file(GLOB headers /usr/include/${folder}.h /usr/include/${folder}/*.h
    /usr/include/*-linux-gnu/${folder}/*.h)
  foreach(more IN LISTS ARGN)
    file(GLOB found /usr/include/${more} /usr/include/*-linux-gnu/${more})
    list(APPEND headers ${found})
  endforeach()
  foreach(header IN LISTS headers)
    get_filename_component(name ${header} NAME)
    file(CREATE_LINK ${header} ${CMAKE_BINARY_DIR}/static_libraries/${folder}/${name} SYMBOLIC)
  endforeach()
  file(GLOB path /usr/lib/*-linux-gnu/${archive} /usr/lib/${archive})
  if(NOT headers OR NOT path)
    message(FATAL_ERROR "${archive} or its headers are missing: run scripts/setup")
  endif()
  list(GET path 0 path)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${path})
  target_include_directories(${target} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/static_libraries)
endfunction()

# Makes a target of this build that runs a target of the portable build and makes FILES.
function(tendril_portable_target target)
  list(TRANSFORM ARGN PREPEND ${CMAKE_BINARY_DIR}/ OUTPUT_VARIABLE files)
  add_custom_target(${target} ALL
    COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR}/portable --target ${target}
    BYPRODUCTS ${files}
    USES_TERMINAL)  # one after the other: two builds of one folder would disturb each other
  add_dependencies(${target} tendril_portable-configure)
endfunction()

# The portable build: this source tree again, as a separate project in <build>/portable. If nothing
# is to be done, the ninja inside finds out in a moment.
function(tendril_add_portable_build)
  include(ExternalProject)
  ExternalProject_Add(tendril_portable
    SOURCE_DIR ${CMAKE_SOURCE_DIR}
    BINARY_DIR ${CMAKE_BINARY_DIR}/portable
    PREFIX ${CMAKE_BINARY_DIR}/portable-steps
    CMAKE_ARGS
      -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
      -DTENDRIL_QUICK_BUILD=${TENDRIL_QUICK_BUILD}
      -DTENDRIL_WERROR=${TENDRIL_WERROR}
      -DCMAKE_C_COMPILER=${TENDRIL_PORTABLE_C_COMPILER_PATH}
      -DCMAKE_CXX_COMPILER=${TENDRIL_PORTABLE_COMPILER_PATH}
      -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER}
      -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
      -DCMAKE_SYSROOT=${TENDRIL_SYSROOT}
      -DTENDRIL_PORTABLE_ONLY=ON
      -DTENDRIL_TESTS=OFF
      -DTENDRIL_PORTABLE=OFF
      -DTENDRIL_RUNTIME_SELF_TEST=${TENDRIL_RUNTIME_SELF_TEST}
      -DTENDRIL_CLIENT_OUTPUT_DIRECTORY=${TENDRIL_CLIENT_OUTPUT_DIRECTORY}
      -DTENDRIL_PROGRAM_OUTPUT_DIRECTORY=${TENDRIL_PROGRAM_OUTPUT_DIRECTORY}
      -DPython3_EXECUTABLE=${Python3_EXECUTABLE}
    BUILD_COMMAND ""
    INSTALL_COMMAND ""
    STEP_TARGETS configure
    EXCLUDE_FROM_ALL ON)
  tendril_portable_target(tendril_client lib/client/libcuda.so.1 lib/client/libnvidia-ml.so.1
                          lib/client/nccl/libnccl.so.2
                          lib/client/opencl/libtendril-opencl.so
                          lib/client/bin/nvidia-smi)
  tendril_portable_target(tendril bin/tendril)
  tendril_portable_target(tendril_bench bin/tendril-bench)
endfunction()

# Adds client/ to the build, one way or the other.
function(tendril_add_client)
  if(TENDRIL_PORTABLE)
    tendril_add_portable_build()
    return()
  endif()
  if(NOT TENDRIL_SANITIZE AND NOT TENDRIL_PORTABLE_ONLY)
    message(WARNING
      "\nThe client libraries and `tendril` are built against THIS machine's C library, because "
      "there is none under ${TENDRIL_SYSROOT} (or no ${TENDRIL_PORTABLE_COMPILER}). They will not "
      "run on older systems, and the test of that floor fails unless TENDRIL_ALLOW_NEW_GLIBC=1 is "
      "set. Run scripts/setup, then configure afresh.\n")
  endif()
  add_subdirectory(${CMAKE_SOURCE_DIR}/client ${CMAKE_BINARY_DIR}/client)
  tendril_finish_client_targets()
endfunction()
