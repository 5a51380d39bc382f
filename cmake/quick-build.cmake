# SPDX-License-Identifier: Apache-2.0
# scripts/test sets TENDRIL_QUICK_BUILD: the same programs and the same tests, in less compile time.
# Product code is compiled as in any other build of the preset, except that debug information has
# only lines (-g1). Test code is not optimised, and the headers that nearly all of it includes are
# precompiled. Off by default, because developers want a debugger to see variables, and a compiler
# cache.
include_guard(GLOBAL)

option(TENDRIL_QUICK_BUILD "As scripts/test builds: less debug information, test code unoptimised"
  OFF)

# Before any target. A portable client inherits the flags.
macro(tendril_quick_flags)
  if(TENDRIL_QUICK_BUILD)
    string(REGEX REPLACE "(^| )-g( |$)" "\\1-g1\\2" CMAKE_CXX_FLAGS_RELWITHDEBINFO
      "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  endif()
endmacro()

# Precompiles headers that most files of a large target include anyway. g++ only, because clang
# builds find missing includes.
function(tendril_quick_headers target)
  if(TENDRIL_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

function(tendril_targets_below folder out)
  get_property(found DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    tendril_targets_below(${inner} more)
    list(APPEND found ${more})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Call it after all targets. It applies to every program that uses GoogleTest, except those whose
# property TENDRIL_OPTIMISED is on. They compute for long, and an unoptimised file slows the others
# down, too: the linker takes its copies of what they all inline.
function(tendril_quick_tests)
  if(NOT TENDRIL_QUICK_BUILD)
    return()
  endif()
  tendril_targets_below(${CMAKE_SOURCE_DIR} targets)
  foreach(target IN LISTS targets)
    get_target_property(kind ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(optimised ${target} TENDRIL_OPTIMISED)
    if(NOT kind STREQUAL "EXECUTABLE" OR NOT "${libraries}" MATCHES "GTest::" OR optimised)
      continue()
    endif()
    target_compile_options(${target} PRIVATE -O0)
    # clang accepts a precompiled header only with exactly the same definitions
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      tendril_precompile_for_tests(${target})
    endif()
  endforeach()
endfunction()

function(tendril_precompile_for_tests target)
  if(NOT TARGET tendril_test_headers)
    file(WRITE ${CMAKE_BINARY_DIR}/test_headers.cc "int main() { return 0; }\n")
    # a program, as those that use it: -fPIE, not -fPIC
    add_executable(tendril_test_headers ${CMAKE_BINARY_DIR}/test_headers.cc)
    target_compile_options(tendril_test_headers PRIVATE -O0)
    target_link_libraries(tendril_test_headers PRIVATE GTest::gtest Threads::Threads)
    target_precompile_headers(tendril_test_headers PRIVATE <gtest/gtest.h> <algorithm> <atomic>
      <chrono> <condition_variable>
      <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set> <string> <thread>
      <unordered_map> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM tendril_test_headers)
endfunction()

# Files that share a name with another file of their library, in namespaces without a name.
set(TENDRIL_QUICK_ALONE
  view/json.cc pool/replay/queue_replay.cc pool/simulation/rule_checks.cc
  transport/sealed/wide_gcm.cc transport/sealed/records.cc
  session/lane/service.cc session/lane/service_bulk.cc scheduler/store_thread.cc
  pool/filter/pattern.cc identity/providers.cc daemon/sessions_attach.cc daemon/probe.cc
  daemon/packed_servers.cc cli/servers.cc cli/queueing.cc client/core/lessor.cc
  softgpu/ptx/handlers/handlers_image.cc softgpu/ptx/handlers/handlers_matrix.cc)

# Compiles the libraries of these rooms several files at a time, because most of a file's time goes
# into headers. Call it after all targets. Never for the client's libraries as they are released,
# because tests/cost counts their instructions.
function(tendril_quick_libraries)
  if(NOT TENDRIL_QUICK_BUILD)
    return()
  endif()
  foreach(room IN LISTS ARGN)
    if(NOT IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${room})
      continue()
    endif()
    tendril_targets_below(${CMAKE_SOURCE_DIR}/${room} targets)
    foreach(target IN LISTS targets)
      get_target_property(kind ${target} TYPE)
      if(kind MATCHES "^(STATIC|OBJECT)_LIBRARY$")
        tendril_quick_library(${target})
      endif()
    endforeach()
  endforeach()
endfunction()

# The same for rooms whose libraries only tests use, because the portable build makes the program
# that users run. They are optimised less.
function(tendril_quick_tested_libraries)
  tendril_quick_libraries(${ARGN})
  if(NOT TENDRIL_QUICK_BUILD OR NOT TENDRIL_PORTABLE)
    return()
  endif()
  foreach(room IN LISTS ARGN)
    tendril_targets_below(${CMAKE_SOURCE_DIR}/${room} targets)
    foreach(target IN LISTS targets)
      get_target_property(kind ${target} TYPE)
      if(kind STREQUAL "STATIC_LIBRARY")
        target_compile_options(${target} PRIVATE -O1)
      endif()
    endforeach()
  endforeach()
endfunction()

function(tendril_quick_library target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # it takes a file that is included for a header
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} OUTPUT_VARIABLE path)
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${path})
    if(path IN_LIST TENDRIL_QUICK_ALONE)
      set_source_files_properties(${CMAKE_SOURCE_DIR}/${path} TARGET_DIRECTORY ${target}
        PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
