// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between two processes: by 64-byte handles, and by descriptors of
// physical memory and pools. The other process is this program again. Over a socket both report
// their progress and pass handles and descriptors.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

constexpr char kSocketVariable[] = "TENDRIL_CONFORMANCE_SOCKET";
constexpr uint32_t kWords = 256;

// One end of the socket between the two processes. Every receive fails the test if the other one
// does not answer.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  ~Talk() { close(fd_); }
  Talk(const Talk&) = delete;

  template <typename T>
  void send(const T& value, int descriptor = -1) {
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    T copy = value;
    iovec part = {&copy, sizeof copy};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = room;
      message.msg_controllen = sizeof room;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    EXPECT_EQ(sendmsg(fd_, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof copy));
  }
  template <typename T>
  T receive(int* descriptor = nullptr) {
    T value = {};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&value, sizeof value};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    pollfd waiting = {fd_, POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 30'000), 1) << "the other process does not answer";
    EXPECT_EQ(recvmsg(fd_, &message, MSG_DONTWAIT), static_cast<ssize_t>(sizeof value));
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (descriptor != nullptr && header != nullptr)
      memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    return value;
  }
  // Says "I am there" and waits for the other side.
  void tell() { send('.'); }
  void await() { receive<char>(); }
  // Waits until the other process has ended.
  void await_end() {
    pollfd waiting = {fd_, POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 30'000), 1) << "the other process does not end";
    char none;
    EXPECT_EQ(recv(fd_, &none, 1, MSG_DONTWAIT), 0);
  }

 private:
  int fd_;
};

// The child's end.
int inherited_socket() {
  const char* text = getenv(kSocketVariable);
  return text != nullptr ? atoi(text) : -1;
}

// Runs the same test in another process while `parent` talks to it.
template <typename Parent>
void with_child(Parent parent, int exit_code) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  std::future<ChildResult> child = std::async(std::launch::async, [&] {
    ChildResult result = run_child(name, {kSocketVariable + ("=" + std::to_string(ends[1]))});
    close(ends[1]);
    return result;
  });
  {
    Talk talk(ends[0]);
    parent(talk);
  }
  const ChildResult result = child.get();
  if (!result.transcript.empty()) note(result.transcript);
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
}

// A test with two sides, which follow it: name_child(talk) and name_parent(talk). The child ends
// with `exit_code`.
#define TWO_PROCESSES_ENDING(name, exit_code) \
  static void name##_child(Talk&);            \
  static void name##_parent(Talk&);           \
  TEST(IpcProcess, name) {                    \
    attach();                                 \
    if (!in_child()) {                        \
      with_child(name##_parent, exit_code);   \
    } else {                                  \
      Talk talk(inherited_socket());          \
      name##_child(talk);                     \
    }                                         \
  }
#define TWO_PROCESSES(name) TWO_PROCESSES_ENDING(name, 0)

CUdeviceptr open_memory(const CUipcMemHandle& handle) {
  CUdeviceptr address = 0;
  OK(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return address;
}

CUipcMemHandle export_memory(CUdeviceptr address) {
  CUipcMemHandle handle = {};
  OK(cuIpcGetMemHandle(&handle, address));
  return handle;
}

CUmemAllocationProp shareable_on_device() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// Freed memory may need a moment until it is available again. So may memory that others freed.
CUresult create_when_there_is_room(CUmemGenericAllocationHandle* handle, uint64_t bytes,
                                   const CUmemAllocationProp& prop) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int tries = 0; tries < 100 && result == CUDA_ERROR_OUT_OF_MEMORY; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    result = cuMemCreate(handle, bytes, &prop, 0);
  }
  return result;
}

void* as_handle(int descriptor) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

size_t granularity() {
  size_t bytes = 0;
  const CUmemAllocationProp prop = shareable_on_device();
  OK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return bytes;
}

class IpcTest : public CudaTest {};

TEST_F(IpcTest, HandleErrors) {
  Buffer data(1 << 21);
  CUipcMemHandle handle = {};
  INVALID(cuIpcGetMemHandle(nullptr, data));
  int local = 0;
  EXPECT_CU(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE);
  CUdeviceptr opened = 0, pooled = 0;
  OK(cuMemAllocAsync(&pooled, 1 << 21, nullptr));
  INVALID(cuIpcGetMemHandle(&handle, pooled));  // pools behave differently
  OK(cuMemFreeAsync(pooled, nullptr));
  INVALID(cuIpcOpenMemHandle_v2(nullptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  INVALID(cuIpcOpenMemHandle_v2(&opened, export_memory(data), 0));
  EXPECT_CU(cuIpcCloseMemHandle(data), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_MAP_FAILED);
}

TEST_F(IpcTest, OneAllocationHasOneHandle) {
  Buffer data(1 << 21), other(1 << 21);
  const CUipcMemHandle first = export_memory(data), again = export_memory(data),
                       second = export_memory(other);
  EXPECT_EQ(memcmp(&first, &again, sizeof first), 0);
  EXPECT_NE(memcmp(&first, &second, sizeof first), 0);
}

TEST_F(IpcTest, OwnHandleCannotBeOpened) {
  Buffer data(1 << 21);
  CUdeviceptr opened = 0;
  EXPECT_CU(cuIpcOpenMemHandle_v2(&opened, export_memory(data), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(IpcTest, OnlyInterprocessEventsHaveHandles) {
  Event plain(CU_EVENT_DISABLE_TIMING), shared(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle handle = {};
  EXPECT_CU(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_INVALID_VALUE);
  INVALID(cuIpcGetEventHandle(nullptr, shared));
  OK(cuIpcGetEventHandle(&handle, shared));
  CUevent timed = nullptr;
  INVALID(cuEventCreate(&timed, CU_EVENT_INTERPROCESS));
}

TEST_F(IpcTest, PointerAttributes) {
  Buffer data(1 << 21);
  unsigned capable = 0;
  OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, data));
  EXPECT_EQ(capable, 1u);
}

// Descriptors of other things, and no descriptor at all.
TEST_F(IpcTest, DescriptorErrors) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  int pipe_ends[2], ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const std::vector<uint8_t> noise = pattern_bytes(65, 3);
  ASSERT_EQ(send(ends[0], noise.data(), noise.size(), 0), 65);
  for (const int descriptor : {pipe_ends[0], ends[0], ends[1], -1}) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(cuMemImportFromShareableHandle(&handle, as_handle(descriptor),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_ERROR_UNKNOWN);
  }
  for (const int descriptor : {pipe_ends[0], pipe_ends[1], ends[0], ends[1]}) close(descriptor);
}

// Exported memory is freed when its last descriptor is closed. A third of the free memory, again
// and again: if it were kept, none would be left soon. (On a GPU the numbers of cuMemGetInfo move
// with everything else that runs there.)
TEST_F(IpcTest, ClosedDescriptorGivesTheMemoryBack) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  const CUmemAllocationProp prop = shareable_on_device();
  size_t free_bytes = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  const uint64_t bytes = free_bytes / 3 / granularity() * granularity();
  for (int round = 0; round < 7; ++round) {
    CUmemGenericAllocationHandle handle = 0;
    MUST(create_when_there_is_room(&handle, bytes, prop)) << "round " << round;
    int descriptors[2] = {-1, -1};
    for (int& descriptor : descriptors)
      OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    OK(cuMemRelease(handle));
    for (const int descriptor : descriptors) close(descriptor);
  }
}

// As memory. The H200's transcript of this test shows what is decided here. Exception: the pool
// that was made without handles.
TEST_F(IpcTest, PoolsAreExportedAsTheyWereMadeToBe) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  CUmemoryPool own = nullptr, shareable = nullptr;
  MUST(cuMemPoolCreate(&own, &props));
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  MUST(cuMemPoolCreate(&shareable, &props));
  alignas(8) char out[64] = {};  // as large as the largest, which is fabric's
  const auto refused = [&](const char* what, CUmemoryPool pool, CUmemAllocationHandleType type,
                           unsigned long long flags) {
    EXPECT_TRUE(check(what, cuMemPoolExportToShareableHandle(out, pool, type, flags),
                      {CUDA_ERROR_INVALID_VALUE}));
  };
  refused("export of a pool, to fabric", shareable, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  refused("export of a pool, to another system's handle", shareable, CU_MEM_HANDLE_TYPE_WIN32, 0);
  refused("export of a pool, to nothing", shareable, CU_MEM_HANDLE_TYPE_NONE, 0);
  refused("export of a pool, with a flag", shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
  EXPECT_CU(cuMemPoolExportToShareableHandle(out, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_PERMITTED);
  refused("export of a pool that was made without, to fabric", own, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  OK(cuMemPoolDestroy(shareable));
  OK(cuMemPoolDestroy(own));
}

TWO_PROCESSES(ChildReadsAndWritesTheMemory)

void ChildReadsAndWritesTheMemory_child(Talk& talk) {
  const CUdeviceptr shared = open_memory(talk.receive<CUipcMemHandle>());
  EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 0x1234));
  OK(cuMemsetD32_v2(shared, 0x4321, kWords));
  OK(launch(basic("affine"), {1}, {kWords}, 0, nullptr, shared, 2u, 1u, kWords));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(shared));
  EXPECT_CU(cuIpcCloseMemHandle(shared), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_MAP_FAILED);
  talk.tell();
}

void ChildReadsAndWritesTheMemory_parent(Talk& talk) {
  Buffer data(1 << 21);
  OK(cuMemsetD32_v2(data, 0x1234, kWords));
  OK(cuCtxSynchronize());
  talk.send(export_memory(data));
  talk.await();
  EXPECT_EQ(read_words(data, kWords), std::vector<uint32_t>(kWords, 0x4321 * 2 + 1));
}

TWO_PROCESSES(SmallAllocationsAreSharedEachForItself)

void SmallAllocationsAreSharedEachForItself_child(Talk& talk) {
  const CUdeviceptr first = open_memory(talk.receive<CUipcMemHandle>());
  const CUdeviceptr second = open_memory(talk.receive<CUipcMemHandle>());
  EXPECT_NE(first, second);
  EXPECT_EQ(read_words(first, kWords), std::vector<uint32_t>(kWords, 1));
  OK(cuIpcCloseMemHandle(first));
  EXPECT_EQ(read_words(second, kWords), std::vector<uint32_t>(kWords, 2));
  OK(cuMemsetD32_v2(second, 3, kWords));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(second));
  talk.tell();
}

void SmallAllocationsAreSharedEachForItself_parent(Talk& talk) {
  Buffer first(4 * kWords), neighbour(4 * kWords), second(4 * kWords);
  const std::pair<CUdeviceptr, uint32_t> all[] = {{first, 1}, {second, 2}, {neighbour, 7}};
  for (const auto& [address, value] : all) OK(cuMemsetD32_v2(address, value, kWords));
  OK(cuCtxSynchronize());
  const CUipcMemHandle handles[] = {export_memory(first), export_memory(second)};
  EXPECT_NE(memcmp(&handles[0], &handles[1], sizeof handles[0]), 0);
  for (const CUipcMemHandle& handle : handles) talk.send(handle);
  talk.await();
  EXPECT_EQ(read_words(second, kWords), std::vector<uint32_t>(kWords, 3));
  EXPECT_EQ(read_words(neighbour, kWords), std::vector<uint32_t>(kWords, 7));
}

TWO_PROCESSES(OpenedMemoryDescribesItself)

void OpenedMemoryDescribesItself_child(Talk& talk) {
  const CUdeviceptr shared = open_memory(talk.receive<CUipcMemHandle>());
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(cuMemGetAddressRange_v2(&base, &bytes, shared + 4096));
  EXPECT_EQ(base, shared);
  EXPECT_EQ(bytes, size_t{1} << 21);
  unsigned type = 0;
  int ordinal = -1;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, shared));
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, shared));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ordinal, device());
  EXPECT_CU(cuMemFree_v2(shared), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_PERMITTED);
  OK(cuIpcCloseMemHandle(shared));
  talk.tell();
}

void OpenedMemoryDescribesItself_parent(Talk& talk) {
  Buffer data(1 << 21);
  talk.send(export_memory(data));
  talk.await();
}

// The documentation since CUDA 11: the second opening counts and gives the same address.
TWO_PROCESSES(OpenedTwiceIsOpenUntilClosedTwice)

void OpenedTwiceIsOpenUntilClosedTwice_child(Talk& talk) {
  const auto handle = talk.receive<CUipcMemHandle>();
  const CUdeviceptr first = open_memory(handle);
  CUdeviceptr second = 0;
  const CUresult result =
      cuIpcOpenMemHandle_v2(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_TRUE(check("the second opening", result, {CUDA_SUCCESS, CUDA_ERROR_ALREADY_MAPPED}));
  if (result == CUDA_SUCCESS) {
    EXPECT_EQ(second, first);
    OK(cuIpcCloseMemHandle(first));
  }
  EXPECT_EQ(read_words(first, kWords), std::vector<uint32_t>(kWords, 77));
  OK(cuIpcCloseMemHandle(first));
  const CUdeviceptr again = open_memory(handle);
  EXPECT_EQ(read_words(again, kWords), std::vector<uint32_t>(kWords, 77));
  OK(cuIpcCloseMemHandle(again));
  talk.tell();
}

void OpenedTwiceIsOpenUntilClosedTwice_parent(Talk& talk) {
  Buffer data(1 << 21);
  OK(cuMemsetD32_v2(data, 77, kWords));
  OK(cuCtxSynchronize());
  talk.send(export_memory(data));
  talk.await();
}

// A context takes with it what is open in it. Afterwards everything can be opened again.
TWO_PROCESSES(ResetClosesWhatIsOpen)

void ResetClosesWhatIsOpen_child(Talk& talk) {
  const auto first = talk.receive<CUipcMemHandle>(), second = talk.receive<CUipcMemHandle>();
  open_memory(first);
  OK(cuDevicePrimaryCtxReset_v2(device()));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, device()));
  MUST(cuCtxSetCurrent(context));
  const CUdeviceptr other = open_memory(second), again = open_memory(first);
  EXPECT_NE(other, again);
  EXPECT_EQ(read_words(again, kWords), std::vector<uint32_t>(kWords, 41));
  EXPECT_EQ(read_words(other, kWords), std::vector<uint32_t>(kWords, 42));
  OK(cuIpcCloseMemHandle(again));
  OK(cuIpcCloseMemHandle(other));
  EXPECT_CU(cuIpcCloseMemHandle(again), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_MAP_FAILED);
  talk.tell();
}

void ResetClosesWhatIsOpen_parent(Talk& talk) {
  Buffer first(1 << 21), second(1 << 21);
  OK(cuMemsetD32_v2(first, 41, kWords));
  OK(cuMemsetD32_v2(second, 42, kWords));
  OK(cuCtxSynchronize());
  talk.send(export_memory(first));
  talk.send(export_memory(second));
  talk.await();
}

TWO_PROCESSES(FreedMemoryCannotBeOpened)

void FreedMemoryCannotBeOpened_child(Talk& talk) {
  const auto handle = talk.receive<CUipcMemHandle>();
  CUdeviceptr opened = 0;
  EXPECT_CU(cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_NOT_PERMITTED);
  talk.tell();
}

void FreedMemoryCannotBeOpened_parent(Talk& talk) {
  CUdeviceptr data = 0;
  MUST(cuMemAlloc_v2(&data, 1 << 21));
  const CUipcMemHandle handle = export_memory(data);
  OK(cuMemFree_v2(data));
  Buffer next(1 << 21);  // most likely at the same address
  OK(cuCtxSynchronize());
  talk.send(handle);
  talk.await();
}

TWO_PROCESSES_ENDING(MemoryOutlivesItsExporter, 128 + SIGKILL)

void MemoryOutlivesItsExporter_child(Talk& talk) {
  CUdeviceptr data = 0;
  MUST(cuMemAlloc_v2(&data, 1 << 21));
  OK(cuMemsetD32_v2(data, 31, kWords));
  OK(cuCtxSynchronize());
  talk.send(export_memory(data));
  talk.await();
  raise(SIGKILL);
}

void MemoryOutlivesItsExporter_parent(Talk& talk) {
  const CUdeviceptr shared = open_memory(talk.receive<CUipcMemHandle>());
  talk.tell();
  talk.await_end();
  EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 31));
  OK(cuMemsetD32_v2(shared, 32, kWords));
  EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 32));
  OK(cuIpcCloseMemHandle(shared));
}

TWO_PROCESSES(ChildWaitsForTheEvent)

void ChildWaitsForTheEvent_child(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  CUevent event = nullptr;
  MUST(cuIpcOpenEventHandle(&event, talk.receive<CUipcEventHandle>()));
  OK(cuEventQuery(event));
  OK(cuEventSynchronize(event));
  const CUdeviceptr shared = open_memory(talk.receive<CUipcMemHandle>());
  // Before anything waits: a driver may load code only after queued work is over, and the parent's
  // gate waits for us.
  OK(launch(basic("affine"), {1}, {kWords}, 0, nullptr, shared, 1u, 0u, kWords));
  OK(cuCtxSynchronize());
  talk.tell();
  talk.await();  // the record is pending now
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  {
    Stream stream;
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(launch(basic("affine"), {1}, {kWords}, 0, stream, shared, 2u, 1u, kWords));
    EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    talk.tell();
    OK(cuStreamSynchronize(stream));
  }
  OK(cuEventQuery(event));
  OK(cuEventDestroy_v2(event));
  EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 2 * 5 + 1));
  OK(cuIpcCloseMemHandle(shared));
  talk.tell();
}

void ChildWaitsForTheEvent_parent(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  Event event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  Buffer data(1 << 21);
  CUipcEventHandle handle = {};
  OK(cuEventRecord(event, nullptr));
  OK(cuIpcGetEventHandle(&handle, event));
  OK(cuCtxSynchronize());
  talk.send(handle);
  talk.send(export_memory(data));
  talk.await();
  Gate gate;
  Stream stream;
  gate.block(stream);
  OK(cuMemsetD32Async(data, 5, kWords, stream));
  OK(cuEventRecord(event, stream));
  talk.tell();
  talk.await();
  gate.open();
  talk.await();
  OK(cuStreamSynchronize(stream));
}

TWO_PROCESSES(ParentWaitsForTheChildsRecord)

void ParentWaitsForTheChildsRecord_child(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  CUevent event = nullptr;
  MUST(cuIpcOpenEventHandle(&event, talk.receive<CUipcEventHandle>()));
  Gate gate;
  Stream stream;
  gate.block(stream);
  OK(cuEventRecord(event, stream));
  talk.tell();
  talk.await();
  gate.open();
  OK(cuStreamSynchronize(stream));
  talk.await();
  OK(cuEventDestroy_v2(event));
}

void ParentWaitsForTheChildsRecord_parent(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  Event event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle handle = {};
  OK(cuIpcGetEventHandle(&handle, event));
  talk.send(handle);
  talk.await();
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  talk.tell();
  OK(cuEventSynchronize(event));
  OK(cuEventQuery(event));
  talk.tell();
}

// Some programs fork their helpers first and let each make its own first call.
PROCESS_TEST(IpcProcess, ForkedBeforeTheFirstCall) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const pid_t helper = fork();
  if (helper == 0) {
    close(ends[0]);
    alarm(30);  // only ends a hang
    attach();
    Talk talk(ends[1]);
    const CUdeviceptr shared = open_memory(talk.receive<CUipcMemHandle>());
    OK(cuMemsetD32_v2(shared, 61, kWords));
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(shared));
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  close(ends[1]);
  attach();
  Buffer data(1 << 21);
  Talk talk(ends[0]);
  talk.send(export_memory(data));
  int status = 0;
  ASSERT_EQ(waitpid(helper, &status, 0), helper);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_words(data, kWords), std::vector<uint32_t>(kWords, 61));
}

// ---- Descriptors ----

// Physical memory mapped somewhere, for the life of the object.
class Mapping {
 public:
  Mapping(CUmemGenericAllocationHandle handle, size_t bytes) : bytes_(bytes) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device()},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&address_, bytes, 0, 0, 0));
    OK(cuMemMap(address_, bytes, 0, handle, 0));
    OK(cuMemSetAccess(address_, bytes, &access, 1));
  }
  ~Mapping() {
    OK(cuMemUnmap(address_, bytes_));
    OK(cuMemAddressFree(address_, bytes_));
  }
  Mapping(const Mapping&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

TWO_PROCESSES(PhysicalMemoryTravelsAsDescriptor)

void PhysicalMemoryTravelsAsDescriptor_child(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  int descriptor = -1;
  const auto bytes = talk.receive<size_t>(&descriptor);
  ASSERT_GE(descriptor, 0);
  CUmemGenericAllocationHandle handle = 0, again = 0;
  MUST(cuMemImportFromShareableHandle(&handle, as_handle(descriptor),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  MUST(cuMemImportFromShareableHandle(&again, as_handle(descriptor),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  CUmemAllocationProp prop = {};
  OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  EXPECT_EQ(prop.location.id, device());
  OK(cuMemRelease(again));
  {
    Mapping shared(handle, bytes);
    OK(cuMemRelease(handle));
    EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 9));
    OK(cuMemsetD32_v2(shared, 10, kWords));
    OK(cuCtxSynchronize());
    talk.tell();
    talk.await();  // the exporter has released it
    EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 11));
  }
}

void PhysicalMemoryTravelsAsDescriptor_parent(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  const size_t bytes = granularity();
  const CUmemAllocationProp prop = shareable_on_device();
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, bytes, &prop, 0));
  int descriptor = -1;
  INVALID(
      cuMemExportToShareableHandle(nullptr, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  INVALID(cuMemExportToShareableHandle(&descriptor, handle,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  EXPECT_CU(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
            CUDA_ERROR_INVALID_VALUE);
  MUST(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    0));
  {
    Mapping mine(handle, bytes);
    OK(cuMemRelease(handle));
    unsigned long long types = 0;
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mine));
    EXPECT_EQ(types, uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
    OK(cuMemsetD32_v2(mine, 9, kWords));
    OK(cuCtxSynchronize());
    talk.send(bytes, descriptor);
    talk.await();
    EXPECT_EQ(read_words(mine, kWords), std::vector<uint32_t>(kWords, 10));
    OK(cuMemsetD32_v2(mine, 11, kWords));
    OK(cuCtxSynchronize());
  }
  close(descriptor);
  talk.tell();
}

// A descriptor keeps memory that has neither handle nor mapping.
TWO_PROCESSES(DescriptorAloneKeepsTheMemory)

void DescriptorAloneKeepsTheMemory_child(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  int descriptor = -1;
  const auto bytes = talk.receive<size_t>(&descriptor);
  ASSERT_GE(descriptor, 0);
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemImportFromShareableHandle(&handle, as_handle(descriptor),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  {
    Mapping shared(handle, bytes);
    EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 21));
  }
  OK(cuMemRelease(handle));
  talk.tell();
}

void DescriptorAloneKeepsTheMemory_parent(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  const size_t bytes = granularity();
  const CUmemAllocationProp prop = shareable_on_device();
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, bytes, &prop, 0));
  {
    Mapping mine(handle, bytes);
    OK(cuMemsetD32_v2(mine, 21, kWords));
    OK(cuCtxSynchronize());
  }
  int descriptor = -1;
  MUST(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    0));
  OK(cuMemRelease(handle));
  talk.send(bytes, descriptor);
  talk.await();
  close(descriptor);
}

TWO_PROCESSES(PoolsShareTheirAllocations)

void PoolsShareTheirAllocations_child(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  int descriptor = -1;
  talk.receive<char>(&descriptor);
  ASSERT_GE(descriptor, 0);
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolImportFromShareableHandle(&pool, as_handle(descriptor),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(descriptor);
  auto data = talk.receive<CUmemPoolPtrExportData>();
  CUdeviceptr shared = 0, refused = 0;
  MUST(cuMemPoolImportPointer(&shared, pool, &data));
  EXPECT_EQ(read_words(shared, kWords), std::vector<uint32_t>(kWords, 51));
  OK(cuMemsetD32_v2(shared, 52, kWords));
  OK(cuCtxSynchronize());
  EXPECT_CU(cuMemAllocFromPoolAsync(&refused, 1024, pool, nullptr), CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_INVALID_HANDLE);
  OK(cuMemFreeAsync(shared, nullptr));
  OK(cuCtxSynchronize());
  OK(cuMemPoolDestroy(pool));
  talk.tell();
}

void PoolsShareTheirAllocations_parent(Talk& talk) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &props));
  int descriptor = -1;
  MUST(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0));
  CUdeviceptr data = 0;
  MUST(cuMemAllocFromPoolAsync(&data, 1 << 20, pool, nullptr));
  OK(cuMemsetD32_v2(data, 51, kWords));
  OK(cuCtxSynchronize());
  CUmemPoolPtrExportData exported = {};
  MUST(cuMemPoolExportPointer(&exported, data));
  talk.send('p', descriptor);
  close(descriptor);
  talk.send(exported);
  talk.await();
  EXPECT_EQ(read_words(data, kWords), std::vector<uint32_t>(kWords, 52));
  OK(cuMemFreeAsync(data, nullptr));
  OK(cuCtxSynchronize());
  OK(cuMemPoolDestroy(pool));
}

}  // namespace
}  // namespace tendril::conformance
