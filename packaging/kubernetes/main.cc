// SPDX-License-Identifier: Apache-2.0
// The program tendril-kubernetes: a driver for dynamic resource allocation, with a part for the
// cluster (publish), one for each node (node), and one that holds leases for pods (bind).
// docs/guides/kubernetes.md says how to use it.
#include <curl/curl.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "packaging/kubernetes/binder.h"
#include "packaging/kubernetes/node.h"
#include "packaging/kubernetes/publisher.h"

using tendril::kubernetes::ApiOptions;

namespace {

void add_common(CLI::App* sub, ApiOptions* api, std::string* program) {
  sub->add_option("--api", api->url,
                  "The API server, such as https://10.0.0.1 (default: the pod's)")
      ->type_name("URL");
  sub->add_option("--api-token", api->token_file, "File with the token for it")->type_name("FILE");
  sub->add_option("--api-ca", api->ca_file, "File with the certificate that signs its own")
      ->type_name("FILE");
  sub->add_option("--tendril", *program, "The command tendril")->type_name("FILE");
}

}  // namespace

int main(int count, char** words) {
  CLI::App app("Slices of a pool's GPUs for pods of Kubernetes");
  app.require_subcommand(1);
  tendril::kubernetes::PublishOptions publishing;
  tendril::kubernetes::NodeOptions node;
  tendril::kubernetes::BindOptions binding;
  std::string space;
  CLI::App* const publish =
      app.add_subcommand("publish", "Keep ResourceSlices equal to the pool's GPUs");
  add_common(publish, &publishing.api, &publishing.tendril);
  publish->add_option("--pool", publishing.pool, "The pool's name in Kubernetes")
      ->capture_default_str();
  publish->add_option("--interval", publishing.interval_s, "Seconds between two looks")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  publish->add_flag("--bind", publishing.binds,
                    "Pods wait until the pool has granted; 'bind' must run, too");
  publish->add_flag("--once", publishing.once, "Look once and end");
  CLI::App* const serve = app.add_subcommand("node", "Prepare claims for the kubelet of this node");
  add_common(serve, &node.api, &node.tendril);
  serve->add_option("--plugins", node.plugins, "The kubelet's folder of plug-ins")
      ->capture_default_str();
  serve->add_option("--registry", node.registry, "Where it looks for new ones")
      ->capture_default_str();
  serve->add_option("--cdi", node.cdi, "Where the container runtime reads files of CDI")
      ->capture_default_str();
  CLI::App* const bind =
      app.add_subcommand("bind", "Take leases for claims before their pods are bound to nodes");
  add_common(bind, &binding.api, &binding.tendril);
  for (CLI::App* const sub : {serve, bind})
    sub->add_option("--namespace", space, "Where the secrets of leases are (default: the pod's)")
        ->type_name("NAME");
  CLI11_PARSE(app, count, words);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  try {
    if (space.empty()) space = tendril::kubernetes::own_namespace();
    node.space = binding.space = space;
    ApiOptions& api = *publish ? publishing.api : *bind ? binding.api : node.api;
    api = tendril::kubernetes::in_cluster(api);
    if (*publish) return tendril::kubernetes::publish(publishing);
    if (*bind) return tendril::kubernetes::bind_claims(binding);
    return tendril::kubernetes::serve_node(node);
  } catch (const std::exception& error) {
    fprintf(stderr, "tendril-kubernetes: %s\n", error.what());
    return 1;
  }
}
