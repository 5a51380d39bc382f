// SPDX-License-Identifier: Apache-2.0
// The public tables by the names of their columns.
#include "pool/replay/trace.h"

#include <algorithm>

#include "pool/replay/table.h"

namespace tendril::pool {

namespace {

constexpr uint64_t kMib = 1 << 20;

}  // namespace

base::Result<std::vector<ServerSpec>> read_servers(std::string_view text) {
  std::vector<ServerSpec> servers;
  const base::Status status = read_table(text, [&](TableLine& line) {
    ServerSpec server;
    server.name = line.text("sn");
    server.model = line.text("model");
    server.gpus = static_cast<uint32_t>(line.number("gpu", kMostGpus));
    server.cpu_milli = static_cast<uint32_t>(line.number("cpu_milli", 1U << 30));
    server.host_memory_bytes = line.number("memory_mib", uint64_t{1} << 32) * kMib;
    servers.push_back(std::move(server));
  });
  if (!status) return status;
  return servers;
}

base::Result<std::vector<TraceRequest>> read_requests(std::string_view text) {
  constexpr uint32_t kMilli = 1000;  // of a GPU in the trace's unit; more means the whole GPU
  std::vector<TraceRequest> requests;
  const base::Status status = read_table(text, [&](TableLine& line) {
    TraceRequest each;
    Request& request = each.request;
    request.slices = static_cast<uint32_t>(line.number("num_gpu", kMostSlices));
    const uint64_t share = line.number("gpu_milli", 1U << 20);
    request.share_millionths =
        request.slices == 0 ? 0 : std::min<uint64_t>(share, kMilli) * (kWholeGpu / kMilli);
    request.host.cpu_milli = static_cast<uint32_t>(line.number("cpu_milli", 1U << 30));
    request.host.memory_bytes = line.number("memory_mib", uint64_t{1} << 32) * kMib;
    for (std::string_view model : split_text(line.text("gpu_spec"), '|'))
      if (!model.empty()) each.models.emplace_back(model);
    requests.push_back(std::move(each));
  });
  if (!status) return status;
  return requests;
}

}  // namespace tendril::pool
