// SPDX-License-Identifier: Apache-2.0
// `tendril cdi generate`: a specification from which podman, docker, containerd and CRI-O make
// devices such as tendril.io/gpu=half. A device is the variables and mounts of container_edits.
#include <errno.h>
#include <stdio.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/integrations/edits.h"
#include "config/quantity.h"

namespace tendril::cli {
namespace {

using Json = nlohmann::ordered_json;

// podman 4.3 of Debian 12 reads no later one.
constexpr char kVersion[] = "0.5.0";
const std::vector<std::string> kUsualDevices = {"whole=1", "half=0.5", "third=1/3", "quarter=0.25",
                                                "tenth=0.1"};

bool is_name(const std::string& name) {
  for (const char c : name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '-' && c != '.') return false;
  }
  return !name.empty() && name[0] != '-' && name[0] != '.' && name[0] != '_';
}

Json environment(const Variables& variables) {
  Json list = Json::array();
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

// A part of a GPU, a size, or both with a comma between them. Empty: it is none of these.
Variables slice_of(const std::string& text) {
  const size_t comma = text.find(',');
  const std::string first = text.substr(0, comma);
  const std::string memory = comma == std::string::npos ? first : text.substr(comma + 1);
  Variables slice;
  auto share = config::parse_fraction(first);
  if (share.ok()) slice.emplace_back("TENDRIL_SLICE", config::format_fraction(*share));
  if (share.ok() && comma == std::string::npos) return slice;
  // With a unit: a bare number may be a mistyped part.
  auto size = config::parse_size(memory);
  if (!size.ok() || memory.back() <= '9' || (comma != std::string::npos && !share.ok())) return {};
  slice.emplace_back("TENDRIL_MEMORY", config::format_size_exactly(*size));
  return slice;
}

// "NAME=FRACTION", "NAME=SIZE" or "NAME=FRACTION,SIZE"
base::Result<Json> device(const std::string& text) {
  const size_t sign = text.find('=');
  const std::string name = text.substr(0, sign);
  const Variables slice = slice_of(sign == std::string::npos ? "" : text.substr(sign + 1));
  if (!is_name(name) || slice.empty()) {
    return base::Status(base::Code::kInvalid,
                        "'" + base::printable(text, 80) +
                            "' is no device; expected a name of letters and digits, and a part of "
                            "a GPU or a size, such as half=0.5, small=10G or both=0.5,10G");
  }
  return Json{{"name", name}, {"containerEdits", {{"env", environment(slice)}}}};
}

base::Result<std::string> specification(const CdiOptions& options) {
  auto edits = container_edits(options, false);
  if (!edits.ok()) return edits.status();
  for (const std::string& note : edits->notes) fprintf(stderr, "tendril: %s\n", note.c_str());
  Json mounts = Json::array(), devices = Json::array();
  for (const Mount& mount : edits->mounts) {
    mounts.push_back({{"hostPath", mount.source},
                      {"containerPath", mount.target},
                      {"options", {"ro", "nosuid", "nodev", "rbind"}}});
  }
  for (const std::string& text : options.devices.empty() ? kUsualDevices : options.devices) {
    auto one = device(text);
    if (!one.ok()) return one.status();
    devices.push_back(one.take());
  }
  const Json all = {
      {"cdiVersion", kVersion},
      {"kind", "tendril.io/gpu"},
      {"devices", devices},
      {"containerEdits", {{"env", environment(edits->variables)}, {"mounts", mounts}}}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int generate_cdi(const CdiOptions& options) {
  auto text = specification(options);
  if (!text.ok()) return complain(kFailed, text.status());
  if (options.output.empty()) {
    fputs(text->c_str(), stdout);
    return 0;
  }
  // A runtime never reads half of it.
  const std::string next = options.output + ".next";
  FILE* const file = fopen(next.c_str(), "we");
  const bool written = file != nullptr && fputs(text->c_str(), file) >= 0;
  if ((file != nullptr && fclose(file) != 0) || !written ||
      rename(next.c_str(), options.output.c_str()) != 0) {
    const int error = errno;
    remove(next.c_str());
    return complain(kFailed,
                    base::errno_status(base::Code::kUnavailable,
                                       ("cannot write '" + options.output + "'").c_str(), error));
  }
  return 0;
}

}  // namespace tendril::cli
