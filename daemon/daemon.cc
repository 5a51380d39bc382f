// SPDX-License-Identifier: Apache-2.0
// See daemon.h.
#include "daemon/daemon.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <mutex>

#include "access/guard.h"
#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/cards/cards.h"
#include "daemon/connection.h"
#include "daemon/containment/host_memory.h"
#include "daemon/containment/learned_calls.h"
#include "daemon/containment/network_bounds.h"
#include "daemon/containment/pageable.h"
#include "daemon/image_store.h"
#include "daemon/log.h"
#include "daemon/page/page_source.h"
#include "daemon/passages/data_interfaces.h"
#include "daemon/passages/peers.h"
#include "daemon/probe.h"
#include "daemon/sealing.h"
#include "daemon/sessions.h"
#include "dashboard/port.h"
#include "http/server.h"
#include "reception/front.h"
#include "reception/metrics_port.h"
#include "reception/reception.h"
#include "view/metrics.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

// More than this is not an empty context but memory that others use.
constexpr uint64_t kContextBytesMax = 640u << 20;
// PyTorch's small programs take about a hundred megabytes that no call asks for in bytes (H200):
// machine code, kernels' local memory, the driver's own objects.
constexpr uint64_t kContextsPerCode = 4;
constexpr int kStopMaxMs = 5000;
constexpr char kCardsVariable[] = "TENDRIL_RDMA_DEVICE";
// More attaches at once would not be served sooner: each GPU's driver starts four workers at once.
constexpr uint32_t kAttachesPerGpu = 4, kAttachesMin = 8, kAttachesMax = 64;

// Workers' exports take descriptors, too. They must leave enough for connections.
size_t exported_descriptors_max() {
  constexpr size_t kMost = 65'536;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return std::min<size_t>(limit.rlim_cur / 4, kMost);
}

// Nobody on other machines reaches this server.
bool listens_on_loopback(const std::vector<std::string>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(), [](const std::string& address) {
    return address.rfind("127.", 0) == 0 || address.rfind("localhost", 0) == 0 ||
           address.rfind("::1", 0) == 0 || address.rfind("[::1]", 0) == 0;
  });
}

class DaemonImpl : public Daemon {
 public:
  explicit DaemonImpl(DaemonOptions options) : options_(std::move(options)) {}
  ~DaemonImpl() override { stop(); }

  Status prepare();
  void serve(int stop_fd) override;
  Status reload() override;
  uint16_t port() const override { return front_->port(); }
  const gpu::Inventory& inventory() const override { return inventory_; }
  std::vector<std::string> addresses() const override { return front_->addresses(); }
  void drain() override;
  bool answers(int timeout_ms) override;
  bool is_empty() const override { return sessions_->lease_count() == 0; }

 private:
  Status open_front();
  Status open_gpus();
  Status open_workers();
  void lend_cards();
  Status choose_data_interfaces();
  void look_at_cards();
  void bound_networks();
  void bound_leases();
  lease::LeaseBook make_book() const;
  wire::ListReply list(const access::Principal* viewer, const wire::ListRequest& request);
  wire::ListReply whole_list();
  base::Status serve_metrics();
  base::Status serve_page();
  std::vector<wire::ApiRecord> served_apis() const;
  Status open_reception();
  Status join_pool();
  wire::ServerFacts pool_facts();
  void stop();

  DaemonOptions options_;
  std::unique_ptr<reception::Front> front_;
  std::string host_;
  gpu::Inventory inventory_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Cgroups> groups_;
  std::unique_ptr<NetworkBounds> network_bounds_;  // null: nothing bounds them
  Networks networks_;                              // supervisor's thread
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<PackedServers> packed_;
  std::unique_ptr<Arbiter> arbiter_;
  std::unique_ptr<http::Server> metrics_;
  std::unique_ptr<PageSource> page_source_;
  std::unique_ptr<dashboard::Port> page_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<ImageStore> images_;  // goes first: its thread answers workers of sessions
  std::shared_ptr<MonitorFeed> monitor_;
  ConnectionContext context_;
  PoolPeers pool_peers_;
  std::unique_ptr<Peers> peers_;  // its threads ask context_
  std::unique_ptr<reception::Reception> reception_;
  std::unique_ptr<Cards> cards_;              // for RDMA; supervisor's thread
  std::atomic<bool> other_transports_{true};  // since they were found out
  std::mutex transports_mutex_;
  std::vector<std::string> transports_;  // guarded by transports_mutex_: for pools
  wire::ServerFacts member_facts_;       // what does not change
  std::vector<std::string> data_interfaces_;
  std::unique_ptr<PoolLinks> links_;
  bool stopped_ = false;
};

Status DaemonImpl::open_front() {
  reception::FrontOptions options;
  options.listen = options_.listen;
  options.port = options_.port;
  options.port_file = options_.port_file;
  options.unix_paths = options_.unix_paths;
  options.token_file = options_.token_file;
  options.identity_folder = options_.identity_folder;
  options.pool = options_.pool_name;
  options.providers_file = options_.providers_file;
  options.policy_file = options_.policy_file;
  options.audit_file = options_.audit_file;
  options.sockets = options_.sockets;
  options.passes_descriptors = true;
  options.connections_max = options_.connections_max;
  auto front = reception::Front::open(std::move(options));
  if (!front.ok()) return front.status();
  front_ = front.take();
  context_.front = front_.get();
  return Status();
}

Status DaemonImpl::reload() {
  const Status status = front_->reload();
  if (status.ok()) {
    log(Level::kInfo, "read credentials, policy and limits again");
  } else {
    log(Level::kError, "nothing was changed: %s", status.message().c_str());
  }
  return status;
}

Status DaemonImpl::open_gpus() {
  auto worker = find_worker_executable(options_.worker.executable);
  if (!worker.ok()) return worker.status();
  options_.worker.executable = worker.take();
  auto inventory = probe(options_.isolation, &options_.worker);
  if (!inventory.ok()) return inventory.status();
  inventory_ = inventory.take();
  options_.worker.nccl = inventory_.nccl;
  if (inventory_.apis.empty()) {
    return Status(Code::kMismatch, options_.worker.executable +
                                       " names no API that it serves; install tendrild and "
                                       "tendril-worker of one build");
  }
  if (inventory_.devices.empty()) {
    return Status(Code::kNotFound,
                  "the driver '" + inventory_.driver_path + "' knows no GPU on this machine");
  }
  if (inventory_.devices.size() > wire::kSlicesMax) inventory_.devices.resize(wire::kSlicesMax);
  return Status();
}

lease::LeaseBook DaemonImpl::make_book() const {
  std::vector<lease::GpuCapacity> capacities;
  for (const gpu::DeviceFacts& device : inventory_.devices) {
    lease::GpuCapacity capacity;
    capacity.context_bytes = options_.context_bytes >= 0
                                 ? static_cast<uint64_t>(options_.context_bytes)
                                 : std::min(device.memory_taken_bytes, kContextBytesMax);
    capacity.code_bytes = options_.code_bytes >= 0 ? static_cast<uint64_t>(options_.code_bytes)
                                                   : capacity.context_bytes / kContextsPerCode;
    capacity.processors = device.processors;
    const uint64_t reserve = capacity.context_bytes * pool_->warm_target(device.index);
    capacity.memory_usable_bytes =
        device.memory_total_bytes - std::min(device.memory_total_bytes, reserve);
    log(Level::kInfo,
        "GPU %u: %s, %s, %s of it to lend (%s per process for its context, %s for code)",
        device.index, printable(device.name).c_str(),
        config::format_size(device.memory_total_bytes).c_str(),
        config::format_size(capacity.memory_usable_bytes).c_str(),
        config::format_size(capacity.context_bytes).c_str(),
        config::format_size(capacity.code_bytes).c_str());
    if (options_.context_bytes < 0 && device.memory_taken_bytes > kContextBytesMax) {
      log(Level::kWarning,
          "GPU %u: other programs on this machine hold %s; they are not held to any slice",
          device.index, config::format_size(device.memory_taken_bytes - kContextBytesMax).c_str());
    }
    capacities.push_back(capacity);
  }
  return lease::LeaseBook(host_, std::move(capacities));
}

void DaemonImpl::bound_leases() {
  uint64_t gpu_memory_bytes = 0;
  for (const gpu::DeviceFacts& device : inventory_.devices)
    gpu_memory_bytes += device.memory_total_bytes;
  const uint64_t memory_bytes = host_memory().total_bytes;
  sessions_->bound_by(groups_.get(), gpu_memory_bytes, memory_bytes);
  sessions_->keep_parked(
      options_.park_bytes < 0 ? memory_bytes / 2 : static_cast<uint64_t>(options_.park_bytes),
      options_.park_idle_s * 1'000'000'000, options_.park_folder, options_.park_file_bytes);
}

// NCCL's workers reach this server and those that its operator and its pool named.
void DaemonImpl::bound_networks() {
  if (inventory_.nccl.empty()) return;
  log(Level::kInfo, "lends %zu version(s) of NCCL from '%s'", inventory_.nccl.size(),
      options_.worker.nccl_place.c_str());
  auto bounds = NetworkBounds::open(groups_ != nullptr ? groups_->folder() : "");
  if (!bounds.ok()) {
    log(Level::kWarning, "workers that use NCCL reach whatever this machine reaches by TCP: %s",
        bounds.status().message().c_str());
    return;
  }
  network_bounds_ = bounds.take();
  sessions_->bound_networks_by([this](pid_t worker) {
    const bool loopback = listens_on_loopback(options_.listen);
    std::vector<ReachableAddress> reachable = reachable_addresses(peers_->names(), loopback);
    add_reachable(pool_peers_.addresses(loopback, base::now_ns()), &reachable);
    return network_bounds_->enter(worker, reachable);
  });
}

// The supervisor's thread, and what it needs to start workers.
Status DaemonImpl::open_workers() {
  auto loop = EventLoop::create();
  if (!loop.ok()) return loop.status();
  loop_ = loop.take();
  loop_->start();
  // It starts the workers.
  const bool own_network = options_.worker.isolation.kind == Isolation::Kind::kUsers;
  options_.worker.networks = &networks_;
  loop_->post([own_network, this] {
    const Status away = own_network ? networks_.leave() : Status();
    if (!away.ok())
      log(Level::kInfo, "workers see this machine's network: %s", away.message().c_str());
    // A set of rules here would keep workers from their own folders (worker/process/sandbox.h).
    // They leave other programs alone by rules of their own.
    const Status inside = options_.worker.compiles ? Status() : keep_children_inside();
    if (!inside.ok())
      log(Level::kInfo, "workers can reach other programs' abstract sockets: %s",
          inside.message().c_str());
  });
  if (!options_.learn_filter.empty()) {
    auto calls = LearnedCalls::open(options_.learn_filter);
    if (!calls.ok()) return calls.status();
    options_.worker.learned = [calls = calls.take()](const std::string& name) { calls->add(name); };
    log(Level::kWarning, "workers may make any system call; serve nobody whom you do not trust");
  }
  for (const gpu::ApiRecord& api : inventory_.apis) options_.worker.apis.push_back(api.name);
  pool_ = std::make_unique<WorkerPool>(loop_.get(), options_.worker,
                                       static_cast<uint32_t>(inventory_.devices.size()));
  auto groups = Cgroups::open(options_.cgroup);
  if (!groups.ok()) return groups.status();
  groups_ = groups.take();
  if (groups_ != nullptr) {
    const std::string& bounds = groups_->controllers();
    log(Level::kInfo, "each lease has a cgroup, which bounds: %s",
        bounds.empty() ? "nothing, because no controller is available" : bounds.c_str());
  }
  auto images = ImageStore::open(options_.images);
  if (!images.ok()) return images.status();
  images_ = images.take();
  PackedOptions packed;
  if (!options_.packed_control.empty()) packed.control = options_.packed_control;
  packed.user = pool_->packed_user();
  packed_ = std::make_unique<PackedServers>(loop_.get(), packed);
  return Status();
}

// Workers read the variable, and clients know the same one.
void DaemonImpl::lend_cards() {
  const char* const named = getenv(kCardsVariable);
  const std::string cards =
      lent_cards(options_.rdma, named != nullptr ? named : "",
                 with_policy(context_.sealing, front_->guard()->settings()->policy));
  if (!cards.empty()) setenv(kCardsVariable, cards.c_str(), 1);
  if (!options_.gpudirect.empty()) setenv("TENDRIL_GPUDIRECT", options_.gpudirect.c_str(), 1);
  cards_ = std::make_unique<Cards>(cards);
}

// Workers get this process' variables of NCCL. Copies between servers go from these interfaces, and
// to them where other servers hear of this one from its pool.
Status DaemonImpl::choose_data_interfaces() {
  if (options_.data_interfaces.empty()) return Status();
  auto variable = sockets_variable(options_.data_interfaces);
  if (!variable.ok()) return variable.status();
  setenv("NCCL_SOCKET_IFNAME", variable->c_str(), 1);
  data_interfaces_ = base::split_at_commas(options_.data_interfaces);
  const auto addresses = transport::local_addresses(data_interfaces_);
  const Status checked = check_data_interfaces(data_interfaces_, addresses);
  if (!checked.ok()) return checked;
  member_facts_.data_endpoint = data_endpoint(addresses, front_->listeners());
  if (member_facts_.data_endpoint.empty())
    log(Level::kWarning,
        "other servers' copies do not come by --data-interface %s: the server does not listen on "
        "%s (--listen)",
        options_.data_interfaces.c_str(), addresses.front().text.c_str());
  return Status();
}

Status DaemonImpl::prepare() {
  reception::prepare_process();
  host_ = reception::host_name();
  auto sealing = read_sealing(options_.encrypt, options_.trusted_networks);
  if (!sealing.ok()) return sealing.status();
  context_.sealing = sealing.take();
  Status status = open_front();
  if (status.ok()) status = open_gpus();
  if (status.ok())
    status =
        check_pageable_access(inventory_, front_->guard()->settings()->mode != access::Mode::kOpen,
                              options_.allow_pageable_access, options_.worker.api == "cuda");
  if (!status.ok()) return status;
  lend_cards();
  status = choose_data_interfaces();
  if (status.ok()) status = open_workers();
  if (!status.ok()) return status;
  auto arbiter = Arbiter::start(options_.sharing);
  if (!arbiter.ok()) return arbiter.status();
  arbiter_ = arbiter.take();
  ServerId server_id;
  if (!base::random_bytes(server_id.data(), server_id.size())) {
    return Status(Code::kExhausted,
                  "the kernel gives no random bytes for this server's identity; start it again "
                  "when the machine has collected some");
  }
  const bool has_pool_peers = !options_.member.pools.empty() && options_.member.has_peers;
  const PoolPeers* const of_pool = has_pool_peers ? &pool_peers_ : nullptr;
  auto peers = Peers::open(
      options_.peers_file, of_pool,
      [this](const session::Peer& peer) {
        const std::shared_ptr<const access::Settings> settings = front_->guard()->settings();
        return must_seal(with_policy(context_.sealing, settings->policy), peer, true, false);
      },
      data_interfaces_);
  if (!peers.ok()) return peers.status();
  peers_ = peers.take();
  sessions_ = std::make_unique<Sessions>(loop_.get(), pool_.get(), packed_.get(), arbiter_.get(),
                                         front_->guard(), make_book(), exported_descriptors_max(),
                                         server_id);
  sessions_->know(inventory_.facts);
  sessions_->outlast(options_.outage_ms);
  sessions_->keep_images_in(images_.get());
  sessions_->reach(peers_.get());
  bound_leases();
  bound_networks();
  monitor_ = MonitorFeed::start(loop_.get(), options_.worker);
  context_.sessions = sessions_.get();
  context_.peers = peers_.get();
  context_.server_id.assign(server_id.begin(), server_id.end());
  context_.apis = served_apis();
  context_.hello.product_version = options_.product_version;
  context_.hello.bulk_channels = kBulkMax;
  context_.list = [this](const access::Principal& viewer, const wire::ListRequest& request) {
    return list(&viewer, request);
  };
  if (!options_.page.empty()) status = serve_page();
  if (status.ok()) status = join_pool();
  if (status.ok()) status = open_reception();
  if (!status.ok()) return status;
  if (!options_.metrics.empty()) {
    status = serve_metrics();
    if (!status.ok()) return status;
  }
  pool_->start();
  loop_->post([this] { sessions_->sweep(); });
  loop_->post([this] { look_at_cards(); });
  return front_->greet();
}

base::Status DaemonImpl::serve_metrics() {
  const auto text = [this] {
    return view::metrics_text(whole_list(), sessions_->counters(), options_.metrics_dcgm);
  };
  auto metrics =
      reception::serve_metrics(options_.metrics, options_.metrics_token_file, text, front_.get());
  if (metrics.ok()) metrics_ = metrics.take();
  return metrics.status();
}

base::Status DaemonImpl::serve_page() {
  page_source_ = std::make_unique<PageSource>(sessions_.get(), front_->guard(),
                                              [this] { return whole_list(); });
  auto port = dashboard::Port::start(options_.page, page_source_.get(), front_.get());
  if (!port.ok()) return port.status();
  page_ = port.take();
  context_.page = page_.get();
  return Status();
}

std::vector<wire::ApiRecord> DaemonImpl::served_apis() const {
  std::vector<wire::ApiRecord> apis;
  for (const gpu::ApiRecord& api : inventory_.apis) apis.push_back({api.name, api.digest});
  return apis;
}

// In parts, so that others get at the sessions in between.
wire::ListReply DaemonImpl::whole_list() {
  wire::ListRequest request;
  request.limit = wire::kListPageMax;
  wire::ListReply whole = list(nullptr, request);
  bool more_leases = whole.more_leases, more_sessions = whole.more_sessions;
  while (more_leases || more_sessions) {
    request.parts =
        (more_leases ? wire::kListLeases : 0u) | (more_sessions ? wire::kListSessions : 0u);
    if (!whole.leases.empty()) request.leases_after = whole.leases.back().lease_id;
    if (!whole.sessions.empty()) request.sessions_after = whole.sessions.back().session_id;
    wire::ListReply part = list(nullptr, request);
    more_leases = part.more_leases && !part.leases.empty();
    more_sessions = part.more_sessions && !part.sessions.empty();
    std::move(part.leases.begin(), part.leases.end(), std::back_inserter(whole.leases));
    std::move(part.sessions.begin(), part.sessions.end(), std::back_inserter(whole.sessions));
  }
  return whole;
}

wire::ListReply DaemonImpl::list(const access::Principal* viewer,
                                 const wire::ListRequest& request) {
  wire::ListReply reply;
  if ((request.parts & wire::kListServer) == 0) {
    sessions_->describe(viewer, request, &reply);
    return reply;
  }
  reply.server = host_;
  reply.product_version = options_.product_version;
  reply.driver = inventory_.driver_path;
  reply.apis = served_apis();
  reply.driver_version = inventory_.driver_version;
  reply.nccl_versions = nccl_versions(inventory_.nccl);
  reply.server_id = context_.server_id;
  reply.gpudirect = sessions_->last_direct();
  for (const gpu::DeviceFacts& device : inventory_.devices) {
    wire::GpuRecord gpu;
    gpu.index = device.index;
    gpu.name = device.name;
    gpu.uuid = device.uuid;
    gpu.pci_bus_id = device.pci_bus_id;
    gpu.memory_total_bytes = device.memory_total_bytes;
    gpu.pageable_access = device.pageable_access;
    gpu.compute_capability = device.compute_capability;
    gpu.type = device.type;
    gpu.vendor = device.vendor;
    gpu.opencl_version = device.opencl_version;
    gpu.extensions = device.extensions;
    monitor_->fill(&gpu);
    reply.gpus.push_back(std::move(gpu));
  }
  sessions_->describe(viewer, request, &reply);
  return reply;
}

Status DaemonImpl::join_pool() {
  if (options_.member.pools.empty()) return Status();
  Status status = check_member(options_.member);
  if (!status.ok()) return status;
  bool others_may_come = false;
  for (const transport::Listener& listener : front_->listeners())
    others_may_come |= !listener.loopback && listener.port != 0;
  const std::string data_endpoint = std::move(member_facts_.data_endpoint);
  member_facts_ =
      facts_of_member(options_.member, host_, front_->port(), others_may_come, inventory_);
  member_facts_.data_endpoint = data_endpoint;
  member_facts_.product_version = options_.product_version;
  PoolLinkOptions options;
  options.addresses = options_.member.pools;
  if (!base::random_bytes(&options.boot, sizeof options.boot))
    return Status(Code::kExhausted, "the kernel gives no random bytes; start the server again");
  member_facts_.boot = options.boot;
  member_facts_.passage_id = context_.server_id;
  options.credentials = [this] {
    return credentials_of_member(*front_->guard()->settings(), options_.identity_folder);
  };
  const std::string lacking =
      lacking_certificate(*front_->guard()->settings(), options_.identity_folder);
  if (!lacking.empty()) log(Level::kWarning, "%s", lacking.c_str());
  auto ended = EndedFile::open(EndedFile::default_path(member_facts_.name, options_.member.pools),
                               options.boot);
  if (!ended.ok())
    log(Level::kWarning, "leases that end are not kept over a restart: %s",
        ended.status().message().c_str());
  sessions_->serve_pool(ended.ok() ? ended.take() : nullptr);
  PoolHost host;
  host.facts = [this] { return pool_facts(); };
  host.book = [this] { return sessions_->book(); };
  host.counts = [this](const std::vector<uint64_t>& leases) { return sessions_->counts(leases); };
  host.hear = [this](uint64_t term) { return sessions_->hear(term); };
  host.newest_term = [this] { return sessions_->newest_term(); };
  host.obey = [this](uint64_t term, const wire::Order& order) {
    return sessions_->obey(term, order);
  };
  host.stored = [this](uint64_t number) { sessions_->stored(number); };
  host.named = [this](bool begin, const std::vector<wire::PoolPeer>& peers) {
    if (options_.member.has_peers) pool_peers_.named(begin, peers);
  };
  auto links = PoolLinks::start(std::move(options), std::move(host));
  if (!links.ok()) return links.status();
  links_ = links.take();
  context_.pool = links_.get();
  return Status();
}

// Supervisor's thread.
void DaemonImpl::look_at_cards() {
  const Cards::Change change = cards_->look();
  for (const std::string& line : change.lines) log(Level::kInfo, "%s", line.c_str());
  if (!change.lines.empty() || change.other_cards) other_transports_ = true;
  if (change.other_cards) pool_->renew();
  loop_->after(kLookAtCardsMs, [this] { look_at_cards(); });
}

wire::ServerFacts DaemonImpl::pool_facts() {
  wire::ServerFacts facts = member_facts_;
  facts.draining = sessions_->is_draining();
  {
    std::lock_guard<std::mutex> hold(transports_mutex_);
    if (other_transports_.exchange(false)) transports_ = offered_transports(cards_->lends());
    facts.transports = transports_;
  }
  wire::ListRequest request;
  request.parts = wire::kListServer;
  facts.gpus = list(nullptr, request).gpus;
  return facts;
}

bool DaemonImpl::answers(int timeout_ms) {
  auto done = std::make_shared<std::promise<void>>();  // the task may come later than the answer
  std::future<void> answer = done->get_future();
  loop_->post([done] { done->set_value(); });
  return answer.wait_for(std::chrono::milliseconds(timeout_ms)) == std::future_status::ready;
}

void DaemonImpl::drain() {
  sessions_->drain();
  if (links_ != nullptr) links_->hurry();
}

Status DaemonImpl::open_reception() {
  reception::ReceptionOptions options = front_->reception_options();
  options.attaches_at_once =
      std::clamp(kAttachesPerGpu * static_cast<uint32_t>(inventory_.devices.size()), kAttachesMin,
                 kAttachesMax);
  options.handler = [this](const session::Peer& peer) {
    return std::make_shared<ConnectionHandler>(&context_, peer);
  };
  auto made = reception::Reception::create(&front_->listeners(), std::move(options));
  if (!made.ok()) return made.status();
  reception_ = made.take();
  return Status();
}

void DaemonImpl::serve(int stop_fd) {
  reception_->run(stop_fd);
  stop();
}

void DaemonImpl::stop() {
  if (stopped_) return;
  stopped_ = true;
  if (front_ != nullptr) front_->close();
  if (links_ != nullptr) links_->begin_stop();
  metrics_.reset();
  if (page_ != nullptr) page_->stop();
  if (monitor_ != nullptr) monitor_->stop();
  if (pool_ != nullptr) pool_->stop();
  if (packed_ != nullptr) packed_->stop();
  if (reception_ != nullptr && !reception_->stop(kStopMaxMs)) {
    // Its threads use this object. Ending the process is safer than destroying the object.
    log(Level::kWarning, "some requests did not end in time");
    (void)front_->guard()->audit().flush(kStopMaxMs);
    _exit(0);
  }
  if (loop_ != nullptr) loop_->stop();
  if (links_ != nullptr) links_->stop();
}

}  // namespace

base::Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options) {
  auto daemon = std::make_unique<DaemonImpl>(std::move(options));
  const Status status = daemon->prepare();
  if (!status.ok()) return status;
  return std::unique_ptr<Daemon>(std::move(daemon));
}

}  // namespace tendril::daemon
