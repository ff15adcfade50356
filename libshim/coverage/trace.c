/* The tracing flavour (make trace): each process notes, in the file that ALIQUOT_TRACE names, by which hooks it was
 * entered. The compiler calls what is here at the start of every function. A call from within the library is no entry.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hooks.h"

#define UNTRACED __attribute__((no_instrument_function))

/* The linker's marks around the library. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

void __cyg_profile_func_enter(void *function, void *site);
void __cyg_profile_func_exit(void *function, void *site);

/* One line, written at once: whoever reads it meanwhile, and whoever dies the next moment, leaves whole lines. */
UNTRACED static void note(const char *symbol) {
  const char *path = getenv("ALIQUOT_TRACE");
  char line[128] = "";
  int before = errno, file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file >= 0) {
    strncat(strncat(line, symbol, sizeof line - 2), "\n", 2);
    if (write(file, line, strlen(line)) < 0) errno = before;
    close(file);
  }
  errno = before;
}

UNTRACED void __cyg_profile_func_enter(void *function, void *site) {
  static char noted[4096]; /* relaxed: a race writes the same line twice */
  size_t count;
  if ((const char *)site >= __ehdr_start && (const char *)site < _end) return;
  const aq_hook *rows = aq_hooks(&count);
  for (size_t row = 0; row < count; row++)
    if (rows[row].hook == function && !__atomic_exchange_n(&noted[row], 1, __ATOMIC_RELAXED)) note(rows[row].symbol);
}

UNTRACED void __cyg_profile_func_exit(void *function, void *site) {
  (void)function;
  (void)site;
}
