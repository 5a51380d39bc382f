// SPDX-License-Identifier: Apache-2.0
// For tests and fuzzing: lanes of well-formed calls that make, use and end objects in any order.
// The ids come from small sets, so most calls meet an object that lives, has ended, or is in use.
// The numbers that decide come from a seed or from a fuzzer.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "api/core/handle.h"
#include "api/cuda_abi.gen.h"
#include "api/cuda_kinds.gen.h"
#include "api/cuda_messages.gen.h"
#include "base/content_hash.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace tendril::worker::cuda {

// Decides by a fuzzer's bytes, and then by a seed.
class Choices {
 public:
  Choices(const uint8_t* data, size_t bytes, uint32_t seed)
      : data_(data), left_(bytes), random_(seed) {}
  uint32_t below(uint32_t bound) {
    if (left_ == 0) return static_cast<uint32_t>(random_() % bound);
    --left_;
    return *data_++ % bound;
  }
  bool spent() const { return left_ == 0; }

 private:
  const uint8_t* data_;
  size_t left_;
  std::minstd_rand random_;
};

// Context 0: none. Reply 0: nobody waits.
template <typename Message>
void append_call(std::vector<uint8_t>* lane, const Message& message, uint32_t context,
                 uint32_t reply_id) {
  wire::CallHeader header{};
  const uint64_t bytes = wire::message_bytes(message), pad = wire::padded(bytes) - bytes;
  header.bytes = static_cast<uint32_t>(sizeof header + bytes + pad);
  header.opcode = static_cast<uint16_t>(Message::kOp);
  header.flags = static_cast<uint16_t>(pad);
  header.context = context;
  header.reply_id = reply_id;
  const size_t at = lane->size();
  lane->resize(at + header.bytes);
  std::memcpy(lane->data() + at, &header, sizeof header);
  if (bytes != 0) wire::write_message(message, lane->data() + at + sizeof header);
}

class RandomCalls {
 public:
  using Kind = api::cuda::Kind;

  explicit RandomCalls(Choices* choices) : choices_(*choices) {
    retain(1);
    wire::cuda::mirror_create_request mirror;
    mirror.address = kMemory;
    mirror.bytes = 4096;
    mirror.written = 1;
    add(mirror);
    wire::cuda::image_upload_request upload;
    upload.hash = bytes_of(hash());
    upload.size = code().size();
    upload.data = bytes_of(code());
    add(upload);
  }
  void add_one() {
    switch (choices_.below(9)) {
      case 0:
        return context_call();
      case 1:
        return stream_call();
      case 2:
        return event_call();
      case 3:
        return capture_call();
      case 4:
        return graph_call();
      case 5:
        return node_call();
      case 6:
        return code_call();
      case 7:
        return image_call();
      default:
        return memory_call();
    }
  }
  static const std::string& code() {
    static const std::string& text = *new std::string(
        ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 counter;\n"
        ".visible .entry add(.param .u64 to)\n{\n  .reg .u64 %a;\n  .reg .u32 %v;\n"
        "  ld.param.u64 %a, [to];\n  cvta.to.global.u64 %a, %a;\n  ld.global.u32 %v, [%a];\n"
        "  add.u32 %v, %v, 1;\n  st.global.u32 [%a], %v;\n  ret;\n}\n");
    static const std::string& with_end = *new std::string(text.c_str(), text.size() + 1);
    return with_end;
  }
  static const std::string& hash() {
    static const std::string& value =
        *new std::string(base::content_hash(code().data(), code().size()));
    return value;
  }
  static wire::Bytes bytes_of(const std::string& text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }
  const std::vector<uint8_t>& lane() const { return lane_; }

 private:
  static constexpr uint64_t kMemory = 0x10'0000'0000;

  template <typename T>
  static wire::Bytes image_of(const T& value) {
    return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
  }

  // One of the client's ids, or one that the worker may have chosen.
  uint64_t id(Kind kind, uint32_t most = 4) {
    if (choices_.below(8) == 0)
      return api::make_id(kind, 0xff, 0, api::kWorkerBit) + 1 + choices_.below(6);
    return own(kind, most);
  }
  uint64_t own(Kind kind, uint32_t most = 4) {
    const uint32_t generation = choices_.below(8) == 0 ? 2 : 1;
    return api::make_id(kind, 0, generation, 1 + choices_.below(choices_.below(3) != 0 ? 1 : most));
  }
  uint64_t stream() {
    return choices_.below(4) == 0 ? api::cuda::kLegacyStream : id(Kind::kStream);
  }
  template <typename Message>
  void add(const Message& message, bool with_context = true) {
    const uint32_t context =
        with_context ? 1 + (choices_.below(4) == 0 ? choices_.below(4) : 0) : 0;
    const bool waits = Message::kReplies || choices_.below(8) == 0;
    append_call(&lane_, message, context, waits ? ++replies_ : 0);
  }
  void retain(uint32_t index) {
    wire::cuda::primary_retain_request request;
    request.context = api::make_id(Kind::kContext, 0, 1, index);
    request.slot = index == 1 ? 0 : choices_.below(2);
    add(request, false);
  }

  void context_call() {
    wire::cuda::context_create_request create;
    wire::cuda::context_destroy_request destroy;
    wire::cuda::primary_reset_request reset;
    wire::cuda::context_synchronize_request synchronise;
    wire::cuda::context_event_request with_event;
    wire::cuda::green_context_create_request make_green;
    wire::cuda::green_context_destroy_request end_green;
    wire::cuda::cuDevResourceGenerateDesc_request describe;
    wire::cuda::peer_access_request peer;
    CUdevResource resource;
    std::memset(&resource, 0, sizeof resource);
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    resource.sm.smCount = 2;
    switch (choices_.below(12)) {
      case 0:
        create.context = own(Kind::kContext);
        return add(create, false);
      case 1:
        destroy.context = own(Kind::kContext);
        return add(destroy, choices_.below(2) == 0);
      case 2:
        add(reset, choices_.below(2) == 0);
        return retain(1);
      case 3:
        return retain(1 + choices_.below(3));
      case 4:
        with_event.event = id(Kind::kEvent);
        with_event.action = static_cast<wire::cuda::ContextEventAction>(choices_.below(2));
        return add(with_event);
      case 5:
        describe.phDesc = own(Kind::kResourceDesc, 2);
        describe.resources = {&resource, 1};
        describe.nbResources = 1;
        return add(describe);
      case 6:
        make_green.green = own(Kind::kGreenContext, 2);
        make_green.context = own(Kind::kContext);
        make_green.description = id(Kind::kResourceDesc, 2);
        make_green.flags = CU_GREEN_CTX_DEFAULT_STREAM;
        return add(make_green);
      case 7:
        end_green.green = id(Kind::kGreenContext, 2);
        end_green.context = own(Kind::kContext);
        return add(end_green);
      case 8:
        peer.context = id(Kind::kContext);
        peer.enable = choices_.below(2);
        return add(peer);
      default:
        return add(synchronise);
    }
  }

  void stream_call() {
    wire::cuda::stream_create_request create;
    wire::cuda::green_stream_create_request create_green;
    wire::cuda::stream_destroy_request destroy;
    wire::cuda::stream_synchronize_request synchronise;
    wire::cuda::stream_query_request query;
    wire::cuda::stream_wait_event_request wait;
    wire::cuda::cuStreamWaitValue32_v2_request wait_value;
    wire::cuda::cuStreamWriteValue32_v2_request write_value;
    wire::cuda::cuStreamCopyAttributes_request attributes;
    switch (choices_.below(10)) {
      case 0:
        create.stream = own(Kind::kStream);
        create.flags = choices_.below(2);
        return add(create);
      case 1:
        destroy.stream = id(Kind::kStream);
        return add(destroy);
      case 2:
        query.stream = stream();
        return add(query);
      case 3:
        wait.stream = stream();
        wait.event = id(Kind::kEvent);
        return add(wait);
      case 4:
        wait_value.stream = stream();
        wait_value.addr = kMemory;
        wait_value.value = choices_.below(4);
        wait_value.flags = CU_STREAM_WAIT_VALUE_EQ;
        return add(wait_value);
      case 5:
        write_value.stream = stream();
        write_value.addr = kMemory;
        write_value.value = choices_.below(4);
        return add(write_value);
      case 6:
        create_green.green = id(Kind::kGreenContext, 2);
        create_green.stream = own(Kind::kStream);
        create_green.flags = CU_STREAM_NON_BLOCKING;
        return add(create_green);
      case 7:
        attributes.dstStream = stream();
        attributes.srcStream = stream();
        return add(attributes);
      default:
        synchronise.stream = stream();
        return add(synchronise);
    }
  }

  void event_call() {
    wire::cuda::event_create_request create;
    wire::cuda::event_destroy_request destroy;
    wire::cuda::event_record_request record;
    wire::cuda::event_query_request query;
    wire::cuda::event_synchronize_request synchronise;
    wire::cuda::event_elapsed_request elapsed;
    switch (choices_.below(8)) {
      case 0:
        create.event = own(Kind::kEvent);
        return add(create);
      case 1:
        destroy.event = id(Kind::kEvent);
        return add(destroy);
      case 2:
      case 3:
        record.event = id(Kind::kEvent);
        record.stream = stream();
        record.flags = choices_.below(8) == 0 ? CU_EVENT_RECORD_EXTERNAL : 0;
        return add(record);
      case 4:
        query.event = id(Kind::kEvent);
        return add(query);
      case 5:
        elapsed.start = id(Kind::kEvent);
        elapsed.end = id(Kind::kEvent);
        return add(elapsed);
      default:
        synchronise.event = id(Kind::kEvent);
        return add(synchronise);
    }
  }

  void capture_call() {
    wire::cuda::capture_begin_request begin;
    wire::cuda::capture_begin_to_graph_request begin_to;
    wire::cuda::capture_end_request end;
    wire::cuda::capture_info_request info;
    wire::cuda::capture_update_request update;
    const uint64_t nodes[] = {id(Kind::kNode)};
    switch (choices_.below(7)) {
      case 0:
      case 1:
        begin.stream = id(Kind::kStream);
        return add(begin);
      case 2:
        begin_to.stream = id(Kind::kStream);
        begin_to.graph = id(Kind::kGraph);
        begin_to.dependencies = {nodes, choices_.below(2)};
        return add(begin_to);
      case 3:
        update.stream = id(Kind::kStream);
        update.flags = choices_.below(2);
        update.dependencies = {nodes, 1};
        return add(update);
      case 4:
        info.stream = id(Kind::kStream);
        return add(info);
      default:
        end.stream = id(Kind::kStream);
        end.graph = own(Kind::kGraph);
        return add(end);
    }
  }

  // structure: table
  void graph_call() {
    wire::cuda::cuGraphCreate_request create;
    wire::cuda::cuGraphDestroy_request destroy;
    wire::cuda::cuGraphClone_request clone;
    wire::cuda::graph_list_request list;
    wire::cuda::graph_instantiate_request instantiate;
    wire::cuda::graph_launch_request launch;
    wire::cuda::cuGraphExecDestroy_request end_exec;
    wire::cuda::graph_update_request update;
    wire::cuda::cuGraphUpload_request upload;
    wire::cuda::user_object_create_request make_object;
    wire::cuda::cuUserObjectRetain_request retain_object;
    wire::cuda::cuUserObjectRelease_request release_object;
    wire::cuda::cuGraphRetainUserObject_request give_object;
    wire::cuda::cuGraphReleaseUserObject_request take_object;
    switch (choices_.below(14)) {
      case 0:
        create.phGraph = own(Kind::kGraph);
        return add(create);
      case 1:
        destroy.hGraph = id(Kind::kGraph);
        return add(destroy);
      case 2:
        clone.phGraphClone = own(Kind::kGraph);
        clone.originalGraph = id(Kind::kGraph);
        return add(clone);
      case 3:
      case 4:
        list.kind = static_cast<wire::cuda::GraphListKind>(choices_.below(5));
        list.object =
            id(list.kind >= wire::cuda::GraphListKind::kDependencies ? Kind::kNode : Kind::kGraph);
        return add(list);
      case 5:
        instantiate.graph = id(Kind::kGraph);
        instantiate.exec = own(Kind::kExec);
        instantiate.with_params = choices_.below(2);
        return add(instantiate);
      case 6:
        launch.exec = id(Kind::kExec);
        launch.stream = stream();
        return add(launch);
      case 7:
        end_exec.hGraphExec = id(Kind::kExec);
        return add(end_exec);
      case 8:
        update.exec = id(Kind::kExec);
        update.graph = id(Kind::kGraph);
        return add(update);
      case 9:
        upload.hGraph = id(Kind::kExec);
        upload.hStream = stream();
        return add(upload);
      case 10:
        make_object.object = own(Kind::kUserObject);
        make_object.token = 1;
        make_object.references = 1 + choices_.below(2);
        make_object.flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        return add(make_object);
      case 11:
        retain_object.object = id(Kind::kUserObject);
        retain_object.count = 1;
        return add(retain_object);
      case 12:
        release_object.object = id(Kind::kUserObject);
        release_object.count = 1 + choices_.below(2);
        return add(release_object);
      default:
        give_object.graph = take_object.graph = id(Kind::kGraph);
        give_object.object = take_object.object = id(Kind::kUserObject);
        give_object.count = take_object.count = 1;
        give_object.flags = choices_.below(2);
        if (choices_.below(3) == 0) return add(take_object);
        return add(give_object);
    }
  }

  // structure: table
  void node_call() {
    wire::cuda::cuGraphAddEmptyNode_request empty;
    wire::cuda::cuGraphAddChildGraphNode_request child;
    wire::cuda::graph_moved_child_node_request moved;
    wire::cuda::cuGraphAddEventRecordNode_request record;
    wire::cuda::cuGraphEventRecordNodeGetEvent_request get_event;
    wire::cuda::cuGraphEventRecordNodeSetEvent_request set_event;
    wire::cuda::cuGraphExecEventRecordNodeSetEvent_request exec_event;
    wire::cuda::cuGraphDestroyNode_request destroy;
    wire::cuda::cuGraphChildGraphNodeGetGraph_request get_graph;
    wire::cuda::cuGraphNodeFindInClone_request find;
    wire::cuda::cuGraphNodeGetType_request type;
    wire::cuda::graph_conditional_handle_request condition;
    wire::cuda::graph_conditional_node_request conditional;
    wire::cuda::graph_kernel_node_request kernel;
    wire::cuda::graph_kernel_node_get_request get_kernel;
    const uint64_t nodes[] = {id(Kind::kNode)};
    const uint64_t count = choices_.below(2), graph = id(Kind::kGraph), node = own(Kind::kNode, 6);
    const uint64_t memory = kMemory;
    switch (choices_.below(15)) {
      case 0:
        empty.phGraphNode = node;
        empty.hGraph = graph;
        empty.dependencies = {nodes, count};
        empty.numDependencies = count;
        return add(empty);
      case 1:
        child.phGraphNode = node;
        child.hGraph = graph;
        child.childGraph = id(Kind::kGraph);
        return add(child);
      case 2:
        moved.node = node;
        moved.graph = graph;
        moved.child = id(Kind::kGraph);
        return add(moved);
      case 3:
        record.phGraphNode = node;
        record.hGraph = graph;
        record.event = id(Kind::kEvent);
        return add(record);
      case 4:
        get_event.hNode = id(Kind::kNode, 6);
        return add(get_event);
      case 5:
        set_event.hNode = id(Kind::kNode, 6);
        set_event.event = id(Kind::kEvent);
        return add(set_event);
      case 6:
        exec_event.hGraphExec = id(Kind::kExec);
        exec_event.hNode = id(Kind::kNode, 6);
        exec_event.event = id(Kind::kEvent);
        return add(exec_event);
      case 7:
        destroy.hNode = id(Kind::kNode, 6);
        return add(destroy);
      case 8:
        get_graph.hNode = id(Kind::kNode, 6);
        return add(get_graph);
      case 9:
        find.hOriginalNode = id(Kind::kNode, 6);
        find.hClonedGraph = graph;
        return add(find);
      case 10:
        type.hNode = id(Kind::kNode, 6);
        return add(type);
      case 11:
        condition.graph = graph;
        return add(condition);
      case 12:
        conditional.graph = graph;
        conditional.node = node;
        conditional.handle = 1 + choices_.below(4);
        conditional.type = CU_GRAPH_COND_TYPE_IF;
        conditional.size = 1;
        return add(conditional);
      case 13:
        get_kernel.node = id(Kind::kNode, 6);
        return add(get_kernel);
      default:
        kernel.change = static_cast<wire::cuda::NodeChange>(choices_.below(3));
        kernel.graph = graph;
        kernel.node = kernel.change == wire::cuda::NodeChange::kAdd ? node : id(Kind::kNode, 6);
        kernel.exec = id(Kind::kExec);
        kernel.function = id(choices_.below(2) == 0 ? Kind::kFunction : Kind::kKernel);
        kernel.shape = {{1, 1, 1}, {1, 1, 1}, 0, 0};
        kernel.params = image_of(memory);
        return add(kernel);
    }
  }

  // structure: table
  void code_call() {
    wire::cuda::module_load_request load;
    wire::cuda::module_unload_request unload;
    wire::cuda::module_function_request function;
    wire::cuda::module_global_request global;
    wire::cuda::module_functions_request names;
    wire::cuda::library_kernel_request kernel;
    wire::cuda::library_module_request module;
    wire::cuda::kernel_function_request of_kernel;
    wire::cuda::launch_kernel_request launch;
    wire::cuda::function_info_request info;
    wire::cuda::link_create_request link;
    wire::cuda::link_add_request add_to_link;
    wire::cuda::link_complete_request complete;
    wire::cuda::link_destroy_request end_link;
    static const std::string& entry = *new std::string("add");
    static const std::string& variable = *new std::string("counter");
    const bool library = choices_.below(3) == 0;
    const Kind kind = library ? Kind::kLibrary : Kind::kModule;
    const auto loaded = library ? wire::cuda::LoadKind::kLibrary : wire::cuda::LoadKind::kModule;
    const uint64_t memory = kMemory;
    switch (choices_.below(16)) {
      case 0:
      case 1:
        load.handle = own(kind, 2);
        load.kind = loaded;
        load.hash = bytes_of(hash());
        load.size = code().size();
        return add(load);
      case 2:
        unload.handle = id(kind, 2);
        unload.kind = loaded;
        return add(unload);
      case 3:
      case 4:
        function.module = id(Kind::kModule, 2);
        function.function = own(Kind::kFunction);
        function.name = bytes_of(entry);
        return add(function);
      case 5:
        kernel.library = id(Kind::kLibrary, 2);
        kernel.kernel = own(Kind::kKernel);
        kernel.name = bytes_of(entry);
        return add(kernel);
      case 6:
        module.library = id(Kind::kLibrary, 2);
        module.module = own(Kind::kModule, 2);
        return add(module);
      case 7:
        of_kernel.kernel = id(Kind::kKernel);
        of_kernel.function = own(Kind::kFunction);
        return add(of_kernel);
      case 8:
        global.module = id(kind, 2);
        global.kind = loaded;
        global.name = bytes_of(variable);
        return add(global);
      case 9:
        info.function = id(library ? Kind::kKernel : Kind::kFunction);
        return add(info);
      case 10:
        link.link = own(Kind::kLink, 2);
        return add(link);
      case 11:
        add_to_link.link = id(Kind::kLink, 2);
        add_to_link.type = CU_JIT_INPUT_PTX;
        add_to_link.size = code().size();
        add_to_link.data = bytes_of(code());
        return add(add_to_link);
      case 12:
        complete.link = id(Kind::kLink, 2);
        return add(complete);
      case 13:
        end_link.link = id(Kind::kLink, 2);
        return add(end_link);
      case 14:
        names.module = id(kind, 2);
        names.kind = loaded;
        return add(names);
      default:
        launch.function = id(library ? Kind::kKernel : Kind::kFunction);
        launch.stream = stream();
        launch.shape = {{1, 1, 1}, {1, 1, 1}, 0, 0};
        launch.params = image_of(memory);
        return add(launch);
    }
  }

  void image_call() {
    wire::cuda::array_create_request create;
    wire::cuda::array_destroy_request destroy;
    wire::cuda::cuMipmappedArrayGetLevel_request level;
    wire::cuda::cuArrayGetPlane_request plane;
    wire::cuda::cuArray3DGetDescriptor_v2_request describe;
    wire::cuda::cuTexRefCreate_request make_reference;
    wire::cuda::cuTexRefDestroy_request end_reference;
    wire::cuda::cuTexRefSetArray_request set_array;
    wire::cuda::cuTexRefGetArray_request get_array;
    wire::cuda::cuTexObjectCreate_request make_texture;
    wire::cuda::cuTexObjectDestroy_request end_texture;
    wire::cuda::cuTexObjectGetResourceDesc_request describe_texture;
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    descriptor.Width = descriptor.Height = 4;
    descriptor.Format = CU_AD_FORMAT_FLOAT;
    descriptor.NumChannels = 1;
    const bool mipmap = choices_.below(3) == 0;
    const Kind kind = mipmap ? Kind::kMipmap : Kind::kArray;
    // The software GPU counts them.
    const uint64_t texture = 0x0d00'0000'0000 + (uint64_t{18} << 34) + (choices_.below(8) << 4);
    switch (choices_.below(12)) {
      case 0:
      case 1:
        create.array = own(kind);
        create.descriptor = image_of(descriptor);
        create.levels = mipmap ? 2 : 0;
        return add(create);
      case 2:
        destroy.array = id(kind);
        return add(destroy);
      case 3:
        level.hMipmappedArray = id(Kind::kMipmap);
        level.level = choices_.below(3);
        return add(level);
      case 4:
        plane.hArray = id(Kind::kArray);
        return add(plane);
      case 5:
        describe.hArray = id(Kind::kArray);
        return add(describe);
      case 6:
        make_reference.pTexRef = own(Kind::kTexref, 2);
        return add(make_reference);
      case 7:
        end_reference.hTexRef = id(Kind::kTexref, 2);
        return add(end_reference);
      case 8:
        set_array.hTexRef = id(Kind::kTexref, 2);
        set_array.hArray = id(Kind::kArray);
        return add(set_array);
      case 9:
        get_array.hTexRef = id(Kind::kTexref, 2);
        return add(get_array);
      case 10:
        std::memset(&make_texture.pResDesc.value, 0, sizeof make_texture.pResDesc.value);
        std::memset(&make_texture.pTexDesc.value, 0, sizeof make_texture.pTexDesc.value);
        make_texture.pResDesc.value.resType = CU_RESOURCE_TYPE_ARRAY;
        make_texture.pResDesc.value.res.array.hArray = reinterpret_cast<CUarray>(id(Kind::kArray));
        return add(make_texture);
      default:
        end_texture.texObject = describe_texture.texObject = texture;
        if (choices_.below(2) == 0) return add(end_texture);
        return add(describe_texture);
    }
  }

  // structure: table
  void memory_call() {
    wire::cuda::copy_to_device_request to;
    wire::cuda::copy_from_device_request from;
    wire::cuda::copy_from_device_async_request later;
    wire::cuda::copies_wait_request wait;
    wire::cuda::memory_set_request set;
    wire::cuda::cuMemPoolCreate_request make_pool;
    wire::cuda::pool_destroy_request end_pool;
    wire::cuda::pool_default_request default_pool;
    wire::cuda::pool_set_request set_pool;
    wire::cuda::pool_allocate_request allocate;
    wire::cuda::pool_trim_request trim;
    wire::cuda::vm_create_request make_physical;
    wire::cuda::vm_release_request end_physical;
    const uint64_t word = choices_.below(4);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    switch (choices_.below(13)) {
      case 0:
        to.destination = kMemory;
        to.bytes = sizeof word;
        to.stream = stream();
        to.data = image_of(word);
        return add(to);
      case 1:
        from.source = kMemory;
        from.bytes = 64;
        from.stream = stream();
        return add(from);
      case 2:
        later.source = kMemory;
        later.bytes = 64;
        later.host = 0x1000;
        later.stream = stream();
        if (choices_.below(2) == 0) later.transfer = ++transfers_;
        return add(later);
      case 3:
        return add(wait);
      case 4:
        set.destination = kMemory;
        set.value = choices_.below(4);
        set.element = 4;
        set.width = set.height = 1;
        set.stream = stream();
        return add(set);
      case 5:
        std::memset(&make_pool.poolProps.value, 0, sizeof make_pool.poolProps.value);
        make_pool.pool = own(Kind::kPool);
        make_pool.poolProps.value.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        make_pool.poolProps.value.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        return add(make_pool);
      case 6:
        end_pool.pool = id(Kind::kPool);
        return add(end_pool);
      case 7:
        default_pool.pool = own(Kind::kPool);
        return add(default_pool);
      case 8:
        set_pool.pool = id(Kind::kPool);
        return add(set_pool);
      case 9:
        allocate.bytes = 4096;
        allocate.stream = stream();
        allocate.pool = id(Kind::kPool);
        return add(allocate);
      case 10:
        trim.pool = id(Kind::kPool);
        return add(trim);
      case 11:
        make_physical.handle = own(Kind::kAllocation);
        make_physical.size = 2u << 20;
        make_physical.properties = image_of(properties);
        return add(make_physical);
      default:
        end_physical.handle = id(Kind::kAllocation);
        return add(end_physical);
    }
  }

  Choices& choices_;
  uint32_t replies_ = 0, transfers_ = 0;
  std::vector<uint8_t> lane_;
};

}  // namespace tendril::worker::cuda
