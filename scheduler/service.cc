// SPDX-License-Identifier: Apache-2.0
// See service.h.
#include "scheduler/service.h"

#include <unistd.h>

#include "config/text.h"
#include "config/zone_file.h"
#include "dashboard/port.h"
#include "pool/policy/policy_file.h"
#include "reception/local_files.h"
#include "reception/log.h"
#include "reception/metrics_port.h"
#include "reception/reception.h"
#include "scheduler/core.h"
#include "scheduler/handler.h"
#include "scheduler/history_reader.h"
#include "scheduler/page_source.h"
#include "store/open.h"
#include "view/pool_metrics.h"

namespace tendril::scheduler {
namespace {

using base::Code;
using base::Status;
using reception::Level;
using reception::log;

constexpr int kStopMaxMs = 5000;
constexpr char kUnnamedPool[] = "pool";

// The rules of a time zone, from this system's files.
base::Result<pool::Zone> system_zone(const std::string& name) {
  if (name.empty() || name == "UTC") return pool::only_utc("UTC");
  auto bytes = config::read_zone_file(name);
  if (!bytes.ok()) return bytes.status();
  return pool::parse_zone(*bytes, name);
}

class ServiceImpl final : public Service {
 public:
  explicit ServiceImpl(ServiceOptions options) : options_(std::move(options)) {}
  ~ServiceImpl() override { stop(); }

  Status prepare(std::unique_ptr<store::Store> opened);
  void serve(int stop_fd) override {
    reception_->run(stop_fd);
    stop();
  }
  Status reload() override;
  uint16_t port() const override { return front_->port(); }
  std::vector<std::string> addresses() const override { return front_->addresses(); }
  uint16_t metrics_port() const override { return metrics_ == nullptr ? 0 : metrics_->port(); }
  uint16_t page_port() const override { return page_ == nullptr ? 0 : page_->port(); }

 private:
  // The text of the policy file without errors; `policy` if it is not null.
  base::Result<std::string> read_policy(pool::PoolPolicy* policy = nullptr) const;
  std::string endpoint() const;
  Status start_reception();
  Status start_metrics();
  Status start_page();
  std::string metrics_text();
  void stop();

  ServiceOptions options_;
  std::unique_ptr<reception::Front> front_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<StoreThread> store_;
  HistoryReader history_;
  HandlerContext context_;
  std::unique_ptr<http::Server> metrics_;
  std::unique_ptr<PageSource> page_source_;
  std::unique_ptr<dashboard::Port> page_;
  std::unique_ptr<reception::Reception> reception_;
  bool stopped_ = false;
};

base::Result<std::string> ServiceImpl::read_policy(pool::PoolPolicy* policy) const {
  if (options_.policy_file.empty()) return std::string();
  base::Result<std::string> text = config::read_file(options_.policy_file);
  if (!text.ok()) return text;
  auto parsed = pool::parse_pool_policy(*text, options_.policy_file,
                                        options_.zones ? options_.zones : system_zone);
  if (!parsed.ok()) return parsed.status();
  if (policy != nullptr) *policy = parsed.take();
  return text;
}

std::string ServiceImpl::endpoint() const {
  std::string text = options_.advertise.empty() ? front_->host() : options_.advertise;
  const bool bare = text.find(':') == std::string::npos || text.back() == ']';
  if (bare) text += ":" + std::to_string(front_->port());
  return text;
}

Status ServiceImpl::prepare(std::unique_ptr<store::Store> opened) {
  reception::prepare_process();
  pool::PoolPolicy written;
  auto policy = read_policy(&written);
  if (!policy.ok()) return policy.status();
  if (opened == nullptr) {
    std::string address = options_.store.empty() ? written.store : options_.store;
    if (address.empty()) address = "sqlite:" + reception::default_state_folder() + "/pool.db";
    auto store = store::open_store(address);
    if (!store.ok()) return store.status();
    opened = store.take();
  }
  auto front = reception::Front::open(options_.front);
  if (!front.ok()) return front.status();
  front_ = front.take();
  CoreOptions core;
  core.pool = options_.front.pool.empty() ? kUnnamedPool : options_.front.pool;
  core.scheduler = options_.name.empty() ? front_->host() : options_.name;
  core.endpoint = endpoint();
  core.policy = policy.take();
  core.zones = options_.zones ? options_.zones : system_zone;
  // etcd holds its data in memory, and two gigabytes of it by default.
  if (opened->address().rfind("etcd", 0) == 0) {
    core.history.second_bytes = 32ull << 20;
    core.history.minute_bytes = 192ull << 20;
  }
  StoreThreadOptions timing = options_.timing;
  timing.holder = Core::holder_text(core.scheduler, core.endpoint);
  context_.pool = core.pool;
  context_.product_version = options_.product_version;
  core_ = std::make_unique<Core>(std::move(core), front_->guard());
  store_ = std::make_unique<StoreThread>(std::move(opened), timing, core_.get());
  context_.core = core_.get();
  context_.front = front_.get();
  Status status = start_page();
  if (status.ok()) status = start_reception();
  if (status.ok()) status = start_metrics();
  if (!status.ok()) return status;
  log(Level::kInfo, "the store is %s", store_->address().c_str());
  core_->start(store_.get(), &history_);
  history_.start(store_->store());
  store_->start();
  return front_->greet();
}

Status ServiceImpl::start_reception() {
  reception::ReceptionOptions options = front_->reception_options();
  options.handler = [this](const session::Peer& peer) {
    return std::make_shared<Handler>(&context_, peer);
  };
  auto made = reception::Reception::create(&front_->listeners(), std::move(options));
  if (made.ok()) reception_ = made.take();
  return made.status();
}

Status ServiceImpl::start_metrics() {
  if (options_.metrics.empty()) return Status();
  const auto text = [this] { return metrics_text(); };
  auto server =
      reception::serve_metrics(options_.metrics, options_.metrics_token_file, text, front_.get());
  if (server.ok()) metrics_ = server.take();
  return server.status();
}

Status ServiceImpl::start_page() {
  if (options_.page.empty()) return Status();
  page_source_ = std::make_unique<PageSource>(core_.get());
  auto port = dashboard::Port::start(options_.page, page_source_.get(), front_.get());
  if (!port.ok()) return port.status();
  page_ = port.take();
  context_.page = page_.get();
  return Status();
}

std::string ServiceImpl::metrics_text() {
  const Core::Standing standing = core_->standing();
  view::PoolProcess process;
  process.pool = core_->options().pool;
  process.scheduler = core_->options().scheduler;
  process.version = options_.product_version;
  process.leads = standing.schedules;
  process.term = standing.term;
  process.store_failures = store_->failures();
  return view::pool_metrics_text(process, standing.schedules ? core_->figures() : std::string());
}

Status ServiceImpl::reload() {
  auto policy = read_policy();
  Status status = policy.status();
  if (status.ok()) status = front_->reload();
  if (!status.ok()) {
    log(Level::kError, "nothing was changed: %s", status.message().c_str());
    return status;
  }
  log(Level::kInfo, "read credentials, policy and limits again");
  if (!policy->empty()) core_->apply(policy.take());
  return status;
}

void ServiceImpl::stop() {
  if (stopped_) return;
  stopped_ = true;
  metrics_.reset();  // its thread asks the others, as the page's does
  if (page_ != nullptr) page_->stop();
  if (front_ != nullptr) front_->close();
  history_.stop();
  if (core_ != nullptr) core_->stop();
  if (store_ != nullptr) store_->stop();
  if (reception_ != nullptr && !reception_->stop(kStopMaxMs)) {
    // Its threads use this object. Ending the process is safer than destroying the object.
    log(Level::kWarning, "some requests did not end in time");
    _exit(0);
  }
}

}  // namespace

base::Result<std::unique_ptr<Service>> Service::start(ServiceOptions options,
                                                      std::unique_ptr<store::Store> opened) {
  auto service = std::make_unique<ServiceImpl>(std::move(options));
  const Status status = service->prepare(std::move(opened));
  if (!status.ok()) return status;
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace tendril::scheduler
