// SPDX-License-Identifier: Apache-2.0
// A trace of a cluster: its servers and the requests that arrived. Reads the text of the public
// "openb" tables (alibaba/clusterdata, cluster-trace-gpu-v2023): a line of column names, then one
// server or one request a line. The text is untrusted: a bad line is an error with its number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pool/placement/placer.h"

namespace tendril::pool {

struct TraceRequest {
  Request request;                  // without models
  std::vector<std::string> models;  // empty: any
};

struct Trace {
  std::vector<ServerSpec> servers;
  std::vector<TraceRequest> requests;
};

// Columns cpu_milli, memory_mib, gpu, model; optional sn. In any order; others are passed over.
base::Result<std::vector<ServerSpec>> read_servers(std::string_view text);
// Columns cpu_milli, memory_mib, num_gpu, gpu_milli; optional gpu_spec (models, parted by '|').
base::Result<std::vector<TraceRequest>> read_requests(std::string_view text);

}  // namespace tendril::pool
