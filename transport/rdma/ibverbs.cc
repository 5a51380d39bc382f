// SPDX-License-Identifier: Apache-2.0
// See ibverbs.h. Not exercised on hardware: no machine with an RDMA card was at hand. It runs over
// soft RoCE (scripts/rdma-guest). The layout of the interface is tested wherever tests run.
#include "transport/rdma/ibverbs.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/content_hash.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/text.h"
#include "transport/rdma/ibverbs_abi.h"
#include "transport/rdma/path_settings.h"
#include "transport/rdma/ports.h"

namespace tendril::transport::rdma {

namespace abi {
struct Library {
#define TENDRIL_MEMBER(name, version, result, parameters) result(*name) parameters = nullptr;
  TENDRIL_IBVERBS_FUNCTIONS(TENDRIL_MEMBER)
  TENDRIL_IBVERBS_NEWER_FUNCTIONS(TENDRIL_MEMBER)
#undef TENDRIL_MEMBER
};
}  // namespace abi

namespace {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

constexpr int kGidsMax = 64;            // looked at for each port
constexpr uint32_t kInlineBytes = 220;  // asked for; cards that have less get none
constexpr uint8_t kReadsMost = 16;
// The peer has room for all that it allows, so it is never unready, except when it is broken.
constexpr uint8_t kNotReadyRepetitions = 6, kNotReadyTimer = 12;
constexpr uint8_t kHopsMost = 64;

constinit std::atomic<const abi::Library*> g_library{nullptr};
constinit base::Lock g_library_lock;

bool bind(void* library, const char* name, const char* version, void** entry) {
  *entry = dlvsym(library, name, version);
  return *entry != nullptr;
}

Result<const abi::Library*> load() {
  const abi::Library* known = g_library.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  Locked locked(g_library_lock);
  known = g_library.load(std::memory_order_relaxed);
  if (known != nullptr) return known;
  void* handle = dlopen(abi::kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status(Code::kNotFound,
                  "libibverbs.so.1 is missing: install rdma-core (Debian: ibverbs-providers)");
  }
  std::unique_ptr<abi::Library> library(new (std::nothrow) abi::Library);
  if (library == nullptr) return Status(Code::kExhausted, "no memory");
  const char* missing = nullptr;
#define TENDRIL_BIND(name, version, result, parameters)                          \
  if (!bind(handle, #name, version, reinterpret_cast<void**>(&library->name)) && \
      missing == nullptr)                                                        \
    missing = #name;
  TENDRIL_IBVERBS_FUNCTIONS(TENDRIL_BIND)
#undef TENDRIL_BIND
#define TENDRIL_BIND(name, version, result, parameters) \
  (void)bind(handle, #name, version, reinterpret_cast<void**>(&library->name));
  TENDRIL_IBVERBS_NEWER_FUNCTIONS(TENDRIL_BIND)
#undef TENDRIL_BIND
  if (missing != nullptr) {
    return Status(Code::kMismatch, base::format("libibverbs.so.1 has no %s: install rdma-core 17 "
                                                "or newer",
                                                missing));
  }
  g_library.store(library.release(), std::memory_order_release);
  return g_library.load(std::memory_order_relaxed);
}

std::string locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "none";
  return base::format("%llu KiB", static_cast<unsigned long long>(limit.rlim_cur >> 10));
}

Fate fate_of(uint32_t status) {
  switch (status) {
    case abi::kWcSuccess:
      return Fate::kDone;
    case abi::kWcRetryExceeded:
      return Fate::kUnanswered;
    case abi::kWcReceiverNotReady:
      return Fate::kNotReady;
    case abi::kWcRemoteAccess:
    case abi::kWcRemoteInvalid:
    case abi::kWcRemoteOperation:
      return Fate::kRemoteAccess;
    case abi::kWcLocalLength:
    case abi::kWcLocalOperation:
    case abi::kWcLocalProtection:
    case abi::kWcLocalAccess:
      return Fate::kLocalError;
    case abi::kWcFlushed:
      return Fate::kFlushed;
    default:
      return Fate::kOther;
  }
}

// Lanes and signalling rate, as the port reports them.
uint64_t megabits(const abi::PortAttr& port) {
  uint64_t lanes = 1;
  for (const auto& [code, count] : {std::pair(2, 4), std::pair(4, 8), std::pair(8, 12)})
    if (port.active_width == code) lanes = uint64_t(count);
  if (port.active_width == 16) lanes = 2;
  uint64_t rate = 2'500;
  for (const auto& [code, megabits_each] :
       {std::pair(2, 5'000), std::pair(4, 10'000), std::pair(8, 10'000), std::pair(16, 14'000),
        std::pair(32, 25'000), std::pair(64, 50'000), std::pair(128, 100'000)})
    if (port.active_speed == code) rate = uint64_t(megabits_each);
  return lanes * rate;
}

// 0: unusable; more is better. Addresses of IPv4 route everywhere, link-local ones nowhere.
int gid_rank(const abi::Gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNothing[16] = {};
  if (memcmp(gid.raw, kNothing, sizeof kNothing) == 0) return 0;
  if (memcmp(gid.raw, kMapped, sizeof kMapped) == 0) return 3;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80 ? 1 : 2;
}

// A card that this process has opened, until nobody uses it.
class OpenCard {
 public:
  OpenCard(const abi::Library& library, abi::Context* context)
      : library_(library), context_(context), owner_(getpid()) {}
  ~OpenCard() {
    if (getpid() == owner_) library_.ibv_close_device(context_);
  }
  abi::Context* context() const { return context_; }

 private:
  const abi::Library& library_;
  abi::Context* const context_;
  const pid_t owner_;
};

// The port of one device, before it is used.
struct Candidate {
  std::shared_ptr<OpenCard> card;
  abi::Context* context = nullptr;  // of `card`
  uint8_t port = 0;
  abi::PortAttr attr{};
  abi::Gid gid{};
  uint8_t gid_index = 0;
  std::string name, card_name;
};

// RoCE v2 is what routes and what every card has had for years.
bool is_roce_v2(const abi::Library& library, const Candidate& at, int index) {
  if (library._ibv_query_gid_ex != nullptr) {
    abi::GidEntry entry{};
    return library._ibv_query_gid_ex(at.context, at.port, uint32_t(index), &entry, 0,
                                     sizeof entry) == 0 &&
           entry.gid_type == abi::kGidTypeRoceV2;
  }
  const std::string path = base::format("%s/ports/%u/gid_attrs/types/%d",
                                        at.context->device->ibdev_path, unsigned(at.port), index);
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  return file.valid() && read(file.get(), text, sizeof text - 1) > 0 &&
         strncmp(text, "RoCE v2", 7) == 0;
}

PortFacts facts_of(const Candidate& port) {
  PortFacts facts;
  facts.name = port.name;
  facts.ethernet = port.attr.link_layer == abi::kLinkEthernet;
  facts.megabits_per_second = megabits(port.attr);
  return facts;
}

bool choose_gid(const abi::Library& library, Candidate* at) {
  const bool ethernet = at->attr.link_layer == abi::kLinkEthernet;
  const int count = ethernet ? std::min(at->attr.gid_tbl_len, kGidsMax) : 1;
  int best = 0;
  for (int i = 0; i < count; ++i) {
    abi::Gid gid{};
    if (library.ibv_query_gid(at->context, at->port, i, &gid) != 0) continue;
    const int rank = gid_rank(gid);
    if (rank <= best || (ethernet && !is_roce_v2(library, *at, i))) continue;
    best = rank;
    at->gid = gid;
    at->gid_index = uint8_t(i);
  }
  return best != 0;
}

// ---- memory, pairs ----

class SystemRegion final : public Region {
 public:
  SystemRegion(const abi::Library& library, abi::Mr* memory)
      : library_(library), memory_(memory), owner_(getpid()) {
    local_key = memory->lkey;
    remote_key = memory->rkey;
  }
  ~SystemRegion() override {
    if (getpid() == owner_) library_.ibv_dereg_mr(memory_);
  }

 private:
  const abi::Library& library_;
  abi::Mr* const memory_;
  const pid_t owner_;
};

class SystemDevice;

class SystemPair final : public Pair {
 public:
  SystemPair(std::shared_ptr<const SystemDevice> device, const abi::Library& library)
      : device_(std::move(device)), library_(library), owner_(getpid()) {}
  ~SystemPair() override;
  Status open(const PairLimits& limits);

  PairAddress address() const override;
  Status connect(const PairAddress& peer) override;
  Status post(const Work& work) override;
  Status post_receives(uint32_t count) override;
  int poll(Completion* into, int most) override;
  void arm() override { cq_->context->ops.req_notify_cq(cq_, 0); }
  void drop_events() override;
  int descriptor() const override { return channel_->fd; }
  void stop() override;

 private:
  const std::shared_ptr<const SystemDevice> device_;
  const abi::Library& library_;
  const pid_t owner_;
  uint32_t first_packet_ = 0;
  uint32_t inline_bytes_ = 0;
  abi::CompChannel* channel_ = nullptr;
  abi::Cq* cq_ = nullptr;
  abi::Qp* qp_ = nullptr;
};

class SystemDevice final : public Device, public std::enable_shared_from_this<SystemDevice> {
 public:
  SystemDevice(const abi::Library& library, Candidate chosen, uint32_t ports_epoch, abi::Pd* domain,
               uint8_t reads, const PathSettings& path)
      : library_(library),
        chosen_(std::move(chosen)),
        domain_(domain),
        reads_(reads),
        path_(path),
        owner_(getpid()) {
    facts_ = facts_of(chosen_);
    facts_.ports_epoch = ports_epoch;
    facts_.fork_keeps_memory = library.ibv_is_fork_initialized != nullptr &&
                               library.ibv_is_fork_initialized() == abi::kForkUnneeded;
    const int flags = fcntl(chosen_.context->async_fd, F_GETFL);
    fcntl(chosen_.context->async_fd, F_SETFL, flags | O_NONBLOCK);
  }
  ~SystemDevice() override {
    if (getpid() == owner_) library_.ibv_dealloc_pd(domain_);
  }

  const PortFacts& facts() const override { return facts_; }

  Result<std::unique_ptr<Region>> register_memory(void* memory, size_t bytes,
                                                  Rights rights) override {
    int access = abi::kLocalWrite;
    if (rights == Rights::kPeerReads) access |= abi::kRemoteRead;
    if (rights == Rights::kPeerWrites) access |= abi::kRemoteWrite;
    errno = 0;
    abi::Mr* registered = library_.ibv_reg_mr(domain_, memory, bytes, access);
    if (registered != nullptr)
      return std::unique_ptr<Region>(new SystemRegion(library_, registered));
    const int why = errno;
    if (why == ENOMEM || why == EPERM || why == EAGAIN) {
      return Status(Code::kExhausted,
                    base::format("%s cannot lock %zu KiB of memory: the limit (ulimit -l) is %s; "
                                 "raise it to 'unlimited', in containers and units too",
                                 facts_.name.c_str(), bytes >> 10, locked_memory_limit().c_str()));
    }
    return base::errno_status(Code::kUnavailable, "registering memory for RDMA", why);
  }

  Result<std::unique_ptr<Region>> register_device(const DeviceRange& range) override {
    constexpr int kAccess = abi::kLocalWrite | abi::kRemoteRead;
    const bool has_descriptor = range.descriptor >= 0;
    if (has_descriptor && library_.ibv_reg_dmabuf_mr == nullptr) {
      return Status(Code::kUnsupported,
                    "libibverbs.so.1 has no ibv_reg_dmabuf_mr: install rdma-core 34 or newer");
    }
    errno = 0;
    abi::Mr* const registered =
        has_descriptor ? library_.ibv_reg_dmabuf_mr(domain_, range.offset, range.bytes,
                                                    range.address, range.descriptor, kAccess)
                       : library_.ibv_reg_mr(domain_, reinterpret_cast<void*>(range.address),
                                             range.bytes, kAccess);
    if (registered != nullptr)
      return std::unique_ptr<Region>(new SystemRegion(library_, registered));
    const std::string doing =
        facts_.name + (has_descriptor ? " takes no dma-buf of the GPU"
                                      : " cannot register the GPU's memory by its address");
    return base::errno_status(Code::kUnsupported, doing.c_str(), errno);
  }

  Result<std::unique_ptr<Pair>> make_pair(const PairLimits& limits) override {
    std::unique_ptr<SystemPair> pair(new SystemPair(shared_from_this(), library_));
    Status opened = pair->open(limits);
    if (!opened.ok()) return opened;
    return std::unique_ptr<Pair>(std::move(pair));
  }

  int event_descriptor() const override { return chosen_.context->async_fd; }

  Status look_at_events() override {
    abi::AsyncEvent event{};
    while (library_.ibv_get_async_event(chosen_.context, &event) == 0) {
      const uint32_t type = event.event_type;
      const bool here = event.element.port_num == chosen_.port;
      library_.ibv_ack_async_event(&event);
      Locked locked(events_lock_);
      link_changed_ |= here && (type == abi::kEventPortDown || type == abi::kEventPortActive ||
                                type == abi::kEventGidChange || type == abi::kEventLidChange);
      if (type == abi::kEventDeviceFatal) failure_ = "failed";
      if (type == abi::kEventDeviceFatal) last_event_ = "the card failed";
      if (type == abi::kEventPortDown && here) last_event_ = "the port went down";
      if (type == abi::kEventPortActive && here) last_event_ = "the port came up again";
      if (type == abi::kEventGidChange && here) last_event_ = "the port's addresses changed";
      if (type == abi::kEventLidChange && here) last_event_ = "the port's LID changed";
    }
    // Drivers without that event, as soft RoCE's, wait for whoever has the card open. Its node is
    // gone by then.
    struct stat node = {};
    const bool gone = fstat(chosen_.context->cmd_fd, &node) == 0 && node.st_nlink == 0;
    Locked locked(events_lock_);
    if (gone) failure_ = "was taken away";
    return failure_ == nullptr ? Status()
                               : Status(Code::kUnavailable, facts_.name + " " + failure_);
  }

  std::string last_event() const override {
    Locked locked(events_lock_);
    return last_event_;
  }

  bool link_changed() const override {
    Locked locked(events_lock_);
    return link_changed_;
  }

  const Candidate& chosen() const { return chosen_; }
  abi::Pd* domain() const { return domain_; }
  uint8_t reads() const { return reads_; }
  const PathSettings& path() const { return path_; }

 private:
  const abi::Library& library_;
  const Candidate chosen_;
  abi::Pd* const domain_;
  const uint8_t reads_;
  const PathSettings path_;
  const pid_t owner_;
  PortFacts facts_;
  mutable base::Lock events_lock_;
  std::string last_event_;
  const char* failure_ = nullptr;  // of the card, for good
  bool link_changed_ = false;
};

SystemPair::~SystemPair() {
  if (getpid() != owner_) return;
  if (qp_ != nullptr) library_.ibv_destroy_qp(qp_);
  if (cq_ != nullptr) library_.ibv_destroy_cq(cq_);
  if (channel_ != nullptr) library_.ibv_destroy_comp_channel(channel_);
}

Status SystemPair::open(const PairLimits& limits) {
  abi::Context* context = device_->chosen().context;
  errno = 0;
  channel_ = library_.ibv_create_comp_channel(context);
  if (channel_ == nullptr)
    return base::errno_status(Code::kExhausted, "making an RDMA completion channel", errno);
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  cq_ = library_.ibv_create_cq(context, int(limits.sends + limits.receives), nullptr, channel_, 0);
  if (cq_ == nullptr)
    return base::errno_status(Code::kExhausted, "making an RDMA completion queue", errno);
  abi::QpInitAttr wanted{};
  wanted.send_cq = wanted.recv_cq = cq_;
  wanted.cap = {limits.sends, limits.receives, 1, 1, kInlineBytes};
  wanted.qp_type = abi::kQpReliable;
  qp_ = library_.ibv_create_qp(device_->domain(), &wanted);
  if (qp_ == nullptr) {
    wanted.cap = {limits.sends, limits.receives, 1, 1, 0};
    qp_ = library_.ibv_create_qp(device_->domain(), &wanted);
  }
  if (qp_ == nullptr) {
    return base::errno_status(errno == ENOMEM ? Code::kExhausted : Code::kUnavailable,
                              "making an RDMA queue pair (the limit of locked memory counts here, "
                              "too: ulimit -l)",
                              errno);
  }
  inline_bytes_ = wanted.cap.max_inline_data;
  if (!base::random_bytes(&first_packet_, sizeof first_packet_))
    return Status(Code::kUnavailable, "the kernel has no random bytes");
  first_packet_ &= 0xffffff;
  abi::QpAttr attr{};
  attr.qp_state = abi::kStateInit;
  attr.port_num = device_->chosen().port;
  attr.qp_access_flags = abi::kRemoteWrite | abi::kRemoteRead;
  const int failure = library_.ibv_modify_qp(
      qp_, &attr, abi::kMaskState | abi::kMaskPkey | abi::kMaskPort | abi::kMaskAccess);
  if (failure != 0) return base::errno_status(Code::kUnavailable, "starting a queue pair", failure);
  return Status();
}

PairAddress SystemPair::address() const {
  const Candidate& at = device_->chosen();
  PairAddress address;
  memcpy(address.gid, at.gid.raw, sizeof address.gid);
  address.number = qp_->qp_num;
  address.first_packet = first_packet_;
  address.lid = at.attr.lid;
  address.mtu_code = uint8_t(std::min<uint32_t>(at.attr.active_mtu, device_->path().mtu_code));
  address.reads = device_->reads();
  address.ethernet = at.attr.link_layer == abi::kLinkEthernet;
  return address;
}

Status SystemPair::connect(const PairAddress& peer) {
  const Candidate& at = device_->chosen();
  abi::QpAttr attr{};
  attr.qp_state = abi::kStateReceive;
  attr.path_mtu = std::min<uint32_t>(address().mtu_code, peer.mtu_code);
  attr.dest_qp_num = peer.number;
  attr.rq_psn = peer.first_packet;
  attr.max_dest_rd_atomic = device_->reads();
  attr.min_rnr_timer = kNotReadyTimer;
  attr.ah_attr.port_num = at.port;
  attr.ah_attr.dlid = peer.lid;
  if (peer.ethernet) {
    attr.ah_attr.is_global = 1;
    memcpy(attr.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
    attr.ah_attr.grh.sgid_index = at.gid_index;
    attr.ah_attr.grh.hop_limit = kHopsMost;
    attr.ah_attr.grh.traffic_class = device_->path().traffic_class;
  }
  int failure = library_.ibv_modify_qp(qp_, &attr,
                                       abi::kMaskState | abi::kMaskPath | abi::kMaskMtu |
                                           abi::kMaskPeer | abi::kMaskReceivePacket |
                                           abi::kMaskReadsHere | abi::kMaskNotReadyTimer);
  if (failure != 0)
    return base::errno_status(Code::kUnavailable, "finding the way to the peer's RDMA port",
                              failure);
  attr = {};
  attr.qp_state = abi::kStateSend;
  attr.timeout = device_->path().answer_timer;
  attr.retry_cnt = device_->path().repetitions;
  attr.rnr_retry = kNotReadyRepetitions;
  attr.sq_psn = first_packet_;
  attr.max_rd_atomic = std::min(device_->reads(), peer.reads);
  failure = library_.ibv_modify_qp(qp_, &attr,
                                   abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetries |
                                       abi::kMaskNotReadyRetries | abi::kMaskSendPacket |
                                       abi::kMaskReads);
  if (failure != 0) return base::errno_status(Code::kUnavailable, "opening a queue pair", failure);
  return Status();
}

Status SystemPair::post(const Work& work) {
  abi::Sge piece{reinterpret_cast<uint64_t>(work.local), work.bytes, work.local_key};
  abi::SendWr request{};
  request.wr_id = work.id;
  request.sg_list = work.bytes != 0 ? &piece : nullptr;
  request.num_sge = work.bytes != 0 ? 1 : 0;
  request.send_flags = work.reported ? abi::kSignaled : 0;
  request.imm_data = htonl(work.immediate);
  request.wr.rdma.remote_addr = work.remote.address;
  request.wr.rdma.rkey = work.remote.key;
  switch (work.kind) {
    case WorkKind::kWrite:
      request.opcode = abi::kWriteWithImmediate;
      if (work.bytes <= inline_bytes_) request.send_flags |= abi::kInline;
      break;
    case WorkKind::kRead:
      request.opcode = abi::kRdmaRead;
      break;
    case WorkKind::kTell:
      request.opcode = abi::kSendWithImmediate;
      break;
  }
  abi::SendWr* bad = nullptr;
  const int failure = qp_->context->ops.post_send(qp_, &request, &bad);
  if (failure != 0) return base::errno_status(Code::kUnavailable, "posting to the card", failure);
  return Status();
}

Status SystemPair::post_receives(uint32_t count) {
  abi::RecvWr request{};
  abi::RecvWr* bad = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    const int failure = qp_->context->ops.post_recv(qp_, &request, &bad);
    if (failure != 0)
      return base::errno_status(Code::kUnavailable, "posting a receive to the card", failure);
  }
  return Status();
}

int SystemPair::poll(Completion* into, int most) {
  constexpr int kAtOnce = 16;
  abi::Wc reports[kAtOnce];
  const int count = cq_->context->ops.poll_cq(cq_, std::min(most, kAtOnce), reports);
  for (int i = 0; i < count; ++i) {
    const abi::Wc& report = reports[i];
    into[i] = Completion();
    into[i].id = report.wr_id;
    into[i].fate = fate_of(report.status);
    // The other fields of a failed one mean nothing.
    if (report.status != abi::kWcSuccess) continue;
    into[i].told = (report.opcode & abi::kWcOpcodeReceive) != 0;
    into[i].immediate = ntohl(report.imm_data);
  }
  return count;
}

void SystemPair::drop_events() {
  abi::Cq* cq = nullptr;
  void* ours = nullptr;
  unsigned count = 0;
  while (library_.ibv_get_cq_event(channel_, &cq, &ours) == 0) ++count;
  if (count != 0) library_.ibv_ack_cq_events(cq_, count);
}

void SystemPair::stop() {
  abi::QpAttr attr{};
  attr.qp_state = abi::kStateError;
  library_.ibv_modify_qp(qp_, &attr, abi::kMaskState);
}

// ---- finding a port ----

class SystemVerbs final : public Verbs {
 public:
  Result<std::shared_ptr<Device>> open(const std::string& wanted) override {
    const Result<PathSettings> path = path_settings();
    if (!path.ok()) return path.status();
    Result<std::vector<Candidate>> found = look(wanted);
    if (!found.ok()) return found.status();
    return open_first(*found, path.value());
  }

  Result<std::vector<PortFacts>> ports(const std::string& wanted) override {
    Result<std::vector<Candidate>> found = look(wanted);
    if (!found.ok()) return found.status();
    std::vector<PortFacts> all;
    for (const Candidate& each : *found) all.push_back(facts_of(each));
    return all;
  }

 private:
  struct Search {
    const abi::Library& library;
    const std::string& wanted;
    std::vector<Candidate> found;
    std::string against;  // why others were not taken
  };

  // The usable ports, the fastest first: at least one.
  static Result<std::vector<Candidate>> look(const std::string& wanted) {
    const Status none(Code::kNotFound,
                      "this machine has no RDMA device ('rdma link' lists them; the kernel module "
                      "ib_uverbs must be loaded)");
    // Most machines have none, and every session asks.
    if (access("/sys/class/infiniband", F_OK) != 0) return none;
    Result<const abi::Library*> library = load();
    if (!library.ok()) return library.status();
    int count = 0;
    abi::Device** list = (*library)->ibv_get_device_list(&count);
    if (list == nullptr || count == 0) {
      if (list != nullptr) (*library)->ibv_free_device_list(list);
      return none;
    }
    Search search{**library, wanted, {}, {}};
    for (int i = 0; i < count; ++i) look_at(list[i], &search);
    (*library)->ibv_free_device_list(list);
    if (search.found.empty()) {
      return Status(Code::kUnavailable,
                    search.against.empty()
                        ? "this machine has no RDMA device '" + base::printable(wanted) + "'"
                        : search.against);
    }
    sort_by_rate(&search.found);
    return std::move(search.found);
  }

  // By hand, because std::stable_sort allocates. There are few.
  static void sort_by_rate(std::vector<Candidate>* found) {
    for (size_t i = 1; i < found->size(); ++i) {
      for (size_t j = i; j > 0 && megabits((*found)[j].attr) > megabits((*found)[j - 1].attr); --j)
        std::swap((*found)[j], (*found)[j - 1]);
    }
  }

  static void reject(Search* search, const std::string& why) {
    search->against += (search->against.empty() ? "" : "; ") + why;
  }

  static void look_at(abi::Device* device, Search* search) {
    const std::string name(device->name, strnlen(device->name, sizeof device->name));
    if (!names_port(search->wanted, name, 0)) return;
    if (device->transport_type != abi::kTransportIb)
      return reject(search, name + " is neither InfiniBand nor RoCE");
    errno = 0;
    abi::Context* context = search->library.ibv_open_device(device);
    if (context == nullptr) {
      const std::string doing = "opening " + name;
      return reject(search,
                    base::errno_status(Code::kUnavailable, doing.c_str(), errno).message() +
                        " (this user and this container must be allowed to use /dev/infiniband)");
    }
    const auto card = std::make_shared<OpenCard>(search->library, context);
    abi::DeviceAttr attr{};
    if (search->library.ibv_query_device(context, &attr) != 0) attr.phys_port_cnt = 0;
    for (unsigned port = 1; port <= attr.phys_port_cnt; ++port) {
      if (!names_port(search->wanted, name, port)) continue;
      Candidate candidate;
      candidate.card = card;
      candidate.context = context;
      candidate.port = uint8_t(port);
      candidate.name = base::format("%s:%u", name.c_str(), port);
      candidate.card_name = name;
      consider(std::move(candidate), search);
    }
  }

  static void consider(Candidate candidate, Search* search) {
    const abi::Library& library = search->library;
    if (library.ibv_query_port(candidate.context, candidate.port, &candidate.attr) != 0)
      return reject(search, "the port " + candidate.name + " cannot be asked");
    if (candidate.attr.state != abi::kPortActive)
      return reject(search, "the port " + candidate.name + " is down");
    if (!choose_gid(library, &candidate)) {
      return reject(search, "the port " + candidate.name +
                                " has no usable GID (RoCE v2 needs an IP address on its network "
                                "interface)");
    }
    search->found.push_back(std::move(candidate));
  }

  // Of all ports that could be used.
  static uint32_t epoch_of(const std::vector<Candidate>& found) {
    std::string all;
    for (const Candidate& each : found) {
      all += base::format("%s %llu %s %u %x\n", each.name.c_str(),
                          static_cast<unsigned long long>(megabits(each.attr)),
                          base::hex(each.gid.raw, sizeof each.gid.raw).c_str(),
                          unsigned(each.attr.lid),
                          link_epoch(each.card_name, each.port, each.gid_index));
    }
    const std::string hash = base::content_hash(all.data(), all.size());
    uint32_t epoch = 0;
    memcpy(&epoch, hash.data(), sizeof epoch);
    return epoch;
  }

  static Result<std::shared_ptr<Device>> open_first(const std::vector<Candidate>& found,
                                                    const PathSettings& path) {
    const Candidate& best = found.front();
    const abi::Library& library = *g_library.load(std::memory_order_acquire);
    abi::DeviceAttr attr{};
    library.ibv_query_device(best.context, &attr);
    const int reads = std::min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom);
    abi::Pd* domain = library.ibv_alloc_pd(best.context);
    if (domain == nullptr || reads < 1) {
      if (domain != nullptr) library.ibv_dealloc_pd(domain);
      return Status(Code::kExhausted, best.name + (reads < 1 ? " cannot read the memory of others"
                                                             : " has no protection domain left"));
    }
    return std::shared_ptr<Device>(std::make_shared<SystemDevice>(
        library, best, epoch_of(found), domain, uint8_t(std::min<int>(reads, kReadsMost)), path));
  }
};

constinit SystemVerbs g_system_verbs;

}  // namespace

Verbs& system_verbs() { return g_system_verbs; }

}  // namespace tendril::transport::rdma
