// SPDX-License-Identifier: Apache-2.0
// See usage.h.
#include "cli/words/usage.h"

#include <algorithm>

#include "base/text.h"

namespace tendril::cli {
namespace {

constexpr size_t kWordMax = 64;  // longer words are no typing errors

// Insertions, deletions, substitutions and exchanges of neighbours (restricted
// Damerau-Levenshtein).
size_t changes_between(const std::string& one, const std::string& other) {
  std::vector<std::vector<size_t>> cost(one.size() + 1, std::vector<size_t>(other.size() + 1));
  for (size_t i = 0; i <= one.size(); ++i) {
    for (size_t j = 0; j <= other.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t differs = one[i - 1] == other[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + differs});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[one.size()][other.size()];
}

size_t changes_allowed(const std::string& word) {
  const size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  return letters <= 4 ? 1 : letters <= 8 ? 2 : 3;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kWordMax) return "";
  std::string best;
  size_t best_changes = changes_allowed(word) + 1;
  for (const std::string& candidate : known) {
    const bool begins = word.size() > 2 && candidate.compare(0, word.size(), word) == 0;
    const size_t changes = begins ? 0 : changes_between(word, candidate);
    if (changes >= best_changes) continue;
    best_changes = changes;
    best = candidate;
  }
  return best;
}

std::string unknown_word(const KnownCommand& command, const std::string& word) {
  // `--part=0.5`: the value is not what was mistyped.
  const std::string name = word.substr(0, word.find('='));
  const bool option = !word.empty() && word[0] == '-';
  std::string text;
  if (option) {
    text = "unknown option '" + base::printable(name, kWordMax) + "' of '" + command.name + "'";
  } else if (!command.commands.empty()) {
    text = "unknown command '" + base::printable(command.name + " " + name, kWordMax) + "'";
  } else {
    text = "'" + command.name + "' takes no further argument, and here is '" +
           base::printable(name, kWordMax) + "'";
  }
  const std::string meant = nearest(name, option ? command.options : command.commands);
  if (!meant.empty()) return text + "; did you mean '" + meant + "'?";
  return text + "; '" + command.name + " --help' lists what there is";
}

}  // namespace tendril::cli
