// SPDX-License-Identifier: Apache-2.0
// See move.h.
#include "client/opencl/spread/move.h"

#include <algorithm>
#include <new>

#include "api/opencl_bodies.gen.h"
#include "client/opencl/callbacks.h"
#include "client/opencl/memory.h"

namespace tendril::client::opencl::spread {

// One piece on its way. It holds the object, and so the context.
struct Move {
  Memory* root;
  uint32_t from, to;
  uint64_t begin, bytes;
  cl_mem target;
  cl_command_queue reader, incoming;
  std::unique_ptr<uint8_t[]> data;
  std::shared_ptr<Arrival> arrival, before;
};

namespace {

constexpr cl_mem_flags kAccess = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

// Host access is checked here, and members must allow moves.
cl_mem_flags member_flags(const Memory& memory) {
  const cl_mem_flags kept = memory.parent != nullptr ? kAccess : kAccess | CL_MEM_ALLOC_HOST_PTR;
  return memory.flags & kept;
}

cl_int make_part(Memory* memory, cl_mem parent, uint32_t member) {
  cl_int result = CL_SUCCESS;
  cl_mem& made = memory->at[member];
  const cl_context context = context_of(memory)->members[member].context;
  const cl_mem_flags flags = member_flags(*memory);
  if (memory->is_image()) {
    cl_image_desc description = memory->picture.description;
    description.mem_object = parent;
    if (parent == nullptr) description.image_row_pitch = description.image_slice_pitch = 0;
    made = opencl::clCreateImage(context, flags, &memory->picture.format, &description, nullptr,
                                 &result);
  } else {
    const cl_buffer_region region = {memory->origin, memory->bytes};
    made = opencl::clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &result);
  }
  return result;
}

// What the program gave goes along, if it is the newest of any piece.
cl_int make_buffer(Memory* memory, uint32_t member) {
  const bool gives = std::any_of(memory->pieces.begin(), memory->pieces.end(),
                                 [](const Piece& each) { return each.is_first; });
  if (!gives) memory->kept.reset();
  cl_int result = CL_SUCCESS;
  memory->at[member] = opencl::clCreateBuffer(
      context_of(memory)->members[member].context,
      member_flags(*memory) | (gives ? CL_MEM_COPY_HOST_PTR : 0), memory->bytes,
      gives ? const_cast<uint8_t*>(memory->first) : nullptr, &result);
  for (Piece& piece : memory->pieces)
    if (result == CL_SUCCESS && piece.is_first) piece.valid |= bit(member);
  return result;
}

cl_command_queue new_queue(Member* member) {
  cl_int result = CL_SUCCESS;
  return opencl::clCreateCommandQueue(member->context, member->devices.front(), 0, &result);
}

// A queue without other work. A read that waits long must not hold up another one.
cl_command_queue take_reader(Context* context, uint32_t member) {
  {
    const base::Locked held(context->idle_lock);
    for (auto each = context->idle.begin(); each != context->idle.end(); ++each) {
      if (each->first != member) continue;
      const cl_command_queue found = each->second;
      context->idle.erase(each);
      return found;
    }
  }
  return new_queue(&context->members[member]);
}

void give_reader(Context* context, uint32_t member, cl_command_queue reader) {
  const base::Locked held(context->idle_lock);
  context->idle.emplace_back(member, reader);
}

void write(Move* move);

void end(Move* move, cl_int status) {
  Arrival& arrival = *move->arrival;
  Move* next = nullptr;
  {
    const base::Locked held(arrival.lock);
    arrival.status.store(status < 0 ? status : CL_COMPLETE);
    next = arrival.next;
    arrival.next = nullptr;
  }
  set_as(arrival.gate, status);
  if (next != nullptr) write(next);
  unuse(move->root);
  delete move;
}

void on_written(void* argument, int32_t status) { end(static_cast<Move*>(argument), status); }

void write(Move* move) {
  cl_event event = nullptr;
  const Picture& picture = move->root->picture;
  const size_t origin[3] = {};
  const cl_int result =
      move->root->is_image()
          ? opencl::clEnqueueWriteImage(move->incoming, move->target, CL_FALSE, origin,
                                        picture.extent, 0, 0, move->data.get(), 0, nullptr, &event)
          : opencl::clEnqueueWriteBuffer(move->incoming, move->target, CL_FALSE, move->begin,
                                         move->bytes, move->data.get(), 0, nullptr, &event);
  move->data.reset();
  if (result != CL_SUCCESS) return end(move, result);
  const bool waits = when_over(event, &on_written, move);
  opencl::clReleaseEvent(event);
  if (!waits) end(move, CL_OUT_OF_HOST_MEMORY);
}

void on_read(void* argument, int32_t status) {
  auto* move = static_cast<Move*>(argument);
  give_reader(context_of(move->root), move->from, move->reader);
  if (status < 0) return end(move, status);
  if (move->before != nullptr) {
    const base::Locked held(move->before->lock);
    if (move->before->status.load() > CL_COMPLETE) {
      move->before->next = move;
      return;
    }
  }
  write(move);
}

cl_int read(Move* move, const std::vector<cl_event>& waits) {
  const auto count = static_cast<cl_uint>(waits.size());
  const cl_event* const list = count != 0 ? waits.data() : nullptr;
  const cl_mem source = move->root->at[move->from];
  const size_t origin[3] = {};
  cl_event event = nullptr;
  const cl_int result =
      move->root->is_image()
          ? opencl::clEnqueueReadImage(move->reader, source, CL_FALSE, origin,
                                       move->root->picture.extent, 0, 0, move->data.get(), count,
                                       list, &event)
          : opencl::clEnqueueReadBuffer(move->reader, source, CL_FALSE, move->begin, move->bytes,
                                        move->data.get(), count, list, &event);
  if (result != CL_SUCCESS) return result;
  const bool waited = when_over(event, &on_read, move);
  opencl::clReleaseEvent(event);
  return waited ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

// The owner has the writers' events. Another member has it once it has arrived there.
uint32_t source_of(const Piece& piece) {
  if ((piece.valid & bit(piece.owner)) != 0) return piece.owner;
  return static_cast<uint32_t>(__builtin_ctzll(piece.valid));
}

uint64_t bytes_of(const Memory& root, const Piece& piece) {
  const uint64_t* const extent = root.picture.extent;
  return root.is_image() ? extent[0] * extent[1] * extent[2] * root.picture.element_bytes
                         : piece.end - piece.begin;
}

cl_int begin_move(Memory* root, Piece* piece, uint32_t to) {
  Context* const context = context_of(root);
  Member& member = context->members[to];
  if (member.incoming == nullptr) member.incoming = new_queue(&member);
  auto move = std::make_unique<Move>();
  move->root = root;
  move->from = source_of(*piece);
  move->to = to;
  move->begin = piece->begin;
  move->bytes = bytes_of(*root, *piece);
  move->target = root->at[to];
  move->incoming = member.incoming;
  move->data.reset(new (std::nothrow) uint8_t[move->bytes]);
  if (move->data == nullptr || move->incoming == nullptr) return CL_OUT_OF_HOST_MEMORY;
  cl_int result = CL_SUCCESS;
  const cl_event gate = opencl::clCreateUserEvent(member.context, &result);
  if (result != CL_SUCCESS) return result;
  move->arrival = std::make_shared<Arrival>(gate);
  move->before = piece->arrivals[to];
  move->reader = take_reader(context, move->from);
  if (move->reader == nullptr) return CL_OUT_OF_HOST_MEMORY;
  std::vector<cl_event> waits;
  if (const auto& arrival = piece->arrivals[move->from]; arrival != nullptr)
    waits.push_back(arrival->gate);
  for (const Writer& writer : piece->writers) {
    if (piece->owner != move->from) break;
    opencl::clFlush(writer.queue);
    waits.push_back(writer.event);
  }
  use(root);
  const std::shared_ptr<Arrival> arrival = move->arrival;
  result = read(move.get(), waits);
  if (result != CL_SUCCESS) {
    give_reader(context, move->from, move->reader);
    unuse(root);
    return result;
  }
  static_cast<void>(move.release());
  piece->arrivals[to] = arrival;
  piece->valid |= bit(to);
  return CL_SUCCESS;
}

// What has arrived needs no waiting. What was lost on the way is asked for again, if another member
// has it.
void look_at_arrival(Piece* piece, uint32_t member, bool is_overwritten) {
  std::shared_ptr<Arrival>& arrival = piece->arrivals[member];
  if (arrival == nullptr || arrival->status.load() > CL_COMPLETE) return;
  if (arrival->status.load() < 0 && !is_overwritten) {
    if ((piece->valid & ~bit(member)) == 0) return;
    piece->valid &= ~bit(member);
  }
  arrival.reset();
}

// The part of the root that a use is about. All of it for an image.
void range_of(const Use& use, uint64_t* begin, uint64_t* end) {
  const Memory* memory = use.memory;
  *begin = std::min(use.offset, memory->bytes);
  *end = *begin + std::min(use.bytes, memory->bytes - *begin);
  for (; memory != nullptr; memory = static_cast<const Memory*>(memory->parent)) {
    *begin += memory->origin;
    *end += memory->origin;
    if (!memory->is_image()) continue;
    *begin = 0;
    *end = kWhole;
    return;
  }
}

}  // namespace

Memory* root_of(Memory* memory) {
  while (memory->parent != nullptr) memory = static_cast<Memory*>(memory->parent);
  return memory;
}

cl_int make_at(Memory* memory, uint32_t member) {
  if (memory->at[member] != nullptr) return CL_SUCCESS;
  if (memory->parent == nullptr && !memory->is_image()) return make_buffer(memory, member);
  cl_mem parent = nullptr;
  if (auto* whole = static_cast<Memory*>(memory->parent); whole != nullptr) {
    const cl_int result = make_at(whole, member);
    if (result != CL_SUCCESS) return result;
    parent = whole->at[member];
  }
  return make_part(memory, parent, member);
}

cl_int bring(const Use& use, uint32_t member, Waits* waits) {
  cl_int result = make_at(use.memory, member);
  if (result != CL_SUCCESS) return result;
  Memory* const root = root_of(use.memory);
  uint64_t begin = 0, end = 0;
  range_of(use, &begin, &end);
  for (Piece& piece : root->pieces) {
    if (!piece.meets(begin, end)) continue;
    const bool overwritten = use.access == Access::kOverwrite && piece.is_in(begin, end);
    look_at_arrival(&piece, member, overwritten);
    if (!overwritten && (piece.valid & bit(member)) == 0) {
      result = begin_move(root, &piece, member);
      if (result != CL_SUCCESS) return result;
    }
    if (piece.arrivals[member] == nullptr) continue;
    waits->events.push_back(piece.arrivals[member]->gate);
    waits->arrivals.push_back(piece.arrivals[member]);
  }
  return CL_SUCCESS;
}

void written(const Use& use, const Queue& queue, cl_event event) {
  uint64_t begin = 0, end = 0;
  range_of(use, &begin, &end);
  for (Piece& piece : root_of(use.memory)->pieces)
    if (piece.meets(begin, end))
      add_writer(&piece, queue.member, queue.real, queue.in_order, event);
}

namespace {

struct Watch {
  opencl::Event* event;
  void (*then)(void*, int32_t);
  void* argument;
};

void over(void* argument, int32_t status) {
  const std::unique_ptr<Watch> watch(static_cast<Watch*>(argument));
  watch->then(watch->argument, status);
  unuse(watch->event);
}

}  // namespace

bool when_over(cl_event event, void (*then)(void* argument, int32_t status), void* argument) {
  opencl::Event* const found = opencl::find(event);
  if (found == nullptr) return false;
  if (found->queue != nullptr) (void)opencl::clFlush(handle_of<cl_command_queue>(found->queue));
  auto watch = std::make_unique<Watch>(Watch{found, then, argument});
  opencl::use(found);
  if (await_event(found, CL_COMPLETE, {&over, watch.get(), true})) {
    static_cast<void>(watch.release());
    return true;
  }
  unuse(found);
  return false;
}

void set_as(cl_event user_event, cl_int status) {
  (void)opencl::clSetUserEventStatus(user_event, status < 0 ? status : CL_COMPLETE);
}

}  // namespace tendril::client::opencl::spread
