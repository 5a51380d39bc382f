// SPDX-License-Identifier: Apache-2.0
// See probe.h.
#include "daemon/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "daemon/child_process.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

// A driver takes many seconds to initialise eight GPUs without persistence mode.
constexpr int kProbeMaxMs = 120'000;

std::string last_line(const std::string& text) {
  std::string line, last;
  for (char c : text + "\n") {
    if (c != '\n') {
      line += c;
    } else if (!line.empty()) {
      last = line;
      line.clear();
    }
  }
  return printable(last, 500);
}

base::Result<gpu::Inventory> probe_as(const WorkerOptions& options,
                                      const std::vector<std::string>& more) {
  std::vector<std::string> arguments = worker_arguments(options, observer_slot(options));
  arguments.insert(arguments.begin(), {"--probe", "--api", options.api});
  if (!options.nccl_place.empty())
    arguments.insert(arguments.end(), {"--nccl", options.nccl_place});
  arguments.insert(arguments.end(), more.begin(), more.end());
  base::Result<ChildOutput> output = run_child(options.executable, arguments, kProbeMaxMs);
  if (!output.ok()) return output.status();
  if (!WIFEXITED(output->wait_status) || WEXITSTATUS(output->wait_status) != 0) {
    const std::string line = last_line(output->text);
    return Status(
        Code::kUnavailable,
        line.empty() ? "the probe of the GPUs " + describe_exit(output->wait_status) : line);
  }
  return gpu::inventory_from_text(output->text);
}

}  // namespace

base::Result<std::string> find_worker_executable(const std::string& asked) {
  std::vector<std::string> candidates;
  const char* const environment = getenv("TENDRIL_WORKER");
  if (!asked.empty()) {
    candidates.push_back(asked);
  } else if (environment != nullptr && *environment != 0) {
    candidates.push_back(environment);
  } else {
    char self[PATH_MAX] = {};
    const ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
    const std::string path = got > 0 ? std::string(self, static_cast<size_t>(got)) : "";
    const std::string folder = path.substr(0, path.rfind('/'));
    candidates.push_back(folder + "/tendril-worker");
    candidates.push_back(folder + "/../libexec/tendril/tendril-worker");
  }
  std::string tried;
  for (const std::string& candidate : candidates) {
    char resolved[PATH_MAX];
    if (access(candidate.c_str(), X_OK) == 0 && realpath(candidate.c_str(), resolved) != nullptr) {
      return std::string(resolved);
    }
    tried += (tried.empty() ? "" : " and ") + candidate;
  }
  return Status(Code::kNotFound,
                "cannot find the worker executable (tried " + tried + "); name it with --worker");
}

base::Result<gpu::Inventory> probe(const IsolationWish& wish, WorkerOptions* options) {
  auto chosen = choose_isolation(wish, user_count(*options));
  if (!chosen.ok()) return chosen.status();
  options->isolation = {};
  // The first run is outside of the sandbox. Under root it also creates the device nodes.
  base::Result<gpu::Inventory> inventory = probe_as(*options, {"--bare"});
  if (!inventory.ok()) return inventory;
  options->isolation = *chosen;
  base::Result<gpu::Inventory> confined = probe_as(*options, {});
  if (confined.ok() && confined->devices.size() == inventory->devices.size()) {
    const bool weak = chosen->kind == Isolation::Kind::kWeak;
    log(weak ? Level::kWarning : Level::kInfo, "%s", describe(*chosen).c_str());
    return confined;
  }
  const std::string why = "the driver does not work in the sandbox (" +
                          (confined.ok() ? "it sees fewer GPUs" : confined.status().message()) +
                          ")";
  // What an administrator named is not replaced by something else.
  if (!wish.weak || wish.user != "auto") return refuse_weak_isolation(why);
  options->isolation = {};
  log(Level::kWarning, "%s: %s", describe(options->isolation).c_str(), why.c_str());
  return inventory;
}

std::shared_ptr<MonitorFeed> MonitorFeed::start(EventLoop* loop, const WorkerOptions& options) {
  auto feed = std::make_shared<MonitorFeed>();
  feed->loop_ = loop;
  feed->library_was_named_ = !options.monitor.empty();
  loop->post([feed, options] {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    feed->output_.reset(ends[0]);
    const base::Fd writer(ends[1]);
    fcntl(writer.get(), F_SETFL, 0);
    std::vector<std::string> arguments = worker_arguments(options, observer_slot(options));
    arguments.insert(arguments.begin(), "--monitor");
    if (!options.monitor.empty())
      arguments.insert(arguments.end(), {"--monitor-library", options.monitor});
    base::Result<Child> child = start_child(options.executable, arguments, writer.get(), -1);
    if (!child.ok()) return;
    std::lock_guard<std::mutex> hold(feed->mutex_);
    feed->child_ = child.take();
    const Status output_watched =
        feed->loop_->watch(feed->output_.get(), EPOLLIN, [feed](uint32_t) { feed->take_output(); });
    const Status exit_watched =
        feed->loop_->watch(feed->child_.pidfd.get(), EPOLLIN, [feed](uint32_t) {
          std::lock_guard<std::mutex> inner(feed->mutex_);
          feed->loop_->unwatch(feed->child_.pidfd.get());
          reap_child(&feed->child_);
          feed->samples_.clear();
        });
    if (!output_watched.ok() || !exit_watched.ok()) kill_child(feed->child_);
  });
  return feed;
}

void MonitorFeed::take_output() {
  char buffer[4096];
  const ssize_t got = read(output_.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    loop_->unwatch(output_.get());
    return;
  }
  std::lock_guard<std::mutex> hold(mutex_);
  for (ssize_t i = 0; i < got; ++i) {
    if (buffer[i] != '\n') {
      if (partial_.size() < 256) partial_ += buffer[i];
      continue;
    }
    gpu::Sample sample;
    if (partial_.rfind(gpu::kNoSamples, 0) == 0) {
      log(library_was_named_ ? Level::kWarning : Level::kInfo,
          "temperature, power and utilisation are not known: %s",
          printable(partial_.substr(strlen(gpu::kNoSamples)), 200).c_str());
    } else if (gpu::sample_from_line(partial_, &sample)) {
      const auto same =
          std::find_if(samples_.begin(), samples_.end(), [&](const gpu::Sample& other) {
            return gpu::same_bus_id(other.pci_bus_id, sample.pci_bus_id);
          });
      if (same != samples_.end()) {
        *same = sample;
      } else if (samples_.size() < 1024) {
        samples_.push_back(sample);
      }
    }
    partial_.clear();
  }
}

void MonitorFeed::fill(wire::GpuRecord* gpu) {
  std::lock_guard<std::mutex> hold(mutex_);
  for (const gpu::Sample& sample : samples_) {
    if (!gpu::same_bus_id(sample.pci_bus_id, gpu->pci_bus_id)) continue;
    gpu->utilization_percent = sample.utilization_percent;
    gpu->temperature_c = sample.temperature_c;
    gpu->power_mw = sample.power_mw;
  }
}

void MonitorFeed::stop() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (child_.pidfd.valid()) kill_child(child_);
}

}  // namespace tendril::daemon
