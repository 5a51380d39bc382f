// SPDX-License-Identifier: Apache-2.0
// The functions that a kernel may call without defining them: vprintf, __assertfail, malloc, free,
// and of the device runtime cudaGraphSetConditional and cudaGraphLaunch. Arguments are read where
// the call instruction left them. Nothing here trusts a pointer or a format.
#include <cstdio>
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kMaxText = 4096;  // of one format or one %s, and of one line printed

uint64_t argument(const Op& op, Warp& w, uint32_t index, int lane) {
  if (index >= op.list[0]) return 0;
  const uint32_t* item = op.list + 1 + 3 * index;
  const DecodedFunction& f = *w.frame->function;
  const uint8_t* p =
      item[0] ? w.regs + item[1] + static_cast<size_t>(lane) * item[2]
              : w.regs + f.param_base + static_cast<size_t>(lane) * f.param_stride + item[1];
  uint64_t v = 0;
  std::memcpy(&v, p, item[2] < 8 ? item[2] : 8);
  return v;
}

// Where lane i's result goes; null if the call ignores it.
uint8_t* result_place(const Op& op, Warp& w, int lane, uint32_t* bytes) {
  const uint32_t* item = op.list + 1 + 3 * op.list[0];
  if (!item[0]) return nullptr;
  ++item;
  *bytes = item[2] < 8 ? item[2] : 8;
  const DecodedFunction& f = *w.frame->function;
  return item[0] ? w.regs + item[1] + static_cast<size_t>(lane) * item[2]
                 : w.regs + f.param_base + static_cast<size_t>(lane) * f.param_stride + item[1];
}

template <class F>
void give_back(const Op& op, Warp& w, uint32_t m, F value_of) {
  each_active(m, [&](int i) {
    const uint64_t value = value_of(i);
    uint32_t bytes = 0;
    if (uint8_t* p = result_place(op, w, i, &bytes)) std::memcpy(p, &value, bytes);
  });
}

bool read_bytes(Warp& w, uint64_t address, void* out, uint32_t n, int lane) {
  bool global = false;
  const uint8_t* p = translate(w, MemSpace::kGeneric, address, n, lane, &global);
  if (p) std::memcpy(out, p, n);
  return p;
}

std::string read_text(Warp& w, uint64_t address, int lane) {
  std::string s;
  char c = 0;
  while (s.size() < kMaxText && read_bytes(w, address + s.size(), &c, 1, lane) && c) s += c;
  return s;
}

// Walks the packed argument buffer of vprintf. Every value lies at its natural alignment.
struct Arguments {
  Warp& w;
  uint64_t at;
  int lane;
  uint64_t take(uint32_t n) {
    uint64_t v = 0;
    at = (at + n - 1) & ~static_cast<uint64_t>(n - 1);
    read_bytes(w, at, &v, n, lane);
    at += n;
    return v;
  }
};

// One conversion. `spec` is the text from % to the last flag, without length and conversion letter.
void convert(std::string& out, const std::string& spec, bool wide, char c, Arguments& a) {
  char buffer[512];
  int n = 0;
  switch (c) {
    case 'd':
    case 'i': {
      long long v = wide ? static_cast<long long>(a.take(8)) : static_cast<int32_t>(a.take(4));
      n = std::snprintf(buffer, sizeof buffer, (spec + "ll" + c).c_str(), v);
      break;
    }
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      n = std::snprintf(buffer, sizeof buffer, (spec + "ll" + c).c_str(),
                        static_cast<unsigned long long>(wide ? a.take(8) : a.take(4)));
      break;
    case 'c':
      n = std::snprintf(buffer, sizeof buffer, (spec + c).c_str(), static_cast<int>(a.take(4)));
      break;
    case 'p':
      n = std::snprintf(buffer, sizeof buffer, (spec + c).c_str(),
                        reinterpret_cast<void*>(a.take(8)));
      break;
    case 's': {
      uint64_t address = a.take(8);
      out += address ? read_text(a.w, address, a.lane) : "(null)";
      return;
    }
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      n = std::snprintf(buffer, sizeof buffer, (spec + c).c_str(), bit_cast_to<double>(a.take(8)));
      break;
    default:
      out += spec + c;
      return;
  }
  if (n > 0) out.append(buffer, std::min<size_t>(static_cast<size_t>(n), sizeof buffer - 1));
}

std::string format_text(const std::string& f, Arguments a) {
  std::string out;
  for (size_t i = 0; i < f.size() && out.size() < kMaxText; ++i) {
    if (f[i] != '%') {
      out += f[i];
      continue;
    }
    if (i + 1 < f.size() && f[i + 1] == '%') {
      out += '%', ++i;
      continue;
    }
    std::string spec = "%";
    bool wide = false;
    size_t k = i + 1;
    for (; k < f.size() && spec.size() < 24; ++k) {
      if (f[k] == '*')
        spec += std::to_string(static_cast<int32_t>(a.take(4)) % 256);
      else if (std::strchr("+-# 0123456789.", f[k]))
        spec += f[k];
      else
        break;
    }
    for (; k < f.size() && std::strchr("hlLqjzt", f[k]); ++k) wide |= f[k] != 'h';
    // Wider fields would print nonsense, so three digits are the limit. Nothing would overflow.
    if (k < f.size()) convert(out, spec, wide, f[k], a);
    i = k;
  }
  return out;
}

void print(Warp& w, const std::string& text) {
  LaunchState& l = *w.block->launch;
  if (!l.request->print) return;
  std::lock_guard<std::mutex> lock(l.mutex);
  l.request->print(text);
}

}  // namespace

Event run_printf(const Op& op, Warp& w, uint32_t m) {
  each_active(m, [&](int i) {
    std::string f = read_text(w, argument(op, w, 0, i), i);
    print(w, format_text(f, Arguments{w, argument(op, w, 1, i), i}));
  });
  give_back(op, w, m, [](int) { return 1; });
  return Event::kNext;
}

Event run_assertfail(const Op& op, Warp& w, uint32_t m) {
  const Block& b = *w.block;
  each_active(m, [&](int i) {
    std::string text = read_text(w, argument(op, w, 1, i), i) + ":" +
                       std::to_string(static_cast<uint32_t>(argument(op, w, 2, i))) + ": " +
                       read_text(w, argument(op, w, 3, i), i) + ": block: [" +
                       std::to_string(b.ctaid[0]) + "," + std::to_string(b.ctaid[1]) + "," +
                       std::to_string(b.ctaid[2]) + "], thread: [" + std::to_string(w.tid[0][i]) +
                       "," + std::to_string(w.tid[1][i]) + "," + std::to_string(w.tid[2][i]) +
                       "] Assertion `" + read_text(w, argument(op, w, 0, i), i) + "` failed.\n";
    print(w, text);
  });
  return raise(w, Fault::kAssert, "assertion failed");
}

Event run_malloc(const Op& op, Warp& w, uint32_t m) {
  DeviceHeap* heap = w.block->launch->request->heap;
  give_back(op, w, m, [&](int i) { return heap ? heap->allocate(argument(op, w, 0, i)) : 0; });
  return Event::kNext;
}

// Freeing what was never allocated is an error of the program. Hardware reports a trap.
Event run_free(const Op& op, Warp& w, uint32_t m) {
  DeviceHeap* heap = w.block->launch->request->heap;
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint64_t address = argument(op, w, 0, lane);
    if (address && !(heap && heap->release(address)))
      return raise(w, Fault::kTrap, "free of an address that malloc did not give", address, lane);
  }
  return Event::kNext;
}

Event run_set_conditional(const Op& op, Warp& w, uint32_t m) {
  const auto set = w.block->launch->request->set_condition;
  each_active(m, [&](int i) {
    if (set != nullptr) set(argument(op, w, 0, i), static_cast<uint32_t>(argument(op, w, 1, i)));
  });
  return Event::kNext;
}

// Hardware follows the handle, which is an address there.
Event run_graph_launch(const Op& op, Warp& w, uint32_t m) {
  constexpr int kNotPermitted = 800;  // cudaErrorNotPermitted: the kernel is in no graph
  const auto& launch = w.block->launch->request->launch_graph;
  int results[32] = {};
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint64_t graph = argument(op, w, 0, lane);
    results[lane] = launch ? launch(graph, argument(op, w, 1, lane)) : kNotPermitted;
    if (results[lane] < 0)
      return raise(w, Fault::kIllegalAddress, "launch of what is no graph for kernels to launch",
                   graph, lane);
  }
  give_back(op, w, m, [&](int i) { return results[i]; });
  return Event::kNext;
}

}  // namespace tendril::softgpu
