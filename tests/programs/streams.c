/* Streams that work side by side, each in its own way, and are waited for together.
 *
 *   work=1x20000,10x1000   a stream each: so many kernels of so many microseconds; "in" or "out" for the microseconds: copies
 *   copy_mib=1             what each of these moves
 *   rounds=1               how often all that is done
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "program.h"

#define MAX_STREAMS 16

typedef struct {
  stream own;
  unsigned count;
  kernel work;
  enum { KERNEL, IN, OUT } what;
  uint64_t device;
  void *host;
} line;

static size_t copy_bytes;

static void parse(line *one, const char *text) {
  char what[16];
  if (sscanf(text, "%ux%15s", &one->count, what) != 2) fail(text, 1);
  one->own = new_stream();
  one->what = !strcmp(what, "in") ? IN : !strcmp(what, "out") ? OUT : KERNEL;
  uint64_t us = 0;
  if (one->what == KERNEL && sscanf(what, "%lu", &us) != 1) fail(text, 1);
  if (one->what == KERNEL) return (void)(one->work = kernel_of(us));
  CHECK(cuMemAlloc_v2(&one->device, copy_bytes));
  CHECK(cuMemHostAlloc(&one->host, copy_bytes, 0));
  memset(one->host, 1, copy_bytes);
}

static void submit(const line *one) {
  for (unsigned i = 0; i < one->count; i++) {
    if (one->what == KERNEL) launch(one->work, one->own);
    else if (one->what == IN) CHECK(cuMemcpyHtoDAsync_v2(one->device, one->host, copy_bytes, one->own));
    else CHECK(cuMemcpyDtoHAsync_v2(one->host, one->device, copy_bytes, one->own));
  }
}

int main(int argc, char **argv) {
  static line lines[MAX_STREAMS];
  static char text[1024];
  size_t count = 0;
  start(argc, argv);
  copy_bytes = option("copy_mib", 1) * MIB;
  snprintf(text, sizeof text, "%s", text_option("work", "1x20000,10x1000"));
  for (char *one = strtok(text, ","); one && count < MAX_STREAMS; one = strtok(NULL, ",")) parse(&lines[count++], one);
  wait_to_begin();
  for (uint64_t rounds = option("rounds", 1); rounds; rounds--) {
    for (size_t i = 0; i < count; i++) submit(&lines[i]);
    for (size_t i = 0; i < count; i++) CHECK(cuStreamSynchronize(lines[i].own));
  }
  finish();
  return 0;
}
