/* Look-ups for programs that have the interceptor linked into them, because a sanitizer's runtime cannot be preceded by a
 * preloaded dlsym: clients are compiled with dlsym meaning this.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>

#include "hooks.h"

void *hosted_dlsym(void *handle, const char *symbol);

void *hosted_dlsym(void *handle, const char *symbol) {
  const aq_hook *row = aq_hook_by_symbol(symbol);
  void *found = dlsym(handle, symbol);
  return row && found ? row->hook : found;
}
