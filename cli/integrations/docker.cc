// SPDX-License-Identifier: Apache-2.0
// See docker.h.
#include "cli/integrations/docker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "cli/complain.h"
#include "config/credentials.h"
#include "config/text.h"

namespace tendril::cli {
namespace {

void say(const std::string& note) { fprintf(stderr, "tendril: %s\n", note.c_str()); }

// The container's command, in this process' place. docker takes the token from its environment.
int run_container(const EnvOptions& options, std::vector<std::string> words) {
  auto token = config::load_token(options.token_file, config::TokenUse::kClient);
  if (!token.ok()) return complain(kFailed, token.status());
  if (!token->empty()) {
    setenv("TENDRIL_TOKEN", token->c_str(), 1);
    words.insert(words.end(), {"-e", "TENDRIL_TOKEN"});
  }
  const std::vector<std::string> all = with_docker_words(options.program, words);
  if (all.empty()) {
    return complain(kUsage,
                    "the command after '--' has no word 'run' or 'create' to put the options "
                    "behind; write: tendril env --docker -- docker run image program");
  }
  std::vector<char*> argv;
  for (const std::string& word : all) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return complain(errno == ENOENT ? kNotFound : kCannotExecute,
                  "cannot run '" + all[0] + "': " + strerror(errno));
}

}  // namespace

base::Result<std::vector<std::string>> docker_words(const ContainerEdits& edits) {
  std::vector<std::string> words;
  for (const Mount& mount : edits.mounts) {
    if (mount.source.find(':') != std::string::npos) {
      return base::Status(base::Code::kInvalid,
                          "docker cannot mount '" + mount.source +
                              "', because its path has a colon; give it another name");
    }
    words.insert(words.end(), {"-v", mount.source + ":" + mount.target + ":ro"});
  }
  for (const auto& [name, value] : edits.variables) {
    words.push_back("-e");
    words.push_back(name + "=" + value);
  }
  return words;
}

std::vector<std::string> with_docker_words(const std::vector<std::string>& program,
                                           const std::vector<std::string>& words) {
  const auto is_verb = [](const std::string& word) { return word == "run" || word == "create"; };
  auto verb = std::find_if(program.begin(), program.end(), is_verb);
  if (verb == program.begin() || verb == program.end()) return {};
  std::vector<std::string> all(program.begin(), ++verb);
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), verb, program.end());
  return all;
}

int docker_options(const EnvOptions& options) {
  const bool runs = !options.program.empty();
  auto edits = container_edits(options, runs);
  if (!edits.ok()) return complain(kFailed, edits.status());
  auto words = docker_words(*edits);
  if (!words.ok()) return complain(kFailed, words.status());
  for (const std::string& note : edits->notes) say(note);
  if (runs) return run_container(options, words.take());
  // docker takes the value from its own environment
  if (token_path(options.token_file).empty() && !config::variable("TENDRIL_TOKEN").empty())
    words->insert(words->end(), {"-e", "TENDRIL_TOKEN"});
  std::string line;
  bool quoted = false;
  for (const std::string& word : *words) {
    const std::string shown = shell_quoted(word);
    quoted = quoted || shown != word;
    line += (line.empty() ? "" : " ") + shown;
  }
  printf("%s\n", line.c_str());
  if (quoted) {
    say("some of these words are quoted for a shell, which $(...) does not undo: write 'eval', or "
        "'tendril env --docker ... -- docker run image program'");
  }
  return 0;
}

}  // namespace tendril::cli
