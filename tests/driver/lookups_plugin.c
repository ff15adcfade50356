/* A library that is linked to the driver's and looks names up: its scope has the driver, the program's has not.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>

void *look_up_by_default(const char *name);

void *look_up_by_default(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  return found; /* no jump: the loader sees who called */
}
