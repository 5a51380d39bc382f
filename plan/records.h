// SPDX-License-Identifier: Apache-2.0
// What is known of a cluster's past: who held GPUs, from when to when, and what they did with them.
// Reads the text of records and of public traces; the text is untrusted, and bounded. `tendril
// plan` calls it. Pure; one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/slurm.h"

namespace tendril::plan {

inline constexpr size_t kMostHolders = 200'000;
inline constexpr size_t kMostRows = 8'000'000;  // of all files
inline constexpr size_t kMostNameBytes = 256;
inline constexpr int64_t kMostSteps = 2'000'000;  // from the first moment to the last
inline constexpr uint64_t kMostTime_s = uint64_t{1} << 36;

// One moment of one holder.
struct Sample {
  int64_t at_s = 0;
  float busy = 0;             // part of the GPU's time, 0 to 1
  bool busy_known = false;    // false: only its memory was measured then
  uint64_t memory_bytes = 0;  // 0 also if unknown
};

// A program, pod or job that had GPUs.
struct Holder {
  std::string name, user;
  std::string job;  // of a batch system; empty: none is known
  int64_t from_s = 0, to_s = 0;
  uint32_t gpus = 1;
  uint32_t share_millionths = 1'000'000;  // what it asked for, of each GPU
  std::vector<Sample> samples;            // by time; none: nobody measured each moment
  double mean_busy = -1;           // without samples: of all its time; negative: not known either
  uint64_t most_memory_bytes = 0;  // the same, of each GPU

  uint64_t peak_memory_bytes() const;
};

struct Records {
  std::vector<Holder> holders;  // by start, then name
  bool measured = false;        // there are samples
  bool accounted = false;       // no samples, but means
  int64_t step_s = 0;           // between two samples
  int64_t from_s = 0, to_s = 0;
  size_t rows = 0;
};

// What a program did on a GPU in a step.
struct UseRow {
  int64_t at_s = 0;
  std::string_view server, gpu, user, job;
  double busy = -1;  // part of the GPU's time, 0 to 1
  uint64_t memory_bytes = 0;
};

class RecordReader {
 public:
  // One file. By its columns it is one of:
  // * records: time_s, gpu, utilisation_percent, memory_bytes; optional server, user, job
  // * a table of pods (alibaba/clusterdata, 2026): timestamp_anon, value, container_ip; utilisation
  // if no value is
  //   over 100, else bytes of memory
  // * a table of requests ("openb" of 2023): name, num_gpu, gpu_milli, creation_time,
  // deletion_time;
  //   optional scheduled_time
  // * what Prometheus answers of NVIDIA's exporter (prometheus.h)
  // * what Slurm accounts of jobs (slurm.h)
  // An error names the line, or series and value, and what is expected.
  base::Status add(std::string_view text);
  // A row of records. `user` and `job` empty: nobody holds the GPU. A negative `busy` is unknown.
  base::Status add_row(const UseRow& row);
  // All files together. kInvalid: nobody held a GPU.
  base::Result<Records> finish();

 private:
  struct Row {
    uint32_t holder = 0;
    Sample sample;
  };

  base::Status add_records(std::string_view text);
  base::Status add_pods(std::string_view text);
  base::Status add_requests(std::string_view text);
  base::Status add_prometheus(std::string_view text);
  base::Status add_slurm(std::string_view text);
  // What exporters tell without saying who holds the GPU.
  void judge_nameless();
  // Jobs of Slurm name those who were measured, or are holders themselves.
  base::Status join_slurm();
  // The number of a holder; kMostHolders if there are too many.
  uint32_t holder(const std::string& name, const std::string& user);
  void merge_rows();

  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::vector<Holder> holders_;
  std::vector<Row> rows_;
  std::set<uint32_t> nameless_;  // holders that exist because a GPU is there
  bool named_ = false;           // an exporter says of other GPUs who holds them
  std::vector<SlurmJob> slurm_;
  size_t rows_read_ = 0;
};

}  // namespace tendril::plan
