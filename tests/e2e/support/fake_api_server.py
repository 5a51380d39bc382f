# SPDX-License-Identifier: Apache-2.0
"""The part of Kubernetes' API server that the driver speaks to: ResourceSlices, ResourceClaims and
Secrets, with the checks that Kubernetes' documentation names, and quantities in the one form in
which it gives them back."""

import base64
import http.server
import json
import re
import threading
import urllib.parse

API = "/apis/resource.k8s.io/v1"
SECRETS = "/api/v1/namespaces/tendril/secrets"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
UNITS = {"": 1, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def amount(quantity):
    """Of bytes, or of devices in thousandths."""
    match = re.match(r"([0-9]+)(m|Mi|Gi|Ti|)$", quantity)
    if not match:
        raise ValueError(f"no quantity: {quantity}")
    return int(match[1]) / 1000 if match[2] == "m" else int(match[1]) * UNITS[match[2]]


def canonical(quantity):
    match = re.match(r"([0-9]+)(Mi|Gi)$", quantity)
    while match and int(match[1]) % 1024 == 0 and match[2] != "Ti":
        larger = {"Mi": "Gi", "Gi": "Ti"}[match[2]]
        quantity = f"{int(match[1]) // 1024}{larger}"
        match = re.match(r"([0-9]+)(Mi|Gi)$", quantity)
    return quantity


def check_capacity(capacity):
    value, policy = amount(capacity["value"]), capacity["requestPolicy"]
    limits = policy["validRange"]
    least, most = amount(limits["min"]), amount(limits.get("max", capacity["value"]))
    if not 0 <= least <= amount(policy["default"]) <= most <= value:
        raise ValueError(f"policy {policy} of {capacity['value']}")
    if "step" in limits:
        step = amount(limits["step"])
        for whole in (most, amount(policy["default"])):
            if abs(whole / step - round(whole / step)) > 1e-9 or least + step > value:
                raise ValueError(f"{whole} is no multiple of the step {step}")


def check_slice(body):
    """Raises ValueError or KeyError as Kubernetes would answer 422."""
    spec = body["spec"]
    if body["kind"] != "ResourceSlice" or body["apiVersion"] != "resource.k8s.io/v1":
        raise ValueError("kind")
    if sum(name in spec for name in ("nodeName", "nodeSelector", "allNodes")) != 1:
        raise ValueError("exactly one way to say which nodes")
    devices = spec.get("devices", [])
    if len(devices) > 128 or len({device["name"] for device in devices}) != len(devices):
        raise ValueError("devices: at most 128, of different names")
    for device in devices:
        if not LABEL.match(device["name"]):
            raise ValueError(f"no label: {device['name']}")
        if len(device["attributes"]) + len(device["capacity"]) > 32:
            raise ValueError("too many attributes")
        for name in ("bindingConditions", "bindingFailureConditions"):
            if name in device and not 1 <= len(device[name]) <= 4:
                raise ValueError(f"{name}: between one and four")
        for attribute in device["attributes"].values():
            if len(attribute) != 1 or len(str(attribute.get("string", ""))) > 64:
                raise ValueError(f"attribute {attribute}")
        for capacity in device["capacity"].values():
            check_capacity(capacity)
            capacity["value"] = canonical(capacity["value"])
            policy = capacity["requestPolicy"]
            policy["default"] = canonical(policy["default"])
            for name, quantity in policy["validRange"].items():
                policy["validRange"][name] = canonical(quantity)


class ApiServer:
    """Use as a context manager. `slices` and `secrets` by name; `claims` by namespace and name;
    `writes` counts those of slices. `token`: what requests must bring."""

    def __init__(self, token):
        self.slices, self.claims, self.secrets = {}, {}, {}
        self.writes, self.token = 0, token
        self.version = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                if self.headers.get("Authorization") != f"Bearer {outer.token}":
                    status, said = 401, {"message": "Unauthorized"}
                else:
                    status, said = outer.handle(self.command, self.path, body)
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def handle(self, method, path, body):
        parts = urllib.parse.urlsplit(path)
        if parts.path.startswith(SECRETS):
            return self.handle_secret(method, parts.path.removeprefix(SECRETS).strip("/"), body)
        words = parts.path.removeprefix(API + "/").split("/")
        if words == ["resourceclaims"] and method == "GET":
            return 200, {"items": list(self.claims.values())}
        if words[0] == "namespaces" and words[2] == "resourceclaims":
            claim = self.claims.get((words[1], words[3]))
            if claim is None:
                return 404, {"message": f"{words[3]} not found"}
            if method == "PUT" and words[4:] == ["status"]:
                return self.write_status(claim, body)
            return (200, claim) if method == "GET" else (405, {"message": "not here"})
        if words[0] != "resourceslices":
            return 404, {"message": "no such resource"}
        if method == "GET":
            selector = urllib.parse.parse_qs(parts.query)["fieldSelector"][0]
            driver = selector.removeprefix("spec.driver=")
            found = [one for one in self.slices.values() if one["spec"]["driver"] == driver]
            return 200, {"items": found}
        self.writes += 1
        if method == "DELETE":
            return (200, {}) if self.slices.pop(words[1], None) else (404, {"message": "not found"})
        try:
            check_slice(body)
        except (ValueError, KeyError) as error:
            return 422, {"message": f"invalid: {error!r}"}
        name = body["metadata"]["name"]
        if (method == "POST") == (name in self.slices):
            return 409, {"message": f"{name}: conflict"}
        if method == "PUT":
            before = self.slices[name]["metadata"]["resourceVersion"]
            if body["metadata"].get("resourceVersion") != before:
                return 409, {"message": "the object has been modified"}
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        if not body["spec"].get("devices"):
            body["spec"].pop("devices", None)
        self.slices[name] = body
        return 200, body

    def handle_secret(self, method, name, body):
        if method == "GET" and not name:
            return 200, {"items": list(self.secrets.values())}
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.secrets:
                return 409, {"message": f"{name}: conflict"}
        elif name not in self.secrets:
            return 404, {"message": f"{name} not found"}
        if method == "GET":
            return 200, self.secrets[name]
        if method == "DELETE":
            return 200, self.secrets.pop(name)
        body["data"] = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in body.pop("stringData").items()
        }
        self.secrets[name] = body
        return 200, body

    def write_status(self, claim, body):
        """Of an allocated claim: a driver says what it likes of devices that are allocated."""
        if body["metadata"].get("resourceVersion") != claim["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        if body["status"]["allocation"] != claim["status"]["allocation"]:
            return 403, {"message": "the allocation is the scheduler's"}
        results = claim["status"]["allocation"]["devices"]["results"]
        known = [[one.get(name) for name in ("driver", "pool", "device", "shareID")]
                 for one in results]  # fmt: skip
        for device in body["status"].get("devices", []):
            if [device.get(name) for name in ("driver", "pool", "device", "shareID")] not in known:
                return 422, {"message": f"not allocated: {device}"}
            for condition in device["conditions"]:
                for name in ("type", "status", "reason", "message", "lastTransitionTime"):
                    if name not in condition:
                        return 422, {"message": f"a condition needs {name}"}
        self.version += 1
        claim["status"]["devices"] = body["status"].get("devices", [])
        claim["metadata"]["resourceVersion"] = str(self.version)
        return 200, claim

    def condition(self, space, name, kind):
        """(status, message) that a driver has written for the claim's first device, or None."""
        for device in self.claims[space, name]["status"].get("devices", [])[:1]:
            for condition in device["conditions"]:
                if condition["type"] == kind:
                    return condition["status"], condition["message"]
        return None

    def allocate(self, space, name, uid, results):
        """What the scheduler writes into a claim."""
        self.version += 1
        metadata = {"namespace": space, "name": name, "uid": uid}
        metadata["resourceVersion"] = str(self.version)
        self.claims[space, name] = {
            "metadata": metadata,
            "status": {"allocation": {"devices": {"results": results}}},
        }
