// SPDX-License-Identifier: Apache-2.0
// See includes.h. What stands in comments or in parts that are left out is found, too, and does no
// harm.
#include "client/opencl/includes.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "api/opencl/include_limits.h"
#include "config/text.h"

namespace tendril::client::opencl {
namespace {

bool is_blank(char letter) { return strchr(" \t\r\n", letter) != nullptr; }

// Without "." and "..". `path` begins at the root.
std::string tidied(const std::string& path) {
  std::vector<std::string> names;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    if (name == ".." && !names.empty()) names.pop_back();
    if (!name.empty() && name != "." && name != "..") names.push_back(name);
    at = end + 1;
  }
  std::string whole;
  for (const std::string& name : names) whole += "/" + name;
  return whole;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string working_folder() {
  std::string folder(4096, 0);
  return getcwd(folder.data(), folder.size()) != nullptr ? folder.c_str() : std::string();
}

// A folder that options name: where its path stands in them, and what it is.
struct Folder {
  size_t at, bytes;
  std::string path;
};
std::vector<Folder> folders_in(const std::string& options, const std::string& working) {
  std::vector<Folder> folders;
  bool is_next = false;  // the option was "-I", and its path is the next word
  for (size_t at = 0; at < options.size();) {
    if (is_blank(options[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    for (char quote = 0; end < options.size() && (quote != 0 || !is_blank(options[end])); ++end)
      if (options[end] == '"' || options[end] == '\'')
        quote = quote == 0 ? options[end] : quote == options[end] ? 0 : quote;
    size_t from = at;
    const bool names = options.compare(at, 2, "-I") == 0;
    if (names) from += 2;
    if ((names && from != end) || is_next) {
      size_t to = end;
      const auto is_quote = [&](size_t i) { return options[i] == '"' || options[i] == '\''; };
      while (from < to && is_quote(from)) ++from;
      while (from < to && is_quote(to - 1)) --to;
      const std::string path = options.substr(from, to - from);
      folders.push_back({from, to - from, tidied(path[0] == '/' ? path : working + "/" + path)});
    }
    is_next = names && at + 2 == end;
    at = end;
  }
  return folders;
}

// What a line includes. `bytes` 0: nothing that can be followed.
struct Name {
  size_t at = 0, bytes = 0;
  bool is_quoted = false;
};
Name name_in(const std::string& line) {
  constexpr char kWord[] = "include";
  size_t at = 0;
  const auto skip = [&] {
    while (at < line.size() && is_blank(line[at])) ++at;
  };
  skip();
  if (at == line.size() || line[at++] != '#') return {};
  skip();
  if (line.compare(at, strlen(kWord), kWord) != 0) return {};
  at += strlen(kWord);
  skip();
  if (at == line.size() || (line[at] != '"' && line[at] != '<')) return {};
  const bool is_quoted = line[at] == '"';
  const size_t end = line.find(is_quoted ? '"' : '>', ++at);
  if (end == std::string::npos) return {};
  return {at, end - at, is_quoted};
}

template <typename Use>
void each_line(const std::string& text, Use use) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    use(at, text.substr(at, end - at));
    at = end + 1;
  }
}

class Search {
 public:
  Search(const std::vector<Folder>& folders, std::string working, Includes* found)
      : folders_(folders), working_(std::move(working)), found_(*found) {}

  // `folder`: where the text lies. Empty: it is a program's source, and a compiler looks into the
  // folder that the program works in.
  void read(const std::string& text, const std::string& folder) {
    each_line(text, [&](size_t, const std::string& line) { read_line(line, folder); });
  }
  bool needs_working_folder() const { return needs_working_folder_; }
  bool needs_root() const { return needs_root_; }

 private:
  void read_line(const std::string& line, const std::string& folder) {
    const Name name = name_in(line);
    if (name.bytes != 0) find(line.substr(name.at, name.bytes), name.is_quoted, folder);
  }

  void find(const std::string& name, bool is_quoted, const std::string& folder) {
    if (name[0] == '/') {
      needs_root_ = add(name) || needs_root_;
      return;
    }
    if (is_quoted && add((folder.empty() ? working_ : folder) + "/" + name)) {
      needs_working_folder_ = needs_working_folder_ || folder.empty();
      return;
    }
    for (const Folder& each : folders_)
      if (add(each.path + "/" + name)) return;
  }

  // False: no such file.
  bool add(const std::string& where) {
    using namespace api::opencl;  // NOLINT: limits only
    const std::string path = tidied(where);
    if (seen_.count(path) != 0) return true;
    if (depth_ == kDepthMax || found_.lengths.size() >= kIncludedFilesMax) return false;
    base::Result<std::string> text = config::read_file(path, kIncludedBytesMax);
    if (!text.ok() || found_.content.size() + text->size() > kIncludedBytesMax ||
        found_.paths.size() + path.size() + 1 > kIncludedPathBytesMax)
      return false;
    seen_.insert(path);
    found_.paths.append(path) += '\0';
    const std::string sent = without_roots(*text);
    found_.content += sent;
    found_.lengths.push_back(sent.size());
    ++depth_;
    read(*text, folder_of(path));
    --depth_;
    return true;
  }

  static constexpr int kDepthMax = 200;  // as compilers have

  const std::vector<Folder>& folders_;
  const std::string working_;
  Includes& found_;
  std::set<std::string> seen_;
  bool needs_working_folder_ = false, needs_root_ = false;
  int depth_ = 0;
};

}  // namespace

std::string without_roots(const std::string& source) {
  std::string text;
  size_t sent = 0;
  each_line(source, [&](size_t at, const std::string& line) {
    const Name name = name_in(line);
    size_t roots = 0;
    while (roots < name.bytes && line[name.at + roots] == '/') ++roots;
    if (roots == 0) return;
    text += source.substr(sent, at + name.at - sent);
    sent = at + name.at + roots;
  });
  return text + source.substr(sent);
}

Includes find_includes(const std::vector<const std::string*>& sources, const char* options) {
  Includes found;
  const std::string working = working_folder();
  const std::vector<Folder> folders = folders_in(options, working);
  Search search(folders, working, &found);
  for (const std::string* source : sources) search.read(*source, "");
  size_t at = 0;
  const std::string given = options;
  if (search.needs_root()) found.options = std::string("-I ") + api::opencl::kServersFolder + "/ ";
  if (search.needs_working_folder())
    found.options += std::string("-I ") + api::opencl::kServersFolder + working + " ";
  for (const Folder& folder : folders) {
    found.options += given.substr(at, folder.at - at);
    found.options += api::opencl::kServersFolder + folder.path;
    at = folder.at + folder.bytes;
  }
  found.options += given.substr(at);
  return found;
}

}  // namespace tendril::client::opencl
