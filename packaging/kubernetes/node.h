// SPDX-License-Identifier: Apache-2.0
// The kubelet's plug-in: before a pod starts it writes a file of CDI that gives the pod's
// containers Tendril's client and says which slices they take. One process of each node, as root.
#pragma once

#include <string>

#include "packaging/kubernetes/api_server.h"

namespace tendril::kubernetes {

struct NodeOptions {
  ApiOptions api;
  std::string tendril = "tendril";
  std::string plugins = "/var/lib/kubelet/plugins";
  std::string registry = "/var/lib/kubelet/plugins_registry";
  std::string cdi = "/var/run/cdi";
  std::string space;  // the namespace with the secrets of leases
};

// Serves until SIGTERM or SIGINT. Returns the exit status.
int serve_node(const NodeOptions& options);

}  // namespace tendril::kubernetes
