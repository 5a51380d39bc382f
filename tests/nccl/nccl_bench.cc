// SPDX-License-Identifier: Apache-2.0
// Measures NCCL's collectives, and copies between GPUs, on command, so that several such processes
// can take turns (tools/gpu/servers.py). Uses public names only, so it runs on GPUs with NCCL, on
// softnccl, and through Tendril.
//   nccl_bench MODE RANKS
// MODE: group (one thread, all ranks), threads (a thread per rank), processes (a process per rank).
// Commands on standard input, each answered by one line "meter {json}":
//   init                             makes the communicators and runs the first collective
//   measure FUNCTION BYTES SECONDS [graph]
//                                    microseconds of a call in blocks of calls, and wrong results
//   memory                           bytes free on each rank's GPU, as the driver says
//   end                              destroys the communicators
// BYTES are as nccl-tests count them. `copy` is cuMemcpyPeerAsync to the next rank (mode group).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/nccl.h"

namespace {

using program::nccl;
using program::seconds_now;

constexpr size_t kCheckedMax = 256 << 10;  // bytes from the begin and from the end of a result
constexpr int kBlocks = 5, kGraphCalls = 20, kCallsMax = 2000;

// What one thread is to do, and what came of it. They travel through pipes.
struct Order {
  char what[16];  // id, init, end, or a function
  uint64_t bytes;
  int calls;
  int graph, verify;
  ncclUniqueId id;
};
struct Told {
  double seconds, more_seconds;
  uint32_t wrong;
  uint64_t free_bytes;  // of the GPU of the thread's first rank
  ncclUniqueId id;
};

class Rank {
 public:
  Rank(int number, int ranks) : number_(number), ranks_(ranks) {
    int devices = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    context_ = program::use_device(number % devices);
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }

  void use() const { CHECK(cuCtxSetCurrent(context_)); }
  void wait() const { CHECK(cuStreamSynchronize(stream_)); }

  void join(const ncclUniqueId& id) { CHECK_NCCL(CommInitRank(&comm_, ranks_, id, number_)); }
  void leave() {
    CHECK_NCCL(CommDestroy(comm_));
    comm_ = nullptr;
  }

  // Buffers of `bytes` each; this rank gives its number plus one in every word.
  void prepare(uint64_t bytes) {
    if (bytes > held_) {
      for (CUdeviceptr* buffer : {&from_, &to_}) {
        if (*buffer != 0) CHECK(cuMemFree(*buffer));
        CHECK(cuMemAlloc(buffer, bytes));
      }
      held_ = bytes;
    }
    CHECK(cuMemsetD32(from_, static_cast<unsigned>(number_ + 1), bytes / 4));
    CHECK(cuMemsetD32(to_, 0xa5a5a5a5u, bytes / 4));
    CHECK(cuCtxSynchronize());
  }

  // `bytes` are the larger of both buffers.
  void call(const std::string& function, uint64_t bytes, const Rank& next) {
    const auto* from = reinterpret_cast<const void*>(from_);
    auto* to = reinterpret_cast<void*>(to_);
    const size_t words = bytes / 4, part = words / static_cast<size_t>(ranks_);
    if (function == "all_reduce") {
      CHECK_NCCL(AllReduce(from, to, words, ncclInt32, ncclSum, comm_, stream_));
    } else if (function == "all_gather") {
      CHECK_NCCL(AllGather(from, to, part, ncclInt32, comm_, stream_));
    } else if (function == "reduce_scatter") {
      CHECK_NCCL(ReduceScatter(from, to, part, ncclInt32, ncclSum, comm_, stream_));
    } else if (function == "alltoall") {
      CHECK_NCCL(GroupStart());
      for (int peer = 0; peer < ranks_; peer++) {
        const size_t offset = static_cast<size_t>(peer) * part * 4;
        CHECK_NCCL(
            Send(static_cast<const char*>(from) + offset, part, ncclInt32, peer, comm_, stream_));
        CHECK_NCCL(Recv(static_cast<char*>(to) + offset, part, ncclInt32, peer, comm_, stream_));
      }
      CHECK_NCCL(GroupEnd());
    } else if (function == "sendrecv") {
      CHECK_NCCL(GroupStart());
      CHECK_NCCL(Send(from, words, ncclInt32, (number_ + 1) % ranks_, comm_, stream_));
      CHECK_NCCL(Recv(to, words, ncclInt32, (number_ + ranks_ - 1) % ranks_, comm_, stream_));
      CHECK_NCCL(GroupEnd());
    } else if (function == "copy") {
      CHECK(cuMemcpyPeerAsync(next.to_, next.context_, from_, context_, bytes, stream_));
    } else {
      program::fail("there is no such function");
    }
  }

  // How many words at the result's begin and end are wrong.
  uint32_t wrong(const std::string& function, uint64_t bytes) const {
    const size_t words = bytes / 4, part = words / static_cast<size_t>(ranks_);
    const size_t found = function == "reduce_scatter" ? part : words;
    const size_t checked = std::min(found, kCheckedMax / 4);
    const size_t last = std::max(checked, found - checked);
    return wrong_between(function, 0, checked, part) + wrong_between(function, last, found, part);
  }

  CUstream stream() const { return stream_; }

 private:
  uint32_t wrong_between(const std::string& function, size_t begin, size_t end, size_t part) const {
    const auto data = program::download<uint32_t>(to_ + begin * 4, end - begin);
    uint32_t count = 0;
    for (size_t i = 0; i < data.size(); i++)
      count += data[i] != expected(function, begin + i, part);
    return count;
  }

  uint32_t expected(const std::string& function, size_t word, size_t part) const {
    const auto ranks = static_cast<uint32_t>(ranks_);
    if (function == "all_reduce" || function == "reduce_scatter") return ranks * (ranks + 1) / 2;
    if (function == "all_gather" || function == "alltoall")
      return word >= part * ranks ? 0xa5a5a5a5u : static_cast<uint32_t>(word / part) + 1;
    return static_cast<uint32_t>((number_ + ranks_ - 1) % ranks_) + 1;
  }

  const int number_, ranks_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  CUdeviceptr from_ = 0, to_ = 0;
  uint64_t held_ = 0;
};

// The ranks of one thread: all of them, or one.
class Thread {
 public:
  Thread(int first, int count, int ranks) {
    for (int rank = first; rank < first + count; rank++) ranks_.emplace_back(rank, ranks);
  }

  Told perform(const Order& order) {
    const std::string what(order.what);
    if (what == "init") return join(order.id);
    if (what == "id") return new_id();
    if (what == "memory") return memory();
    if (what == "end") {
      for (Rank& rank : ranks_) rank.use(), rank.leave();
      return {};
    }
    if (order.verify != 0 || order.calls == 0) {
      for (Rank& rank : ranks_) rank.use(), rank.prepare(order.bytes);
      if (order.calls == 0) return {};
    }
    Told told{};
    if (order.graph != 0)
      told.seconds = replay(what, order.bytes, order.calls);
    else
      told.seconds = timed([&] { calls(what, order.bytes, order.calls); });
    if (order.verify != 0) {
      for (Rank& rank : ranks_) rank.use(), told.wrong += rank.wrong(what, order.bytes);
    }
    return told;
  }

 private:
  template <typename Body>
  double timed(Body body) {
    const double begun = seconds_now();
    body();
    for (Rank& rank : ranks_) rank.use(), rank.wait();
    return seconds_now() - begun;
  }

  Told new_id() {
    Told told{};
    ranks_[0].use();
    CHECK_NCCL(GetUniqueId(&told.id));
    return told;
  }

  Told memory() {
    Told told{};
    size_t total = 0, free = 0;
    ranks_[0].use();
    CHECK(cuMemGetInfo(&free, &total));
    told.free_bytes = free;
    return told;
  }

  Told join(const ncclUniqueId& id) {
    Told told{};
    told.seconds = timed([&] {
      if (ranks_.size() > 1) CHECK_NCCL(GroupStart());
      for (Rank& rank : ranks_) rank.use(), rank.join(id);
      if (ranks_.size() > 1) CHECK_NCCL(GroupEnd());
    });
    for (Rank& rank : ranks_) rank.use(), rank.prepare(8);
    told.more_seconds = timed([&] { calls("all_reduce", 8, 1); });
    return told;
  }

  void calls(const std::string& what, uint64_t bytes, int count) {
    const bool together = ranks_.size() > 1 && what != "copy";
    for (int i = 0; i < count; i++) {
      if (together) CHECK_NCCL(GroupStart());
      for (size_t at = 0; at < ranks_.size(); at++) {
        ranks_[at].use();
        ranks_[at].call(what, bytes, ranks_[(at + 1) % ranks_.size()]);
      }
      if (together) CHECK_NCCL(GroupEnd());
    }
  }

  // Seconds of `count` calls, from graphs of a few calls each.
  double replay(const std::string& what, uint64_t bytes, int count) {
    const int each = std::min(count, kGraphCalls);
    std::vector<CUgraphExec> ready(ranks_.size());
    for (Rank& rank : ranks_) {
      rank.use();
      CHECK(cuStreamBeginCapture(rank.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    calls(what, bytes, each);
    for (size_t at = 0; at < ranks_.size(); at++) {
      CUgraph graph;
      ranks_[at].use();
      CHECK(cuStreamEndCapture(ranks_[at].stream(), &graph));
      CHECK(cuGraphInstantiateWithFlags(&ready[at], graph, 0));
      CHECK(cuGraphDestroy(graph));
    }
    const auto launch = [&] {
      for (size_t at = 0; at < ranks_.size(); at++) {
        ranks_[at].use();
        CHECK(cuGraphLaunch(ready[at], ranks_[at].stream()));
      }
    };
    timed(launch);  // the first one uploads the graph
    const int launches = std::max(1, count / each);
    const double seconds = timed([&] {
      for (int i = 0; i < launches; i++) launch();
    });
    for (CUgraphExec graph : ready) CHECK(cuGraphExecDestroy(graph));
    return seconds * count / (launches * each);
  }

  std::vector<Rank> ranks_;
};

void read_whole(int from, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(from, at, bytes);
    if (got <= 0) std::_Exit(0);  // the other end is gone
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

void write_whole(int to, const void* data, size_t bytes) {
  if (write(to, data, bytes) != static_cast<ssize_t>(bytes)) program::fail("a pipe is closed");
}

// The two ends of a thread or process that performs orders.
struct Performer {
  int orders[2], told[2];
  Performer() {
    if (pipe(orders) != 0 || pipe(told) != 0) program::fail("no pipe");
  }
  [[noreturn]] void serve(int first, int count, int ranks) const {
    Thread thread(first, count, ranks);
    const Told begun{};
    write_whole(told[1], &begun, sizeof begun);
    for (;;) {
      Order order;
      read_whole(orders[0], &order, sizeof order);
      const Told done = thread.perform(order);
      write_whole(told[1], &done, sizeof done);
    }
  }
};

class Bench {
 public:
  Bench(const std::string& mode, int ranks) : ranks_(ranks) {
    const bool alone = mode == "group";
    const int each = alone ? ranks : 1;
    performers_.resize(static_cast<size_t>(alone ? 1 : ranks));
    for (int at = 0; at < static_cast<int>(performers_.size()); at++) {
      const Performer& performer = performers_[static_cast<size_t>(at)];
      if (mode == "processes") {
        if (fork() == 0) become_rank(performer, at);
      } else {
        std::thread([=] { performer.serve(at, each, ranks); }).detach();
      }
    }
    for (const Performer& performer : performers_) {
      if (mode == "processes") close(performer.told[1]);  // so that a rank's end is seen
      await(performer);
    }
  }

  std::string init() {
    Order order = named("id");
    write_whole(performers_[0].orders[1], &order, sizeof order);
    order.id = await(performers_[0]).id;
    std::strncpy(order.what, "init", sizeof order.what);
    const Told told = all(order);
    std::ostringstream out;
    out << "\"init_ms\": " << told.seconds * 1e3 << ", \"first_ms\": " << told.more_seconds * 1e3;
    return out.str();
  }

  void end() { all(named("end")); }

  std::string memory() {
    std::string out;
    const Order order = named("memory");
    for (const Performer& performer : performers_) {
      write_whole(performer.orders[1], &order, sizeof order);
      out += (out.empty() ? "" : ", ") + std::to_string(await(performer).free_bytes);
    }
    return "\"free\": [" + out + "]";
  }

  std::string measure(const std::string& what, uint64_t bytes, double seconds, bool graph) {
    Order order = named(what.c_str());
    order.bytes = bytes;
    all(order);  // lays out the buffers
    order.graph = graph;
    order.calls = 2;
    all(order);
    order.calls = 3;
    const double each = all(order).seconds / order.calls;
    order.calls = static_cast<int>(
        std::clamp(seconds / kBlocks / std::max(each, 1e-7), 1.0, double{kCallsMax}));
    std::ostringstream out;
    out << "\"calls\": " << order.calls << ", \"blocks\": [";
    for (int block = 0; block < kBlocks; block++)
      out << (block != 0 ? ", " : "") << all(order).seconds / order.calls * 1e6;
    order.calls = 1;
    order.verify = 1;
    out << "], \"wrong\": " << all(order).wrong;
    return out.str();
  }

 private:
  // Ranks of several processes may belong to several hosts as NCCL sees it.
  [[noreturn]] void become_rank(const Performer& performer, int rank) {
    const char* hosts = std::getenv("NCCL_BENCH_HOSTS");
    if (hosts != nullptr && *hosts != 0)
      setenv("NCCL_HOSTID", ("bench-" + std::to_string(rank)).c_str(), 1);
    // Otherwise the ranks would keep each other waiting for orders when the first process is gone.
    for (const Performer& each : performers_) {
      close(each.orders[1]);
      close(each.told[0]);
    }
    performer.serve(rank, 1, ranks_);
  }

  static Order named(const char* what) {
    Order order{};
    std::strncpy(order.what, what, sizeof order.what - 1);
    return order;
  }

  static Told await(const Performer& performer) {
    Told told;
    read_whole(performer.told[0], &told, sizeof told);
    return told;
  }

  // The slowest one's seconds, and everybody's wrong words.
  Told all(const Order& order) {
    Told sum{};
    for (const Performer& performer : performers_)
      write_whole(performer.orders[1], &order, sizeof order);
    for (const Performer& performer : performers_) {
      const Told told = await(performer);
      sum.seconds = std::max(sum.seconds, told.seconds);
      sum.more_seconds = std::max(sum.more_seconds, told.more_seconds);
      sum.wrong += told.wrong;
    }
    return sum;
  }

  const int ranks_;
  std::vector<Performer> performers_;
};

void say(const std::string& command, const std::string& figures) {
  std::printf("meter {\"command\": \"%s\"%s%s}\n", command.c_str(), figures.empty() ? "" : ", ",
              figures.c_str());
  std::fflush(stdout);
}

std::string perform(Bench* bench, const std::string& line) {
  std::istringstream words(line);
  std::string command, function, graph;
  double bytes = 0, seconds = 0.1;
  words >> command >> function >> bytes >> seconds >> graph;
  if (command == "init") return bench->init();
  if (command == "memory") return bench->memory();
  if (command == "end") bench->end();
  if (command == "measure")
    return bench->measure(function, static_cast<uint64_t>(bytes), seconds, graph == "graph");
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) program::fail("usage: nccl_bench MODE RANKS");
  Bench bench(argv[1], std::atoi(argv[2]));
  say("hello", "");
  for (std::string line; std::getline(std::cin, line);) say(line, perform(&bench, line));
  std::fflush(stdout);
  std::_Exit(0);  // ranks that are threads wait for orders
}
