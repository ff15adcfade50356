/* Times cuMemAlloc + cuMemFree while N other blocks are live. Prints the median nanoseconds of a pair.
 *
 *   alloc LIVE ROUNDS
 *
 * Every round replaces blocks spread over the live ones, so that a table which degrades with what it holds shows it;
 * the new one comes before the old one goes, so that the driver is never left without any. The median over batches leaves out what the rest of the machine does meanwhile.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK 4096
#define BATCH 500

static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t);

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int start(void) {
  void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 1;
  allocate = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
  release = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
  if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0)) return 1;
  if (((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0)) return 1;
  return ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
}

static double batch(uint64_t *live, size_t count, size_t *at) {
  uint64_t begin = now_ns();
  for (int i = 0; i < BATCH; i++) {
    uint64_t fresh;
    if (allocate(&fresh, BLOCK) || release(live[*at])) exit(1);
    live[*at] = fresh;
    *at = (*at + 7919) % count; /* a prime: the order of addresses is not the order of age */
  }
  return (double)(now_ns() - begin) / BATCH;
}

int main(int argc, char **argv) {
  if (argc < 3 || start()) return 1;
  size_t count = strtoul(argv[1], NULL, 10), rounds = strtoul(argv[2], NULL, 10) / BATCH, at = 0;
  uint64_t *live = calloc(count, sizeof *live);
  double *times = calloc(rounds, sizeof *times);
  for (size_t i = 0; i < count; i++)
    if (allocate(&live[i], BLOCK)) return 1;
  for (size_t i = 0; i < rounds; i++) times[i] = batch(live, count, &at);
  qsort(times, rounds, sizeof *times, by_value);
  printf("%.2f\n", times[rounds / 2]);
  return 0;
}
