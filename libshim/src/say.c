/* The host process's stderr is not ours: a few lines at most, each written by one system call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define MOST_LINES 4

void aq_say(const char *format, ...) {
  static int lines;
  if (__atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED) >= MOST_LINES) return;
  int saved = errno;
  char text[512];
  int head = snprintf(text, sizeof text, "aliquot: ");
  va_list arguments;
  va_start(arguments, format);
  int body = vsnprintf(text + head, sizeof text - (size_t)head - 1, format, arguments);
  va_end(arguments);
  size_t length = (size_t)head + (size_t)(body < 0 ? 0 : body);
  if (length > sizeof text - 2) length = sizeof text - 2;
  text[length++] = '\n';
  if (write(STDERR_FILENO, text, length) < 0) errno = saved; /* a closed stderr is the program's choice */
  errno = saved;
}
