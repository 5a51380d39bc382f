// SPDX-License-Identifier: Apache-2.0
// `tendril doctor`: checks the way to each server step by step (name, route, port, version,
// authentication, latency, driver, transport, bandwidth). For the first step that fails it says
// what is wrong and what to do. The last two steps take a small slice and give it back.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "api/nccl/version.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/local/this_machine.h"
#include "cli/servers.h"
#include "cli/several/passages.h"
#include "cli/words/width.h"
#include "config/configuration.h"
#include "config/quantity.h"
#include "daemon/child_process.h"
#include "session/control/background_trial.h"
#include "session/control/serve.h"
#include "session/lane/lane.h"
#include "view/json.h"
#include "view/table.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kEndMs = 2'000;     // of a session
constexpr int kTrialMs = 30'000;  // of a fabric, which a program does not wait for

constexpr int kPings = 100;
// Large enough for an empty context and the measurement's buffers on GPUs of 8 GB and more. Small
// enough that it is usually free.
constexpr uint32_t kTestShare = config::kWholeGpu / 10;
constexpr int kMeasureMaxMs = 60'000;

// Of a session that calls nothing.
struct NoEvents : session::LaneEvents {
  bool accepts_delivery(uint64_t, uint64_t) override { return false; }
  void delivered(uint64_t, uint64_t) override {}
  void output(const char*, size_t) override {}
  void callback(const uint8_t*, size_t) override {}
  bool awaits_callbacks() override { return false; }
  void sticky_error(int32_t, const char*, size_t) override {}
  void memory_written() override {}
  void lost(const base::Status&) override {}
};

class Checkup {
 public:
  Checkup(const session::Endpoint& endpoint, const session::ConnectOptions& connect,
          const DoctorOptions& options)
      : endpoint_(endpoint), connect_(connect), options_(options) {
    report_.server = endpoint.text;
  }

  view::DoctorReport run() {
    check_client();
    if (endpoint_.unix_path.empty() && (!check_name() || !check_port())) return report_;
    if (!check_hello()) return report_;
    check_latency();
    if (!check_driver() || options_.no_attach) return report_;
    if (is_opencl_) check_loaders_file();
    if (check_transport() && !is_opencl_) check_bandwidth();
    return report_;
  }
  // After `run`: the versions of NCCL that the server lends, and whether it can be asked more.
  const std::vector<uint32_t>& nccl_versions() const { return nccl_versions_; }
  std::optional<Answering> answering() const {
    if (control_ == nullptr || server_id_.empty()) return {};
    return Answering{endpoint_.text, server_id_, control_.get()};
  }

 private:
  bool step(const char* name, bool good, const std::string& detail) {
    report_.steps.push_back({name, good ? "ok" : "failed", detail, {}});
    if (!good) report_.healthy = false;
    return good;
  }
  void figure(const char* name, double value) {
    report_.steps.back().figures.emplace_back(name, value);
  }
  void warn(const char* name, const std::string& detail) {
    report_.steps.push_back({name, "warning", detail, {}});
  }

  // What the server lends.
  void choose_api(wire::AttachRequest* request) const {
    request->api = is_opencl_ ? kOpenclName : kApiName;
    request->api_digest = is_opencl_ ? opencl_digest() : schema_digest();
  }
  void check_client();
  void check_loaders_file();
  bool check_name();
  bool check_port();
  bool check_hello();
  std::string proof() const;
  void check_latency();
  bool check_driver();
  void check_nccl(const wire::ListReply& list);
  bool check_transport();
  void check_bandwidth();
  void check_gpudirect();
  int connect_error(const addrinfo& info, double* took_ms);

  const session::Endpoint endpoint_;
  const session::ConnectOptions connect_;
  const DoctorOptions options_;
  view::DoctorReport report_;
  std::vector<uint32_t> nccl_versions_;
  std::string server_id_;
  bool is_opencl_ = false;
  std::string client_;  // the folder of the client library; empty: it is missing
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses_{nullptr, freeaddrinfo};
  std::unique_ptr<session::Control> control_;
};

// Without it no program reaches a GPU, however well the servers are.
void Checkup::check_client() {
  auto client = client_directory();
  if (client.ok()) client_ = client.take();
  step("client library", client.ok(), client.ok() ? client_ : client.status().message());
}

bool Checkup::check_name() {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const uint64_t begin_us = base::now_us();
  const int error =
      getaddrinfo(endpoint_.host.c_str(), std::to_string(endpoint_.port).c_str(), &hints, &found);
  if (error != 0) {
    return step("name", false,
                "'" + endpoint_.host + "' does not resolve (" + gai_strerror(error) +
                    "); check the spelling, DNS or /etc/hosts");
  }
  addresses_.reset(found);
  char host[NI_MAXHOST] = "?";
  getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  step("name", true, "'" + endpoint_.host + "' is " + host);
  figure("resolve_ms", static_cast<double>(base::now_us() - begin_us) / 1000);
  return true;
}

// 0 if connected, else the errno.
int Checkup::connect_error(const addrinfo& info, double* took_ms) {
  const base::Fd fd(socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const uint64_t begin_us = base::now_us();
  int error = connect(fd.get(), info.ai_addr, info.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd wait = {fd.get(), POLLOUT, 0};
    socklen_t bytes = sizeof error;
    if (poll(&wait, 1, connect_.timeout_ms) != 1) {
      error = ETIMEDOUT;
    } else {
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
  }
  *took_ms = static_cast<double>(base::now_us() - begin_us) / 1000;
  return error;
}

bool Checkup::check_port() {
  int error = EHOSTUNREACH;
  double took_ms = 0;
  for (const addrinfo* info = addresses_.get(); info != nullptr && error != 0;
       info = info->ai_next) {
    error = connect_error(*info, &took_ms);
  }
  const std::string port = std::to_string(endpoint_.port);
  if (error == ECONNREFUSED) {
    step("route", true, "the host answers");
    return step("port", false,
                "nothing listens on port " + port +
                    "; is 'tendril serve' running there, and not on "
                    "loopback only (--listen)?");
  }
  if (error != 0) {
    return step("route", false,
                std::string("no connection to port ") + port + " (" + strerror(error) +
                    "); check the network, and firewalls on the way");
  }
  step("route", true, "the host answers");
  step("port", true, base::format("port %s accepts, in %.2f ms", port.c_str(), took_ms));
  figure("connect_ms", took_ms);
  return true;
}

// How both ends have proven themselves.
std::string Checkup::proof() const {
  const std::string server = control_->proven_server();
  if (!server.empty()) return "TLS; the server is " + view::safe(server);
  if (connect_.token.empty()) return "none demanded";
  return control_->sealed() ? "TLS; the token is accepted" : "the token is accepted";
}

bool Checkup::check_hello() {
  auto control = session::Control::connect(endpoint_, connect_);
  if (!control.ok()) {
    const base::Code code = control.status().code();
    if (code == base::Code::kMismatch) return step("version", false, control.status().message());
    if (code != base::Code::kRefused) return step("port", false, control.status().message());
    step("version", true, "understood");
    return step("authentication", false, control.status().message());
  }
  control_ = control.take();
  const wire::Hello& hello = control_->server_hello();
  const std::string versions =
      "server " + view::safe(hello.product_version) + ", here " + version_text();
  auto list = control_->list();
  if (!list.ok()) return step("version", false, list.status().message());
  const auto lends = [&](const char* name) {
    return std::any_of(list->apis.begin(), list->apis.end(),
                       [&](const wire::ApiRecord& api) { return api.name == name; });
  };
  is_opencl_ = lends(kOpenclName) && !lends(kApiName);
  wire::AttachRequest request;
  choose_api(&request);
  const base::Status served =
      session::check_api(request, version_text(), list->apis, view::safe(hello.product_version));
  if (!step("version", served.ok(), served.ok() ? versions : served.message())) return false;
  return step("authentication", true, proof());
}

void Checkup::check_latency() {
  std::vector<double> times_us;
  for (int i = 0; i < kPings; ++i) {
    auto took_us = control_->ping_us();
    if (!took_us.ok()) {
      step("latency", false, took_us.status().message());
      return;
    }
    times_us.push_back(*took_us);
  }
  std::sort(times_us.begin(), times_us.end());
  const double median = times_us[times_us.size() / 2], worst = times_us[times_us.size() * 99 / 100];
  step("latency", true,
       base::format("round trip %.1f us (median of %d), 99 %% within %.1f us", median, kPings,
                    worst));
  figure("round_trip_us", median);
  figure("round_trip_p99_us", worst);
}

// What programs on several servers need. The report of all servers names the version they use.
void Checkup::check_nccl(const wire::ListReply& list) {
  std::string versions;
  for (const uint32_t version : list.nccl_versions)
    versions += (versions.empty() ? "" : ", ") + api::nccl::version_text(version);
  nccl_versions_ = list.nccl_versions;
  step("nccl", true,
       versions.empty() ? "none, so no collectives with GPUs of other servers" : versions);
}

bool Checkup::check_driver() {
  auto list = control_->list();
  if (!list.ok()) return step("driver", false, list.status().message());
  std::string names;
  for (const wire::GpuRecord& gpu : list->gpus) {
    names += (names.empty() ? "" : ", ") + view::safe(gpu.name);
    if (!gpu.type.empty()) names += " (" + view::safe(gpu.type) + ")";
    if (gpu.pageable_access) names += " (its kernels reach all memory of their worker process)";
  }
  const size_t count = list->gpus.size();
  const std::string what = is_opencl_
                               ? base::format("%zu OpenCL device", count)
                               : base::format("CUDA %u.%u, %zu GPU", list->driver_version / 1000,
                                              list->driver_version % 1000 / 10, count);
  const bool fine =
      step("driver", count != 0,
           view::safe(list->driver) + ", " + what + (count == 1 ? "" : "s") + ": " + names);
  if (!is_opencl_) check_nccl(*list);
  server_id_ = list->server_id;
  return fine;
}

// By it a loader of OpenCL finds Tendril (cli/run.cc).
void Checkup::check_loaders_file() {
  if (client_.empty()) return;
  const std::string file = client_ + "/opencl/tendril.icd";
  const bool there = access(file.c_str(), R_OK) == 0;
  step("opencl driver", there,
       there ? file : file + " is missing; install the client's package again");
}

bool Checkup::check_transport() {
  wire::AttachRequest request;
  request.lease.slice = {kTestShare, 0};
  request.client = request.lease.client = client_info("tendril doctor");
  request.bulk_channels = 1;
  choose_api(&request);
  const uint64_t begin_us = base::now_us();
  session::ConnectOptions plain = connect_;  // an attached connection goes to a worker
  plain.securer = nullptr;
  plain.transport = config::wanted_transport();  // without memory: it measures
  auto attached = session::attach(endpoint_, plain, request);
  const double took_ms = static_cast<double>(base::now_us() - begin_us) / 1000;
  if (!attached.ok() && attached.status().code() == base::Code::kRefused) {
    warn("transport", "not tried, no slice is free for it: " + attached.status().message());
    return false;
  }
  if (!attached.ok()) return step("transport", false, attached.status().message());
  std::string tried;
  if (attached->trial != nullptr) tried = "; " + attached->trial->wait(kTrialMs);
  step("transport", true,
       base::format("%s: %s (attached in %.1f ms)%s", attached->transport.c_str(),
                    attached->reason.c_str(), took_ms, tried.c_str()));
  figure("attach_ms", took_ms);
  // In order, or the server waits for this client to come back.
  NoEvents nothing;
  session::Lane::open(std::move(attached->command), attached->bulk.data(), attached->bulk.size(),
                      &nothing)
      ->close(kEndMs);
  return true;
}

void Checkup::check_bandwidth() {
  if (client_.empty()) return;
  setenv("TENDRIL_SERVERS", endpoint_.text.c_str(), 1);
  setenv("TENDRIL_GPUS", "1", 1);
  setenv("TENDRIL_SLICE", config::format_fraction(kTestShare).c_str(), 1);
  unsetenv("TENDRIL_MEMORY");
  unsetenv("TENDRIL_LEASES");
  if (!options_.token_file.empty()) {
    setenv("TENDRIL_TOKEN_FILE", options_.token_file.c_str(), 1);
    unsetenv("TENDRIL_TOKEN");
  }
  auto output =
      daemon::run_child("/proc/self/exe", {"doctor", "--measure", client_ + "/libcuda.so.1"},
                        kMeasureMaxMs, daemon::ChildEnvironment::kWhole);
  if (!output.ok()) {
    step("bandwidth", false, output.status().message());
    return;
  }
  double to_gpu = 0, from_gpu = 0, sync_us = 0;
  const size_t at = output->text.rfind("tendril-measure ");
  if (at == std::string::npos || sscanf(output->text.c_str() + at, "tendril-measure %lf %lf %lf",
                                        &to_gpu, &from_gpu, &sync_us) != 3) {
    std::string why = output->text;
    while (!why.empty() && why.back() == '\n') why.pop_back();
    step("bandwidth", false,
         "the test program failed: " +
             (why.empty() ? daemon::describe_exit(output->wait_status) : view::safe(why)));
    return;
  }
  step("bandwidth", true,
       base::format("%.3g GB/s to the GPU, %.3g GB/s from it; synchronising takes %.1f us", to_gpu,
                    from_gpu, sync_us));
  figure("to_gpu_gb_per_s", to_gpu);
  figure("from_gpu_gb_per_s", from_gpu);
  figure("synchronize_us", sync_us);
  check_gpudirect();
}

// The program that measured was the last one, unless others came meanwhile.
void Checkup::check_gpudirect() {
  auto list = control_->list();
  if (!list.ok() || list->gpudirect.empty()) return;
  step("gpudirect", true, view::safe(list->gpudirect) + " (not exercised on hardware)");
}

// A table whose last column takes several lines where the terminal is narrow.
void print(const std::vector<view::Row>& rows) {
  std::istringstream lines(view::aligned(rows));
  std::vector<view::Row> heads = rows;
  for (view::Row& row : heads) row.back().clear();
  size_t indent = 0;
  for (size_t column = 0; column + 1 < heads.front().size(); ++column) {
    size_t widest = 0;
    for (const view::Row& row : heads) widest = std::max(widest, row[column].size());
    indent += widest + 2;
  }
  const size_t width = line_width(false);
  for (std::string line; std::getline(lines, line);) {
    const std::string head = line.substr(0, std::min(indent, line.size()));
    const std::string rest = line.size() > indent ? line.substr(indent) : "";
    const std::string text = width <= indent ? rest : view::wrapped(rest, width - indent, 0);
    printf("%s", head.c_str());
    for (const char c : text) {
      putchar(c);
      if (c == '\n') printf("%*s", static_cast<int>(indent), "");
    }
    putchar('\n');
  }
}

void print(const view::DoctorReport& report) {
  printf("%s: %s\n", report.server.c_str(), report.healthy ? "healthy" : "NOT healthy");
  std::vector<view::Row> rows;
  for (const view::DoctorStep& step : report.steps)
    rows.push_back({"  " + step.name, step.state, step.detail});
  print(rows);
}

// Programs on all of these servers, and beside them.
void print(const std::vector<view::PassageReport>& passages, const view::LocalReport& local) {
  std::vector<view::Row> rows;
  for (const view::PassageReport& pair : passages) {
    const std::string how =
        pair.open ? base::format("copies go from server to server, %s; round trip %.0f us; %s",
                                 pair.sealed ? "sealed" : "in clear unless a session is sealed",
                                 pair.round_trip_us, pair.detail.c_str())
                  : "copies go through the client: " + pair.detail;
    rows.push_back({"  " + pair.one + ", " + pair.other, pair.open ? "ok" : "none", how});
  }
  if (!rows.empty()) {
    printf("Between servers:\n");
    print(rows);
  }
  printf("%s\n", view::wrapped("This machine (run --local): " + local.state + ", " + local.detail,
                               line_width(false) == 0 ? SIZE_MAX : line_width(false), 2)
                     .c_str());
}

}  // namespace

int doctor(const DoctorOptions& options) {
  auto asked = reach(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  const ServerList& servers = asked->servers;
  if (!options.json) {
    printf("tendril %s, servers from %s\n", version_text(), servers.source.c_str());
  }
  std::vector<view::DoctorReport> reports;
  std::vector<std::vector<uint32_t>> nccl_versions;
  std::vector<std::unique_ptr<Checkup>> checkups;
  std::vector<Answering> answering;
  bool healthy = true;
  for (const session::Endpoint& endpoint : servers.endpoints) {
    Checkup& checkup =
        *checkups.emplace_back(std::make_unique<Checkup>(endpoint, asked->connect, options));
    reports.push_back(checkup.run());
    if (const auto one = checkup.answering()) answering.push_back(*one);
    nccl_versions.push_back(checkup.nccl_versions());
    healthy = healthy && reports.back().healthy;
    if (!options.json) print(reports.back());
  }
  const uint32_t common = api::nccl::highest_common(nccl_versions);
  if (!options.json && reports.size() > 1)
    printf("Programs on all of these servers: %s\n",
           common != 0 ? ("NCCL " + api::nccl::version_text(common)).c_str()
                       : "no NCCL, because no version is on all of them");
  const std::vector<view::PassageReport> passages = passages_between(answering);
  const view::LocalReport local = local_report(asked->connect);
  if (options.json)
    printf("%s\n", view::doctor_json(reports, passages, local).c_str());
  else
    print(passages, local);
  return healthy ? 0 : kFailed;
}

}  // namespace tendril::cli
