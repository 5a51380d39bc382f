// SPDX-License-Identifier: Apache-2.0
// The end of a group: communicators are made and lines connected in parallel, since each may wait
// for another of the same thread. Then everything is launched. See group.h.
#include "softnccl/group.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "softnccl/error.h"

namespace tendril::softnccl {
namespace {

struct Work {
  std::vector<Making> makings;
  std::vector<std::pair<CommunicatorPtr, std::vector<Queued>>> queued;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  Work work;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

// All at once if there are several. The first error in their order.
ncclResult_t in_parallel(const std::vector<std::function<ncclResult_t()>>& tasks) {
  std::vector<ncclResult_t> results(tasks.size(), ncclSuccess);
  if (tasks.size() == 1) return tasks[0]();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < tasks.size(); i++)
    threads.emplace_back([&results, &tasks, i] { results[i] = tasks[i](); });
  for (std::thread& thread : threads) thread.join();
  for (ncclResult_t result : results)
    if (result != ncclSuccess) return result;
  return ncclSuccess;
}

ncclResult_t make(const Making& making) {
  const ncclResult_t result = making.work();
  if (making.made) making.made->set_state(result);
  return result;
}

ncclResult_t connect(const CommunicatorPtr& communicator, const std::vector<int>& peers) {
  ncclResult_t result = communicator->prepare_lines();
  if (result == ncclSuccess)
    result = communicator->mesh().connect(Purpose::kData, peers, communicator->stop());
  // A line that could not be made is an error of the communicator, as a lost one is.
  if (result != ncclSuccess && !communicator->stop().raised()) communicator->set_state(result);
  return result;
}

ncclResult_t run(const Work& work) {
  std::vector<std::function<ncclResult_t()>> tasks;
  for (const Making& making : work.makings) tasks.push_back([&making] { return make(making); });
  for (const auto& [communicator, queued] : work.queued) {
    std::vector<Operation> operations;
    for (const Queued& one : queued) operations.push_back(one.operation);
    const std::vector<int> peers =
        peers_of(operations, communicator->rank(), communicator->ranks());
    if (!communicator->mesh().connected(Purpose::kData, peers))
      tasks.push_back([one = communicator, peers] { return connect(one, peers); });
  }
  if (!tasks.empty())
    if (ncclResult_t bad = in_parallel(tasks)) return bad;
  for (const auto& [communicator, queued] : work.queued)
    if (ncclResult_t bad = launch(communicator, queued)) return bad;
  return ncclSuccess;
}

std::vector<CommunicatorPtr> involved(const Work& work) {
  std::vector<CommunicatorPtr> all;
  for (const Making& making : work.makings)
    for (const CommunicatorPtr& one : {making.made, making.parent})
      if (one) all.push_back(one);
  for (const auto& [communicator, queued] : work.queued) all.push_back(communicator);
  return all;
}

// Communicators that do not block get a thread, and the program asks how it goes.
ncclResult_t run_later(Work work, const std::vector<CommunicatorPtr>& all) {
  for (const CommunicatorPtr& one : all) one->set_state(ncclInProgress);
  auto shared = std::make_shared<Work>(std::move(work));
  all[0]->in_background([shared, all] {
    const ncclResult_t result = run(*shared);
    for (const CommunicatorPtr& one : all)
      if (one->state() == ncclInProgress) one->set_state(result);
  });
  return ncclInProgress;
}

void take_back(const Work& work) {
  for (const Making& making : work.makings) {
    if (!making.made) continue;
    withdraw(reinterpret_cast<ncclComm_t>(making.made.get()));
    *making.handle = nullptr;
  }
}

}  // namespace

void group_start() { group().depth++; }

ncclResult_t group_fail(ncclResult_t result) {
  if (group().error == ncclSuccess) group().error = result;
  return result;
}

void group_make(Making making) { group().work.makings.push_back(std::move(making)); }

void group_queue(const CommunicatorPtr& communicator, const Queued& queued) {
  auto& all = group().work.queued;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const auto& one) { return one.first == communicator; });
  if (found == all.end()) found = all.insert(all.end(), {communicator, {}});
  found->second.push_back(queued);
}

ncclResult_t group_drop() {
  if (group().depth == 0) return error(ncclInvalidUsage, "the end of a group that was not started");
  if (--group().depth > 0) return ncclSuccess;
  take_back(group().work);
  group() = Group();
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (group().depth == 0) return error(ncclInvalidUsage, "the end of a group that was not started");
  if (--group().depth > 0) return ncclSuccess;
  Group ended = std::exchange(group(), Group());
  if (ended.error != ncclSuccess) {
    take_back(ended.work);
    return ended.error;
  }
  const std::vector<CommunicatorPtr> all = involved(ended.work);
  if (all.empty()) return run(ended.work);
  const bool later = std::any_of(all.begin(), all.end(),
                                 [](const CommunicatorPtr& one) { return !one->blocking(); });
  if (later) return run_later(std::move(ended.work), all);
  const ncclResult_t result = run(ended.work);
  if (result != ncclSuccess) take_back(ended.work);
  return result;
}

}  // namespace tendril::softnccl
