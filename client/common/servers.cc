// SPDX-License-Identifier: Apache-2.0
// See servers.h. Numbers are read by hand: strtod and friends depend on the program's locale, which
// is not ours to know.
#include "client/common/servers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tendril::client {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr size_t kFileBytesMax = 1u << 20;
constexpr char kSystemFile[] = "/etc/tendril/servers.conf";
constexpr uint32_t kWhole = 1'000'000;

// The value of a variable, empty when it is unset: an empty variable means the same as none.
std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Status invalid(const char* what, const std::string& text, const char* expected) {
  return Status(Code::kInvalid, std::string(what) + "=" + text + ": expected " + expected);
}

std::string trimmed(const std::string& text) {
  const char* blank = " \t\r\n";
  size_t first = text.find_first_not_of(blank);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

// Splits at `separator`, trims the parts and drops empty ones.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    size_t end = text.find(separator, at);
    if (end == std::string::npos) end = text.size();
    std::string part = trimmed(text.substr(at, end - at));
    if (!part.empty()) parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

bool parse_unsigned(const std::string& text, uint64_t* value) {
  if (text.empty()) return false;
  uint64_t sum = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    if (__builtin_mul_overflow(sum, uint64_t{10}, &sum)) return false;
    if (__builtin_add_overflow(sum, static_cast<uint64_t>(c - '0'), &sum)) return false;
  }
  *value = sum;
  return true;
}

// "12.345" as 12345000 millionths; further digits are cut.
bool parse_millionths(const std::string& text, uint64_t* value) {
  size_t dot = text.find('.');
  std::string whole = text.substr(0, dot);
  std::string part = dot == std::string::npos ? "" : text.substr(dot + 1);
  if (whole.empty() && part.empty()) return false;
  uint64_t units = 0, millionths = 0, checked = 0;
  if (!whole.empty() && (whole.size() > 9 || !parse_unsigned(whole, &units))) return false;
  if (!part.empty() && !parse_unsigned(part.substr(0, 18), &checked)) return false;
  part.resize(6, '0');
  if (!parse_unsigned(part, &millionths)) return false;
  *value = units * kWhole + millionths;
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool parse_hex(const std::string& text, std::string* bytes) {
  if (text.empty() || text.size() % 2 != 0) return false;
  bytes->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

Result<std::string> read_file(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    int error = errno;
    Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kUnavailable;
    return base::errno_status(code, ("cannot read " + path).c_str(), error);
  }
  std::string text;
  char piece[4096];
  for (;;) {
    ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    int error = errno;
    if (got <= 0) {
      close(fd);
      if (got == 0) return text;
      return base::errno_status(Code::kUnavailable, ("cannot read " + path).c_str(), error);
    }
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kFileBytesMax) {
      close(fd);
      return Status(Code::kInvalid, path + ": larger than 1 MiB, this is not a Tendril file");
    }
  }
}

Status servers_from_leases(const std::string& text, Configuration* configuration) {
  for (const std::string& part : split(text, ',')) {
    // The endpoint may hold '=' (a socket's path); lease id and secret cannot.
    size_t equals = part.rfind('=');
    size_t colon = equals == std::string::npos ? equals : part.find(':', equals);
    Server server;
    bool good = colon != std::string::npos && equals > 0;
    good = good && parse_unsigned(part.substr(equals + 1, colon - equals - 1), &server.lease_id);
    good = good && server.lease_id != 0 && parse_hex(part.substr(colon + 1), &server.lease_secret);
    if (!good) {  // says nothing of the text: it holds a secret
      return Status(Code::kInvalid,
                    "TENDRIL_LEASES: part " + std::to_string(configuration->servers.size() + 1) +
                        " is not <endpoint>=<lease id>:<secret in hex>; `tendril run` sets it");
    }
    server.endpoint = part.substr(0, equals);
    configuration->servers.push_back(std::move(server));
  }
  configuration->source = "TENDRIL_LEASES";
  return {};
}

void servers_from_text(const std::string& text, char separator, Configuration* configuration) {
  for (const std::string& part : split(text, separator)) {
    std::string endpoint = separator == '\n' ? trimmed(part.substr(0, part.find('#'))) : part;
    if (endpoint.empty()) continue;
    Server server;
    server.endpoint = std::move(endpoint);
    configuration->servers.push_back(std::move(server));
  }
}

// The first file that exists counts. A file named by the user must exist; the usual places need
// not.
Status servers_from_files(Configuration* configuration) {
  std::string named = variable("TENDRIL_SERVERS_CONF");
  std::string home = variable("HOME");
  std::vector<std::string> paths;
  if (!named.empty()) {
    paths.push_back(named);
  } else {
    if (!home.empty()) paths.push_back(home + "/.config/tendril/servers.conf");
    paths.push_back(kSystemFile);
  }
  for (const std::string& path : paths) {
    Result<std::string> text = read_file(path);
    if (!text.ok() && text.status().code() == Code::kNotFound && named.empty()) continue;
    if (!text.ok()) return text.status();
    servers_from_text(*text, '\n', configuration);
    configuration->source = path;
    if (!configuration->servers.empty()) return {};
    return Status(Code::kNotFound, path + " names no server: write one host[:port] per line");
  }
  return Status(Code::kNotFound,
                "no GPU server is named: set TENDRIL_SERVERS=host[:port], write one per line to "
                "~/.config/tendril/servers.conf, or start the program with `tendril run`");
}

Status find_servers(Configuration* configuration) {
  std::string leases = trimmed(variable("TENDRIL_LEASES"));
  if (!leases.empty()) {
    Status status = servers_from_leases(leases, configuration);
    if (!status.ok() || !configuration->servers.empty()) return status;
  }
  servers_from_text(variable("TENDRIL_SERVERS"), ',', configuration);
  configuration->source = "TENDRIL_SERVERS";
  return configuration->servers.empty() ? servers_from_files(configuration) : Status();
}

Status read_slices(Configuration* configuration) {
  std::string gpus = trimmed(variable("TENDRIL_GPUS"));
  uint64_t count = 1;
  if (!gpus.empty() && (!parse_unsigned(gpus, &count) || count == 0 || count > kSlicesMax)) {
    return invalid("TENDRIL_GPUS", gpus, "a number from 1 to 64");
  }
  configuration->slice_count = static_cast<uint32_t>(count);

  std::string memory = trimmed(variable("TENDRIL_MEMORY"));
  if (!memory.empty()) {
    Result<uint64_t> bytes = parse_bytes("TENDRIL_MEMORY", memory);
    if (!bytes.ok()) return bytes.status();
    configuration->slice.memory_bytes = *bytes;
    configuration->slice.share_millionths = 0;
  }
  std::string share = trimmed(variable("TENDRIL_SLICE"));
  if (!share.empty()) {
    Result<uint32_t> millionths = parse_share_millionths("TENDRIL_SLICE", share);
    if (!millionths.ok()) return millionths.status();
    configuration->slice.share_millionths = *millionths;
  }
  return {};
}

Status read_terms(Configuration* configuration) {
  std::string cap = trimmed(variable("TENDRIL_CAP"));
  if (!cap.empty() && cap != "0" && cap != "1") return invalid("TENDRIL_CAP", cap, "1 or 0");
  if (cap == "1") configuration->terms.policy = wire::SharePolicy::kCap;
  std::string priority = trimmed(variable("TENDRIL_PRIORITY"));
  const bool negative = !priority.empty() && priority[0] == '-';
  uint64_t number = 0;
  if (!priority.empty() && (!parse_unsigned(priority.substr(negative ? 1 : 0), &number) ||
                            number > static_cast<uint64_t>(wire::kPriorityMax))) {
    return invalid("TENDRIL_PRIORITY", priority, "a number from -100 to 100");
  }
  configuration->terms.priority =
      negative ? -static_cast<int32_t>(number) : static_cast<int32_t>(number);
  return {};
}

Status read_access(Configuration* configuration) {
  configuration->token = variable("TENDRIL_TOKEN");
  std::string path = variable("TENDRIL_TOKEN_FILE");
  if (configuration->token.empty() && !path.empty()) {
    Result<std::string> text = read_file(path);
    if (!text.ok())
      return Status(text.status().code(), "TENDRIL_TOKEN_FILE: " + text.status().message());
    configuration->token = trimmed(*text);
    if (configuration->token.empty()) {
      return Status(Code::kInvalid, "TENDRIL_TOKEN_FILE: " + path + " is empty");
    }
  }
  std::string transport = trimmed(variable("TENDRIL_TRANSPORT"));
  if (transport.empty() || transport == "auto") {
    configuration->transport = Transport::kAuto;
  } else if (transport == "tcp") {
    configuration->transport = Transport::kTcp;
  } else if (transport == "shm") {
    configuration->transport = Transport::kShm;
  } else {
    return invalid("TENDRIL_TRANSPORT", transport, "auto, tcp or shm");
  }
  std::string link = trimmed(variable("TENDRIL_LINK"));
  if (link.empty()) return {};
  constexpr uint64_t kDelayMaxUs = 10'000'000, kMegabytesMax = 1'000'000;
  uint64_t delay_us = 0, megabytes = 0;
  size_t colon = link.find(':');
  if (colon == std::string::npos || !parse_unsigned(link.substr(0, colon), &delay_us) ||
      !parse_unsigned(link.substr(colon + 1), &megabytes) || delay_us > kDelayMaxUs ||
      megabytes > kMegabytesMax) {
    return invalid("TENDRIL_LINK", link,
                   "microseconds one way, a colon, megabytes per second: 200:1250");
  }
  configuration->link_delay_us = static_cast<uint32_t>(delay_us);
  configuration->link_megabytes_per_s = static_cast<uint32_t>(megabytes);
  return {};
}

}  // namespace

Result<uint32_t> parse_share_millionths(const char* what, const std::string& text) {
  constexpr char kExpected[] = "a part of one GPU, more than 0 and at most 1: 0.5, 1/3 or 35%";
  uint64_t value = 0;
  size_t slash = text.find('/');
  bool good = false;
  if (slash != std::string::npos) {
    uint64_t part = 0, of = 0;
    good = parse_unsigned(trimmed(text.substr(0, slash)), &part) &&
           parse_unsigned(trimmed(text.substr(slash + 1)), &of);
    good = good && of != 0 && of <= kWhole && part <= of;
    if (good) value = part * kWhole / of;
  } else if (!text.empty() && text.back() == '%') {
    good = parse_millionths(trimmed(text.substr(0, text.size() - 1)), &value);
    value /= 100;
  } else {
    good = parse_millionths(text, &value);
  }
  if (!good || value == 0 || value > kWhole) return invalid(what, text, kExpected);
  return static_cast<uint32_t>(value);
}

Result<uint64_t> parse_bytes(const char* what, const std::string& text) {
  constexpr char kExpected[] =
      "bytes, or a number with K, M, G or T (powers of 1024): 512M, 10G, 1.5GiB";
  size_t digits = text.find_first_not_of("0123456789.");
  std::string number = text.substr(0, digits);
  std::string unit = digits == std::string::npos ? "" : trimmed(text.substr(digits));
  uint64_t scale = 1;
  bool good = true;
  if (!unit.empty()) {
    constexpr char kUnits[] = "KMGT";
    const char letter = static_cast<char>(unit[0] & ~0x20);
    const char* found = letter == 0 ? nullptr : strchr(kUnits, letter);
    std::string rest = unit.substr(found == nullptr ? 0 : 1);
    good = rest.empty() || rest == "B" || (found != nullptr && (rest == "i" || rest == "iB"));
    if (found != nullptr) scale = uint64_t{1} << (10 * (found - kUnits + 1));
  }
  uint64_t bytes = 0, millionths = 0;
  if (number.find('.') == std::string::npos) {
    good = good && parse_unsigned(number, &bytes) && !__builtin_mul_overflow(bytes, scale, &bytes);
  } else {
    good = good && scale > 1 && parse_millionths(number, &millionths);
    bytes = static_cast<uint64_t>(static_cast<unsigned __int128>(millionths) * scale / kWhole);
  }
  if (!good || bytes == 0) return invalid(what, text, kExpected);
  return bytes;
}

Result<Configuration> load_configuration() {
  Configuration configuration;
  Status status = find_servers(&configuration);
  if (status.ok()) status = read_slices(&configuration);
  if (status.ok()) status = read_terms(&configuration);
  if (status.ok()) status = read_access(&configuration);
  if (!status.ok()) return status;
  return configuration;
}

}  // namespace tendril::client
