// SPDX-License-Identifier: Apache-2.0
// See move.h.
#include "client/opencl/spread/move.h"

#include <algorithm>
#include <new>

#include "api/opencl_bodies.gen.h"
#include "client/opencl/callbacks.h"
#include "client/opencl/memory.h"

namespace tendril::client::opencl::spread {

// A part of a piece on its way. It holds the object, and so the context. While one part is written,
// the next is read.
struct Move {
  Memory* root;
  uint32_t from, to;
  uint64_t begin, bytes;
  cl_mem target;
  cl_command_queue reader, incoming;
  bool is_last;  // then the reader is free again
  std::unique_ptr<uint8_t[]> data;
  std::shared_ptr<Arrival> arrival, before;
  Move* next = nullptr;  // that waits for the same
};

namespace {

constexpr uint64_t kPartBytes = 4u << 20;
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
  if (result != CL_SUCCESS) return result;
  for (Piece& piece : memory->pieces)
    if (piece.is_first) piece.valid |= bit(member);
  const bool everywhere = std::none_of(memory->at.begin(), memory->at.end(),
                                       [](cl_mem each) { return each == nullptr; });
  if (everywhere) memory->kept.reset();
  return CL_SUCCESS;
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

// One part less to wait for.
void end_part(Arrival* arrival, cl_int status) {
  if (status < 0) arrival->error.store(status);
  if (arrival->left.fetch_sub(1) != 1) return;
  status = arrival->error.load();
  Move* next = nullptr;
  {
    const base::Locked held(arrival->lock);
    arrival->status.store(status);
    next = arrival->next;
    arrival->next = nullptr;
  }
  set_as(arrival->gate, status);
  while (next != nullptr) {
    Move* const after = next->next;
    write(next);
    next = after;
  }
}

// What has come counts before a command that waits for it can be over.
void end(Move* move, cl_int status) {
  if (status == CL_COMPLETE) {
    Session* const session = context_of(move->root)->members[move->to].session;
    session->bytes_moved.fetch_add(move->bytes, std::memory_order_relaxed);
    if (move->is_last) session->pieces_moved.fetch_add(1, std::memory_order_relaxed);
  }
  end_part(move->arrival.get(), status);
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
  if (move->is_last) give_reader(context_of(move->root), move->from, move->reader);
  if (status < 0) return end(move, status);
  if (move->before != nullptr) {
    const base::Locked held(move->before->lock);
    if (move->before->status.load() > CL_COMPLETE) {
      move->next = move->before->next;
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
  if (!waited) static_cast<void>(move->data.release());  // the data come all the same
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

// What the read of a piece waits for at the member that has it.
std::vector<cl_event> waits_at(const Piece& piece, uint32_t from) {
  std::vector<cl_event> waits;
  if (const auto& arrival = piece.arrivals[from]; arrival != nullptr)
    waits.push_back(arrival->gate);
  for (const Writer& writer : piece.writers) {
    if (piece.owner != from) break;
    (void)opencl::clFlush(writer.queue);
    waits.push_back(writer.event);
  }
  return waits;
}

// Sends the read of one part. A part that cannot be read makes the arrival an error.
void begin_part(std::unique_ptr<Move> part, const std::vector<cl_event>& waits) {
  use(part->root);
  part->arrival->left.fetch_add(1);
  part->data.reset(new (std::nothrow) uint8_t[part->bytes]);
  const cl_int result =
      part->data != nullptr ? read(part.get(), waits) : cl_int{CL_OUT_OF_HOST_MEMORY};
  Move* const begun = part.release();
  if (result == CL_SUCCESS) return;
  if (begun->is_last) give_reader(context_of(begun->root), begun->from, begun->reader);
  end(begun, result);
}

cl_int begin_move(Memory* root, Piece* piece, uint32_t to) {
  Context* const context = context_of(root);
  Member& member = context->members[to];
  if (member.incoming == nullptr) member.incoming = new_queue(&member);
  if (member.incoming == nullptr) return CL_OUT_OF_HOST_MEMORY;
  const uint32_t from = source_of(*piece);
  const cl_command_queue reader = take_reader(context, from);
  if (reader == nullptr) return CL_OUT_OF_HOST_MEMORY;
  cl_int result = CL_SUCCESS;
  const cl_event gate = opencl::clCreateUserEvent(member.context, &result);
  if (result != CL_SUCCESS) {
    give_reader(context, from, reader);
    return result;
  }
  const auto arrival = std::make_shared<Arrival>(gate);
  std::vector<cl_event> waits = waits_at(*piece, from);
  const uint64_t bytes = bytes_of(*root, *piece);
  const uint64_t step = root->is_image() ? bytes : kPartBytes;
  for (uint64_t at = 0; at < bytes; at += step) {
    auto part = std::make_unique<Move>();
    part->root = root;
    part->from = from;
    part->to = to;
    part->begin = piece->begin + at;
    part->bytes = std::min(step, bytes - at);
    part->target = root->at[to];
    part->reader = reader;
    part->incoming = member.incoming;
    part->is_last = at + step >= bytes;
    part->arrival = arrival;
    part->before = piece->arrivals[to];
    begin_part(std::move(part), waits);
    waits.clear();  // the reader is in order
  }
  piece->arrivals[to] = arrival;
  piece->valid |= bit(to);
  end_part(arrival.get(), CL_COMPLETE);
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
