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
  // It runs no function of the program's. So it has a thread that none of these holds up.
  bool is_own = false;
};

class Session;
struct Event;

// The token to send to the server. 0: the system has no thread to give.
uint64_t await_callback(Session* session, const Callback& callback);
// When the event has this status or an error. False: as above (event.cc).
bool await_event(Event* event, int32_t status, const Callback& callback);
// It has happened. Does not wait.
void callback_due(uint64_t token, int32_t status);
bool callbacks_awaited();
// None will come from this server any more: all that are awaited run, with this status.
void callbacks_lost(Session* session, int32_t status);

}  // namespace tendril::client::opencl
