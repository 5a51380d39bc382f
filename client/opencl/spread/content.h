// SPDX-License-Identifier: Apache-2.0
// Where the newest content of a memory object is. An object consists of pieces, which begin and end
// where parts of it do, so commands that use disjoint parts do not meet. Members are the numbers of
// a context's servers. No locks: the context's lock guards it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "api/opencl_abi.gen.h"
#include "base/lock.h"

namespace tendril::client::opencl::spread {

struct Move;

// Content on its way to a member. Whoever uses it there waits for `gate`.
struct Arrival {
  Arrival(cl_event event) : gate(event) {}
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  const cl_event gate;  // a user event at the member; a reference
  std::atomic<cl_int> status{CL_SUBMITTED};
  std::atomic<uint32_t> left{1};  // parts, and one while they begin
  std::atomic<cl_int> error{CL_COMPLETE};
  base::Lock lock;
  Move* next = nullptr;  // guarded by lock: may not write before this one has
};

// A command that wrote the newest content.
struct Writer {
  cl_command_queue queue;
  cl_event event;  // a reference
};

constexpr uint64_t kEverywhere = ~uint64_t{0};
constexpr uint32_t kMembersMax = 64;
constexpr uint64_t bit(uint32_t member) { return uint64_t{1} << member; }

struct Piece {
  uint64_t begin = 0, end = 0;
  uint64_t valid = kEverywhere;  // members that have the newest content; everywhere: there is none
  bool is_first = false;         // what the program gave at the beginning is the newest
  uint32_t owner = 0;            // of the writers
  std::vector<Writer> writers;
  std::vector<std::shared_ptr<Arrival>> arrivals;  // by member

  bool meets(uint64_t from, uint64_t to) const { return begin < to && from < end; }
  bool is_in(uint64_t from, uint64_t to) const { return from <= begin && end <= to; }
};

// A piece begins here from now on, and has what was known of the piece around.
void cut(std::vector<Piece>* pieces, uint64_t at);

// Forgets the writers before. They are of another content.
void forget_writers(Piece* piece);
// `event`, of this member's queue, wrote the piece. It takes a reference of its own.
void add_writer(Piece* piece, uint32_t member, cl_command_queue queue, bool in_order,
                cl_event event);

}  // namespace tendril::client::opencl::spread
