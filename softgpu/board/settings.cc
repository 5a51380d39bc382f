// SPDX-License-Identifier: Apache-2.0
// The table of knobs and its parser. See settings.h.

#include "softgpu/board/settings.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tendril::softgpu {
namespace {

struct Target {
  Settings* settings;
  Faults* faults;
  int device;  // -1: all
};

struct Knob {
  const char* key;
  bool live, per_device;
  bool (*set)(const Target&, const std::string&);
  const char* meaning;
};

bool read_number(const std::string& text, double* out) {
  char* end = nullptr;
  *out = strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && *out >= 0 && *out < 1e18;
}

bool read_count(const std::string& text, uint64_t* out) {
  char* end = nullptr;
  *out = strtoull(text.c_str(), &end, 0);
  return end != text.c_str() && *end == '\0' && text[0] != '-';
}

template <typename T>
bool clamped(const std::string& text, uint64_t low, uint64_t high, T* out) {
  uint64_t value = 0;
  if (!read_count(text, &value)) return false;
  *out = static_cast<T>(std::clamp(value, low, high));
  return true;
}

// A number in thousands of the unit that is stored: us for ns, ms for us.
bool scaled(const std::string& text, double factor, int64_t* out) {
  double value = 0;
  if (!read_number(text, &value) || value * factor > 9e18) return false;
  *out = static_cast<int64_t>(value * factor);
  return true;
}

bool positive(const std::string& text, double* out) {
  double value = 0;
  if (!read_number(text, &value) || value <= 0) return false;
  *out = value;
  return true;
}

bool truth(const std::string& text, bool* out) {
  *out = text != "0" && !text.empty();
  return true;
}

template <typename Change>
bool each_device(const Target& t, Change change) {
  for (unsigned i = 0; i < kMaxDevices; ++i)
    if (t.device < 0 || static_cast<unsigned>(t.device) == i)
      if (!change(t.settings->device[i], t.faults->device[i])) return false;
  return true;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= text.size()) {
    size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// "name:n:code" or "name:n+:code", separated by commas. Knobs without codes leave them out.
bool call_rules(const std::string& text, bool with_code, std::vector<CallRule>* out) {
  out->clear();
  if (text.empty()) return true;
  for (const std::string& item : split(text, ',')) {
    std::vector<std::string> parts = split(item, ':');
    if (parts.size() != (with_code ? 3u : 2u)) return false;
    CallRule rule;
    rule.name = parts[0];
    if (!parts[1].empty() && parts[1].back() == '+') {
      rule.for_ever = true;
      parts[1].pop_back();
    }
    uint64_t code = 0;
    if (!read_count(parts[1], &rule.nth) || (with_code && !read_count(parts[2], &code)))
      return false;
    rule.code = static_cast<int>(code);
    out->push_back(rule);
  }
  return true;
}

// "name:us" or "name:us/block", separated by commas.
bool kernel_times(const std::string& text, std::vector<KernelTime>* out) {
  out->clear();
  if (text.empty()) return true;
  for (const std::string& item : split(text, ',')) {
    size_t colon = item.find(':');
    if (colon == std::string::npos) return false;
    KernelTime time;
    time.name = item.substr(0, colon);
    std::string value = item.substr(colon + 1);
    size_t slash = value.find("/block");
    if (slash != std::string::npos && slash + 6 == value.size()) {
      time.per_block = true;
      value.resize(slash);
    }
    if (!scaled(value, 1e3, &time.ns)) return false;
    out->push_back(time);
  }
  return true;
}

bool set_mode(const Target& t, const std::string& text) {
  for (TimeMode mode : {TimeMode::kReal, TimeMode::kPaced, TimeMode::kVirtual, TimeMode::kNoExec}) {
    if (text != name_of(mode)) continue;
    t.settings->mode = mode;
    return true;
  }
  return false;
}

bool set_attributes(const Target& t, const std::string& text) {
  t.faults->attributes.clear();
  if (text.empty()) return true;
  for (const std::string& item : split(text, ',')) {
    int number = 0, value = 0;
    if (sscanf(item.c_str(), "%d:%d", &number, &value) != 2) return false;
    t.faults->attributes.emplace_back(number, value);
  }
  return true;
}

#define SET [](const Target& t, const std::string& v) -> bool
#define EACH(field_change)                                                  \
  [](const Target& t, const std::string& v) -> bool {                       \
    return each_device(t, [&](DeviceSettings& d, DeviceFaults& f) -> bool { \
      (void)d, (void)f;                                                     \
      return field_change;                                                  \
    });                                                                     \
  }

constexpr Knob kKnobs[] = {
    {"devices", false, false, SET{return clamped(v, 0, kMaxDevices, &t.settings->devices);
}  // namespace
, "test devices of this machine, 0 to 64"
}  // namespace tendril::softgpu
,
    {"memory_mb", false, true,
     EACH((clamped(v, 2, 1u << 19, &d.memory_bytes) && (d.memory_bytes <<= 20, true))),
     "memory in MiB"},
    {"context_mb", false, true,
     EACH((clamped(v, 0, 1u << 19, &d.context_bytes) && (d.context_bytes <<= 20, true))),
     "what a context takes of the memory, in MiB"},
    {"costs", false, false,
     SET{return t.settings->card_costs = v == "card", v == "card" || v == "bytes";
}
, "bytes: what is asked for; card: pages, pieces of pools, local memory and streams as on a card"
}
,
    {"name", false, true, EACH((snprintf(d.name, sizeof d.name, "%s", v.c_str()), true)),
     "name, after the standard one"},
    {"capability", false, false,
     SET{return sscanf(v.c_str(), "%d.%d", &t.settings->major, &t.settings->minor) == 2;
}
, "compute capability"
}
, {"sms", false, false, SET{return clamped(v, 1, 1024, &t.settings->sm_count);
}
, "processors of each device"
}
, {"mode", false, false, set_mode, "real, paced, virtual or noexec"},
    {"quorum", false, false, SET{return clamped(v, 1, 1024, &t.settings->quorum);
}
, "processes that must have joined before a simulated clock moves"
}
, {"patience_ms", false, false, SET{return clamped(v, 1, 3'600'000, &t.settings->patience_ms);
}
, "how long a silent process holds a simulated clock up"
}
, {"check", false, false,
   SET{return t.settings->check_exact = v == "exact", v == "exact" || v == "page";
}
, "page, or exact: kernels may touch allocations only, and a fault names the one that is near"
}
, {"addresses", false, false,
   SET{return t.settings->process_addresses = v == "process", v == "process" || v == "beyond";
}
, "beyond those of processes, or process: such as a process could have, and taken in it"
}
, {"handles", false, false,
   SET{return t.settings->handles = v == "reused"    ? HandleMode::kReused
                                    : v == "checked" ? HandleMode::kChecked
                                                     : HandleMode::kFree,
              v == "free" || v == "checked" || v == "reused";
}
, "free, checked: a call with a stale handle ends the process, or reused: and handles come again"
}
, {"shuffle", true, false, SET{return read_count(v, &t.faults->shuffle_seed);
}
, "a seed: blocks, warps and diverged lanes run in an order that it decides; 0 is none"
}
, {"rate", false, true, EACH(positive(v, &d.rate)), "warp instructions per ns and processor"},
    {"bandwidth_gbs", false, true, EACH(positive(v, &d.bandwidth)), "device memory, GB/s"},
    {"link_gbs", false, true, EACH(positive(v, &d.link)), "between host and device, GB/s"},
    {"launch_us", false, true, EACH(scaled(v, 1e3, &d.launch_ns)), "what starting a kernel costs"},
    {"copy_us", false, true, EACH(scaled(v, 1e3, &d.copy_ns)), "what starting a copy costs"},
    {"slice_us", false, true, EACH((scaled(v, 1e3, &d.slice_ns) && d.slice_ns > 0)),
     "time slice of a context"},
    {"switch_us", false, true, EACH(scaled(v, 1e3, &d.switch_ns)),
     "what changing between contexts costs"},
    {"steps", true, false, SET{return read_count(v, &t.faults->step_budget);
}
, "warp instructions before a launch times out (702); 0 is never"
}
, {"trace", true, false, SET{return truth(v, &t.faults->trace);
}
, "1: one line per call on stderr"
}
, {"kernel_us", true, false, SET{return kernel_times(v, &t.faults->kernel_times);
}
, "what kernels take when they are not executed: name:us or name:us/block, ...; * is any other"
}
, {"fail", true, false, SET{return call_rules(v, true, &t.faults->fail);
}
, "name:n:code, ...: the n-th call of a process answers code; n+ is from the n-th on"
}
, {"abort", true, false, SET{return call_rules(v, false, &t.faults->abort_at);
}
, "name:n, ...: the process aborts in its n-th such call"
}
,
    {"oom_after_mb", true, true,
     EACH((v.empty() ? (f.oom_after_bytes = UINT64_MAX, true)
                     : (clamped(v, 0, 1u << 30, &f.oom_after_bytes) &&
                        (f.oom_after_bytes <<= 20, true)))),
     "allocations beyond so much in use are refused (2)"},
    {"lost", true, true, EACH(truth(v, &f.lost)), "1: the device has fallen off the bus (999)"},
    {"ecc", true, true, EACH(truth(v, &f.ecc)),
     "1: work meets an uncorrectable memory error (214)"},
    {"hang", true, true, EACH((f.hang = v, true)), "kernels of this name never end; * is any"},
    {"slow", true, true, EACH(positive(v, &f.slow)), "factor on the time of all work"},
    {"delay_us", true, true, EACH(scaled(v, 1e3, &f.delay_ns)),
     "work ends late by a random time up to this"},
    {"seed", true, false, SET{return read_count(v, &t.faults->seed);
}
, "of the random delays and flips"
}
, {"flip_copy", true, false, SET{return read_count(v, &t.faults->flip_copy);
}
, "the n-th copy from now has one bit flipped"
}
, {"context_ms", true, false, SET{return scaled(v, 1e6, &t.faults->context_ns);
}
, "what creating a context takes"
}
, {"version", true, false, SET{return clamped(v, 0, 99999, &t.faults->driver_version);
}
, "driver version that is claimed, as 12080"
}
,
    {"attributes", true, false, set_attributes,
     "number:value, ...: device attributes that are claimed"},
}
;
#undef SET
#undef EACH

const Knob* find_knob(const std::string& key) {
  for (const Knob& knob : kKnobs)
    if (key == knob.key) return &knob;
  return nullptr;
}

std::string trimmed(const std::string& text) {
  size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Returns what is wrong with the statement, or an empty text.
std::string apply(const std::string& statement, bool live, Settings* settings, Faults* faults) {
  size_t equals = statement.find('=');
  if (equals == std::string::npos) return "'" + statement + "' is not key = value";
  std::string key = trimmed(statement.substr(0, equals)),
              value = trimmed(statement.substr(equals + 1));
  Target target = {settings, faults, -1};
  int used = 0;
  if (sscanf(key.c_str(), "device.%d.%n", &target.device, &used) == 1 && used > 0) {
    if (target.device < 0 || target.device >= static_cast<int>(kMaxDevices))
      return "'" + key + "': no such device";
    key = key.substr(static_cast<size_t>(used));
  }
  const Knob* knob = find_knob(key);
  if (knob == nullptr) return "there is no knob '" + key + "'";
  if (target.device >= 0 && !knob->per_device) return "'" + key + "' is the same for all devices";
  if (live && !knob->live) return "'" + key + "' cannot change while programs run";
  if (!knob->set(target, value))
    return "'" + value + "' is no value for " + key + " (" + knob->meaning + ")";
  return "";
}

std::string file_content(const char* path, std::string* complaints) {
  std::string text;
  FILE* file = fopen(path, "re");
  if (file == nullptr) {
    *complaints += std::string("cannot read TENDRIL_SOFTGPU_FILE ") + path + "\n";
    return text;
  }
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
  fclose(file);
  return text + "\n";
}

}  // namespace

const char* name_of(TimeMode mode) {
  constexpr const char* kNames[] = {"real", "paced", "virtual", "noexec"};
  return kNames[static_cast<unsigned>(mode)];
}

void apply_knobs(const std::string& text, bool live, Settings* settings, Faults* faults,
                 std::string* complaints) {
  for (const std::string& line : split(text, '\n')) {
    for (const std::string& part : split(line.substr(0, line.find('#')), ';')) {
      const std::string statement = trimmed(part);
      if (statement.empty()) continue;
      std::string wrong = apply(statement, live, settings, faults);
      if (!wrong.empty()) *complaints += wrong + "\n";
    }
  }
}

std::string knobs_of_environment(std::string* complaints) {
  std::string text;
  if (const char* path = getenv("TENDRIL_SOFTGPU_FILE"); path != nullptr && *path != '\0')
    text = file_content(path, complaints);
  for (const Knob& knob : kKnobs) {
    std::string name = "TENDRIL_SOFTGPU_";
    for (const char* c = knob.key; *c != '\0'; ++c) name += static_cast<char>(toupper(*c));
    const char* value = getenv(name.c_str());
    if (value != nullptr && *value != '\0') text += std::string(knob.key) + " = " + value + "\n";
  }
  return text;
}

std::vector<KnobHelp> knob_list() {
  std::vector<KnobHelp> list;
  for (const Knob& knob : kKnobs)
    list.push_back({knob.key, knob.live, knob.per_device, knob.meaning});
  return list;
}

}  // namespace tendril::softgpu
