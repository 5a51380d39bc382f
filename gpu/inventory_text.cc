// SPDX-License-Identifier: Apache-2.0
// Writes the inventory as lines of text, and reads it. Opens no library, so that the daemon can
// link this file alone. See inventory.h.
#include <cstdio>
#include <cstdlib>

#include "gpu/inventory.h"

namespace tendril::gpu {
namespace {

constexpr size_t kDevicesMax = 1024;
constexpr const char* kDriverLine = "tendril-driver";
constexpr const char* kDeviceLine = "tendril-gpu";
constexpr const char* kApiLine = "tendril-api";
constexpr const char* kFactsLine = "tendril-facts";
constexpr const char* kNcclLine = "tendril-nccl";
constexpr size_t kApisMax = 64, kApiNameBytesMax = 32;

constexpr size_t kExtensionsBytesMax = 8u << 10;

std::string cleaned(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

std::string to_hex(const std::string& bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool from_hex(const std::string& text, std::string* out, size_t bytes_max = 32) {
  if (text.size() % 2 != 0 || text.size() > 2 * bytes_max) return false;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = nibble(text[i]), low = nibble(text[i + 1]);
    if (high < 0 || low < 0) return false;
    *out += static_cast<char>(high << 4 | low);
  }
  return true;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

bool number(const std::string& text, uint64_t max, uint64_t* out) {
  if (text.empty() || text.size() > 19) return false;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  *out = value;
  return value <= max;
}

bool device_from(const std::vector<std::string>& fields, DeviceFacts* device) {
  uint64_t index = 0, processors = 0, pageable = 0, capability = 0;
  if (fields.size() < 9 || !number(fields[8], 1, &pageable) ||
      !number(fields[1], kDevicesMax, &index))
    return false;
  device->index = static_cast<uint32_t>(index);
  if (!number(fields[5], UINT32_MAX, &processors)) return false;
  device->processors = static_cast<uint32_t>(processors);
  device->pageable_access = pageable != 0;
  if (fields.size() > 9 && !number(fields[9], 1000, &capability)) return false;
  device->compute_capability = static_cast<uint32_t>(capability);
  device->pci_bus_id = fields[6].substr(0, 64);
  device->name = fields[7].substr(0, 256);
  if (fields.size() > 13) {
    device->type = fields[10].substr(0, 16);
    device->vendor = fields[11].substr(0, 256);
    device->opencl_version = fields[12].substr(0, 16);
    device->extensions = fields[13].substr(0, kExtensionsBytesMax);
  }
  return from_hex(fields[2], &device->uuid) &&
         number(fields[3], UINT64_MAX, &device->memory_total_bytes) &&
         number(fields[4], UINT64_MAX, &device->memory_taken_bytes);
}

bool api_from(const std::vector<std::string>& fields, ApiRecord* api) {
  std::string digest;
  if (fields.size() < 3 || fields[1].empty() || fields[1].size() > kApiNameBytesMax) return false;
  if (!from_hex(fields[2], &digest) || digest.size() != sizeof api->digest) return false;
  api->name = fields[1];
  for (const char byte : digest) api->digest = api->digest << 8 | static_cast<uint8_t>(byte);
  return true;
}

bool facts_from(const std::vector<std::string>& fields, ApiFacts* facts) {
  uint64_t gpu = 0;
  if (fields.size() < 4 || fields[1].empty() || fields[1].size() > kApiNameBytesMax ||
      !number(fields[2], kDevicesMax, &gpu))
    return false;
  facts->api = fields[1];
  facts->gpu = static_cast<uint32_t>(gpu);
  return from_hex(fields[3], &facts->facts, kApiFactsBytesMax);
}

bool nccl_from(const std::vector<std::string>& fields, NcclFile* file) {
  uint64_t version = 0;
  if (fields.size() < 3 || !number(fields[1], 9'999'999, &version) || fields[2].empty() ||
      fields[2].size() > 4096)
    return false;
  file->version = static_cast<uint32_t>(version);
  file->path = fields[2];
  return true;
}

std::string digest_to_hex(uint64_t digest) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(digest >> shift);
  return to_hex(bytes);
}

}  // namespace

std::string inventory_to_text(const Inventory& inventory) {
  std::string text = std::string(kDriverLine) + '\t' + std::to_string(inventory.driver_version) +
                     '\t' + cleaned(inventory.driver_path) + '\n';
  for (const DeviceFacts& device : inventory.devices) {
    text += std::string(kDeviceLine) + '\t' + std::to_string(device.index) + '\t' +
            to_hex(device.uuid) + '\t' + std::to_string(device.memory_total_bytes) + '\t' +
            std::to_string(device.memory_taken_bytes) + '\t' + std::to_string(device.processors) +
            '\t' + cleaned(device.pci_bus_id) + '\t' + cleaned(device.name) + '\t' +
            (device.pageable_access ? '1' : '0') + '\t' +
            std::to_string(device.compute_capability) + '\t' + cleaned(device.type) + '\t' +
            cleaned(device.vendor) + '\t' + cleaned(device.opencl_version) + '\t' +
            cleaned(device.extensions) + '\n';
  }
  for (const ApiRecord& api : inventory.apis) {
    text +=
        std::string(kApiLine) + '\t' + cleaned(api.name) + '\t' + digest_to_hex(api.digest) + '\n';
  }
  for (const ApiFacts& facts : inventory.facts) {
    text += std::string(kFactsLine) + '\t' + cleaned(facts.api) + '\t' + std::to_string(facts.gpu) +
            '\t' + to_hex(facts.facts) + '\n';
  }
  for (const NcclFile& file : inventory.nccl) {
    text += std::string(kNcclLine) + '\t' + std::to_string(file.version) + '\t' +
            cleaned(file.path) + '\n';
  }
  return text;
}

base::Result<Inventory> inventory_from_text(const std::string& text) {
  Inventory inventory;
  bool driver_seen = false;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::vector<std::string> fields = fields_of(text.substr(begin, end - begin));
    begin = end + 1;
    if (fields[0] == kDriverLine) {
      uint64_t version = 0;
      if (fields.size() < 3 || !number(fields[1], UINT32_MAX, &version)) {
        return base::Status(base::Code::kInvalid, "the probe's driver line is malformed");
      }
      inventory.driver_version = static_cast<uint32_t>(version);
      inventory.driver_path = fields[2];
      driver_seen = true;
    } else if (fields[0] == kDeviceLine) {
      DeviceFacts device;
      if (!device_from(fields, &device) || inventory.devices.size() >= kDevicesMax) {
        return base::Status(base::Code::kInvalid, "the probe's GPU line is malformed");
      }
      inventory.devices.push_back(std::move(device));
    } else if (fields[0] == kApiLine) {
      ApiRecord api;
      if (!api_from(fields, &api) || inventory.apis.size() >= kApisMax) {
        return base::Status(base::Code::kInvalid, "the probe's line about an API is malformed");
      }
      inventory.apis.push_back(std::move(api));
    } else if (fields[0] == kFactsLine) {
      ApiFacts facts;
      if (!facts_from(fields, &facts) || inventory.facts.size() >= kDevicesMax) {
        return base::Status(base::Code::kInvalid,
                            "the probe's line about an API's view of a GPU is malformed");
      }
      inventory.facts.push_back(std::move(facts));
    } else if (fields[0] == kNcclLine) {
      NcclFile file;
      if (!nccl_from(fields, &file) || inventory.nccl.size() >= kNcclFilesMax) {
        return base::Status(base::Code::kInvalid, "the probe's line about NCCL is malformed");
      }
      inventory.nccl.push_back(std::move(file));
    }
  }
  if (!driver_seen) {
    return base::Status(base::Code::kInvalid, "the probe said nothing about the driver");
  }
  return inventory;
}

}  // namespace tendril::gpu
