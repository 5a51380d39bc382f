// SPDX-License-Identifier: Apache-2.0
// Requests to Kubernetes' API server, with libcurl. One thread at a time.
#pragma once

#include <stdexcept>
#include <string>

#include "packaging/kubernetes/inventory.h"

namespace tendril::kubernetes {

struct ApiOptions {
  std::string url;         // "https://10.0.0.1:443"
  std::string token_file;  // read for each request, because Kubernetes renews it; empty: none
  std::string ca_file;     // who signs the server's certificate; empty: whom the system trusts
};
// What Kubernetes gives every pod, with what `options` says already in front of it. Throws
// std::runtime_error: this is no pod, and no URL is given.
ApiOptions in_cluster(ApiOptions options);
// The pod's namespace; "tendril" outside pods.
std::string own_namespace();

// The server's refusal, or that it was not reached (status 0).
class ApiError : public std::runtime_error {
 public:
  ApiError(long http_status, const std::string& what)
      : std::runtime_error(what), status(http_status) {}
  const long status;
};

// Blocks for 15 s at most. `body` null: none. Throws ApiError.
Json ask(const ApiOptions& options, const char* method, const std::string& path,
         const Json& body = nullptr);

// The leases that are held for a claim are in a Secret of the driver's namespace `space`.
inline constexpr char kClaimLabel[] = "gpu.tendril.io/claim";
std::string secret_name(const std::string& uid);
std::string secrets_path(const std::string& space);
// As TENDRIL_LEASES says them; empty: there is no such Secret. Throws ApiError.
std::string leases_for(const ApiOptions& options, const std::string& space, const std::string& uid);

// The driver's ResourceSlices.
std::vector<Json> published(const ApiOptions& options);

}  // namespace tendril::kubernetes
