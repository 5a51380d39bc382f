// SPDX-License-Identifier: Apache-2.0
// Tests of docker.h: words for docker run, and where they go.
#include "cli/integrations/docker.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Docker, OptionsAreMountsAndVariables) {
  ContainerEdits edits;
  edits.mounts = {{"/a place/lib", "/opt/lib"}};
  edits.variables = {{"TENDRIL_FILTER", "memory >= 40G"}};
  auto words = docker_words(edits);
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words,
            (Words{"-v", "/a place/lib:/opt/lib:ro", "-e", "TENDRIL_FILTER=memory >= 40G"}));
}

TEST(Docker, APathWithAColonIsRefused) {
  ContainerEdits edits;
  edits.mounts = {{"/a:b", "/opt/lib"}};
  EXPECT_FALSE(docker_words(edits).ok());
}

TEST(Docker, OptionsStandBehindTheVerb) {
  const Words options = {"-e", "A=1"};
  EXPECT_EQ(with_docker_words({"docker", "run", "--rm", "image", "run"}, options),
            (Words{"docker", "run", "-e", "A=1", "--rm", "image", "run"}));
  EXPECT_EQ(with_docker_words({"sudo", "podman", "create", "image"}, options),
            (Words{"sudo", "podman", "create", "-e", "A=1", "image"}));
  EXPECT_TRUE(with_docker_words({"docker", "ps"}, options).empty());
  EXPECT_TRUE(with_docker_words({"run", "image"}, options).empty());
}

}  // namespace
}  // namespace tendril::cli
