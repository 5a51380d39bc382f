// SPDX-License-Identifier: Apache-2.0
// What of libibverbs.so.1's binary interface is used, written down so that nothing links it and no
// header of it is needed. ibverbs_test.cc compares each layout and number with Debian's header.
// Interface version IBVERBS_1.1 and later additions; those may be missing. Names follow the
// vendors', so that their manuals apply.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace tendril::transport::rdma::abi {

inline constexpr const char* kLibrary = "libibverbs.so.1";

union Gid {
  uint8_t raw[16];
  uint64_t words[2];
};

// IBVERBS_1.11
struct GidEntry {
  Gid gid;
  uint32_t gid_index;
  uint32_t port_num;
  uint32_t gid_type;
  uint32_t ndev_ifindex;
};
inline constexpr uint32_t kGidTypeIb = 0, kGidTypeRoceV1 = 1, kGidTypeRoceV2 = 2;

struct Device {
  void* ops[2];
  int32_t node_type;
  int32_t transport_type;
  char name[64];
  char dev_name[64];
  char dev_path[256];
  char ibdev_path[256];
};
inline constexpr int32_t kTransportIb = 0;  // InfiniBand and RoCE

struct PortAttr {
  uint32_t state;
  uint32_t max_mtu;
  uint32_t active_mtu;
  int32_t gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t bad_pkey_cntr;
  uint32_t qkey_viol_cntr;
  uint16_t pkey_tbl_len;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lmc;
  uint8_t max_vl_num;
  uint8_t sm_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;
};
inline constexpr uint32_t kPortDown = 1, kPortActive = 4;
inline constexpr uint8_t kLinkEthernet = 2;

struct DeviceAttr {
  char fw_ver[64];
  uint64_t node_guid;
  uint64_t sys_image_guid;
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hw_ver;
  int32_t max_qp;
  int32_t max_qp_wr;
  uint32_t device_cap_flags;
  int32_t max_sge;
  int32_t max_sge_rd;
  int32_t max_cq;
  int32_t max_cqe;
  int32_t max_mr;
  int32_t max_pd;
  int32_t max_qp_rd_atom;
  int32_t max_ee_rd_atom;
  int32_t max_res_rd_atom;
  int32_t max_qp_init_rd_atom;
  int32_t rest[16];
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay;
  uint8_t phys_port_cnt;
};

struct Context;
struct Pd {
  Context* context;
  uint32_t handle;
};
struct Mr {
  Context* context;
  Pd* pd;
  void* addr;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};
struct CompChannel {
  Context* context;
  int fd;
  int refcnt;
};
struct Cq {
  Context* context;
  CompChannel* channel;
  void* cq_context;
  uint32_t handle;
  int cqe;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t comp_events_completed;
  uint32_t async_events_completed;
};
struct Qp {
  Context* context;
  void* qp_context;
  Pd* pd;
  Cq* send_cq;
  Cq* recv_cq;
  void* srq;
  uint32_t handle;
  uint32_t qp_num;
  uint32_t state;
  uint32_t qp_type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
};

struct Wc {
  uint64_t wr_id;
  uint32_t status;
  uint32_t opcode;
  uint32_t vendor_err;
  uint32_t byte_len;
  uint32_t imm_data;  // in network byte order
  uint32_t qp_num;
  uint32_t src_qp;
  uint32_t wc_flags;
  uint16_t pkey_index;
  uint16_t slid;
  uint8_t sl;
  uint8_t dlid_path_bits;
};
inline constexpr uint32_t kWcSuccess = 0, kWcLocalLength = 1, kWcLocalOperation = 2,
                          kWcLocalProtection = 4, kWcFlushed = 5, kWcLocalAccess = 8,
                          kWcRemoteInvalid = 9, kWcRemoteAccess = 10, kWcRemoteOperation = 11,
                          kWcRetryExceeded = 12, kWcReceiverNotReady = 13;
inline constexpr uint32_t kWcOpcodeReceive = 1u << 7;  // this bit: something was received
inline constexpr uint32_t kWcWithImmediate = 1u << 1;  // of wc_flags

struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};
struct SendWr {
  uint64_t wr_id;
  SendWr* next;
  Sge* sg_list;
  int num_sge;
  uint32_t opcode;
  uint32_t send_flags;
  uint32_t imm_data;  // in network byte order
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    uint64_t other[4];
  } wr;
  uint64_t qp_type_and_more[7];
};
inline constexpr uint32_t kWriteWithImmediate = 1, kSendWithImmediate = 3, kRdmaRead = 4;
inline constexpr uint32_t kSignaled = 1u << 1, kInline = 1u << 3;
struct RecvWr {
  uint64_t wr_id;
  RecvWr* next;
  Sge* sg_list;
  int num_sge;
};

inline constexpr int kLocalWrite = 1, kRemoteWrite = 1 << 1, kRemoteRead = 1 << 2;

struct QpCap {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};
struct QpInitAttr {
  void* qp_context;
  Cq* send_cq;
  Cq* recv_cq;
  void* srq;
  QpCap cap;
  uint32_t qp_type;
  int sq_sig_all;
};
inline constexpr uint32_t kQpReliable = 2;

struct GlobalRoute {
  Gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};
struct AhAttr {
  GlobalRoute grh;
  uint16_t dlid;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_num;
};
struct QpAttr {
  uint32_t qp_state;
  uint32_t cur_qp_state;
  uint32_t path_mtu;
  uint32_t path_mig_state;
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qp_num;
  uint32_t qp_access_flags;
  QpCap cap;
  AhAttr ah_attr;
  AhAttr alt_ah_attr;
  uint16_t pkey_index;
  uint16_t alt_pkey_index;
  uint8_t en_sqd_async_notify;
  uint8_t sq_draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port_num;
  uint8_t timeout;
  uint8_t retry_cnt;
  uint8_t rnr_retry;
  uint8_t alt_port_num;
  uint8_t alt_timeout;
  uint32_t rate_limit;
};
inline constexpr uint32_t kStateInit = 1, kStateReceive = 2, kStateSend = 3, kStateError = 6;
inline constexpr int kMaskState = 1 << 0, kMaskAccess = 1 << 3, kMaskPkey = 1 << 4,
                     kMaskPort = 1 << 5, kMaskPath = 1 << 7, kMaskMtu = 1 << 8,
                     kMaskTimeout = 1 << 9, kMaskRetries = 1 << 10, kMaskNotReadyRetries = 1 << 11,
                     kMaskReceivePacket = 1 << 12, kMaskReads = 1 << 13,
                     kMaskNotReadyTimer = 1 << 15, kMaskSendPacket = 1 << 16,
                     kMaskReadsHere = 1 << 17, kMaskPeer = 1 << 20;

struct AsyncEvent {
  union {
    void* object;
    int port_num;
  } element;
  uint32_t event_type;
};
inline constexpr uint32_t kEventCompletions = 0, kEventPairFatal = 1, kEventDeviceFatal = 8,
                          kEventPortActive = 9, kEventPortDown = 10, kEventLidChange = 11,
                          kEventGidChange = 18;

// The first members, whose entries the hot path calls directly.
struct ContextOps {
  void* before_poll[11];
  int (*poll_cq)(Cq* cq, int num_entries, Wc* wc);
  int (*req_notify_cq)(Cq* cq, int solicited_only);
  void* before_send[12];
  int (*post_send)(Qp* qp, SendWr* wr, SendWr** bad_wr);
  int (*post_recv)(Qp* qp, RecvWr* wr, RecvWr** bad_wr);
  void* after[5];
};
struct Context {
  Device* device;
  ContextOps ops;
  int cmd_fd;
  int async_fd;
};

inline constexpr int kForkUnneeded = 2;

// (name, oldest version that has it, result, parameters). All of IBVERBS_1.0 and 1.1 must be there.
#define TENDRIL_IBVERBS_FUNCTIONS(X)                                                           \
  X(ibv_get_device_list, "IBVERBS_1.1", Device**, (int* count))                                \
  X(ibv_free_device_list, "IBVERBS_1.1", void, (Device * *list))                               \
  X(ibv_open_device, "IBVERBS_1.1", Context*, (Device * device))                               \
  X(ibv_close_device, "IBVERBS_1.1", int, (Context * context))                                 \
  X(ibv_query_device, "IBVERBS_1.1", int, (Context * context, DeviceAttr * attr))              \
  X(ibv_query_port, "IBVERBS_1.1", int, (Context * context, uint8_t port, PortAttr * attr))    \
  X(ibv_query_gid, "IBVERBS_1.1", int, (Context * context, uint8_t port, int index, Gid* gid)) \
  X(ibv_alloc_pd, "IBVERBS_1.1", Pd*, (Context * context))                                     \
  X(ibv_dealloc_pd, "IBVERBS_1.1", int, (Pd * pd))                                             \
  X(ibv_reg_mr, "IBVERBS_1.1", Mr*, (Pd * pd, void* addr, size_t length, int access))          \
  X(ibv_dereg_mr, "IBVERBS_1.1", int, (Mr * mr))                                               \
  X(ibv_create_comp_channel, "IBVERBS_1.0", CompChannel*, (Context * context))                 \
  X(ibv_destroy_comp_channel, "IBVERBS_1.0", int, (CompChannel * channel))                     \
  X(ibv_create_cq, "IBVERBS_1.1", Cq*,                                                         \
    (Context * context, int cqe, void* cq_context, CompChannel* channel, int vector))          \
  X(ibv_destroy_cq, "IBVERBS_1.1", int, (Cq * cq))                                             \
  X(ibv_get_cq_event, "IBVERBS_1.1", int, (CompChannel * channel, Cq * *cq, void** context))   \
  X(ibv_ack_cq_events, "IBVERBS_1.1", void, (Cq * cq, unsigned count))                         \
  X(ibv_create_qp, "IBVERBS_1.1", Qp*, (Pd * pd, QpInitAttr * attr))                           \
  X(ibv_modify_qp, "IBVERBS_1.1", int, (Qp * qp, QpAttr * attr, int mask))                     \
  X(ibv_destroy_qp, "IBVERBS_1.1", int, (Qp * qp))                                             \
  X(ibv_get_async_event, "IBVERBS_1.1", int, (Context * context, AsyncEvent * event))          \
  X(ibv_ack_async_event, "IBVERBS_1.1", void, (AsyncEvent * event))

// What newer libraries have besides. Null where it is missing.
#define TENDRIL_IBVERBS_NEWER_FUNCTIONS(X)                                               \
  X(_ibv_query_gid_ex, "IBVERBS_1.11", int,                                              \
    (Context * context, uint32_t port, uint32_t index, GidEntry * entry, uint32_t flags, \
     size_t entry_bytes))                                                                \
  X(ibv_reg_dmabuf_mr, "IBVERBS_1.12", Mr*,                                              \
    (Pd * pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access))        \
  X(ibv_is_fork_initialized, "IBVERBS_1.13", int, ())

}  // namespace tendril::transport::rdma::abi
