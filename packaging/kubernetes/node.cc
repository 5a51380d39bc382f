// SPDX-License-Identifier: Apache-2.0
// See node.h. The kubelet asks again after an error, after its own restart and after the node's. So
// each answer depends on nothing but the claim, the ResourceSlices and the files.
#include "packaging/kubernetes/node.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "dra_v1.grpc.pb.h"
#include "dra_v1beta1.grpc.pb.h"
#include "packaging/kubernetes/binding.h"
#include "packaging/kubernetes/claim.h"
#include "packaging/kubernetes/command.h"
#include "registration.grpc.pb.h"

namespace tendril::kubernetes {
namespace {

namespace v1 = k8s::io::kubelet::pkg::apis::dra::v1;
namespace v1beta1 = k8s::io::kubelet::pkg::apis::dra::v1beta1;

// It becomes part of a path.
bool is_uid(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         text.find_first_not_of(
             "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") ==
             std::string::npos;
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 253 &&
         text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz-.") == std::string::npos;
}

class Claims {
 public:
  explicit Claims(const NodeOptions& options) : options_(options) {}

  // Throws std::runtime_error with a message for the pod's events.
  Wanted prepare(const std::string& space, const std::string& name, const std::string& uid) {
    if (!is_uid(uid) || !is_name(space) || !is_name(name))
      throw std::runtime_error("the claim has no usable name");
    const std::lock_guard<std::mutex> hold(mutex_);
    const std::string path = std::string(kApi) + "/namespaces/" + space + "/resourceclaims/" + name;
    const Json claim = ask(options_.api, "GET", path);
    const Wanted wanted = wanted_of(claim, uid, published(options_.api));
    std::string slice = wanted.share_text();
    if (wanted.memory_mib != 0) slice += "," + wanted.memory_text();
    const Json specification = Json::parse(run_tendril(
        options_.tendril, {"cdi", "generate", "--device", device_of(uid) + "=" + slice, "-n",
                           std::to_string(wanted.devices.size()), "--filter", wanted.filter}));
    const std::string leases =
        waits_for_lease(claim) ? leases_for(options_.api, options_.space, uid) : "";
    write(file_of(uid), with_leases(specification, leases));
    return wanted;
  }

  void unprepare(const std::string& uid) {
    if (!is_uid(uid)) throw std::runtime_error("the claim has no usable name");
    const std::lock_guard<std::mutex> hold(mutex_);
    if (unlink(file_of(uid).c_str()) != 0 && errno != ENOENT)
      throw std::runtime_error("cannot remove '" + file_of(uid) + "': " + strerror(errno));
  }

  static std::string device_of(const std::string& uid) { return "claim-" + uid; }

 private:
  // The program takes over the leases that are held for it.
  static Json with_leases(Json specification, const std::string& leases) {
    if (leases.empty()) return specification;
    for (Json& device : specification.at("devices"))
      device["containerEdits"]["env"].push_back("TENDRIL_OFFER=" + leases);
    return specification;
  }

  // For root only: leases are secrets. The container runtime never reads half of a file.
  void write(const std::string& path, const Json& specification) const {
    std::filesystem::create_directories(options_.cdi);
    const std::string text = specification.dump(2) + "\n", next = path + ".next";
    unlink(next.c_str());
    const base::Fd file(open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.valid() || ::write(file.get(), text.data(), text.size()) != ssize_t(text.size()) ||
        rename(next.c_str(), path.c_str()) != 0)
      throw std::runtime_error("cannot write '" + path + "': " + strerror(errno));
  }

  std::string file_of(const std::string& uid) const {
    return options_.cdi + "/tendril-claim-" + uid + ".json";
  }

  const NodeOptions& options_;
  std::mutex mutex_;
};

// Both versions of the service say the same in messages of the same shape.
template <typename Service, typename PrepareRequest, typename PrepareResponse,
          typename UnprepareRequest, typename UnprepareResponse>
class Plugin final : public Service {
 public:
  explicit Plugin(Claims* claims) : claims_(claims) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*, const PrepareRequest* request,
                                    PrepareResponse* response) override {
    for (const auto& claim : request->claims()) {
      auto& answer = (*response->mutable_claims())[claim.uid()];
      try {
        const Wanted wanted = claims_->prepare(claim.namespace_(), claim.name(), claim.uid());
        for (const Allocated& one : wanted.devices) {
          auto* const device = answer.add_devices();
          device->add_request_names(one.request);
          device->set_pool_name(one.pool);
          device->set_device_name(one.device);
          device->add_cdi_device_ids("tendril.io/gpu=" + Claims::device_of(claim.uid()));
        }
      } catch (const std::exception& error) {
        answer.set_error(error.what());
        fprintf(stderr, "tendril-kubernetes: claim %s/%s: %s\n", claim.namespace_().c_str(),
                claim.name().c_str(), error.what());
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*, const UnprepareRequest* request,
                                      UnprepareResponse* response) override {
    for (const auto& claim : request->claims()) {
      auto& answer = (*response->mutable_claims())[claim.uid()];
      try {
        claims_->unprepare(claim.uid());
      } catch (const std::exception& error) {
        answer.set_error(error.what());
      }
    }
    return grpc::Status::OK;
  }

 private:
  Claims* const claims_;
};

using PluginV1 = Plugin<v1::DRAPlugin::Service, v1::NodePrepareResourcesRequest,
                        v1::NodePrepareResourcesResponse, v1::NodeUnprepareResourcesRequest,
                        v1::NodeUnprepareResourcesResponse>;
using PluginV1beta1 =
    Plugin<v1beta1::DRAPlugin::Service, v1beta1::NodePrepareResourcesRequest,
           v1beta1::NodePrepareResourcesResponse, v1beta1::NodeUnprepareResourcesRequest,
           v1beta1::NodeUnprepareResourcesResponse>;

class Registration final : public pluginregistration::Registration::Service {
 public:
  explicit Registration(const std::string& endpoint) : endpoint_(endpoint) {}

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(kDriver);
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    info->add_supported_versions("v1beta1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    fprintf(stderr, "tendril-kubernetes: the kubelet %s\n",
            status->plugin_registered() ? "knows this driver"
                                        : ("refuses this driver: " + status->error()).c_str());
    return grpc::Status::OK;
  }

 private:
  const std::string endpoint_;
};

std::unique_ptr<grpc::Server> listen(const std::string& socket,
                                     const std::vector<grpc::Service*>& services) {
  unlink(socket.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  for (grpc::Service* const service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) throw std::runtime_error("cannot listen at '" + socket + "'");
  return server;
}

}  // namespace

int serve_node(const NodeOptions& options) {
  // Before gRPC starts its threads, which inherit the mask.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  const std::string folder = options.plugins + "/" + kDriver;
  std::filesystem::create_directories(folder);
  std::filesystem::create_directories(options.registry);
  const std::string socket = folder + "/dra.sock";
  const std::string known = options.registry + "/" + kDriver + "-reg.sock";
  Claims claims(options);
  PluginV1 plugin(&claims);
  PluginV1beta1 older(&claims);
  Registration registration(socket);
  const auto plugin_server = listen(socket, {&plugin, &older});
  const auto registration_server = listen(known, {&registration});
  int number = 0;
  sigwait(&ending, &number);
  registration_server->Shutdown();
  plugin_server->Shutdown();
  unlink(known.c_str());
  unlink(socket.c_str());
  return 0;
}

}  // namespace tendril::kubernetes
