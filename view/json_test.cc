// SPDX-License-Identifier: Apache-2.0
// JSON, whole: scripts read it, so a change of a byte is a change of a contract.
#include "view/json.h"

#include <gtest/gtest.h>

#include "view/test_sample.h"

namespace tendril::view {
namespace {

const ServerView kServer = {"rack7:7433", {}, sample_list()};
const ServerView kGone = {"gone", {base::Code::kUnavailable, "nobody listens"}, {}};

// structure: table
TEST(Json, Servers) {
  EXPECT_EQ(servers_json({kServer, kGone}), R"({
  "servers": [
    {
      "server": "rack7:7433",
      "host": "rack7",
      "here": false,
      "version": "0.1.0",
      "driver": "/usr/lib/libcuda.so.580.1",
      "driver_version": 13000,
      "gpus": [
        {
          "index": 0,
          "name": "H200",
          "uuid": "GPU-11111111-1111-1111-1111-111111111111",
          "pci_bus_id": "0000:3b:00.0",
          "memory_total_bytes": 150323855360,
          "memory_used_bytes": 3221225472,
          "share_used": 0.75,
          "utilization_percent": null,
          "temperature_c": 41,
          "power_mw": 123456
        },
        {
          "index": 1,
          "name": "H200",
          "uuid": "GPU-11111111-1111-1111-1111-111111111111",
          "pci_bus_id": "0000:3b:00.0",
          "memory_total_bytes": 150323855360,
          "memory_used_bytes": 3221225472,
          "share_used": 0.75,
          "utilization_percent": 7,
          "temperature_c": null,
          "power_mw": null
        }
      ],
      "leases": [
        {
          "lease": 9,
          "user": "ada",
          "proof": "certificate",
          "claimed_user": "root",
          "host": "box",
          "program": "train\n.py",
          "pid": 17,
          "policy": "lend",
          "priority": -4,
          "slices": [
            {
              "gpu": 0,
              "share": 0.333333,
              "packed": false,
              "memory_bytes": 37580963840,
              "memory_used_bytes": 5,
              "memory_parked_bytes": 0,
              "share_delivered_10_s": 0.2405,
              "share_delivered": 0.25,
              "gpu_time_s": 1.5,
              "queued_s": 0.25
            },
            {
              "gpu": 1,
              "share": 1.0,
              "packed": true,
              "memory_bytes": 150323855360,
              "memory_used_bytes": 0,
              "memory_parked_bytes": 0,
              "share_delivered_10_s": null,
              "share_delivered": null,
              "gpu_time_s": null,
              "queued_s": null
            }
          ],
          "processes": 2,
          "links": "sealed(tcp), shm",
          "passages": [
            {
              "server": "10.0.0.3",
              "sealed": true,
              "way": ""
            },
            {
              "server": "10.0.0.4",
              "sealed": false,
              "way": "rdma"
            }
          ],
          "standing": "granted",
          "standing_s": 0,
          "parks": 0,
          "age_s": 7800
        }
      ]
    },
    {
      "server": "gone",
      "error": "nobody listens"
    }
  ]
})");
}

// On one line; broken here, because a line of code has its limit.
std::string without_breaks(std::string text) {
  for (size_t at; (at = text.find("\n    ")) != std::string::npos;) text.erase(at, 5);
  return text;
}

TEST(Json, Top) {
  ServerView before = kServer;
  before.list.now_ns = 3'000'000'000;
  before.list.sessions[0].calls = 1'000;
  before.list.sessions[0].gpu_ns = 0;
  EXPECT_EQ(
      top_json({rates_between(before, kServer), rates_between(kGone, kGone)}),
      without_breaks(
          R"({"servers":[{"server":"rack7:7433","host":"rack7","interval_s":2.0,"gpus":[{"index":0,
    "name":"H200","uuid":"GPU-11111111-1111-1111-1111-111111111111","pci_bus_id":"0000:3b:
    00.0","memory_total_bytes":150323855360,"memory_used_bytes":3221225472,"share_used":
    0.75,"utilization_percent":null,"temperature_c":41,"power_mw":123456},{"index":1,
    "name":"H200","uuid":"GPU-11111111-1111-1111-1111-111111111111","pci_bus_id":"0000:3b:
    00.0","memory_total_bytes":150323855360,"memory_used_bytes":3221225472,"share_used":
    0.75,"utilization_percent":7,"temperature_c":null,"power_mw":null}],"sessions":
    [{"session":12,"lease":9,"user":"ada","claimed_user":
    "root","host":"box","program":"a \"quoted\" � program",
    "pid":77,"worker_pid":4711,"link":"tcp","age_s":61,"slices":[{"gpu":0,"share":0.333333,
    "memory_bytes":37580963840,"memory_used_bytes":5},{"gpu":1,"share":1.0,"memory_bytes":
    150323855360,"memory_used_bytes":6}],"gpu_share_delivered":0.4,"calls_per_s":2000.0,
    "launches_per_s":0.0,"round_trips_per_s":0.0,"bytes_to_gpu_per_s":0.0,
    "bytes_from_gpu_per_s":0.0,"waiting":0.0,"server_processors":0.0,"calls":5000,
    "launches":4000,"round_trips":30,"bytes_to_gpu":3000000,"bytes_from_gpu":0,
    "server_processor_s":0.25,"waiting_s":1.5}]},{"server":"gone","error":
    "nobody listens"}]})"));
}

TEST(Json, Others) {
  EXPECT_EQ(variables_json({{"A", "1"}, {"B", "\xff\""}}),
            "{\n  \"A\": \"1\",\n  \"B\": \"\xef\xbf\xbd\\\"\"\n}");
  EXPECT_EQ(version_json("0.1.0", 0xabc), "{\n  \"version\": \"0.1.0\",\n  \"protocol\": " +
                                              std::to_string(wire::kProtocolVersion) +
                                              ",\n  \"schema_digest\": \"0000000000000abc\"\n}");
  const DoctorReport report = {"a", {{"route", "ok", "12 us", {{"round_trip_us", 12}}}}, true};
  EXPECT_NE(doctor_json({report}, {}, {}).find("\"round_trip_us\": 12.0"), std::string::npos);
  EXPECT_EQ(doctor_json({}, {{"a", "b", true, true, 35, "a knows it"}, {"a", "c", false}},
                        {"none", "no server runs here"}),
            R"({
  "servers": [],
  "passages": [
    {
      "servers": [
        "a",
        "b"
      ],
      "open": true,
      "sealed": true,
      "round_trip_us": 35.0,
      "detail": "a knows it"
    },
    {
      "servers": [
        "a",
        "c"
      ],
      "open": false,
      "detail": ""
    }
  ],
  "local": {
    "state": "none",
    "detail": "no server runs here"
  }
})");
}

}  // namespace
}  // namespace tendril::view
