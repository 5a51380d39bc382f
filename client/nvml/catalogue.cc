// SPDX-License-Identifier: Apache-2.0
// The state behind libnvidia-ml: reference count, device list and the control connections that feed
// it. It has two locks. `g_data` guards what callers read, and is never held across a system call.
// `g_refresh` guards the connections. A caller that does not get it at once takes the values of the
// last refresh. All state lives behind pointers, so that nothing is constructed or destroyed with
// the library.
#include "client/nvml/catalogue.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/lock.h"
#include "client/common/log.h"
#include "session/control/attach.h"

namespace tendril::client::nvml {
namespace {

constexpr int kTimeoutMs = 3000;
constexpr uint64_t kRetryMs = 1000;  // between attempts to reach a server that did not answer

struct Link {
  std::unique_ptr<session::Control> control;
  uint64_t retry_at_us = 0;
};

// One link for each distinct endpoint. `link_of` has one entry for each of configuration.servers.
struct Links {
  Configuration configuration;
  std::vector<std::string> endpoints;
  std::vector<Link> links;
  std::vector<size_t> link_of;
};

struct Data {
  std::vector<Device> devices;
  DriverFacts driver;
};

constinit base::Lock g_data;
constinit base::Lock g_refresh;
Data* g_seen = nullptr;    // under g_data
unsigned g_count = 0;      // under g_data: nvmlInit less nvmlShutdown
Links* g_links = nullptr;  // under g_refresh
constinit std::atomic<uint64_t> g_refreshed_us{0};
// Descriptors of the connections. A forked child needs them, because it cannot trust what g_refresh
// guards.
constinit std::atomic<int> g_descriptors[kSlicesMax] = {};  // fd + 1; 0: none

// The device handles are addresses in this array. Nothing is stored in it. No other pointer of the
// program can equal a handle.
char g_handles[kSlicesMax];

void before_fork() { g_data.lock(); }
void after_fork_in_parent() { g_data.unlock(); }
void after_fork_in_child() {
  g_refresh.reset_after_fork();
  g_links =
      nullptr;  // leaked: another thread of the parent may have been in the middle of changing it
  for (auto& descriptor : g_descriptors) {
    int fd = descriptor.exchange(0) - 1;
    if (fd >= 0) close(fd);
  }
  g_refreshed_us.store(0);
  g_data.unlock();
}

void register_fork_handlers() {
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true))
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int note_libcuda(dl_phdr_info* info, size_t, void* found) {
  const char* slash = strrchr(info->dlpi_name, '/');
  const char* name = slash == nullptr ? info->dlpi_name : slash + 1;
  if (strncmp(name, "libcuda.so", 10) == 0) *static_cast<bool*>(found) = true;
  return 0;
}

Self self() {
  Self self;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) self.host = host;
  self.pid = static_cast<uint32_t>(getpid());
  dl_iterate_phdr(note_libcuda, &self.uses_cuda);
  return self;
}

base::Status open_links() {
  if (g_links != nullptr) return {};
  base::Result<Configuration> configuration = config::load_configuration();
  if (!configuration.ok()) return configuration.status();
  auto links = std::make_unique<Links>();
  links->configuration = configuration.take();
  if (links->configuration.servers.size() > kSlicesMax)
    links->configuration.servers.resize(kSlicesMax);
  for (const Server& server : links->configuration.servers) {
    size_t at = 0;
    while (at < links->endpoints.size() && links->endpoints[at] != server.endpoint) ++at;
    if (at == links->endpoints.size()) links->endpoints.push_back(server.endpoint);
    links->link_of.push_back(at);
  }
  links->links.resize(links->endpoints.size());
  g_links = links.release();
  return {};
}

void drop(size_t at) {
  g_descriptors[at].store(0);
  g_links->links[at].control.reset();
}

base::Status connect(size_t at) {
  base::Result<session::Endpoint> endpoint = session::parse_endpoint(g_links->endpoints[at]);
  if (!endpoint.ok()) return endpoint.status();
  session::ConnectOptions options;
  options.token = g_links->configuration.token;
  options.timeout_ms = kTimeoutMs;
  auto control = session::Control::connect(*endpoint, options);
  if (!control.ok()) return control.status();
  g_links->links[at].control = control.take();
  g_descriptors[at].store(g_links->links[at].control->fd() + 1);
  return {};
}

// The server may have closed an open connection because it was idle, or by a restart. Then a new
// connection is tried.
base::Result<wire::ListReply> list_of(size_t at) {
  Link& link = g_links->links[at];
  if (link.control != nullptr) {
    base::Result<wire::ListReply> list = link.control->list();
    if (list.ok()) return list;
    drop(at);
  }
  const uint64_t now = base::now_us();
  if (now < link.retry_at_us)
    return base::Status(base::Code::kUnavailable,
                        g_links->endpoints[at] + " did not answer a moment ago");
  base::Status status = connect(at);
  if (status.ok()) {
    base::Result<wire::ListReply> list = link.control->list();
    if (list.ok()) return list;
    status = list.status();
    drop(at);
  }
  link.retry_at_us = base::now_us() + kRetryMs * 1000;
  return status;
}

// Asks every server. `failure`: the error of the first server that failed.
std::vector<ServerView> ask_all(base::Status* failure) {
  std::vector<ServerView> of_link(g_links->links.size());
  for (size_t at = 0; at < of_link.size(); ++at) {
    base::Result<wire::ListReply> list = list_of(at);
    of_link[at].reachable = list.ok();
    if (list.ok()) {
      of_link[at].list = list.take();
    } else if (failure->ok()) {
      *failure = list.status();
    }
  }
  std::vector<ServerView> views;
  for (size_t at : g_links->link_of) views.push_back(of_link[at]);
  return views;
}

DriverFacts oldest_driver(const std::vector<ServerView>& views) {
  DriverFacts oldest;
  for (const ServerView& view : views) {
    if (view.list.driver_version == 0) continue;
    if (oldest.cuda_version != 0 && oldest.cuda_version <= view.list.driver_version) continue;
    oldest.cuda_version = view.list.driver_version;
    oldest.library = view.list.driver;
  }
  return oldest;
}

// With leases every server must answer, because a missing one would renumber the devices. Otherwise
// one answer is enough.
base::Result<Data> take_data() {
  base::Status failure;
  std::vector<ServerView> views = ask_all(&failure);
  bool any = false;
  for (const ServerView& view : views) any = any || view.reachable;
  if (!failure.ok() && (!any || g_links->configuration.leased()))
    return config::with_hint(g_links->configuration, failure);
  if (!failure.ok()) log_once(LogLevel::kWarning, "%s", failure.message().c_str());
  base::Result<std::vector<Device>> devices = map_devices(g_links->configuration, views, self());
  if (!devices.ok()) return devices.status();
  Data data;
  data.devices = devices.take();
  data.driver = oldest_driver(views);
  return data;
}

void show(Data data) {
  Data* fresh = new Data(std::move(data));
  Data* old;
  {
    base::Locked hold(g_data);
    old = g_seen;
    g_seen = fresh;
  }
  delete old;
}

// Known devices stay visible, but their values cannot be trusted any more.
void mark_lost() {
  base::Locked hold(g_data);
  if (g_seen == nullptr) return;
  for (Device& device : g_seen->devices) device.lost = true;
}

void refresh_if_older(uint64_t age_us) {
  if (base::now_us() - g_refreshed_us.load() < age_us || !g_refresh.try_lock()) return;
  if (is_started() && base::now_us() - g_refreshed_us.load() >= age_us) {
    base::Status status = open_links();
    base::Result<Data> data = status.ok() ? take_data() : base::Result<Data>(status);
    if (data.ok()) {
      show(data.take());
    } else {
      log_once(LogLevel::kWarning, "%s", data.status().message().c_str());
      mark_lost();
    }
    g_refreshed_us.store(base::now_us());
  }
  g_refresh.unlock();
}

nvmlReturn_t first_start() {
  base::Status status = open_links();
  base::Result<Data> data = status.ok() ? take_data() : base::Result<Data>(status);
  if (data.ok()) {
    show(data.take());
    g_refreshed_us.store(base::now_us());
    return NVML_SUCCESS;
  }
  log_once(LogLevel::kError, "NVML shows no GPU: %s", data.status().message().c_str());
  delete g_links;
  g_links = nullptr;
  return data.status().code() == base::Code::kMismatch ? NVML_ERROR_LIB_RM_VERSION_MISMATCH
                                                       : NVML_ERROR_DRIVER_NOT_LOADED;
}

}  // namespace

nvmlReturn_t start() {
  register_fork_handlers();
  base::Locked hold(g_refresh);
  if (!is_started()) {
    nvmlReturn_t result = first_start();
    if (result != NVML_SUCCESS) return result;
  }
  base::Locked count(g_data);
  ++g_count;
  return NVML_SUCCESS;
}

nvmlReturn_t stop() {
  base::Locked hold(g_refresh);
  Data* old = nullptr;
  {
    base::Locked count(g_data);
    if (g_count == 0) return NVML_ERROR_UNINITIALIZED;
    if (--g_count != 0) return NVML_SUCCESS;
    old = g_seen;
    g_seen = nullptr;
  }
  delete old;
  for (size_t at = 0; g_links != nullptr && at < g_links->links.size(); ++at) drop(at);
  delete g_links;
  g_links = nullptr;
  return NVML_SUCCESS;
}

namespace {

// What the program has done by its driver library is on its way to the servers. Waits until it is
// there. Nothing, where that library is not loaded or is not ours.
void settle_driver() {
  // structure: allow dlopen: finds our own library beside this one, if the program has loaded it
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (driver == nullptr) return;
  using GetTable = int (*)(const void**, const void*);
  const auto get = reinterpret_cast<GetTable>(dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  if (get != nullptr && get(&table, "tendril counters") == 0 && table != nullptr) {
    const auto* words = static_cast<void* const*>(table);
    if (reinterpret_cast<uintptr_t>(words[0]) >= 3 * sizeof words[0])
      reinterpret_cast<void (*)()>(words[2])();
  }
  dlclose(driver);
}

}  // namespace

bool is_started() {
  base::Locked hold(g_data);
  return g_count != 0;
}

nvmlReturn_t device_at(nvmlDevice_t handle, Values values, Device* device) {
  if (values == Values::kNow) settle_driver();
  if (values != Values::kKnown) refresh_if_older(values == Values::kNow ? 0 : kRefreshMs * 1000);
  base::Locked hold(g_data);
  if (g_count == 0 || g_seen == nullptr) return NVML_ERROR_UNINITIALIZED;
  auto at = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(g_handles);
  if (at >= g_seen->devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = g_seen->devices[at];
  return NVML_SUCCESS;
}

nvmlReturn_t all_devices(std::vector<Device>* devices) {
  base::Locked hold(g_data);
  if (g_count == 0 || g_seen == nullptr) return NVML_ERROR_UNINITIALIZED;
  *devices = g_seen->devices;
  return NVML_SUCCESS;
}

nvmlDevice_t handle_of(uint32_t index) { return reinterpret_cast<nvmlDevice_t>(&g_handles[index]); }

DriverFacts driver_facts() {
  base::Locked hold(g_data);
  return g_seen == nullptr ? DriverFacts() : g_seen->driver;
}

}  // namespace tendril::client::nvml
