// SPDX-License-Identifier: Apache-2.0
// `tendril bench`: runs tendril-bench on several sides, one after the other, and prints the ratios:
// on a native driver, if this machine has one; on bare transports; and through Tendril over TCP and
// shared memory. `--compare` shows two such reports side by side. The measured program is a
// separate process that attaches like any other.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "cli/bench/bench_plot.h"
#include "cli/bench/bench_report.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/servers.h"
#include "cli/several/passages.h"
#include "daemon/child_process.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kLimitMs = 600'000;
constexpr int kStarts = 5;
constexpr int kBetweenStartsUs = 700'000;  // the server warms the next worker meanwhile

class Bench {
 public:
  Bench(const BenchOptions& options, const Reach& reach, const std::vector<ServerView>& views,
        const std::string& client)
      : options_(options),
        connect_(reach.connect),
        servers_(reach.servers),
        views_(views),
        client_(client) {}

  BenchReport run();

 private:
  using Words = std::vector<std::string>;
  daemon::ChildOutput start(const Words& words) const;
  void measure(const std::string& side, Words words);
  void time_start(BenchSide* side, const Words& words) const;
  void attach_over(const char* transport) const;
  void measure_endpoints();
  void find_passages();
  void say(const std::string& what) const {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "tendril: %s\n", what.c_str());
  }

  const BenchOptions& options_;
  const session::ConnectOptions& connect_;
  const ServerList& servers_;
  const std::vector<ServerView>& views_;
  const std::string client_;
  std::string program_;
  BenchReport report_;
};

// The reason in the output of a program that measured nothing. Our own line says why it got no GPU.
// The last line says what followed from that.
std::string reason_in(const std::string& output) {
  const std::string ours = "\ntendril: ";
  std::string text(1, '\n');
  text.append(output, 0, output.find_last_not_of('\n') + 1);
  const size_t found = text.find(ours);
  const size_t begin = found == std::string::npos ? text.rfind('\n') + 1 : found + ours.size();
  return view::safe(text.substr(begin, text.find('\n', begin) - begin));
}

std::string beside_this_program(const char* name) {
  char self[PATH_MAX] = {};
  const ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
  const std::string path(self, got > 0 ? static_cast<size_t>(got) : 0);
  return path.substr(0, path.rfind('/') + 1) + name;
}

daemon::ChildOutput Bench::start(const Words& words) const {
  auto output = daemon::run_child(program_, words, kLimitMs, daemon::ChildEnvironment::kWhole);
  if (output.ok()) return std::move(*output);
  return {output.status().message(), -1};
}

// The time from exec to the end of a program that prints one result; the median of a few runs.
void Bench::time_start(BenchSide* side, const Words& words) const {
  std::vector<double> times;
  for (int i = 0; i < kStarts; ++i) {
    if (side->name != "native") usleep(kBetweenStartsUs);
    const uint64_t begin_us = base::now_us();
    const daemon::ChildOutput output = start(words);
    if (output.text.find("tendril-bench first") == std::string::npos) return;
    times.push_back(static_cast<double>(base::now_us() - begin_us) / 1000);
  }
  std::sort(times.begin(), times.end());
  side->figures.emplace_back("first_result_ms", times[times.size() / 2]);
}

void Bench::measure(const std::string& name, Words words) {
  say("measuring: " + name);
  const bool bare = words[0] == "bare";
  if (!bare && options_.quick) words.push_back("--quick");
  const daemon::ChildOutput output = start(words);
  BenchSide side{name, bench_figures(output.text), ""};
  if (side.figures.empty()) {
    side.absent =
        output.text.empty() ? daemon::describe_exit(output.wait_status) : reason_in(output.text);
  } else if (words[0] == "all") {
    words[0] = "first";
    time_start(&side, words);
  }
  report_.sides.push_back(std::move(side));
}

void Bench::attach_over(const char* transport) const {
  const char* const old = getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", prefixed_path(client_, old != nullptr ? old : "").c_str(), 1);
  setenv("TENDRIL_SERVERS", servers_.endpoints[0].text.c_str(), 1);
  setenv("TENDRIL_GPUS", "1", 1);
  if (!options_.share.empty()) setenv("TENDRIL_SLICE", options_.share.c_str(), 1);
  setenv("TENDRIL_TRANSPORT", transport, 1);
  if (options_.token_file.empty()) return;
  setenv("TENDRIL_TOKEN_FILE", options_.token_file.c_str(), 1);
  unsetenv("TENDRIL_TOKEN");
}

void Bench::find_passages() {
  std::vector<std::unique_ptr<session::Control>> controls;
  std::vector<Answering> answering;
  for (size_t i = 0; i < views_.size() && i < servers_.endpoints.size(); ++i) {
    auto control = session::Control::connect(servers_.endpoints[i], connect_);
    if (!control.ok() || views_[i].list.server_id.empty()) continue;
    controls.push_back(control.take());
    answering.push_back({views_[i].server, views_[i].list.server_id, controls.back().get()});
  }
  report_.passages = passages_between(answering);
}

// Every GPU of every server in one process. Then those of two servers once more, through this
// machine.
void Bench::measure_endpoints() {
  std::string groups;
  for (const ServerView& view : views_) {
    const auto place = static_cast<size_t>(&view - views_.data());
    for (const wire::GpuRecord& gpu : view.list.gpus)
      report_.gpus.push_back({view.server, view::safe(gpu.name), place});
    groups += (groups.empty() ? "" : ",") + std::to_string(view.list.gpus.size());
  }
  std::string all;
  for (const session::Endpoint& endpoint : servers_.endpoints)
    all += (all.empty() ? "" : ",") + endpoint.text;
  setenv("TENDRIL_SERVERS", all.c_str(), 1);
  setenv("TENDRIL_GPUS", std::to_string(report_.gpus.size()).c_str(), 1);
  setenv("TENDRIL_TRANSPORT", "auto", 1);
  unsetenv("TENDRIL_PASSAGES");
  find_passages();
  measure("endpoints", {"matrix"});
  if (views_.size() == 1) return;
  setenv("TENDRIL_PASSAGES", "off", 1);
  measure("endpoints through the client", {"matrix", "--groups", groups});
  unsetenv("TENDRIL_PASSAGES");
}

BenchReport Bench::run() {
  report_.version = version_text();
  report_.server = servers_.endpoints[0].text;
  program_ = beside_this_program("tendril-bench");
  if (options_.endpoints) {
    attach_over("auto");
    measure_endpoints();
    return report_;
  }
  Words native = {"all"};
  if (!options_.native.empty()) native.insert(native.end(), {"--driver", options_.native});
  measure("native", native);
  const std::string channels = std::to_string(session::ConnectOptions().bulk_channels);
  measure("bare tcp", {"bare", "tcp", channels});
  measure("bare shm", {"bare", "shm", channels});
  for (const char* transport : {"tcp", "shm"}) {
    attach_over(transport);
    measure(transport, {"all"});
  }
  measure_endpoints();
  return report_;
}

// Whether the page that was asked for is there.
bool write_plot(const std::string& path, const std::string& page) {
  if (path.empty()) return true;
  FILE* const file = fopen(path.c_str(), "we");
  const bool written = file != nullptr && fputs(page.c_str(), file) >= 0;
  if (file != nullptr && fclose(file) == 0 && written) return true;
  complain(kFailed, base::errno_status(base::Code::kUnavailable,
                                       ("cannot write '" + path + "'").c_str(), errno));
  return false;
}

int compare(const BenchOptions& options) {
  auto before = read_bench_json(options.compare[0]);
  if (!before.ok()) return complain(kFailed, before.status());
  auto after = read_bench_json(options.compare[1]);
  if (!after.ok()) return complain(kFailed, after.status());
  fputs(bench_comparison(*before, *after).c_str(), stdout);
  return write_plot(options.plot, comparison_page(*before, *after)) ? 0 : kFailed;
}

}  // namespace

int bench(const BenchOptions& options) {
  if (options.compare.size() == 2) return compare(options);
  const std::string program = beside_this_program("tendril-bench");
  if (access(program.c_str(), X_OK) != 0) {
    return complain(kFailed, "cannot find the program that measures, '" + program +
                                 "'; copy tendril-bench there, from where tendril comes from");
  }
  auto client = client_directory();
  if (!client.ok()) return complain(kFailed, client.status());
  auto asked = reach(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  for (const char* name :
       {"TENDRIL_LEASES", "TENDRIL_MEMORY", "TENDRIL_GPUS", "TENDRIL_STATS", "TENDRIL_TRACE"}) {
    unsetenv(name);
  }
  const std::vector<ServerView> views = ask_servers(asked->servers.endpoints, asked->connect);
  // Better now than after minutes of measurements that need no server.
  complain_of_silent(views);
  if (!all_answer(views)) return kFailed;
  Bench bench(options, *asked, views, *client);
  const BenchReport report = bench.run();
  if (options.json) {
    printf("%s\n", bench_json(report).c_str());
  } else {
    const std::string endpoints = endpoint_table(report);
    const bool alone = options.endpoints && !endpoints.empty();
    fputs((alone ? endpoints : bench_table(report) + "\n" + endpoints).c_str(), stdout);
  }
  const bool plotted = write_plot(options.plot, bench_page(report));
  const BenchSide* const needed = report.side(options.endpoints ? "endpoints" : "tcp");
  return plotted && needed != nullptr && !needed->figures.empty() ? 0 : kFailed;
}

}  // namespace tendril::cli
