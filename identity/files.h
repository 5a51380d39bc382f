// SPDX-License-Identifier: Apache-2.0
// Folders and small files with secrets: made for this user alone, replaced as a whole, refused when
// others could read or write them. Any thread; a folder's lock also holds between processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::identity {

enum class Secrecy : uint8_t { kPublic, kSecret };

// Makes the folder, and those above it, with mode 0700. An existing one must belong to this user or
// root, and nobody else may write in it.
base::Status make_folder(const std::string& path);
bool exists(const std::string& path);
// At most 4 MiB. A secret file that others may read is refused. kNotFound: there is none.
base::Result<std::string> read_file(const std::string& path, Secrecy secrecy);
// Readers see the old or the new content, also after a crash.
base::Status write_file(const std::string& path, const std::string& text, Secrecy secrecy);
// Held until the descriptor closes.
base::Result<base::Fd> lock_folder(const std::string& path);
// Lines of words without blanks. Empty lines and those that begin with # are left out.
std::vector<std::vector<std::string>> words_of_lines(const std::string& text);
std::vector<std::string> names_in_folder(const std::string& path);

}  // namespace tendril::identity
