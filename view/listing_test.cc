// SPDX-License-Identifier: Apache-2.0
// The tables of ls and smi, whole.
#include "view/listing.h"

#include <gtest/gtest.h>

#include "view/test_sample.h"

namespace tendril::view {
namespace {

TEST(Listing, Leases) {
  const std::vector<ServerView> views = {
      {"rack7:7433", {}, sample_list()},
      {"gone", {base::Code::kUnavailable, "nobody listens"}, {}},
  };
  EXPECT_EQ(leases_text(views),
            "LEASE  SERVER      WHO      PROGRAM    SLICES                               TIME 10 S "
            "/ ALL   QUEUED    TERMS     MEMORY USED / QUOTA  PROCESSES  DATA"
            "                                                            AGE\n9  "
            "    rack7:7433  "
            "ada@box  train?.py  GPU 0: 0.333333, GPU 1: 1.00 packed  24.1% / 25.0%, -  0.2 s, -  "
            "lend, -4  5 B / 175.0 GiB      2          sealed(tcp), shm, 10.0.0.3 sealed, "
            "10.0.0.4 in clear over rdma  2h10m\n");
  EXPECT_EQ(leases_text({}), "");
}

TEST(Listing, GpusAndTheirTenants) {
  EXPECT_EQ(gpus_text({"rack7:7433", {}, sample_list()}),
            R"(rack7:7433 (rack7): Tendril 0.1.0, driver /usr/lib/libcuda.so.580.1, CUDA 13.0
GPU  NAME  BUS ID        TEMP  POWER  MEMORY USED / TOTAL  UTIL  LENT  TENANTS
0    H200  0000:3b:00.0  41 C  123 W  3.0 GiB / 140.0 GiB  -     0.75  1
1    H200  0000:3b:00.0  -     -      3.0 GiB / 140.0 GiB  7 %   0.75  1

)"
            "GPU  LEASE  WHO      PROGRAM    TERMS     SHARE          TIME 10 S / ALL  QUEUED  "
            "MEMORY USED / QUOTA\n0    9      ada@box  train?.py  lend, -4  33.3%          24.1% / "
            "25.0%    0.2 s   5 B / 35.0 GiB\n1    9      ada@box  train?.py  lend, -4  100.0% "
            "packed  -                -       0 B / 140.0 GiB\n\n");
}

}  // namespace
}  // namespace tendril::view
