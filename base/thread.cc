// SPDX-License-Identifier: Apache-2.0
// See thread.h.
#include "base/thread.h"

#include <signal.h>

#include <cstring>

namespace tendril::base {

void* Thread::enter(void* self) {
  Thread* thread = static_cast<Thread*>(self);
  pthread_setname_np(pthread_self(), thread->name_);
  thread->main_(thread->argument_);
  return nullptr;
}

bool Thread::start(const char* name, Main main, void* argument) {
  std::strncpy(name_, name, sizeof name_ - 1);
  main_ = main;
  argument_ = argument;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  running_ = pthread_create(&thread_, nullptr, &Thread::enter, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return running_;
}

void Thread::join() {
  if (!running_) return;
  running_ = false;
  pthread_join(thread_, nullptr);
}

}  // namespace tendril::base
