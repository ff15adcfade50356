/* Children inherit LD_PRELOAD. The variable's place in the environment stays, and with it the array that main is given.
 * SPDX-License-Identifier: Apache-2.0 */
#include "preload.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

#define VARIABLE "LD_PRELOAD="
#define SEPARATORS " :"

static char **find_variable(void) {
  extern char **environ;
  for (char **entry = environ; entry && *entry; entry++)
    if (!strncmp(*entry, VARIABLE, strlen(VARIABLE))) return entry;
  return NULL;
}

/* Whether an entry of the list is what the loader made `loaded` of: the same path, or a name that it has searched for. */
static bool is_ours(const char *entry, size_t length, const char *loaded) {
  const char *slash = strrchr(loaded, '/'), *name = slash ? slash + 1 : loaded;
  const char *same = memchr(entry, '/', length) ? loaded : name;
  return length == strlen(same) && !memcmp(entry, same, length);
}

/* The variable with `path` in the place of each entry that is ours; NULL where there is none, or no memory. */
static char *rewrite(const char *variable, const char *loaded, const char *path) {
  const char *list = variable + strlen(VARIABLE);
  size_t entries = 1;
  for (const char *p = list; *p; p++) entries += strchr(SEPARATORS, *p) != NULL;
  char *out = malloc(strlen(variable) + entries * strlen(path) + 1), *end = out;
  bool changed = false;
  if (!out) return NULL;
  end = stpcpy(end, VARIABLE);
  while (*list) {
    size_t length = strcspn(list, SEPARATORS);
    bool ours = length && is_ours(list, length, loaded);
    changed |= ours;
    end = ours ? stpcpy(end, path) : (char *)memcpy(end, list, length) + length;
    list += length;
    if (*list) *end++ = *list++;
  }
  *end = '\0';
  if (changed) return out;
  free(out);
  return NULL;
}

void aq_preload_keep(void) {
  Dl_info self;
  char path[PATH_MAX];
  char **variable = find_variable();
  if (!variable || !dladdr((const void *)find_variable, &self) || !self.dli_fname || self.dli_fname[0] == '/') return;
  if (!realpath(self.dli_fname, path)) return;
  if (strpbrk(path, SEPARATORS)) {
    aq_say("LD_PRELOAD cannot hold %s: programs that are started in another directory have no limits; make a link to it", path);
    return;
  }
  char *absolute = rewrite(*variable, self.dli_fname, path);
  if (absolute) *variable = absolute;
}
