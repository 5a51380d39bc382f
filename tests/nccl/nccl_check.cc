// SPDX-License-Identifier: Apache-2.0
// Every operation of NCCL against a table of what each rank gives and must find (model.py). Uses
// public names only, so it runs on GPUs with NCCL, on softnccl, and through Tendril.
//   nccl_check TABLE MODE
// MODE: group (one thread, all ranks), all (the same, from ncclCommInitAll), threads (a thread per
// rank), nonblocking (threads, communicators that do not block), graph (threads; each case is
// captured and launched twice), processes (a process per rank).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "tests/nccl/nccl.h"

namespace {

using program::nccl;
using Bytes = std::vector<unsigned char>;

constexpr unsigned char kUntouched = 0xa5;

struct Case {
  std::string function;
  ncclDataType_t type;
  int operation;  // 5: a scaled sum
  ncclScalarResidence_t residence;
  int root;
  bool in_place;
  size_t count;
  std::vector<Bytes> given, found, scalars;  // of each rank
  std::string name() const {
    return function + " type " + std::to_string(type) + " op " + std::to_string(operation) +
           " root " + std::to_string(root) + (in_place ? " in place" : "") + " count " +
           std::to_string(count);
  }
};

struct Table {
  int ranks = 0;
  size_t bytes_max = 256;  // of a buffer
  std::vector<Case> cases;
};

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; text != "-" && i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

Table read_table(const char* path) {
  Table table;
  std::ifstream file(path);
  std::string word;
  file >> word >> table.ranks;
  while (file >> word) {
    Case one;
    int type = 0, residence = 0;
    file >> one.function >> type >> one.operation >> residence >> one.root >> one.in_place >>
        one.count;
    one.type = static_cast<ncclDataType_t>(type);
    one.residence = static_cast<ncclScalarResidence_t>(residence);
    for (int rank = 0; rank < table.ranks; rank++) {
      std::string given, found, scalar;
      file >> given >> found >> scalar;
      one.given.push_back(bytes_of(given));
      one.found.push_back(bytes_of(found));
      one.scalars.push_back(bytes_of(scalar));
      table.bytes_max =
          std::max({table.bytes_max, one.given.back().size(), one.found.back().size()});
    }
    table.cases.push_back(std::move(one));
  }
  if (table.ranks == 0 || table.cases.empty()) program::fail("the table is empty");
  return table;
}

// One rank: its buffers, and one case on them at a time.
class Rank {
 public:
  Rank(const Table& table, int rank) : table_(table), rank_(rank) {
    int devices = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    context_ = program::use_device(rank % devices);
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* buffer : {&from_, &to_, &scalar_})
      CHECK(cuMemAlloc(buffer, table.bytes_max + 64));
  }

  void use() const { CHECK(cuCtxSetCurrent(context_)); }
  int rank() const { return rank_; }

  // Lays out the case's data: from and to are apart, or as NCCL defines in place.
  void prepare(const Case& one) {
    const Bytes& given = one.given[at()];
    const Bytes& found = one.found[at()];
    send_ = from_;
    receive_ = to_;
    const size_t part = one.count * element(one);
    if (one.in_place) {
      send_ = receive_ = to_;
      if (one.function == "AllGather") send_ = to_ + at() * part;
      if (one.function == "ReduceScatter") receive_ = to_ + at() * part;
      if (one.function == "Gather" && rank_ == one.root) send_ = to_ + at() * part;
      if (one.function == "Scatter" && rank_ == one.root) receive_ = to_ + at() * part;
    }
    CHECK(cuMemsetD8(to_, kUntouched, std::max(given.size(), found.size()) + 64));
    if (!given.empty()) CHECK(cuMemcpyHtoD(send_, given.data(), given.size()));
    CHECK(cuMemcpyHtoD(scalar_, one.scalars[at()].data(), one.scalars[at()].size()));
    // The memset need not be over when its call returns, and the stream does not wait for it.
    CHECK(cuCtxSynchronize());
  }

  // The call of this rank. Inside of a group if ranks share a thread.
  void call(const Case& one) {
    const auto* from = reinterpret_cast<const void*>(send_);
    auto* to = reinterpret_cast<void*>(receive_);
    const std::string& f = one.function;
    if (f == "AllReduce") {
      done(nccl().AllReduce(from, to, one.count, one.type, operation(one), comm, stream_));
    } else if (f == "Reduce") {
      done(nccl().Reduce(from, to, one.count, one.type, operation(one), one.root, comm, stream_));
    } else if (f == "ReduceScatter") {
      done(nccl().ReduceScatter(from, to, one.count, one.type, operation(one), comm, stream_));
    } else if (f == "Broadcast") {
      done(nccl().Broadcast(from, to, one.count, one.type, one.root, comm, stream_));
    } else if (f == "Bcast") {
      done(nccl().Bcast(to, one.count, one.type, one.root, comm, stream_));
    } else if (f == "AllGather") {
      done(nccl().AllGather(from, to, one.count, one.type, comm, stream_));
    } else if (f == "AlltoAll") {
      done(nccl().AlltoAll(from, to, one.count, one.type, comm, stream_));
    } else if (f == "Gather") {
      done(nccl().Gather(from, to, one.count, one.type, one.root, comm, stream_));
    } else if (f == "Scatter") {
      done(nccl().Scatter(from, to, one.count, one.type, one.root, comm, stream_));
    } else if (f == "SendRecv") {
      around_the_ring(from, to, one);
    } else {
      program::fail(("there is no function " + f).c_str());
    }
    if (own_operator_ != 0)
      done(nccl().RedOpDestroy(static_cast<ncclRedOp_t>(std::exchange(own_operator_, 0)), comm));
  }

  // Captures the call and launches it, twice on new data.
  void call_in_graph(const Case& one) {
    CUgraph graph;
    CUgraphExec ready;
    CHECK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    call(one);
    CHECK(cuStreamEndCapture(stream_, &graph));
    CHECK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    CHECK(cuGraphLaunch(ready, stream_));
    CHECK(cuStreamSynchronize(stream_));
    verify(one);
    prepare(one);
    CHECK(cuGraphLaunch(ready, stream_));
    CHECK(cuStreamSynchronize(stream_));
    CHECK(cuGraphExecDestroy(ready));
    CHECK(cuGraphDestroy(graph));
  }

  void verify(const Case& one) {
    CHECK(cuStreamSynchronize(stream_));
    Bytes expected = one.found[at()];
    const size_t bytes = expected.size();
    Bytes got(bytes + 1);
    // Behind the result nothing has changed; in place the result may lie inside of the input.
    if (!one.in_place || one.given[at()].size() <= bytes) expected.push_back(kUntouched);
    CHECK(cuMemcpyDtoH(got.data(), receive_, got.size()));
    got.resize(expected.size());
    const bool untouched = bytes == 0 && one.in_place;  // the input lies there
    if (got != expected && !untouched) {
      wrong++;
      std::printf("rank %d: wrong: %s\n", rank_, one.name().c_str());
    }
  }

  ncclComm_t comm = nullptr;
  bool patient = false;  // the communicator does not block
  unsigned wrong = 0;

 private:
  size_t at() const { return static_cast<size_t>(rank_); }
  static size_t element(const Case& one) { return one.scalars[0].size(); }

  // The result of a call that may go on without this thread.
  void done(ncclResult_t result) {
    program::check_nccl(patient ? program::settled(result, comm) : result, "a call of the table");
  }

  void around_the_ring(const void* from, void* to, const Case& one) {
    const int next = (rank_ + 1) % table_.ranks;
    const int before = (rank_ + table_.ranks - 1) % table_.ranks;
    done(nccl().GroupStart());
    CHECK_NCCL(Send(from, one.count, one.type, next, comm, stream_));
    CHECK_NCCL(Recv(to, one.count, one.type, before, comm, stream_));
    done(nccl().GroupEnd());
  }

  ncclRedOp_t operation(const Case& one) {
    ncclRedOp_t made = static_cast<ncclRedOp_t>(one.operation);
    if (one.operation != ncclNumOps) return made;
    Bytes host = one.scalars[at()];
    void* scalar = one.residence == ncclScalarDevice ? reinterpret_cast<void*>(scalar_)
                                                     : static_cast<void*>(host.data());
    CHECK_NCCL(RedOpCreatePreMulSum(&made, scalar, one.type, one.residence, comm));
    own_operator_ = made;
    return made;
  }

  const Table& table_;
  const int rank_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr from_ = 0, to_ = 0, scalar_ = 0, send_ = 0, receive_ = 0;
  int own_operator_ = 0;
};

// All ranks in one thread, every call of a case in one group.
unsigned run_group(const Table& table, bool init_all) {
  std::vector<Rank> ranks;
  ncclUniqueId id;
  unsigned wrong = 0;
  for (int rank = 0; rank < table.ranks; rank++) ranks.emplace_back(table, rank);
  if (init_all) {
    std::vector<ncclComm_t> comms(ranks.size());
    CHECK_NCCL(CommInitAll(comms.data(), table.ranks, nullptr));
    for (Rank& rank : ranks) rank.comm = comms[static_cast<size_t>(rank.rank())];
  } else {
    CHECK_NCCL(GetUniqueId(&id));
    CHECK_NCCL(GroupStart());
    for (Rank& rank : ranks) {
      rank.use();
      CHECK_NCCL(CommInitRank(&rank.comm, table.ranks, id, rank.rank()));
    }
    CHECK_NCCL(GroupEnd());
  }
  for (const Case& one : table.cases) {
    for (Rank& rank : ranks) rank.use(), rank.prepare(one);
    CHECK_NCCL(GroupStart());
    for (Rank& rank : ranks) rank.use(), rank.call(one);
    CHECK_NCCL(GroupEnd());
    for (Rank& rank : ranks) rank.use(), rank.verify(one);
  }
  for (Rank& rank : ranks) {
    CHECK_NCCL(CommDestroy(rank.comm));
    wrong += rank.wrong;
  }
  return wrong;
}

unsigned run_rank(const Table& table, int number, const ncclUniqueId& id, const std::string& mode) {
  Rank rank(table, number);
  ncclConfig_t config = program::without_blocking();
  rank.patient = mode == "nonblocking";
  if (rank.patient) {
    const ncclResult_t begun =
        nccl().CommInitRankConfig(&rank.comm, table.ranks, id, number, &config);
    program::check_nccl(program::settled(begun, rank.comm), "CommInitRankConfig");
  } else {
    CHECK_NCCL(CommInitRank(&rank.comm, table.ranks, id, number));
  }
  for (const Case& one : table.cases) {
    rank.prepare(one);
    if (mode == "graph")
      rank.call_in_graph(one);
    else
      rank.call(one);
    rank.verify(one);
  }
  program::check_nccl(program::settled(nccl().CommFinalize(rank.comm), rank.comm), "CommFinalize");
  CHECK_NCCL(CommDestroy(rank.comm));
  return rank.wrong;
}

unsigned run_threads(const Table& table, const std::string& mode) {
  ncclUniqueId id;
  program::use_device(0);
  CHECK_NCCL(GetUniqueId(&id));
  std::vector<unsigned> wrong(static_cast<size_t>(table.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < table.ranks; rank++)
    threads.emplace_back(
        [&, rank] { wrong[static_cast<size_t>(rank)] = run_rank(table, rank, id, mode); });
  unsigned sum = 0;
  for (std::thread& thread : threads) thread.join();
  for (unsigned one : wrong) sum += one;
  return sum;
}

// The others are forked before anything of CUDA; the id comes through a pipe.
unsigned run_processes(const Table& table) {
  int ends[2];
  ncclUniqueId id{};
  if (pipe(ends) != 0) program::fail("no pipe");
  std::vector<pid_t> others;
  for (int rank = 1; rank < table.ranks; rank++) {
    const pid_t child = fork();
    if (child == 0) {
      if (read(ends[0], &id, sizeof id) != sizeof id) std::_Exit(3);
      const unsigned wrong = run_rank(table, rank, id, "processes");
      std::fflush(stdout);
      std::_Exit(wrong == 0 ? 0 : 1);
    }
    others.push_back(child);
  }
  program::use_device(0);
  CHECK_NCCL(GetUniqueId(&id));
  for (size_t i = 0; i < others.size(); i++)
    if (write(ends[1], &id, sizeof id) != sizeof id) program::fail("the pipe is closed");
  unsigned wrong = run_rank(table, 0, id, "processes");
  for (pid_t other : others) {
    int status = 0;
    waitpid(other, &status, 0);
    wrong += status != 0;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) program::fail("usage: nccl_check TABLE MODE");
  const Table table = read_table(argv[1]);
  const std::string mode = argv[2];
  unsigned wrong = 0;
  if (mode == "group" || mode == "all")
    wrong = run_group(table, mode == "all");
  else if (mode == "processes")
    wrong = run_processes(table);
  else if (mode == "threads" || mode == "nonblocking" || mode == "graph")
    wrong = run_threads(table, mode);
  else
    program::fail("there is no such mode");
  std::printf("nccl_check: %d ranks, %zu cases, %s: %u wrong\n", table.ranks, table.cases.size(),
              mode.c_str(), wrong);
  return program::finish(wrong == 0);
}
