// SPDX-License-Identifier: Apache-2.0
// A client that speaks the wire itself and lies: handles that are none, of another kind or used
// twice, shapes and lengths that do not fit, addresses of its own. worker/opencl refuses each, and
// goes on. The driver is the tests' FPGA, which ends the process on a handle that is none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/content_hash.h"
#include "session/lane/test_pair.h"
#include "tests/opencl/fpga/fpga.h"
#include "worker/opencl/executor.h"

namespace tendril::worker::opencl {
namespace {

using wire::opencl::ArgumentForm;
using wire::opencl::Form;
using wire::opencl::ProgramForm;
using wire::opencl::Subject;

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    output_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    error_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    driver_ = gpu::OpenclDriver::open(TENDRIL_TEST_DRIVER).take();
    transport::ChannelSet client, worker;
    transport::make_channels("unix", 0, &client, &worker);
    lane_ = session::Lane::open(std::move(client.command), nullptr, 0, &events_);
    service_ = session::Service::open(std::move(worker.command), nullptr, 0, {});
    wire::Assignment assignment{};
    assignment.slice_count = 1;
    assignment.slices[0] = {0, 500'000, 64u << 20, 1u << 20};
    executor_ =
        std::make_unique<Executor>(*driver_, service_.get(), assignment, &page_, nullptr, Turns());
    thread_ = std::thread([this] { executor_->run(); });
    begin();
  }
  void TearDown() override {
    lane_.reset();
    thread_.join();
    fpga_end_all();
    executor_.reset();
    dup2(output_, STDOUT_FILENO);  // the executor redirects both
    dup2(error_, STDERR_FILENO);
  }

  template <typename Request>
  session::Reply ask(const Request& request) {
    const uint32_t id = lane_->new_reply_id();
    const auto bytes = static_cast<uint32_t>(wire::message_bytes(request));
    uint8_t* body = lane_->begin(static_cast<uint16_t>(Request::kOp), 0, bytes, id);
    if (body == nullptr) return {};
    wire::write_message(request, body);
    lane_->commit();
    return lane_->wait(id);
  }
  template <typename Request>
  int32_t call(const Request& request) {
    const session::Reply reply = ask(request);
    return reply.lost ? INT32_MAX : reply.result;
  }
  // An id that the client may choose.
  uint64_t id(Kind kind, uint32_t index) { return api::make_id(kind, 0, 1, index); }

  // A context, a queue, a buffer of 64 bytes, a program and its kernel `add`.
  void begin() {
    wire::opencl::session_devices_reply devices;
    const session::Reply reply = ask(wire::opencl::session_devices_request());
    ASSERT_TRUE(wire::read_message(devices, reply.body, reply.bytes));
    device_ = devices.device[0];
    EXPECT_EQ(make_context(id(Kind::kContext, 1), device_), CL_SUCCESS);
    EXPECT_EQ(make_queue(id(Kind::kContext, 1), device_), CL_SUCCESS);
    EXPECT_EQ(make_buffer(id(Kind::kMemory, 1), 64), CL_SUCCESS);
    wire::opencl::program_create_request program;
    program.program = id(Kind::kProgram, 1);
    program.context = id(Kind::kContext, 1);
    program.form = ProgramForm::kBuiltIn;
    program.devices = {&device_, 1};
    program.text = wire::bytes_of("add;work");
    program.bytes = program.text.count;
    EXPECT_EQ(call(program), CL_SUCCESS);
    wire::opencl::kernel_create_request kernel;
    kernel.kernel = id(Kind::kKernel, 1);
    kernel.program = id(Kind::kProgram, 1);
    kernel.name = wire::bytes_of("add");
    EXPECT_EQ(call(kernel), CL_SUCCESS);
  }
  int32_t make_context(uint64_t context, uint64_t device) {
    const uint64_t none = 0;
    wire::opencl::context_create_request request;
    request.context = context;
    request.devices = {&device, 1};
    request.properties = {&none, 1};
    return call(request);
  }
  int32_t make_queue(uint64_t context, uint64_t device, uint32_t index = 1) {
    const uint64_t none = 0;
    wire::opencl::queue_create_request request;
    request.queue = id(Kind::kQueue, index);
    request.context = context;
    request.device = device;
    request.properties = {&none, 1};
    return call(request);
  }
  int32_t make_buffer(uint64_t memory, uint64_t size) {
    wire::opencl::buffer_create_request request;
    request.memory = memory;
    request.context = id(Kind::kContext, 1);
    request.flags = CL_MEM_READ_WRITE;
    request.size = size;
    return call(request);
  }
  int32_t read(Form form, uint64_t origin, uint64_t wide, uint64_t high, uint64_t bytes) {
    wire::opencl::read_now_request request;
    request.form = form;
    request.queue = id(Kind::kQueue, 1);
    request.memory = id(Kind::kMemory, 1);
    request.shape = {{origin, 0, 0}, {wide, high, 1}, wide, wide * high};
    request.bytes = bytes;
    return call(request);
  }
  int32_t set(ArgumentForm form, uint64_t size, uint64_t object, const char* value = "") {
    wire::opencl::argument_try_request request;
    request.kernel = id(Kind::kKernel, 1);
    request.form = form;
    request.size = size;
    request.object = object;
    request.value = wire::bytes_of(value);
    return call(request);
  }

  uint64_t device_ = 0;
  session::TestEvents events_;
  std::unique_ptr<session::Lane> lane_;

 private:
  int output_ = -1, error_ = -1;
  wire::AccountingPage page_{};
  std::unique_ptr<gpu::OpenclDriver> driver_;
  std::unique_ptr<session::Service> service_;
  std::unique_ptr<Executor> executor_;
  std::thread thread_;
};

TEST_F(Hostile, HandlesThatAreNoneAreRefused) {
  EXPECT_EQ(make_queue(id(Kind::kContext, 7), device_, 2), CL_INVALID_CONTEXT);
  EXPECT_EQ(make_queue(device_, device_, 2), CL_INVALID_CONTEXT);
  EXPECT_EQ(make_queue(id(Kind::kContext, 1), id(Kind::kContext, 1), 2), CL_INVALID_DEVICE);
  EXPECT_EQ(make_queue(UINT64_MAX, 0, 2), CL_INVALID_CONTEXT);
  EXPECT_EQ(make_queue(id(Kind::kContext, 1), device_, 2), CL_SUCCESS);
}

TEST_F(Hostile, AnIdIsUsedOnce) {
  EXPECT_EQ(make_buffer(id(Kind::kMemory, 1), 64), CL_OUT_OF_HOST_MEMORY);
  EXPECT_EQ(make_buffer(id(Kind::kProgram, 2), 64), CL_OUT_OF_HOST_MEMORY);
  EXPECT_EQ(make_buffer(id(Kind::kMemory, 2), 64), CL_SUCCESS);
}

TEST_F(Hostile, MemoryBeyondTheSliceIsRefused) {
  EXPECT_EQ(make_buffer(id(Kind::kMemory, 2), UINT64_MAX), CL_MEM_OBJECT_ALLOCATION_FAILURE);
  EXPECT_EQ(make_buffer(id(Kind::kMemory, 2), 65u << 20), CL_MEM_OBJECT_ALLOCATION_FAILURE);
  EXPECT_EQ(make_buffer(id(Kind::kMemory, 2), 0), CL_INVALID_BUFFER_SIZE);
}

TEST_F(Hostile, ShapesThatDoNotFitAreRefused) {
  EXPECT_EQ(read(Form::kLinear, 0, 64, 1, 64), CL_SUCCESS);
  EXPECT_EQ(read(Form::kLinear, 0, 64, 1, 32), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kLinear, 32, 64, 1, 64), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kLinear, UINT64_MAX, 64, 1, 64), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kRectangle, 0, 8, 8, 64), CL_SUCCESS);
  EXPECT_EQ(read(Form::kRectangle, 0, 16, 8, 64), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kRectangle, 0, uint64_t{1} << 63, 2, 64), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kRectangle, 32, 8, 8, 64), CL_INVALID_VALUE);
  EXPECT_EQ(read(Form::kImage, 0, 8, 8, 64), CL_INVALID_VALUE);  // it is a buffer
}

TEST_F(Hostile, AddressesOfTheClientAreRefused) {
  const uint64_t mine = reinterpret_cast<uint64_t>(this);
  EXPECT_EQ(read(Form::kShared, mine, 64, 1, 64), CL_INVALID_VALUE);
  EXPECT_EQ(set(ArgumentForm::kShared, 8, mine), CL_INVALID_OPERATION);  // the driver has none
  wire::opencl::kernel_uses_shared_request uses;
  uses.kernel = id(Kind::kKernel, 1);
  uses.addresses = {&mine, 1};
  EXPECT_EQ(call(uses), CL_INVALID_VALUE);
}

TEST_F(Hostile, ArgumentsThatAreNoneAreRefused) {
  EXPECT_EQ(set(ArgumentForm::kMemory, 8, id(Kind::kMemory, 1)), CL_SUCCESS);
  EXPECT_EQ(set(ArgumentForm::kMemory, 8, id(Kind::kProgram, 1)), CL_INVALID_ARG_VALUE);
  EXPECT_EQ(set(ArgumentForm::kMemory, 8, id(Kind::kMemory, 99)), CL_INVALID_ARG_VALUE);
  EXPECT_EQ(set(ArgumentForm::kMemory, 4096, id(Kind::kMemory, 1)), CL_INVALID_ARG_SIZE);
  EXPECT_EQ(set(ArgumentForm::kValue, 4096, 0, "four"), CL_INVALID_ARG_SIZE);
  EXPECT_EQ(set(ArgumentForm::kSampler, 8, id(Kind::kMemory, 1)), CL_INVALID_ARG_VALUE);
}

// They stay in the folder that the worker made for them.
TEST_F(Hostile, IncludedFilesElsewhereAreRefused) {
  const auto include = [&](const std::string& names, std::vector<uint64_t> lengths) {
    wire::opencl::program_files_request request;
    request.program = id(Kind::kProgram, 1);
    request.names = {reinterpret_cast<const uint8_t*>(names.data()), names.size()};
    request.lengths = {lengths.data(), lengths.size()};
    request.data = {reinterpret_cast<const uint8_t*>("ab"), 2};
    request.bytes = 2;
    return call(request);
  };
  using namespace std::string_literals;  // NOLINT: names with a NUL
  EXPECT_EQ(include("/a/b.h\0/a/c.h\0"s, {1, 1}), CL_SUCCESS);
  for (const std::string& name :
       {"/a/../../b.h\0"s, "a.h\0"s, "/\0"s, "//a\0"s, "/a/\0"s, "/a/./b\0"s, "\0"s, "/..\0"s})
    EXPECT_EQ(include(name, {2}), CL_INVALID_VALUE) << name;
  EXPECT_EQ(include("/a.h"s, {2}), CL_INVALID_VALUE);
  EXPECT_EQ(include("/a.h\0"s, {1, 1}), CL_INVALID_VALUE);
  EXPECT_EQ(include("/a.h\0"s, {3}), CL_INVALID_VALUE);
  EXPECT_EQ(include("/a.h\0/b.h\0"s, {2, UINT64_MAX}), CL_INVALID_VALUE);
  EXPECT_EQ(include("/a.h\0/a.h\0"s, {1, 1}), CL_INVALID_VALUE);
  EXPECT_EQ(include("/a.h\0/a.h/b.h\0"s, {1, 1}), CL_INVALID_VALUE);
}

TEST_F(Hostile, TheDriverNeverWritesThroughPointers) {
  wire::opencl::information_request request;
  request.subject = Subject::kProgram;
  request.object = id(Kind::kProgram, 1);
  request.parameter = CL_PROGRAM_BINARIES;
  request.room = 4096;
  request.wanted = 1;
  EXPECT_EQ(call(request), CL_INVALID_VALUE);
  request.object = id(Kind::kKernel, 1);
  EXPECT_EQ(call(request), CL_INVALID_VALUE);
}

// A program is named by the hash of its content, and that is what the driver gets.
TEST_F(Hostile, ContentIsWhatItsHashSays) {
  const std::string content = std::string("TENDRIL FPGA 1\nadd\n");
  const std::string hash = base::content_hash(content.data(), content.size());
  const std::string other = base::content_hash("other", 5);
  const uint64_t length = content.size(), long_one = length + 1;
  wire::opencl::program_from_binaries_request request;
  const auto create = [&](const std::string& name, const uint64_t& bytes) {
    wire::opencl::program_from_binaries_reply reply;
    request.program = id(Kind::kProgram, 2);
    request.context = id(Kind::kContext, 1);
    request.devices = {&device_, 1};
    request.lengths = {&bytes, 1};
    request.hash = {reinterpret_cast<const uint8_t*>(name.data()), name.size()};
    request.bytes = bytes;
    const session::Reply answer = ask(request);
    const bool read = wire::read_message(reply, answer.body, answer.bytes);
    return answer.result != CL_SUCCESS ? answer.result : read && reply.missing != 0 ? 1 : 0;
  };
  constexpr int32_t kMissing = 1, kMade = 0;
  EXPECT_EQ(create(hash, length), kMissing);
  EXPECT_EQ(create("short", length), kMissing);
  const auto upload = [&](const std::string& name) {
    wire::opencl::program_upload_request message;
    message.hash = {reinterpret_cast<const uint8_t*>(name.data()), name.size()};
    message.transfer = lane_->new_transfer_id();
    message.bytes = length;
    uint8_t* body = lane_->begin(static_cast<uint16_t>(message.kOp), 0,
                                 static_cast<uint32_t>(wire::message_bytes(message)), 0);
    wire::write_message(message, body);
    lane_->commit();
    lane_->send_bulk(message.transfer, content.data(), length);
  };
  upload(other);
  EXPECT_EQ(create(other, length), kMissing);
  upload(hash);
  EXPECT_EQ(create(hash, long_one), kMissing);
  EXPECT_EQ(create(hash, length), kMade);
  EXPECT_EQ(create(hash, length), CL_OUT_OF_HOST_MEMORY) << "the id is taken";
}

TEST_F(Hostile, ConstantsOfProgramsThatAreNoneAreRefused) {
  wire::opencl::specialization_set_request request;
  request.program = id(Kind::kKernel, 1);
  request.value = wire::bytes_of("four");
  EXPECT_EQ(call(request), CL_INVALID_PROGRAM);
  request.program = id(Kind::kProgram, 1);
  EXPECT_EQ(call(request), CL_INVALID_OPERATION);  // the driver is too old
}

TEST_F(Hostile, DevicesStay) {
  wire::opencl::release_request request;
  request.object = device_;
  uint8_t* body = lane_->begin(static_cast<uint16_t>(request.kOp), 0,
                               static_cast<uint32_t>(wire::message_bytes(request)), 0);
  wire::write_message(request, body);
  lane_->commit();
  EXPECT_EQ(make_context(id(Kind::kContext, 2), device_), CL_SUCCESS);
}

}  // namespace
}  // namespace tendril::worker::opencl
