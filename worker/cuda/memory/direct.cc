// SPDX-License-Identifier: Apache-2.0
// See direct.h.
#include "worker/cuda/memory/direct.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "worker/cuda/executor/waits.h"

namespace tendril::worker::cuda {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr uint64_t kTrialBytes = 1u << 20;
constexpr unsigned kTrialRounds = 3;  // the best one counts: the first one wakes everything

Status failed(const char* what, CUresult result) {
  return Status(Code::kUnavailable, base::format("%s (CUresult %d)", what, int(result)));
}

void keep_least(uint64_t* least, uint64_t value) {
  *least = *least == 0 ? value : std::min(*least, value);
}

// A stream that waits for nothing of the program's.
class OwnStream {
 public:
  explicit OwnStream(gpu::Driver* driver) : driver_(*driver) {
    if (driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) stream_ = nullptr;
  }
  ~OwnStream() {
    if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  // ns; 0: it failed.
  uint64_t to_host(void* into, uint64_t address, uint64_t bytes) {
    const uint64_t begin_ns = base::now_ns();
    const bool good = stream_ != nullptr &&
                      driver_.cuMemcpyDtoHAsync_v2(into, address, bytes, stream_) == CUDA_SUCCESS &&
                      driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS;
    return good ? std::max<uint64_t>(base::now_ns() - begin_ns, 1) : 0;
  }
  uint64_t to_device(uint64_t address, const void* from, uint64_t bytes) {
    const uint64_t begin_ns = base::now_ns();
    const bool good = stream_ != nullptr &&
                      driver_.cuMemcpyHtoDAsync_v2(address, from, bytes, stream_) == CUDA_SUCCESS &&
                      driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS;
    return good ? std::max<uint64_t>(base::now_ns() - begin_ns, 1) : 0;
  }

 private:
  gpu::Driver& driver_;
  CUstream stream_ = nullptr;
};

bool has_peer_module() {
  return access("/sys/module/nvidia_peermem", F_OK) == 0 ||
         access("/sys/module/nv_peer_mem", F_OK) == 0;
}

PciPlace place_of_card(const std::string& port) {
  return read_pci_place("/sys/class/infiniband/" + port.substr(0, port.find(':')) + "/device");
}

PciPlace place_of_gpu(const gpu::Driver& driver, CUdevice device) {
  char id[32] = {};
  if (driver.cuDeviceGetPCIBusId(id, sizeof id - 1, device) != CUDA_SUCCESS) return {};
  for (char& letter : id) letter = letter >= 'A' && letter <= 'F' ? char(letter + 32) : letter;
  return read_pci_place(std::string("/sys/bus/pci/devices/") + id);
}

}  // namespace

Direct::Direct(Executor* executor, Exports* exports)
    : w_(*executor), exports_(exports), mode_(direct_mode(getenv("TENDRIL_GPUDIRECT"))) {}

Direct::~Direct() { give_up(); }

void Direct::lend(std::shared_ptr<transport::PinnedMemory> cards) {
  if (mode_ != DirectMode::kOff) cards_ = std::move(cards);
}

void Direct::tell(const std::string& text) {
  if (exports_ != nullptr) exports_->tell_direct(text);
}

Direct::Gpu& Direct::gpu_of(uint32_t slot) {
  Gpu& gpu = gpus_[slot];
  if (gpu.known) return gpu;
  gpu.known = true;
  const gpu::Driver& driver = w_.driver();
  const CUdevice device = w_.device_of(slot);
  const auto value_of = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
  };
  DirectFacts facts;
  facts.gpu_can = value_of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  facts.gives_dma_buf = value_of(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0 &&
                        driver.cuMemGetHandleForAddressRange != nullptr;
  facts.has_peer_module = has_peer_module();
  facts.ordering = value_of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  facts.can_flush = (value_of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
                     CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 &&
                    driver.cuFlushGPUDirectRDMAWrites != nullptr;
  gpu.plan = plan_direct(facts);
  if (!gpu.plan.why_not.empty()) tell("no: " + gpu.plan.why_not);
  return gpu;
}

bool Direct::carries() {
  if (cards_ == nullptr) return false;
  if (!cards_->card_ports().empty()) return true;
  // Either no card carries data yet, or the session has left them for good.
  if (!gpus_.empty()) give_up();
  return false;
}

void Direct::give_up() {
  while (!parts_.empty()) drop_part(parts_.begin()->first);
  gpus_.clear();
  cards_.reset();
}

const DeviceBlocks::Block* Direct::block_of(uint64_t address, uint64_t bytes) {
  const DeviceBlocks::Block* const block = w_.blocks().find(address);
  const bool usable = block != nullptr && block->physical != 0 && block->token.empty() &&
                      block->context == w_.context() &&
                      bytes <= block->bytes - (address - block->address);
  return usable ? block : nullptr;
}

// Work on the legacy stream waits for all streams that are not apart, and they for it.
bool Direct::is_idle(CUstream stream) {
  if (w_.streams().capturing()) return false;
  const gpu::Driver& driver = w_.driver();
  unsigned flags = 0;
  if (stream != CU_STREAM_LEGACY && driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
      (flags & CU_STREAM_NON_BLOCKING) != 0)
    return driver.cuStreamQuery(stream) == CUDA_SUCCESS;
  const WorkerContext& context = *w_.context();
  if (context.untold || context.waits.load() != 0) return false;
  bool idle = driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS;
  for (CUstream each : context.touched) idle = idle && driver.cuStreamQuery(each) == CUDA_SUCCESS;
  return idle;
}

bool Direct::may_write(uint64_t address, uint64_t bytes, CUstream stream) {
  if (!carries()) return false;
  const DeviceBlocks::Block* const block = block_of(address, bytes);
  if (block == nullptr || !is_idle(stream)) return false;
  Gpu& gpu = gpu_of(block->slot);
  if (!gpu.tried && gpu.plan.why_not.empty() && bytes >= kTrialBytes)
    try_cards(&gpu, *block, address);
  return gpu.to_device && is_registered(gpu, *block, address, bytes);
}

bool Direct::may_read(uint64_t address, uint64_t bytes, CUstream stream) {
  if (gpus_.empty() || !carries()) return false;  // a copy to the device comes first
  const DeviceBlocks::Block* const block = block_of(address, bytes);
  if (block == nullptr || !is_idle(stream)) return false;
  const Gpu& gpu = gpu_of(block->slot);
  context_ = w_.context()->context;
  return gpu.to_host && is_registered(gpu, *block, address, bytes);
}

CUresult Direct::written() {
  const Gpu& gpu = gpu_of(w_.slot());
  return gpu.plan.flushes ? w_.driver().cuFlushGPUDirectRDMAWrites(
                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
                          : CUDA_SUCCESS;
}

CUresult Direct::send(uint64_t transfer, uint64_t address, uint64_t bytes) {
  if (w_.service().send_device_bulk(transfer, 0, address, bytes, this)) {
    w_.service().transfer_sent(transfer);
    return CUDA_SUCCESS;
  }
  const CUresult state = w_.driver().cuStreamQuery(CU_STREAM_LEGACY);
  return state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY ? CUDA_ERROR_UNKNOWN : state;
}

void Direct::tell_sum() {
  const wire::SessionCounts& counts = w_.service().counts();
  const uint64_t in = counts.device_bytes_in, out = counts.device_bytes_out;
  if (in == 0 && out == 0) return;
  tell(base::format("moved %llu MiB to GPUs and %llu MiB from them",
                    static_cast<unsigned long long>(in >> 20),
                    static_cast<unsigned long long>(out >> 20)));
}

bool Direct::read(uint64_t address, void* into, uint64_t bytes) {
  const std::lock_guard<std::mutex> hold(read_mutex_);
  if (w_.driver().cuCtxSetCurrent(context_) != CUDA_SUCCESS) return false;
  OwnStream stream(&w_.driver());
  return stream.to_host(into, address, bytes) != 0;
}

// ---- registrations ----

bool Direct::is_registered(const Gpu& gpu, const DeviceBlocks::Block& block, uint64_t address,
                           uint64_t bytes) {
  const std::vector<DirectPart> parts = parts_of(block.address, block.bytes, address, bytes);
  if (parts.empty() || parts.size() > kDirectPartsMost / 2) return false;
  for (const DirectPart& part : parts) {
    const auto known = parts_.find(part.begin);
    if (known == parts_.end()) {
      if (bytes < kRegistersFrom) return false;
      add_part(gpu, block, part);
    }
    Part& now = parts_[part.begin];
    now.used = ++uses_;
    if (now.refused) return false;
  }
  return true;
}

void Direct::add_part(const Gpu& gpu, const DeviceBlocks::Block& block, const DirectPart& part) {
  if (parts_.size() >= kDirectPartsMost) {
    const auto oldest = std::min_element(
        parts_.begin(), parts_.end(),
        [](const auto& one, const auto& other) { return one.second.used < other.second.used; });
    drop_part(oldest->first);
  }
  Part& made = parts_[part.begin];
  made.bytes = part.bytes;
  made.slot = block.slot;
  for (const Pair& pair : gpu.pairs) {
    const Status added = register_part(pair.port.get(), gpu.plan, block, part);
    made.refused = made.refused || !added.ok();
  }
}

Status Direct::register_part(transport::CardPort* port, const DirectPlan& plan,
                             const DeviceBlocks::Block& block, const DirectPart& part) {
  Status status(Code::kUnsupported, "the driver gives no dma-buf");
  if (plan.by_dma_buf) {
    int raw = -1;
    const CUresult given = w_.driver().cuMemGetHandleForAddressRange(
        &raw, block.address, block.bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    const base::Fd descriptor(given == CUDA_SUCCESS ? raw : -1);
    if (descriptor.valid()) {
      status =
          port->add_device({part.begin, part.bytes, descriptor.get(), part.begin - block.address});
    }
  }
  if (!status.ok() && plan.by_peer_module)
    status = port->add_device({part.begin, part.bytes, -1, 0});
  return status;
}

void Direct::drop_part(uint64_t begin) {
  const auto part = parts_.find(begin);
  if (part == parts_.end()) return;
  for (const Pair& pair : gpus_[part->second.slot].pairs) pair.port->remove_device(begin);
  parts_.erase(part);
}

void Direct::forget(const DeviceBlocks::Block& block) {
  for (auto part = parts_.lower_bound(block.address);
       part != parts_.end() && part->first < block.address + block.bytes;)
    drop_part((part++)->first);
}

// ---- trying ----

void Direct::try_cards(Gpu* gpu, const DeviceBlocks::Block& block, uint64_t address) {
  const std::vector<DirectPart> parts = parts_of(block.address, block.bytes, address, kTrialBytes);
  if (parts.size() != 1) return;  // the next copy will do
  Staging& staging = w_.waiters().staging();
  const Block host = staging.take(2 * kTrialBytes);
  if (host.data == nullptr) return;
  gpu->tried = true;
  std::string why = "host memory cannot be registered";
  if (cards_->add(host.data, 2 * kTrialBytes).ok()) {
    const PciPlace place = place_of_gpu(w_.driver(), w_.device_of(block.slot));
    const std::vector<std::shared_ptr<transport::CardPort>> ports = cards_->card_ports();
    std::vector<PciPlace> places;
    for (const auto& port : ports) places.push_back(place_of_card(port->name()));
    for (const size_t i : nearest_first(place, places)) {
      transport::CardPort* const port = ports[i].get();
      DirectTrial trial;
      Status good = register_part(port, gpu->plan, block, parts[0]);
      if (good.ok()) good = try_card(port, gpu->plan, address, host.data, &trial);
      port->remove_device(parts[0].begin);
      if (!good.ok()) {
        why = good.message();
        continue;
      }
      const DirectChoice choice = choose_direct(trial, mode_);
      tell(base::format("%s%s, %s: to it %.2fx%s, from it %.2fx%s",
                        choice.to_device || choice.to_host ? "" : "no: ", port->name().c_str(),
                        text_of(closeness(place, places[i])), choice.gain_to_device,
                        choice.to_device ? "" : " (no)", choice.gain_to_host,
                        choice.to_host ? "" : " (no)"));
      why.clear();
      if (!choice.to_device && !choice.to_host) continue;
      gpu->to_device = gpu->to_device || choice.to_device;
      gpu->to_host = gpu->to_host || choice.to_host;
      gpu->pairs.push_back({ports[i], choice});
    }
    cards_->remove(host.data);
  }
  staging.give_back(host);
  if (gpu->to_device) w_.service().expect_aims();
  if (!why.empty() && gpu->pairs.empty()) tell("no: " + why);
}

// Both ways are looked at before they are believed: other bytes each time, read back by the GPU's
// own copies, or written by them.
Status Direct::try_card(transport::CardPort* port, const DirectPlan& plan, uint64_t address,
                        uint8_t* host, DirectTrial* trial) {
  uint8_t* const back = host + kTrialBytes;
  const auto at_host = reinterpret_cast<uint64_t>(host);
  const auto at_back = reinterpret_cast<uint64_t>(back);
  OwnStream stream(&w_.driver());
  for (unsigned round = 0; round < kTrialRounds; ++round) {
    if (!base::random_bytes(host, kTrialBytes))
      return Status(Code::kUnavailable, "the kernel has no random bytes");
    Result<uint64_t> took = port->move(at_host, address, kTrialBytes);
    if (!took.ok()) return took.status();
    keep_least(&trial->card_to_device_ns, *took);
    const CUresult flushed = plan.flushes ? written() : CUDA_SUCCESS;
    if (flushed != CUDA_SUCCESS) return failed("the card's writes cannot be flushed", flushed);
    const uint64_t read_ns = stream.to_host(back, address, kTrialBytes);
    if (read_ns == 0) return Status(Code::kUnavailable, "the GPU's own copy failed");
    keep_least(&trial->gpu_to_host_ns, read_ns);
    if (memcmp(host, back, kTrialBytes) != 0)
      return Status(Code::kMismatch, "what the card wrote is not in the GPU's memory");
    if (!base::random_bytes(host, kTrialBytes))
      return Status(Code::kUnavailable, "the kernel has no random bytes");
    const uint64_t written_ns = stream.to_device(address, host, kTrialBytes);
    if (written_ns == 0) return Status(Code::kUnavailable, "the GPU's own copy failed");
    keep_least(&trial->gpu_from_host_ns, written_ns);
    took = port->move(address, at_back, kTrialBytes);
    if (!took.ok()) return took.status();
    keep_least(&trial->card_to_host_ns, *took);
    if (memcmp(host, back, kTrialBytes) != 0)
      return Status(Code::kMismatch, "the card read other bytes than the GPU's memory has");
    took = port->move(at_host, at_back, kTrialBytes);
    if (!took.ok()) return took.status();
    keep_least(&trial->card_in_host_ns, *took);
  }
  return Status();
}

}  // namespace tendril::worker::cuda
