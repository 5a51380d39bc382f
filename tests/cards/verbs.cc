// SPDX-License-Identifier: Apache-2.0
// libibverbs.so.1 as the product sees it, over the card of this process (card.h).
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/cards/card.h"

using namespace tendril::cards;

namespace {

Card* card() { return Card::of_this_process(); }

int poll_cq(abi::Cq* queue, int most, abi::Wc* into) {
  return card()->poll(static_cast<Queue*>(queue), most, into);
}
int request_notify(abi::Cq* queue, int) {
  card()->arm(static_cast<Queue*>(queue));
  return 0;
}
int post_send(abi::Qp* pair, abi::SendWr* work, abi::SendWr** bad) {
  for (; work != nullptr; work = work->next) {
    const int failure = card()->post(static_cast<Pair*>(pair), *work);
    if (failure != 0) return *bad = work, failure;
  }
  return 0;
}
int post_receive(abi::Qp* pair, abi::RecvWr* work, abi::RecvWr** bad) {
  for (; work != nullptr; work = work->next) {
    const int failure = card()->post_receive(static_cast<Pair*>(pair), *work);
    if (failure != 0) return *bad = work, failure;
  }
  return 0;
}

// fe80::, then 10.9.NETWORK.1; each for RoCE v1 and v2.
constexpr int kGids = 4;
void fill_gid(int index, abi::Gid* gid) {
  *gid = {};
  if (!settings().has_address) return;
  if (index < 2) {
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    gid->raw[15] = 1;
    return;
  }
  gid->raw[10] = gid->raw[11] = 0xff;
  const uint8_t address[4] = {10, 9, uint8_t(settings().network), 1};
  memcpy(gid->raw + 12, address, sizeof address);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

abi::Device** ibv_get_device_list(int* count) {
  const bool has_one =
      settings().has_card && !settings().file.empty() && card() != nullptr && !card()->is_away();
  auto** const list = new abi::Device* [2] {};
  if (has_one) {
    list[0] = new abi::Device{};
    list[0]->node_type = 1;
    memcpy(list[0]->name, "double0", sizeof "double0");
  }
  if (count != nullptr) *count = has_one ? 1 : 0;
  return list;
}

void ibv_free_device_list(abi::Device** list) {
  delete list[0];
  delete[] list;
}

abi::Context* ibv_open_device(abi::Device* device) {
  if (card() == nullptr) return nullptr;
  Opened* const opened = card()->open();
  opened->device_of_it = *device;
  opened->device = &opened->device_of_it;
  opened->cmd_fd = -1;
  opened->ops.poll_cq = poll_cq;
  opened->ops.req_notify_cq = request_notify;
  opened->ops.post_send = post_send;
  opened->ops.post_recv = post_receive;
  return opened;
}

int ibv_close_device(abi::Context* context) {
  card()->close(static_cast<Opened*>(context));
  return 0;
}

int ibv_query_device(abi::Context*, abi::DeviceAttr* attr) {
  *attr = {};
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
  attr->phys_port_cnt = 1;
  return 0;
}

int ibv_query_port(abi::Context*, uint8_t, abi::PortAttr* attr) {
  *attr = {};
  attr->state = card()->port_is_up() ? abi::kPortActive : abi::kPortDown;
  attr->max_mtu = attr->active_mtu = 5;
  attr->gid_tbl_len = kGids;
  attr->active_width = 2;   // four lanes
  attr->active_speed = 32;  // of 25 Gb/s
  attr->link_layer = settings().is_infiniband ? 1 : abi::kLinkEthernet;
  attr->lid = settings().is_infiniband ? 7 : 0;
  return 0;
}

int ibv_query_gid(abi::Context*, uint8_t, int index, abi::Gid* gid) {
  if (index < 0 || index >= kGids) return EINVAL;
  fill_gid(index, gid);
  return 0;
}

int _ibv_query_gid_ex(abi::Context*, uint32_t port, uint32_t index, abi::GidEntry* entry, uint32_t,
                      size_t) {
  if (index >= uint32_t(kGids)) return EINVAL;
  *entry = {};
  fill_gid(int(index), &entry->gid);
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = index % 2 == 0 ? abi::kGidTypeRoceV1 : abi::kGidTypeRoceV2;
  return 0;
}

int ibv_is_fork_initialized() { return abi::kForkUnneeded; }

abi::Pd* ibv_alloc_pd(abi::Context* context) { return new abi::Pd{context, 0}; }
int ibv_dealloc_pd(abi::Pd* pd) {
  delete pd;
  return 0;
}

abi::Mr* ibv_reg_mr(abi::Pd* pd, void* at, size_t bytes, int rights) {
  return card()->add(pd, at, bytes, rights);
}
abi::Mr* ibv_reg_dmabuf_mr(abi::Pd* pd, uint64_t offset, size_t bytes, uint64_t address, int file,
                           int rights) {
  return card()->add_device(pd, offset, bytes, address, file, rights);
}
int ibv_dereg_mr(abi::Mr* memory) {
  card()->remove(memory);
  return 0;
}

abi::CompChannel* ibv_create_comp_channel(abi::Context* context) {
  auto* const channel = new Channel;
  channel->context = context;
  channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return channel;
}
int ibv_destroy_comp_channel(abi::CompChannel* channel) {
  close(channel->fd);
  delete static_cast<Channel*>(channel);
  return 0;
}

abi::Cq* ibv_create_cq(abi::Context* context, int entries, void* ours, abi::CompChannel* channel,
                       int) {
  auto* const queue = new Queue;
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = ours;
  queue->cqe = entries;
  return queue;
}
int ibv_destroy_cq(abi::Cq* queue) {
  delete static_cast<Queue*>(queue);
  return 0;
}
int ibv_get_cq_event(abi::CompChannel* channel, abi::Cq** queue, void** ours) {
  if (!card()->take_event(static_cast<Channel*>(channel), queue)) return -1;
  *ours = (*queue)->cq_context;
  return 0;
}
void ibv_ack_cq_events(abi::Cq*, unsigned) {}

abi::Qp* ibv_create_qp(abi::Pd* pd, abi::QpInitAttr* wanted) {
  return card()->make_pair(pd, *wanted);
}
int ibv_modify_qp(abi::Qp* pair, abi::QpAttr* attr, int mask) {
  return card()->modify(static_cast<Pair*>(pair), *attr, mask);
}
int ibv_destroy_qp(abi::Qp* pair) {
  card()->destroy(static_cast<Pair*>(pair));
  return 0;
}

int ibv_get_async_event(abi::Context* context, abi::AsyncEvent* event) {
  *event = {};
  event->element.port_num = 1;
  return card()->take_event(static_cast<Opened*>(context), &event->event_type) ? 0 : -1;
}
void ibv_ack_async_event(abi::AsyncEvent*) {}

}  // extern "C"
#pragma GCC visibility pop
