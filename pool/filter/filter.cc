// SPDX-License-Identifier: Apache-2.0
// See filter.h. A text becomes words, words become a tree with bounded depth and size.
#include "pool/filter/filter.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "pool/filter/nearest.h"
#include "pool/filter/pattern.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

constexpr int kDepthMax = 32;
constexpr size_t kNodesMax = 256;

enum class Field : uint8_t {
  kModel,
  kServer,
  kLabel,
  kTransport,
  kMemory,
  kCompute,
  kDriver,
  kCuda,
  kType,
  kVendor,
  kOpencl,
  kExtension,
  kIndex,
  kTenants,
  kUser,
  kGroup,
  kRole,
  kHost,
};
enum class Kind : uint8_t { kText, kSize, kVersion, kNumber };

struct FieldName {
  const char* name;
  Field field;
  Kind kind;
  Filter::Subject subject;
};

constexpr FieldName kFields[] = {
    {"model", Field::kModel, Kind::kText, Filter::Subject::kGpu},
    {"memory", Field::kMemory, Kind::kSize, Filter::Subject::kGpu},
    {"compute_capability", Field::kCompute, Kind::kVersion, Filter::Subject::kGpu},
    {"driver", Field::kDriver, Kind::kVersion, Filter::Subject::kGpu},
    {"cuda", Field::kCuda, Kind::kVersion, Filter::Subject::kGpu},
    {"server", Field::kServer, Kind::kText, Filter::Subject::kGpu},
    {"label.NAME", Field::kLabel, Kind::kText, Filter::Subject::kGpu},
    {"transport", Field::kTransport, Kind::kText, Filter::Subject::kGpu},
    {"type", Field::kType, Kind::kText, Filter::Subject::kGpu},
    {"vendor", Field::kVendor, Kind::kText, Filter::Subject::kGpu},
    {"opencl", Field::kOpencl, Kind::kVersion, Filter::Subject::kGpu},
    {"extension", Field::kExtension, Kind::kText, Filter::Subject::kGpu},
    {"index", Field::kIndex, Kind::kNumber, Filter::Subject::kGpu},
    {"tenants", Field::kTenants, Kind::kNumber, Filter::Subject::kGpu},
    {"user", Field::kUser, Kind::kText, Filter::Subject::kUser},
    {"group", Field::kGroup, Kind::kText, Filter::Subject::kUser},
    {"role", Field::kRole, Kind::kText, Filter::Subject::kUser},
    {"host", Field::kHost, Kind::kText, Filter::Subject::kUser},
};

enum class Operator : uint8_t { kEqual, kUnequal, kLess, kLessEqual, kMore, kMoreEqual, kLike };

bool holds(Operator how, int order) {
  switch (how) {
    case Operator::kEqual:
      return order == 0;
    case Operator::kUnequal:
      return order != 0;
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kMore:
      return order > 0;
    case Operator::kMoreEqual:
      return order >= 0;
    case Operator::kLike:
      return false;
  }
  return false;
}

struct Node {
  enum class What : uint8_t { kConstant, kAnd, kOr, kNot, kCompare } what = What::kConstant;
  bool value = false;            // kConstant
  uint32_t left = 0, right = 0;  // kAnd, kOr; kNot: left
  Field field = Field::kModel;   // and below: kCompare
  Kind kind = Kind::kText;
  Operator how = Operator::kEqual;
  std::string name;  // of a label
  std::string text;
  uint64_t number = 0;
  Version version;
  Pattern pattern;
};

}  // namespace

class FilterTree {
 public:
  Filter::Subject subject = Filter::Subject::kGpu;
  std::vector<Node> nodes;
  uint32_t root = 0;

  template <typename Facts>
  bool holds_for(const Facts& facts, uint32_t number) const {
    const Node& node = nodes[number];
    switch (node.what) {
      case Node::What::kConstant:
        return node.value;
      case Node::What::kNot:
        return !holds_for(facts, node.left);
      case Node::What::kAnd:
        return holds_for(facts, node.left) && holds_for(facts, node.right);
      case Node::What::kOr:
        return holds_for(facts, node.left) || holds_for(facts, node.right);
      case Node::What::kCompare:
        return compare(node, facts);
    }
    return false;
  }

  // Whether it comes out as wanted for some load of the GPU.
  bool could_be(bool wanted, const GpuFacts& gpu, uint32_t number) const {
    const Node& node = nodes[number];
    switch (node.what) {
      case Node::What::kConstant:
        return node.value == wanted;
      case Node::What::kNot:
        return could_be(!wanted, gpu, node.left);
      case Node::What::kAnd:
      case Node::What::kOr: {
        const bool left = could_be(wanted, gpu, node.left);
        const bool right = could_be(wanted, gpu, node.right);
        return wanted == (node.what == Node::What::kAnd) ? left && right : left || right;
      }
      case Node::What::kCompare:
        return node.field == Field::kTenants || compare(node, gpu) == wanted;
    }
    return false;
  }

 private:
  static bool text_is(const Node& node, const std::string& text) {
    if (node.how == Operator::kLike) return node.pattern.found_in(text);
    return (text == node.text) == (node.how == Operator::kEqual);
  }
  // Any of them; with != none of them.
  static bool any_is(const Node& node, const std::vector<std::string>& texts) {
    if (node.how == Operator::kUnequal)
      return std::find(texts.begin(), texts.end(), node.text) == texts.end();
    return std::any_of(texts.begin(), texts.end(),
                       [&node](const std::string& text) { return text_is(node, text); });
  }
  static bool number_is(const Node& node, uint64_t number) {
    return holds(node.how, number < node.number ? -1 : number > node.number ? 1 : 0);
  }
  // As many parts as the filter names are compared: 550 and 550.90 are equal if it names 550.
  static bool version_is(const Node& node, const Version& version) {
    if (version.empty()) return false;
    const Version head(version.begin(),
                       version.begin() + static_cast<std::ptrdiff_t>(
                                             std::min(version.size(), node.version.size())));
    return holds(node.how, compare_versions(head, node.version));
  }

  static bool compare(const Node& node, const GpuFacts& gpu) {
    switch (node.field) {
      case Field::kModel:
        return text_is(node, gpu.model);
      case Field::kServer:
        return text_is(node, gpu.server);
      case Field::kLabel: {
        const auto label = gpu.labels.find(node.name);
        return text_is(node, label == gpu.labels.end() ? "" : label->second);
      }
      case Field::kTransport:
        return any_is(node, gpu.transports);
      case Field::kMemory:
        return gpu.memory_bytes != 0 && number_is(node, gpu.memory_bytes);
      case Field::kCompute:
        return version_is(node, gpu.compute_capability);
      case Field::kDriver:
        return version_is(node, gpu.driver);
      case Field::kCuda:
        return version_is(node, gpu.cuda);
      case Field::kType:
        return text_is(node, gpu.type);
      case Field::kVendor:
        return !gpu.vendor.empty() && text_is(node, gpu.vendor);
      case Field::kOpencl:
        return version_is(node, gpu.opencl);
      case Field::kExtension:
        return !gpu.extensions.empty() && any_is(node, gpu.extensions);
      case Field::kIndex:
        return number_is(node, gpu.index);
      case Field::kTenants:
        return gpu.tenants_known && number_is(node, gpu.tenants);
      default:
        return false;
    }
  }
  static bool compare(const Node& node, const UserFacts& who) {
    switch (node.field) {
      case Field::kUser:
        return text_is(node, who.user);
      case Field::kGroup:
        return any_is(node, who.groups);
      case Field::kRole:
        return text_is(node, who.role);
      case Field::kHost:
        return text_is(node, who.host);
      default:
        return false;
    }
  }
};

namespace {

struct Word {
  enum class What : uint8_t { kEnd, kName, kQuoted, kSign } what = What::kEnd;
  std::string text;
  size_t column = 1;
};

bool in_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '.' || letter == '-' ||
         letter == ':' || letter == '/' || letter == '@' || letter == '+' || letter == '%';
}

class Words {
 public:
  explicit Words(const std::string& text) : text_(text) {}

  // kInvalid: a quotation without end, or a sign that is none.
  Status next(Word* word) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
    *word = Word();
    word->column = at_ + 1;
    if (at_ >= text_.size()) return Status();
    const char first = text_[at_];
    if (first == '"' || first == '\'') return quoted(first, word);
    if (in_word(first)) {
      word->what = Word::What::kName;
      while (at_ < text_.size() && in_word(text_[at_])) word->text += text_[at_++];
      return Status();
    }
    word->what = Word::What::kSign;
    static constexpr const char* kSigns[] = {"==", "!=", "<=", ">=", "&&", "||", "=",
                                             "<",  ">",  "~",  "!",  "(",  ")"};
    for (const char* const sign : kSigns) {
      const std::string candidate(sign);
      if (text_.compare(at_, candidate.size(), candidate) != 0) continue;
      word->text = candidate;
      at_ += candidate.size();
      return Status();
    }
    return Status(Code::kInvalid,
                  base::format("column %zu: the sign '%s' means nothing here; put texts with such "
                               "signs in \"quotation marks\"",
                               at_ + 1, base::printable(text_.substr(at_, 1)).c_str()));
  }

 private:
  Status quoted(char mark, Word* word) {
    word->what = Word::What::kQuoted;
    for (++at_; at_ < text_.size() && text_[at_] != mark; ++at_) {
      // A backslash quotes the mark only, so that patterns keep theirs.
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == mark) ++at_;
      word->text += text_[at_];
    }
    if (at_ >= text_.size()) {
      return Status(
          Code::kInvalid,
          base::format("column %zu: expected a %c at the end of this text", word->column, mark));
    }
    ++at_;
    return Status();
  }

  const std::string& text_;
  size_t at_ = 0;
};

// "40G" is 40 * 10^9, as vendors count; "40Gi" is 40 * 2^30. False: no size.
bool read_filter_size(const std::string& text, uint64_t* bytes) {
  size_t at = 0;
  double amount = 0, scale = 1;
  bool digits = false, point = false;
  for (; at < text.size() && at < 24; ++at) {
    if (text[at] == '.' && !point) {
      point = true;
    } else if (text[at] >= '0' && text[at] <= '9') {
      digits = true;
      amount = amount * 10 + (text[at] - '0');
      if (point) scale *= 10;
    } else {
      break;
    }
  }
  if (!digits) return false;
  std::string unit = text.substr(at);
  for (char& letter : unit) letter = letter >= 'A' && letter <= 'Z' ? letter + 32 : letter;
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  const double step = binary ? 1024 : 1000;
  double factor = 1;
  static const std::string kUnits = "kmgt";
  const size_t power = unit.empty() ? std::string::npos : kUnits.find(unit[0]);
  const bool plain_bytes = unit == "b" || (unit.empty() && amount == 0);
  if (!plain_bytes && (power == std::string::npos || unit.size() > (binary ? 2u : 1u)))
    return false;
  for (size_t i = 0; !plain_bytes && i <= power; ++i) factor *= step;
  const double total = amount / scale * factor;
  if (total > 1e18) return false;
  *bytes = static_cast<uint64_t>(total);
  return true;
}

class FilterReader {
 public:
  FilterReader(const std::string& text, Filter::Subject subject) : words_(text) {
    tree_.subject = subject;
  }

  base::Result<FilterTree> read() {
    advance();
    tree_.root = any(0);
    if (status_.ok() && word_.what != Word::What::kEnd) fail("'and', 'or' or the end");
    if (!status_.ok()) return status_;
    return std::move(tree_);
  }

 private:
  void advance() {
    if (status_.ok()) status_ = words_.next(&word_);
  }
  void fail(const std::string& expected) {
    if (!status_.ok()) return;
    const std::string found =
        word_.what == Word::What::kEnd ? "the end" : "'" + base::printable(word_.text, 64) + "'";
    status_ = Status(Code::kInvalid, base::format("column %zu: expected %s, found %s", word_.column,
                                                  expected.c_str(), found.c_str()));
  }
  void wrong(size_t column, const std::string& why) {
    if (status_.ok())
      status_ = Status(Code::kInvalid, base::format("column %zu: %s", column, why.c_str()));
  }
  uint32_t add(Node node) {
    if (tree_.nodes.size() >= kNodesMax) {
      wrong(word_.column, "a filter has at most 256 parts");
      return 0;
    }
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  // The word here is this one: a sign, or a name that is not in quotation marks.
  bool is(const char* name, const char* sign = "") const {
    return (word_.what == Word::What::kName && word_.text == name) ||
           (word_.what == Word::What::kSign && word_.text == sign);
  }

  uint32_t pair(Node::What what, uint32_t left, uint32_t right) {
    Node node;
    node.what = what;
    node.left = left;
    node.right = right;
    return add(std::move(node));
  }
  uint32_t any(int depth) {
    uint32_t left = all(depth);
    while (status_.ok() && is("or", "||")) {
      advance();
      const uint32_t right = all(depth);
      left = pair(Node::What::kOr, left, right);
    }
    return left;
  }
  uint32_t all(int depth) {
    uint32_t left = one(depth);
    while (status_.ok() && is("and", "&&")) {
      advance();
      const uint32_t right = one(depth);
      left = pair(Node::What::kAnd, left, right);
    }
    return left;
  }
  uint32_t one(int depth) {
    if (depth >= kDepthMax) {
      wrong(word_.column, "at most 32 parentheses and 'not' inside each other");
      return 0;
    }
    if (is("not", "!")) {
      advance();
      return pair(Node::What::kNot, one(depth + 1), 0);
    }
    if (is("", "(") && word_.what == Word::What::kSign) {
      advance();
      const uint32_t inner = any(depth + 1);
      if (status_.ok() && !is("", ")")) fail("'and', 'or' or ')'");
      advance();
      return inner;
    }
    if (is("true") || is("false")) {
      Node node;
      node.value = is("true");
      advance();
      return add(std::move(node));
    }
    return comparison();
  }

  // The name of a fact; null after an error.
  const FieldName* field() {
    if (word_.what != Word::What::kName) {
      fail("the name of a fact, 'not' or '('");
      return nullptr;
    }
    const bool label = word_.text.rfind("label.", 0) == 0 && word_.text.size() > 6;
    std::vector<std::string> names;
    for (const FieldName& candidate : kFields) {
      if (candidate.subject != tree_.subject) continue;
      names.emplace_back(candidate.name);
      if (label ? candidate.field == Field::kLabel : word_.text == candidate.name)
        return &candidate;
    }
    wrong(word_.column, "'" + base::printable(word_.text, 64) + "' is no fact of a " +
                            (tree_.subject == Filter::Subject::kGpu ? "GPU" : "user") +
                            "; the facts are " + joined(names) + did_you_mean(word_.text, names));
    return nullptr;
  }

  bool operation(Operator* how) {
    struct Sign {
      const char* text;
      Operator how;
    };
    static constexpr Sign kSigns[] = {{"=", Operator::kEqual},      {"==", Operator::kEqual},
                                      {"!=", Operator::kUnequal},   {"<", Operator::kLess},
                                      {"<=", Operator::kLessEqual}, {">", Operator::kMore},
                                      {">=", Operator::kMoreEqual}, {"~", Operator::kLike}};
    if (word_.what == Word::What::kSign) {
      for (const Sign& sign : kSigns) {
        if (word_.text != sign.text) continue;
        *how = sign.how;
        return true;
      }
    }
    fail("one of = != < <= > >= ~");
    return false;
  }

  uint32_t comparison() {
    const FieldName* const fact = field();
    if (fact == nullptr) return 0;
    Node node;
    node.what = Node::What::kCompare;
    node.field = fact->field;
    node.kind = fact->kind;
    if (fact->field == Field::kLabel) node.name = word_.text.substr(6);
    advance();
    if (!status_.ok() || !operation(&node.how)) return 0;
    const bool ordered = node.how != Operator::kEqual && node.how != Operator::kUnequal;
    if (node.kind == Kind::kText && ordered && node.how != Operator::kLike)
      fail(std::string("=, != or ~, because ") + fact->name + " is a text");
    if (node.kind != Kind::kText && node.how == Operator::kLike)
      fail(std::string("=, !=, <, <=, > or >=, because ") + fact->name + " is no text");
    advance();
    if (!status_.ok()) return 0;
    value(&node);
    advance();
    return add(std::move(node));
  }

  void value(Node* node) {
    if (word_.what != Word::What::kName && word_.what != Word::What::kQuoted)
      return fail("a value");
    const std::string& text = word_.text;
    if (node->kind == Kind::kText) {
      node->text = text;
      if (node->how != Operator::kLike) return;
      base::Result<Pattern> pattern = Pattern::parse(text);
      if (!pattern.ok()) return wrong(word_.column, pattern.status().message());
      node->pattern = pattern.take();
    } else if (node->kind == Kind::kSize) {
      if (!read_filter_size(text, &node->number)) fail("a size with its unit, as in 40G or 512M");
    } else if (node->kind == Kind::kVersion) {
      node->version = version_of(text);
      const bool clean = text.find_first_not_of("0123456789.") == std::string::npos &&
                         !text.empty() && text.back() != '.' &&
                         text.find("..") == std::string::npos;
      if (node->version.empty() || !clean ||
          static_cast<size_t>(std::count(text.begin(), text.end(), '.')) + 1 !=
              node->version.size())
        fail("a version, as in 9.0 or 550.90.07");
    } else {
      const bool clean = !text.empty() && text.size() <= 9 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
      if (!clean) return fail("a whole number");
      for (const char digit : text)
        node->number = node->number * 10 + static_cast<uint64_t>(digit - '0');
    }
  }

  Words words_;
  Word word_;
  Status status_;
  FilterTree tree_;
};

}  // namespace

base::Result<Filter> Filter::parse(const std::string& text, Subject subject) {
  if (text.size() > kFilterBytesMax)
    return Status(Code::kInvalid, "column 4097: a filter has at most 4096 signs");
  Filter filter;
  filter.text_ = text;
  if (text.find_first_not_of(" \t\n") == std::string::npos) return filter;
  base::Result<FilterTree> tree = FilterReader(text, subject).read();
  if (!tree.ok()) return tree.status();
  filter.tree_ = std::make_shared<const FilterTree>(tree.take());
  const Node& root = filter.tree_->nodes[filter.tree_->root];
  if (root.what == Node::What::kConstant && root.value) filter.tree_ = nullptr;
  return filter;
}

bool Filter::matches(const GpuFacts& facts) const {
  if (tree_ == nullptr) return true;
  return tree_->subject == Subject::kGpu && tree_->holds_for(facts, tree_->root);
}

bool Filter::could_match(const GpuFacts& facts) const {
  if (tree_ == nullptr) return true;
  return tree_->subject == Subject::kGpu && tree_->could_be(true, facts, tree_->root);
}

bool Filter::matches(const UserFacts& facts) const {
  if (tree_ == nullptr) return true;
  return tree_->subject == Subject::kUser && tree_->holds_for(facts, tree_->root);
}

bool Filter::looks_at_load() const {
  if (tree_ == nullptr) return false;
  return std::any_of(tree_->nodes.begin(), tree_->nodes.end(), [](const Node& node) {
    return node.what == Node::What::kCompare && node.field == Field::kTenants;
  });
}

}  // namespace tendril::pool
