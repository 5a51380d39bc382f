// SPDX-License-Identifier: Apache-2.0
// See process.h.
#include "worker/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/inventory.h"
#include "gpu/monitor.h"
#include "gpu/nccl/library.h"
#include "gpu/nccl/substitute.h"
#include "gpu/opencl/driver.h"
#include "session/lane/service.h"
#include "transport/testing/recording.h"
#include "worker/core/client_room.h"
#include "worker/process/control.h"
#include "worker/process/filter.h"
#include "worker/process/sandbox.h"

namespace tendril::worker {
namespace {

constexpr int kControlDescriptor = 3;
constexpr unsigned kSampleSeconds = 2;

struct Arguments {
  bool probe = false, monitor = false, bare = false, own_namespace = false, learn = false;
  bool networked = false;
  std::string calls;
  std::string api = "cuda", driver, monitor_library;
  std::string packed_folder, packed_percent;
  std::string nccl_place;           // where a probe looks for NCCL
  std::vector<gpu::NcclFile> nccl;  // what a worker may open
  pid_t parent = 0;
  uint32_t user = 0, gpu = 0;
};

bool* find_switch(const std::string& name, Arguments* out) {
  if (name == "--probe") return &out->probe;
  if (name == "--monitor") return &out->monitor;
  if (name == "--bare") return &out->bare;
  if (name == "--own-namespace") return &out->own_namespace;
  if (name == "--learn") return &out->learn;
  if (name == "--networked") return &out->networked;
  return nullptr;
}

bool parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (bool* const on = find_switch(name, out); on != nullptr) {
      *on = true;
    } else if (i + 1 == argc) {
      return false;
    } else if (name == "--api") {
      out->api = argv[++i];
    } else if (name == "--driver") {
      out->driver = argv[++i];
    } else if (name == "--monitor-library") {
      out->monitor_library = argv[++i];
    } else if (name == "--parent") {
      out->parent = static_cast<pid_t>(strtol(argv[++i], nullptr, 10));
    } else if (name == "--user") {
      out->user = static_cast<uint32_t>(strtoul(argv[++i], nullptr, 10));
    } else if (name == "--packed-folder") {
      out->packed_folder = argv[++i];
    } else if (name == "--packed-percent") {
      out->packed_percent = argv[++i];
    } else if (name == "--nccl") {
      out->nccl_place = argv[++i];
    } else if (name == "--nccl-file") {  // VERSION=PATH
      char* path = nullptr;
      const auto version = static_cast<uint32_t>(strtoul(argv[++i], &path, 10));
      if (*path != '=') return false;
      out->nccl.push_back({version, path + 1});
    } else if (name == "--calls") {
      out->calls = argv[++i];
    } else if (name == "--gpu") {
      out->gpu = static_cast<uint32_t>(strtoul(argv[++i], nullptr, 10));
    } else {
      return false;
    }
  }
  return out->parent > 0;
}

int fail(const base::Status& status) {
  fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

int run_probe(const Arguments& arguments, const Api& asked, const std::vector<Api>& apis) {
  auto inventory = asked.inventory(arguments.driver);
  if (!inventory.ok()) return fail(inventory.status());
  for (const Api& api : apis) {
    if (api.inventory != asked.inventory) continue;
    inventory->apis.push_back({api.name, api.digest});
    auto worker = api.create(arguments.driver);
    if (!worker.ok()) return fail(worker.status());
    for (const gpu::DeviceFacts& device : inventory->devices) {
      std::string facts = (*worker)->facts(device.index);
      if (!facts.empty()) inventory->facts.push_back({api.name, device.index, std::move(facts)});
    }
    // Its library stays open, as the driver does.
    static_cast<void>(worker->release());
  }
  if (!arguments.nccl_place.empty()) {
    auto nccl = gpu::find_nccl(arguments.nccl_place);
    if (!nccl.ok()) return fail(nccl.status());
    inventory->nccl = nccl.take();
  }
  fputs(gpu::inventory_to_text(*inventory).c_str(), stdout);
  return fflush(stdout) == 0 ? 0 : 1;
}

int run_monitor(const Arguments& arguments) {
  auto monitor = gpu::Monitor::open(arguments.monitor_library);
  if (!monitor.ok()) {
    printf("%s%s\n", gpu::kNoSamples, monitor.status().message().c_str());
    return 0;
  }
  for (;;) {
    for (const gpu::Sample& sample : (*monitor)->sample())
      fputs(gpu::sample_to_line(sample).c_str(), stdout);
    if (fflush(stdout) != 0) return 0;
    sleep(kSampleSeconds);
  }
}

// TENDRIL_RECORD=FOLDER writes the bytes of the command lane to files there (docs/operating.md).
// The files are opened before the sandbox closes.
struct Recording {
  base::Fd calls, frames;
};

base::Fd open_recording(const std::string& folder, const char* suffix) {
  const std::string path = folder + "/" + std::to_string(getpid()) + suffix;
  base::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) fprintf(stderr, "cannot record to %s: %s\n", path.c_str(), strerror(errno));
  return file;
}

Recording open_recordings() {
  const char* folder = getenv("TENDRIL_RECORD");
  if (folder == nullptr || *folder == 0) return {};
  return {open_recording(folder, ".calls"), open_recording(folder, ".frames")};
}

// A file of the software GPU that a variable names: its settings, or its board.
std::string software_gpu_file(const char* variable) {
  const char* name = getenv(variable);
  if (name == nullptr || *name == 0) return "";
  return strchr(name, '/') != nullptr ? name : std::string("/dev/shm/") + name;
}

Confinement confinement(const Arguments& arguments, const Api& api) {
  Confinement wanted;
  wanted.own_folder = api.compiles;
  wanted.parent = arguments.parent;
  wanted.user = arguments.user;
  wanted.own_namespace = arguments.own_namespace;
  wanted.networked = arguments.networked;
  // With a user of one lease, other tenants' files there are another's.
  wanted.shares_files = arguments.user != 0 || !arguments.packed_folder.empty();
  std::vector<std::string> libraries = {arguments.driver, arguments.monitor_library,
                                        arguments.nccl_place};
  for (const gpu::NcclFile& file : arguments.nccl) libraries.push_back(file.path);
  if (!arguments.nccl.empty()) libraries.push_back(gpu::nccl_driver_path());
  for (const std::string& library : libraries) {
    const size_t end = library.rfind('/');
    if (end != std::string::npos && end != 0) wanted.readable.push_back(library.substr(0, end));
  }
  wanted.readable.push_back(software_gpu_file("TENDRIL_SOFTGPU_FILE"));
  if (api.compiles)
    for (std::string& place : gpu::OpenclDriver::places_of_drivers())
      wanted.readable.push_back(std::move(place));
  wanted.writable.push_back(software_gpu_file("TENDRIL_SOFTGPU_BOARD"));
  const char* recordings = getenv("TENDRIL_RECORD");
  if (recordings != nullptr) wanted.writable.push_back(recordings);
  wanted.writable.push_back(arguments.packed_folder);
  for (auto* paths : {&wanted.readable, &wanted.writable})
    paths->erase(std::remove(paths->begin(), paths->end(), ""), paths->end());
  return wanted;
}

base::Result<const Api*> find_api(const std::vector<Api>& apis, const std::string& name) {
  std::string served;
  for (const Api& api : apis) {
    if (name == api.name) return &api;
    served += (served.empty() ? "" : ", ") + std::string(api.name);
  }
  return base::Status(base::Code::kNotFound,
                      "this worker does not serve the API '" + name + "' (it serves: " + served +
                          "); are tendrild and tendril-worker of one build?");
}

base::Status close_filter(const Arguments& arguments, const Api& api,
                          std::vector<std::string> extra, DaemonLink* link) {
  Calls calls;
  calls.compiles = api.compiles;
  calls.driver = arguments.driver;
  calls.extra = std::move(extra);
  calls.networked = arguments.networked;
  if (arguments.learn) calls.learned = [link](const std::string& name) { link->say_learned(name); };
  return lock_down(calls);
}

int run_worker(const Arguments& arguments, const Api& api, std::vector<std::string> calls) {
  if (!arguments.packed_folder.empty()) {  // the driver reads these variables when it starts
    setenv("CUDA_MPS_PIPE_DIRECTORY", arguments.packed_folder.c_str(), 1);
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", arguments.packed_percent.c_str(), 1);
  }
  leave_room_for_clients();
  auto worker = api.create(arguments.driver);
  if (!worker.ok()) return fail(worker.status());
  base::Status status = (*worker)->warm(arguments.gpu);
  (*worker)->lend_collectives(arguments.nccl);
  if (!status.ok()) return fail(status);
  Recording recording = open_recordings();
  static DaemonLink link(kControlDescriptor);  // threads use it until the process ends
  status = close_filter(arguments, api, std::move(calls), &link);
  if (!status.ok()) return fail(status);
  status = link.say_ready();
  if (!status.ok()) return fail(status);
  auto parts = link.receive_session();
  if (!parts.ok()) return parts.status().code() == base::Code::kClosed ? 0 : fail(parts.status());
  if (recording.calls.valid() && recording.frames.valid()) {
    parts->channels.command =
        transport::recording(std::move(parts->channels.command), std::move(recording.calls),
                             std::move(recording.frames));
  }
  const session::SlotPool slots = (*worker)->slot_pool();
  // If it cannot be registered, what arrives is copied into the slots.
  if (parts->channels.pinned != nullptr && slots.base != nullptr)
    (void)parts->channels.pinned->add(slots.base, size_t{slots.slots} * wire::kChunkBytesMax);
  if (!parts->channels.bulk.empty()) (*worker)->lend_cards(parts->channels.pinned);
  const auto service =
      session::Service::open(std::move(parts->channels.command), parts->channels.bulk.data(),
                             parts->channels.bulk.size(), slots, &parts->turns.page->counts);
  link.listen(service.get());
  const int exit_status = (*worker)->run(service.get(), parts->assignment, parts->accounting,
                                         std::move(parts->channels.window), &link, parts->turns);
  fflush(stdout);
  // No destructors run, because the listening thread and the driver's threads still use these
  // objects.
  _exit(exit_status);
}

int run(int argc, char** argv, const std::vector<Api>& apis) {
  Arguments arguments;
  if (!parse(argc, argv, &arguments)) {
    fprintf(stderr, "tendril-worker is started by 'tendril serve'; see 'tendril help serve'\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> calls;
  if (!arguments.calls.empty()) {
    auto read = read_calls(arguments.calls);
    if (!read.ok()) return fail(read.status());
    calls = read.take();
  }
  auto api = find_api(apis, arguments.api);
  if (!api.ok()) return fail(api.status());
  const base::Status entered =
      arguments.bare ? base::Status() : enter_sandbox(confinement(arguments, **api));
  if (!entered.ok()) return fail(entered);
  if (arguments.probe) return run_probe(arguments, **api, apis);
  if (arguments.monitor) return run_monitor(arguments);
  return run_worker(arguments, **api, std::move(calls));
}

}  // namespace

void process_main(int argc, char** argv, const std::vector<Api>& apis) {
  const int status = run(argc, argv, apis);
  fflush(stdout);
  _exit(status);
}

}  // namespace tendril::worker
