// SPDX-License-Identifier: Apache-2.0
// A lock that readers share, and its guards. It is for maps that nearly every call reads. Any
// thread.
#pragma once

#include <pthread.h>

namespace tendril::client::core {

class SharedLock {
 public:
  SharedLock() = default;
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  friend class Reading;
  friend class Writing;
  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
};

class Reading {
 public:
  explicit Reading(SharedLock& lock) : lock_(lock.lock_) { pthread_rwlock_rdlock(&lock_); }
  ~Reading() { pthread_rwlock_unlock(&lock_); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  pthread_rwlock_t& lock_;
};

class Writing {
 public:
  explicit Writing(SharedLock& lock) : lock_(lock.lock_) { pthread_rwlock_wrlock(&lock_); }
  ~Writing() { pthread_rwlock_unlock(&lock_); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  pthread_rwlock_t& lock_;
};

}  // namespace tendril::client::core
