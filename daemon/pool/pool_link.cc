// SPDX-License-Identifier: Apache-2.0
// See pool_link.h.
#include "daemon/pool/pool_link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kConnectMs = 3000;
// A scheduler answers within kReportEveryMs. One that is silent for longer than this is gone.
constexpr int kAnswerMs = wire::kReportEveryMs + 6000;
constexpr uint16_t kReport = uint16_t(wire::Request::kPoolReport);

bool is_same(const wire::ServerFacts& one, const wire::ServerFacts& two) {
  wire::PoolReport first, second;
  first.facts = {one};
  second.facts = {two};
  for (wire::PoolReport* const report : {&first, &second}) {
    for (wire::GpuRecord& gpu : report->facts[0].gpus) {  // they change all the time
      gpu.memory_used_bytes = 0;
      gpu.utilization_percent = gpu.temperature_c = gpu.power_mw = -1;
    }
  }
  return wire::encode(first) == wire::encode(second);
}

}  // namespace

struct PoolLinks::Link {
  session::Endpoint endpoint;
  std::thread thread;
  std::mutex mutex;
  int fd = -1;  // of the connection, for hurry(); guarded by mutex
  // Of the thread.
  uint64_t number = 0;
  bool full = true, continues = false;
  BookChanges changes;
  std::vector<wire::OrderResult> results;
  std::vector<uint64_t> watched;
  wire::ServerFacts facts;  // as they were told
  bool schedules = false;
  size_t entries_max = wire::kBookEntriesMax;
  std::string trouble = "none yet";  // as it was logged; empty: all is well
  std::atomic<bool> hurries{false};
};

PoolLinks::PoolLinks(PoolLinkOptions options, PoolHost host)
    : options_(std::move(options)),
      host_(std::move(host)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      standing_(options_.addresses, base::now_ns()) {}

base::Result<std::unique_ptr<PoolLinks>> PoolLinks::start(PoolLinkOptions options, PoolHost host) {
  std::unique_ptr<PoolLinks> links(new PoolLinks(std::move(options), std::move(host)));
  if (!links->stop_.valid())
    return base::errno_status(Code::kExhausted, "cannot begin to speak to the pool", errno);
  for (const std::string& address : links->options_.addresses) {
    auto endpoint = session::parse_endpoint(address);
    if (!endpoint.ok()) return endpoint.status();
    links->links_.push_back(std::make_unique<Link>());
    links->links_.back()->endpoint = endpoint.take();
  }
  for (const std::unique_ptr<Link>& link : links->links_)
    link->thread = std::thread([raw = links.get(), at = link.get()] { raw->run(at); });
  return links;
}

PoolLinks::~PoolLinks() { stop(); }

void PoolLinks::begin_stop() {
  stopping_ = true;
  eventfd_write(stop_.get(), 1);
  hurry();
}

void PoolLinks::stop() {
  begin_stop();
  for (const std::unique_ptr<Link>& link : links_) {
    if (link->thread.joinable()) link->thread.join();
  }
}

Status PoolLinks::may_lease() {
  std::lock_guard<std::mutex> hold(mutex_);
  return standing_.may_lease(base::now_ns());
}

// A link that waits for its answer sees the end of its connection, and begins again with
// everything.
void PoolLinks::hurry() {
  for (const std::unique_ptr<Link>& link : links_) {
    std::lock_guard<std::mutex> hold(link->mutex);
    link->hurries = true;
    if (link->fd >= 0) ::shutdown(link->fd, SHUT_RDWR);
  }
}

// True: the server still serves.
bool PoolLinks::nap(int ms) {
  pollfd stop = {stop_.get(), POLLIN, 0};
  if (!stopping_) poll(&stop, 1, ms);
  return !stopping_;
}

// Each trouble is logged once, until another one or the end of it comes.
void PoolLinks::note_trouble(Link* link, const std::string& trouble) {
  if (link->trouble == trouble || stopping_) return;
  link->trouble = trouble;
  if (trouble.empty())
    log(Level::kInfo, "%s schedules for this server", link->endpoint.text.c_str());
  else
    log(Level::kWarning, "the pool: %s", base::printable(trouble, 400).c_str());
}

void PoolLinks::run(Link* link) {
  pthread_setname_np(pthread_self(), "pool-link");
  // Thousands of servers that lost one scheduler must not all come back in one moment.
  std::mt19937 random(std::random_device{}());
  while (!stopping_) {
    session::ConnectOptions options;
    Status status;
    if (options_.credentials) {
      auto made = options_.credentials();
      status = made.status();
      if (made.ok()) options = made.take();
    }
    if (status.ok()) {
      options.timeout_ms = kConnectMs;
      options.answer_ms = kConnectMs;
      auto control = session::Control::connect(link->endpoint, options);
      status = control.status();
      if (control.ok()) {
        talk(link, control->get());
        const std::lock_guard<std::mutex> hold(link->mutex);
        link->fd = -1;
      }
    }
    if (!status.ok()) note_trouble(link, status.message());
    if (link->hurries.exchange(false)) continue;
    const int more = static_cast<int>(random() % static_cast<uint32_t>(options_.retry_ms));
    if (!nap(options_.retry_ms + more)) return;
  }
}

void PoolLinks::talk(Link* link, session::Control* control) {
  {
    std::lock_guard<std::mutex> hold(link->mutex);
    link->fd = control->fd();
  }
  link->number = 0;
  link->full = true;
  link->continues = false;
  link->changes.forget();
  link->results.clear();  // another scheduler does not know them, and this one asks again
  link->facts = wire::ServerFacts();
  link->schedules = control->server_hello().schedules;
  if (control->server_hello().pool.empty()) {
    note_trouble(link, link->endpoint.text +
                           " is a server and no pool's scheduler; start one there with 'tendril "
                           "pool serve', or correct --pool");
    nap(wire::kReportEveryMs);
    return;
  }
  while (!stopping_) {
    auto orders = report(link, control);
    if (!orders.ok()) {
      if (!link->hurries) note_trouble(link, orders.status().message());
      return;
    }
    take(link, *orders);
    // A standby answers at once.
    if (!orders->schedules && !nap(wire::kReportEveryMs / 2)) return;
  }
}

base::Result<wire::PoolOrders> PoolLinks::report(Link* link, session::Control* control) {
  wire::PoolReport report;
  report.boot = options_.boot;
  report.number = ++link->number;
  report.newest_term = host_.newest_term();
  wire::ServerFacts facts = link->facts;
  // A gang waits for what orders came to. Facts can wait: asking GPUs for them takes milliseconds.
  if (link->results.empty() || link->number == 1) {
    facts = host_.facts();
    if (link->number == 1 || !is_same(facts, link->facts)) report.facts = {facts};
  }
  if (link->schedules) {
    if (link->full && !link->continues) link->changes.forget();
    const std::vector<wire::BookEntry> book = host_.book();
    report.entries = link->changes.take(book, base::now_ns(), &report.more, link->entries_max);
    if (!link->full) report.uses = uses_of(book, report.entries);
    if (!link->watched.empty()) report.counts = host_.counts(link->watched);
    report.full = link->full;
    report.results = link->results;
  }
  std::vector<uint8_t> body = wire::encode(report);
  if (body.empty()) {  // on the next connection with fewer of them
    link->entries_max = std::max<size_t>(1, link->entries_max / 4);
    return Status(Code::kExhausted, "the report is too long for one message; it comes in parts");
  }
  auto answer = control->other(kReport, body, kAnswerMs);
  if (!answer.ok()) return answer.status();
  wire::PoolOrders orders;
  if (!wire::decode(answer->data(), answer->size(), &orders)) {
    return Status(Code::kMismatch, link->endpoint.text +
                                       " sent orders that this server does not understand; install "
                                       "the same version on both");
  }
  link->facts = std::move(facts);
  if (link->schedules) {
    link->results.clear();
    link->continues = link->full && report.more;
    link->full = link->continues;
  }
  return orders;
}

void PoolLinks::take(Link* link, const wire::PoolOrders& orders) {
  if (stopping_) return;
  if (!orders.schedules) {
    link->schedules = false;
    link->trouble = "it stands by";  // not worth a line, but its end is
    return;
  }
  const Status heard = host_.hear(orders.term);
  if (!heard.ok()) {
    note_trouble(link, link->endpoint.text + ": " + heard.message());
    return;
  }
  note_trouble(link, std::string());
  {
    std::lock_guard<std::mutex> hold(mutex_);
    standing_.heard(link->endpoint.text, orders, base::now_ns());
    for (const wire::Order& order : orders.orders) {
      if (order.kind == wire::OrderKind::kDrain || order.kind == wire::OrderKind::kUndrain)
        standing_.set_drained(order.kind == wire::OrderKind::kDrain);
    }
    if (!standing_.policy_error().ok()) note_trouble(link, standing_.policy_error().message());
  }
  if (!link->schedules || orders.wants_full) {
    link->schedules = link->full = true;
    link->continues = false;
  }
  link->watched = orders.watched;
  // Before a lease of theirs can be used.
  if (orders.peers_begin || !orders.peers.empty()) host_.named(orders.peers_begin, orders.peers);
  for (const wire::Order& order : orders.orders)
    link->results.push_back(host_.obey(orders.term, order));
  if (orders.ended_stored != 0) host_.stored(orders.ended_stored);
}

}  // namespace tendril::daemon
