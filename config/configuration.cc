// SPDX-License-Identifier: Apache-2.0
// See configuration.h.
#include "config/configuration.h"

#include "config/credentials.h"
#include "config/pool_settings.h"
#include "config/quantity.h"
#include "config/text.h"
#include "wire/assignment.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

// Adds the variable's name to an error of a reader that does not know where its text came from.
Status from_variable(const char* name, const Status& status) {
  return Status(status.code(), std::string(name) + ": " + status.message());
}

Status read_servers(Configuration* configuration) {
  base::Result<std::vector<Server>> leases =
      read_leases({"TENDRIL_LEASES", variable("TENDRIL_LEASES")});
  if (!leases.ok()) return leases.status();
  if (!leases->empty()) {
    configuration->servers = leases.take();
    configuration->source = "TENDRIL_LEASES";
    return {};
  }
  base::Result<ServerList> found = find_servers();
  if (!found.ok()) return found.status();
  static_cast<ServerList&>(*configuration) = found.take();
  return {};
}

Status read_slices(Configuration* configuration) {
  const std::string gpus = trimmed(variable("TENDRIL_GPUS"));
  uint64_t count = 1;
  if (!gpus.empty() && (!read_number(gpus, &count) || count == 0 || count > wire::kSlicesMax)) {
    return unexpected("TENDRIL_GPUS", gpus,
                      "a number from 1 to " + std::to_string(wire::kSlicesMax));
  }
  configuration->slice_count = static_cast<uint32_t>(count);
  base::Result<wire::SliceSpec> slice = read_slice({"TENDRIL_SLICE", variable("TENDRIL_SLICE")},
                                                   {"TENDRIL_MEMORY", variable("TENDRIL_MEMORY")});
  if (!slice.ok()) return slice.status();
  configuration->slice = *slice;
  return {};
}

Status read_terms(Configuration* configuration) {
  const std::string cap = trimmed(variable("TENDRIL_CAP"));
  if (!cap.empty() && cap != "0" && cap != "1") return unexpected("TENDRIL_CAP", cap, "1 or 0");
  if (cap == "1") configuration->terms.policy = wire::SharePolicy::kCap;
  const std::string priority = trimmed(variable("TENDRIL_PRIORITY"));
  if (priority.empty()) return {};
  const bool negative = priority[0] == '-';
  uint64_t number = 0;
  if (!read_number(priority.substr(negative ? 1 : 0), &number) ||
      number > static_cast<uint64_t>(wire::kPriorityMax)) {
    return unexpected("TENDRIL_PRIORITY", priority, "a number from -100 to 100");
  }
  configuration->terms.priority =
      negative ? -static_cast<int32_t>(number) : static_cast<int32_t>(number);
  return {};
}

Status read_pool(Configuration* configuration) {
  base::Result<PoolSettings> settings = read_pool_settings(pool_variables());
  if (!settings.ok()) return settings.status();
  configuration->pool = settings.take();
  return {};
}

Status read_encrypt(Configuration* configuration) {
  const std::string encrypt = trimmed(variable("TENDRIL_ENCRYPT"));
  configuration->insists_on_sealing = encrypt == "always";
  if (encrypt.empty() || encrypt == "auto" || encrypt == "always") return {};
  return unexpected("TENDRIL_ENCRYPT", encrypt, "auto or always");
}

Status read_switch(const char* name, bool* on) {
  const std::string value = trimmed(variable(name));
  *on = value != "off";
  if (value.empty() || value == "auto" || value == "off") return {};
  return unexpected(name, value, "auto or off");
}

Status read_link(Configuration* configuration) {
  constexpr uint64_t kDelayMaxUs = 10'000'000, kMegabytesMax = 1'000'000;
  const std::string link = trimmed(variable("TENDRIL_LINK"));
  if (link.empty()) return {};
  uint64_t delay_us = 0, megabytes = 0;
  const size_t colon = link.find(':');
  if (colon == std::string::npos || !read_number(link.substr(0, colon), &delay_us) ||
      !read_number(link.substr(colon + 1), &megabytes) || delay_us > kDelayMaxUs ||
      megabytes > kMegabytesMax) {
    return unexpected("TENDRIL_LINK", link,
                      "microseconds one way, a colon, megabytes per second: 200:1250");
  }
  configuration->link_delay_us = static_cast<uint32_t>(delay_us);
  configuration->link_megabytes_per_s = static_cast<uint32_t>(megabytes);
  return {};
}

}  // namespace

std::string wanted_transport() {
  const std::string kind = trimmed(variable("TENDRIL_TRANSPORT"));
  return kind == "auto" ? std::string() : kind;
}

base::Result<wire::SliceSpec> read_slice(const Named& share, const Named& memory) {
  wire::SliceSpec slice;  // a whole GPU
  const std::string share_text = trimmed(share.text), memory_text = trimmed(memory.text);
  if (!memory_text.empty()) {
    base::Result<uint64_t> bytes = parse_size(memory_text);
    if (!bytes.ok()) return from_variable(memory.name, bytes.status());
    slice.memory_bytes = *bytes;
    slice.share_millionths = 0;  // the server derives it from the memory
  }
  if (!share_text.empty()) {
    base::Result<uint32_t> millionths = parse_fraction(share_text);
    if (!millionths.ok()) return from_variable(share.name, millionths.status());
    slice.share_millionths = *millionths;
  }
  return slice;
}

base::Result<std::vector<Server>> read_leases(const Named& leases) {
  std::vector<Server> servers;
  for (const std::string& part : split(leases.text, ',')) {
    // The endpoint may hold '=' (a socket's path); lease id and secret cannot.
    const size_t equals = part.rfind('=');
    const size_t colon = equals == std::string::npos ? equals : part.find(':', equals);
    Server server;
    bool good = colon != std::string::npos && equals > 0;
    good = good && read_number(part.substr(equals + 1, colon - equals - 1), &server.lease_id);
    good = good && server.lease_id != 0 && read_hex(part.substr(colon + 1), &server.lease_secret);
    if (!good) {
      return Status(Code::kInvalid,
                    std::string(leases.name) + ": part " + std::to_string(servers.size() + 1) +
                        " is not <endpoint>=<lease id>:<secret in hex>; `tendril run` sets it");
    }
    server.endpoint = part.substr(0, equals);
    servers.push_back(std::move(server));
  }
  return servers;
}

base::Result<uint32_t> read_outage(const Named& outage) {
  const std::string text = trimmed(outage.text);
  if (text.empty()) return wire::kOutageMs;
  if (text == "off") return 0u;
  base::Result<uint64_t> seconds = parse_duration(text);
  if (!seconds.ok()) return from_variable(outage.name, seconds.status());
  if (*seconds > wire::kOutageMsMax / 1000)
    return unexpected(outage.name, text, "at most 24h, or off");
  return static_cast<uint32_t>(*seconds * 1000);
}

base::Result<Configuration> load_configuration() {
  Configuration configuration;
  Status status = read_servers(&configuration);
  if (status.ok()) status = read_slices(&configuration);
  if (status.ok()) status = read_terms(&configuration);
  if (status.ok()) status = read_pool(&configuration);
  configuration.transport = wanted_transport();
  if (status.ok()) status = read_encrypt(&configuration);
  if (status.ok()) status = read_switch("TENDRIL_PASSAGES", &configuration.uses_passages);
  if (status.ok()) status = read_switch("TENDRIL_WINDOWS", &configuration.uses_windows);
  if (status.ok()) status = read_link(&configuration);
  if (!status.ok()) return status;
  base::Result<uint32_t> outage = read_outage({"TENDRIL_OUTAGE", variable("TENDRIL_OUTAGE")});
  if (!outage.ok()) return outage.status();
  configuration.outage_ms = *outage;
  base::Result<std::string> token = load_token("", TokenUse::kClient);
  if (!token.ok()) return token.status();
  configuration.token = token.take();
  return configuration;
}

}  // namespace tendril::config
