// SPDX-License-Identifier: Apache-2.0
// Graphs built node by node, with every kind of node that needs no other machine part: kernel,
// copy, set, host, child, empty, event record and wait, allocation and free, conditional (if,
// while, switch). Also updates of an instantiated graph, and a graph launched from the device.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 12;
constexpr size_t kBytes = kWords * 4;
uint32_t *data, *other;
cudaStream_t stream;
bool good = true;

// `stream` does not wait for the default stream.
void zero(uint32_t* values) {
  CHECK(cudaMemset(values, 0, kBytes));
  CHECK(cudaDeviceSynchronize());
}

__global__ void add(uint32_t* values, uint32_t amount) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}

__global__ void decide(cudaGraphConditionalHandle handle, uint32_t* counter, uint32_t until) {
  const uint32_t now = ++*counter;
  cudaGraphSetConditional(handle, now < until ? now : 0);
}

void say(const char* what, uint32_t* values, uint32_t first) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), values, kBytes, cudaMemcpyDeviceToHost));
  std::printf("%s: first %u, %016llx%s\n", what, host[0],
              static_cast<unsigned long long>(checksum(host)), host[0] == first ? "" : " WRONG");
  good = good && host[0] == first;
}

cudaGraphNode_t kernel_node(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, uint32_t* values,
                            uint32_t amount) {
  cudaGraphNode_t node;
  void* arguments[] = {&values, &amount};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(add);
  parameters.gridDim = dim3(kWords / 256);
  parameters.blockDim = dim3(256);
  parameters.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters));
  return node;
}

void launch(cudaGraph_t graph, int times = 1) {
  cudaGraphExec_t ready;
  CHECK(cudaDeviceSynchronize());  // what was set on another stream
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < times; i++) CHECK(cudaGraphLaunch(ready, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(ready));
}

void CUDART_CB called(void* times) { ++*static_cast<int*>(times); }

// set -> {copy, kernel} -> empty -> host. The copy takes another way than the kernel.
void plain_nodes() {
  cudaGraph_t graph;
  cudaGraphNode_t set, copy, empty, host;
  int times = 0;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams setting = {};
  setting.dst = data, setting.elementSize = 4, setting.value = 7;
  setting.width = kWords, setting.height = 1;
  CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &setting));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &set, 1, other, data, kBytes,
                                 cudaMemcpyDeviceToDevice));
  const cudaGraphNode_t kernel = kernel_node(graph, {copy}, data, 5);
  const cudaGraphNode_t both[] = {copy, kernel};
  CHECK(cudaGraphAddEmptyNode(&empty, graph, both, 2));
  cudaHostNodeParams calling = {called, &times};
  CHECK(cudaGraphAddHostNode(&host, graph, &empty, 1, &calling));
  size_t nodes = 0, roots = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  std::printf("%zu nodes, %zu roots; kinds", nodes, roots);
  for (const cudaGraphNode_t node : {set, copy, kernel, empty, host}) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    std::printf(" %d", type);
  }
  launch(graph, 3);
  std::printf("; host node ran %d times\n", times);
  good = good && times == 3;
  say("kernel", data, 12);
  say("copy", other, 7);
  CHECK(cudaGraphDestroy(graph));
}

void child_and_events() {
  cudaGraph_t inside, graph;
  cudaGraphNode_t child, record, wait;
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaGraphCreate(&inside, 0));
  const cudaGraphNode_t first = kernel_node(inside, {}, data, 1);
  kernel_node(inside, {first}, data, 2);
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddChildGraphNode(&child, graph, nullptr, 0, inside));
  CHECK(cudaGraphAddEventRecordNode(&record, graph, &child, 1, event));
  CHECK(cudaGraphAddEventWaitNode(&wait, graph, &record, 1, event));
  kernel_node(graph, {wait}, data, 10);
  zero(data);
  launch(graph, 2);
  CHECK(cudaEventQuery(event));
  say("child and events", data, 26);
  cudaGraph_t clone;
  CHECK(cudaGraphClone(&clone, graph));
  launch(clone);
  say("clone", data, 39);
  CHECK(cudaGraphDestroy(clone));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(inside));
  CHECK(cudaEventDestroy(event));
}

void memory_nodes() {
  cudaGraph_t graph;
  cudaGraphNode_t take, copy, back, release;
  cudaMemAllocNodeParams wanted = {};
  wanted.poolProps.allocType = cudaMemAllocationTypePinned;
  wanted.poolProps.location = {cudaMemLocationTypeDevice, 0};
  wanted.bytesize = kBytes;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemAllocNode(&take, graph, nullptr, 0, &wanted));
  auto* taken = static_cast<uint32_t*>(wanted.dptr);
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &take, 1, taken, data, kBytes,
                                 cudaMemcpyDeviceToDevice));
  const cudaGraphNode_t kernel = kernel_node(graph, {copy}, taken, 1000);
  CHECK(cudaGraphAddMemcpyNode1D(&back, graph, &kernel, 1, other, taken, kBytes,
                                 cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddMemFreeNode(&release, graph, &back, 1, taken));
  zero(data);
  launch(graph, 3);
  say("memory nodes", other, 1000);
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaDeviceGraphMemTrim(0));
}

// The body adds once each time. `decide`, on the device, says whose turn it is.
void conditional(const char* what, cudaGraphConditionalNodeType kind, uint32_t until,
                 uint32_t expected) {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  cudaGraphNode_t deciding, choice;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  cudaKernelNodeParams parameters = {};
  void* arguments[] = {&handle, &other, &until};
  parameters.func = reinterpret_cast<void*>(decide);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(1);
  parameters.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&deciding, graph, nullptr, 0, &parameters));
  cudaGraphNodeParams node = {};
  node.type = cudaGraphNodeTypeConditional;
  node.conditional.handle = handle;
  node.conditional.type = kind;
  node.conditional.size = kind == cudaGraphCondTypeSwitch ? 3 : 1;
  CHECK(cudaGraphAddNode(&choice, graph, &deciding, nullptr, 1, &node));
  for (unsigned body = 0; body < node.conditional.size; body++) {
    cudaGraph_t inside = node.conditional.phGraph_out[body];
    const cudaGraphNode_t work = kernel_node(inside, {}, data, body * 100 + 1);
    if (kind == cudaGraphCondTypeWhile) {
      cudaGraphNode_t again;
      CHECK(cudaGraphAddKernelNode(&again, inside, &work, 1, &parameters));
    }
  }
  zero(data);
  zero(other);
  launch(graph, 2);
  say(what, data, expected);
  CHECK(cudaGraphDestroy(graph));
}

void updates() {
  cudaGraph_t graph, changed;
  cudaGraphExec_t ready;
  zero(data);
  CHECK(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t node = kernel_node(graph, {}, data, 1);
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGraphLaunch(ready, stream));
  cudaKernelNodeParams parameters = {};
  CHECK(cudaGraphKernelNodeGetParams(node, &parameters));
  uint32_t amount = 20;
  void* arguments[] = {&data, &amount};
  parameters.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(ready, node, &parameters));
  CHECK(cudaGraphLaunch(ready, stream));
  CHECK(cudaGraphCreate(&changed, 0));
  kernel_node(changed, {}, data, 300);
  cudaGraphExecUpdateResultInfo result = {};
  CHECK(cudaGraphExecUpdate(ready, changed, &result));
  CHECK(cudaGraphLaunch(ready, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("updates", data, 321);
  kernel_node(changed, {}, data, 1);
  const cudaError_t refused = cudaGraphExecUpdate(ready, changed, &result);
  std::printf("another shape: %s, %d\n", cudaGetErrorName(refused), result.result);
  cudaGetLastError();
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(changed));
}

__global__ void launch_from_device(cudaGraphExec_t ready) {
  cudaGraphLaunch(ready, cudaStreamGraphFireAndForget);
}

// A graph that a kernel of another graph launches.
void launched_on_the_device() {
  cudaGraph_t inside, graph;
  cudaGraphExec_t ready, outer;
  zero(data);
  CHECK(cudaGraphCreate(&inside, 0));
  kernel_node(inside, {}, data, 6);
  CHECK(cudaGraphInstantiate(&ready, inside, cudaGraphInstantiateFlagDeviceLaunch));
  CHECK(cudaGraphUpload(ready, stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch_from_device<<<1, 1, 0, stream>>>(ready);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&outer, graph, 0));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGraphLaunch(outer, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("launched on the device", data, 6);
  CHECK(cudaGraphExecDestroy(outer));
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(inside));
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaMalloc(&other, kBytes));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  plain_nodes();
  child_and_events();
  memory_nodes();
  conditional("if", cudaGraphCondTypeIf, 2, 1);
  conditional("while", cudaGraphCondTypeWhile, 10, 9);
  conditional("switch", cudaGraphCondTypeSwitch, 10, 101 + 201);
  updates();
  launched_on_the_device();
  return finish(good);
}
