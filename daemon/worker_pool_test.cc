// SPDX-License-Identifier: Apache-2.0
// Warm workers by GPU and API. The workers are this very program, started again. They report that
// they are ready, and answer a message with the API that they were started for. Those of
// outage/sessions_outage_test.cc choose TCP when they are assigned.
#include "daemon/worker_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "session/control/connection.h"

namespace tendril::daemon {
namespace {

constexpr int kControlDescriptor = 3;
constexpr int kTakeMs = 20'000;

void choose_tcp(wire::WorkerRequest request) {
  request.kind = wire::WorkerRequestKind::kTransport;
  wire::TransportAnswers answers;
  answers.answers.push_back({"tcp", "", "it is a test"});
  const std::vector<uint8_t> tail = wire::encode(answers);
  const auto* raw = reinterpret_cast<const uint8_t*>(&request);
  std::vector<uint8_t> all(raw, raw + sizeof request);
  all.insert(all.end(), tail.begin(), tail.end());
  (void)session::send_descriptors(kControlDescriptor, all.data(), all.size(), nullptr, 0);
}

// Its session's connections are open as long as it lives, and nobody reads them.
int be_a_worker(int argc, char** argv) {
  std::string api = "none";
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--api") == 0) api = argv[i + 1];
  }
  wire::WorkerRequest request = {};
  request.kind = wire::WorkerRequestKind::kReady;
  for (bool assigned = false;;) {
    if (!assigned)
      (void)session::send_descriptors(kControlDescriptor, &request, sizeof request, nullptr, 0);
    std::vector<uint8_t> buffer(64 << 10);
    size_t bytes = 0;
    auto received =
        session::receive_descriptors(kControlDescriptor, buffer.data(), buffer.size(), &bytes);
    if (!received.ok() || bytes == 0) return 0;
    wire::WorkerMessage message = {};
    memcpy(&message, buffer.data(), std::min(bytes, sizeof message));
    if (message.kind == wire::WorkerMessageKind::kStop) return 0;
    if (message.kind == wire::WorkerMessageKind::kAssign) {
      assigned = true;
      choose_tcp(request);
    }
    request.kind = wire::WorkerRequestKind::kPublish;
    snprintf(reinterpret_cast<char*>(request.record.content), sizeof request.record.content, "%s",
             api.c_str());
  }
}

class WorkerPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(50);
    loop_ = EventLoop::create().take();
    loop_->start();
    WorkerOptions options;
    options.executable = "/proc/self/exe";
    options.apis = {"first", "second"};
    options.warm_per_gpu = 1;
    pool_ = std::make_unique<WorkerPool>(loop_.get(), options, 2);
    pool_->start();
  }
  void TearDown() override {
    pool_->stop();
    loop_->stop();
    alarm(0);
  }

  struct Taken {
    std::shared_ptr<WorkerProcess> worker;
    std::string says;  // the API that it was started for
  };
  Taken take(uint32_t gpu, const std::string& api) {
    auto said = std::make_shared<std::promise<std::string>>();
    WorkerPool::Uses uses;
    uses.asked = [said](const wire::WorkerRequest& request, base::Fd, const std::string&) {
      said->set_value(reinterpret_cast<const char*>(request.record.content));
    };
    WorkerPool::Wish wish;
    wish.post = {gpu, api};
    auto worker = pool_->take(wish, std::move(uses), kTakeMs);
    EXPECT_TRUE(worker.ok()) << worker.status().message();
    if (!worker.ok()) return {};
    const wire::WorkerMessage message = {};
    EXPECT_TRUE((*worker)->send(message, nullptr, 0).ok());
    return {*worker, said->get_future().get()};
  }
  // Waits until there are this many processes, idle ones included.
  void expect_processes(size_t count) {
    for (int i = 0; i < 1000 && pool_->process_count() != count; ++i) usleep(10'000);
    EXPECT_EQ(pool_->process_count(), count);
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, GivesWorkersOfTheApiThatIsAskedFor) {
  expect_processes(2);  // a warm one on each GPU
  for (const char* api : {"first", "second", "second", "first"}) {
    const Taken taken = take(1, api);
    ASSERT_NE(taken.worker, nullptr);
    EXPECT_EQ(taken.says, api);
    EXPECT_EQ(taken.worker->post().gpu, 1u);
  }
}

TEST_F(WorkerPoolTest, KeepsNoMoreWarmForTwoApisThanForOne) {
  expect_processes(2);
  const Taken first = take(0, "first");
  expect_processes(3);  // another worker takes its place
  const Taken second = take(0, "second");
  // A worker for the first API still waits. So there is no context more than memory is set aside
  // for.
  expect_processes(4);
  EXPECT_NE(first.worker->pid(), second.worker->pid());
  const Taken again = take(0, "first");
  EXPECT_EQ(again.says, "first");
  expect_processes(5);
}

TEST_F(WorkerPoolTest, RenewsIdleWorkersOnly) {
  const Taken taken = take(0, "first");
  expect_processes(3);
  pool_->renew();
  for (int i = 0; i < 1000 && pool_->process_count() == 3; ++i) usleep(1'000);
  expect_processes(3);
  EXPECT_EQ(kill(taken.worker->pid(), 0), 0) << "a session's worker stays";
  EXPECT_EQ(take(1, "first").says, "first");
}

}  // namespace
}  // namespace tendril::daemon

// Replaces gtest's main.
int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--parent") == 0) return tendril::daemon::be_a_worker(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
