/* Threads that retain and release handles of one mapped allocation as fast as they can, ROUNDS times each; then the
 * allocation is unmapped and released. Prints "done" and waits for its stdin to be closed.
 *
 *   vmm_storm ROUNDS THREADS
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SIZE (2ull << 20)

typedef struct {
  int type, handle_types, location_type, location;
  void *unused;
  unsigned char flags[8];
} properties;

static void *driver, *context;
static uint64_t address, handle;
static long rounds;

#define CALL(name, types, ...)                                      \
  do {                                                              \
    int status = ((int(*) types)dlsym(driver, name))(__VA_ARGS__);  \
    if (status) fprintf(stderr, "%s: %d\n", name, status), exit(3); \
  } while (0)

static void *storm(void *unused) {
  (void)unused;
  int (*retain)(uint64_t *, void *) = (int (*)(uint64_t *, void *))dlsym(driver, "cuMemRetainAllocationHandle");
  int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(driver, "cuMemRelease");
  CALL("cuCtxSetCurrent", (void *), context);
  for (long i = 0; i < rounds; i++) {
    uint64_t mine;
    if (retain(&mine, (void *)(uintptr_t)address) || release(mine)) exit(3);
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  if (argc < 3) return 2;
  rounds = atol(argv[1]);
  int count = atoi(argv[2]);
  properties wanted = {.type = 1, .location_type = 1};
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  CALL("cuInit", (unsigned), 0);
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
  CALL("cuCtxSetCurrent", (void *), context);
  CALL("cuMemCreate", (uint64_t *, size_t, properties *, uint64_t), &handle, SIZE, &wanted, 0);
  CALL("cuMemAddressReserve", (uint64_t *, size_t, size_t, uint64_t, uint64_t), &address, SIZE, 0, 0, 0);
  CALL("cuMemMap", (uint64_t, size_t, size_t, uint64_t, uint64_t), address, SIZE, 0, handle, 0);
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, NULL);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  CALL("cuMemUnmap", (uint64_t, size_t), address, SIZE);
  CALL("cuMemRelease", (uint64_t), handle);
  printf("done\n");
  fflush(stdout);
  return read(STDIN_FILENO, threads, 1) < 0;
}
