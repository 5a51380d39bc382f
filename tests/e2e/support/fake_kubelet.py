# SPDX-License-Identifier: Apache-2.0
"""What the kubelet does with a driver for dynamic resource allocation: finds its socket, asks who
it is, and asks it to prepare claims. A program of its own, because grpc is Debian's Python's:

    /usr/bin/python3 fake_kubelet.py MODULES REGISTRY info
    /usr/bin/python3 fake_kubelet.py MODULES REGISTRY VERSION prepare|unprepare SPACE/NAME/UID...

MODULES has what protoc makes of the driver's descriptions. Writes JSON."""

import importlib
import json
import pathlib
import sys

import grpc
from google.protobuf import json_format


def call(channel, service, method, request, answer):
    path = f"/{service}/{method}"
    ask = channel.unary_unary(
        path,
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return ask(request, timeout=30, wait_for_ready=True)


def register(registry):
    """The driver's own words, as the kubelet gets them when it finds the socket."""
    messages = importlib.import_module("registration_pb2")
    (socket,) = pathlib.Path(registry).glob("*-reg.sock")
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        service = "pluginregistration.Registration"
        info = call(channel, service, "GetInfo", messages.InfoRequest(), messages.PluginInfo)
        call(
            channel,
            service,
            "NotifyRegistrationStatus",
            messages.RegistrationStatus(plugin_registered=True),
            messages.RegistrationStatusResponse,
        )
    return info


def main():
    modules, registry, *words = sys.argv[1:]
    sys.path.insert(0, modules)
    info = register(registry)
    if words == ["info"]:
        print(json.dumps(json_format.MessageToDict(info)))
        return
    version, verb, *claims = words
    assert f"{version}.DRAPlugin" in info.supported_versions
    messages = importlib.import_module(f"dra_{version}_pb2")
    kind = "Prepare" if verb == "prepare" else "Unprepare"
    request = getattr(messages, f"Node{kind}ResourcesRequest")()
    for claim in claims:
        space, name, uid = claim.split("/")
        request.claims.add(namespace=space, name=name, uid=uid)
    with grpc.insecure_channel(f"unix:{info.endpoint}") as channel:
        service = f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
        answer = getattr(messages, f"Node{kind}ResourcesResponse")
        done = call(channel, service, f"Node{kind}Resources", request, answer)
    shown = {}
    for uid, claim in done.claims.items():
        shown[uid] = json_format.MessageToDict(claim)
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
