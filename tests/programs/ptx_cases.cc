// SPDX-License-Identifier: Apache-2.0
// Runs a file of PTX cases (written by tests/ptx/table.py or tests/ptx/fuzz.py) on device 0 and
// compares every row with the expected values. A case without expected values prints a checksum,
// for comparison with another device. Arguments: the file, and optionally a word that a case's name
// must contain. On a real GPU the answer of the hardware is the right one.
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "tests/programs/case_image.h"
#include "tests/programs/program.h"

namespace {

constexpr int kShownPerCase = 3;

// What one result must be: a pattern, any NaN, anything, or a float between two others.
struct Want {
  enum Kind { kExact, kNan, kAny, kRange } kind = kExact;
  uint64_t low = 0, high = 0;
};

struct Case {
  std::string name;
  unsigned inputs = 0, outputs = 0, block = 0, float_bits = 0, rows = 0;
  std::vector<unsigned> widths;
  std::vector<uint64_t> in;
  std::vector<Want> want;  // rows x outputs, or empty
  CaseImage image;         // the texture or surface it works on, if any
};

struct Tally {
  uint64_t cases = 0, rows = 0, wrong_cases = 0, wrong_rows = 0, unsupported = 0, without_model = 0;
};

// Exponent bits of a float of the case's width; 17 stands for bf16.
unsigned exponent_bits(unsigned float_bits) {
  return float_bits == 64 ? 11 : float_bits == 16 ? 5 : 8;
}
unsigned storage_bits(unsigned float_bits) { return float_bits == 17 ? 16 : float_bits; }

bool is_nan(uint64_t v, unsigned float_bits) {
  const unsigned bits = storage_bits(float_bits), mantissa = bits - 1 - exponent_bits(float_bits);
  const uint64_t infinity = ((1ull << exponent_bits(float_bits)) - 1) << mantissa;
  return (v & ((1ull << (bits - 1)) - 1)) > infinity;
}

// Maps sign and magnitude to a number that orders like the float.
int64_t order(uint64_t v, unsigned float_bits) {
  const uint64_t sign = 1ull << (storage_bits(float_bits) - 1);
  const int64_t magnitude = static_cast<int64_t>(v & (sign - 1));
  return v & sign ? -magnitude : magnitude;
}

bool fits(const Want& w, uint64_t got, unsigned float_bits) {
  switch (w.kind) {
    case Want::kAny:
      return true;
    case Want::kNan:
      return is_nan(got, float_bits);
    case Want::kRange:
      return !is_nan(got, float_bits) && order(got, float_bits) >= order(w.low, float_bits) &&
             order(got, float_bits) <= order(w.high, float_bits);
    default:
      return got == w.low;
  }
}

Want parse_want(const std::string& token) {
  Want w;
  if (token == "nan") {
    w.kind = Want::kNan;
  } else if (token == "-") {
    w.kind = Want::kAny;
  } else {
    char* end = nullptr;
    w.low = w.high = std::strtoull(token.c_str(), &end, 16);
    if (*end == ':') {
      w.kind = Want::kRange;
      w.high = std::strtoull(end + 1, nullptr, 16);
    }
  }
  return w;
}

// Reads the rows. The header line is read already.
bool read_case(std::istringstream& header, std::istream& file, Case* c) {
  header >> c->name >> c->inputs >> c->outputs >> c->block >> c->float_bits >> c->rows;
  if (!header || !c->rows || c->rows > 1u << 24 || !c->outputs || c->outputs > 64 || c->inputs > 64)
    return false;
  c->widths.resize(c->outputs);
  for (unsigned& w : c->widths) header >> w;
  std::string line, token;
  for (unsigned i = 0; i < c->rows; i++) {
    if (!std::getline(file, line)) return false;
    std::istringstream row(line);
    for (unsigned k = 0; k < c->inputs && row >> token; k++)
      c->in.push_back(std::strtoull(token.c_str(), nullptr, 16));
    row >> token;  // "="
    while (row >> token) c->want.push_back(parse_want(token));
  }
  return static_cast<bool>(header) && c->in.size() == static_cast<size_t>(c->rows) * c->inputs &&
         (c->want.empty() || c->want.size() == static_cast<size_t>(c->rows) * c->outputs);
}

void show_mismatch(const Case& c, unsigned row, unsigned column, uint64_t got) {
  const Want& w = c.want[static_cast<size_t>(row) * c.outputs + column];
  std::printf("  %s row %u:", c.name.c_str(), row);
  for (unsigned k = 0; k < c.inputs; k++)
    std::printf(" %llx",
                static_cast<unsigned long long>(c.in[static_cast<size_t>(row) * c.inputs + k]));
  std::printf(" -> result %u is %llx, expected ", column, static_cast<unsigned long long>(got));
  if (w.kind == Want::kNan)
    std::printf("a NaN\n");
  else if (w.kind == Want::kRange)
    std::printf("%llx to %llx\n", static_cast<unsigned long long>(w.low),
                static_cast<unsigned long long>(w.high));
  else
    std::printf("%llx\n", static_cast<unsigned long long>(w.low));
}

void compare(const Case& c, const std::vector<uint64_t>& out, Tally* tally) {
  uint64_t wrong = 0;
  for (unsigned row = 0; row < c.rows; row++) {
    bool good = true;
    for (unsigned k = 0; k < c.outputs; k++) {
      const size_t at = static_cast<size_t>(row) * c.outputs + k;
      const uint64_t mask = c.widths[k] < 64 ? (1ull << c.widths[k]) - 1 : ~0ull;
      if (fits(c.want[at], out[at] & mask, c.float_bits)) continue;
      if (wrong < kShownPerCase && good) show_mismatch(c, row, k, out[at] & mask);
      good = false;
    }
    wrong += !good;
  }
  if (wrong > kShownPerCase)
    std::printf("  %s: %llu of %u rows differ\n", c.name.c_str(),
                static_cast<unsigned long long>(wrong), c.rows);
  tally->wrong_rows += wrong;
  tally->wrong_cases += wrong != 0;
}

CUresult run_kernel(CUfunction function, Case& c, std::vector<uint64_t>* out) {
  const CUdeviceptr in = program::upload(c.in.empty() ? std::vector<uint64_t>{0} : c.in);
  out->assign(static_cast<size_t>(c.rows) * c.outputs, 0);
  const CUdeviceptr results = program::upload(*out);
  const unsigned grid = (c.rows + c.block - 1) / c.block;
  unsigned long long image = 0;
  CUresult result = c.image.create(&image);
  if (result == CUDA_SUCCESS)
    result = program::launch(function, grid, c.block, nullptr, results, in, c.rows, image);
  if (result == CUDA_SUCCESS) result = cuMemcpyDtoH(out->data(), results, out->size() * 8);
  if (result == CUDA_SUCCESS) result = cuMemFree(in);
  if (result == CUDA_SUCCESS) result = c.image.destroy();
  return result == CUDA_SUCCESS ? cuMemFree(results) : result;
}

// A case that ends in a sticky fault costs the context. The next case gets a new one.
void reset(CUmodule* module, const std::string& ptx) {
  CUdevice device;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxReset_v2(device));
  program::use_device(0);
  CHECK(cuModuleLoadData(module, ptx.c_str()));
}

void run_case(CUmodule* module, const std::string& ptx, Case& c, Tally* tally) {
  CUfunction function = nullptr;
  std::vector<uint64_t> out;
  CUresult result =
      *module ? cuModuleGetFunction(&function, *module, c.name.c_str()) : CUDA_ERROR_INVALID_PTX;
  if (result == CUDA_SUCCESS) {
    result = run_kernel(function, c, &out);
    if (result != CUDA_SUCCESS) reset(module, ptx);
  }
  tally->cases++, tally->rows += c.rows;
  if (result != CUDA_SUCCESS) {
    const char* name = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown code";
    std::printf("  %s: cannot run: %s\n", c.name.c_str(), name);
    tally->unsupported++;
  } else if (c.want.empty()) {
    std::printf("%s %016llx\n", c.name.c_str(),
                static_cast<unsigned long long>(program::checksum(out)));
    tally->without_model++;
  } else {
    compare(c, out, tally);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) program::fail("usage: ptx_cases FILE [WORD]");
  std::ifstream file(argv[1]);
  if (!file) program::fail("ptx_cases: the file cannot be read");
  const std::string word = argc > 2 ? argv[2] : "";
  program::use_device(0);
  Tally tally;
  CUmodule module = nullptr;
  std::string line, ptx, kind;
  CaseImage image;
  while (std::getline(file, line)) {
    std::istringstream header(line);
    header >> kind;
    if (kind == "module") {
      if (module) CHECK(cuModuleUnload(module));
      module = nullptr, ptx.clear();
      while (std::getline(file, line) && line != "end") ptx += line + "\n";
      if (cuModuleLoadData(&module, ptx.c_str()) != CUDA_SUCCESS)
        std::printf("  a module is not accepted\n"), module = nullptr;
    } else if (kind == "image") {  // for the case that follows
      if (!image.read(header)) program::fail("ptx_cases: the file is damaged");
    } else if (kind == "case") {
      Case c;
      c.image = std::exchange(image, {});
      if (!read_case(header, file, &c)) program::fail("ptx_cases: the file is damaged");
      if (c.name.find(word) != std::string::npos) run_case(&module, ptx, c, &tally);
    }
  }
  std::printf(
      "ptx_cases: %llu cases, %llu rows; wrong: %llu cases, %llu rows; cannot run: %llu; not "
      "compared: %llu\n",
      static_cast<unsigned long long>(tally.cases), static_cast<unsigned long long>(tally.rows),
      static_cast<unsigned long long>(tally.wrong_cases),
      static_cast<unsigned long long>(tally.wrong_rows),
      static_cast<unsigned long long>(tally.unsupported),
      static_cast<unsigned long long>(tally.without_model));
  return program::finish(tally.cases && !tally.wrong_cases && !tally.unsupported);
}
