/* Loads the driver twice, the second time into a link namespace of its own, and takes memory by each in turn.
 * Prints the statuses of the allocations: MiB of the first, of the second, …, alternating.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  int (*init)(unsigned);
  int (*retain)(void **, int);
  int (*set)(void *);
  int (*allocate)(unsigned long long *, size_t);
} driver;

static driver start(void *library) {
  driver made = {
      (int (*)(unsigned))dlsym(library, "cuInit"),
      (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain"),
      (int (*)(void *))dlsym(library, "cuCtxSetCurrent"),
      (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2"),
  };
  void *context;
  if (made.init(0) || made.retain(&context, 0) || made.set(context)) exit(2);
  return made;
}

int main(int argc, char **argv) {
  void *first = dlopen("libcuda.so.1", RTLD_NOW), *second = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
  if (!first || !second) return fprintf(stderr, "%s\n", dlerror()), 1;
  driver drivers[] = {start(first), start(second)};
  for (int i = 1; i < argc; i++) {
    unsigned long long pointer;
    printf("%d\n", drivers[(i - 1) % 2].allocate(&pointer, strtoull(argv[i], NULL, 0) << 20));
    fflush(stdout);
  }
  getchar(); /* until it has been looked at */
  return 0;
}
