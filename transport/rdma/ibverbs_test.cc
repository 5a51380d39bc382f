// SPDX-License-Identifier: Apache-2.0
// The written-down interface of libibverbs against Debian's header, where that is installed, and
// what is said where there is no device.
#include "transport/rdma/ibverbs.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <type_traits>
#include <vector>

#include "transport/rdma/ibverbs_abi.h"
#include "transport/testing/rdma_channels.h"

#if __has_include(<infiniband/verbs.h>)
#define TENDRIL_HAS_VERBS_HEADER 1
#include <infiniband/verbs.h>
#else
#define TENDRIL_HAS_VERBS_HEADER 0
#endif

namespace tendril::transport::rdma {
namespace {

using base::Status;

#if TENDRIL_HAS_VERBS_HEADER

#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs))
#define SAME(ours, theirs, member)                                         \
  static_assert(offsetof(abi::ours, member) == offsetof(theirs, member) && \
                sizeof(abi::ours::member) == sizeof(theirs::member))

SAME_SIZE(Gid, union ibv_gid);
SAME_SIZE(GidEntry, ibv_gid_entry);
SAME(GidEntry, ibv_gid_entry, gid);
SAME(GidEntry, ibv_gid_entry, gid_index);
SAME(GidEntry, ibv_gid_entry, port_num);
SAME(GidEntry, ibv_gid_entry, gid_type);
SAME(GidEntry, ibv_gid_entry, ndev_ifindex);
static_assert(abi::kGidTypeIb == IBV_GID_TYPE_IB && abi::kGidTypeRoceV1 == IBV_GID_TYPE_ROCE_V1 &&
              abi::kGidTypeRoceV2 == IBV_GID_TYPE_ROCE_V2);

SAME_SIZE(Device, ibv_device);
SAME(Device, ibv_device, node_type);
SAME(Device, ibv_device, transport_type);
SAME(Device, ibv_device, name);
SAME(Device, ibv_device, dev_name);
SAME(Device, ibv_device, dev_path);
SAME(Device, ibv_device, ibdev_path);
static_assert(abi::kTransportIb == IBV_TRANSPORT_IB);

SAME_SIZE(PortAttr, ibv_port_attr);
SAME(PortAttr, ibv_port_attr, state);
SAME(PortAttr, ibv_port_attr, max_mtu);
SAME(PortAttr, ibv_port_attr, active_mtu);
SAME(PortAttr, ibv_port_attr, gid_tbl_len);
SAME(PortAttr, ibv_port_attr, lid);
SAME(PortAttr, ibv_port_attr, active_width);
SAME(PortAttr, ibv_port_attr, active_speed);
SAME(PortAttr, ibv_port_attr, link_layer);
SAME(PortAttr, ibv_port_attr, port_cap_flags2);
static_assert(abi::kPortDown == IBV_PORT_DOWN && abi::kPortActive == IBV_PORT_ACTIVE &&
              abi::kLinkEthernet == IBV_LINK_LAYER_ETHERNET);

SAME_SIZE(DeviceAttr, ibv_device_attr);
SAME(DeviceAttr, ibv_device_attr, max_qp_rd_atom);
SAME(DeviceAttr, ibv_device_attr, max_qp_init_rd_atom);
SAME(DeviceAttr, ibv_device_attr, phys_port_cnt);

SAME_SIZE(Pd, ibv_pd);
static_assert(std::is_same_v<decltype(ibv_reg_dmabuf_mr),
                             ibv_mr*(ibv_pd*, uint64_t, size_t, uint64_t, int, int)>);
SAME_SIZE(Mr, ibv_mr);
SAME(Mr, ibv_mr, lkey);
SAME(Mr, ibv_mr, rkey);
SAME_SIZE(CompChannel, ibv_comp_channel);
SAME(CompChannel, ibv_comp_channel, fd);
SAME_SIZE(Cq, ibv_cq);
SAME(Cq, ibv_cq, context);
SAME_SIZE(Qp, ibv_qp);
SAME(Qp, ibv_qp, context);
SAME(Qp, ibv_qp, qp_num);

SAME_SIZE(Wc, ibv_wc);
SAME(Wc, ibv_wc, wr_id);
SAME(Wc, ibv_wc, status);
SAME(Wc, ibv_wc, opcode);
SAME(Wc, ibv_wc, imm_data);
SAME(Wc, ibv_wc, wc_flags);
static_assert(abi::kWcSuccess == IBV_WC_SUCCESS && abi::kWcLocalLength == IBV_WC_LOC_LEN_ERR &&
              abi::kWcLocalOperation == IBV_WC_LOC_QP_OP_ERR &&
              abi::kWcLocalProtection == IBV_WC_LOC_PROT_ERR &&
              abi::kWcFlushed == IBV_WC_WR_FLUSH_ERR &&
              abi::kWcLocalAccess == IBV_WC_LOC_ACCESS_ERR &&
              abi::kWcRemoteInvalid == IBV_WC_REM_INV_REQ_ERR &&
              abi::kWcRemoteAccess == IBV_WC_REM_ACCESS_ERR &&
              abi::kWcRemoteOperation == IBV_WC_REM_OP_ERR &&
              abi::kWcRetryExceeded == IBV_WC_RETRY_EXC_ERR &&
              abi::kWcReceiverNotReady == IBV_WC_RNR_RETRY_EXC_ERR &&
              abi::kWcOpcodeReceive == IBV_WC_RECV && abi::kWcWithImmediate == IBV_WC_WITH_IMM);

SAME_SIZE(Sge, ibv_sge);
SAME(Sge, ibv_sge, addr);
SAME(Sge, ibv_sge, length);
SAME(Sge, ibv_sge, lkey);
SAME_SIZE(SendWr, ibv_send_wr);
SAME(SendWr, ibv_send_wr, next);
SAME(SendWr, ibv_send_wr, sg_list);
SAME(SendWr, ibv_send_wr, num_sge);
SAME(SendWr, ibv_send_wr, opcode);
SAME(SendWr, ibv_send_wr, send_flags);
SAME(SendWr, ibv_send_wr, imm_data);
SAME(SendWr, ibv_send_wr, wr.rdma.remote_addr);
SAME(SendWr, ibv_send_wr, wr.rdma.rkey);
SAME_SIZE(RecvWr, ibv_recv_wr);
SAME(RecvWr, ibv_recv_wr, sg_list);
SAME(RecvWr, ibv_recv_wr, num_sge);
static_assert(abi::kWriteWithImmediate == IBV_WR_RDMA_WRITE_WITH_IMM &&
              abi::kSendWithImmediate == IBV_WR_SEND_WITH_IMM &&
              abi::kRdmaRead == IBV_WR_RDMA_READ && abi::kSignaled == IBV_SEND_SIGNALED &&
              abi::kInline == IBV_SEND_INLINE);
static_assert(abi::kLocalWrite == IBV_ACCESS_LOCAL_WRITE &&
              abi::kRemoteWrite == IBV_ACCESS_REMOTE_WRITE &&
              abi::kRemoteRead == IBV_ACCESS_REMOTE_READ);

SAME_SIZE(QpCap, ibv_qp_cap);
SAME(QpCap, ibv_qp_cap, max_recv_wr);
SAME(QpCap, ibv_qp_cap, max_inline_data);
SAME_SIZE(QpInitAttr, ibv_qp_init_attr);
SAME(QpInitAttr, ibv_qp_init_attr, recv_cq);
SAME(QpInitAttr, ibv_qp_init_attr, cap);
SAME(QpInitAttr, ibv_qp_init_attr, qp_type);
static_assert(abi::kQpReliable == IBV_QPT_RC);
SAME_SIZE(AhAttr, ibv_ah_attr);
SAME(AhAttr, ibv_ah_attr, dlid);
SAME(AhAttr, ibv_ah_attr, is_global);
SAME(AhAttr, ibv_ah_attr, port_num);
SAME(GlobalRoute, ibv_global_route, sgid_index);
SAME(GlobalRoute, ibv_global_route, hop_limit);
SAME_SIZE(QpAttr, ibv_qp_attr);
SAME(QpAttr, ibv_qp_attr, path_mtu);
SAME(QpAttr, ibv_qp_attr, rq_psn);
SAME(QpAttr, ibv_qp_attr, sq_psn);
SAME(QpAttr, ibv_qp_attr, dest_qp_num);
SAME(QpAttr, ibv_qp_attr, qp_access_flags);
SAME(QpAttr, ibv_qp_attr, ah_attr);
SAME(QpAttr, ibv_qp_attr, max_rd_atomic);
SAME(QpAttr, ibv_qp_attr, max_dest_rd_atomic);
SAME(QpAttr, ibv_qp_attr, min_rnr_timer);
SAME(QpAttr, ibv_qp_attr, port_num);
SAME(QpAttr, ibv_qp_attr, timeout);
SAME(QpAttr, ibv_qp_attr, retry_cnt);
SAME(QpAttr, ibv_qp_attr, rnr_retry);
static_assert(abi::kStateInit == IBV_QPS_INIT && abi::kStateReceive == IBV_QPS_RTR &&
              abi::kStateSend == IBV_QPS_RTS && abi::kStateError == IBV_QPS_ERR);
static_assert(abi::kMaskState == IBV_QP_STATE && abi::kMaskAccess == IBV_QP_ACCESS_FLAGS &&
              abi::kMaskPkey == IBV_QP_PKEY_INDEX && abi::kMaskPort == IBV_QP_PORT &&
              abi::kMaskPath == IBV_QP_AV && abi::kMaskMtu == IBV_QP_PATH_MTU &&
              abi::kMaskTimeout == IBV_QP_TIMEOUT && abi::kMaskRetries == IBV_QP_RETRY_CNT &&
              abi::kMaskNotReadyRetries == IBV_QP_RNR_RETRY &&
              abi::kMaskReceivePacket == IBV_QP_RQ_PSN &&
              abi::kMaskReads == IBV_QP_MAX_QP_RD_ATOMIC &&
              abi::kMaskNotReadyTimer == IBV_QP_MIN_RNR_TIMER &&
              abi::kMaskSendPacket == IBV_QP_SQ_PSN &&
              abi::kMaskReadsHere == IBV_QP_MAX_DEST_RD_ATOMIC &&
              abi::kMaskPeer == IBV_QP_DEST_QPN);

SAME_SIZE(AsyncEvent, ibv_async_event);
SAME(AsyncEvent, ibv_async_event, element.port_num);
SAME(AsyncEvent, ibv_async_event, event_type);
static_assert(abi::kEventCompletions == IBV_EVENT_CQ_ERR &&
              abi::kEventPairFatal == IBV_EVENT_QP_FATAL &&
              abi::kEventDeviceFatal == IBV_EVENT_DEVICE_FATAL &&
              abi::kEventPortActive == IBV_EVENT_PORT_ACTIVE &&
              abi::kEventPortDown == IBV_EVENT_PORT_ERR &&
              abi::kEventLidChange == IBV_EVENT_LID_CHANGE &&
              abi::kEventGidChange == IBV_EVENT_GID_CHANGE);

SAME_SIZE(ContextOps, ibv_context_ops);
SAME(ContextOps, ibv_context_ops, poll_cq);
SAME(ContextOps, ibv_context_ops, req_notify_cq);
SAME(ContextOps, ibv_context_ops, post_send);
SAME(ContextOps, ibv_context_ops, post_recv);
SAME(Context, ibv_context, device);
SAME(Context, ibv_context, ops);
SAME(Context, ibv_context, async_fd);
static_assert(abi::kForkUnneeded == IBV_FORK_UNNEEDED);

TEST(Ibverbs, TheInterfaceIsDebians) { SUCCEED() << "compared when this file was compiled"; }

#else

TEST(Ibverbs, TheInterfaceIsDebians) {
  GTEST_SKIP() << "infiniband/verbs.h is not installed (libibverbs-dev): the layouts were not "
                  "compared";
}

#endif

TEST(Ibverbs, TheLibraryHasEveryFunction) {
  void* library = dlopen(abi::kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "libibverbs.so.1 is not installed: " << dlerror();
#define EXPECT_THERE(name, version, result, parameters) \
  EXPECT_NE(dlvsym(library, #name, version), nullptr) << #name << " of " << version;
  TENDRIL_IBVERBS_FUNCTIONS(EXPECT_THERE)
  TENDRIL_IBVERBS_NEWER_FUNCTIONS(EXPECT_THERE)
#undef EXPECT_THERE
  dlclose(library);
}

// On a card of this machine: calls, and bulk data both ways, through blocks and from pinned memory.
TEST(Ibverbs, ACardOfThisMachineCarriesSessions) {
  const auto card = system_verbs().open("");
  if (!card.ok()) GTEST_SKIP() << card.status().message();
  alarm(240);
  ChannelSet client, worker;
  RdmaParts parts;
  Sizes sizes;
  sizes.channels = 2;
  const Status made = rdma_pair(&system_verbs(), sizes, &client, &worker, &parts);
  ASSERT_TRUE(made.ok()) << made.message();
  std::vector<uint8_t> data(3'000'000), got(data.size());
  for (size_t i = 0; i < data.size(); ++i) data[i] = uint8_t(i * 7 + i / 1000);
  for (const bool pinned : {false, true}) {
    // Kernels before 5.12 do not let it be registered. Then it is copied, as before.
    const bool known = pinned && parts.client_memory->add(data.data(), data.size()).ok() &&
                       parts.worker_memory->add(got.data(), got.size()).ok();
    parts.worker_counts->copied_bytes = 0;
    std::fill(got.begin(), got.end(), uint8_t(0));
    std::thread sender([&] {
      iovec part{data.data(), data.size()};
      const Status sent = client.bulk[0]->send(&part, 1);
      EXPECT_TRUE(sent.ok()) << sent.message();
    });
    auto received = worker.bulk[0]->receive(got.data(), got.size(), got.size(), {0, 60'000});
    sender.join();
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_TRUE(got == data);
    EXPECT_EQ(parts.worker_counts->copied_bytes, known ? 0u : data.size());
  }
  parts.client_memory->remove(data.data());
  parts.worker_memory->remove(got.data());
  alarm(0);
}

TEST(Ibverbs, SaysWhyThereIsNoDevice) {
  auto opened = system_verbs().open("no such device");
  ASSERT_FALSE(opened.ok());
  void* library = dlopen(abi::kLibrary, RTLD_NOW | RTLD_LOCAL);
  const std::string& why = opened.status().message();
  if (library == nullptr && access("/sys/class/infiniband", F_OK) == 0) {
    EXPECT_NE(why.find("rdma-core"), std::string::npos) << why;
  } else {
    EXPECT_NE(why.find("no RDMA device"), std::string::npos) << why;
  }
  if (library != nullptr) dlclose(library);
  auto again = system_verbs().open("no such device");
  EXPECT_EQ(again.status().message(), why);
}

}  // namespace
}  // namespace tendril::transport::rdma
