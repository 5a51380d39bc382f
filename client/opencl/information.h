// SPDX-License-Identifier: Apache-2.0
// The two ways to answer clGet*Info: with what the client knows, and with the server's bytes. Any
// thread; `ask_server` is a round trip.
#pragma once

#include <string>
#include <vector>

#include "client/opencl/state.h"

namespace tendril::client::opencl {

// Where the program wants an answer.
struct Wanted {
  size_t room;
  void* value;     // null: it wants only the length
  size_t* length;  // null: it does not want the length

  cl_int bytes(const void* data, size_t bytes) const;
  template <typename T>
  cl_int one(const T& answer) const {
    return bytes(&answer, sizeof answer);
  }
  template <typename T>
  cl_int list(const std::vector<T>& answers) const {
    return bytes(answers.data(), answers.size() * sizeof(T));
  }
  cl_int text(const std::string& answer) const { return bytes(answer.c_str(), answer.size() + 1); }
};

// What the record answers, whether its context is on one server or over several. False: it is the
// server's to say. Each lies in the file of its kind, as `ask` does.
bool answer_of_context(const Context& context, cl_context_info parameter, const Wanted& answer,
                       cl_int* result);
bool answer_of_event(const Event& event, cl_event_info parameter, const Wanted& answer,
                     cl_int* result);
bool answer_of_queue(const Queue& queue, cl_command_queue_info parameter, const Wanted& answer,
                     cl_int* result);
bool answer_of_memory(Memory& memory, cl_mem_info parameter, const Wanted& answer, cl_int* result);
bool answer_of_sampler(const Sampler& sampler, cl_sampler_info parameter, const Wanted& answer,
                       cl_int* result);
bool answer_of_program(const Program& program, cl_program_info parameter, const Wanted& answer,
                       cl_int* result);
bool answer_of_kernel(const Kernel& kernel, cl_kernel_info parameter, const Wanted& answer,
                      cl_int* result);

// What it does not answer, the server does: a round trip.
cl_int ask(const Context& context, cl_context_info parameter, const Wanted& wanted);
cl_int ask(const Queue& queue, cl_command_queue_info parameter, const Wanted& wanted);
cl_int ask(const Memory& memory, cl_mem_info parameter, const Wanted& wanted);
cl_int ask(const Program& program, cl_program_info parameter, const Wanted& wanted);
cl_int ask(const Kernel& kernel, cl_kernel_info parameter, const Wanted& wanted);
cl_int ask(const Event& event, cl_event_info parameter, const Wanted& wanted);
cl_int ask(const Sampler& sampler, cl_sampler_info parameter, const Wanted& wanted);

struct Question {
  Session* session;
  wire::opencl::Subject subject;
  uint64_t object = 0;
  uint64_t other = 0;
  const void* input = nullptr;
  size_t input_bytes = 0;
};
cl_int ask_server(const Question& question, uint32_t parameter, const Wanted& answer);
// The answer as bytes, however long.
cl_int ask_server(const Question& question, uint32_t parameter, std::string* answer);

}  // namespace tendril::client::opencl
