// SPDX-License-Identifier: Apache-2.0
// Functions of the program that are called when something has happened at the server. A thread of
// the library calls them, so they may call OpenCL again. Any thread.
#pragma once

#include <cstdint>

namespace tendril::client::opencl {

// `run` is called once with `argument` and the status that the server tells.
struct Callback {
  void (*run)(void* argument, int32_t status) = nullptr;
  void* argument = nullptr;
};

class Session;

// The token to send to the server. 0: the system has no thread to give.
uint64_t await_callback(Session* session, const Callback& callback);
// The server was not told after all.
void forget_callback(uint64_t token);
// It has happened. Does not wait.
void callback_due(uint64_t token, int32_t status);
bool callbacks_awaited();
// None will come any more: all that are awaited run, with this status.
void callbacks_lost(int32_t status);

}  // namespace tendril::client::opencl
