// SPDX-License-Identifier: Apache-2.0
// Module loading: parses, describes every kernel, and decodes on demand. Also chooses the handler
// build for this machine.
#include "softgpu/ptx/program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/text/parser.h"

namespace tendril::softgpu {
namespace {

constexpr uint32_t kMaxSharedBytes =
    64u << 20;  // far above hardware; only keeps arithmetic from overflowing
constexpr size_t kMaxTextBytes = 1u << 30;

bool uses_image(std::string_view opcode) {
  for (std::string_view family : {"tex.", "tld4.", "txq.", "suld.", "sust.", "sured.", "suq."})
    if (opcode.starts_with(family)) return true;
  return false;
}

}  // namespace

const IsaTable& isa_table() {
#ifdef TENDRIL_HAVE_AVX2
  // TENDRIL_SOFTGPU_ISA=base lets one machine test both builds.
  static const bool fast = [] {
    const char* forced = std::getenv("TENDRIL_SOFTGPU_ISA");
    return !(forced && !std::strcmp(forced, "base")) && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
  }();
  if (fast) return isa_avx2::table();
#endif
  return isa_base::table();
}

ProgramImpl::~ProgramImpl() = default;

ProgramImpl::ProgramImpl(std::unique_ptr<Module> module) : module_(std::move(module)) {
  for (const Function& f : module_->functions)
    if (f.is_entry && f.has_body) describe(f.index);
  cache_.resize(kernels_.size());
}

// The function itself and everything that it may call. Through a pointer it may call any function
// whose address is taken somewhere.
std::vector<uint32_t> ProgramImpl::reachable(uint32_t function) const {
  std::vector<uint32_t> list{function};
  std::unordered_set<uint32_t> seen{function};
  bool all = false;
  auto add = [&](uint32_t i) {
    if (seen.insert(i).second) list.push_back(i);
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const Function& f = module_->functions[list[i]];
    for (uint32_t callee : f.functions_used) add(callee);
    for (const Operand& o : f.operands)  // a function that is defined after its use is still a name
      if (o.kind == Operand::Kind::kName)
        if (auto it = module_->function_index.find(o.name); it != module_->function_index.end())
          add(it->second);
    for (const Instruction& c : f.code) {
      if (all || c.opcode.substr(0, 4) != "call" || !module_->function_address_in_data) continue;
      bool indirect = false;
      for (uint32_t k = 0; k < c.count; ++k)
        indirect |= f.operands[c.first + k].kind == Operand::Kind::kReg;
      if (!indirect) continue;
      all = true;
      for (const Function& g : module_->functions)
        if (!g.is_entry && g.has_body) add(g.index);
    }
  }
  return list;
}

uint32_t ProgramImpl::place_shared(const std::vector<uint32_t>& functions, Offsets* offsets) const {
  uint64_t top = 0;
  std::vector<const Variable*> dynamic;
  for (uint32_t index : functions) {
    for (const Variable* v : module_->functions[index].shared_used) {
      if (v->bytes == 0 || v->is_extern) {
        dynamic.push_back(v);
        continue;
      }
      if (offsets->count(v)) continue;
      top = (top + v->align - 1) / v->align * v->align;
      (*offsets)[v] = static_cast<uint32_t>(top);
      top = std::min<uint64_t>(top + v->bytes, kMaxSharedBytes);
    }
  }
  for (const Variable* v : dynamic) (*offsets)[v] = static_cast<uint32_t>((top + 15) & ~15ull);
  return static_cast<uint32_t>(top);
}

void ProgramImpl::describe(uint32_t function) {
  const Function& f = module_->functions[function];
  KernelInfo k;
  k.name = std::string(f.name);
  for (const Variable* v : f.params) {
    k.params.push_back({v->offset, static_cast<uint32_t>(v->bytes), v->align});
    k.param_bytes = v->offset + static_cast<uint32_t>(v->bytes);
  }
  Offsets offsets;
  const std::vector<uint32_t> functions = reachable(function);
  k.static_shared_bytes = place_shared(functions, &offsets);
  for (uint32_t i : functions) {
    const Function& callee = module_->functions[i];
    k.uses_heap |= !callee.has_body && callee.name == "malloc";
    k.prints |= !callee.has_body && callee.name == "vprintf";
  }
  for (uint32_t i : functions)
    for (const Instruction& code : module_->functions[i].code)
      k.uses_images |= uses_image(code.opcode);
  k.local_bytes = f.local_bytes;
  // Hardware shares registers between values that are not alive together. So there are many more
  // virtual registers.
  uint32_t words = 0;
  for (const Register& r : f.registers)
    words += r.type == Type::kPred ? 0 : type_bytes(r.type) > 4 ? 2 : 1;
  k.registers = std::clamp(words / 2 + 8, 8u, 255u);
  k.max_threads_per_block = f.max_threads;
  k.line = f.line;
  kernels_.push_back(std::move(k));
  kernel_functions_.push_back(function);
}

const DecodedKernel& ProgramImpl::decoded(size_t kernel_index) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<DecodedKernel>& slot = cache_[kernel_index];
  if (slot) return *slot;
  slot = std::make_unique<DecodedKernel>();
  DecodedKernel& k = *slot;
  const uint32_t entry = kernel_functions_[kernel_index];
  std::vector<uint32_t> functions = reachable(entry);
  Offsets offsets;
  k.static_shared = place_shared(functions, &offsets);
  k.functions.resize(module_->functions.size());
  for (uint32_t index : functions) {
    const Function& f = module_->functions[index];
    if (!f.has_body || (f.is_entry && index != entry)) continue;
    auto d = std::make_unique<DecodedFunction>();
    d->index = index;
    Decoder decoder(*module_, f, k, *d, offsets);
    if (!decoder.decode()) {
      k.error = decoder.error() +
                (index == entry ? "" : ", needed by kernel '" + kernels_[kernel_index].name + "'");
      return k;
    }
    if (index == entry) k.entry = d.get();
    k.functions[index] = std::move(d);
  }
  return k;
}

std::string ProgramImpl::decode(size_t kernel_index) const {
  if (kernel_index >= kernels_.size()) return "no such kernel";
  return decoded(kernel_index).error;
}

std::unique_ptr<Program> parse_program(std::string_view text, std::string* log) {
  auto fail = [&](std::string why) {
    if (log) *log = std::move(why);
    return nullptr;
  };
  if (size_t nul = text.find('\0'); nul != std::string_view::npos) text = text.substr(0, nul);
  if (text.size() > kMaxTextBytes) return fail("line 1: the module is too large");
  auto module = std::make_unique<Module>();
  module->text.assign(text);
  Parser parser(*module);
  if (!parser.parse()) return fail(parser.error());
  return std::make_unique<ProgramImpl>(std::move(module));
}

}  // namespace tendril::softgpu
