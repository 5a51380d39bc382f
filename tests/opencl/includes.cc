// SPDX-License-Identifier: Apache-2.0
// Sources that include files: from folders that options name, from the folder that the program
// works in, in turn, and beside headers that are programs.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/opencl/program.h"

namespace {

void write(const std::string& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "w");
  EXPECT(file != nullptr);
  if (file == nullptr) return;
  EXPECT(fputs(text.c_str(), file) >= 0);
  EXPECT(fclose(file) == 0);
}

cl_program program_of(const char* text) {
  cl_int error = CL_SUCCESS;
  cl_program program = cl.clCreateProgramWithSource(g_context, 1, &text, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  return program;
}

void expect_value(cl_program program, int value) {
  cl_command_queue queue = queue_with(0);
  std::vector<int> values(4, 0);
  cl_mem buffer = buffer_of(values);
  cl_kernel kernel = kernel_of(program, "say");
  const size_t one = 1;
  EXPECT(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
  EXPECT(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &one, nullptr, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(int), values.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(values[0] == value);
  EXPECT(cl.clReleaseKernel(kernel) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

cl_int build(cl_program program, const std::string& options) {
  return cl.clBuildProgram(program, 1, &g_device, options.c_str(), nullptr, nullptr);
}

}  // namespace

void includes() {
  char top[] = "/tmp/tendril-opencl-XXXXXX";
  EXPECT(mkdtemp(top) != nullptr);
  const std::string folder = top;
  for (const char* name : {"/one", "/one/deep", "/two"})
    EXPECT(mkdir((folder + name).c_str(), 0700) == 0);
  write(folder + "/one/value.h", "#pragma once\n#include \"deep/inner.h\"\n");
  write(folder + "/one/deep/inner.h", "#include \"../value.h\"\n#include \"end.h\"\n");
  write(folder + "/one/deep/end.h", "#define VALUE 1\n");
  // Longer than what goes along in a call.
  write(folder + "/two/value.h", "//" + std::string(100'000, 'x') + "\n#define VALUE 2\n");
  write(folder + "/two/empty.h", "");
  const char* text = "#include <value.h>\nkernel void say(global int* a) { a[0] = VALUE; }\n";
  cl_program program = program_of(text);
  EXPECT(build(program, "") == CL_BUILD_PROGRAM_FAILURE);
  EXPECT(build(program, "-D OTHER=1 -I " + folder + "/one -w") == CL_SUCCESS);
  expect_value(program, 1);
  EXPECT(build(program, "-I" + folder + "/two -I " + folder + "/one") == CL_SUCCESS);
  expect_value(program, 2);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // A path from the root, in a source and in what it includes.
  write(folder + "/two/more.h", "#include \"" + folder + "/one/deep/end.h\"\n");
  const std::string whole =
      "#include \"" + folder + "/two/more.h\"\nkernel void say(global int* a) { a[0] = VALUE; }\n";
  program = program_of(whole.c_str());
  EXPECT(build(program, "") == CL_SUCCESS);
  expect_value(program, 1);
  char source[512] = {};
  EXPECT(cl.clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof source, source, nullptr) ==
         CL_SUCCESS);
  EXPECT(source == whole);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  // Where the program works. What was changed is seen.
  const std::string before = std::filesystem::current_path();
  EXPECT(chdir((folder + "/two").c_str()) == 0);
  program = program_of(
      "#include \"empty.h\"\n#  include \"./value.h\" // twice\n"
      "kernel void say(global int* a) { a[0] = VALUE; }\n");
  EXPECT(build(program, "") == CL_SUCCESS);
  expect_value(program, 2);
  write(folder + "/two/value.h", "#define VALUE 3\n");
  EXPECT(build(program, "-I ../one") == CL_SUCCESS);
  expect_value(program, 3);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(chdir(before.c_str()) == 0);
  // A header that is a program includes a file.
  program = program_of("#include \"mine.h\"\nkernel void say(global int* a) { a[0] = MINE; }\n");
  cl_program header = program_of("#include \"value.h\"\n#define MINE (VALUE + 10)\n");
  const char* name = "mine.h";
  cl_int error = CL_SUCCESS;
  EXPECT(cl.clCompileProgram(program, 1, &g_device, ("-I " + folder + "/one").c_str(), 1, &header,
                             &name, nullptr, nullptr) == CL_SUCCESS);
  cl_program linked =
      cl.clLinkProgram(g_context, 1, &g_device, "", 1, &program, nullptr, nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  expect_value(linked, 11);
  for (cl_program each : {program, header, linked}) EXPECT(cl.clReleaseProgram(each) == CL_SUCCESS);
  std::filesystem::remove_all(folder);
}
