// SPDX-License-Identifier: Apache-2.0
// See smi.h.
#include "client/smi/smi.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/text.h"
#include "client/smi/fields.h"
#include "client/smi/log.h"
#include "client/smi/options.h"
#include "client/smi/processes.h"
#include "client/smi/summary.h"

namespace tendril::client::smi {
namespace {

bool write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(fd, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    at += static_cast<size_t>(wrote);
  }
  return true;
}

std::string help() {
  return "nvidia-smi of Tendril\n"
         "\n"
         "Shows the slices of GPUs that this program has, through Tendril's NVML. Options and "
         "what\n"
         "is written are those of NVIDIA's tool of driver 580. A value that no server reports is\n"
         "N/A. 'tendril smi' shows all GPUs of the servers.\n"
         "\n"
         "  (nothing)                        a table of the GPUs and their processes\n"
         "  -L, --list-gpus                  the GPUs, one a line\n"
         "  -B, --list-excluded-gpus         none is ever excluded\n"
         "  -q, --query                      everything about each GPU\n"
         "      -x, --xml-format               as XML\n"
         "      -d, --display=LIST             only some sections: MEMORY,UTILIZATION,ECC,\n"
         "                                     TEMPERATURE,POWER,CLOCK,COMPUTE,PIDS,PERFORMANCE, "
         "...\n"
         "  --query-gpu=LIST                 named fields of each GPU; see --help-query-gpu\n"
         "  --query-compute-apps=LIST        named fields of each process;\n"
         "                                   see --help-query-compute-apps\n"
         "      --format=csv[,noheader][,nounits]\n"
         "  topo -m                          the ways between the GPUs\n"
         "  --version                        versions\n"
         "\n"
         "With tables, -q and queries:\n"
         "  -i, --id=LIST                    only these: numbers, UUIDs or PCI bus ids\n"
         "  -f, --filename=FILE              write to a file\n"
         "  -l, --loop=SECONDS               again and again, every 5 seconds if nothing is said\n"
         "  -lms, --loop-ms=MILLISECONDS     the same in milliseconds\n";
}

std::string help_line(const char* name, const char* alias, const char* note) {
  return std::string("\"") + name + "\"" +
         (*alias != 0 ? std::string(" or \"") + alias + "\"" : "") + note + "\n";
}

std::string help_query_gpu() {
  std::string out = "List of valid properties to query for the switch \"--query-gpu\":\n\n";
  for (size_t i = 0; i < kFieldCount; ++i)
    out += help_line(kFields[i].name, kFields[i].alias,
                     kFields[i].read == nullptr ? "\n    [N/A]: no server reports it" : "");
  return out;
}

std::string help_query_processes() {
  std::string out =
      "List of valid properties to query for the switch \"--query-compute-apps\":\n\n";
  for (size_t i = 0; i < kProcessFieldCount; ++i)
    out += help_line(kProcessFields[i].name, kProcessFields[i].alias, "");
  return out;
}

std::string versions() {
  char nvml[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE] = {};
  const bool known = nvmlSystemGetNVMLVersion(nvml, sizeof nvml) == NVML_SUCCESS;
  return "NVIDIA-SMI version  : " + driver_version() +
         "\nNVML version        : " + (known ? nvml : "N/A") +
         "\nDRIVER version      : " + driver_version() +
         "\nCUDA Version        : " + cuda_version() + "\n";
}

bool is_named(const std::string& id, const Gpu& gpu) {
  const auto value = [&](const char* field) {
    return value_of(*find_field(field), gpu, false).text;
  };
  nvmlDevice_t found = nullptr;
  return id == std::to_string(gpu.index) || strcasecmp(id.c_str(), value("uuid").c_str()) == 0 ||
         (nvmlDeviceGetHandleByPciBusId_v2(id.c_str(), &found) == NVML_SUCCESS &&
          found == gpu.handle);
}

// The GPUs of -i in their own order; names without a GPU are passed over, as the vendor's tool
// does.
std::vector<Gpu> chosen(const std::vector<Gpu>& all, const std::vector<std::string>& ids) {
  if (ids.empty()) return all;
  std::vector<Gpu> found;
  for (const Gpu& gpu : all)
    if (std::any_of(ids.begin(), ids.end(), [&](const auto& id) { return is_named(id, gpu); }))
      found.push_back(gpu);
  return found;
}

std::vector<Gpu> all_gpus() {
  unsigned count = 0;
  std::vector<Gpu> gpus;
  if (nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS) return gpus;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.index = i;
    if (nvmlDeviceGetHandleByIndex_v2(i, &gpu.handle) == NVML_SUCCESS) gpus.push_back(gpu);
  }
  return gpus;
}

std::string titled(const char* name, const char* unit) {
  return *unit == 0 ? name : base::format("%s [%s]", name, unit);
}

void append_cell(const std::string& text, std::string* line) {
  *line += (line->empty() ? "" : ", ") + text;
}

std::string query_gpu(const std::vector<Gpu>& gpus, const Options& options, bool header) {
  std::string out, title;
  for (const std::string& name : options.fields)
    append_cell(titled(find_field(name)->name, find_field(name)->unit), &title);
  if (header) out += title + "\n";
  for (const Gpu& gpu : gpus) {
    std::string line;
    for (const std::string& name : options.fields) {
      const Value value = value_of(*find_field(name), gpu, options.units);
      append_cell(value.known ? value.text : "[" + value.text + "]", &line);
    }
    out += line + "\n";
  }
  return out;
}

std::string query_processes(const std::vector<Gpu>& gpus, const Options& options, bool header) {
  std::string out, title;
  for (const std::string& name : options.fields)
    append_cell(titled(find_process_field(name)->name, find_process_field(name)->unit), &title);
  if (header) out += title + "\n";
  for (const Gpu& gpu : gpus) {
    for (const Process& process : processes_of(gpu)) {
      std::string line;
      for (const std::string& name : options.fields) {
        const ProcessField& field = *find_process_field(name);
        const bool unit = options.units && *field.unit != 0;
        append_cell(field.read(gpu, process) + (unit ? std::string(" ") + field.unit : ""), &line);
      }
      out += line + "\n";
    }
  }
  return out;
}

std::string picture(const Options& options, const std::vector<Gpu>& gpus, unsigned all,
                    bool first) {
  switch (options.action) {
    case Action::kList:
      return listing(gpus);
    case Action::kLog:
      return options.xml ? log_xml(gpus, all) : log_text(gpus, all, options.displays);
    case Action::kQueryGpu:
      return query_gpu(gpus, options, options.header && first);
    case Action::kQueryProcesses:
      return query_processes(gpus, options, options.header && first);
    case Action::kTopology:
      return topology(gpus);
    case Action::kVersion:
      return versions();
    default:
      return summary(gpus);
  }
}

int show(const Options& options, int fd) {
  const std::vector<Gpu> all = all_gpus();
  const std::vector<Gpu> gpus = chosen(all, options.ids);
  if (gpus.empty()) {
    write_all(STDOUT_FILENO, "No devices were found\n");
    return kNoDevice;
  }
  for (bool first = true;; first = false) {
    const auto count = static_cast<unsigned>(all.size());
    if (!write_all(fd, picture(options, gpus, count, first))) return 0;  // nobody reads any more
    if (options.loop_ms == 0) return 0;
    const timespec pause = {static_cast<time_t>(options.loop_ms / 1000),
                            static_cast<long>(options.loop_ms % 1000 * 1'000'000)};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

int run(const std::vector<std::string>& words) {
  Options options;
  Refusal refusal;
  if (!parse(words, &options, &refusal)) {
    write_all(STDOUT_FILENO, refusal.text);
    return refusal.status;
  }
  const auto say = [](const std::string& text) {
    write_all(STDOUT_FILENO, text);
    return 0;
  };
  if (options.action == Action::kHelp) return say(help());
  if (options.action == Action::kHelpQueryGpu) return say(help_query_gpu());
  if (options.action == Action::kHelpQueryProcesses) return say(help_query_processes());
  if (options.action == Action::kExcluded) return say("No excluded devices found.\n");
  base::Fd file;
  if (!options.file.empty()) {
    file.reset(open(options.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.valid()) {
      say("cannot write '" + base::printable(options.file) + "': " + strerror(errno) + "\n");
      return kWrongUsage;
    }
  }
  // nvmlInit has said why on stderr.
  if (nvmlInit_v2() != NVML_SUCCESS) {
    say("NVIDIA-SMI has failed because Tendril reaches no server with a GPU. Run 'tendril doctor', "
        "which says what is missing.\n");
    return kNoDriver;
  }
  const int status = show(options, file.valid() ? file.get() : STDOUT_FILENO);
  nvmlShutdown();
  return status;
}

}  // namespace tendril::client::smi
